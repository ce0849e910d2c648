//! What is asked of the engine, and what it answers.

use crate::sampler::{Chain, SampleError};

/// Names a sequence of one engine; never used twice.
pub type SeqId = u64;

/// A sequence to go on with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The tokens to start from; at least one.
    pub prompt: Vec<u32>,
    /// Tokens to draw at most.
    pub max_tokens: usize,
    /// How to draw them.
    pub chain: Chain,
    /// Tokens that end the sequence; the one that does is reported.
    pub stop: Vec<u32>,
    /// Whether the sequence stays when it has ended, to be gone on with by [`Engine::resume`](crate::Engine::resume).
    pub keep: bool,
}

impl Request {
    /// Draws up to `max_tokens` after `prompt`, always the best.
    pub fn new(prompt: impl Into<Vec<u32>>, max_tokens: usize) -> Self {
        Self { prompt: prompt.into(), max_tokens, chain: Chain::greedy(), stop: Vec::new(), keep: false }
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
}
