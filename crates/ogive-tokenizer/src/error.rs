//! What can go wrong between text and tokens. One type for the crate's tokenizer half (templates have their own): a caller
//! acts on where a tokenizer came from, not on which stage refused it, so most variants carry a sentence, not a tree.

use std::path::PathBuf;

/// An error of opening a tokenizer, of encoding or of decoding.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A file of a model's folder could not be read.
    #[error("cannot read {path:?}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A folder has no `tokenizer.json`.
    #[error(
        "no tokenizer.json in {folder:?}; a sentencepiece model alone (tokenizer.model) or vocab.json with merges.txt is not read: \
         convert it with transformers, or use a GGUF file"
    )]
    NoTokenizerJson {
        /// The folder.
        folder: PathBuf,
    },
    /// JSON that does not parse, or not into the expected shape.
    #[error("cannot read {what}: {source}")]
    Json {
        /// Which file or section.
        what: String,
        /// What serde_json says, with line and column.
        source: serde_json::Error,
    },
    /// The file declares a part that this crate does not implement.
    #[error("{part} {name:?} is not supported; known are: {known}")]
    Unsupported {
        /// Which kind of part (`tokenizer model`, `normalizer`, ...).
        part: &'static str,
        /// The name found.
        name: String,
        /// The names that would have been understood.
        known: String,
    },
    /// A vocabulary that contradicts itself.
    #[error("the vocabulary is damaged: {0}")]
    Vocabulary(String),
    /// GGUF metadata is missing or of another type.
    #[error("the GGUF metadata describe no usable tokenizer: {0}")]
    Gguf(String),
    /// A regular expression of `tokenizer.json` does not compile.
    #[error("cannot compile the pattern {pattern:?} of tokenizer.json: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What the engine says.
        reason: String,
    },
    /// A regular expression gave up while splitting. Only patterns that no linear matcher knows can do this.
    #[error(
        "the pattern {pattern:?} gave up after {at} bytes of text: {reason}; shorten runs of the same kind of character"
    )]
    PatternGaveUp {
        /// The pattern.
        pattern: String,
        /// Bytes of the piece that had been split.
        at: usize,
        /// What the engine says.
        reason: String,
    },
    /// An id outside the vocabulary.
    #[error("token id {id} is not in the vocabulary of {size} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Ids go from 0 to this, exclusive.
        size: usize,
    },
    /// Text that the vocabulary has no token for, and no unknown token either.
    #[error(
        "no token stands for {what} (at byte {at} of a piece of text), and the vocabulary has no unknown token"
    )]
    NoToken {
        /// The character or byte.
        what: String,
        /// Offset within the piece.
        at: usize,
    },
    /// Text beyond what offsets hold.
    #[error("a text of {len} bytes is too long to tokenise at once; cut it below {limit}")]
    TooLong {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// A model of the `tokenizers` crate failed on a word.
    #[error("the tokenizer's model failed: {0}")]
    Model(String),
}

/// The crate's result type.
pub type Result<T, E = TokenizerError> = std::result::Result<T, E>;

impl TokenizerError {
    pub(crate) fn json(what: impl Into<String>, source: serde_json::Error) -> Self {
        Self::Json { what: what.into(), source }
    }

    pub(crate) fn unsupported(part: &'static str, name: impl Into<String>, known: impl Into<String>) -> Self {
        Self::Unsupported { part, name: name.into(), known: known.into() }
    }
}
