//! Where a step's time goes: a mark before and after every operator, on the device's own clock.
//!
//! A wrapper around the backend rather than a profiler, so that it works where none does. The step is queued behind copies that keep the
//! device busy meanwhile: then a mark waits for the kernels before it and not for the host, and what lies between two marks is
//! kernels alone. A mark itself costs the device about a microsecond, which is in the figures: they are for comparing.

use crate::Run;
use crate::report::short;
use ogive::backend::{self, Backend, Batch, Plan, StepKey};
use ogive::cuda::CudaBackend;
use ogive::cuda::measure::{Mark, Stretch};
use ogive::tensor::{Error, Result, Tensor};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Operators of a step by their time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kernels {
    pub(crate) model: String,
    pub(crate) step: String,
    /// Slowest first.
    pub(crate) operators: Vec<Share>,
    /// Seconds of all of them.
    pub(crate) total: f64,
}

/// An operator's part of a step.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Share {
    pub(crate) operator: &'static str,
    pub(crate) calls: usize,
    pub(crate) seconds: f64,
}

impl Kernels {
    pub(crate) fn text(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## {}, {}: {} in operators\n", self.model, self.step, short(self.total))?;
        writeln!(out, "| operator | calls | time | of the step |\n|---|---:|---:|---:|")?;
        for s in &self.operators {
            let part = if self.total > 0.0 { 100.0 * s.seconds / self.total } else { 0.0 };
            writeln!(out, "| `{}` | {} | {} | {part:.1} % |", s.operator, s.calls, short(s.seconds))?;
        }
        Ok(())
    }
}

/// The backend with marks around what it does.
#[derive(Debug)]
pub(crate) struct Marked {
    cuda: Arc<CudaBackend>,
    log: Mutex<Vec<(&'static str, Mark, Mark)>>,
}

/// An error of the crate's own as the backend's.
fn shared(e: ogive::cuda::Error) -> Error {
    e.into()
}

impl Marked {
    pub(crate) fn new(cuda: &Arc<CudaBackend>) -> Self {
        Self { cuda: Arc::clone(cuda), log: Mutex::default() }
    }

    fn around<T>(&self, name: &'static str, f: impl FnOnce(&CudaBackend) -> Result<T>) -> Result<T> {
        let before = Mark::now(&self.cuda).map_err(shared)?;
        let result = f(&self.cuda)?;
        let after = Mark::now(&self.cuda).map_err(shared)?;
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push((name, before, after));
        Ok(result)
    }

    /// What `step` does, behind some milliseconds of copies. It must not wait for the device itself.
    pub(crate) fn trace(
        &self,
        run: &Run,
        busy: &Stretch<'_>,
        step: &dyn Fn(&dyn Backend) -> Result<Tensor>,
    ) -> Result<(Vec<Share>, f64)> {
        // Kernels are compiled and loaded, constants sent.
        step(self)?;
        self.cuda.synchronize().map_err(shared)?;
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for _ in 0..run.pick(30, 1) {
            busy.copy().map_err(shared)?;
        }
        let result = step(self)?;
        self.cuda.synchronize().map_err(shared)?;
        drop(result);
        let mut all: BTreeMap<&'static str, Share> = BTreeMap::new();
        for (operator, before, after) in self.log.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let share = all.entry(operator).or_insert(Share { operator, calls: 0, seconds: 0.0 });
            share.calls += 1;
            share.seconds += after.since(&before).map_err(shared)?.as_secs_f64();
        }
        let mut all: Vec<Share> = all.into_values().collect();
        all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let total = all.iter().map(|s| s.seconds).sum();
        Ok((all, total))
    }
}

impl Backend for Marked {
    backend::forward_required!();
    backend::forward_provided!();

    fn replay(&self, _: &StepKey, plan: &Plan, f: &mut dyn FnMut(&Plan) -> Result<Tensor>) -> Result<Tensor> {
        // Marks are queued one by one, which no record can have.
        f(plan)
    }
    fn bucket(&self, batch: Batch) -> Batch {
        self.cuda.bucket(batch)
    }
}
