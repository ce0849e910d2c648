//! Sums of what matrices are given, against transformers', and under the names of files.
//!
//! `importance.json` is what `xtask/golden/importance.py` found by hooks.

#![allow(clippy::print_stdout, reason = "figures are to be seen")]

mod common;

use common::shared;
use ogive::{Calibration, Device, Model, Options};
use ogive_quantize::{FileFormat, Importance, Input, Quantize, Squares};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn exact(path: &Path) -> Model {
    Options::new().device(Device::Cpu).exact(true).open(path).unwrap()
}

fn squares(calibration: &Calibration) -> BTreeMap<String, Squares> {
    let of = |(name, found): (String, ogive::backend::Collected)| {
        let sums = found.sums.iter().map(|v| *v as f32).collect();
        (name, Squares::new(sums, found.counts).unwrap())
    };
    calibration.found().into_iter().map(of).collect()
}

#[test]
fn sums_are_those_of_transformers() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let golden = std::fs::read_to_string(here.join("tests/importance.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let mut worst = 0.0_f64;
    for (name, want) in golden.as_object().unwrap() {
        let model = exact(&here.join("../ogive-models/tests/golden").join(name));
        let ids: Vec<u32> =
            want["ids"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
        let mut calibration = Calibration::new(&model, ids.len()).unwrap();
        calibration.add(&ids).unwrap();
        let found = calibration.found();
        for (weight, want) in want["weights"].as_object().unwrap() {
            let found = found.get(weight).unwrap_or_else(|| panic!("{name}: nothing of {weight}"));
            let numbers = |key: &str| want[key].as_array().unwrap().iter().map(|v| v.as_f64().unwrap());
            assert!(found.counts.iter().map(|n| *n as f64).eq(numbers("counts")), "{name}: {weight}");
            assert_eq!(found.sums.len(), numbers("sums").len(), "{name}: {weight}");
            // What is small among large ones is a difference of these.
            let most = numbers("sums").fold(0.0, f64::max);
            for (f, w) in found.sums.iter().zip(numbers("sums")) {
                let off = (f - w).abs() / w.max(1e-3 * most);
                worst = worst.max(off);
                assert!(off < 1e-4, "{name}: {weight}: {f} and not {w}");
            }
        }
        // The head only if it is asked for.
        let heads = |found: &BTreeMap<String, ogive::backend::Collected>| {
            found
                .keys()
                .filter(|k| k.contains("lm_head") || k.contains("embed_tokens") || k.contains("wte"))
                .count()
        };
        assert_eq!(heads(&found), 0, "{name}");
        if name == "llama" || name == "gpt2" {
            let mut with = Calibration::new(&model, ids.len()).unwrap().head(true);
            with.add(&ids).unwrap();
            assert_eq!((heads(&with.found()), with.found().len()), (1, found.len() + 1), "{name}");
        }
    }
    println!("largest relative difference {worst:.1e}");
}

/// A folder and the file that was made of it: rows in another order, matrices turned, experts stacked.
#[test]
fn a_folder_and_its_file_have_the_same_importances() {
    let Some(root) = shared() else { return };
    for (name, file) in [
        ("llama", "llama-f32.gguf"),
        ("mixtral", "mixtral-f32.gguf"),
        ("gpt2", "gpt2-f32.gguf"),
        ("phi3", "phi3-f32.gguf"),
        ("deepseek-v2", "deepseek-v2-f32.gguf"),
    ] {
        let folder = root.join("golden").join(name);
        let of = |path: PathBuf| {
            let model = exact(&path);
            let mut calibration = Calibration::new(&model, 16).unwrap();
            let ids: Vec<u32> = (0..16).map(|i| 3 + i * 7).collect();
            calibration.add(&ids).unwrap();
            let input = Input::open(&path).unwrap();
            let (all, mut without) = Importance::of_model(&input, &squares(&calibration)).unwrap();
            without.sort();
            // They fit what is packed by them.
            Quantize::new(FileFormat::find("q4_k_m").unwrap()).importance(all.clone()).plan(&input).unwrap();
            (all, without)
        };
        let ((of_folder, left), (of_file, also_left)) = (of(folder.clone()), of(folder.join(file)));
        println!("{name}: {} tensors, none of {left:?}", of_folder.len());
        assert_eq!(left, also_left, "{name}");
        let names = |all: &Importance| all.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&of_folder), names(&of_file));
        for (tensor, a) in of_folder.iter() {
            let b = of_file.get(tensor).unwrap();
            assert_eq!(a.counts(), b.counts(), "{name}: {tensor}");
            for (a, b) in a.sums().iter().zip(b.sums()) {
                assert!((a - b).abs() <= 1e-3 * a.abs().max(1e-3), "{name}: {tensor}: {a} and {b}");
            }
        }
        let heads = |name: &&String| !name.starts_with("blk.");
        let latent = |name: &&String| {
            name.contains("attn_kv_b") || name.contains("attn_k_b") || name.contains("attn_v_b")
        };
        assert!(left.iter().all(|n| heads(&n) || latent(&n)), "{name}: {left:?}");
    }
}

/// Files that are made here: rows that are multiplied on the way (Falcon-H1), experts in one matrix with their gates (Llama 4, Qwen3.5), and shared
/// ones beside a mixture. Factors that are a matrix's in the file are of its inputs in the folder, so sums are alike but for one number.
#[test]
fn a_file_that_is_made_of_a_folder_has_its_importances() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden");
    for name in ["falcon-h1", "llama4", "qwen3-5-moe", "granite-hybrid-moe", "gemma3n"] {
        let made = tempfile::tempdir().unwrap();
        for (from, file) in
            [(name, "model.safetensors"), ("bert", "tokenizer.json"), ("bert", "tokenizer_config.json")]
        {
            std::fs::copy(golden.join(from).join(file), made.path().join(file)).unwrap();
        }
        let config = std::fs::read(golden.join(name).join("config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&config).unwrap();
        (config["bos_token_id"], config["eos_token_id"]) = (2.into(), 3.into());
        std::fs::write(made.path().join("config.json"), config.to_string()).unwrap();
        let file = made.path().join("made.gguf");
        Quantize::new(FileFormat::find("f32").unwrap()).run(made.path(), &file, |_| true).unwrap();
        let of = |path: &Path| {
            let mut calibration = Calibration::new(&exact(path), 16).unwrap();
            let ids: Vec<u32> = (0..16).map(|i| 3 + i * 7).collect();
            calibration.add(&ids).unwrap();
            Importance::of_model(&Input::open(path).unwrap(), &squares(&calibration)).unwrap()
        };
        let ((of_folder, left), (of_file, also_left)) = (of(made.path()), of(&file));
        println!("{name}: {} tensors, none of {left:?}", of_folder.len());
        assert_eq!(left, also_left, "{name}");
        // Keys of layers that attend to another's are in Gemma 3n's files, and nobody reads them.
        let unread = |tensor: &str| {
            name == "gemma3n" && ["attn_k.weight", "attn_v.weight"].iter().any(|end| tensor.ends_with(end))
        };
        let of_layers: Vec<&String> = left.iter().filter(|t| t.starts_with("blk.") && !unread(t)).collect();
        assert!(of_layers.is_empty(), "{name}: {of_layers:?}");
        for (tensor, a) in of_folder.iter() {
            let b = of_file.get(tensor).unwrap();
            assert_eq!(a.counts(), b.counts(), "{name}: {tensor}");
            let whole = |s: &Squares| s.sums().iter().map(|v| f64::from(*v)).sum::<f64>();
            let (all, other) = (whole(a), whole(b));
            for (a, b) in a.sums().iter().zip(b.sums()) {
                let (a, b) = (f64::from(*a) / all, f64::from(*b) / other);
                assert!((a - b).abs() <= 1e-3 * a.max(1e-3), "{name}: {tensor}: {a} and {b}");
            }
        }
    }
}

#[test]
fn what_cannot_be_calibrated_is_said() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden");
    let refused = Calibration::new(&exact(&here.join("bert")), 16).unwrap_err().to_string();
    assert!(refused.contains("is an encoder"), "{refused}");
    let model = exact(&here.join("llama"));
    let few = Calibration::new(&model, 3).unwrap_err().to_string();
    assert!(few.contains("windows of 3 tokens"), "{few}");
    let calibration = Calibration::new(&model, 16).unwrap();
    let short = calibration.windows(&[1; 15]).unwrap_err().to_string();
    assert!(short.contains("15 tokens, and one window takes 16"), "{short}");
    assert!(calibration.found().is_empty());
    let none = Importance::of_model(&Input::open(here.join("bert")).unwrap(), &BTreeMap::new()).unwrap_err();
    assert!(none.to_string().contains("nothing was collected"), "{none}");
}
