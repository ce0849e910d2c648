//! How likely tokens were: of an answer as it comes, and of a text that is given.
//!
//! Log probabilities are natural logarithms of the model's own distribution, before any sampler, as the servers of OpenAI and
//! llama.cpp give them by default: temperature and top-k change what is drawn, not how likely the model holds it.

use crate::engine::sampler::{LogProb, LogProbs};
use crate::engine::{Evaluate, score};
use crate::{Model, Prompt, Result};

/// A token, how it is spelled and how likely it was.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Logprob {
    /// The token.
    pub id: u32,
    /// What it stands for; a token may end inside a character. Of a special token, its name; empty without a vocabulary.
    pub bytes: Vec<u8>,
    /// The natural logarithm of its probability: at most 0, and minus infinity for what cannot come.
    pub logprob: f64,
}

impl Logprob {
    /// Its text, with U+FFFD for parts of characters.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Its probability, from 0 to 1.
    pub fn probability(&self) -> f64 {
        self.logprob.exp()
    }
}

/// A token of a text, and the most likely ones at its place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TokenLogprobs {
    /// The token that stands there.
    pub token: Logprob,
    /// The most likely ones, the best first; the token itself may be among them.
    pub best: Vec<Logprob>,
}

impl TokenLogprobs {
    /// With the model's spellings.
    pub(crate) fn of(model: &Model, found: LogProbs) -> Self {
        let spelled = |LogProb { id, logprob }| {
            let bytes = model.tokenizer().ok().and_then(|t| t.token_bytes(id).ok());
            Logprob { id, bytes: bytes.unwrap_or_default().to_vec(), logprob }
        };
        Self { token: spelled(found.chosen), best: found.best.into_iter().map(spelled).collect() }
    }
}

impl Model {
    /// How likely a text is: each of its tokens but the first, which nothing precedes, and the `best` most likely ones
    /// there. (Where the vocabulary puts a token of its own before a text, that is the first.) The sum of the logarithms is
    /// that of the text's probability; the exponential of their mean, negated, its perplexity.
    ///
    /// Computed as [`logits`](Self::logits) are, without keeping them: a long text takes no more memory than its cache.
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// let model = ogive::open("model.gguf")?;
    /// let likely: f64 = model.score("The capital of France is Paris", 0)?.iter().map(|t| t.token.logprob).sum();
    /// let less: f64 = model.score("The capital of France is Rome", 0)?.iter().map(|t| t.token.logprob).sum();
    /// assert!(likely > less);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read) and [`logits`](Self::logits).
    pub fn score(&self, text: impl Into<Prompt>, best: usize) -> Result<Vec<TokenLogprobs>> {
        let (ids, inputs) = self.read(&text.into())?;
        let mut how = Evaluate::new();
        how.inputs = &inputs;
        self.adjust(&mut how);
        let found = score(&**self.backend(), &**self.layers(), &ids, best, &how)?;
        Ok(found.into_iter().map(|found| TokenLogprobs::of(self, found)).collect())
    }
}
