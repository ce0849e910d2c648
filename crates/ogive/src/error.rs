//! What can go wrong between a path and a text.
//!
//! `Debug` shows the message and not the variants: it is what a `main` that returns an error, and `unwrap`, print.

use crate::engine::sampler::SampleError;
use crate::tensor;
use crate::tokenizer::{TokenizerError, template::TemplateError};
use std::fmt;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model could not be opened or go on.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Loading or computing failed.
    #[error(transparent)]
    Model(#[from] tensor::Error),
    /// The vocabulary could not be read, or does not know a token.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template could not be read or rendered.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A setting of the sampler is wrong, or no token could be drawn.
    #[error(transparent)]
    Sampler(#[from] SampleError),
    /// A grammar does not parse, or cannot be held to.
    #[cfg(feature = "grammar")]
    #[error(transparent)]
    Grammar(#[from] ogive_grammar::GrammarError),
    /// An answer was to be a whole, and is not.
    #[cfg(feature = "grammar")]
    #[error(
        "the answer was cut short after {tokens} tokens, before it was whole; allow more with max_tokens or a larger context"
    )]
    CutShort {
        /// How many tokens it has.
        tokens: usize,
    },
    /// An answer is not the JSON that was wanted.
    #[cfg(feature = "grammar")]
    #[error("reading the answer as JSON: {0}; does the schema say what the type is?")]
    Json(String),
    /// The device that was asked for is not to be had.
    #[error("choosing a device: {0}")]
    Device(String),
    /// Text was given to or wanted from a model without a vocabulary.
    #[error("this model has no tokenizer: {0}; give and take token ids instead")]
    NoTokenizer(String),
    /// A chat was asked of a model without a template.
    #[error("this model has no chat template; use plain prompts, or give a template")]
    NoTemplate,
    /// A text cannot be scored, or be run for what it does in the model.
    #[error("reading a text in windows: {0}")]
    Scoring(String),
    /// There is nothing to start from.
    #[error("the prompt is empty: it has no token, and none was added to begin a text with; give a prompt")]
    EmptyPrompt,
}

impl Error {
    /// Whether the device is lost to this process, so that nothing helps but to start a new one.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Model(e) if e.is_device_lost())
    }
}

/// An error and its causes in one line, for who tells a person; a cause that the line before it told already is left out.
pub fn with_causes(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(c) = cause {
        let more = c.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = c.source();
    }
    text
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_main_prints_is_the_message() {
        let e = crate::open("nowhere.gguf").unwrap_err();
        assert!(format!("{e:?}").starts_with("nowhere.gguf: "), "{e:?}");
    }
}
