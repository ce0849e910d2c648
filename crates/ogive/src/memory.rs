//! What a model would take, before it is loaded.
//!
//! Sizes are those of the device it is for: a GPU's pool rounds what it takes up, by a sixteenth at most. What no device tells (its driver's
//! context, compiled kernels) is left out, and the margin that a backend keeps is for it.

use crate::engine::backend::{Activations, Backend, Batch, BlockTable, CacheSpec, Estimate, Sizes};
use crate::nn::{Loader, Model, Step};
use crate::tensor::Error as ModelError;
use crate::weights::Checkpoint;
use crate::{Options, Result, device, model};
use std::{fmt, path::Path};

/// Bytes that a model and one session of it take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Packed weights. Where files are mapped these are the file's own pages, which the system may drop and read again.
    pub weights: u64,
    /// Keys, values and states of one session at its whole context.
    pub cache: u64,
    /// What a step needs besides: the most that activations take at a time, reading a prompt with a row of logits at its end.
    pub working: u64,
    /// What recorded steps keep for themselves; 0 where none are recorded.
    pub graphs: u64,
    /// Tokens of context the cache is for.
    pub context: usize,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        [self.cache, self.working, self.graphs].into_iter().fold(self.weights, u64::saturating_add)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |b: u64| b as f64 / f64::from(1 << 20);
        let (w, c, k, t) = (mib(self.weights), mib(self.cache), mib(self.working), mib(self.total()));
        write!(f, "{t:.0} MiB: weights {w:.0}, cache {c:.0} at {} tokens, working {k:.0}", self.context)?;
        if self.graphs > 0 { write!(f, ", recorded steps {:.0}", mib(self.graphs)) } else { Ok(()) }
    }
}

pub(crate) fn estimate(path: &Path, options: &Options) -> Result<Memory> {
    of_checkpoint(&options.checkpoint(path)?, options, &device::sizes(options))
}

/// Builds the model on a backend that only counts and runs its steps there, so that the estimate is made by the code that loads and
/// computes.
pub(crate) fn of_checkpoint(checkpoint: &Checkpoint, options: &Options, on: &On) -> Result<Memory> {
    let (counter, config) = (Estimate::of(on.sizes.clone()), &checkpoint.config);
    let limits = model::limits(config, options)?;
    let loader = Loader::new(&*checkpoint.source, &counter).for_context(limits.context);
    let model = options.registry.build(&checkpoint.architecture, config, &loader)?;
    let spec = limits.cache_spec(model.cache_layout())?;
    let cache = counter.cache_bytes(&spec);
    let cache = cache.ok_or_else(|| ModelError::invalid("cache", "more bytes than can be counted"))?;
    let step = |rows: usize| activations(&counter, &*model, &spec, rows, limits.context);
    // A model may want values in its middle, which an estimate has not; then its steps are not counted.
    let prompt = step(limits.step_tokens).unwrap_or_default();
    let token =
        if on.graphs && model.causal() { step(1).unwrap_or_default() } else { Activations::default() };
    Ok(Memory {
        weights: counter.weight_bytes() + counter.tensor_bytes(),
        cache,
        working: prompt.peak,
        graphs: token.kept,
        context: limits.context,
    })
}

/// What a step of the last `rows` tokens of a context takes.
fn activations(
    counter: &Estimate,
    model: &dyn Model,
    spec: &CacheSpec,
    rows: usize,
    context: usize,
) -> Result<Activations> {
    let (rows, mut batch) = (rows.min(context).max(1), Batch::default());
    let tables = vec![BlockTable::default(); spec.groups().len()];
    batch.push(&vec![0; rows], context.saturating_sub(rows), tables, [0, 1]);
    batch.want_last();
    let (plan, cache) = (counter.plan(batch)?, counter.new_cache(spec)?);
    let step = Step::new(counter, &plan, &cache);
    Ok(counter.activations(|| if model.causal() { model.logits(&step) } else { model.hidden(&step) })?)
}

/// How the device takes memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct On {
    pub(crate) sizes: Sizes,
    /// Whether steps that come again keep memory of their own.
    pub(crate) graphs: bool,
}
