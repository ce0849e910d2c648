//! What would fit of a model that does not: a shorter context, fewer layers on the GPU.
//!
//! Found when memory was too little and not before: it takes some estimates, of which each loads the model on backends that only count. Only
//! GPUs are asked what is free, as the CPU's memory is the system's to stretch.

use crate::engine::Limits;
use crate::engine::backend::{Backend, Estimate, Split};
use crate::memory::{self, Memory, On};
use crate::placement::{GpuLayers, Layers, SLACK};
use crate::tensor::Error as ModelError;
use crate::{Options, Result, device, nn};
use std::{path::Path, sync::Arc};

/// Bytes that a part of a backend has left, if it is a GPU's that says so.
pub(crate) type Free = Vec<Option<u64>>;

/// What is left on each part of a backend, in the order of a step.
pub(crate) fn free(backend: &dyn Backend) -> Free {
    of_each(backend, device::free)
}

fn of_each(backend: &dyn Backend, free: fn(&dyn Backend) -> Option<u64>) -> Free {
    let split = parts(backend).map(|s| s.parts().iter().map(|p| free(&**p)).collect());
    split.unwrap_or_else(|| vec![free(backend)])
}

fn parts(backend: &dyn Backend) -> Option<&Split> {
    (backend as &dyn std::any::Any).downcast_ref::<Split>()
}

/// The most of what would do with less than `asked`, by a grain that is worth naming.
fn most(asked: usize, mut fits: impl FnMut(usize) -> Result<bool>) -> Result<Option<usize>> {
    let grain = (asked / 64).max(1).next_power_of_two().min(256);
    let (mut enough, mut above) = (0, asked.saturating_sub(1) / grain + 1);
    while above - enough > 1 {
        let some = enough + (above - enough) / 2;
        if fits(some * grain)? { enough = some } else { above = some }
    }
    Ok((enough > 0).then_some(enough * grain))
}

fn hold(free: &Free, taken: impl Iterator<Item = u64>) -> bool {
    free.iter().zip(taken).all(|(free, taken)| free.is_none_or(|free| taken <= free))
}

/// Of a model that could not be loaded: what it takes, of how much, and what would fit.
pub(crate) fn loading(
    path: &Path,
    options: &Options,
    backend: &Arc<dyn Backend>,
    free: &Free,
) -> Result<String> {
    let checkpoint = options.checkpoint(path)?;
    let there = options.clone().backend(Arc::clone(backend));
    let each = memory::of_layout(&checkpoint, &there)?;
    let whole = memory::sum(&each);
    let known = free.iter().flatten().copied().reduce(u64::saturating_add);
    let Some(known) = known.filter(|_| free.len() == each.len()) else {
        return Ok(format!("in all {whole}"));
    };
    let with_slack =
        |each: &[Memory]| each.iter().map(|m| m.total().saturating_add(SLACK)).collect::<Vec<_>>();
    if hold(free, with_slack(&each).into_iter()) {
        let left = of_each(&**backend, device::left);
        return Ok(format!(
            "in all {whole}, of {} MiB that were free{}",
            known >> 20,
            taken(each.iter().map(Memory::total), &left)
        ));
    }
    let gpus = || free.iter().zip(&each).filter_map(|(free, taken)| free.map(|free| (free, taken)));
    let short = gpus().map(|(free, taken)| taken.total().saturating_sub(free)).fold(0, u64::saturating_add);
    let mut text = format!("in all {whole}; {} MiB are free on the device", known >> 20);
    // None, where what is not counted would take the rest.
    if short > 0 {
        text += &format!(", {} too few", short.div_ceil(1 << 20));
    }
    let context = most(whole.context, |tokens| {
        let taken = memory::of_layout(&checkpoint, &there.clone().context(tokens))?;
        Ok(hold(free, with_slack(&taken).into_iter()))
    })?;
    // Who brings a backend has no use for the number of layers.
    let layers = Layers::of(&checkpoint, options);
    let now = match options.gpu_layers {
        Some(GpuLayers::Count(n)) => n.min(layers.count),
        _ => layers.count,
    };
    let fewer = if options.backend.is_some() || layers.count == 0 {
        None
    } else {
        let ons: Vec<On> =
            device::ons(&**backend).into_iter().zip(free).filter_map(|(on, free)| free.map(|_| on)).collect();
        layers.most(&gpus().map(|(free, _)| free).collect::<Vec<_>>(), &ons)?
    };
    let fewer = fewer.filter(|n| *n < now);
    text += &sentence(context, fewer.map(|n| (n, layers.count)));
    Ok(text)
}

/// The error with `what` was found of it, which is better than general advice where there were figures to go by.
pub(crate) fn tell(e: ModelError, what: &str, free: &Free) -> ModelError {
    if free.iter().any(Option::is_some) { e.advised(what) } else { e.within(what) }
}

/// Of what would fit in all that was free: where that is now, of which `left` can still be had.
fn taken(each: impl Iterator<Item = u64>, left: &Free) -> String {
    if hold(left, each) {
        return "; the driver did not give it: another program may have had it for a moment, or it lies in pieces"
            .into();
    }
    let left = left.iter().flatten().copied().fold(0, u64::saturating_add);
    format!("; {} MiB are left: another program has taken some meanwhile", left >> 20)
}

fn sentence(context: Option<usize>, layers: Option<(usize, usize)>) -> String {
    let context = context.map(|n| format!("a context of {n} tokens (--context {n})"));
    let layers = layers.map(|(n, all)| format!("{n} of {all} layers on the GPU (--gpu-layers {n})"));
    match (context, layers) {
        (Some(one), Some(other)) => format!("; {one} would fit, or {other}"),
        (Some(one), None) | (None, Some(one)) => format!("; {one} would fit"),
        (None, None) => "; no shorter context would fit".into(),
    }
}

/// Of a cache that could not be reserved, of a model that is loaded: how much would be held.
pub(crate) fn cache(backend: &dyn Backend, model: &dyn nn::Model, limits: &Limits) -> Result<String> {
    let free = free(backend);
    let all = limits.cache_tokens.unwrap_or(limits.context.saturating_mul(limits.sequences));
    let what = format!("a cache of {all} tokens");
    if free.iter().all(Option::is_none) {
        return Ok(what);
    }
    // What each part of the backend would reserve.
    let reserved = |tokens: usize| -> Result<Vec<u64>> {
        let mut fewer = limits.clone().cache_tokens(tokens);
        fewer.context = limits.context.min(tokens);
        let counters: Vec<_> =
            device::ons(backend).into_iter().map(|on| Arc::new(Estimate::of(on.sizes))).collect();
        let each = || counters.iter().map(|c| Arc::clone(c) as Arc<dyn Backend>);
        let spec = fewer.cache_spec(model.cache_layout())?;
        // Kept until it is counted.
        let _cache = match parts(backend) {
            Some(split) => Some(split.with_parts(each().collect())?.new_cache(&spec)?),
            None => each().next().map(|one| one.new_cache(&spec)).transpose()?,
        };
        Ok(counters.iter().map(|c| c.reserved_bytes()).collect())
    };
    // A pool cuts small pieces from large ones, and has less than it takes.
    let fits = |taken: &[u64]| hold(&free, taken.iter().map(|n| n.saturating_add(SLACK)));
    let whole = reserved(all)?;
    if fits(&whole) {
        return Ok(what + &taken(whole.into_iter(), &of_each(backend, device::left)));
    }
    let tokens = most(all, |tokens| Ok(fits(&reserved(tokens)?)))?;
    Ok(match tokens {
        Some(tokens) => {
            format!("{what}; one of {tokens} would fit (--context {tokens}), less what steps take")
        }
        None => format!("{what}; none would fit beside the weights"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_fits_is_found() {
        for (asked, limit, want) in [
            (40, 39, Some(39)),
            (40, 40, Some(39)),
            (40, 1, Some(1)),
            (40, 0, None),
            (4096, 1000, Some(960)),
            (131_072, 100_000, Some(99_840)),
            (131_072, 255, None),
            (1, 1, None),
            (0, 0, None),
        ] {
            let mut tries = 0;
            let found = most(asked, |n| {
                tries += 1;
                Ok(n <= limit)
            });
            assert_eq!(found.unwrap(), want, "{asked} {limit}");
            assert!(tries <= 10, "{asked}: {tries}");
        }
        assert!(most(40, |_| Err(crate::Error::EmptyPrompt)).is_err());
    }

    #[test]
    fn sentences() {
        let context = "; a context of 640 tokens (--context 640) would fit";
        let layers = "20 of 32 layers on the GPU (--gpu-layers 20)";
        assert_eq!(sentence(Some(640), None), context);
        assert_eq!(sentence(Some(640), Some((20, 32))), format!("{context}, or {layers}"));
        assert_eq!(sentence(None, Some((20, 32))), format!("; {layers} would fit"));
        assert_eq!(sentence(None, None), "; no shorter context would fit");
    }

    #[test]
    fn memory_that_was_there_is_not_the_models_fault() {
        let each = || [9 << 20; 2].into_iter();
        let gone = taken(each(), &vec![None, Some(3 << 20)]);
        assert_eq!(gone, "; 3 MiB are left: another program has taken some meanwhile");
        let kept = taken(each(), &vec![None, Some(9 << 20)]);
        assert!(kept.contains("the driver did not give it") && !kept.contains("context"), "{kept}");
    }

    #[test]
    fn parts_that_do_not_say_hold_all() {
        assert!(
            hold(&vec![None, Some(3)], [9, 3].into_iter()) && !hold(&vec![None, Some(3)], [0, 4].into_iter())
        );
    }
}
