//! A trained model tells its published story, from every form it comes in.

mod common;

use common::*;
use ogive_engine::{Engine, Limits, Request};
use ogive_nn::backend::Backend;
use ogive_nn::tensor::F32;
use std::{path::Path, sync::Arc};

fn greedy(path: &Path, b: &Arc<dyn Backend>, prompt: &[u32], n: usize) -> Vec<u32> {
    let limits = Limits::new(512).element(&F32);
    let mut engine = Engine::new(Arc::clone(b), load(path, &**b).into(), limits).unwrap();
    engine.run(Request::new(prompt, n)).unwrap().map(|e| e.unwrap().token.unwrap()).collect()
}

#[test]
fn greedy_ids_and_last_logits_are_the_published() {
    let Some(shared) = shared() else { return };
    let folder = shared.join("models/stories260K");
    let golden = std::fs::read_to_string(folder.join("golden.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&golden).unwrap();
    let b: Arc<dyn Backend> = Arc::new(exact());
    for (form, file) in [("f32", "stories260K-f32.gguf"), ("f32", "hf"), ("f16", "stories260K-f16.gguf")] {
        let file = folder.join(file);
        let story = ids(&golden["published"]["ids"]);
        assert_eq!(greedy(&file, &b, &story[..1], story.len() - 1), story[1..], "{}", file.display());
        for case in golden["files"][form]["cases"].as_array().unwrap() {
            let prompt = ids(&case["prompt_ids"]);
            assert_eq!(greedy(&file, &b, &prompt, 64), ids(&case["greedy_ids"]), "{form} {}", case["prompt"]);
            let got = logits(&file, &*b, &prompt);
            let want =
                case["last_logits_numpy_f64"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32);
            let worst =
                got.row(prompt.len() - 1).iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{form} {}: {worst:.1e}", case["prompt"]);
        }
    }
}
