//! Towers, and models with images in their prompts, against transformers' (`cargo xtask golden gemma3-vision` and so on).
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/vision.rs"]
mod vision;

use common::*;
use ogive_conformance::Oracle;
use ogive_nn::backend::Backend;
use ogive_nn::tensor::{Config, F16, F32, HostWeight, Result, WeightInfo};
use ogive_nn::{Loader, Source};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use vision::*;

/// The largest difference from transformers' results in single precision: rows are within 2e-6, logits within 5e-6, but for Qwen3.5's delta rule, which
/// transformers computes in chunks: 1.7e-5.
const EXACT: f32 = 5e-5;

#[test]
fn towers_make_the_rows_that_transformers_makes() {
    let mut failed = Vec::new();
    for (backend, b) in exact_backends() {
        for (name, folder) in seeing() {
            for (i, (got, image)) in seen(&folder, &*b).iter().zip(images(&folder)).enumerate() {
                assert_eq!(got.deeper.len(), image.deeper.len(), "{name}, image {i}");
                let pairs = got.deeper.iter().zip(&image.deeper).chain([(&got.values, &image.rows)]);
                for (got, want) in pairs {
                    let error = worst(&matrix(got, want.ncols()), want);
                    println!("{name:20} {backend:8} image {i} {error:.1e}");
                    if error.is_nan() || error > EXACT {
                        failed.push(format!("{name} on {backend}, image {i}: rows are off by {error:.1e}"));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn logits_with_images_are_those_of_transformers() {
    let mut failed = Vec::new();
    for (backend, b) in exact_backends() {
        for (name, folder) in seeing() {
            let (model, seen) = (load(&folder, &*b), seen(&folder, &*b));
            for prompt in prompts(&folder) {
                // Rows that see each other must be in one step.
                let mutual = seen.iter().any(|of| of.mutual);
                for chunk in [prompt.ids.len(), if mutual { prompt.ids.len() } else { 7 }] {
                    let got = logits_of(&*b, &*model, &prompt, &seen, &F32, chunk);
                    let error = worst(&got, &prompt.logits);
                    println!("{name:20} {backend:8} {:8} {chunk:3} {error:.1e}", prompt.name);
                    if error.is_nan() || error > EXACT {
                        failed.push(format!("{name} on {backend}, {}: off by {error:.1e}", prompt.name));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// As programs have them that do not choose: weights are BF16, so what they multiply is rounded to it, and the cache is of halves.
#[test]
fn what_is_seen_by_default_is_near() {
    // 1.6e-4 was measured of Qwen3.5's states, and 7e-5 of all others.
    const HALVES: f64 = 3e-4;
    let b = ogive_cpu::CpuBackend::builder().build().unwrap();
    let mut failed = Vec::new();
    for (name, folder) in seeing() {
        let (model, seen) = (load(&folder, &b), seen(&folder, &b));
        for (i, (got, image)) in seen.iter().zip(images(&folder)).enumerate() {
            let drift = nmse(&matrix(&got.values, got.dim), &image.rows);
            println!("{name:20} image {i} nmse {drift:.1e}");
            if !(1e-7..=HALVES).contains(&drift) {
                failed.push(format!("{name}, image {i}: nmse {drift:.1e}"));
            }
        }
        for prompt in prompts(&folder) {
            let got = logits_of(&b, &*model, &prompt, &seen, &F16, prompt.ids.len());
            let drift = nmse(&got, &prompt.logits);
            println!("{name:20} {:8} nmse {drift:.1e}", prompt.name);
            if !(1e-7..=HALVES).contains(&drift) {
                failed.push(format!("{name}, {}: nmse {drift:.1e}", prompt.name));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn patches_of_another_grid_are_refused() {
    for (name, folder) in seeing() {
        let tower = tower(&folder, &Oracle);
        let image = images(&folder).remove(0);
        let [rows, cols] = image.grid;
        let grids =
            [[0, 0], [rows, 0], [rows + 1, cols], [usize::MAX, 2], [1, rows * cols], [rows * cols, 1]];
        for grid in grids {
            let seen = tower.see(&Oracle as &dyn Backend, &image.patches, grid);
            // A strip is a grid where neither blocks nor learned places need another.
            let strip = grid[0] == 1 || grid[1] == 1;
            assert!(seen.is_err() || (strip && name == "pixtral"), "{name}: {grid:?} is seen");
        }
        let fewer = &image.patches[1..];
        assert!(tower.see(&Oracle, fewer, image.grid).is_err(), "{name}: fewer numbers");
        assert!(tower.see(&Oracle, &[], image.grid).is_err(), "{name}: none");
    }
}

/// As checkpoints had them that were saved before transformers 4.52, or by others since.
#[test]
fn first_names_of_weights_and_settings_are_read_too() {
    fn of_qwen(name: &str) -> Option<String> {
        if name.starts_with("model.visual.") || name.starts_with("model.language_model.") {
            return None;
        }
        let text = name.strip_prefix("model.").map(|rest| format!("model.language_model.{rest}"));
        let tower = name.starts_with("visual.").then(|| format!("model.{name}"));
        text.or(tower).or_else(|| name.starts_with("lm_head.").then(|| name.to_owned()))
    }
    fn of_others(name: &str) -> Option<String> {
        if let Some(rest) = name.strip_prefix("language_model.") {
            let rest = rest.strip_prefix("model.").map(|rest| format!("model.language_model.{rest}"));
            return rest.or_else(|| name.ends_with("lm_head.weight").then(|| "lm_head.weight".into()));
        }
        let beside = name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.");
        beside.then(|| format!("model.{name}"))
    }
    let names = ["qwen2-vl", "qwen2.5-vl", "gemma3", "mistral3", "pixtral", "llava", "internvl"];
    for name in names {
        let folder = seeing().into_iter().find(|(own, _)| own == name).unwrap().1;
        let mut file = ogive_weights::open(&folder).unwrap();
        let qwen = name.starts_with("qwen");
        if qwen {
            // Among all other settings.
            let text = file.config.0["text_config"].take();
            file.config.0.as_object_mut().unwrap().extend(text.as_object().unwrap().clone());
        }
        let source = Renamed(file.source, if qwen { of_qwen } else { of_others });
        let (loader, registry) = (Loader::new(&source, &Oracle), ogive_models::registry());
        let tower = registry.tower(&file.architecture, &file.config, &loader).unwrap();
        let see = |image: &Image| Arc::new(tower.see(&Oracle, &image.patches, image.grid).unwrap());
        let seen: Vec<_> = images(&folder).iter().map(see).collect();
        let model = registry.build(&file.architecture, &file.config, &loader).unwrap();
        for prompt in prompts(&folder) {
            let got = logits_of(&Oracle, &*model, &prompt, &seen, &F32, prompt.ids.len());
            let error = worst(&got, &prompt.logits);
            assert!(error < EXACT, "{name}, {}: {error:.1e}", prompt.name);
        }
    }
}

/// Of settings that decide where rows of an image stand, or what a tower is.
#[test]
fn what_a_family_does_not_know_is_refused() {
    let text = |name: &str, change: &dyn Fn(&mut Value)| {
        let (_, folder) = seeing().into_iter().find(|(own, _)| own == name).unwrap();
        let mut file = ogive_weights::open(folder).unwrap();
        change(&mut file.config.0);
        let loader = Loader::new(&*file.source, &Oracle);
        ogive_models::registry().build(&file.architecture, &file.config, &loader).map(|_| ())
    };
    let sections = |c: &mut Value| c["text_config"]["rope_scaling"]["mrope_section"] = Value::Null;
    let type_of = |c: &mut Value| c["text_config"]["model_type"] = "opt".into();
    for (result, why) in [
        (text("qwen2-vl", &|c| c["text_config"]["rope_scaling"] = Value::Null), "mrope_section"),
        (text("qwen2-vl", &sections), "mrope_section"),
        (text("qwen3-vl", &sections), "should add up to the 8 pairs"),
        (text("llava", &type_of), "`text_config` of type `opt`; known are llama"),
    ] {
        let e = result.unwrap_err().to_string();
        assert!(e.contains(why), "{e}");
    }
    let tower = |name: &str, pointer: &str, value: Value| {
        let (_, folder) = seeing().into_iter().find(|(own, _)| own == name).unwrap();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let change = |c: &mut Config| c.0.pointer_mut(parent).unwrap()[key] = value;
        tower_with(&folder, &Oracle, change).map(|_| ()).unwrap_err().to_string()
    };
    for (name, pointer, value, why) in [
        ("gemma3", "/mm_tokens_per_image", json!(8), "should be a square"),
        ("gemma3", "/text_config/sliding_window", json!(8), "no more than the window of 8"),
        ("gemma3", "/vision_config/num_attention_heads", json!(0), "36 elements cannot be cut into 0 heads"),
        ("gemma3", "/vision_config/hidden_act", json!("gelo"), "`hidden_act` is `gelo`"),
        ("qwen2.5-vl", "/vision_config/window_size", json!(3), "less than a block of patches"),
        ("qwen2.5-vl", "/vision_config/num_heads", json!(16), "cannot turn by row and column"),
        (
            "qwen3-vl",
            "/vision_config/deepstack_visual_indexes",
            json!([0, 3]),
            "has block 3, and there are 3",
        ),
        (
            "qwen3-vl",
            "/vision_config/num_position_embeddings",
            json!(24),
            "24 places of 24 elements are configured",
        ),
        ("pixtral", "/vision_feature_select_strategy", json!("default"), "Pixtral has all patches"),
        ("pixtral", "/vision_config/rope_theta", json!(0.0), "a theta of 0"),
        ("mistral3", "/vision_feature_layer", json!([-1, -2]), "`vision_feature_layer` is [-1,-2]"),
        ("mistral3", "/vision_feature_layer", json!(-9), "known is one of the 2 layers"),
        ("mistral3", "/spatial_merge_size", json!(3), "is not of blocks of 3 by 3 patches"),
        ("llava", "/vision_config/model_type", json!("siglip"), "known are clip_vision_model, pixtral"),
        ("llava", "/vision_feature_select_strategy", json!("cls"), "known are default, full"),
        ("internvl", "/vision_config/norm_type", json!("batch_norm"), "known are layer_norm, rms_norm"),
        ("internvl", "/vision_config/image_size", json!([16, 12]), "of which no square is made"),
        ("internvl", "/downsample_ratio", json!(0.3), "not one part of a whole number"),
        ("internvl", "/vision_feature_layer", json!(1), "other than the last layer's patches"),
        ("smolvlm", "/scale_factor", json!(0), "`scale_factor` is 0"),
    ] {
        let e = tower(name, pointer, value);
        assert!(e.contains(why), "{name}, {pointer}: {e}");
    }
}

/// Every number of the settings in turn as 0, as another and as one beyond counting: what is not refused when the tower is loaded is refused when it is
/// to see, or changes nothing that could not be computed.
#[test]
fn false_settings_are_errors_and_no_panics() {
    for (name, folder) in seeing() {
        let image = images(&folder).remove(0);
        let (mut refused, mut tried) = (0, 0);
        for path in numbers(&ogive_weights::open(&folder).unwrap().config.0, "") {
            for value in [0, 1, 3, 1 << 20, u64::MAX >> 1, u64::MAX] {
                let change = |c: &mut Config| *c.0.pointer_mut(&path).unwrap() = value.into();
                let tower = tower_with(&folder, &Oracle, change);
                let seen = tower.and_then(|tower| tower.see(&Oracle, &image.patches, image.grid));
                (tried, refused) = (tried + 1, refused + usize::from(seen.is_err()));
            }
        }
        println!("{name}: {refused} of {tried} refused");
        assert!(refused > 15, "{name}: {refused} of {tried}");
    }
}

/// Pointers to all numbers below `value` that a tower may read.
fn numbers(value: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Object(map) => {
            let own = map.iter().filter(|(key, _)| *key != "text_config");
            own.flat_map(|(key, value)| numbers(value, &format!("{path}/{key}"))).collect()
        }
        Value::Array(list) => {
            list.iter().enumerate().flat_map(|(i, value)| numbers(value, &format!("{path}/{i}"))).collect()
        }
        Value::Number(_) => vec![path.to_owned()],
        _ => Vec::new(),
    }
}

/// Every tensor that the tower reads in turn with one row or column fewer, and with none.
#[test]
fn weights_of_another_shape_are_errors_and_no_panics() {
    for (name, folder) in seeing() {
        let image = images(&folder).remove(0);
        let file = ogive_weights::open(&folder).unwrap();
        let source =
            Shorter { of: file.source, name: String::new(), cut: Cut::Rows(0), asked: Mutex::default() };
        let see = |source: &Shorter| {
            let loader = Loader::new(source, &Oracle);
            let tower = ogive_models::registry().tower(&file.architecture, &file.config, &loader)?;
            tower.see(&Oracle, &image.patches, image.grid)
        };
        see(&source).unwrap();
        let own = source.asked.into_inner().unwrap();
        let mut source = Shorter { asked: Mutex::default(), ..source };
        let (mut refused, mut tried) = (0, 0);
        for own in own {
            source.name = own;
            for cut in [Cut::Rows(1), Cut::Cols(1), Cut::Rows(usize::MAX), Cut::Cols(usize::MAX)] {
                source.cut = cut;
                (tried, refused) = (tried + 1, refused + usize::from(see(&source).is_err()));
            }
        }
        println!("{name}: {refused} of {tried} refused");
        // One is left: the last matrix may have fewer outputs, of which an engine says that they do not fit its model.
        assert!(tried > 90 && refused + 1 >= tried, "{name}: {refused} of {tried}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    Rows(usize),
    Cols(usize),
}

/// A file one of whose tensors is shorter or narrower.
#[derive(Debug)]
struct Shorter {
    of: Box<dyn Source>,
    name: String,
    cut: Cut,
    /// What was asked for and is there.
    asked: Mutex<BTreeSet<String>>,
}

impl Source for Shorter {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let host = self.of.get(name)?;
        self.asked.lock().unwrap().insert(name.to_owned());
        if name != self.name {
            return Ok(host);
        }
        let [experts, rows, cols] = host.shape;
        let (kept_rows, kept_cols) = match self.cut {
            Cut::Rows(n) => (rows.saturating_sub(n), cols),
            Cut::Cols(n) => (rows, cols.saturating_sub(n)),
        };
        let of = |e: usize, r: usize| (e * rows + r) * cols..(e * rows + r) * cols + kept_cols;
        let values = host.to_vec();
        let kept = (0..experts).flat_map(|e| (0..kept_rows).map(move |r| (e, r)));
        let kept: Vec<f32> = kept.flat_map(|(e, r)| values[of(e, r)].to_vec()).collect();
        HostWeight::from_f32(name, [experts, kept_rows, kept_cols], &kept)
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        self.of.tensors()
    }
}
