//! `ogive inspect` on every model of the shared test data, those that Ogive cannot run among them.

mod common;

use common::{ogive, shared};
use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "gguf") && !later_part(&path) {
            found.push(path);
        } else if path.ends_with("config.json") {
            found.push(path.parent().unwrap().into());
        }
    }
}

/// Parts of a split but the first.
fn later_part(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.contains("-of-") && !name.contains("-00001-of-")
}

#[test]
fn every_model_can_be_looked_at() {
    let Some(golden) = shared("golden") else { return };
    let mut found = Vec::new();
    files(&golden, &mut found);
    files(&shared("models").unwrap(), &mut found);
    files(&shared("vocab").unwrap(), &mut found);
    assert!(found.len() > 60, "{}", found.len());
    for path in found {
        let text = ogive(args!["inspect", path]).text();
        let json = ogive(args!["inspect", "--json", "--context", "64", "--model", path]).json();
        let name = path.display();
        let tensors = json["tensors"].as_array().unwrap();
        let sum = |key: &str| {
            json["formats"].as_object().unwrap().values().map(|f| f[key].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(sum("tensors"), tensors.len() as u64, "{name}");
        assert_eq!(sum("bytes"), tensors.iter().map(|t| t["bytes"].as_u64().unwrap()).sum::<u64>(), "{name}");
        assert_eq!(json["parameters"], sum("elements"), "{name}");
        for t in tensors {
            assert!(text.contains(t["name"].as_str().unwrap()), "{name}: {t}");
        }
        assert!(
            json["architecture"].is_string() && !json["metadata"].as_object().unwrap().is_empty(),
            "{name}"
        );
        if path.ends_with("llama")
            || path.ends_with("llama-f32.gguf")
            || path.ends_with("k256-Q4_K_M-mix.gguf")
        {
            let memory = &json["memory"];
            assert_eq!(memory["context"], 64, "{name}: {memory}");
            assert!(memory["cache"].as_u64().unwrap() > 0, "{name}: {memory}");
            assert_eq!(memory["weights"], sum("bytes"), "{name}: {memory}");
        }
    }
}

#[test]
fn a_context_that_is_too_long_is_not_the_models_fault() {
    let text = ogive(args!["inspect", ogive::DEMO, "--context", "1000000000000000"]).text();
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("memory: not known: ") && last.contains("shorter context"), "{last}");
    assert!(!text.contains("cannot be run"), "{last}");
}

#[test]
fn long_lists_are_whole_where_asked_for() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let tokens = |json: serde_json::Value| json["metadata"]["tokenizer.ggml.tokens"].clone();
    let cut = tokens(ogive(args!["inspect", model, "--json"]).json());
    assert_eq!(cut["length"], 512);
    let whole = tokens(ogive(args!["inspect", model, "--json", "--full"]).json());
    assert_eq!(whole.as_array().unwrap().len(), 512);
    assert_eq!(whole[1], "<s>");
    let text = ogive(args!["inspect", model]).text();
    assert!(text.contains("layer_norm_rms_epsilon  1e-5") || text.contains("0.00001"), "{text}");
}
