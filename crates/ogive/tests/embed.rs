//! Vectors of texts, through the front door.
#![allow(clippy::unwrap_used)]

mod common;

use common::shared;
use ogive::{Embed, Model, Options, Pooling};
use serde_json::json;
use std::path::Path;

/// A model of the repository, of another crate's tests.
fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

fn open(path: &Path) -> Model {
    Options::new().exact(true).open(path).unwrap()
}

/// The same model with `files` beside it, as sentence-transformers leaves them.
fn folder(files: &[(&str, serde_json::Value)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden("qwen3").join(name), folder.path().join(name)).unwrap();
    }
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    for (name, value) in files {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    }
    folder
}

#[test]
fn the_checkpoint_says_how_it_is_pooled_and_the_caller_may_say_otherwise() {
    let ids = vec![5u32, 17, 42];
    let by = |pooling| Embed::new().pooling(pooling);
    let plain = open(&golden("qwen3"));
    let vector = |how: &Embed| plain.embed_all([ids.clone()], how).unwrap().into_raw_vec_and_offset().0;
    assert_eq!(plain.embed(ids.clone()).unwrap(), vector(&by(Pooling::Mean)));
    assert_ne!(vector(&by(Pooling::Cls)), vector(&by(Pooling::Last)));
    for (mode, pooling) in
        [("cls_token", Pooling::Cls), ("lasttoken", Pooling::Last), ("mean_tokens", Pooling::Mean)]
    {
        let says = json!({"word_embedding_dimension": 48, (format!("pooling_mode_{mode}")): true});
        let folder = folder(&[("1_Pooling/config.json", says)]);
        assert_eq!(open(folder.path()).embed(ids.clone()).unwrap(), vector(&by(pooling)), "{mode}");
    }
    let long: f32 = vector(&by(Pooling::Last).normalize(false)).iter().map(|v| v * v).sum();
    assert!(long > 2.0, "{long}");
}

#[test]
fn layers_after_the_model_are_refused_unless_a_pooling_is_chosen() {
    let kind = |name: &str| json!({"type": format!("sentence_transformers.models.{name}"), "path": ""});
    let known = [kind("Transformer"), kind("Pooling"), kind("Normalize")];
    assert!(open(folder(&[("modules.json", json!(known))]).path()).embed(vec![1u32]).is_ok());
    let model = open(folder(&[("modules.json", json!([known[0], known[1], kind("Dense")]))]).path());
    let e = model.embed(vec![1u32]).unwrap_err().to_string();
    assert!(e.contains("a layer `Dense` after its model"), "{e}");
    assert!(model.embed_all([vec![1u32]], &Embed::new().pooling(Pooling::Mean)).is_ok());
}

#[test]
fn texts_that_are_too_long_or_empty_are_named() {
    let model = Options::new().context(8).open(golden("llama")).unwrap();
    let e = model.embed_all([vec![1u32; 8], vec![1; 9]], &Embed::new()).unwrap_err().to_string();
    assert!(e.contains("text 1 has 9 tokens, and the context is 8"), "{e}");
    assert!(model.embed(Vec::<u32>::new()).unwrap_err().to_string().contains("empty"));
    // These models have no vocabulary.
    assert!(model.embed("text").unwrap_err().to_string().contains("no tokenizer"));
    assert_eq!(model.embed_all(Vec::<Vec<u32>>::new(), &Embed::new()).unwrap().nrows(), 0);
}

#[test]
fn like_texts_are_nearer_than_unlike() {
    let Some(shared) = shared() else { return };
    let model = ogive::open(shared.join("models/stories260K/stories260K-q8_0.gguf")).unwrap();
    let texts = [
        "Lily played with her red ball in the park.",
        "Tim played with his blue ball in the garden.",
        "\"No!\" he said. \"You can not eat my cake!\"",
    ];
    let v = model.embed_all(texts, &Embed::new()).unwrap();
    let cosine = |a: usize, b: usize| v.row(a).dot(&v.row(b));
    assert!(cosine(0, 1) > cosine(0, 2) && cosine(0, 1) > cosine(1, 2));
    assert_eq!(model.embed(texts[2]).unwrap(), v.row(2).to_vec());
}
