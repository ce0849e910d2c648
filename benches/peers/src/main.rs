//! Ogive beside other engines, on the same files in one run.
//!
//! Each engine has a process of its own, so that neither's threads, allocator or caches are in the other's way, and all of
//! them wait while one measures. They take turns, and the order is turned round each time. The rates at which the machine
//! reads memory and computes are the ceilings, and a shared machine's change by the minute, memory's within a second: the
//! second is measured in each repetition, the first before and after each turn, and where tokens come one by one a turn is a
//! few of them. Ratios are taken within a repetition and only then is their median: what slows both falls out.

// A program talks to its user.
#![allow(clippy::print_stdout, clippy::print_stderr)]
// The workspace that tests this knows of no other engines.
#![allow(unexpected_cfgs)]

mod contest;
mod engines;
mod file;
mod launch;
mod peer;
mod phase;
mod plot;
mod report;
mod trace;
mod worker;

use clap::Parser;
use engines::{Cache, ENGINES, Engine, Start};
use phase::{Asked, Several};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trace::Trace;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Measures Ogive and other engines on the same GGUF files.
#[derive(Debug, Parser)]
struct Args {
    /// GGUF files; with --plot those that --json wrote
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// Threads for each engine
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Tokens of the prompt that is read
    #[arg(short, long, default_value_t = 512)]
    prompt: usize,
    /// Tokens that are decoded, after a prompt of 8
    #[arg(short = 'n', long, default_value_t = 64)]
    tokens: usize,
    /// Tokens before those decoded at depth; 0 leaves that out
    #[arg(short, long, default_value_t = 2048)]
    depth: usize,
    /// Sequences decoded together, each number of a list for itself; 0 leaves that out
    #[arg(short, long, value_delimiter = ',', default_value = "8")]
    batch: Vec<usize>,
    /// What keys and values are kept in, each of a list for itself (candle always has single precision)
    #[arg(long, value_enum, value_delimiter = ',', default_value = "f16")]
    cache: Vec<Cache>,
    /// Starts of each engine, for the time to a first token and the most memory; 0 leaves that out
    #[arg(short, long, default_value_t = 3)]
    starts: usize,
    /// Repetitions that count, after one that does not; 0 measures starts alone
    #[arg(short, long, default_value_t = 7)]
    repetitions: usize,
    /// The engines to run; ogive-bf16 only runs where it is named [default: all others]
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Writes all figures to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Draws the figures of such files, as SVG, and measures nothing
    #[arg(long, value_name = "SVG")]
    plot: Option<PathBuf>,
    /// Runs one engine for the program itself
    #[arg(long, hide = true)]
    worker: Option<String>,
    /// Tokens of a sequence at most
    #[arg(long, hide = true)]
    context: Option<usize>,
    /// The engine's setting
    #[arg(long, hide = true, default_value = "")]
    setting: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let setting = args.setting.clone();
    let asked = Asked {
        decode: args.tokens,
        prefill: args.prompt,
        depth: args.depth,
        together: Several::of(&args.batch),
        caches: Several::of(&args.cache),
    };
    let context = args.context.unwrap_or_else(|| asked.context());
    let how = Start { threads: args.threads, setting, context, cache: asked.cache() };
    let done = match (&args.worker, args.models.first(), &args.plot) {
        (Some(engine), Some(model), _) => worker::run(engine, model, &how),
        (_, _, Some(out)) => draw(&args.models, out),
        _ => compare(&args, &how, &asked),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn draw(files: &[PathBuf], out: &Path) -> Result<()> {
    let read = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).map_err(|e| format!("reading {}: {e}", file.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{} is no JSON: {e}", file.display()))
    };
    let files = files.iter().map(read).collect::<Result<Vec<_>, String>>()?;
    std::fs::write(out, plot::svg(&files)?).map_err(|e| format!("writing {}: {e}", out.display()).into())
}

fn compare(args: &Args, how: &Start, asked: &Asked) -> Result<()> {
    let wanted = |e: &&Engine| match args.engines.is_empty() {
        true => e.usual,
        false => args.engines.iter().any(|name| name == e.name),
    };
    let engines: Vec<_> = ENGINES.iter().filter(wanted).collect();
    if engines.len() < args.engines.len().max(1) {
        let known: Vec<_> = ENGINES.iter().map(|e| e.name).collect();
        return Err(format!("an engine of {:?} is not known; known are {known:?}", args.engines).into());
    }
    let run = Trace::now(serde_json::json!({
        "threads": args.threads,
        "prompt": args.prompt,
        "tokens": args.tokens,
        "depth": args.depth,
        "batch": asked.together,
        "cache": asked.caches,
        "starts": args.starts,
        "repetitions": args.repetitions,
        "engines": engines.iter().map(|e| e.name).collect::<Vec<_>>(),
    }));
    let mut all = Vec::new();
    for model in &args.models {
        let launches = launch::measure(model, &engines, how, &asked.sizes(0), args.starts)?;
        let mut measured = contest::measure(model, &engines, how, asked, args.repetitions)?;
        measured.launches = launches;
        // After each model: a long run that ends early has shown something.
        println!("{}", measured.table());
        all.push(measured);
        if let Some(path) = &args.json {
            let json = report::json(&run, &all, how, asked);
            std::fs::write(path, json).map_err(|e| format!("writing {}: {e}", path.display()))?;
        }
    }
    if args.json.is_none() {
        println!("{}", report::json(&run, &all, how, asked));
    }
    Ok(())
}
