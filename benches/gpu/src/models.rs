//! Whole models: loading, prompts, tokens one by one, and where a step's time goes.
//!
//! Steps are run by themselves and not by an engine: a sequence of 32,000 tokens need not be read before the token after it is measured, as
//! an empty cache is as long to read as a full one. Each step is all that a drawn token takes: the plan up, the graph, the best
//! token back.

use crate::clock::Clock;
use crate::figure::Figure;
use crate::lab::Sequences;
use crate::report::Load;
use crate::trace::{Kernels, Marked};
use crate::work::{Work, chunks};
use crate::{Report, Result, Run};
use ogive::backend::{Backend, Batch, LayerCache, Plan, StepKey};
use ogive::cuda::{CudaBackend, measure::Mark};
use ogive::nn::{self, Step};
use ogive::tensor::{self, Tensor};
use ogive::{Model, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Models that are measured unless others are named.
pub(crate) const ALL: [&str; 6] = [
    "llama-3.2-1b:q4_k_m",
    "llama-3.1-8b:q4_k_m",
    "llama-3.2-1b:f16",
    "llama-3.1-8b:q8_0",
    "llama-3.1-8b:f16",
    "llama-3.2-1b:q8_0",
];

/// Those that are wanted first.
pub(crate) const QUICK: [&str; 3] = ["llama-3.1-8b:q4_k_m", "llama-3.2-1b:q4_k_m", "llama-3.2-1b:f16"];

pub(crate) fn layout(model: &Model) -> Vec<LayerCache> {
    // One group for all: no window gives pages back here.
    model.layers().cache_layout().into_iter().map(|layer| layer.in_group(0)).collect()
}

/// A step.
pub(crate) fn logits(model: &Model, b: &dyn Backend, plan: &Plan, all: &Sequences) -> tensor::Result<Tensor> {
    nn::prepare(b, &all.cache, plan)?;
    model.layers().logits(&Step::new(b, plan, &all.cache))
}

/// A step of decoding as programs run it: filled up as an engine has it, replayed, each row's best token at its end.
#[derive(Debug)]
pub(crate) struct Decode<'a> {
    cuda: &'a CudaBackend,
    model: &'a Model,
    all: Sequences,
    batch: Batch,
    key: StepKey,
}

impl<'a> Decode<'a> {
    /// A token after `past` of `count` sequences.
    pub(crate) fn new(run: &'a Run, model: &'a Model, count: usize, past: usize) -> Result<Self> {
        static KEYS: AtomicU64 = AtomicU64::new(1 << 50);
        let cuda = &*run.cuda;
        let all = Sequences::new(cuda, layout(model), count, past + 1)?;
        let batch = cuda.bucket(all.batch(1, past));
        let key = StepKey::of(KEYS.fetch_add(1, Relaxed), &batch).ok_or("a step that cannot be replayed")?;
        Ok(Self { cuda, model, all, batch, key: key.top_k(1) })
    }

    pub(crate) fn plan(&self) -> Result<Plan> {
        Ok(self.cuda.plan(self.batch.clone())?)
    }

    pub(crate) fn step(&self, plan: &Plan) -> Result<Tensor> {
        let b = self.cuda;
        Ok(b.replay(&self.key, plan, &mut |plan| b.top_k(logits(self.model, b, plan, &self.all)?, 1))?)
    }
}

pub(crate) fn measure(run: &Run, report: &mut Report) -> Result<()> {
    for name in run.names() {
        if !run.has_time() {
            report.note(format!("no time was left for {name}"));
        } else {
            let done = one(run, report, &name);
            report.noted(&name, done)?;
            report.keep()?;
        }
    }
    Ok(())
}

fn one(run: &Run, report: &mut Report, name: &str) -> Result<()> {
    let path = run.model(name)?;
    let (before, _) = run.cuda.memory_used();
    let begin = Instant::now();
    let backend: Arc<dyn Backend> = Arc::clone(&run.cuda) as _;
    let model = Options::new().backend(backend).open(&path)?;
    run.cuda.synchronize()?;
    let (seconds, bytes) = (begin.elapsed().as_secs_f64(), std::fs::metadata(&path)?.len());
    report.load(Load {
        model: name.into(),
        compute: run.compute.clone(),
        file_bytes: bytes,
        seconds,
        gigabytes_per_second: bytes as f64 / 1e9 / seconds,
        device_bytes: run.cuda.memory_used().0.saturating_sub(before),
    });
    let work = Work::of(&path)?;
    // A token of one sequence first, as it is what most people wait for, and where operators' time goes last.
    let (prompts, counts, contexts): (&[usize], &[usize], &[usize]) = match () {
        () if run.smoke => (&[20], &[1, 3], &[40]),
        () if run.quick => (&[512, 2048], &[1, 8, 64], &[512, 8192]),
        () => (&[512, 2048, 8192, 32_768], &[1, 2, 4, 8, 16, 64, 256], &[512, 2048, 8192, 32_768]),
    };
    let mut bench = Bench { run, report, name, model: &model, work };
    let steps = counts.iter().flat_map(|count| contexts.iter().map(|context| (*count, *context)));
    // Many long contexts take long to set up.
    let steps = steps.filter(|(count, context)| !run.quick || *count == 1 || *context <= 512);
    let what = |case: &str| format!("{name}, {}, {case}", run.compute);
    for (i, (count, context)) in steps.enumerate() {
        let done = bench.decode(count, context);
        bench.report.noted(&what(&format!("{count} × 1 after {}", context - 1)), done)?;
        for &tokens in prompts.iter().filter(|_| i == 0) {
            let done = bench.prompt(tokens);
            bench.report.noted(&what(&format!("{tokens} tokens")), done)?;
        }
    }
    if !run.quick {
        let done = bench.kernels();
        bench.report.noted(&what("by operator"), done)?;
    }
    run.cuda.drop_graphs();
    Ok(())
}

struct Bench<'a> {
    run: &'a Run,
    report: &'a mut Report,
    name: &'a str,
    model: &'a Model,
    work: Work,
}

impl Bench<'_> {
    fn sequences(&self, count: usize, context: usize) -> Result<Sequences> {
        Sequences::new(&self.run.cuda, layout(self.model), count, context)
    }

    /// Whether a cache of so many tokens fits, beside what steps need.
    fn fits(&self, tokens: usize) -> bool {
        let (used, _) = self.run.cuda.memory_used();
        let free = self.run.cuda.facts().memory.unwrap_or(0).saturating_sub(used);
        self.work.cache * (tokens as f64) < 0.85 * free as f64
    }

    fn prompt(&mut self, tokens: usize) -> Result<()> {
        if !self.run.has_time() || !self.fits(tokens) {
            self.report.note(format!("{}: no prompt of {tokens} tokens: no time or no memory", self.name));
            return Ok(());
        }
        let (all, b) = (self.sequences(1, tokens)?, &self.run.cuda);
        let [times, device] = Clock::new(self.run).unrecorded().whole(|| {
            let before = Mark::now(b)?;
            let mut last = None;
            for (rows, past) in chunks(tokens) {
                let plan = all.plan(b, rows, past)?;
                last = Some(logits(self.model, &**b, &plan, &all)?);
            }
            let after = Mark::now(b)?;
            last.map(|logits| b.argmax(&logits)).transpose()?;
            Ok([before, after])
        })?;
        let (name, case) =
            (format!("{}, {}, prefill", self.name, self.run.compute), format!("{tokens} tokens"));
        let mut figure = Figure::new(name, case, times, self.work.prompt(tokens)).tokens(tokens);
        figure.device = Some(device);
        self.report.add("models", figure);
        Ok(())
    }

    fn decode(&mut self, count: usize, context: usize) -> Result<()> {
        if !self.run.has_time() || !self.fits(count * context) {
            self.report.note(format!("{}: no {count} × {context} tokens: no time or no memory", self.name));
            return Ok(());
        }
        let (decode, b) = (Decode::new(self.run, self.model, count, context - 1)?, &self.run.cuda);
        let graphs = b.graphs();
        let [times, device] = Clock::new(self.run).whole(|| {
            let plan = decode.plan()?;
            // Behind the plan, as the host's work on that is none of the device's.
            let before = Mark::now(b)?;
            let found = decode.step(&plan)?;
            let after = Mark::now(b)?;
            b.argmax(&found)?;
            Ok([before, after])
        })?;
        let after = b.graphs();
        let work = self.work.decode(count, 1, context - 1);
        let case = format!("{count} × 1 after {}", context - 1);
        let mut figure =
            Figure::new(format!("{}, {}, decode", self.name, self.run.compute), case, times, work)
                .tokens(count);
        figure.graph = after.replayed - graphs.replayed > after.eager - graphs.eager;
        figure.device = Some(device);
        self.report.add("models", figure);
        Ok(())
    }

    /// Which operators a step's time goes to.
    fn kernels(&mut self) -> Result<()> {
        let b = &self.run.cuda;
        let busy = b.stretch(self.run.pick(1 << 30, 1 << 12))?;
        let (short, long) = self.run.pick((512, 2048), (8, 20));
        for (count, rows, past) in
            [(1, 1, short - 1), (self.run.pick(16, 2), 1, short - 1), (1, short, 0), (1, long, 0)]
        {
            let all = self.sequences(count, rows + past)?;
            let plan = all.plan(b, rows, past)?;
            let marked = Marked::new(b);
            let (operators, total) =
                marked.trace(self.run, &busy, &|b| logits(self.model, b, &plan, &all))?;
            let step = format!("{}, {count} × {rows} after {past} tokens", self.run.compute);
            self.report.kernels.push(Kernels { model: self.name.into(), step, operators, total });
        }
        Ok(())
    }
}
