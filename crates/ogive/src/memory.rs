//! What a model would take, before it is loaded.

use crate::engine::backend::Estimate;
use crate::nn::Loader;
use crate::tensor::Error as ModelError;
use crate::weights::Checkpoint;
use crate::{Options, Result, model};
use std::{fmt, path::Path};

/// Bytes that a model and one session of it take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Packed weights. Where files are mapped these are the file's own pages, which the system may drop and read again.
    pub weights: u64,
    /// Keys, values and states of one session at its whole context.
    pub cache: u64,
    /// What a step needs besides, roughly: activations of the widest layer and one row of logits.
    pub working: u64,
    /// Tokens of context the cache is for.
    pub context: usize,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.cache).saturating_add(self.working)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |b: u64| b as f64 / f64::from(1 << 20);
        let (w, c, k, t) = (mib(self.weights), mib(self.cache), mib(self.working), mib(self.total()));
        write!(f, "{t:.0} MiB: weights {w:.0}, cache {c:.0} at {} tokens, working {k:.0}", self.context)
    }
}

pub(crate) fn estimate(path: &Path, options: &Options) -> Result<Memory> {
    of_checkpoint(&options.checkpoint(path)?, options)
}

/// Builds the model on a backend that only counts, so that the estimate is made by the code that loads.
pub(crate) fn of_checkpoint(checkpoint: &Checkpoint, options: &Options) -> Result<Memory> {
    let (counter, config) = (Estimate::new(), &checkpoint.config);
    let limits = model::limits(config, options)?;
    let loader = Loader::new(&*checkpoint.source, &counter).for_context(limits.context);
    let model = options.registry.build(&checkpoint.architecture, config, &loader)?;
    let spec = limits.cache_spec(model.cache_layout())?;
    let cache = spec.bytes().ok_or_else(|| ModelError::invalid("cache", "more bytes than can be counted"))?;
    let wide = config.usize_or("intermediate_size", 0)?.max(config.usize_or("hidden_size", 0)?);
    // These settings are only the file's word; the shapes that loading checks are not among them.
    let activations = limits.step_tokens.saturating_mul(6).saturating_mul(wide);
    let working = activations.saturating_add(config.usize_or("vocab_size", 0)?).saturating_mul(4);
    Ok(Memory {
        weights: counter.weight_bytes() + counter.tensor_bytes(),
        cache: cache as u64,
        working: working as u64,
        context: limits.context,
    })
}
