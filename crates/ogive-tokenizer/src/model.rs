//! From a word to its tokens: one of our own three, or a model of the `tokenizers` crate for all other vocabularies.

use crate::bpe::Bpe;
use crate::spm::Spm;
use crate::unigram::Unigram;
use crate::{Result, TokenizerError};
use tokenizers::Model as _;
use tokenizers::models::ModelWrapper;

/// The model of a tokenizer.
pub(crate) enum Model {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
    Unigram(Box<Unigram>),
    Wrapped(Box<ModelWrapper>),
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bpe(bpe) => bpe.fmt(f),
            Self::Spm(spm) => spm.fmt(f),
            Self::Unigram(unigram) => unigram.fmt(f),
            // The crate prints whole vocabularies.
            Self::Wrapped(_) => f.write_str(self.name()),
        }
    }
}

impl Model {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Bpe(_) => "byte-level BPE",
            Self::Spm(_) => "SentencePiece BPE",
            Self::Unigram(_) => "Unigram",
            Self::Wrapped(model) => match &**model {
                ModelWrapper::BPE(_) => "BPE",
                ModelWrapper::WordPiece(_) => "WordPiece",
                ModelWrapper::WordLevel(_) => "WordLevel",
                ModelWrapper::Unigram(_) => "Unigram",
            },
        }
    }

    /// Appends the tokens of one word.
    pub(crate) fn encode(&self, word: &str, out: &mut Vec<u32>) -> Result<()> {
        match self {
            Self::Bpe(bpe) => bpe.encode(word.as_bytes(), out),
            Self::Spm(spm) => spm.encode(word, out),
            Self::Unigram(unigram) => unigram.encode(word, out),
            Self::Wrapped(model) => {
                let tokenize =
                    |text: &str| model.tokenize(text).map_err(|e| TokenizerError::Model(e.to_string()));
                let tokens = tokenize(word)?;
                // Without an unknown token the crate's BPE leaves out what it cannot spell; its offsets then fall short.
                if matches!(**model, ModelWrapper::BPE(_))
                    && tokens.last().map_or(0, |t| t.offsets.1) < word.len()
                {
                    let alone = |(at, c): (usize, char)| (at, c.to_string());
                    let mut all = word.char_indices().map(alone);
                    let found = all.find(|(_, c)| tokenize(c).is_ok_and(|tokens| tokens.is_empty()));
                    let (at, what) = found.unwrap_or((0, word.to_owned()));
                    return Err(TokenizerError::NoToken { what: format!("{what:?}"), at });
                }
                out.extend(tokens.into_iter().map(|t| t.id));
                Ok(())
            }
        }
    }

    /// The id of a token by its spelling in the file.
    pub(crate) fn id(&self, spelling: &str) -> Option<u32> {
        match self {
            Self::Bpe(bpe) => bpe.id(spelling),
            Self::Spm(spm) => spm.id(spelling.as_bytes()),
            Self::Unigram(unigram) => unigram.id(spelling),
            Self::Wrapped(model) => model.token_to_id(spelling),
        }
    }
}
