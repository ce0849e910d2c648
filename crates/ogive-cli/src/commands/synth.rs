//! `ogive synth`: a model of random weights, to measure or to try things with.
//!
//! As by `ogive quantize`, an existing file is not replaced unless told so: it may be the only copy of a model.

use crate::args::Context;
use crate::error::{Error, Result, one_line};
use crate::figures::Bytes;
use crate::files;
use crate::options::{MEGABYTE, megabytes, progress};
use crate::synth::{self, Synth};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// Arguments of `ogive synth`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Whose sizes it has: `tiny` (for trying things), or a real model's such as stories-15m or llama-3.2-1b; a wrong name lists all
    #[arg(long, value_name = "SHAPE")]
    shape: String,
    /// How its weights are packed, as in q4_k_m, q8_0 or f16; a wrong name lists all
    #[arg(long, value_name = "FORMAT")]
    format: String,
    /// Other weights for another number; the same number gives the same file
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Replaces OUT if it is there
    #[arg(long)]
    force: bool,
    /// The GGUF file to write
    #[arg(value_name = "OUT")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let synth = Synth::new(&args.shape, &args.format, args.seed).map_err(|e| match e {
        synth::Error::Write(_) | synth::Error::Stopped => e.into(),
        name => Error::Usage(name.to_string()),
    })?;
    files::check_new(&args.out, args.force)?;
    let start = Instant::now();
    let patience = context.interrupt.patience();
    let bar = progress(context, "writing", 0, " MB");
    let result = synth.write(&args.out, |done, total| {
        megabytes(&bar, done, total);
        !patience.over()
    });
    bar.finish_and_clear();
    match result {
        Err(synth::Error::Stopped) => return Err(Error::Interrupted),
        other => other?,
    }
    let bytes = fs::metadata(&args.out)?.len();
    let seconds = start.elapsed().as_secs_f64();
    let rate = bytes as f64 / MEGABYTE as f64 / seconds;
    context.note(format_args!(
        "{}: {} of random weights in {seconds:.1} s ({rate:.0} MB/s)",
        one_line(&args.out.display().to_string()),
        Bytes(bytes)
    ));
    Ok(())
}
