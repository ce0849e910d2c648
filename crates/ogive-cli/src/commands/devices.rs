//! `ogive devices`: where models can run.

use crate::error::Result;
use crate::output;
use serde_json::json;

/// Arguments of `ogive devices`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// One JSON array instead of lines
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let devices = ogive::devices();
    if args.json {
        let list: Vec<_> =
            devices.iter().map(|(d, about)| json!({ "device": d.to_string(), "about": about })).collect();
        return output::line(json!(list));
    }
    for (device, about) in devices {
        output::line(format_args!("{:<8} {about}", device.to_string()))?;
    }
    for line in ogive::libraries() {
        output::line(line)?;
    }
    Ok(())
}
