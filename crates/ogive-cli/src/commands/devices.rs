//! `ogive devices`: where models can run, and whether one fits there.

use crate::args::Context;
use crate::error::{Error, Result, one_line, with_causes};
use crate::figures::Bytes;
use crate::options::{Machine, check_plain, model_of_environment};
use crate::output;
use ogive::{Device, GpuLayers, Options};
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Arguments of `ogive devices`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Says of each device whether this model fits: its weights, the cache, what steps need [env: OGIVE_MODEL]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Tokens of context to count the cache for [default: the model's, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
    /// Sequences at a time to count the cache and steps for [default: 1]
    #[arg(short = 'b', long, value_name = "N")]
    sequences: Option<NonZeroUsize>,
    #[command(flatten)]
    machine: Machine,
    /// One JSON array instead of lines, with the libraries that each device needs
    #[arg(long)]
    json: bool,
}

/// What the model takes on a device, in a line and as JSON.
fn memory(path: &Path, options: &Options, layers: Option<GpuLayers>, device: Device) -> (String, Value) {
    let mut others = match options.estimate_parts(path) {
        Ok(parts) => parts,
        Err(e) => {
            let why = with_causes(&e);
            return (format!("memory is not known: {why}"), json!({ "error": why }));
        }
    };
    // The device's part comes last; before it is what the CPU keeps, if layers stay there.
    let is_left_out = device != Device::Cpu && layers == Some(GpuLayers::Count(0));
    let own = if is_left_out { None } else { others.pop() };
    let free = ogive::device_memory(device);
    let (mut line, mut entry) = (one_line(&format!("{}:", path.display())) + " ", json!({ "free": free }));
    match &own {
        Some(m) => {
            line.push_str(&m.to_string());
            entry = json!({
                "weights": m.weights, "cache": m.cache, "working": m.working, "graphs": m.graphs, "total": m.total(),
                "context": m.context, "sequences": m.sequences, "free": free, "fits": free.map(|free| m.fits(free)),
            });
        }
        None => line.push_str("nothing of it is here"),
    }
    others.iter().for_each(|other| line.push_str(&format!(", and on the CPU {other}")));
    if let (Some(m), Some(free)) = (&own, free) {
        // Layers that are shared out by what is free are counted as if all were here.
        let shared = device != Device::Cpu && layers == Some(GpuLayers::Auto);
        let or =
            if device == Device::Cpu { "smaller weights (`ogive quantize`)" } else { "--gpu-layers auto" };
        line.push_str(&match m.fits(free) {
            true => format!("; fits in {} free", Bytes(free)),
            false if shared => {
                format!("; of {} free: as many layers as fit, and the others on the CPU", Bytes(free))
            }
            false => format!(
                "; does not fit in {} free: use a smaller context or cache type, or {or}",
                Bytes(free)
            ),
        });
    }
    (line, entry)
}

/// What there is to know of the model on a device, but for its size: a line each, and in the JSON too.
fn notes(path: &Path, options: &Options, entry: &mut Value) -> Vec<String> {
    // Why there are none has been said with the memory.
    let notes = options.estimate_notes(path).unwrap_or_default();
    entry["notes"] = json!(notes);
    notes
}

/// That there is a model to count.
fn check(path: &Path, options: &Options) -> Result<()> {
    check_plain(path, "counted")?;
    options.checkpoint(path)?;
    Ok(())
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let mut model = args.model.clone().or_else(model_of_environment);
    if model.is_none() && (args.context.is_some() || args.sequences.is_some()) {
        let why =
            "--context and --sequences count what a model takes: name one with --model, or leave them out";
        return Err(Error::Usage(why.into()));
    }
    let sequences = args.sequences.map_or(1, NonZeroUsize::get);
    let options = args.machine.options_for(args.context)?.sequences(sequences);
    // What is no model is told once, and not as something that each device lacks.
    if let Some(path) = &model {
        match check(path, &options) {
            // Left in the environment it is no reason to list nothing.
            Err(Error::Failed(why)) if args.model.is_none() => {
                context.note(format_args!("the model that OGIVE_MODEL names is not counted: {why}"));
                model = None;
            }
            checked => checked?,
        }
    }
    let found = wanted(args.machine.device(), options.devices())?;
    // The CPU needs none of them.
    let libraries =
        if found.iter().all(|(d, _)| *d == Device::Cpu) { Vec::new() } else { ogive::libraries() };
    let devices = found.into_iter().map(|(device, about)| {
        let memory = model.as_ref().map(|path| {
            let options = options.clone().device(device);
            // Of the CPU what is asked of GPUs means nothing.
            let options = if device == Device::Cpu { options.gpu_layers(GpuLayers::Auto) } else { options };
            let (line, mut entry) = memory(path, &options, args.machine.gpu_layers(), device);
            let lines = std::iter::once(line).chain(notes(path, &options, &mut entry)).collect();
            (lines, entry)
        });
        (device, about, memory)
    });
    if args.json {
        // With the devices that want them, as the array is one of devices.
        let entry = |(device, about, memory): (Device, String, Option<(Vec<String>, Value)>)| {
            let libraries = if device == Device::Cpu { &[][..] } else { &libraries[..] };
            let mut entry = json!({ "device": device.to_string(), "about": about, "libraries": libraries });
            if let Some((_, memory)) = memory {
                entry["memory"] = memory;
            }
            entry
        };
        return output::line(json!(devices.map(entry).collect::<Vec<_>>()));
    }
    for (device, about, memory) in devices {
        output::line(format_args!("{:<8} {about}", device.to_string()))?;
        for line in memory.into_iter().flat_map(|(lines, _)| lines) {
            output::line(format_args!("{:<8} {line}", ""))?;
        }
    }
    libraries.into_iter().try_for_each(output::line)
}

/// Of the devices there are those that --device names; all, if it leaves that open.
fn wanted(named: Device, found: Vec<(Device, String)>) -> Result<Vec<(Device, String)>> {
    let named = match named {
        Device::Auto => return Ok(found),
        Device::Cudas(all) => all.iter().map(Device::Cuda).collect(),
        one => vec![one],
    };
    if let Some(none) = named.iter().find(|device| !found.iter().any(|(d, _)| d == *device)) {
        let all: Vec<String> = found.iter().map(|(device, _)| device.to_string()).collect();
        let all = all.join(", ");
        return Err(Error::failed(format_args!(
            "listing devices: --device names {none}, which is none of those there are: {all}"
        )));
    }
    Ok(found.into_iter().filter(|(device, _)| named.contains(device)).collect())
}
