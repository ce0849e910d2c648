//! A backend that counts, fails when told to, and pads steps and runs them
//! twice, as one that records them would.

use ogive_conformance::Oracle;
use ogive_nn::backend::*;
use ogive_nn::tensor::{Error, Result, Tensor};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) calls: BTreeMap<&'static str, usize>,
    pub(crate) keys: BTreeMap<String, usize>,
    /// Calls in their order.
    pub(crate) order: Vec<&'static str>,
    /// Calls that still succeed.
    pub(crate) fail_after: Option<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Recorder {
    inner: Oracle,
    log: Mutex<Log>,
    pub(crate) pad_to: usize,
}

impl Recorder {
    pub(crate) fn padding_to(pad_to: usize) -> Self {
        Self { pad_to, ..Self::default() }
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn around<T>(&self, name: &'static str, f: impl FnOnce(&Oracle) -> Result<T>) -> Result<T> {
        let mut log = self.log();
        *log.calls.entry(name).or_default() += 1;
        log.order.push(name);
        match log.fail_after.as_mut() {
            Some(0) => return Err(Error::unsupported(name, "told to fail")),
            Some(n) => *n -= 1,
            None => {}
        }
        drop(log);
        f(&self.inner)
    }
}

impl Backend for Recorder {
    ogive_nn::backend::forward_required!();

    fn replay(
        &self,
        key: &StepKey,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<Tensor> {
        *self.log().keys.entry(format!("{key:?}")).or_default() += 1;
        self.log().order.push("replay");
        f(plan)?;
        f(plan)
    }

    fn bucket(&self, mut batch: Batch) -> Batch {
        self.log().order.push("bucket");
        let to = self.pad_to.max(1);
        batch.pad(batch.tokens.len().next_multiple_of(to));
        // As a backend may that records steps for several numbers of sequences.
        if let Some(last) = batch.outputs.last().copied() {
            batch.outputs.resize(batch.outputs.len().next_multiple_of(to), last);
        }
        batch
    }
}
