//! Stages in order, then a draw.
//!
//! A chain draws from all logits by first taking the best ones that it [needs](Chain::needs), just as a
//! device would send them. One path serves both, so they cannot drift apart.

use std::cmp::Reverse;
use std::fmt;

use crate::candidates::{Candidate, Candidates};
use crate::error::SampleError;
use crate::rng::Rng;
use crate::softmax::Softmax;
use crate::stage::{Needs, Stage};
use crate::stages::Greedy;

/// Stages in order, then a draw. A clone goes on exactly as the original would.
///
/// It prints as text that [`Samplers`](crate::Samplers) reads, `top_k:40,temperature:0.8`; logit bias and DRY's
/// breakers are not part of it.
///
/// # Going back
///
/// What a stage reads from the history (the penalties, DRY) follows a sequence that is cut short by itself. What moves on
/// with every token drawn does not: the random numbers, XTC's among them, mirostat's allowance, adaptive-p's memory. To
/// draw again from an earlier place, keep a clone of the chain from there; [`reset`](Self::reset) is the clone from the
/// beginning.
pub struct Chain {
    pub(crate) stages: Vec<Box<dyn Stage>>,
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    /// Memory of the last list: a vocabulary is a megabyte, which need not be allocated for every token.
    spare: Vec<Candidate>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("stages", &self.stages)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, stage) in self.stages.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { "," }, stage.text())?;
        }
        Ok(())
    }
}

impl Clone for Chain {
    fn clone(&self) -> Self {
        Self { stages: self.stages.clone(), seed: self.seed, rng: self.rng.clone(), spare: Vec::new() }
    }
}

impl Chain {
    /// No stages yet: draws from the model's own distribution.
    pub fn new(seed: u64) -> Self {
        Self { stages: Vec::new(), seed, rng: Rng::new(seed), spare: Vec::new() }
    }

    /// Always the best token; of equal ones the lowest.
    pub fn greedy() -> Self {
        Self::new(0).then(Greedy)
    }

    /// With one more stage at the end.
    #[must_use]
    pub fn then(self, stage: impl Stage + 'static) -> Self {
        self.then_boxed(Box::new(stage))
    }

    /// With one more stage at the end, where its type is known only at run time.
    #[must_use]
    pub fn then_boxed(mut self, stage: Box<dyn Stage>) -> Self {
        self.stages.push(stage);
        self
    }

    /// What its random numbers began from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// With one more stage at the beginning: where what forbids tokens belongs, such as a grammar.
    #[must_use]
    pub fn first(mut self, stage: impl Stage + 'static) -> Self {
        self.stages.insert(0, Box::new(stage));
        self
    }

    /// Without the stages that are not to stay: what a chain had for one text alone, where it goes on with another.
    #[must_use]
    pub fn without(mut self, goes: impl Fn(&dyn Stage) -> bool) -> Self {
        self.stages.retain(|stage| !goes(&**stage));
        self
    }

    /// The stages, in order.
    pub fn stages(&self) -> impl ExactSizeIterator<Item = &dyn Stage> {
        self.stages.iter().map(|s| &**s)
    }

    /// How many of the best candidates decide the draw; all where it is `None`.
    ///
    /// At least one. It may exceed the vocabulary. Which ones are the best is what [`best`](crate::best)
    /// says.
    pub fn needs(&self) -> Option<usize> {
        needs(&self.stages)
    }

    /// The next token after `history` (prompt included), from one row of logits. The stages hear of it.
    ///
    /// After an error no number was drawn and no token accepted.
    ///
    /// # Errors
    /// If there are no logits or more than 2^23, if none is above minus infinity, or if the stages leave no token: then the error says
    /// which stage it was and why, or names all where none says.
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32, SampleError> {
        let spare = std::mem::take(&mut self.spare);
        let candidates = gather(&mut self.stages, spare, logits, history)?;
        self.choose(candidates, logits.len(), || is_possible(logits))
    }

    /// The next token, from a list of candidates in any order.
    ///
    /// It must hold at least the [needed](Self::needs) best ones of the vocabulary; then the token is the
    /// one that [`sample`](Self::sample) would give.
    ///
    /// # Errors
    /// If a token is in the list twice, and as [`sample`](Self::sample). After an error no number was drawn and no token accepted.
    pub fn sample_candidates(&mut self, list: Vec<Candidate>, history: &[u32]) -> Result<u32, SampleError> {
        let count = list.len();
        let possible = list.iter().any(|c| c.logit > f32::NEG_INFINITY);
        let mut candidates = Candidates::from_list(list)?;
        self.stages.iter_mut().for_each(|stage| stage.apply(&mut candidates, history));
        self.choose(Some(candidates), count, || possible)
    }

    /// Draws from what the stages left.
    fn choose(
        &mut self,
        candidates: Option<Candidates>,
        count: usize,
        possible: impl Fn() -> bool,
    ) -> Result<u32, SampleError> {
        let Some((candidates, softmax)) = weigh(candidates) else {
            return Err(nothing_left(&self.stages, count, possible()));
        };
        let at = self.rng.below(softmax.total);
        let drawn = softmax.find(candidates.as_slice(), at);
        let token = drawn.unwrap_or_else(|| candidates.best()).id;
        self.spare = candidates.into_list();
        self.accept(token);
        Ok(token)
    }

    /// The tokens that [`sample`](Self::sample) could give next and their probabilities, most likely
    /// first. They sum to 1. Changes nothing: it works on a copy of the stages.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn distribution(&self, logits: &[f32], history: &[u32]) -> Result<Vec<(u32, f64)>, SampleError> {
        let mut stages = self.stages.clone();
        let candidates = gather(&mut stages, Vec::new(), logits, history)?;
        let Some((candidates, softmax)) = weigh(candidates) else {
            return Err(nothing_left(&stages, logits.len(), is_possible(logits)));
        };
        let mut list = candidates.into_list();
        list.retain(|&c| softmax.weight(c) > 0);
        list.sort_unstable_by_key(|c| Reverse(c.rank()));
        let total = softmax.total as f64;
        Ok(list.into_iter().map(|c| (c.id, softmax.weight(c) as f64 / total)).collect())
    }

    /// Tells the stages of a token that was not drawn here: one that was forced, or taken from elsewhere.
    /// [`sample`](Self::sample) does so itself.
    pub fn accept(&mut self, token: u32) {
        self.stages.iter_mut().for_each(|s| s.accept(token));
    }

    /// As it was when built: stages and random numbers.
    pub fn reset(&mut self) {
        self.stages.iter_mut().for_each(|s| s.reset());
        self.rng = Rng::new(self.seed);
    }

    /// Draws from here on by another seed, so that forks of one sequence part ways; the stages' own chance too.
    pub fn reseed(&mut self, seed: u64) {
        self.stages.iter_mut().for_each(|s| s.reseed(seed));
        self.seed = seed;
        self.rng = Rng::new(seed);
    }
}

type Stages = [Box<dyn Stage>];

/// How many of the best candidates decide what these stages leave; all where it is `None`.
fn needs(stages: &Stages) -> Option<usize> {
    stages.iter().rev().fold(None, |next, stage| match stage.needs() {
        Needs::All => None,
        Needs::Next => next,
        Needs::NextAnd(more) => next.and_then(|n| n.checked_add(more)),
        Needs::Best(k) => Some(next.map_or(k, |n| n.min(k)).max(1)),
    })
}

/// The candidates of a row of logits after all stages; `None` if the first one's mask is empty.
fn gather(
    stages: &mut Stages,
    spare: Vec<Candidate>,
    logits: &[f32],
    history: &[u32],
) -> Result<Option<Candidates>, SampleError> {
    if let Some((first, rest)) = stages.split_first_mut()
        && let Some(mask) = first.mask(history)
    {
        let mut candidates = Candidates::load_allowed(spare, logits, needs(rest), mask)?;
        if let Some(candidates) = &mut candidates {
            rest.iter_mut().for_each(|stage| stage.apply(candidates, history));
        }
        return Ok(candidates);
    }
    let mut candidates = Candidates::load(spare, logits, needs(stages))?;
    stages.iter_mut().for_each(|stage| stage.apply(&mut candidates, history));
    Ok(Some(candidates))
}

/// The candidates and their weights, if one of them is possible.
fn weigh(candidates: Option<Candidates>) -> Option<(Candidates, Softmax)> {
    let candidates = candidates?;
    let softmax = candidates.softmax();
    (softmax.total > 0).then_some((candidates, softmax))
}

fn is_possible(logits: &[f32]) -> bool {
    logits.iter().any(|&l| l > f32::NEG_INFINITY)
}

/// Why there is nothing to draw, where the model alone would have had something, or not.
fn nothing_left(stages: &Stages, count: usize, possible: bool) -> SampleError {
    if let Some((stage, why)) = stages.iter().find_map(|s| Some((s.name().into(), s.failure()?))) {
        return SampleError::Stuck { stage, why };
    }
    if !possible {
        return SampleError::NoLogit { count };
    }
    let names: Vec<_> = stages.iter().map(|s| s.name()).collect();
    SampleError::AllBanned { stages: names.join(", ") }
}
