//! `ogive tokenize`, against texts and ids that llama.cpp publishes.

mod common;

use common::{ogive_reads, shared, shared_json};
use serde_json::{Value, json};

/// Names, and which of their texts are tried: the larger take a while to open, and the tokenizer's own tests try all.
const VOCABULARIES: [(&str, usize); 4] = [("gpt-2", 2), ("llama-bpe", 8), ("llama-spm", 1), ("qwen2", 8)];

#[test]
fn published_pairs() {
    for (name, every) in VOCABULARIES {
        let file = format!("vocab/ggml-vocab-{name}.gguf");
        let Some(pairs) = shared_json(&format!("{file}.pairs.json")) else { return };
        let pairs = pairs.as_array().unwrap();
        assert!(pairs.len() > 30);
        let model = shared(&file).unwrap();
        for pair in pairs.iter().step_by(every) {
            let text = pair["text"].as_str().unwrap();
            let got = ogive_reads(args!["tokenize", "--model", model], text.as_bytes()).json();
            assert_eq!(got, pair["ids"], "{name}: {text:?}");
        }
    }
}

#[test]
fn stdin_counts_to_its_last_byte() {
    let Some(model) = shared("vocab/ggml-vocab-gpt-2.gguf") else { return };
    let ids = |input: &[u8]| ogive_reads(args!["tokenize", "--model", model, "--json"], input).json();
    assert_eq!(ids(b""), json!([]));
    assert_eq!(ids(b"Hello world\n"), json!([15496, 995, 198]));
    assert_eq!(ids(b"Hello world"), json!([15496, 995]));
    // Bytes that are no UTF-8: each is its own token, and the text around them stays what it is.
    let got = ids(b"Hello\xff\xfe world");
    assert_eq!(got.as_array().unwrap().len(), 4, "{got}");
    assert_eq!((&got[0], &got[3]), (&json!(15496), &json!(995)));
    assert_ne!(got[1], got[2]);
}

#[test]
fn special_tokens_only_where_asked_for() {
    let Some(spm) = shared("vocab/ggml-vocab-llama-spm.gguf") else { return };
    let ids = |more: &[&str], input: &str| -> Value {
        let fixed = args!["tokenize", "--model", spm];
        ogive_reads(fixed.into_iter().chain(more.iter().map(Into::into)), input.as_bytes()).json()
    };
    let plain = ids(&[], "Hello");
    let special = ids(&["--special"], "Hello");
    assert_eq!(special.as_array().unwrap()[1..], plain.as_array().unwrap()[..]);
    assert_eq!(special[0], 1);
    assert_eq!(ids(&["--special"], "</s>"), json!([1, 2]));
    assert!(ids(&[], "</s>").as_array().unwrap().len() > 1);
}
