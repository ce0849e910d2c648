//! What else is on the machine, in the same sizes: PyTorch, transformers, llama.cpp.
//!
//! They are programs that are there or not: nothing is linked, and what is missing is a line in the report. Bytes and operations are what
//! the algorithm needs, for llama.cpp by the same counting as ours, so that all are held against the same ceilings.

use crate::figure::{Figure, Times};
use crate::work::Work;
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
    report.keep()?;
    for name in run.names() {
        if !run.has_time() {
            report.note(format!("no time was left for llama.cpp on {name}"));
            continue;
        }
        if let Err(e) = run.model(&name).and_then(|path| llama(run, report, &name, &path)) {
            report.note(format!("llama.cpp, {name}: {e}"));
            break;
        }
        report.keep()?;
    }
    Ok(())
}

fn torch(run: &Run, report: &mut Report) -> Result<()> {
    if !run.has_time() {
        return Err("no time was left".into());
    }
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
}

/// A program's standard output; the last line of its error where it fails.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    let error = String::from_utf8_lossy(&out.stderr);
    Err(error.lines().last().unwrap_or("it failed without a word").to_owned().into())
}

/// Prompts as ours are, then tokens after contexts as ours are: it measures every prompt after every context if it is told both at once.
fn llama(run: &Run, report: &mut Report, name: &str, model: &Path) -> Result<()> {
    let (prompts, tokens) = run.pick(("512,2048,8192,32768", "64"), ("16", "2"));
    let (depths, work) = (run.pick("512,2048,8192,32768", "8"), Work::of(model)?);
    for kind in [["-p", prompts, "-n", "0", "-d", "0"], ["-p", "0", "-n", tokens, "-d", depths]] {
        let mut command = Command::new(&run.llama_bench);
        command.arg("-m").arg(model).args(["-ngl", "99", "-fa", "1", "-o", "json", "-r", run.pick("3", "1")]);
        tests(report, name, &output(command.args(kind))?, &work)?;
    }
    if let Err(e) = batches(run, report, name, model, &work) {
        report.note(format!("llama.cpp, {name}, batches: {e}"));
    }
    Ok(())
}

/// Several sequences at a time, by the program beside llama-bench.
fn batches(run: &Run, report: &mut Report, name: &str, model: &Path, work: &Work) -> Result<()> {
    let mut command = Command::new(run.llama_bench.with_file_name("llama-batched-bench"));
    let (prompt, tokens, counts) = run.pick(("512", "32", "2,4,8,16,64,256"), ("8", "2", "2"));
    // A cache for the most of them.
    let context = run.pick("139264", "64");
    command.arg("-m").arg(model).args(["-ngl", "99", "-c", context, "-b", "2048"]);
    command.args(["-npp", prompt, "-ntg", tokens, "-npl", counts]);
    let out = output(&mut command)?;
    for ([prompt, tokens, count], seconds) in String::from_utf8_lossy(&out).lines().filter_map(batch) {
        let work = work.decode(count, tokens, prompt);
        let case = format!("{count} × {tokens} after {prompt} tokens");
        let figure = Figure::new(format!("llama.cpp {name}, decode"), case, times(vec![seconds]), work);
        report.add("peers", figure.tokens(tokens * count));
    }
    Ok(())
}

/// Tokens of a prompt, tokens after it and sequences, and the seconds that those tokens took, of a line of llama-batched-bench's table.
fn batch(line: &str) -> Option<([usize; 3], f64)> {
    let cells = line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|');
    let cells = cells.map(|cell| cell.trim().parse::<f64>().ok()).collect::<Option<Vec<_>>>()?;
    match cells[..] {
        // The context, and the prompts' seconds and speed, stand between.
        [prompt, tokens, count, _, _, _, seconds, ..] if tokens > 0.0 => {
            Some(([prompt, tokens, count].map(|n| n as usize), seconds))
        }
        _ => None,
    }
}

/// Adds what llama-bench says.
fn tests(report: &mut Report, name: &str, json: &[u8], work: &Work) -> Result<()> {
    for test in serde_json::from_slice::<Vec<Test>>(json)? {
        let (kind, tokens, work) = if test.n_prompt > 0 {
            ("prefill", test.n_prompt, work.prompt(test.n_prompt))
        } else {
            ("decode", test.n_gen, work.decode(1, test.n_gen, test.n_depth))
        };
        let figure = Figure::new(
            format!("llama.cpp {name}, {kind}"),
            format!("{tokens} after {} tokens", test.n_depth),
            times(test.samples_ns.iter().map(|ns| ns / 1e9).collect()),
            work,
        );
        report.add("peers", figure.tokens(tokens));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::batch;

    #[test]
    fn a_table_is_read_line_by_line() {
        let table = "main: n_kv_max = 2048\n|    PP |     TG |    B |\n|-------|--------|------|\n\
            |   512 |     32 |    4 |   2176 |    0.108 |  1186.64 |    3.079 |    41.57 |    3.187 |    80.32 |";
        let found: Vec<_> = table.lines().filter_map(batch).collect();
        assert_eq!(found, [([512, 32, 4], 3.079)]);
    }
}
