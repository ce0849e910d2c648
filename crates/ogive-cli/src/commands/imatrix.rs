//! `ogive imatrix`: what a model's matrices are given on a text, for `ogive quantize --imatrix`.
//!
//! The file is written once all is read, and not every ten windows as llama.cpp's is: what was collected of half a text packs worse than a
//! text that was cut short on purpose (`--chunks`), and nobody would see which it is.

use crate::args::Context;
use crate::error::{Error, Result};
use crate::figures::Count;
use crate::options::{Machine, ModelPath, check_plain};
use crate::windows::Windows;
use crate::{files, output};
use ogive::Calibration;
use ogive_quantize::{Importance, Input, Squares};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `ogive imatrix`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    windows: Windows,
    /// The file to write, in llama.cpp's GGUF form
    #[arg(short, long, value_name = "OUT", default_value = "imatrix.gguf")]
    out: PathBuf,
    /// Looks at the head too, which mostly is packed better without
    #[arg(long)]
    process_output: bool,
    /// Replaces OUT if it is there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = args.model.get(context);
    args.windows.check()?;
    check_plain(path, "looked at")?;
    if ogive::is_demo(&args.out) {
        let why = "this is the name of Ogive's own model; name a file";
        return Err(Error::failed(format_args!("writing {}: {why}", args.out.display())));
    }
    files::check(&args.out, path)?;
    files::check_new(&args.out, args.force)?;
    let (text, dataset) = args.windows.text("a text like what the model will be asked")?;
    // What it is called in a file is known before the work and not after it.
    let input = open(path)?;
    let model = args.machine.open(path, args.windows.context, context)?;
    let size = args.windows.size(&model);
    let mut calibration = Calibration::new(&model, size)?.head(args.process_output);
    let ids = calibration.encode(&text)?;
    drop(text);
    let windows = args.windows.first(calibration.windows(&ids), ids.len(), "reading", context)?;
    let count = windows.len();
    let (start, patience) = (Instant::now(), context.interrupt.patience());
    for (i, window) in windows.into_iter().enumerate() {
        calibration.add(window)?;
        context.note(format_args!("[{}/{count}] {:.1} s", i + 1, start.elapsed().as_secs_f64()));
        if patience.over() {
            return Err(Error::Interrupted);
        }
    }
    let (mut all, without) = Importance::of_model(&input, &squares(&calibration)?)?;
    all.datasets = vec![dataset];
    all.chunks = u32::try_from(count).unwrap_or(u32::MAX);
    all.chunk_size = u32::try_from(size).unwrap_or(u32::MAX);
    all.save(&args.out)?;
    tell(&all, &without, context);
    output::line(format_args!(
        "{}: {} tensors, {} tokens in {:.1} s",
        args.out.display(),
        all.len(),
        Count((count * size) as u64),
        start.elapsed().as_secs_f64()
    ))
}

/// The model as what its file would be.
fn open(path: &Path) -> Result<Input> {
    Ok(match ogive::is_demo(path) {
        true => Input::from_gguf(ogive::open_gguf(path)?, path)?,
        false => Input::open(path)?,
    })
}

/// Sums in single precision, as files have them.
fn squares(calibration: &Calibration) -> Result<BTreeMap<String, Squares>> {
    let mut all = BTreeMap::new();
    for (name, found) in calibration.found() {
        let sums = found.sums.iter().map(|v| *v as f32).collect();
        let squares = Squares::new(sums, found.counts);
        let squares = squares.map_err(|why| Error::failed(format_args!("what {name} was given: {why}")))?;
        all.insert(name, squares);
    }
    Ok(all)
}

/// What is missing.
fn tell(all: &Importance, without: &[String], context: &Context) {
    let unmet: usize = all.iter().map(|(_, squares)| squares.unmet().0).sum();
    if unmet > 0 {
        let of: usize = all.iter().map(|(_, squares)| squares.unmet().1).sum();
        context.note(format_args!(
            "no token was sent to {unmet} of {of} matrices, which experts have: of these all columns will count alike; a longer text meets more"
        ));
    }
    // The head is left out on purpose, and rows of an embedding are looked up.
    let without: Vec<&str> =
        without.iter().map(String::as_str).filter(|name| name.starts_with("blk.")).collect();
    if let [first, ..] = without[..] {
        context.note(format_args!(
            "nothing of {} tensors, which are used in another form, {first} for one: they will be packed without importances",
            without.len()
        ));
    }
}
