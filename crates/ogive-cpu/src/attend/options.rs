//! Attention's options, checked once for a call and put into the form the kernel reads.

use crate::ops::read;
use ogive_backend::{AttnOption, AttnSpec, Batch};
use ogive_tensor::{Error, Result};
use std::{ops::Range, sync::Arc};

/// Something done to a score, in the order the caller gave.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit<'a> {
    /// `cap * tanh(score / cap)`
    SoftCap(f32),
    /// A slope for each head.
    Alibi(&'a [f32]),
    /// `[rows, columns]`
    Mask(&'a [f32], usize),
}

/// What options hang on in a step.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    rows: usize,
    /// Tokens of the longest context.
    longest: usize,
    /// As [`AttnSpec::mutual`] gives it.
    ends: Option<Arc<[usize]>>,
}

impl Extent {
    /// Of a step that is attended so.
    pub(super) fn of(spec: &AttnSpec, batch: &Batch) -> Self {
        let longest = batch.spans.iter().map(|span| span.context()).max().unwrap_or(0);
        Self { rows: batch.tokens.len(), longest, ends: spec.mutual(batch).map(Into::into) }
    }
}

/// The options of one call.
#[derive(Debug)]
pub(super) struct Options<'a> {
    causal: bool,
    /// For each row how far it sees beyond its own place, where some rows see each other to both sides.
    ends: Option<&'a [usize]>,
    window: Option<usize>,
    ahead: Option<usize>,
    chunk: Option<usize>,
    /// What to do to each score.
    pub(super) edits: Vec<Edit<'a>>,
    /// A score for each head that takes part in the softmax only.
    pub(super) sinks: Option<&'a [f32]>,
}

impl<'a> Options<'a> {
    /// Reads the options of `spec` for a step; an error for one this backend does not know, or whose numbers do not fit.
    pub(super) fn new(at: &'static str, spec: &'a AttnSpec, step: &'a Extent) -> Result<Self> {
        let (ends, window, ahead, chunk) = (step.ends.as_deref(), spec.window(), spec.ahead(), spec.chunk());
        let mut options = Self { causal: false, ends, window, ahead, chunk, edits: Vec::new(), sinks: None };
        let per_head = |what: &str, n: usize| match n == spec.heads {
            true => Ok(()),
            false => Err(Error::invalid(at, format!("{n} {what} for {} heads", spec.heads))),
        };
        for option in &spec.options {
            match option {
                AttnOption::Causal => options.causal = true,
                // The step says whose rows these are.
                AttnOption::Mutual => {}
                // The first of each counts, where the specification is read.
                AttnOption::Window(_) | AttnOption::Ahead(_) | AttnOption::Chunk(_) => {}
                AttnOption::SoftCap(cap) => options.edits.push(Edit::SoftCap(*cap)),
                AttnOption::Alibi(slopes) => {
                    per_head("slopes", slopes.len())?;
                    options.edits.push(Edit::Alibi(slopes));
                }
                AttnOption::Sinks(scores) => {
                    let scores = read(at, scores)?;
                    per_head("sinks", scores.len())?;
                    options.sinks = Some(scores);
                }
                AttnOption::Mask(mask) => {
                    let (rows, cols) = (mask.shape().rows(), mask.shape().cols());
                    if rows != step.rows || cols < step.longest {
                        return Err(Error::shape(at, mask.shape(), [step.rows, step.longest].into()));
                    }
                    options.edits.push(Edit::Mask(read(at, mask)?, cols));
                }
                other => {
                    return Err(Error::unsupported(at, format!("the CPU backend has no option {other:?}")));
                }
            }
        }
        Ok(options)
    }

    /// The tokens that a query sees which is row `row` of the step, at position `here` of a context of `context`.
    pub(super) fn visible(&self, row: usize, here: usize, context: usize) -> Range<usize> {
        let until = self.ends.map_or(here + 1, |ends| ends[row]);
        let end = if self.causal { context.min(until) } else { context };
        let end = self.ahead.map_or(end, |n| end.min((here + 1).saturating_add(n)));
        let begin = self.window.map_or(0, |w| (here + 1).saturating_sub(w));
        let begin = begin.max(self.chunk.map_or(0, |n| here - here % n));
        begin.min(end)..end
    }
}
