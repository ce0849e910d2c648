//! What a GPU gives and what we make of it: ceilings, operators, models and other engines, in one run and one report.
//!
//! A program and no criterion bench: a GPU is lent for minutes, so everything comes from one start, in the order of what is missed
//! most. Each figure is said and, with `--figures`, written when it is measured, and the report anew after each model and each part: what was
//! measured is kept whatever ends the run.

// A program talks to its user.
#![allow(clippy::print_stderr)]

mod ceilings;
mod clock;
mod figure;
mod lab;
mod models;
mod operators;
mod peers;
mod report;
mod start;
mod timeline;
mod trace;
mod work;

use clap::Parser;
use ogive::cuda::{Activations, Compute, CudaBackend};
use report::Report;
use std::error::Error;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// What may be measured, in this order.
const PARTS: [&str; 5] = ["ceilings", "operators", "models", "start", "peers"];
/// What is measured with `--trace`, after `models`.
const TRACE: &str = "trace";

/// What products may be computed in; `auto` is what a program gets that does not choose; with `-int8`, up to 64 rows that meet packed weights are rounded to 8 bits; with `-each`,
/// no rows are grouped by expert; with `-ordered`, kernels begin when the one before is done; with `-persistent`, one row meets weights in blocks that stay.
const COMPUTE: [&str; 15] = [
    "auto",
    "auto-ordered",
    "auto-persistent",
    "f32",
    "f16",
    "bf16",
    "f16-own",
    "bf16-own",
    "f16-cublas",
    "bf16-cublas",
    "f32-int8",
    "f16-int8",
    "bf16-int8",
    "f32-each",
    "bf16-each",
];

/// Measures a GPU and Ogive on it.
#[derive(Debug, Parser)]
#[command(name = "ogive-gpu-bench", version)]
struct Args {
    /// Which device
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Where report.md and report.json go
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
    /// Where models of random weights are written and looked for; they take up to 16 GB each [default: a temporary folder]
    #[arg(long, value_name = "FOLDER")]
    work: Option<PathBuf>,
    /// Only these of ceilings, operators, models, start, peers; ceilings are always measured
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = PARTS)]
    only: Vec<String>,
    /// Only operators whose names contain one of these
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    filter: Vec<String>,
    /// Models, as SHAPE:FORMAT of `ogive synth` [default: Llama 3.2 1B and 3.1 8B in q4_k_m, q8_0 and f16]
    #[arg(long, value_name = "MODEL", value_delimiter = ',')]
    models: Vec<String>,
    /// Each figure, load and timeline is added to this file at once, as a line of JSON
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Begins nothing new after so many seconds; what was left out stands in the report
    #[arg(long, value_name = "SECONDS", default_value_t = 1500)]
    budget: u64,
    /// What products and prompts are computed in: f32, f16, bf16, or auto, as weights are kept and with few rows in integers, which is what
    /// `ogive` does; operators and models are measured with each. `bf16-own` leaves cuBLAS
    /// out, and `bf16-cublas` gives it all products of two rows and more, to see from how many rows on it pays; `bf16-int8` rounds few rows of
    /// activations to 8 bits; `bf16-each` groups no mixture's rows by expert; with `auto-ordered` kernels begin when the one before
    /// is done, and with `auto-persistent` one row meets weights in blocks that stay [default: auto and bf16; with --quick auto]
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = COMPUTE)]
    compute: Vec<String>,
    /// llama.cpp's bench [default: llama-bench, on the PATH]
    #[arg(long, value_name = "PROGRAM", default_value = "llama-bench")]
    llama_bench: PathBuf,
    /// A Python that may have PyTorch
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Traces steps of the models, too, kernel by kernel: each notes by the device's clock when it began and ended
    #[arg(long)]
    trace: bool,
    /// Three models, and of them a few prompts and steps: what is wanted first, in some two minutes
    #[arg(long)]
    quick: bool,
    /// Tiny sizes and few runs: whether everything runs, not how fast
    #[arg(long)]
    smoke: bool,
    /// Opens this model, computes a step, says in JSON how long it took, and ends: how the part `start` starts
    #[arg(long, value_name = "MODEL", hide = true)]
    first: Option<PathBuf>,
}

/// What every part is given.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) cuda: Arc<CudaBackend>,
    pub(crate) device: usize,
    /// What products are computed in.
    pub(crate) compute: String,
    /// Whether it was all measured in another way before, so that only what differs counts.
    pub(crate) again: bool,
    pub(crate) smoke: bool,
    pub(crate) quick: bool,
    pub(crate) filter: Vec<String>,
    pub(crate) models: Vec<String>,
    pub(crate) work: PathBuf,
    pub(crate) llama_bench: PathBuf,
    pub(crate) python: PathBuf,
    end: Instant,
}

impl Run {
    /// Whether something new may be begun.
    pub(crate) fn has_time(&self) -> bool {
        Instant::now() < self.end
    }

    /// The smaller one where only running counts.
    pub(crate) fn pick<T>(&self, real: T, smoke: T) -> T {
        if self.smoke { smoke } else { real }
    }

    /// Models to measure.
    pub(crate) fn names(&self) -> Vec<String> {
        match () {
            () if self.smoke => vec!["tiny:q4_k_m".to_owned()],
            () if !self.models.is_empty() => self.models.clone(),
            () if self.quick => models::QUICK.map(str::to_owned).to_vec(),
            () => models::ALL.map(str::to_owned).to_vec(),
        }
    }

    /// The file of a model of random weights, written if need be.
    pub(crate) fn model(&self, name: &str) -> Result<PathBuf> {
        let (shape, format) =
            name.split_once(':').ok_or("a model is SHAPE:FORMAT, as in llama-3.2-1b:q4_k_m")?;
        let path = self.work.join(format!("{shape}-{format}.gguf"));
        if !path.is_file() {
            eprintln!("writing {}", path.display());
            ogive_cli::write_synth(shape, format, 1, &path)?;
        }
        Ok(path)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.first {
        Some(model) => start::child(model, args.device),
        None => measure(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

/// A backend that computes products so.
fn backend(device: usize, compute: &str, trace: bool) -> Result<CudaBackend> {
    let (kind, by) = compute.split_once('-').unwrap_or((compute, ""));
    let compute = match kind {
        "f16" => Compute::F16,
        "bf16" => Compute::Bf16,
        "auto" => Compute::Auto,
        _ => Compute::F32,
    };
    let builder = CudaBackend::builder().device(device).compute(compute).trace(trace);
    let builder = match by {
        "own" => builder.cublas(false),
        "cublas" => builder.cublas_from(2),
        "int8" => builder.activations(Activations::Int8),
        "" if kind == "auto" => builder.activations(Activations::Int8),
        "persistent" => builder.activations(Activations::Int8).persistent(true),
        "ordered" => builder.activations(Activations::Int8).overlap(false),
        "each" => builder.grouped_from(usize::MAX),
        _ => builder,
    };
    Ok(builder.build()?)
}

/// Whether the device failed in the middle of a kernel: nothing can be measured after that.
pub(crate) fn is_lost(e: &(dyn Error + 'static)) -> bool {
    let of_model = e.downcast_ref().is_some_and(ogive::Error::is_device_lost);
    let of_backend = e.downcast_ref().is_some_and(ogive::tensor::Error::is_device_lost);
    of_model || of_backend || e.downcast_ref().is_some_and(ogive::cuda::Error::is_device_lost)
}

fn measure(args: &Args) -> Result<()> {
    let kinds: &[&str] = if args.quick { &["auto"] } else { &["auto", "bf16"] };
    let compute = match args.compute.as_slice() {
        [] => kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        named => named.to_vec(),
    };
    let temporary = tempfile::tempdir()?;
    let end = Instant::now() + Duration::from_secs(args.budget);
    // One at a time: a backend counts what is free when it is made.
    let make = |i: usize, compute: &String, trace: bool| {
        Ok::<_, Box<dyn Error>>(Run {
            cuda: Arc::new(backend(args.device, compute, trace)?),
            device: args.device,
            compute: compute.clone(),
            again: i > 0,
            smoke: args.smoke,
            quick: args.quick,
            filter: args.filter.clone(),
            models: args.models.clone(),
            work: args.work.clone().unwrap_or_else(|| temporary.path().to_owned()),
            llama_bench: args.llama_bench.clone(),
            python: args.python.clone(),
            end,
        })
    };
    std::fs::create_dir_all(&args.out)?;
    if let Some(work) = &args.work {
        std::fs::create_dir_all(work)?;
    }
    let first = compute.first().map_or("auto", String::as_str).to_owned();
    let figures = args.figures.as_ref().map(|path| OpenOptions::new().create(true).append(true).open(path));
    let mut report = Report::new(&make(0, &first, false)?, figures.transpose()?, &args.out);
    for part in
        PARTS.into_iter().flat_map(|part| if part == "models" { vec![part, TRACE] } else { vec![part] })
    {
        let wanted = match part {
            "ceilings" => true,
            TRACE => args.trace,
            _ => args.only.is_empty() || args.only.iter().any(|p| p == part),
        };
        if !wanted {
            continue;
        }
        for (i, compute) in compute.iter().enumerate() {
            if i > 0 && !matches!(part, "operators" | "models" | TRACE) {
                break;
            }
            eprintln!("{part} ({compute})");
            let since = Instant::now();
            let outcome = make(i, compute, part == TRACE).and_then(|run| match part {
                "ceilings" => ceilings::measure(&run, &mut report),
                "operators" => operators::measure(&run, &mut report),
                "models" => models::measure(&run, &mut report),
                TRACE => timeline::measure(&run, &mut report),
                "start" => start::measure(&run, &mut report),
                _ => peers::measure(&run, &mut report),
            });
            let lost = outcome.as_ref().is_err_and(|e| is_lost(&**e));
            if let Err(e) = outcome {
                report.note(format!("{part}, {compute}: {e}"));
            }
            report.seconds.push((format!("{part}, {compute}"), since.elapsed().as_secs_f64()));
            report.keep()?;
            if lost {
                return Err("the device was lost; nothing after that was measured".into());
            }
        }
    }
    eprintln!("{}", args.out.join("report.md").display());
    Ok(())
}
