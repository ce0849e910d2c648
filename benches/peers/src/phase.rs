//! What is measured: the phases of a repetition.

use serde::Serialize;

/// One measurement of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Tokens one by one after a short prompt.
    Decode,
    /// A prompt.
    Prefill,
    /// Tokens one by one after a long prompt.
    Depth,
    /// Tokens of several sequences, each step one of each.
    Together,
}

impl Phase {
    pub(crate) const ALL: &[Self] = &[Self::Decode, Self::Prefill, Self::Depth, Self::Together];
}

/// How much of each.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sizes {
    /// Tokens that are decoded.
    pub(crate) decode: usize,
    /// Tokens of the prompt that is read.
    pub(crate) prefill: usize,
    /// Tokens before those that are decoded at depth; 0 leaves the phase out.
    pub(crate) depth: usize,
    /// Sequences that are decoded together; 0 leaves the phase out.
    pub(crate) together: usize,
}

/// Tokens before decoding begins, where depth is not the point.
const SHORT: usize = 8;

impl Sizes {
    /// Whether there is anything to do in `phase`.
    pub(crate) fn has(&self, phase: Phase) -> bool {
        self.tokens(phase) > 0
    }

    /// Tokens whose time is taken.
    pub(crate) fn tokens(&self, phase: Phase) -> usize {
        match phase {
            Phase::Decode => self.decode,
            Phase::Prefill => self.prefill,
            Phase::Depth if self.depth == 0 => 0,
            Phase::Depth => self.decode,
            Phase::Together => self.together * self.decode,
        }
    }

    /// What a worker is told: what to do, tokens of the prompt, sequences, tokens to decode for each.
    pub(crate) fn command(&self, phase: Phase) -> String {
        match phase {
            Phase::Decode => format!("decode {SHORT} 1 {}", self.decode),
            Phase::Prefill => format!("prefill {} 1 0", self.prefill),
            Phase::Depth => format!("decode {} 1 {}", self.depth, self.decode),
            Phase::Together => format!("together {SHORT} {} {}", self.together, self.decode),
        }
    }

    /// The phase in a table.
    pub(crate) fn name(&self, phase: Phase) -> String {
        match phase {
            Phase::Decode => "decode".into(),
            Phase::Prefill => format!("prefill {}", self.prefill),
            Phase::Depth => format!("decode at {}", self.depth),
            Phase::Together => format!("decode, {} together", self.together),
        }
    }
}
