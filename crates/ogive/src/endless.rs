//! Answers that go on where the model would end.
//!
//! The tokens that end a text are banned, as in llama.cpp. Drawn and hidden, they would stand in the history: a model that has ended its
//! text there begins another.

use crate::sampler::{Candidates, Chain, Needs, SampleError, Stage, stages::LogitBias};
use crate::{Generate, Model, Result};

/// A bias under a name of its own, so that a chain shows that it has it.
#[derive(Clone, Debug)]
struct Endless(LogitBias);

const NAME: &str = "endless";

/// Whether it is a stage that bans the ends of an answer.
pub(crate) fn is_endless(stage: &dyn Stage) -> bool {
    stage.name() == NAME
}

impl Endless {
    fn new(ends: &[u32]) -> Result<Self, SampleError> {
        let bans: Vec<_> = ends.iter().map(|id| (*id, f32::NEG_INFINITY)).collect();
        Ok(Self(LogitBias::new(&bans)?))
    }
}

impl Stage for Endless {
    fn name(&self) -> &str {
        NAME
    }
    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        self.0.apply(candidates, history);
    }
    fn needs(&self) -> Needs {
        self.0.needs()
    }
    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

impl Generate {
    /// Whether nothing ends the answer but its length. A grammar says itself how far to go on.
    pub(crate) fn is_endless(&self) -> bool {
        #[cfg(feature = "grammar")]
        let free = self.grammar.is_none();
        #[cfg(not(feature = "grammar"))]
        let free = true;
        self.ignore_end && free
    }
}

impl Model {
    /// The chain without the tokens that end a text, where `how` asks for that.
    pub(crate) fn endless(&self, how: &Generate, chain: Chain) -> Result<Chain> {
        let ends = self.tokenizer().map(|t| t.eog()).unwrap_or_default();
        if !how.is_endless() || ends.is_empty() {
            return Ok(chain);
        }
        Ok(chain.first(Endless::new(ends)?))
    }
}
