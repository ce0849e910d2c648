//! `ogive inspect`: what is in a model file.
//!
//! A GGUF file is shown under its own names, and also where Ogive cannot run it: that is when one wants to look.

mod report;
mod show;

use crate::args::Context;
use crate::error::Result;
use crate::options::{Machine, ModelPath};
use crate::output;
use report::Report;
use std::path::PathBuf;

/// Arguments of `ogive inspect`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The same as --model MODEL
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    path: Option<PathBuf>,
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// Tokens of context to estimate the memory for [default: the model's, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Whole lists and texts in the metadata, however long
    #[arg(long)]
    full: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = match &args.path {
        Some(path) => path,
        None => args.model.get(context),
    };
    let options = args.machine.options_for(args.context)?;
    let report = Report::of(path, &options)?;
    if args.json {
        return output::line(show::json(&report, args.full));
    }
    output::write(show::text(&report, args.full).as_bytes())
}
