//! Real vocabularies from GGUF against ids that llama.cpp made: every published pair and every text of `vocab/ext`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "skips and figures are to be seen")]

mod common;

use common::{hex, ids, json, shared, vocabularies};
use ogive_tokenizer::EncodeOptions;

#[test]
fn published_pairs() {
    let Some(shared) = shared() else { return };
    for (name, tokenizer) in vocabularies(&shared) {
        let pairs = json(&shared.join(format!("vocab/ggml-vocab-{name}.gguf.pairs.json")));
        let pairs = pairs.as_array().unwrap();
        for pair in pairs {
            let text = pair["text"].as_str().unwrap();
            let got = tokenizer.encode(text, EncodeOptions::TEXT).unwrap();
            assert_eq!(got, ids(&pair["ids"]), "{name} on {text:?}");
            assert_eq!(tokenizer.decode(&got).unwrap(), text, "{name}");
        }
        println!("{name}: {} published pairs", pairs.len());
        assert_eq!(pairs.len(), 46);
    }
}

/// A GGUF file asks for no normalisation, so the 28 texts that NFC would change are the same here as in llama.cpp.
#[test]
fn more_texts() {
    let Some(shared) = shared() else { return };
    let texts = json(&shared.join("vocab/ext/texts.json"));
    let texts: Vec<&str> = texts.as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    for (name, tokenizer) in vocabularies(&shared) {
        let want = json(&shared.join(format!("vocab/ext/{name}.json")));
        let (mut plain, mut special, mut back, mut same) = (0, 0, 0, 0);
        for (text, want) in texts.iter().zip(want.as_array().unwrap()) {
            let got = tokenizer.encode(text, EncodeOptions::TEXT).unwrap();
            plain += usize::from(got == ids(&want["ids"]));
            let with_special = tokenizer.encode(text, EncodeOptions::PROMPT).unwrap();
            special += usize::from(with_special == ids(&want["ids_special"]));
            let bytes = tokenizer.decode_bytes(&got).unwrap();
            // SentencePiece has one spelling for a space and its own mark.
            let written = if name == "llama-spm" { text.replace('▁', " ") } else { text.to_string() };
            back += usize::from(bytes == written.as_bytes());
            same += usize::from(bytes == hex(want["detok_hex"].as_str().unwrap()));
        }
        println!(
            "{name}: of {}: {plain} ids, {special} with specials, {back} back to the text, {same} as llama.cpp detokenises",
            texts.len()
        );
        assert_eq!((texts.len(), plain, special), (386, 386, 386), "{name}");
        // llama.cpp takes spaces before punctuation out of 14 texts of these two.
        let cleaned = if ["gpt-2", "llama-bpe"].contains(&name) { 14 } else { 0 };
        assert_eq!((back, same), (386, 386 - cleaned), "{name}");
    }
}
