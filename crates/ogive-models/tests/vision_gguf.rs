//! Models that see from GGUF files, which `ogive-quantize` made of the repository's folders: one of the text's part, one of what it sees with
//! (`mmproj`). Neither changes a number.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/converted.rs"]
mod converted;
#[path = "common/vision.rs"]
mod vision;

use common::*;
use converted::{gguf_of, mmproj_bytes};
use ogive_nn::backend::{Backend, Vectors};
use ogive_nn::tensor::serde_json::{Value, json};
use ogive_nn::tensor::{Config, F32, Result};
use ogive_nn::{Loader, Model, Tower};
use ogive_quantize::gguf_file::Gguf;
use ogive_weights::{Checkpoint, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use vision::*;

/// The largest difference from transformers' results in single precision.
const EXACT: f32 = 2e-5;

/// What GGUF cannot say of the repository's models, as it can.
fn sayable(name: &str) -> impl Fn(&mut Value) + use<> {
    let name = name.to_owned();
    move |config| match &*name {
        // Scores by the heads' size, and a layer without a window after five with one.
        "gemma3" => {
            let text = &mut config["text_config"];
            text["query_pre_attn_scalar"] = json!(12);
            text["layer_types"] = json!(vec!["sliding_attention"; 3]);
        }
        // One base of frequencies.
        "pixtral" => config["vision_config"]["rope_theta"] = json!(10_000.0),
        // Windows of 112 pixels.
        "qwen2.5-vl" => config["vision_config"]["window_size"] = json!(112),
        _ => {}
    }
}

/// Towers that no GGUF file can be, and what the refusal names.
const REFUSED: &[(&str, &str)] = &[("internvl-norms", "norm_type")];

/// Texts that none can be.
const REFUSED_TEXTS: &[(&str, &str)] = &[("qwen3-vl-moe", "not converted")];

fn opened(bytes: Vec<u8>) -> Result<Checkpoint> {
    OpenOptions::new().of_gguf(Arc::new(Gguf::from_bytes(bytes).unwrap()))
}

/// The file of what a model sees with; `None` if there can be none.
fn mmproj(name: &str, folder: &Path, format: &str) -> Option<Checkpoint> {
    let refused = REFUSED.iter().find(|(refused, _)| *refused == name);
    let bytes = match (mmproj_bytes(folder, format, sayable(name)), refused) {
        (Ok(bytes), None) => bytes,
        (Err(e), Some((_, why))) if e.to_string().contains(why) => return None,
        (Err(e), _) => panic!("{name}: {e}"),
        (Ok(_), Some((_, why))) => panic!("{name} was converted in spite of its {why}"),
    };
    let mut file = opened(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
    if name == "qwen2.5-vl" {
        assert_eq!(file.config.0["vision_config"]["window_size"], 112);
        file.config.0["vision_config"]["window_size"] = json!(8);
    }
    Some(file)
}

fn tower_of(file: &Checkpoint, b: &dyn Backend) -> Result<Box<dyn Tower>> {
    ogive_models::registry().tower(&file.architecture, &file.config, &Loader::new(&*file.source, b))
}

/// The tower of the folder, with the settings that a file can have, but for small windows.
fn of_folder(name: &str, folder: &Path, b: &dyn Backend) -> Box<dyn Tower> {
    let change = |c: &mut Config| {
        let window = c.0["vision_config"].get("window_size").cloned();
        sayable(name)(&mut c.0);
        if let Some(window) = window {
            c.0["vision_config"]["window_size"] = window;
        }
    };
    tower_with(folder, b, change).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn all_seen(tower: &dyn Tower, folder: &Path, b: &dyn Backend) -> Vec<Arc<Vectors>> {
    let see = |image: &Image| Arc::new(tower.see(b, &image.patches, image.grid).unwrap());
    images(folder).iter().map(see).collect()
}

#[test]
fn towers_from_their_own_files_see_the_same() {
    for (name, folder) in seeing() {
        for (backend, b) in exact_backends() {
            let Some(file) = mmproj(&name, &folder, "f32") else { continue };
            let got = all_seen(&*tower_of(&file, &*b).unwrap(), &folder, &*b);
            let other = all_seen(&*of_folder(&name, &folder, &*b), &folder, &*b);
            assert!(got == other, "{name} on {backend}: rows of the two files differ");
            if name == "pixtral" {
                // Of settings that transformers had not.
                continue;
            }
            for (got, image) in got.iter().zip(images(&folder)) {
                let error = worst(&matrix(&got.values, got.dim), &image.rows);
                println!("{name:20} {backend:8} {error:.1e}");
                assert!(error <= EXACT, "{name} on {backend}: rows are off by {error:.1e}");
            }
        }
    }
}

/// In halves, as they are written where nobody chooses, and in eighths.
#[test]
fn packed_towers_see_nearly_the_same() {
    for (name, folder) in seeing() {
        for (format, most) in [("f16", 1e-6), ("bf16", 1e-6), ("q8_0", 1e-3)] {
            let b = exact();
            let Some(file) = mmproj(&name, &folder, format) else { continue };
            let got = all_seen(&*tower_of(&file, &b).unwrap(), &folder, &b);
            let want = all_seen(&*of_folder(&name, &folder, &b), &folder, &b);
            for (got, want) in got.iter().zip(want) {
                let drift = nmse(&matrix(&got.values, got.dim), &matrix(&want.values, want.dim));
                println!("{name:20} {format:5} nmse {drift:.1e}");
                assert!(drift <= most, "{name} in {format}: nmse {drift:.1e}");
            }
        }
    }
}

#[test]
fn texts_with_images_are_answered_alike_from_two_files() {
    for (name, folder) in seeing() {
        let change = sayable(&name);
        let Some(file) = mmproj(&name, &folder, "f32") else { continue };
        let refused = REFUSED_TEXTS.iter().find(|(refused, _)| *refused == name);
        let text = match (gguf_of(&folder, "f32", &change), refused) {
            (Ok(text), None) => text,
            (Err(e), Some((_, why))) if e.to_string().contains(why) => continue,
            (Err(e), _) => panic!("{name}: {e}"),
            (Ok(_), Some((_, why))) => panic!("{name} was converted in spite of its {why}"),
        };
        let text = OpenOptions::new().of_gguf(Arc::new(text)).unwrap();
        assert!(!text.config.has("vision_config"), "{name}: its text's file does not see");
        let b = exact();
        let build = |file: &Checkpoint| -> Box<dyn Model> {
            let loader = Loader::new(&*file.source, &b);
            let model = ogive_models::registry().build(&file.architecture, &file.config, &loader);
            model.unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let mut whole = ogive_weights::open(&folder).unwrap();
        change(&mut whole.config.0);
        let (model, other) = (build(&text), build(&whole));
        let seen = all_seen(&*tower_of(&file, &b).unwrap(), &folder, &b);
        for prompt in prompts(&folder) {
            let logits = |model| logits_of(&b, model, &prompt, &seen, &F32, prompt.ids.len());
            let got = logits(&*model);
            assert!(got == logits(&*other), "{name}, {}: logits of the two differ", prompt.name);
            let error = worst(&got, &prompt.logits);
            println!("{name:20} {:8} {error:.1e}", prompt.name);
            // Settings of these are others than transformers had.
            let other = ["gemma3", "pixtral"].contains(&&*name);
            assert!(error <= EXACT || other, "{name}, {}: off by {error:.1e}", prompt.name);
        }
    }
}
