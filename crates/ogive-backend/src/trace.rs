//! Times and counts every call to a backend.
//!
//! Time is that of the call, not of the device: on a backend that queues its work only `download` waits. A provided
//! operator that the inner backend does not override counts once, under its own name: what it calls inside is not seen.

use crate::{Backend, Batch, Plan, StepKey};
use ogive_tensor::{Result, Tensor};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How often an operator was called, and for how long altogether.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEntry {
    /// Number of calls.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Time inside the calls.
    pub time: Duration,
}

/// A backend that keeps count of what another is asked to do.
#[derive(Clone, Debug)]
pub struct Trace {
    inner: Arc<dyn Backend>,
    log: Arc<Mutex<BTreeMap<&'static str, TraceEntry>>>,
}

impl Trace {
    /// Traces what `inner` is asked to do.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner, log: Arc::default() }
    }

    /// What has been called so far, by operator, and starts anew.
    pub fn take(&self) -> BTreeMap<&'static str, TraceEntry> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn around<T>(&self, name: &'static str, f: impl FnOnce(&dyn Backend) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = f(&*self.inner);
        let time = start.elapsed();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = log.entry(name).or_default();
        entry.calls += 1;
        entry.failed += u64::from(result.is_err());
        entry.time += time;
        drop(log);
        tracing::trace!(target: "ogive::backend", operator = name, ?time, ok = result.is_ok());
        result
    }
}

impl Backend for Trace {
    crate::forward_required!();
    crate::forward_provided!();

    fn replay(
        &self,
        key: &StepKey,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<Tensor> {
        self.inner.replay(key, plan, f)
    }
    fn bucket(&self, batch: Batch) -> Batch {
        self.inner.bucket(batch)
    }
}
