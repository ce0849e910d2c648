//! Which GPUs a model gets, and the line that says so.
//!
//! Where the device is chosen, a model gets as few GPUs as hold it and not all there are: each one more is a crossing in every step, and
//! memory that others may want. They are opened one by one, in the driver's order, and no more of them than are needed: opening one takes
//! time and memory, and what it has free is not known before.

use crate::device::{self, Taken, describe, using};
use crate::engine::backend::Backend;
use crate::memory::On;
use crate::placement::{self, GpuLayers, Homes, Layers};
use crate::weights::Checkpoint;
use crate::{Error, Options, Result};
use std::sync::Arc;

/// A GPU that is open.
#[derive(Clone, Debug)]
struct Gpu {
    number: usize,
    backend: Arc<dyn Backend>,
    /// How it takes memory.
    on: On,
    /// Bytes it has for models.
    free: u64,
}

impl Gpu {
    /// Device `number`; the reason, where it cannot be used, in one clause.
    fn open(options: &Options, number: usize) -> Result<Self, String> {
        let backend = device::cuda(options, number)?;
        let (on, free) = (device::of_backend(&*backend), backend.facts().memory.unwrap_or(u64::MAX));
        Ok(Self { number, backend, on, free })
    }

    /// Whether all of the model fits in it, and what that takes.
    fn whole(&self, layers: &Layers<'_>) -> Result<(bool, String)> {
        let whole = layers.whole(&self.on)?;
        Ok((whole.fits(self.free), whole.to_string()))
    }
}

/// What they have free, and how they take memory.
fn rooms(gpus: &[Gpu]) -> (Vec<u64>, Vec<On>) {
    gpus.iter().map(|gpu| (gpu.free, gpu.on.clone())).unzip()
}

/// The most layers that they hold.
fn most(layers: &Layers<'_>, gpus: &[Gpu]) -> Result<usize> {
    let (free, ons) = rooms(gpus);
    let most = if layers.count == 0 { None } else { layers.most(&free, &ons)? };
    Ok(most.unwrap_or(0))
}

/// Why not all of the model is on one GPU.
fn too_large(layers: &Layers<'_>, gpus: &[Gpu]) -> Result<String> {
    let Some(first) = gpus.first() else { return Ok(String::new()) };
    let free: Vec<String> = gpus.iter().map(|gpu| (gpu.free >> 20).to_string()).collect();
    Ok(format!("; all of it takes {}, of {} MiB free", first.whole(layers)?.1, free.join(" + ")))
}

/// The devices of these numbers, for as much of the model as is wanted there: all of it, unless the options say otherwise. Who names a
/// device wants the model there, and hears if it does not fit.
pub(crate) fn named(options: &Options, checkpoint: &Checkpoint, numbers: &[usize]) -> Result<Taken> {
    let open = numbers.iter().map(|number| Gpu::open(options, *number)).collect::<Result<Vec<_>, _>>();
    let gpus = open.map_err(|why| Error::Device(format!("{} was asked for, but {why}", options.device)))?;
    let layers = Layers::of(checkpoint, options);
    let (count, why) = match (options.gpu_layers, &gpus[..]) {
        (None, _) => (layers.count, String::new()),
        (Some(GpuLayers::Count(n)), _) => (n.min(layers.count), String::new()),
        (Some(GpuLayers::Auto), [one]) if one.whole(&layers)?.0 => (layers.count, String::new()),
        (Some(GpuLayers::Auto), _) => (most(&layers, &gpus)?, too_large(&layers, &gpus)?),
    };
    place(options, &layers, gpus, count, &why)
}

/// As few GPUs as hold what is wanted of the model, in their order; if all together hold less, those that hold the most layers, and the CPU
/// for the others.
pub(crate) fn fewest(options: &Options, checkpoint: &Checkpoint) -> Result<Taken> {
    let layers = Layers::of(checkpoint, options);
    let wanted = match options.gpu_layers {
        Some(GpuLayers::Count(n)) => n.min(layers.count),
        _ => layers.count,
    };
    let (mut gpus, mut held, mut whole, mut left_out) = (Vec::new(), 0, false, Vec::new());
    let mut opened = Vec::new();
    for number in 0..device::cuda_count().max(1) {
        let gpu = match Gpu::open(options, number) {
            Ok(gpu) => gpu,
            Err(why) => {
                left_out.push((number, why));
                continue;
            }
        };
        if wanted == layers.count && gpu.whole(&layers)?.0 {
            (gpus, held, whole) = (vec![gpu], wanted, true);
            break;
        }
        opened.push(gpu.clone());
        let mut with = gpus.clone();
        with.push(gpu.clone());
        // By itself if that is better, and beside those before it only if that is better still.
        let sets = if gpus.is_empty() { vec![with] } else { vec![vec![gpu], with] };
        for set in sets {
            let more = if wanted == 0 { 0 } else { most(&layers, &set)? };
            if more > held || gpus.is_empty() {
                (gpus, held) = (set, more);
            }
        }
        if held >= wanted && layers.count > 0 {
            break;
        }
    }
    // One that was no help before may be beside a later one, which holds the head.
    for gpu in &opened {
        if held >= wanted || gpus.iter().any(|taken: &Gpu| taken.number == gpu.number) {
            continue;
        }
        let mut with = gpus.clone();
        with.insert(with.partition_point(|taken| taken.number < gpu.number), gpu.clone());
        let more = most(&layers, &with)?;
        if more > held {
            (gpus, held) = (with, more);
        }
    }
    if gpus.is_empty() {
        let why = left_out.into_iter().next().map_or_else(String::new, |(_, why)| why);
        if let Some(layers @ GpuLayers::Count(1..)) = options.gpu_layers {
            let why = format!("{layers} layers on a GPU were asked for, but {why}");
            return Err(Error::Device(format!("{why}; ask for none, or for as many as fit (auto)")));
        }
        let (cpu, line) = using(device::cpu(options)?);
        return Ok((cpu, format!("CUDA not used: {why}; {line}")));
    }
    if layers.count == 0 && !whole {
        let (cpu, line) = using(device::cpu(options)?);
        let why = "the model cannot be shared out, as no weight has a layer's number in its name";
        return Ok((cpu, format!("CUDA not used: {why}{}; {line}", too_large(&layers, &gpus)?)));
    }
    // Who says how many layers gets so many, or hears that they do not fit.
    let counted = matches!(options.gpu_layers, Some(GpuLayers::Count(_)));
    let count = if counted { wanted } else { held };
    let as_wanted = gpus.len() == 1 && (counted || held == wanted);
    // Where none helps, what none of them has is told.
    let told = if held == 0 { &opened } else { &gpus };
    let mut why = if as_wanted { String::new() } else { too_large(&layers, told)? };
    for (number, reason) in left_out {
        why += &format!("; cuda:{number} left out: {reason}");
    }
    place(options, &layers, gpus, count, &why)
}

/// Shares a model's layers out: the last `count` over these GPUs, the others to the CPU.
fn place(options: &Options, layers: &Layers<'_>, gpus: Vec<Gpu>, count: usize, why: &str) -> Result<Taken> {
    if count == 0 && layers.count > 0 {
        let (cpu, line) = using(device::cpu(options)?);
        let reason = if options.gpu_layers == Some(GpuLayers::Count(0)) {
            "no layers on the GPU were asked for"
        } else {
            "not one layer fits"
        };
        return Ok((cpu, format!("CUDA not used: {reason}{why}; {line}")));
    }
    if let ([one], true) = (&gpus[..], count == layers.count) {
        let (gpu, line) = using(Arc::clone(&one.backend));
        return Ok((gpu, format!("{line}{why}")));
    }
    if layers.count == 0 {
        return Err(placement::no_layers());
    }
    let (free, ons) = rooms(&gpus);
    let homes = layers.homes(count, &free, &ons)?;
    let cpu = if homes.cpu { Some(device::cpu(options)?) } else { None };
    let line = format!("using {}{why}", shares(cpu.as_deref(), &gpus, &homes));
    let parts = cpu.into_iter().chain(gpus.into_iter().map(|gpu| gpu.backend)).collect();
    Ok((Arc::new(layers.split(parts, &homes)?), line))
}

/// Who has which layers. What a step ends on is named first, and GPUs of one kind once.
fn shares(cpu: Option<&dyn Backend>, gpus: &[Gpu], homes: &Homes) -> String {
    let first = usize::from(cpu.is_some());
    let about: Vec<String> = gpus.iter().map(|gpu| describe(&*gpu.backend)).collect();
    let mut each = Vec::new();
    match &about[..] {
        [kind, _, ..] if about.iter().all(|other| other == kind) => {
            let own = gpus.iter().enumerate().rev();
            let own: Vec<String> = own
                .map(|(i, gpu)| format!("cuda:{} for {}", gpu.number, homes.describe(first + i)))
                .collect();
            let kind = kind.strip_prefix("CUDA: ").unwrap_or(kind);
            each.push(format!("CUDA: {} × {kind}: {}", gpus.len(), own.join(", ")));
        }
        _ => each.extend(
            about.iter().enumerate().rev().map(|(i, b)| format!("{b} for {}", homes.describe(first + i))),
        ),
    }
    each.extend(cpu.map(|cpu| format!("{} for {}", describe(cpu), homes.describe(0))));
    each.join("; ")
}
