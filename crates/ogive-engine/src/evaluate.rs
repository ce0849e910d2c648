//! Logits or hidden states of a whole text at once, without drawing anything: for comparing implementations, scoring
//! texts and embeddings.

use crate::Limits;
use crate::backend::{Backend, Batch, BlockTable, Plan};
use crate::inputs::{self, Placed};
use crate::nn::{self, Model, Observer, Step};
use crate::sampler::LogProbs;
use crate::tensor::{Error, F32, Format, Result};
use ndarray::Array2;

/// How to evaluate a text.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Evaluate<'a> {
    /// Hidden states `[n, dim]` instead of logits `[n, vocab]`.
    pub hidden: bool,
    /// Only the last token's row.
    pub last: bool,
    /// Rows of a step.
    pub chunk: usize,
    /// What keys and values are kept in.
    pub element: &'static Format,
    /// Vectors in place of some of the tokens, in order.
    pub inputs: &'a [Placed],
    /// Sees intermediate results.
    pub observer: Option<Observer<'a>>,
}

impl Evaluate<'_> {
    /// Logits of every token, in steps of 512 rows, with a cache in single precision.
    pub fn new() -> Self {
        Self { hidden: false, last: false, chunk: 512, element: &F32, inputs: &[], observer: None }
    }
}

impl Default for Evaluate<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Evaluate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hidden, last, chunk, element, inputs, .. } = self;
        let inputs = inputs.len();
        write!(
            f,
            "Evaluate {{ hidden: {hidden}, last: {last}, chunk: {chunk}, element: {element:?}, inputs: {inputs} }}"
        )
    }
}

/// The logits (or hidden states) of `tokens`, one row for each. `[tokens, vocab]`
///
/// # Errors
/// If there are no tokens, if `chunk` is 0, if there is no memory for the cache, if logits are asked for and the model has none, or if vectors
/// stand in place of tokens that are not there, or the model takes none or others; else as [all operators](crate::backend::Backend#errors).
pub fn evaluate(
    b: &dyn Backend,
    model: &dyn Model,
    tokens: &[u32],
    how: &Evaluate<'_>,
) -> Result<Array2<f32>> {
    let (mut out, mut cols) = (Vec::new(), 0);
    each_step(b, model, tokens, how, &mut |rows, width| {
        cols = width;
        out.extend(rows);
    })?;
    let rows = out.len() / cols.max(1);
    Array2::from_shape_vec((rows, cols), out).map_err(|e| Error::other("evaluate", e))
}

/// How likely a text is: what the model held of every token but the first, which nothing precedes, and of the `best` most
/// likely ones there. Of `how`, `hidden` and `last` do not matter; whole rows of logits are never kept for longer than a
/// step, and of a large vocabulary a step has fewer rows than `how` says.
///
/// # Errors
/// As [`evaluate`], for logits.
pub fn score(
    b: &dyn Backend,
    model: &dyn Model,
    tokens: &[u32],
    best: usize,
    how: &Evaluate<'_>,
) -> Result<Vec<LogProbs>> {
    /// Logits that a step may have.
    const MOST: usize = 1 << 24;
    let rows = model.vocab().map_or(how.chunk, |n| how.chunk.min(MOST / n.max(1)).max(1));
    let how = Evaluate { hidden: false, last: false, chunk: rows, ..*how };
    let (mut out, mut next) = (Vec::new(), tokens.iter().skip(1));
    each_step(b, model, tokens, &how, &mut |rows, vocab| {
        let known = rows.chunks(vocab.max(1)).zip(next.by_ref());
        out.extend(known.map(|(row, token)| LogProbs::new(row, *token, best)));
    })?;
    Ok(out)
}

/// Runs `tokens` step by step and hands on the rows of each that are wanted, with their length.
fn each_step(
    b: &dyn Backend,
    model: &dyn Model,
    tokens: &[u32],
    how: &Evaluate<'_>,
    take: &mut dyn FnMut(Vec<f32>, usize),
) -> Result<()> {
    if tokens.is_empty() || how.chunk == 0 {
        return Err(Error::invalid("evaluate", "it needs at least one token, and steps of at least one row"));
    }
    inputs::check("evaluate", how.inputs, tokens.len(), model.takes_vectors())?;
    // What looks ahead must be in one step.
    let least = inputs::together(how.inputs);
    let chunk = if model.causal() { how.chunk.max(least).min(tokens.len()) } else { tokens.len() };
    let limits = Limits::new(tokens.len()).step_tokens(chunk).element(how.element);
    let spec = limits.cache_spec(model.cache_layout())?;
    inputs::check_windows("evaluate", least, &spec)?;
    // Windowed groups keep all their blocks here, for the tables below hold every token.
    let blocks = tokens.len().div_ceil(limits.block_len);
    let spec = spec.clone().blocks(vec![blocks; spec.blocks.len()]);
    let cache = b.new_cache(&spec)?;
    let table = BlockTable { first: 0, blocks: (0..blocks as u32).collect() };
    let (mut past, mut slots) = (0, [0, 1]);
    while past < tokens.len() {
        // Steps have room for all that must be together.
        let end = inputs::floor(how.inputs, (past + chunk).min(tokens.len()));
        let mut batch = Batch::default();
        batch.push(&tokens[past..end], past, vec![table.clone(); spec.blocks.len()], slots);
        inputs::push(how.inputs, &mut batch, 0, past);
        past = end;
        slots.reverse();
        match (how.last, past == tokens.len()) {
            (false, _) => batch.want_all(),
            (true, true) => batch.want_last(),
            (true, false) => {}
        }
        let wanted = batch.outputs.len();
        let plan = b.plan(batch)?;
        let step = Step::new(b, &plan, &cache);
        let step = how.observer.map_or(step, |o| step.observed(o));
        let rows = run(b, model, &step, &plan, how.hidden)?;
        if wanted > 0 {
            take(b.download(&rows)?, rows.shape().cols());
        }
    }
    Ok(())
}

fn run(
    b: &dyn Backend,
    model: &dyn Model,
    s: &Step<'_>,
    plan: &Plan,
    hidden: bool,
) -> Result<crate::tensor::Tensor> {
    nn::prepare(b, s.cache, plan)?;
    if hidden { b.outputs(&model.hidden(s)?, plan) } else { model.logits(s) }
}
