//! Unigram vocabularies with SentencePiece's compiled rules: ids of the `tokenizers` package, from a tokenizer.json and from what llama.cpp's
//! converter makes of it; two texts as one; metadata that lie.

use gguf_file::{Metadata, StringArray, Value};
use ogive_tokenizer::{EncodeOptions, TokenKind, Tokenizer};
use serde_json::json;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

fn read(name: &str, file: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(golden(name).join(file)).unwrap()).unwrap()
}

fn opened(json: &serde_json::Value) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    let config = "tokenizer_config.json";
    std::fs::copy(golden("xlm-roberta").join(config), folder.path().join(config)).unwrap();
    Tokenizer::from_folder(folder.path()).unwrap()
}

fn base64(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits =
        text.chars().filter_map(|c| digits.find(c)).flat_map(|d| (0..6).rev().map(move |i| d >> i & 1));
    let bits: Vec<usize> = bits.collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | *bit as u8)).collect()
}

/// As the converter writes it.
fn metadata(json: &serde_json::Value) -> Metadata {
    let vocab = json["model"]["vocab"].as_array().unwrap();
    let texts: StringArray = vocab.iter().map(|piece| piece[0].as_str().unwrap()).collect();
    let scores: Vec<f32> = vocab.iter().map(|piece| piece[1].as_f64().unwrap() as f32).collect();
    let last = vocab.len() - 1;
    let kinds = (0..vocab.len()).map(|id| {
        if id == 3 {
            2i32
        } else if id < 3 || id == last {
            3
        } else {
            1
        }
    });
    let mut m = Metadata::new();
    m.set("tokenizer.ggml.model", "t5").set("tokenizer.ggml.pre", "default");
    m.set("tokenizer.ggml.token_type", kinds.collect::<Vec<_>>());
    m.set("tokenizer.ggml.tokens", texts).set("tokenizer.ggml.scores", scores);
    for (role, id) in [("bos", 0u32), ("eos", 2), ("unknown", 3), ("seperator", 2), ("padding", 1)] {
        m.set(&format!("tokenizer.ggml.{role}_token_id"), id);
    }
    for key in ["add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces"] {
        m.set(&format!("tokenizer.ggml.{key}"), true);
    }
    let rules = base64(json["normalizer"]["precompiled_charsmap"].as_str().unwrap());
    m.set("tokenizer.ggml.precompiled_charsmap", rules);
    m
}

#[test]
fn texts_are_cut_as_the_tokenizers_package_cuts_them() {
    let (json, golden) = (read("xlm-roberta", "tokenizer.json"), read("xlm-roberta", "golden.json"));
    // As transformers converts vocabularies today.
    let mut newer = json.clone();
    newer["normalizer"] = json!({"type": "Sequence", "normalizers": [
        json["normalizer"].clone(), {"type": "Strip", "strip_left": false, "strip_right": true},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]});
    newer["pre_tokenizer"] = json["decoder"].clone();
    let all = [opened(&json), opened(&newer), Tokenizer::from_gguf(&metadata(&json)).unwrap()];
    let texts = golden["texts"]["of"].as_array().unwrap().iter().map(|t| t.as_str().unwrap());
    for (text, ids) in texts.zip(golden["texts"]["ids"].as_array().unwrap()) {
        let ids: Vec<u32> = serde_json::from_value(ids.clone()).unwrap();
        for (i, tokenizer) in all.iter().enumerate() {
            let parsed = EncodeOptions { add_special: true, parse_special: true };
            // White space before `<mask>` goes with it, which a file cannot say; here it would have gone anyhow.
            assert_eq!(tokenizer.encode(text, parsed).unwrap(), ids, "{i}: {text:?}");
            // A user's words end no text.
            let plain = tokenizer.encode(text, EncodeOptions::TEXT).unwrap();
            assert!(plain.iter().all(|id| tokenizer.token_kind(*id) != Some(TokenKind::Control)), "{text:?}");
            assert_eq!(plain, all[0].encode(text, EncodeOptions::TEXT).unwrap(), "{i}: {text:?}");
        }
    }
    for tokenizer in &all {
        assert_eq!(
            (tokenizer.model_name(), tokenizer.add_bos(), tokenizer.add_eos()),
            ("Unigram", true, true)
        );
        let ids = tokenizer.encode("  the cats", EncodeOptions::default()).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), "the cats");
        assert_eq!(tokenizer.encode_bytes(b"the\xff", EncodeOptions::TEXT).unwrap()[1..], [3]);
    }
}

#[test]
fn two_texts_are_one_as_their_vocabulary_says() {
    for name in ["bert-reranker", "roberta-reranker", "modern-bert-reranker"] {
        let pairs = read(name, "golden.json")["pairs"].clone();
        let tokenizer = Tokenizer::from_folder(golden(name)).unwrap();
        let ids =
            |text: &serde_json::Value| tokenizer.encode(text.as_str().unwrap(), EncodeOptions::TEXT).unwrap();
        for (i, document) in pairs["documents"].as_array().unwrap().iter().enumerate() {
            let (ids, types) = tokenizer.pair(&ids(&pairs["query"]), &ids(document)).unwrap();
            assert_eq!(
                (json!(ids), json!(types)),
                (pairs["ids"][i].clone(), pairs["types"][i].clone()),
                "{name}"
            );
        }
    }
    let json = read("xlm-roberta", "tokenizer.json");
    let mut m = metadata(&json);
    let of = |m: &Metadata| Tokenizer::from_gguf(m).unwrap().pair(&[7], &[8, 9]);
    assert_eq!(opened(&json).pair(&[7], &[8, 9]), of(&m));
    assert_eq!(of(&m).unwrap(), (vec![0, 7, 2, 2, 8, 9, 2], vec![0; 7]));
    m.set("tokenizer.ggml.add_sep_token", false);
    assert_eq!(of(&m).unwrap().0, [0, 7, 2, 8, 9, 2]);
    m.set("tokenizer.ggml.add_eos_token", false);
    assert_eq!(of(&m), None);
}

#[test]
fn spaces_are_kept_where_a_file_says_so() {
    let mut m = metadata(&read("xlm-roberta", "tokenizer.json"));
    let ids = |m: &Metadata, text: &str| {
        Tokenizer::from_gguf(m).unwrap().encode(text, EncodeOptions::TEXT).unwrap()
    };
    let (the, mark) = (ids(&m, "the"), ids(&m, "x")[0]);
    m.set("tokenizer.ggml.remove_extra_whitespaces", false);
    assert_eq!(ids(&m, " the "), [&[mark], &the[..], &[mark]].concat());
    m.set("tokenizer.ggml.add_space_prefix", false);
    assert_eq!(ids(&m, " the"), the);
    assert_ne!(ids(&m, "the"), the);
}

#[test]
fn false_metadata_are_refused_by_name() {
    let rules = "tokenizer.ggml.precompiled_charsmap";
    let cases: [(&str, Value, &str); 6] = [
        (rules, vec![1u8, 2].into(), "ends early, after 2 bytes"),
        (rules, vec![4u8, 0, 0, 0, 255, 255, 255, 255].into(), "leads out of itself at unit 0"),
        (rules, "text".into(), "an array of bytes"),
        (rules, vec![1i32].into(), "an array of bytes"),
        ("tokenizer.ggml.scores", vec![0.0f32].into(), "have 1 scores"),
        ("tokenizer.ggml.scores", vec![f32::INFINITY; 89].into(), "no finite number"),
    ];
    for (key, value, word) in cases {
        let mut m = metadata(&read("xlm-roberta", "tokenizer.json"));
        m.set(key, value);
        let e = Tokenizer::from_gguf(&m).unwrap_err().to_string();
        assert!(e.contains(word), "{key}: {e}");
    }
    let mut m = metadata(&read("xlm-roberta", "tokenizer.json"));
    m.set(rules, Vec::<u8>::new());
    Tokenizer::from_gguf(&m).unwrap();
}
