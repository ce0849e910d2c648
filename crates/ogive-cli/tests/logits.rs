//! `ogive logits`, against transformers.

mod common;

use common::{ogive, shared, shared_json};
use ndarray_npy::{ReadNpyExt, read_npy};
use ogive::ndarray::Array2;
use std::fs;
use std::path::Path;

/// Architectures, the files in which each is found, and how much a logit may differ. 9e-6 was the most that was seen.
const MODELS: [(&str, &[&str], f32); 13] = [
    ("llama", &["llama-f32.gguf", "", "../llama-split/llama-f32-00001-of-00003.gguf"], 5e-5),
    ("llama-bf16-sharded", &[""], 5e-5),
    ("llama-k256", &["llama-k256-f32.gguf", ""], 5e-5),
    ("llama3-rope", &["llama3-rope-f32.gguf", ""], 5e-5),
    ("mistral", &["mistral-f32.gguf", ""], 5e-5),
    ("mixtral", &["mixtral-f32.gguf", ""], 5e-5),
    ("deepseek-v2", &["deepseek-v2-f32.gguf", ""], 5e-5),
    ("qwen2", &["qwen2-f32.gguf", ""], 5e-5),
    ("qwen3", &["qwen3-f32.gguf", ""], 5e-5),
    ("gemma2", &["gemma2-f32.gguf", ""], 1e-4),
    ("gemma3", &["gemma3-f32.gguf", ""], 1e-4),
    ("phi3", &["phi3-f32.gguf", ""], 5e-5),
    ("gpt2", &["gpt2-f32.gguf", ""], 5e-5),
];

#[test]
fn every_architecture_in_every_form_is_the_references() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.npy");
    for (name, forms, tolerance) in MODELS {
        let Some(golden) = shared_json(&format!("golden/{name}/golden.json")) else { return };
        let here = shared("golden").unwrap().join(name);
        for case in golden["cases"].as_array().unwrap() {
            let ids: Vec<String> = case["ids"].as_array().unwrap().iter().map(ToString::to_string).collect();
            let expected: Array2<f32> = read_npy(here.join(case["logits"].as_str().unwrap())).unwrap();
            for form in forms {
                let (model, ids) = (here.join(form), ids.join(","));
                let run = ogive(args!["logits", "--model", model, "--tokens", ids, "--out", out, "--exact"]);
                assert_eq!(run.text(), "");
                let got = Array2::<f32>::read_npy(fs::File::open(&out).unwrap()).unwrap();
                assert_eq!(got.dim(), expected.dim());
                let worst = (&got - &expected).iter().fold(0.0_f32, |w, d| w.max(d.abs()));
                assert!(worst <= tolerance, "{name} {form}: {worst}");
            }
        }
    }
    // Written over each other, and nothing left beside.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Adapters as options, against PEFT: whole, and in two parts of it.
#[test]
fn adapters_count_as_often_as_is_said() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests");
    let (model, lora) = (tests.join("golden/llama"), tests.join("adapters/llama"));
    let golden: serde_json::Value =
        serde_json::from_slice(&fs::read(model.join("golden.json")).unwrap()).unwrap();
    let case = golden["cases"].as_array().unwrap().iter().find(|case| case["name"] == "long").unwrap();
    let ids: Vec<String> = case["ids"].as_array().unwrap().iter().map(ToString::to_string).collect();
    let ids = ids.join(",");
    let expected: Array2<f32> = read_npy(lora.join("logits.npy")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.npy");
    let twice = args!["--lora-scaled", lora, "1.5", "--lora-scaled", lora, "-0.5"];
    for adapters in [args!["--lora", lora], twice] {
        let plain = args!["logits", "--model", model, "--tokens", ids, "--out", out, "--exact"];
        assert_eq!(ogive([plain, adapters].concat()).text(), "");
        let got: Array2<f32> = read_npy(&out).unwrap();
        let worst = (&got - &expected).iter().fold(0.0_f32, |w, d| w.max(d.abs()));
        assert!(worst <= 5e-5, "{worst}");
    }
}

#[test]
fn what_is_no_adapter_or_no_number_is_told_so() {
    let run = |adapter: &[&str]| {
        let plain = ["logits", "--tokens", "1", "--out", "l.npy"];
        ogive(plain.into_iter().chain(adapter.iter().copied()))
    };
    let e = run(&["--lora", "nowhere"]);
    assert!(e.error(1).contains("reading the adapter nowhere"), "{}", e.stderr);
    let e = run(&["--lora-scaled", "nowhere", "much"]);
    assert!(e.error(2).contains("--lora-scaled nowhere much: the second is to be a number"), "{}", e.stderr);
    let e = run(&["--lora-scaled", "nowhere"]);
    assert!(e.error(2).contains("--lora-scaled"), "{}", e.stderr);
}

#[test]
fn an_option_is_no_list_of_ids() {
    let none = ogive(args!["logits", "--tokens", "--out", "l.npy"]);
    assert!(none.error(2).starts_with("a value is required for '--tokens <IDS>'"), "{}", none.stderr);
    let negative = ogive(args!["logits", "--tokens", "-1", "--out", "l.npy"]);
    assert!(negative.error(2).contains("`-1` is no token id"), "{}", negative.stderr);
}

#[test]
#[cfg(unix)]
fn a_pipe_is_written_to_and_not_replaced() {
    let Some(model) = shared("golden/llama/llama-f32.gguf") else { return };
    assert_eq!(ogive(args!["logits", "--model", model, "--tokens", "1", "--out", "/dev/null"]).text(), "");
    use std::os::unix::fs::FileTypeExt;
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("l.npy");
    ogive(args!["logits", "--model", model, "--tokens", "1", "--out", out]).text();
    use std::os::unix::fs::PermissionsExt;
    let plain =
        fs::File::create(folder.path().join("plain")).unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(fs::metadata(out).unwrap().permissions().mode(), plain);
}
