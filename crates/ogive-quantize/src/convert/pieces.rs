//! BERT's word pieces as `tokenizer.ggml.*`, as llama.cpp's converter writes them: what begins a word with SentencePiece's mark,
//! what goes on with nothing, special tokens as they are.
//!
//! Case and accents are written down always, though readers have defaults and the converter leaves them out: a vocabulary
//! with capitals would lose them.

use super::vocab::{File, check, number, roles, spellings, wrong};
use crate::Result;
use gguf_file::{Metadata, StringArray};
use ogive_tokenizer::{TokenKind, Tokenizer};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

#[derive(Deserialize)]
struct Model {
    vocab: HashMap<String, u32>,
    continuing_subword_prefix: String,
    max_input_chars_per_word: u64,
}

/// Sets the vocabulary's keys, for an embedding of so many rows.
pub(super) fn set(
    metadata: &mut Metadata,
    tokenizer: &Tokenizer,
    json: &[u8],
    rows: u64,
    cut: bool,
) -> Result<()> {
    let file: File<Model> =
        serde_json::from_slice(json).map_err(|e| wrong(format!("reading word pieces failed: {e}")))?;
    let File { model, normalizer, pre_tokenizer, .. } = &file;
    let usual = |json: &Value, key: &str| json[key].as_bool().unwrap_or(true);
    let bert = normalizer["type"] == "BertNormalizer"
        && usual(normalizer, "clean_text")
        && usual(normalizer, "handle_chinese_chars")
        && pre_tokenizer["type"] == "BertPreTokenizer"
        && model.continuing_subword_prefix == "##"
        && model.max_input_chars_per_word == 100;
    if !bert {
        return Err(wrong("word pieces that are not cut by BERT's rules have no place in a GGUF file"));
    }
    let lowercase = usual(normalizer, "lowercase");
    let names = spellings(&model.vocab, &file.added_tokens, tokenizer, rows, cut)?;
    let special = |id| tokenizer.token_kind(id).is_some_and(TokenKind::is_special);
    let kind =
        |id| if special(id) { number(Some(TokenKind::Control)) } else { number(tokenizer.token_kind(id)) };
    let spelt = |(id, name): (u32, &String)| match name.strip_prefix("##") {
        _ if special(id) => name.clone(),
        Some(piece) => piece.to_owned(),
        None => format!("\u{2581}{name}"),
    };
    metadata.set("tokenizer.ggml.model", "bert");
    // Readers do not ask for it; the converter's name for the vocabulary that nearly all have.
    metadata.set("tokenizer.ggml.pre", "bert-bge");
    metadata.set("tokenizer.ggml.tokens", (0..).zip(&names).map(spelt).collect::<StringArray>());
    metadata.set("tokenizer.ggml.token_type", (0..names.len() as u32).map(kind).collect::<Vec<i32>>());
    metadata.set("tokenizer.ggml.normalizer.lowercase", lowercase);
    let strips = normalizer["strip_accents"].as_bool().unwrap_or(lowercase);
    metadata.set("tokenizer.ggml.normalizer.strip_accents", strips);
    roles(metadata, tokenizer);
    check(tokenizer, metadata)
}
