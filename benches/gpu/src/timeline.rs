//! Which kernels a step's time goes to, by the times that they note themselves, and what lies between them.
//!
//! Beside `trace.rs`, which marks operators: there a mark stands between kernels, and a graph cannot have one. Here the step is what a
//! program runs, graph and all, but for the noting itself: of some runs the one of median length is shown. On a backend of its own,
//! so that nothing else is measured with kernels that note anything.

use crate::lab::Sequences;
use crate::models::{Decode, layout, logits};
use crate::report::short;
use crate::{Report, Result, Run};
use ogive::backend::Backend;
use ogive::cuda::measure::{KernelTime, Timeline};
use ogive::tensor::Tensor;
use ogive::{Model, Options};
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;

/// A step's kernels.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Traced {
    model: String,
    step: String,
    /// Whether it ran as a graph.
    graph: bool,
    /// From the first kernel's start to the last one's end.
    seconds: f64,
    /// In which none ran.
    gap_seconds: f64,
    /// The clock's own steps.
    tick_seconds: f64,
    launches: usize,
    /// Launches of which nothing is known.
    missed: u64,
    /// The longest first.
    kernels: Vec<Row>,
}

/// A kernel's part of a step. Seconds and gaps of all sum to the step's.
#[derive(Clone, Debug, Serialize)]
struct Row {
    kernel: &'static str,
    defines: String,
    calls: usize,
    seconds: f64,
    /// In which it ran beside one that began before.
    overlap_seconds: f64,
    /// Just before it, in which none ran.
    gap_seconds: f64,
}

impl Row {
    fn of(k: KernelTime) -> Self {
        Self {
            kernel: k.kernel,
            calls: k.calls,
            seconds: k.time.as_secs_f64(),
            overlap_seconds: k.overlap.as_secs_f64(),
            gap_seconds: k.gap.as_secs_f64(),
            defines: k.defines,
        }
    }
}

impl Traced {
    fn of(model: &str, step: String, graph: bool, timeline: &Timeline) -> Self {
        let kernels: Vec<Row> = timeline.kernels().into_iter().map(Row::of).collect();
        Self {
            model: model.into(),
            step,
            graph,
            seconds: timeline.whole().as_secs_f64(),
            gap_seconds: kernels.iter().map(|k| k.gap_seconds).sum(),
            tick_seconds: timeline.tick.as_secs_f64(),
            launches: timeline.launches.len(),
            missed: timeline.missed,
            kernels,
        }
    }

    pub(crate) fn text(&self, out: &mut String) -> std::fmt::Result {
        let graph = if self.graph { ", a graph" } else { "" };
        let [all, gaps, tick] = [self.seconds, self.gap_seconds, self.tick_seconds].map(short);
        writeln!(out, "\n## {}, {}, kernel by kernel\n", self.model, self.step)?;
        let missed =
            if self.missed > 0 { format!(" ({} were not noted)", self.missed) } else { String::new() };
        let launches = self.launches;
        writeln!(
            out,
            "{launches} launches{missed}{graph}: {all}, of which {gaps} between them; the clock's steps are {tick}.\n"
        )?;
        writeln!(out, "| kernel | defines | calls | time | of the step | overlap | gaps before |")?;
        writeln!(out, "|---|---|---:|---:|---:|---:|---:|")?;
        for k in &self.kernels {
            let part = if self.seconds > 0.0 { 100.0 * k.seconds / self.seconds } else { 0.0 };
            let [time, overlap, gap] = [k.seconds, k.overlap_seconds, k.gap_seconds].map(short);
            let Row { kernel, defines, calls, .. } = k;
            writeln!(out, "| `{kernel}` | {defines} | {calls} | {time} | {part:.1} % | {overlap} | {gap} |")?;
        }
        Ok(())
    }
}

/// Steps of each model. `run` has a backend that traces.
pub(crate) fn measure(run: &Run, report: &mut Report) -> Result<()> {
    for name in run.names() {
        if !run.has_time() {
            report.note(format!("no time was left to trace {name}"));
        } else {
            let done = one(run, report, &name);
            report.noted(&format!("tracing {name}"), done)?;
            report.keep()?;
        }
    }
    Ok(())
}

fn one(run: &Run, report: &mut Report, name: &str) -> Result<()> {
    let backend: Arc<dyn Backend> = Arc::clone(&run.cuda) as _;
    let model = Options::new().backend(backend).open(run.model(name)?)?;
    let (short, long) = run.pick((512, 2048), (8, 20));
    for (count, rows, past) in
        [(1, 1, short - 1), (run.pick(16, 2), 1, short - 1), (1, short, 0), (1, long, 0)]
    {
        let title = format!("{}, {count} × {rows} after {past} tokens", run.compute);
        let done = step(run, &model, count, rows, past);
        if let Some((graph, timeline)) = report.noted(&format!("tracing {name}, {title}"), done)? {
            report.trace(Traced::of(name, title, graph, &timeline));
        }
    }
    run.cuda.drop_graphs();
    Ok(())
}

/// A step's timeline, of median length, and whether it was a graph.
fn step(run: &Run, model: &Model, count: usize, rows: usize, past: usize) -> Result<(bool, Timeline)> {
    let b = &run.cuda;
    // The steps that `models.rs` measures.
    let once: Box<dyn Fn() -> Result<Tensor>> = if rows == 1 {
        let decode = Decode::new(run, model, count, past)?;
        Box::new(move || decode.step(&decode.plan()?))
    } else {
        let all = Sequences::new(b, layout(model), count, rows + past)?;
        Box::new(move || Ok(logits(model, &**b, &all.plan(b, rows, past)?, &all)?))
    };
    // Run, recorded for both places that a plan may have, replayed.
    for _ in 0..run.pick(6, 4) {
        once()?;
        b.synchronize()?;
    }
    let (before, mut timelines) = (b.graphs(), Vec::new());
    for _ in 0..run.pick(9, 3) {
        timelines.push(b.trace(&once)?.1);
    }
    let after = b.graphs();
    timelines.sort_by_key(Timeline::whole);
    let middle = timelines.swap_remove(timelines.len() / 2);
    Ok((after.replayed - before.replayed > after.eager - before.eager, middle))
}
