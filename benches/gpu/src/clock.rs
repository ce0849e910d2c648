//! How long the device takes: marks around what is measured, warm-up first, then runs until they are enough.
//!
//! Operators are timed as a CUDA graph of several calls, as a decoded token runs them. Called one by one, a kernel of microseconds
//! waits for its launch, and the launch would be what is measured. Where a call cannot be recorded the report says so.

use crate::figure::Times;
use crate::{Result, Run};
use ogive::backend::{Backend, Batch, BlockTable, Plan, StepKey};
use ogive::cuda::{CudaBackend, measure::Mark};
use ogive::tensor;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock<'a> {
    cuda: &'a CudaBackend,
    warmups: usize,
    least: usize,
    runs: usize,
    patience: Duration,
}

/// A run that takes this long does not notice how long its launch takes.
const LONG: Duration = Duration::from_millis(5);

impl<'a> Clock<'a> {
    pub(crate) fn new(run: &'a Run) -> Self {
        let (warmups, runs) = run.pick((3, 30), (2, 2));
        Self { cuda: &run.cuda, warmups, least: 2, runs, patience: Duration::from_millis(run.pick(250, 20)) }
    }

    /// For what is never recorded: one run warms it up where that takes long.
    pub(crate) fn unrecorded(self) -> Self {
        Self { least: 1, ..self }
    }

    /// Runs of `f` after the warm-up: three at least, and no more once patience ends. What takes seconds is run once, warmed up by two
    /// runs: the first loads its kernels, the second records it.
    fn collect(&self, mut f: impl FnMut() -> Result<Duration>) -> Result<Vec<Duration>> {
        let begin = Instant::now();
        for done in 0..self.warmups {
            if done >= self.least && begin.elapsed() > 4 * self.patience {
                break;
            }
            f()?;
        }
        let (mut all, begin) = (Vec::with_capacity(self.runs), Instant::now());
        while all.len() < self.runs {
            let least = if begin.elapsed() < 8 * self.patience { 3 } else { 1 };
            if all.len() >= least && begin.elapsed() > self.patience {
                break;
            }
            all.push(f()?);
        }
        Ok(all)
    }

    /// The device's time for `f`, which queues something `calls` times. It drops what it gets of a graph: what is held is
    /// copied from then on.
    pub(crate) fn device(&self, calls: usize, mut f: impl FnMut() -> Result<()>) -> Result<Times> {
        let mut last = Duration::ZERO;
        let runs = self.collect(|| {
            // Keeps the device busy while the host queues what is timed: an idle one would reach the first mark at once, and wait behind it.
            if last < LONG {
                f()?;
            }
            let before = Mark::now(self.cuda)?;
            f()?;
            last = Mark::now(self.cuda)?.since(&before)?;
            Ok(last)
        })?;
        Ok(Times::of(&runs, calls))
    }

    /// A clock's time and the device's for `f`, which gives the marks that it made around its own work and waits for its end.
    pub(crate) fn whole(&self, mut f: impl FnMut() -> Result<[Mark; 2]>) -> Result<[Times; 2]> {
        let mut device = Vec::new();
        let runs = self.collect(|| {
            let begin = Instant::now();
            let [before, after] = f()?;
            let time = begin.elapsed();
            device.push(after.since(&before)?);
            Ok(time)
        })?;
        let kept = device.len().saturating_sub(runs.len());
        Ok([Times::of(&runs, 1), Times::of(device.get(kept..).unwrap_or_default(), 1)])
    }

    /// The device's time for a call of `f`, of `calls` in a graph; whether it could be one. `f` is given the call's number. A graph has
    /// a result that nobody else holds: a small one is made behind the calls, so that these may work in place. `plan` is what
    /// `f` uses, if it uses any: what is checked of it is checked again for each run.
    pub(crate) fn recorded(
        &self,
        calls: usize,
        plan: Option<&Plan>,
        f: &mut dyn FnMut(usize) -> tensor::Result<()>,
    ) -> Result<(Times, bool)> {
        static KEYS: AtomicU64 = AtomicU64::new(1 << 40);
        let calls = calls.max(1);
        let mut batch = Batch::default();
        batch.push(&[0], 0, vec![BlockTable::default()], [0, 1]);
        let key = StepKey::of(KEYS.fetch_add(1, Relaxed), &batch).ok_or("a step that cannot be replayed")?;
        let plan = plan.map_or_else(|| self.cuda.plan(batch), |plan| Ok(plan.clone()))?;
        let one = self.cuda.upload(&[1.0], [1, 1].into())?;
        let mut step = |_: &_| {
            (0..calls).try_for_each(&mut *f)?;
            self.cuda.sum(&one)
        };
        let before = self.cuda.graphs();
        let times = self.device(calls, || {
            self.cuda.replay(&key, &plan, &mut step)?;
            Ok(())
        })?;
        let after = self.cuda.graphs();
        Ok((times, after.replayed - before.replayed > after.eager - before.eager))
    }
}
