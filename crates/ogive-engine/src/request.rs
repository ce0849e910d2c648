//! What is asked of the engine, and what it answers.

use crate::inputs::Placed;
use crate::sampler::{Chain, LogProbs, SampleError};

/// Names a sequence of one engine; never used twice.
pub type SeqId = u64;

/// A sequence to go on with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The tokens to start from; at least one.
    pub prompt: Vec<u32>,
    /// Vectors in place of some of them, in order: images.
    pub inputs: Vec<Placed>,
    /// Tokens to draw at most.
    pub max_tokens: usize,
    /// How to draw them.
    pub chain: Chain,
    /// Tokens that end the sequence; the one that does is reported.
    pub stop: Vec<u32>,
    /// Whether the sequence stays when it has ended, to be gone on with by [`Engine::resume`](crate::Engine::resume).
    pub keep: bool,
    /// How many of the most likely tokens to tell with each token drawn, and that one's log probability; `None` for
    /// neither. They are the model's own, before the chain; a device then sends whole rows of logits.
    pub logprobs: Option<usize>,
}

impl Request {
    /// Draws up to `max_tokens` after `prompt`, always the best.
    pub fn new(prompt: impl Into<Vec<u32>>, max_tokens: usize) -> Self {
        let (prompt, chain) = (prompt.into(), Chain::greedy());
        let (inputs, stop) = Default::default();
        Self { prompt, inputs, max_tokens, chain, stop, keep: false, logprobs: None }
    }

    /// Has vectors in place of some of the prompt's tokens, in order.
    #[must_use]
    pub fn inputs(self, inputs: impl Into<Vec<Placed>>) -> Self {
        Self { inputs: inputs.into(), ..self }
    }

    /// Draws by `chain`.
    #[must_use]
    pub fn chain(self, chain: Chain) -> Self {
        Self { chain, ..self }
    }

    /// Ends at any of these tokens.
    #[must_use]
    pub fn stop(self, stop: impl Into<Vec<u32>>) -> Self {
        Self { stop: stop.into(), ..self }
    }

    /// Tells log probabilities: of each token drawn, and of the `n` most likely ones there.
    #[must_use]
    pub fn logprobs(self, n: usize) -> Self {
        Self { logprobs: Some(n), ..self }
    }

    /// Stays when it has ended.
    #[must_use]
    pub fn keep(self) -> Self {
        Self { keep: true, ..self }
    }
}

/// Why a sequence ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finish {
    /// It drew a token that ends it.
    Stop,
    /// It drew as many tokens as were asked for.
    Length,
    /// It is as long as a sequence may be.
    Context,
    /// No token could be drawn.
    Failed(SampleError),
}

/// What a step did for one sequence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Which sequence.
    pub id: SeqId,
    /// The token that was drawn; `None` where that failed.
    pub token: Option<u32>,
    /// Set where the sequence ended.
    pub finish: Option<Finish>,
    /// What the model held of the token and of the best ones, where the request asked for it.
    pub logprobs: Option<LogProbs>,
}
