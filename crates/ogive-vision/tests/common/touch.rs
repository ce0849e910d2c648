//! Bytes as an image file: reading must not panic, and what is read is whole and can be prepared, or refused, by every family.
//!
//! The fuzz target makes the same check.

use ogive_tensor::Config;
use ogive_tensor::serde_json::{Value, json};
use ogive_vision::{Image, MAX_PIXELS, MAX_ROWS, MAX_VALUES, Processor};

/// A processor of each family, with pictures so small that many can be made.
pub(crate) fn processors() -> Vec<Processor> {
    let small = json!({"height": 32, "width": 32});
    let edge = json!({"longest_edge": 64});
    let all = [
        (
            json!({"model_type": "gemma3"}),
            json!({"size": small, "do_pan_and_scan": true, "pan_and_scan_min_crop_size": 2}),
        ),
        (json!({"model_type": "qwen2_vl"}), json!({"min_pixels": 256, "max_pixels": 4096})),
        (json!({"model_type": "qwen3_vl"}), json!({"size": {"shortest_edge": 256, "longest_edge": 4096}})),
        (json!({"model_type": "mistral3"}), json!({"size": edge})),
        (
            json!({"model_type": "idefics3", "scale_factor": 1}),
            json!({"size": edge, "max_image_size": {"longest_edge": 16}}),
        ),
        (json!({"model_type": "internvl"}), json!({"size": small})),
        (
            json!({"model_type": "lfm2_vl"}),
            json!({"tile_size": 16, "min_image_tokens": 4, "max_image_tokens": 16, "downsample_factor": 1}),
        ),
        (json!({"model_type": "llava"}), json!({"size": {"shortest_edge": 32}, "crop_size": small})),
    ];
    let load = |(mut config, settings): (Value, Value)| {
        let patch = if config["model_type"] == "qwen3_vl" { 4 } else { 8 };
        let vision = json!({"patch_size": patch, "image_size": 32, "model_type": "clip_vision_model"});
        config["vision_config"] = vision;
        Processor::load(&Config(config), Some(&Config(settings)), None).unwrap().unwrap()
    };
    all.into_iter().map(load).collect()
}

/// Whether there is an image in the bytes.
pub(crate) fn touch(bytes: &[u8]) -> bool {
    match Image::decode(bytes) {
        Ok(image) => {
            assert!(image.width() * image.height() <= MAX_PIXELS);
            assert_eq!(image.pixels().len(), image.width() * image.height() * 3);
            // What fuzzers find is small, or it would take them too long.
            if image.width() * image.height() < 1 << 20 {
                processors().iter().for_each(|processor| prepare(processor, &image));
            }
            true
        }
        Err(e) => {
            assert!(e.to_string().starts_with("image: "), "{e}");
            false
        }
    }
}

/// Prepares an image; what comes of it is whole.
pub(crate) fn prepare(processor: &Processor, image: &Image) {
    let Ok(picture) = processor.prepare(image) else { return };
    assert!((1..=MAX_ROWS).contains(&picture.rows()) && !picture.tiles.is_empty());
    assert_eq!(picture.text.matches(processor.row_token()).count(), picture.rows());
    assert!(picture.tiles.iter().map(|tile| tile.patches.len()).sum::<usize>() <= MAX_VALUES);
    for tile in &picture.tiles {
        assert_eq!(tile.patches.len(), tile.grid[0] * tile.grid[1] * tile.patch_len);
        assert!(tile.patches.iter().all(|value| value.is_finite()));
    }
}
