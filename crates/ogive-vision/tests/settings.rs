//! Which settings make a processor of which kind, and which are refused and with what words.

use ogive_tensor::Config;
use ogive_vision::{Cut, Family, Filter, Image, Normalize, Picture, Processor};
use serde_json::{Value, json};

fn load(config: Value, settings: Value, processor: Value) -> ogive_tensor::Result<Option<Processor>> {
    let some = |value: Value| Some(Config(value)).filter(|config| !config.0.is_null());
    Processor::load(&Config(config), some(settings).as_ref(), some(processor).as_ref())
}

fn refused(config: Value, settings: Value, processor: Value) -> String {
    load(config, settings, processor).unwrap_err().to_string()
}

fn vision(model_type: &str) -> Value {
    json!({"model_type": model_type, "vision_config": {"patch_size": 14, "image_size": 224}})
}

fn grey(width: usize, height: usize) -> Image {
    Image::new(width, height, vec![127; width * height * 3]).unwrap()
}

#[test]
fn models_that_do_not_see_have_none() {
    for config in [
        json!({"model_type": "gemma3_text"}),
        json!({"model_type": "gemma3", "vision_config": null}),
        vision("of_tomorrow"),
        json!({"model_type": "llava", "vision_config": {"model_type": "of_tomorrow"}}),
        json!({}),
    ] {
        assert!(load(config.clone(), Value::Null, Value::Null).unwrap().is_none(), "{config}");
    }
}

#[test]
fn without_settings_a_familys_own_hold() {
    // Marker, row token, rows and patches of 200 x 100 pixels.
    let clip = json!({"model_type": "llava", "vision_config": {"model_type": "clip_vision_model", "patch_size": 14, "image_size": 336}});
    let pixtral = json!({"model_type": "llava", "vision_config": {"model_type": "pixtral"}});
    let all = [
        (vision("gemma3"), "<start_of_image>", "<image_soft_token>", 256, 256),
        (vision("qwen2_5_vl"), "<|image_pad|>", "<|image_pad|>", 28, 112),
        (
            json!({"model_type": "qwen3_5_moe", "vision_config": {}}),
            "<|image_pad|>",
            "<|image_pad|>",
            72,
            288,
        ),
        (
            json!({"model_type": "mistral3", "vision_config": {}, "spatial_merge_size": 2}),
            "[IMG]",
            "[IMG]",
            28,
            112,
        ),
        (pixtral, "[IMG]", "[IMG]", 91, 91),
        (
            json!({"model_type": "smolvlm", "vision_config": {"patch_size": 16, "image_size": 512}, "scale_factor": 4}),
            "<image>",
            "<image>",
            64 * 9,
            1024 * 9,
        ),
        (vision("internvl"), "<IMG_CONTEXT>", "<IMG_CONTEXT>", 64 * 3, 256 * 3),
        (json!({"model_type": "lfm2_vl", "vision_config": {}}), "<image>", "<image>", 72, 288),
        (clip, "<image>", "<image>", 576, 576),
    ];
    for (config, marker, row, rows, patches) in all {
        let processor = load(config.clone(), Value::Null, Value::Null).unwrap().unwrap();
        assert_eq!((processor.marker(), processor.row_token()), (marker, row), "{config}");
        let picture = processor.prepare(&grey(200, 100)).unwrap();
        let made: usize = picture.tiles.iter().map(|tile| tile.grid[0] * tile.grid[1]).sum();
        assert_eq!((picture.rows(), made), (rows, patches), "{config}");
    }
}

#[test]
fn an_image_processors_settings_may_be_in_the_processors() {
    let nested = json!({"image_processor": {"min_pixels": 784, "max_pixels": 784}});
    let qwen = load(vision("qwen2_vl"), Value::Null, nested).unwrap().unwrap();
    assert_eq!(qwen.prepare(&grey(200, 200)).unwrap().rows(), 1);
}

#[test]
fn qwens_bounds_are_said_in_three_ways() {
    for settings in [
        json!({"min_pixels": 784, "max_pixels": 784, "size": {"shortest_edge": 9, "longest_edge": 99999}}),
        json!({"size": {"shortest_edge": 784, "longest_edge": 784}}),
        json!({"size": {"min_pixels": 784, "max_pixels": 784}}),
    ] {
        let qwen = load(vision("qwen2_vl"), settings, Value::Null).unwrap().unwrap();
        assert_eq!(qwen.prepare(&grey(200, 200)).unwrap().rows(), 1);
    }
}

#[test]
fn settings_that_are_not_followed_are_refused() {
    let said = refused(vision("gemma3"), json!({"do_resize": false}), Value::Null);
    assert_eq!(said, "image settings: do_resize: it is false, and images are prepared with it only");
    let said = refused(vision("gemma3"), json!({"resample": 0}), Value::Null);
    assert!(said.contains("resample: it is 0") && said.contains("are known"), "{said}");
    let said = refused(vision("idefics3"), json!({"size": {"shortest_edge": 300}}), Value::Null);
    assert!(said.contains("size: there is no `longest_edge` in it"), "{said}");
    let said = refused(vision("internvl"), json!({"do_center_crop": true}), Value::Null);
    assert!(said.contains("do_center_crop: it is true"), "{said}");
}

#[test]
fn settings_out_of_range_are_refused() {
    let wrong = |config: Value, settings: Value, words: &str| {
        let said = refused(config, settings.clone(), Value::Null);
        assert!(said.starts_with("image settings: ") && said.contains(words), "{settings}: {said}");
    };
    wrong(
        vision("gemma3"),
        json!({"size": {"height": 0, "width": 9}}),
        "size: height: it is 0 and should be between 1",
    );
    wrong(vision("gemma3"), json!({"size": {"height": 1u64 << 40, "width": 9}}), "should be between");
    wrong(vision("gemma3"), json!({"size": "large"}), "should be");
    wrong(vision("gemma3"), json!({"image_std": [0.5, 0.5]}), "image_std: it has 2 numbers");
    wrong(vision("gemma3"), json!({"image_std": [0.5, 0.0, 0.5]}), "deviations should be above 0");
    wrong(vision("gemma3"), json!({"rescale_factor": 0}), "rescale_factor: it is 0 and should be between");
    wrong(vision("qwen2_vl"), json!({"min_pixels": 100, "max_pixels": 50}), "at least 100 and at most 50");
    wrong(vision("qwen2_vl"), json!({"patch_size": 16}), "patch_size: the checkpoint's files say 14 and 16");
    wrong(vision("qwen2_vl"), json!({"merge_size": 0}), "spatial_merge_size: it is 0");
    wrong(vision("internvl"), json!({"max_patches": 1000}), "max_patches: it is 1000");
    wrong(
        vision("internvl"),
        json!({"min_patches": 5, "max_patches": 4}),
        "min_patches: it is 5, and max_patches 4",
    );
    wrong(
        vision("lfm2_vl"),
        json!({"encoder_patch_size": 16}),
        "encoder_patch_size: the checkpoint's files say 14 and 16",
    );
    wrong(
        json!({"model_type": "gemma3", "vision_config": {"patch_size": [14, 7]}}),
        json!({}),
        "patch_size: it is",
    );
    wrong(
        json!({"model_type": "idefics3", "vision_config": {"patch_size": 14}, "scale_factor": 3}),
        json!({"max_image_size": {"longest_edge": 112}}),
        "scale_factor: it is 3",
    );
    // What a tower makes and what the prompt would say.
    let said = refused(vision("internvl"), Value::Null, json!({"image_seq_length": 256}));
    assert!(said.contains("image_seq_length: the checkpoint's files say 64 and 256"), "{said}");
}

#[test]
fn what_is_too_long_or_too_much_is_refused() {
    let qwen = load(vision("qwen2_vl"), Value::Null, Value::Null).unwrap().unwrap();
    let said = qwen.prepare(&grey(2, 402)).unwrap_err().to_string();
    assert!(said.contains("201 times as long as it is wide"), "{said}");
    assert!(qwen.prepare(&grey(400, 2)).is_ok());
    let tiny = json!({"model_type": "smolvlm", "vision_config": {"patch_size": 1}, "scale_factor": 1});
    let settings = json!({"size": {"longest_edge": 4096}, "max_image_size": {"longest_edge": 1}});
    let many = load(tiny, settings, Value::Null).unwrap().unwrap();
    let said = many.prepare(&grey(20, 20)).unwrap_err().to_string();
    assert!(said.contains("16777217 rows of a prompt") && said.contains("smaller"), "{said}");
}

/// As a GGUF file has it, in its settings; files beside it come first.
#[test]
fn colours_may_stand_in_the_configuration() {
    let mut config = vision("gemma3");
    config["image_processor"] = json!({"image_mean": [0.0, 0.0, 0.0], "image_std": [1.0, 1.0, 1.0]});
    let first = |settings: Value, processor: Value| {
        let processor = load(config.clone(), settings, processor).unwrap().unwrap();
        processor.prepare(&grey(8, 8)).unwrap().tiles[0].patches[0]
    };
    assert_eq!(first(Value::Null, Value::Null), 127.0 / 255.0);
    let halves = json!({"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]});
    let other = first(halves.clone(), Value::Null);
    assert!(other < 0.0 && first(Value::Null, json!({"image_processor": halves})) == other, "{other}");
}

/// A family of one's own, of the parts that others are made of.
#[derive(Debug)]
struct Thumbnail(Normalize);

impl Family for Thumbnail {
    fn marker(&self) -> &str {
        "<picture>"
    }

    fn row_token(&self) -> &str {
        "<patch>"
    }

    fn prepare(&self, image: &Image) -> ogive_tensor::Result<Picture> {
        let tile = Cut::new(4).tile(&image.resized(8, 8, Filter::Bicubic)?, &self.0, 4)?;
        Picture::new("<patch>".repeat(tile.rows), vec![tile])
    }
}

#[test]
fn a_family_of_ones_own() {
    let processor = Processor::new(Thumbnail(Normalize::new([0.0; 3], [1.0; 3]).unwrap()));
    let picture = processor.prepare(&grey(70, 30)).unwrap();
    assert_eq!((processor.marker(), picture.text.as_str()), ("<picture>", "<patch><patch><patch><patch>"));
    assert!(picture.tiles[0].patches.iter().all(|value| *value == 127.0 / 255.0));
}
