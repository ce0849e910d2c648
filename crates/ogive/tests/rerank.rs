//! Texts in the order in which they answer a question, through the front door.
#![allow(clippy::unwrap_used)]

use ogive::{Embed, Model, Options, Pooling, Rerank};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A model of the repository, of another crate's tests.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

fn open(path: &Path) -> Model {
    Options::new().exact(true).open(path).unwrap()
}

/// The reranker once more, with a change to its settings or its tokenizer.
fn changed(file: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(golden("bert-reranker").join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join(file);
    let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
    folder
}

#[test]
fn scores_are_those_of_transformers() {
    for name in ["bert-reranker", "roberta-reranker", "modern-bert-reranker"] {
        let pairs = std::fs::read(golden(name).join("golden.json")).unwrap();
        let pairs: Value = serde_json::from_slice::<Value>(&pairs).unwrap()["pairs"].take();
        let texts: Vec<String> = serde_json::from_value(pairs["documents"].clone()).unwrap();
        let (query, model) = (pairs["query"].as_str().unwrap(), open(&golden(name)));
        assert!(model.judges());
        let scores = model.rerank(query, &texts, &Rerank::new()).unwrap();
        for (got, want) in scores.iter().zip(pairs["scores"].as_array().unwrap()) {
            assert!((f64::from(*got) - want.as_f64().unwrap()).abs() < 2e-6, "{name}: {got} for {want}");
        }
        // Alone it is the same to the bit, and between 0 and 1 the order is.
        let alone = model.rerank(query, [&texts[2]], &Rerank::new()).unwrap();
        assert_eq!(alone[0], scores[2], "{name}");
        let between = model.rerank(query, &texts, &Rerank::new().sigmoid(true)).unwrap();
        let squashed = |score: &f32| 1.0 / (1.0 + (-score).exp());
        assert_eq!(between, scores.iter().map(squashed).collect::<Vec<_>>());
        assert!(model.rerank::<&str>(query, [], &Rerank::new()).unwrap().is_empty());
    }
}

#[test]
fn what_is_too_long_is_told_or_cut() {
    let (model, long) = (open(&golden("bert-reranker")), "cat ".repeat(60));
    let e = model.rerank("dog", ["cat", &long], &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("text 2 have 64 tokens, and 52 are allowed") && e.contains("--truncate"), "{e}");
    let cut = Rerank::new().truncate(true);
    // `[CLS] dog [SEP] 48 cats [SEP]`
    let fits = "cat ".repeat(48);
    assert_eq!(
        model.rerank("dog", [&long], &cut).unwrap(),
        model.rerank("dog", [&fits], &Rerank::new()).unwrap()
    );
    let short = cut.clone().max_tokens(7);
    let both = model.rerank("dog dog dog", ["cat cat cat"], &short).unwrap();
    assert_eq!(both, model.rerank("dog dog", ["cat cat"], &Rerank::new()).unwrap());
    let e = model.rerank("dog", ["cat"], &cut.max_tokens(2)).unwrap_err().to_string();
    assert!(e.contains("2 are allowed"), "{e}");
    // What the checkpoint takes of a text.
    let folder = changed("tokenizer_config.json", |c| c["model_max_length"] = 8.into());
    let e =
        open(folder.path()).rerank("dog", ["cat cat cat cat cat"], &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("9 tokens, and 8 are allowed"), "{e}");
}

#[test]
fn what_the_files_beside_it_say_counts() {
    let of = |folder: &Path, how: &Rerank| {
        let scores = open(folder).rerank("dog", ["cat cat cat cat cat"], how);
        scores.map(|scores| scores[0]).map_err(|e| e.to_string())
    };
    let plain = of(&golden("bert-reranker"), &Rerank::new()).unwrap();
    // Types that the model is not given, or has one of.
    let names = json!(["input_ids", "attention_mask"]);
    let unnamed = changed("tokenizer_config.json", |c| c["model_input_names"] = names);
    let one = changed("config.json", |c| c["type_vocab_size"] = 1.into());
    let untyped = of(unnamed.path(), &Rerank::new()).unwrap();
    assert_ne!(untyped, plain);
    assert_eq!(of(one.path(), &Rerank::new()).unwrap(), untyped);
    let named = json!(["input_ids", "token_type_ids"]);
    let named = changed("tokenizer_config.json", |c| c["model_input_names"] = named);
    assert_eq!(of(named.path(), &Rerank::new()).unwrap(), plain);
    // More than the context is the context, not what the checkpoint says.
    let short = changed("tokenizer_config.json", |c| c["model_max_length"] = 8.into());
    assert_eq!(of(short.path(), &Rerank::new().max_tokens(1000)).unwrap(), plain);
    assert!(of(short.path(), &Rerank::new()).unwrap_err().contains("8 are allowed"));
    std::fs::write(short.path().join("modules.json"), "[").unwrap();
    let e = of(short.path(), &Rerank::new()).unwrap_err();
    assert!(e.contains("rerank") && e.contains("modules.json"), "{e}");
    // Without what ends a text nobody says what ends two.
    let open_ended = changed("tokenizer_config.json", |c| c["add_eos_token"] = false.into());
    assert!(of(open_ended.path(), &Rerank::new()).unwrap_err().contains("how two texts become one"));
}

#[test]
fn who_is_no_reranker_says_so() {
    let model = open(&golden("bert"));
    assert!(!model.judges());
    let e = model.rerank("a", ["b"], &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("is no reranker") && e.contains("`embed`"), "{e}");
    let model = open(&golden("bert-reranker"));
    let e = model.embed("cat").unwrap_err().to_string();
    assert!(e.contains("ranks texts") && e.contains("choose a pooling"), "{e}");
    model.embed_all(["cat"], &Embed::new().pooling(Pooling::Cls)).unwrap();
    let folder = changed("tokenizer.json", |t| t["post_processor"]["pair"] = json!([]));
    let e = open(folder.path()).rerank("a", ["b"], &Rerank::new()).unwrap_err().to_string();
    assert!(e.contains("does not say how two texts become one"), "{e}");
}
