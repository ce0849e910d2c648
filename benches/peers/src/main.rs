//! Ogive beside other engines, on the same files in one run.
//!
//! Each engine has a process of its own, so that neither's threads, allocator or caches are in the other's way, and all of
//! them wait while one measures. They take turns, and the order is turned round each time; the rate at which the machine
//! reads memory is measured beside each repetition, for decoding is bound by it and a shared machine's changes by the minute.
//! Ratios are taken within a repetition and only then is their median: what slows both falls out.

mod bandwidth;
mod engines;
mod peer;
mod report;
mod worker;

use clap::Parser;
use engines::ENGINES;
use peer::Peer;
use report::{Measured, Repetition};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Measures Ogive and other engines on the same GGUF files.
#[derive(Debug, Parser)]
struct Args {
    /// GGUF files
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
    /// Repetitions that count, after one that does not
    #[arg(short, long, default_value_t = 7)]
    repetitions: usize,
    /// The engines to run [default: all]
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Writes all figures to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Runs one engine for the program itself
    #[arg(long, hide = true)]
    worker: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match (&args.worker, args.models.first()) {
        (Some(engine), Some(model)) => worker::run(engine, model, &args),
        _ => compare(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.engines.is_empty() || args.engines.iter().any(|e| e == name);
    let engines: Vec<_> = ENGINES.iter().filter(|e| wanted(e.name)).collect();
    if engines.len() < args.engines.len().max(1) {
        let known: Vec<_> = ENGINES.iter().map(|e| e.name).collect();
        return Err(format!("an engine of {:?} is not known; known are {known:?}", args.engines).into());
    }
    let mut all = Vec::new();
    for model in &args.models {
        all.push(measure(model, &engines, args)?);
        // After each model: a long run that ends early has shown something.
        println!("{}", all.last().map(Measured::table).unwrap_or_default());
    }
    let json = report::json(&all, args.threads, args.prompt, args.tokens);
    match &args.json {
        Some(path) => std::fs::write(path, json).map_err(|e| format!("writing {}: {e}", path.display()))?,
        None => println!("{json}"),
    }
    Ok(())
}

fn measure(model: &Path, engines: &[&engines::Engine], args: &Args) -> Result<Measured> {
    let mut peers =
        engines.iter().map(|e| Peer::start(e.name, model, args.threads)).collect::<Result<Vec<_>>>()?;
    let mut repetitions = Vec::new();
    let mut memory = bandwidth::Memory::new(args.threads);
    for i in 0..=args.repetitions {
        let mut now = Repetition { bandwidth: memory.read_rate(), ..Repetition::default() };
        now.prefill.resize(peers.len(), 0.0);
        now.decode.resize(peers.len(), 0.0);
        now.first.resize(peers.len(), 0);
        let mut order: Vec<usize> = (0..peers.len()).collect();
        if i % 2 == 1 {
            order.reverse();
        }
        for &p in &order {
            let (seconds, first) = peers[p].decode(args.tokens)?;
            now.decode[p] = args.tokens as f64 / seconds;
            now.first[p] = first;
        }
        for &p in &order {
            now.prefill[p] = args.prompt as f64 / peers[p].prefill(args.prompt)?.0;
        }
        now.load = report::load();
        eprintln!("{} {i}/{}: {now:.1?}", model.display(), args.repetitions);
        // The first pays for page faults and packing at first use.
        if i > 0 {
            repetitions.push(now);
        }
    }
    Ok(Measured {
        model: model.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        bytes: std::fs::metadata(model)?.len(),
        engines: peers.iter().map(|p| p.about.clone()).collect(),
        repetitions,
    })
}
