//! GGUF metadata that lie about a vocabulary: each is refused by a sentence that names what is wrong.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "skips and figures are to be seen")]

mod common;

use common::samples;
use gguf_file::{Array, Metadata, StringArray, Value};
use ogive_tokenizer::{EncodeOptions, TokenKind, Tokenizer, TokenizerError};

fn strings<S: AsRef<[u8]>>(texts: impl IntoIterator<Item = S>) -> Value {
    texts.into_iter().collect::<StringArray>().into()
}

fn set(metadata: &mut Metadata, key: &str, value: impl Into<Value>) {
    metadata.set(key, value);
}

/// A small SentencePiece vocabulary.
fn spm() -> Metadata {
    let mut texts: Vec<String> = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
    texts.extend((0..256).map(|b| format!("<0x{b:02X}>")));
    texts.extend(["▁", "a", "b", "▁a", "ab", "<u>"].map(String::from));
    let mut kinds = vec![2i32, 3, 3];
    kinds.extend([6; 256]);
    kinds.extend([1, 1, 1, 1, 1, 4]);
    let mut m = Metadata::new();
    m.set("tokenizer.ggml.model", "llama");
    m.set("tokenizer.ggml.scores", vec![0.0f32; texts.len()]);
    m.set("tokenizer.ggml.tokens", strings(&texts)).set("tokenizer.ggml.token_type", kinds);
    m
}

/// The byte-level sample as GGUF.
fn bpe() -> Metadata {
    let json = samples::byte_level();
    let mut tokens: Vec<(String, u64)> = json["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(t, id)| (t.clone(), id.as_u64().unwrap()))
        .collect();
    tokens.sort_by_key(|(_, id)| *id);
    let mut texts: Vec<String> = tokens.into_iter().map(|(t, _)| t).collect();
    texts.extend(["<s>", "</s>"].map(String::from));
    let mut kinds = vec![1i32; texts.len() - 2];
    kinds.extend([3, 3]);
    let mut m = Metadata::new();
    m.set("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.pre", "llama-bpe");
    m.set("tokenizer.ggml.tokens", strings(&texts)).set("tokenizer.ggml.token_type", kinds);
    m.set(
        "tokenizer.ggml.merges",
        strings(json["model"]["merges"].as_array().unwrap().iter().map(|m| m.as_str().unwrap())),
    );
    m.set("tokenizer.ggml.bos_token_id", 261u32).set("tokenizer.ggml.eos_token_id", 262u32);
    m
}

#[test]
fn the_samples_open_and_agree_with_their_json() {
    let (file, json) =
        (Tokenizer::from_gguf(&bpe()).unwrap(), serde_json::to_vec(&samples::byte_level()).unwrap());
    let json = Tokenizer::from_json(&json).unwrap();
    for text in ["", "ab aab aaaa", "x</s>y", "é\0\n\n  世界"] {
        for options in [EncodeOptions::TEXT, EncodeOptions::PROMPT, EncodeOptions::default()] {
            assert_eq!(file.encode(text, options).unwrap(), json.encode(text, options).unwrap(), "{text:?}");
        }
    }
    let spm = Tokenizer::from_gguf(&spm()).unwrap();
    assert_eq!(spm.encode("ab a", EncodeOptions::default()).unwrap(), [1, 262, 261, 262]);
    assert_eq!(spm.token_kind(264), Some(TokenKind::UserDefined));
    assert_eq!(
        (spm.bos(), spm.eos(), spm.special().unknown, spm.eog()),
        (Some(1), Some(2), Some(0), &[2][..])
    );
}

#[test]
fn lies_are_refused_by_name() {
    /// What is wrong, the vocabulary, the change, and a word of the error.
    type Lie = (&'static str, fn() -> Metadata, fn(&mut Metadata), &'static str);
    let cases: &[Lie] = &[
        ("no model", spm, |m| drop(m.remove("tokenizer.ggml.model")), "tokenizer.ggml.model"),
        ("another model", spm, |m| set(m, "tokenizer.ggml.model", "rwkv"), "\"rwkv\""),
        ("model of a wrong type", spm, |m| set(m, "tokenizer.ggml.model", 3u32), "tokenizer.ggml.model"),
        ("no tokens", spm, |m| drop(m.remove("tokenizer.ggml.tokens")), "tokenizer.ggml.tokens"),
        (
            "tokens of a wrong type",
            spm,
            |m| set(m, "tokenizer.ggml.tokens", vec![1u32]),
            "tokenizer.ggml.tokens",
        ),
        ("an empty vocabulary", spm, |m| set(m, "tokenizer.ggml.tokens", strings::<&str>([])), "0 tokens"),
        ("no scores", spm, |m| drop(m.remove("tokenizer.ggml.scores")), "scores"),
        ("too few scores", spm, |m| set(m, "tokenizer.ggml.scores", vec![0.0f32; 9]), "9 scores"),
        (
            "a score that is no number",
            spm,
            |m| {
                let mut scores = vec![0.0f32; 265];
                scores[7] = f32::NAN;
                m.set("tokenizer.ggml.scores", scores);
            },
            "token 7",
        ),
        ("too many types", spm, |m| set(m, "tokenizer.ggml.token_type", vec![1i32; 999]), "999 token types"),
        ("a byte that is none", spm, |m| set(m, "tokenizer.ggml.token_type", vec![6i32; 265]), "is a byte"),
        (
            "a token twice",
            spm,
            |m| {
                let mut texts: Vec<Vec<u8>> =
                    m.array_of_str("tokenizer.ggml.tokens").unwrap().iter().map(<[u8]>::to_vec).collect();
                texts[261] = b"a".to_vec();
                m.set("tokenizer.ggml.tokens", strings(&texts));
            },
            "both \"a\"",
        ),
        ("BOS out of range", spm, |m| set(m, "tokenizer.ggml.bos_token_id", 265u32), "bos_token_id is 265"),
        ("a negative EOS", bpe, |m| set(m, "tokenizer.ggml.eos_token_id", -7i32), "eos_token_id is -7"),
        ("an unknown splitter", bpe, |m| set(m, "tokenizer.ggml.pre", "llama-9"), "\"llama-9\""),
        ("no merges", bpe, |m| drop(m.remove("tokenizer.ggml.merges")), "tokenizer.ggml.merges"),
        ("a merge of one", bpe, |m| set(m, "tokenizer.ggml.merges", strings(["ab"])), "merge 0"),
        (
            "a merge of an unknown token",
            bpe,
            |m| set(m, "tokenizer.ggml.merges", strings(["a b", "a zz"])),
            "\"zz\"",
        ),
        ("a merge to an unknown token", bpe, |m| set(m, "tokenizer.ggml.merges", strings(["b a"])), "\"ba\""),
        (
            "a merge that is not UTF-8",
            bpe,
            |m| set(m, "tokenizer.ggml.merges", strings([b"a \xff"])),
            "merge 0",
        ),
        (
            "a merge in another alphabet",
            bpe,
            |m| set(m, "tokenizer.ggml.merges", strings(["世 界"])),
            "alphabet",
        ),
        (
            "a token that is not UTF-8",
            bpe,
            |m| {
                let mut texts: Vec<Vec<u8>> =
                    m.array_of_str("tokenizer.ggml.tokens").unwrap().iter().map(<[u8]>::to_vec).collect();
                texts[256] = b"\xff\xfe".to_vec();
                m.set("tokenizer.ggml.tokens", strings(&texts));
            },
            "token 256",
        ),
        (
            "a template that is not UTF-8",
            bpe,
            |m| {
                m.set("tokenizer.chat_template.tool_use", Value::String(b"\xff"[..].into()));
            },
            "tool_use",
        ),
        (
            "an add_bos of a wrong type",
            bpe,
            |m| set(m, "tokenizer.ggml.add_bos_token", Array::Bool(vec![true])),
            "add_bos_token",
        ),
    ];
    for (name, base, change, word) in cases {
        let mut metadata = base();
        assert!(Tokenizer::from_gguf(&metadata).is_ok());
        change(&mut metadata);
        match Tokenizer::from_gguf(&metadata) {
            Ok(_) => panic!("{name}: opens"),
            Err(e) => assert!(e.to_string().contains(word), "{name}: {e}"),
        }
    }
}

#[test]
fn harmless_oddities_open() {
    let mut m = spm();
    m.set("tokenizer.ggml.padding_token_id", 9999u32).set("tokenizer.ggml.bos_token_id", u32::MAX);
    let tokenizer = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!((tokenizer.special().padding, tokenizer.bos(), tokenizer.add_bos()), (None, Some(1), true));
    // A piece that is no UTF-8, and no pre-tokenizer's name.
    let mut texts: Vec<Vec<u8>> =
        m.array_of_str("tokenizer.ggml.tokens").unwrap().iter().map(<[u8]>::to_vec).collect();
    texts[260] = b"\xe4\xb8".to_vec();
    m.set("tokenizer.ggml.tokens", strings(&texts));
    assert_eq!(Tokenizer::from_gguf(&m).unwrap().token_bytes(260).unwrap(), b"\xe4\xb8");
    let mut m = bpe();
    m.remove("tokenizer.ggml.pre");
    assert!(!Tokenizer::from_gguf(&m).unwrap().encode("ab", EncodeOptions::TEXT).unwrap().is_empty());
}

/// As llama.cpp's Falcon, MPT and StarCoder have it: bytes that UTF-8 never has may lack a token, and others.
#[test]
fn bytes_need_no_token() {
    let mut m = bpe();
    let mut texts: Vec<Vec<u8>> =
        m.array_of_str("tokenizer.ggml.tokens").unwrap().iter().map(<[u8]>::to_vec).collect();
    for c in ["A", "\u{c0}"] {
        let id = texts.iter().position(|t| t == c.as_bytes()).unwrap();
        texts[id] = format!("[{c}]").into_bytes();
    }
    m.set("tokenizer.ggml.tokens", strings(&texts));
    let lacking = Tokenizer::from_gguf(&m).unwrap();
    let whole = Tokenizer::from_gguf(&bpe()).unwrap();
    let text = "ab Babble \u{e9}";
    assert_eq!(
        lacking.encode(text, EncodeOptions::TEXT).unwrap(),
        whole.encode(text, EncodeOptions::TEXT).unwrap()
    );
    for (bytes, name) in [(&b"A"[..], "0x41"), (b"ab BABble", "0x41"), (b"ab\xc0", "0xC0")] {
        let e = lacking.encode_bytes(bytes, EncodeOptions::TEXT).unwrap_err();
        assert!(matches!(e, TokenizerError::NoToken { .. }) && e.to_string().contains(name), "{e}");
    }
    m.set("tokenizer.ggml.unknown_token_id", 262u32);
    let unknown = Tokenizer::from_gguf(&m).unwrap();
    assert_eq!(unknown.encode_bytes(b"A\xc0", EncodeOptions::TEXT).unwrap(), [262, 262]);
}
