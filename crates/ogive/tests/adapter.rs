//! A model with an adapter over it: other texts, which no session of the plain model goes on with, whole or cut, alone and among others.

#![cfg(feature = "cpu")]

#[path = "../../ogive-weights/tests/common/packer.rs"]
mod packer;

use ogive::engine::backend::{Backend, Split};
use ogive::nn::is_token_table;
use ogive::tensor::{F32, serde_json::json};
use ogive::{Device, Generate, Model, Options};
use ogive_cpu::CpuBackend;
use packer::{file, tensor};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn tests(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests").join(of)
}

fn plain() -> Options {
    Options::new().device(Device::Cpu).threads(2).context(40)
}

fn with(name: &str) -> Options {
    plain().adapter(tests(&format!("adapters/{name}")), 1.0)
}

fn text(model: &Model) -> Vec<u32> {
    let prompt: Vec<u32> = (1..20).collect();
    let how = Generate::new().seed(3).max_tokens(20).ignore_end();
    let mut session = model.session().unwrap();
    let mut answer = session.generate(&*prompt, &how).unwrap();
    answer.text().unwrap();
    answer.ids().to_vec()
}

#[test]
fn its_texts_are_others_and_its_sessions_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    for name in ["llama", "gpt2", "phi3", "granite-hybrid"] {
        let golden = tests(&format!("golden/{name}"));
        let [bare, adapted] = [plain(), with(name)].map(|options| options.open(&golden).unwrap());
        let (before, after) = (text(&bare), text(&adapted));
        assert_ne!(before, after, "{name}");
        assert_eq!((bare.notes().len(), adapted.notes().len()), (0, 1), "{name}: {:?}", adapted.notes());
        assert_eq!(with(name).estimate_notes(&golden).unwrap(), adapted.notes());
        assert_eq!(after, text(&with(name).open(&golden).unwrap()), "{name}: the same again");
        assert_eq!(
            after,
            text(&with(name).step_tokens(7).open(&golden).unwrap()),
            "{name}: however the prompt is cut"
        );
        let mut session = adapted.session().unwrap();
        session.generate(&[1, 2, 3][..], &Generate::greedy().max_tokens(3)).unwrap().text().unwrap();
        session.save(&path).unwrap();
        adapted.load_session(&path).unwrap();
        for other in [bare, plain().adapter(tests(&format!("adapters/{name}")), 0.5).open(&golden).unwrap()] {
            let e = other.load_session(&path).unwrap_err().to_string();
            assert!(e.contains("another model"), "{name}: {e}");
        }
    }
}

/// Layers on two backends, and what belongs to none on the second.
#[test]
fn its_updates_are_where_their_matrices_are() {
    for name in ["llama", "phi3"] {
        let golden = tests(&format!("golden/{name}"));
        let part = || Arc::new(CpuBackend::builder().threads(1).build().unwrap()) as Arc<dyn Backend>;
        let place = |name: &str| usize::from(!is_token_table(name));
        let split = Split::new(vec![part(), part()], vec![0, 1], place).unwrap();
        let model = with(name).backend(Arc::new(split)).open(&golden).unwrap();
        assert_eq!(text(&model), text(&with(name).open(&golden).unwrap()), "{name}");
    }
}

#[test]
fn its_updates_are_counted_and_of_no_strength_they_change_nothing() {
    let golden = tests("golden/llama");
    let [bare, adapted] = [plain(), with("llama")].map(|options| options.estimate_memory(&golden).unwrap());
    let updates = with("llama").checkpoint(&golden).unwrap().source.tensors();
    let bytes: usize = updates.iter().filter(|t| t.name.contains(".lora_")).map(|t| t.bytes()).sum();
    assert_eq!(adapted.weights - bare.weights, bytes as u64);
    let none = plain().cache_element(&F32).adapter(tests("adapters/llama"), 0.0);
    let bare = plain().cache_element(&F32).open(&golden).unwrap();
    assert_eq!(text(&none.open(&golden).unwrap()), text(&bare));
}

#[test]
fn what_is_over_the_wrong_model_says_so() {
    let e = with("gpt2").open(tests("golden/llama")).unwrap_err().to_string();
    assert!(e.contains("transformer.h.0.attn.c_attn") && e.contains("was it trained on another?"), "{e}");
    let e = plain().adapter("nowhere", 1.0).open(tests("golden/llama")).unwrap_err().to_string();
    assert!(e.contains("nowhere"), "{e}");
}

/// An adapter of rank 2 over matrices of a model, all of whose numbers are a half.
fn over(golden: &Path, matrices: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = plain().checkpoint(golden).unwrap().source;
    let halves = matrices.iter().flat_map(|matrix| {
        let [_, out, cols] = source.get(&format!("{matrix}.weight")).unwrap().shape;
        [(".lora_A.weight", [2, cols]), (".lora_B.weight", [out, 2])].map(|(leaf, shape)| {
            let bytes = 0.5_f32.to_le_bytes().repeat(shape[0] * shape[1]);
            tensor(&format!("base_model.model.{matrix}"), leaf, "F32", &shape, bytes)
        })
    });
    let halves: Vec<_> = halves.collect();
    fs::write(folder.path().join("adapter_model.safetensors"), file(&halves)).unwrap();
    fs::write(folder.path().join("adapter_config.json"), json!({"r": 2}).to_string()).unwrap();
    folder
}

/// What an architecture reads otherwise would be left out without a word.
#[test]
fn a_matrix_that_is_not_read_by_itself_is_refused() {
    let shared = "model.language_model.layers.4.";
    let golden = |name: &str| tests(&format!("golden/{name}"));
    for (model, matrix) in [
        ("deepseek-v3", "model.layers.0.self_attn.kv_b_proj"),
        ("deepseek-v3", "model.embed_tokens"),
        ("gemma3n", &format!("{shared}altup.correction_coefs")),
    ] {
        let adapter = over(&golden(model), &[matrix]);
        let e = plain().adapter(adapter.path(), 1.0).open(golden(model)).unwrap_err().to_string();
        assert!(e.contains(matrix) && e.contains("does not read this as a matrix by itself"), "{e}");
    }
}

/// Adapters of all matrices of a name have updates for keys and values of layers that attend to those of others.
#[test]
fn keys_that_nobody_reads_are_passed_over_and_told_of() {
    for (name, own, shared) in [("gemma3n", 1, 4), ("gemma4-shared", 0, 5)] {
        let golden = tests(&format!("golden/{name}"));
        let matrix =
            |layer: usize, leaf: &str| format!("model.language_model.layers.{layer}.self_attn.{leaf}");
        let open = |matrices: &[String]| {
            let adapter = over(&golden, &matrices.iter().map(|m| &**m).collect::<Vec<_>>());
            plain().adapter(adapter.path(), 1.0).open(&golden).unwrap()
        };
        let in_vain = ["k_proj", "v_proj"].map(|leaf| matrix(shared, leaf));
        let (bare, vain) = (plain().open(&golden).unwrap(), open(&in_vain));
        assert_eq!(text(&bare), text(&vain), "{name}");
        let note = format!("adapters' updates of 2 matrices ({}, …) are passed over", in_vain[0]);
        assert!(vain.notes().len() == 1 && vain.notes()[0].starts_with(&note), "{:?}", vain.notes());
        let all = open(&[&in_vain[..], &[matrix(own, "k_proj"), matrix(shared, "q_proj")]].concat());
        assert_ne!(text(&bare), text(&all), "{name}");
        let notes = all.notes();
        assert!(
            notes[0].starts_with("adapters change 2 matrices") && notes[1].starts_with(&note),
            "{notes:?}"
        );
    }
}
