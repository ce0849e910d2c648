//! A vocabulary without its model, and as samplers see it.
//!
//! Opening one is not a method of [`Options`](crate::Options): nothing there matters to a vocabulary, and a GGUF file that has nothing
//! else, or is of an architecture that Ogive does not know, has one all the same.

use crate::sampler::stages::Vocabulary;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::{Result, open_gguf};
use std::path::Path;

/// Opens the vocabulary at `path`, with its chat templates: that of a GGUF file (with weights or without), of a Hugging
/// Face folder, or of the folder that the given JSON or safetensors file lies in.
///
/// # Errors
/// If nothing is there or it has no vocabulary, and as [`Tokenizer::from_folder`] and [`Tokenizer::from_gguf`].
pub fn open_tokenizer(path: impl AsRef<Path>) -> Result<Tokenizer> {
    let path = path.as_ref();
    if path.is_dir() {
        return Ok(Tokenizer::from_folder(path)?);
    }
    if path.is_file() && path.extension().is_some_and(|e| e == "json" || e == "safetensors") {
        return Ok(Tokenizer::from_folder(path.parent().unwrap_or(Path::new(".")))?);
    }
    let gguf = open_gguf(path)?;
    Ok(Tokenizer::from_gguf(gguf.metadata())?)
}

/// A tokenizer as DRY sees it, which cuts its sequence breakers by it.
pub(crate) struct Words<'t>(pub(crate) &'t Tokenizer);

impl Vocabulary for Words<'_> {
    fn size(&self) -> usize {
        self.0.vocab_size()
    }

    fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.0.token_bytes(id).ok()
    }

    fn tokenize(&self, text: &[u8]) -> std::result::Result<Vec<u32>, String> {
        self.0.encode_bytes(text, EncodeOptions::TEXT).map_err(|e| e.to_string())
    }
}
