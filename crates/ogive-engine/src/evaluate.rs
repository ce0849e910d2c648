//! Logits or hidden states of a whole text at once, without drawing anything: for comparing implementations, scoring
//! texts and embeddings.

use crate::Limits;
use crate::backend::{Backend, Batch, BlockTable, Plan};
use crate::nn::{self, Model, Observer, Step};
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
    /// Sees intermediate results.
    pub observer: Option<Observer<'a>>,
}

impl Evaluate<'_> {
    /// Logits of every token, in steps of 512 rows, with a cache in single precision.
    pub fn new() -> Self {
        Self { hidden: false, last: false, chunk: 512, element: &F32, observer: None }
    }
}

impl Default for Evaluate<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Evaluate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hidden, last, chunk, element, .. } = self;
        write!(f, "Evaluate {{ hidden: {hidden}, last: {last}, chunk: {chunk}, element: {element:?} }}")
    }
}

/// The logits (or hidden states) of `tokens`, one row for each. `[tokens, vocab]`
pub fn evaluate(
    b: &dyn Backend,
    model: &dyn Model,
    tokens: &[u32],
    how: &Evaluate<'_>,
) -> Result<Array2<f32>> {
    if tokens.is_empty() || how.chunk == 0 {
        return Err(Error::invalid("evaluate", "it needs at least one token, and steps of at least one row"));
    }
    let limits = Limits::new(tokens.len()).step_tokens(tokens.len().min(how.chunk)).element(how.element);
    let spec = limits.cache_spec(model.cache_layout())?;
    // Windowed groups keep all their blocks here, for the tables below hold every token.
    let blocks = tokens.len().div_ceil(limits.block_len);
    let spec = spec.clone().blocks(vec![blocks; spec.blocks.len()]);
    let cache = b.new_cache(&spec)?;
    let table = BlockTable { first: 0, blocks: (0..blocks as u32).collect() };
    let (mut out, mut cols, mut past, mut slots) = (Vec::new(), 0, 0, [0, 1]);
    for chunk in tokens.chunks(how.chunk) {
        let mut batch = Batch::default();
        batch.push(chunk, past, vec![table.clone(); spec.blocks.len()], slots);
        past += chunk.len();
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
            cols = rows.shape().cols();
            out.extend(b.download(&rows)?);
        }
    }
    let rows = out.len() / cols.max(1);
    Array2::from_shape_vec((rows, cols), out).map_err(|e| Error::other("evaluate", e))
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
