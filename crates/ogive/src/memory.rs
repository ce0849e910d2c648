//! What a model would take, before it is loaded.
//!
//! Sizes are those of the device it is for: a GPU's pool rounds what it takes up, by a sixteenth at most. What no device tells (its driver's
//! context, compiled kernels) is left out, and the margin that a backend keeps is for it.

use crate::engine::backend::{
    Activations, Backend, Batch, BlockTable, Cache, CacheSpec, Estimate, Plan, Sizes, Split, StepKey,
};
#[cfg(feature = "vision")]
use crate::images::{Image, Processor, Tile};
#[cfg(feature = "vision")]
use crate::nn::Tower;
use crate::nn::{Loader, Model, Step};
use crate::placement::SLACK;
use crate::tensor::Error;
use crate::weights::Checkpoint;
use crate::{Options, Result, device, model, notes};
use std::{fmt, path::Path, sync::Arc};

/// Bytes that a model takes with one session of it, or an engine of [so many sequences](Options::sequences).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Packed weights, with those that the model is to see by. Where files are mapped these are the file's own pages, which the system may drop and read again.
    pub weights: u64,
    /// Keys, values and states of all sequences at their whole context.
    pub cache: u64,
    /// What a step needs besides: the most that activations take at a time, reading a prompt with a row of logits at its end or a token
    /// after a whole context, or seeing an image of four million pixels, or of as many as the context has room for.
    pub working: u64,
    /// What recorded steps keep for themselves; 0 where none are recorded.
    pub graphs: u64,
    /// Tokens of context the cache is for.
    pub context: usize,
    /// Sequences of that context.
    pub sequences: usize,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        [self.cache, self.working, self.graphs].into_iter().fold(self.weights, u64::saturating_add)
    }

    /// Whether a device that has so many bytes free holds it: some are kept for what a device's pool loses by cutting small pieces from large
    /// ones.
    #[must_use]
    pub fn fits(&self, free: u64) -> bool {
        self.total().saturating_add(SLACK) <= free
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |b: u64| b as f64 / f64::from(1 << 20);
        let (w, c, k, t) = (mib(self.weights), mib(self.cache), mib(self.working), mib(self.total()));
        write!(f, "{t:.0} MiB: weights {w:.0}, cache {c:.0} at ")?;
        if self.sequences > 1 {
            write!(f, "{} times ", self.sequences)?;
        }
        write!(f, "{} tokens, working {k:.0}", self.context)?;
        if self.graphs > 0 { write!(f, ", recorded steps {:.0}", mib(self.graphs)) } else { Ok(()) }
    }
}

/// What the model takes on each part of the machine that these options name, in the order of a step.
pub(crate) fn parts(path: &Path, options: &Options) -> Result<Vec<Memory>> {
    of_layout(&options.checkpoint(path)?, options)
}

/// The notes that the model will have there.
pub(crate) fn notes(path: &Path, options: &Options) -> Result<Vec<String>> {
    Ok(counted(&options.checkpoint(path)?, options)?.notes)
}

/// As [`parts`], of a checkpoint that is open.
pub(crate) fn of_layout(checkpoint: &Checkpoint, options: &Options) -> Result<Vec<Memory>> {
    Ok(counted(checkpoint, options)?.parts)
}

/// What there is to know of a model before it is loaded.
struct Counted {
    /// What each part of the machine has of it.
    parts: Vec<Memory>,
    notes: Vec<String>,
}

fn counted(checkpoint: &Checkpoint, options: &Options) -> Result<Counted> {
    match device::layout(options, checkpoint)? {
        Layout::Whole(on) => on_one(checkpoint, options, &on),
        Layout::Split(ons, split) => on_several(checkpoint, options, &ons, split),
    }
}

/// The same, added up.
pub(crate) fn estimate(path: &Path, options: &Options) -> Result<Memory> {
    Ok(sum(&parts(path, options)?))
}

/// What parts take together.
pub(crate) fn sum(parts: &[Memory]) -> Memory {
    let add = |sum: Memory, part: &Memory| Memory {
        weights: sum.weights.saturating_add(part.weights),
        cache: sum.cache.saturating_add(part.cache),
        working: sum.working.saturating_add(part.working),
        graphs: sum.graphs.saturating_add(part.graphs),
        context: part.context,
        sequences: part.sequences,
    };
    parts.iter().fold(Memory::default(), add)
}

/// What the model takes where one device has all of it.
pub(crate) fn of_checkpoint(checkpoint: &Checkpoint, options: &Options, on: &On) -> Result<Memory> {
    Ok(on_one(checkpoint, options, on)?.parts.pop().unwrap_or_default())
}

fn on_one(checkpoint: &Checkpoint, options: &Options, on: &On) -> Result<Counted> {
    let counter = Estimate::of(on.sizes.clone());
    count(checkpoint, options, &counter, &[&counter], &[on])
}

/// What it takes on each of several, as `split` shares it out among as many backends.
pub(crate) fn of_parts(
    checkpoint: &Checkpoint,
    options: &Options,
    ons: &[On],
    split: impl FnOnce(Vec<Arc<dyn Backend>>) -> Result<Split>,
) -> Result<Vec<Memory>> {
    Ok(on_several(checkpoint, options, ons, split)?.parts)
}

fn on_several(
    checkpoint: &Checkpoint,
    options: &Options,
    ons: &[On],
    split: impl FnOnce(Vec<Arc<dyn Backend>>) -> Result<Split>,
) -> Result<Counted> {
    let counters: Vec<_> = ons.iter().map(|on| Arc::new(Estimate::of(on.sizes.clone()))).collect();
    let split = split(counters.iter().map(|c| Arc::clone(c) as Arc<dyn Backend>).collect())?;
    let counters: Vec<&Estimate> = counters.iter().map(|c| &**c).collect();
    count(checkpoint, options, &split, &counters, &ons.iter().collect::<Vec<_>>())
}

/// Builds the model on backends that only count and runs its steps there, so that the estimate is made by the code that loads and
/// computes.
fn count(
    checkpoint: &Checkpoint,
    options: &Options,
    backend: &dyn Backend,
    counters: &[&Estimate],
    ons: &[&On],
) -> Result<Counted> {
    let config = &checkpoint.config;
    let limits = model::limits_of_all(config, options)?;
    let loader = Loader::new(&*checkpoint.source, backend).for_context(limits.context);
    let model = options.registry.build(&checkpoint.architecture, config, &loader)?;
    #[cfg(feature = "vision")]
    let eyes = crate::vision::asked(checkpoint, options, backend)?;
    let spec = limits.cache_spec(model.cache_layout())?;
    let cache = backend.new_cache(&spec)?;
    let none = || vec![Activations::default(); counters.len()];
    let (n, context) = (limits.sequences, limits.context);
    let ends = |spans: usize, rows: usize| ends(&spec, spans, rows, context);
    let steps = |batches: Vec<Batch>| activations(backend, counters, &*model, &cache, batches);
    // A step may be one sequence's or some of each. A model may want values in its middle, which an estimate has not; then its steps are not
    // counted.
    let each = if model.causal() && n > 1 { Some(ends(n, limits.step_tokens)) } else { None };
    // An encoder reads a text in one step, however long it is.
    let rows = if model.causal() { limits.step_tokens } else { limits.step_tokens.max(context) };
    let prompts = std::iter::once(ends(1, rows)).chain(each).collect();
    let prompt = steps(prompts).unwrap_or_else(|_| none());
    // Of those that are recorded, what each number of sequences keeps counts.
    let fewest = if ons.iter().any(|on| on.graphs) { n.saturating_sub(RECORDS).max(1) } else { n };
    let mut tokens: Vec<Batch> = (fewest..=n).map(|n| backend.bucket(ends(n, n))).collect();
    tokens.dedup_by_key(|batch| batch.tokens.len());
    let token = if model.causal() { steps(tokens).unwrap_or_else(|_| none()) } else { none() };
    let weights: Vec<u64> = counters.iter().map(|of| of.weight_bytes() + of.tensor_bytes()).collect();
    #[cfg(feature = "vision")]
    let image = eyes
        .and_then(|(processor, tower)| {
            seeing(backend, counters, &*tower, &largest(&processor, context)?).ok()
        })
        .unwrap_or_else(none);
    #[cfg(not(feature = "vision"))]
    let image = none();
    let part = |(i, (counter, on)): (usize, (&&Estimate, &&On))| Memory {
        weights: weights[i],
        cache: counter.reserved_bytes(),
        // Few rows over a long context may take more than many.
        working: prompt[i].peak.max(token[i].peak).max(image[i].peak),
        graphs: if on.graphs { token[i].kept } else { 0 },
        context,
        sequences: n,
    };
    let parts = counters.iter().zip(ons).enumerate().map(part).collect();
    Ok(Counted { parts, notes: notes::of(&loader) })
}

/// Pixels along a side of the image that an estimate counts with: what a telephone takes, halved once.
#[cfg(feature = "vision")]
const SIDE: usize = 2048;

/// The largest piece of an image of [`SIDE`], or of as many pixels as a context has room for.
#[cfg(feature = "vision")]
fn largest(processor: &Processor, context: usize) -> Option<Tile> {
    let mut side = SIDE;
    // Rows grow with pixels where they do at all: the second is near, and the third below.
    for _ in 0..3 {
        let image = Image::new(side, side, vec![0; 3 * side * side]).ok()?;
        let picture = processor.prepare(&image).ok()?;
        let rows = picture.rows();
        if rows < context {
            return picture.tiles.into_iter().max_by_key(|tile| tile.patches.len());
        }
        side = ((side as f64 * (0.9 * context as f64 / rows as f64).sqrt()) as usize).max(1);
    }
    None
}

/// What a tower takes while it sees a piece of an image.
#[cfg(feature = "vision")]
fn seeing(
    backend: &dyn Backend,
    counters: &[&Estimate],
    tower: &dyn Tower,
    tile: &Tile,
) -> Result<Vec<Activations>> {
    let before: Vec<u64> = counters.iter().map(|of| of.tensor_bytes()).collect();
    let mut all = Estimate::activations_of(counters, || {
        // It ends where its rows would come to the host: an estimate has none.
        drop(tower.see(backend, &tile.patches, tile.grid));
        backend.upload(&[0.0], [1].into())
    })?;
    for ((of, counter), before) in all.iter_mut().zip(counters).zip(before) {
        // What goes up is counted as if it stayed, and is gone with the image.
        of.peak = of.peak.saturating_add(counter.tensor_bytes() - before);
    }
    Ok(all)
}

/// Numbers of sequences whose steps are recorded at most.
const RECORDS: usize = 64;

/// A step of `rows` tokens, shared out as evenly as can be among `spans` sequences, at the ends of their contexts.
fn ends(spec: &CacheSpec, spans: usize, rows: usize, context: usize) -> Batch {
    let mut batch = Batch::default();
    for i in 0..spans {
        let rows = ((i + 1) * rows / spans - i * rows / spans).clamp(1, context.max(1));
        let tables = vec![BlockTable::default(); spec.groups().len()];
        // Those of a model without states are alike, and filled up where they are recorded.
        let slot = u32::try_from(2 * i).unwrap_or(u32::MAX - 1);
        let slots = if spec.slots > 0 { [slot, slot + 1] } else { [0; 2] };
        batch.push(&vec![0; rows], context.saturating_sub(rows), tables, slots);
        batch.want_last();
    }
    batch
}

/// What these steps take, one after the other.
fn activations(
    backend: &dyn Backend,
    counters: &[&Estimate],
    model: &dyn Model,
    cache: &Cache,
    batches: Vec<Batch>,
) -> Result<Vec<Activations>> {
    let mut steps = Vec::new();
    for batch in batches {
        steps.push((StepKey::of(0, &batch), backend.plan(batch)?));
    }
    let again = |key: &Option<StepKey>, plan: &Plan| {
        let mut run = |plan: &Plan| {
            let step = Step::new(backend, plan, cache);
            // One without a head has vectors all the same.
            let logits = if model.causal() { model.logits(&step).ok() } else { None };
            logits.map_or_else(|| model.hidden(&step), Ok)
        };
        match key {
            Some(key) => backend.replay(key, plan, &mut run),
            None => run(plan),
        }
    };
    // As they are when they come again: what is kept from one time to the next is there.
    for (key, plan) in steps.iter().filter(|(key, _)| key.is_some()) {
        again(key, plan)?;
        again(key, plan)?;
    }
    Ok(Estimate::activations_of(counters, || {
        let mut last = None;
        for (key, plan) in &steps {
            // What a step gave is dropped before the next.
            drop(last.take());
            last = Some(again(key, plan)?);
        }
        last.ok_or_else(|| Error::invalid("an estimate", "no step to count"))
    })?)
}

/// How a device takes memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct On {
    pub(crate) sizes: Sizes,
    /// Whether steps that come again keep memory of their own.
    pub(crate) graphs: bool,
}

/// Shares a model out among so many backends.
pub(crate) type Share<'a> = Box<dyn FnOnce(Vec<Arc<dyn Backend>>) -> Result<Split> + 'a>;

/// Where a model will be.
pub(crate) enum Layout<'a> {
    /// All of it on one device.
    Whole(On),
    /// On several, so shared out.
    Split(Vec<On>, Share<'a>),
}
