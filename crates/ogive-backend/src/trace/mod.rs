//! Times every call to a backend, and counts what each call had to do.
//!
//! Time is that of the call, not of the device: on a backend that queues its work only `download` waits. A provided operator counts
//! under its own name, and what it calls inside is not seen, but for those that the backend [says](crate::Facts::composed) it leaves to
//! their definitions. What a call had to do is counted from its operands, not measured: the same on every backend, and exact.

mod operators;
#[cfg(test)]
mod tests;
mod work;

pub use work::Work;

use crate::{Backend, Weight};
use ogive_tensor::{Format, Result};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What was called, how often, for how long and how much it had to do. Calls of one operator with weights of the same shapes and
/// formats are one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEntry {
    /// The method of [`Backend`].
    pub operator: &'static str,
    /// The weights it was called with: `[experts, out, in]`, and how they are packed.
    pub weights: Vec<([usize; 3], &'static Format)>,
    /// Number of calls.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Time inside the calls.
    pub time: Duration,
    /// What the calls that succeeded had to do.
    pub work: Work,
}

/// A backend that keeps count of what another is asked to do. Tensors, weights and caches stay the other's own, so a model that was
/// loaded without can be run with it; what is not asked through it costs nothing.
#[derive(Clone, Debug)]
pub struct Trace {
    inner: Arc<dyn Backend>,
    composed: &'static [&'static str],
    /// In the order of first calls. A model has some dozens.
    log: Arc<Mutex<Vec<TraceEntry>>>,
}

impl Trace {
    /// Traces what `inner` is asked to do.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        let composed = inner.facts().composed;
        Self { inner, composed, log: Arc::default() }
    }

    /// What has been called so far, in the order of first calls, and starts anew.
    pub fn take(&self) -> Vec<TraceEntry> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the definition runs, and its parts are seen.
    fn opens(&self, operator: &str) -> bool {
        self.composed.contains(&operator)
    }

    fn around<T>(
        &self,
        operator: &'static str,
        weights: &[&Weight],
        work: Work,
        f: impl FnOnce(&dyn Backend) -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        let result = f(&*self.inner);
        let time = start.elapsed();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = || weights.iter().map(|w| (w.shape(), w.format()));
        let same = |e: &TraceEntry| e.operator == operator && e.weights.iter().copied().eq(kinds());
        let at = log.iter().position(same).unwrap_or_else(|| {
            log.push(TraceEntry { operator, weights: kinds().collect(), ..TraceEntry::default() });
            log.len() - 1
        });
        if let Some(entry) = log.get_mut(at) {
            entry.calls += 1;
            entry.time += time;
            match &result {
                Ok(_) => entry.work += work,
                Err(_) => entry.failed += 1,
            }
        }
        drop(log);
        tracing::trace!(target: "ogive::backend", operator, ?time, ok = result.is_ok());
        result
    }
}
