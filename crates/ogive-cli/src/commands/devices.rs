//! `ogive devices`: where models can run, and whether one fits there.

use crate::error::{Result, with_causes};
use crate::figures::Bytes;
use crate::options::Machine;
use crate::output;
use ogive::{Device, Options};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `ogive devices`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Says of each device whether this model fits: its weights, a session's cache, what steps need
    #[arg(short, long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Tokens of context to count the cache for [default: the model's, up to 4096]
    #[arg(short, long, value_name = "N", requires = "model")]
    context: Option<usize>,
    #[command(flatten)]
    machine: Machine,
    /// One JSON array instead of lines, with the libraries that each device needs
    #[arg(long)]
    json: bool,
}

/// What the model takes on a device, in a line and as JSON.
fn memory(path: &std::path::Path, options: Options, device: Device) -> (String, Value) {
    let free = ogive::device_memory(device);
    match options
        .device(device)
        .estimate_parts(path)
        .map(|mut parts| (parts.pop().unwrap_or_default(), parts))
    {
        // The device's part comes last; before it is what the CPU keeps, if layers stay there.
        Ok((m, others)) => {
            let mut whole = format!("{}: {m}", path.display());
            others.iter().for_each(|other| whole.push_str(&format!(", and on the CPU {other}")));
            let line = match free {
                Some(free) if m.total() <= free => format!("{whole}; fits in {} free", Bytes(free)),
                Some(free) => format!(
                    "{whole}; does not fit in {} free: use a smaller context or cache type, or --gpu-layers auto",
                    Bytes(free)
                ),
                None => whole,
            };
            let json = json!({
                "weights": m.weights, "cache": m.cache, "working": m.working, "graphs": m.graphs, "total": m.total(),
                "context": m.context, "free": free, "fits": free.map(|free| m.total() <= free),
            });
            (line, json)
        }
        Err(e) => {
            let why = with_causes(&e);
            (format!("memory is not known: {why}"), json!({ "error": why }))
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let options = args.machine.options_for(args.context)?;
    // What is no model is told once, and not as something that each device lacks.
    args.model.as_ref().map_or(Ok(()), |path| options.checkpoint(path).map(|_| ()))?;
    let devices = ogive::devices().into_iter().map(|(device, about)| {
        let memory = args.model.as_ref().map(|path| memory(path, options.clone(), device));
        (device, about, memory)
    });
    if args.json {
        // With the devices that want them, as the array is one of devices.
        let libraries = ogive::libraries();
        let entry = |(device, about, memory): (Device, String, Option<(String, Value)>)| {
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
        if let Some((line, _)) = memory {
            output::line(format_args!("{:<8} {line}", ""))?;
        }
    }
    for line in ogive::libraries() {
        output::line(line)?;
    }
    Ok(())
}
