//! How well a model foretells a text: its perplexity.
//!
//! The method is that of llama.cpp's `perplexity`, so that figures can be compared: the text is cut into windows of a
//! context's length that share nothing, each begins with the token that begins texts, and of each only the second half is
//! scored, where every token has at least half a context before it. It stands in the façade and not in the engine, for it
//! needs a vocabulary (the beginning token) and none of the engine's scheduling.
//!
//! A text is encoded whole. In parts it would take less memory, some bytes of ids for each byte of text, and would not give the same
//! ids: where a token ends may depend on all that follows.

use crate::engine::{Evaluate, score};
use crate::tokenizer::EncodeOptions;
use crate::{Error, Model, Result};
use std::fmt;

/// The perplexity of a text under a model, window by window.
///
/// ```no_run
/// # fn main() -> ogive::Result<()> {
/// let model = ogive::open("model.gguf")?;
/// let score = ogive::Perplexity::of_text(&model, "It was a dark and stormy night. ...", 512)?;
/// println!("{score}");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Perplexity {
    model: Model,
    context: usize,
    begin: Option<u32>,
    /// Of the negative logarithms of the probabilities, and of their squares.
    sum: f64,
    squares: f64,
    tokens: u64,
}

/// What is known of a perplexity.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Score {
    /// The exponential of the mean negative log-likelihood of a token.
    pub perplexity: f64,
    /// The standard error of that estimate; NaN after a single token.
    pub error: f64,
    /// Tokens that were scored.
    pub tokens: u64,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PPL = {:.4}", self.perplexity)?;
        // One token has no error that could be told.
        if self.error.is_finite() { write!(f, " +/- {:.5}", self.error) } else { Ok(()) }
    }
}

impl Perplexity {
    /// Windows of `context` tokens under `model`.
    ///
    /// # Errors
    /// If windows of fewer than 4 tokens are asked for, or of more than the model's context.
    pub fn new(model: &Model, context: usize) -> Result<Self> {
        if context < 4 || context > model.context() {
            let most = model.context();
            return Err(Error::Scoring(format!(
                "windows of {context} tokens were asked for; a window has at least 4, and at most the {most} that the model was opened for"
            )));
        }
        let begin = model.tokenizer().ok().filter(|t| t.add_bos()).and_then(|t| t.bos());
        Ok(Self { model: model.clone(), context, begin, sum: 0.0, squares: 0.0, tokens: 0 })
    }

    /// The score of a whole text.
    ///
    /// # Errors
    /// As [`new`](Self::new), [`windows`](Self::windows) and [`add`](Self::add); if the model has no tokenizer.
    pub fn of_text(model: &Model, text: &str, context: usize) -> Result<Score> {
        let mut all = Self::new(model, context)?;
        let ids = all.encode(text.as_bytes())?;
        let mut score = Err(Error::Scoring("there is nothing to score".into()));
        for window in all.windows(&ids)? {
            score = Ok(all.add(window)?);
        }
        score
    }

    /// The ids of a text as [`windows`](Self::windows) wants them: with what begins and ends a text.
    ///
    /// # Errors
    /// If the model has no tokenizer or it does not know a character.
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        let options = EncodeOptions { add_special: true, parse_special: false };
        Ok(self.model.tokenizer()?.encode_bytes(text, options)?)
    }

    /// The whole windows of a text; what is left at its end counts for nothing.
    ///
    /// # Errors
    /// If there is not one.
    pub fn windows<'i>(&self, ids: &'i [u32]) -> Result<std::slice::ChunksExact<'i, u32>> {
        if ids.len() < self.context {
            let (have, need) = (ids.len(), self.context);
            return Err(Error::Scoring(format!(
                "the text has {have} tokens, and one window takes {need}; give a longer text or a shorter context"
            )));
        }
        Ok(ids.chunks_exact(self.context))
    }

    /// Scores one more window and gives the estimate from all so far.
    ///
    /// # Errors
    /// If the window is not of the context's length, or if computing fails. Nothing is counted then.
    pub fn add(&mut self, window: &[u32]) -> Result<Score> {
        let ids = self.begun(window)?;
        let mut how = Evaluate::new();
        self.model.adjust(&mut how);
        let found = score(&**self.model.backend(), &**self.model.layers(), &ids, 0, &how)?;
        let (mut sum, mut squares, mut tokens) = (0.0, 0.0, 0);
        // The first of them is for the second token.
        for p in found.iter().skip(self.context / 2) {
            let surprise = -p.chosen.logprob;
            if !surprise.is_finite() {
                let id = p.chosen.id;
                return Err(Error::Scoring(format!(
                    "the model holds token {id} impossible, or its logits are no numbers"
                )));
            }
            (sum, squares, tokens) = (sum + surprise, squares + surprise * surprise, tokens + 1);
        }
        self.sum += sum;
        self.squares += squares;
        self.tokens += tokens;
        Ok(self.score())
    }

    /// A window with what begins a text in the place of its first token.
    pub(crate) fn begun(&self, window: &[u32]) -> Result<Vec<u32>> {
        if window.len() != self.context {
            return Err(Error::Scoring(format!(
                "a window has {} tokens instead of {}",
                window.len(),
                self.context
            )));
        }
        let mut ids = window.to_vec();
        if let (Some(begin), Some(first)) = (self.begin, ids.first_mut()) {
            *first = begin;
        }
        Ok(ids)
    }

    /// The estimate so far.
    fn score(&self) -> Score {
        let n = self.tokens as f64;
        let mean = self.sum / n;
        let variance = (self.squares / n - mean * mean).max(0.0) / (n - 1.0);
        Score { perplexity: mean.exp(), error: variance.sqrt() * mean.exp(), tokens: self.tokens }
    }
}
