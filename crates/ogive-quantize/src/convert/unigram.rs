//! A Unigram vocabulary as `tokenizer.ggml.*`, as llama.cpp's converter writes them for XLM-RoBERTa.
//!
//! Whether spaces are merged is tried and not read: vocabularies say it in many ways, by the normalizer, the pre-tokenizer or both. Some of them
//! (bge-m3's) merge spaces and keep one at the end of a text, which a file cannot say; they are converted all the same, and a note says so, as
//! SentencePiece, with which the models learned, keeps none.

use super::vocab::{File, adds_space, check, check_by, number, roles, spellings, wrong};
use crate::Result;
use gguf_file::{Metadata, StringArray};
use ogive_tokenizer::{EncodeOptions, Tokenizer};
use serde::Deserialize;
use std::collections::HashMap;

/// The score of rows without a piece, as the converter has it.
const UNUSED: f32 = -10_000.0;

#[derive(Deserialize)]
struct Model {
    vocab: Vec<(String, f64)>,
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
        serde_json::from_slice(json).map_err(|e| wrong(format!("reading its pieces failed: {e}")))?;
    let ids = (0..).zip(&file.model.vocab).map(|(id, (text, _))| (text.clone(), id));
    let vocab: HashMap<String, u32> = ids.collect();
    let names = spellings(&vocab, &file.added_tokens, tokenizer, rows, cut)?;
    let score = |id: usize| file.model.vocab.get(id).map_or(UNUSED, |(_, score)| *score as f32);
    let kinds: Vec<i32> = (0..names.len() as u32).map(|id| number(tokenizer.token_kind(id))).collect();
    metadata.set("tokenizer.ggml.model", "t5").set("tokenizer.ggml.pre", "default");
    metadata.set("tokenizer.ggml.tokens", names.iter().collect::<StringArray>());
    metadata.set("tokenizer.ggml.scores", (0..names.len()).map(score).collect::<Vec<f32>>());
    metadata.set("tokenizer.ggml.token_type", kinds);
    metadata.set("tokenizer.ggml.add_space_prefix", adds_space(&file));
    let merged = are_alike(tokenizer, "  a   b", "a b")?;
    metadata.set("tokenizer.ggml.remove_extra_whitespaces", merged);
    if let Some(rules) = tokenizer.compiled_rules() {
        metadata.set("tokenizer.ggml.precompiled_charsmap", rules);
    }
    roles(metadata, tokenizer);
    match merged && keeps_end(tokenizer)? {
        true => check_by(tokenizer, metadata, str::trim_end),
        false => check(tokenizer, metadata),
    }
}

/// Whether a space at the end of a text is cut as a part of it.
fn keeps_end(tokenizer: &Tokenizer) -> Result<bool> {
    Ok(!are_alike(tokenizer, "a ", "a")?)
}

/// Whether two texts are cut to the same tokens.
fn are_alike(tokenizer: &Tokenizer, one: &str, other: &str) -> Result<bool> {
    let ids = |text| tokenizer.encode(text, EncodeOptions::TEXT);
    Ok(ids(one)? == ids(other)?)
}

/// What is to be known of a folder that keeps spaces which the file made of it does not.
pub(super) fn note(tokenizer: &Tokenizer, made: &Tokenizer) -> Result<Option<String>> {
    let differs = keeps_end(tokenizer)? && !keeps_end(made)?;
    let why = "the folder's tokenizer.json makes a token of white space at the end of a text, and no GGUF file can say so: from the packed \
        file texts are cut without it, as by SentencePiece";
    Ok(differs.then(|| why.to_owned()))
}
