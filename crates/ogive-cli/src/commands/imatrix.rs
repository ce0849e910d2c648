//! `ogive imatrix`: what a model's matrices are given on a text, for `ogive quantize --imatrix`.
//!
//! The file is written once all is read, and not every ten chunks as llama.cpp's is: what was collected of half a text packs worse than a
//! text that was cut short on purpose (`--chunks`), and nobody would see which it is.

use crate::args::Context;
use crate::error::{Error, Result, with_causes};
use crate::figures::Count;
use crate::options::{Machine, ModelPath, check_plain};
use crate::{files, output};
use ogive::Calibration;
use ogive_quantize::{Importance, Input, Squares};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Chunks have so many tokens where nothing else is said, as in llama.cpp.
const CHUNK: usize = 512;
/// Of fewer tokens the library takes none.
const LEAST: usize = 4;

/// Arguments of `ogive imatrix`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// The text to run through the model, of up to 1 GiB; `-` reads stdin. It should be like what the model will be asked
    #[arg(value_name = "FILE")]
    text: PathBuf,
    /// The file to write, in llama.cpp's GGUF form
    #[arg(short, long, value_name = "OUT", default_value = "imatrix.gguf")]
    out: PathBuf,
    /// Tokens of a chunk [default: 512, or what the model was made for if that is less]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
    /// Chunks to read at most [default: all]
    #[arg(long, value_name = "N")]
    chunks: Option<NonZeroUsize>,
    /// Looks at the head too, which mostly is packed better without
    #[arg(long)]
    process_output: bool,
    /// Replaces OUT if it is there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = args.model.get(context);
    if let Some(few @ 1..LEAST) = args.context {
        return Err(Error::Usage(format!("--context {few}: a chunk has at least {LEAST} tokens")));
    }
    check_plain(path, "looked at")?;
    if ogive::is_demo(&args.out) {
        let why = "this is the name of Ogive's own model; name a file";
        return Err(Error::failed(format_args!("writing {}: {why}", args.out.display())));
    }
    files::check(&args.out, path)?;
    files::check_new(&args.out, args.force)?;
    let (text, dataset) = read(args)?;
    // What it is called in a file is known before the work and not after it.
    let input = open(path)?;
    let model = args.machine.open(path, args.context, context)?;
    let size = args.context.unwrap_or_else(|| model.context().min(CHUNK));
    let mut calibration = Calibration::new(&model, size)?.head(args.process_output);
    let ids = calibration.encode(&text)?;
    drop(text);
    let windows = calibration.windows(&ids).map_err(|e| too_short(&e, ids.len()))?;
    let count = args.chunks.map_or(windows.len(), |n| n.get().min(windows.len()));
    context.note(format_args!("{} tokens; reading {count} chunks of {size}", ids.len()));
    let (start, patience) = (Instant::now(), context.interrupt.patience());
    for (i, window) in windows.take(count).enumerate() {
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

fn read(args: &Args) -> Result<(Vec<u8>, String)> {
    let (text, name) = if args.text.as_os_str() == "-" {
        (files::stdin()?, "stdin".to_owned())
    } else {
        let name = args.text.display().to_string();
        (files::read(&args.text, format_args!("reading {name}"))?, name)
    };
    if text.is_empty() {
        return Err(Error::failed(format_args!(
            "reading {name}: it is empty; give a text like what the model will be asked"
        )));
    }
    Ok((text, name))
}

/// What the library says, and the option that helps.
fn too_short(why: &ogive::Error, tokens: usize) -> Error {
    let help = if tokens < LEAST { String::new() } else { format!(", as with -c {tokens}") };
    Error::failed(format_args!("{}{help}", with_causes(why)))
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
