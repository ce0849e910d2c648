//! What else is on the machine, in the same sizes: PyTorch, transformers, llama.cpp.
//!
//! They are programs that are there or not: nothing is linked, and what is missing is a line in the report. Bytes and operations are what
//! the algorithm needs, so that all are held against the same ceilings.

use crate::figure::{Figure, Times};
use crate::{Report, Result, Run};
use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Stdio};

/// Prints a line of JSON for each value.
const SCRIPT: &str = include_str!("torch_peer.py");

/// A line of the script.
#[derive(Debug, Deserialize)]
struct Line {
    name: String,
    case: String,
    /// Seconds of each run.
    seconds: Vec<f64>,
    bytes: f64,
    operations: f64,
    #[serde(default)]
    tokens: usize,
}

pub(crate) fn measure(run: &Run, report: &mut Report) -> Result<()> {
    if let Err(e) = torch(run, report) {
        report.note(format!("PyTorch: {e}"));
    }
    let names = if run.smoke { vec!["tiny:q4_k_m".to_owned()] } else { run.models.clone() };
    for name in names {
        if !run.has_time() {
            report.note(format!("no time was left for llama.cpp on {name}"));
            continue;
        }
        if let Err(e) = run.model(&name).and_then(|path| llama(run, report, &name, &path)) {
            report.note(format!("llama.cpp, {name}: {e}"));
            break;
        }
    }
    Ok(())
}

fn torch(run: &Run, report: &mut Report) -> Result<()> {
    let mut file = tempfile::NamedTempFile::with_suffix(".py")?;
    std::io::Write::write_all(&mut file, SCRIPT.as_bytes())?;
    let mut command = Command::new(&run.python);
    command.arg(file.path()).args(["--device", &format!("cuda:{}", run.device)]);
    if run.smoke {
        command.arg("--smoke");
    }
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", run.python.display()))?;
    let text = String::from_utf8_lossy(&out.stdout);
    for line in text.lines() {
        if let Some(note) = line.strip_prefix("note: ") {
            report.note(note.to_owned());
        } else if let Ok(line) = serde_json::from_str::<Line>(line) {
            let mut figure =
                Figure::new(line.name, line.case, times(line.seconds), [line.bytes, line.operations]);
            if line.tokens > 0 {
                figure = figure.tokens(line.tokens);
            }
            report.add("peers", figure);
        }
    }
    if out.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&out.stderr);
    Err(error.lines().last().unwrap_or("it failed without a word").to_owned().into())
}

fn times(mut seconds: Vec<f64>) -> Times {
    seconds.retain(|s| s.is_finite() && *s >= 0.0);
    let all: Vec<_> = seconds.into_iter().map(std::time::Duration::from_secs_f64).collect();
    Times::of(&all, 1)
}

/// What llama-bench says of a test.
#[derive(Debug, Deserialize)]
struct Test {
    n_prompt: usize,
    n_gen: usize,
    #[serde(default)]
    n_depth: usize,
    #[serde(default)]
    samples_ns: Vec<f64>,
    model_size: f64,
    model_n_params: f64,
}

fn llama(run: &Run, report: &mut Report, name: &str, model: &Path) -> Result<()> {
    let mut command = Command::new(&run.llama_bench);
    command.arg("-m").arg(model).args(["-ngl", "99", "-fa", "1", "-o", "json"]);
    let (prompts, tokens, depths) = run.pick(("512,2048", "64", "0,2048,8192,32768"), ("16", "2", "0"));
    command.args(["-p", prompts, "-n", tokens, "-d", depths, "-r", run.pick("3", "1")]);
    let out =
        command.stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", run.llama_bench.display()))?;
    if !out.status.success() {
        let error = String::from_utf8_lossy(&out.stderr);
        return Err(error.lines().last().unwrap_or("it failed without a word").to_owned().into());
    }
    tests(report, name, &out.stdout)
}

fn tests(report: &mut Report, name: &str, json: &[u8]) -> Result<()> {
    for test in serde_json::from_slice::<Vec<Test>>(json)? {
        let (kind, tokens) =
            if test.n_prompt > 0 { ("prefill", test.n_prompt) } else { ("decode", test.n_gen) };
        let steps = if test.n_prompt > 0 { 1 } else { tokens };
        let mut figure = Figure::new(
            format!("llama.cpp {name}, {kind}"),
            format!("{tokens} after {} tokens", test.n_depth),
            times(test.samples_ns.iter().map(|ns| ns / 1e9).collect()),
            [test.model_size * steps as f64, 2.0 * test.model_n_params * tokens as f64],
        );
        figure = figure.tokens(tokens);
        report.add("peers", figure);
    }
    Ok(())
}
