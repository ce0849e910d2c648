//! The trait behind every stage of a chain.
//!
//! A stage says with one value, [`Needs`], what it asks of its input, instead of two flags ("keeps the
//! order", "keeps k"): top-p keeps the order and yet must see the whole vocabulary, and penalties change
//! the order and yet can do with a few more than the next stage wants. The chain adds these up from its
//! end.

use std::fmt::Debug;

use crate::candidates::Candidates;
use crate::error::SampleError;
use crate::mask::Mask;

/// How many of the best candidates a stage must see for its output to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// All of them. Always a correct answer.
    All,
    /// As many as the stages after it: it judges a candidate by itself or against the best one and never
    /// changes which of two is better, ties included.
    Next,
    /// That many more than the stages after it: it lowers or forbids at most so many candidates and
    /// leaves all others as they are.
    NextAnd(usize),
    /// So many: it passes on the k best or some of them, best first, and looks at no others.
    Best(usize),
}

/// A step of a chain: edits the candidates before one is drawn.
///
/// A stage may keep a state (mirostat's target, a grammar's position); it moves on in
/// [`accept`](Self::accept), not in `apply`: a step may be applied without a draw following, as
/// [`Chain::distribution`](crate::Chain::distribution) does on a copy. A stage that wants chance of its
/// own keeps an [`Rng`](crate::Rng), looks at its next number in `apply` and moves on in `accept`.
pub trait Stage: Debug + Send + Sync {
    /// The stage's name, for messages: lower case, with llama.cpp's spelling where it has one.
    fn name(&self) -> &str;

    /// As a chain's text has it: the name and the values, `xtc:0.5:0.1`. By default the name alone. What
    /// [`Samplers`](crate::Samplers) knows reads it back.
    fn text(&self) -> String {
        self.name().replace('-', "_")
    }

    /// Edits the candidates; `history` is the whole sequence so far, prompt included.
    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]);

    /// The tokens that it lets through as they are, if that is all it does: it drops every other one.
    ///
    /// Asked of a chain's first stage alone, instead of `apply`: the chain then lists only candidates that may come, and of those
    /// only as many as the stages after it need. The default, `None`, is always right; `apply` is the definition.
    fn mask(&mut self, history: &[u32]) -> Option<Mask<'_>> {
        let _ = history;
        None
    }

    /// Why it left no token possible, if that was its doing: what the error says.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Hears which token was drawn.
    fn accept(&mut self, token: u32) {
        let _ = token;
    }

    /// Forgets what was accepted, for a new sequence.
    fn reset(&mut self) {}

    /// Takes chance of its own from another seed, so that forks of one sequence part ways.
    fn reseed(&mut self, seed: u64) {
        let _ = seed;
    }

    /// What the accepted tokens have left in it, as bytes, for a chain that is [saved](crate::Chain::state). A stage that
    /// keeps anything overrides this and [`restore`](Self::restore); what it can read from the history is not part of it.
    fn state(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes over what [`state`](Self::state) of a stage with the same settings gave.
    ///
    /// # Errors
    /// If it never gives such bytes; the stage is then as it was.
    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        if state.is_empty() { Ok(()) } else { Err(SampleError::bad_state(self.name())) }
    }

    /// How many of the best candidates it must see.
    fn needs(&self) -> Needs {
        Needs::All
    }

    /// This stage in its present state, for a sequence that forks.
    fn clone_stage(&self) -> Box<dyn Stage>;
}

impl Clone for Box<dyn Stage> {
    fn clone(&self) -> Self {
        (**self).clone_stage()
    }
}
