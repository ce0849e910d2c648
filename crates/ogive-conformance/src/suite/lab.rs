//! Where a case works: it says what to compute, and the lab computes it on the backend, on the backend without its
//! overrides and on the oracle, and compares.
//!
//! Cases hand over closures that build their inputs on whichever backend they are given. So all three see the same
//! numbers, and no tensor ever meets a backend that did not make it.

use super::limit::Limit;
use super::options::Options;
use super::random::Random;
use super::report::{Outcome, Status};
use crate::Oracle;
use ogive_backend::tensor::{ErrorKind, Format, Result, Shape, Tensor};
use ogive_backend::{Backend, forward_required};
use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The backend without its overrides, sharing its handles.
#[derive(Clone, Debug)]
struct Stripped(Arc<dyn Backend>);

impl Stripped {
    fn around<T>(&self, _: &'static str, f: impl FnOnce(&dyn Backend) -> Result<T>) -> Result<T> {
        f(&*self.0)
    }
}

impl Backend for Stripped {
    forward_required!();
}

/// Values and their shape, on the host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) shape: Shape,
    pub(crate) values: Vec<f32>,
}

/// What a case does on a backend.
pub(crate) type Work<'a> = &'a dyn Fn(&dyn Backend) -> Result<Vec<Tensor>>;

/// Failures that are spelt out; the rest are counted.
const SPELT: usize = 4;

/// A backend under test and what was found so far.
#[derive(Debug)]
pub(crate) struct Lab<'a> {
    subject: Arc<dyn Backend>,
    pub(crate) options: &'a Options,
    pub(crate) random: Random,
    exact_weights: bool,
    checks: usize,
    worst: f64,
    worst_at: String,
    failures: Vec<String>,
    skipped: Option<String>,
}

impl<'a> Lab<'a> {
    pub(crate) fn new(subject: &Arc<dyn Backend>, options: &'a Options, name: &str) -> Self {
        Self {
            subject: Arc::clone(subject),
            options,
            random: Random::new(options.seed, name),
            exact_weights: options.exact_weights.unwrap_or_else(|| subject.facts().exact),
            checks: 0,
            worst: 0.0,
            worst_at: String::new(),
            failures: Vec::new(),
            skipped: None,
        }
    }

    pub(crate) fn finish(self, name: &str, time: Duration) -> Outcome {
        let mut failures = self.failures;
        let more = failures.len().saturating_sub(SPELT);
        failures.truncate(SPELT);
        if more > 0 {
            failures.push(format!("and {more} more"));
        }
        let status = match self.skipped {
            _ if !failures.is_empty() => Status::Failed(failures),
            Some(why) => Status::Skipped(why),
            None if self.checks == 0 => Status::Skipped("the options leave nothing to check".into()),
            None => Status::Passed,
        };
        Outcome {
            name: name.into(),
            status,
            checks: self.checks,
            worst: self.worst,
            worst_at: self.worst_at,
            time,
        }
    }

    // ---- limits ----------------------------------------------------------

    /// Values that are moved and not computed.
    pub(crate) fn moved(&self) -> Limit {
        Limit::element(self.options.moved, 0.0)
    }
    /// Sums in single precision, of values whose size is about one.
    pub(crate) fn exact(&self) -> Limit {
        Limit::rms(self.options.exact).usually(0.3)
    }
    /// Functions of one number, whose error may be `floor` times the bound where they are near zero.
    pub(crate) fn each(&self, floor: f32) -> Limit {
        Limit::element(self.options.exact, floor)
    }
    /// Products of normal numbers with weights of `format`, whose size is usually about `size`.
    pub(crate) fn product(&self, format: &Format, size: f64) -> Limit {
        let limit = match format.name {
            _ if self.exact_weights => self.exact(),
            "f32" | "f16" => self.exact(),
            "bf16" => Limit::mean_square(self.options.bf16),
            _ => Limit::mean_square(self.options.int8),
        };
        limit.usually(size)
    }
    /// What a cache of `format` gives back of what was stored.
    pub(crate) fn stored(&self, format: &Format) -> Limit {
        if format.block_len == 1 { self.moved() } else { Limit::mean_square(self.options.int8) }
    }
    /// Attention over a cache of `format`.
    pub(crate) fn attended(&self, format: &Format) -> Limit {
        if format.block_len == 1 { self.exact() } else { Limit::mean_square(self.options.int8) }
    }

    // ---- running ---------------------------------------------------------

    /// The backend under test.
    pub(crate) fn subject(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.subject)
    }

    /// Runs `f`, taking a panic for a failure.
    pub(crate) fn guarded<T>(&mut self, what: &str, f: impl FnOnce() -> Result<T>) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(Ok(t)) => Some(t),
            Ok(Err(e)) => self.fail(format!("{what}: {e}")),
            Err(panic) => self.fail(format!("{what}: panicked: {}", said(&*panic))),
        }
    }

    fn on(&mut self, b: &dyn Backend, what: &str, work: Work<'_>) -> Option<Vec<Host>> {
        self.guarded(what, || {
            let host = |x: &Tensor| Ok(Host { shape: x.shape(), values: b.download(x)? });
            work(b)?.iter().map(host).collect()
        })
    }

    /// What the backend makes of `work`.
    pub(crate) fn on_subject(&mut self, what: &str, work: Work<'_>) -> Option<Vec<Host>> {
        let subject = Arc::clone(&self.subject);
        self.on(&*subject, what, work)
    }

    /// What the oracle makes of `work`. An error here is a mistake in the case.
    pub(crate) fn on_oracle(&mut self, what: &str, work: Work<'_>) -> Option<Vec<Host>> {
        self.on(&Oracle, &format!("{what}, on the oracle"), work)
    }

    // ---- checks ----------------------------------------------------------

    fn fail<T>(&mut self, why: String) -> Option<T> {
        self.failures.push(why);
        None
    }

    /// Leaves the case out.
    pub(crate) fn skip(&mut self, why: &str) {
        self.skipped = Some(why.into());
    }

    /// Something that must be so.
    pub(crate) fn check(&mut self, ok: bool, why: impl FnOnce() -> String) {
        self.checks += 1;
        if !ok {
            self.failures.push(why());
        }
    }

    /// Compares tensor by tensor.
    pub(crate) fn compare(&mut self, what: &str, limit: Limit, got: &[Host], want: &[Host]) {
        self.check(got.len() == want.len(), || {
            format!("{what}: {} results and not {}", got.len(), want.len())
        });
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            let what = if i == 0 { what.to_owned() } else { format!("{what}, result {i}") };
            let (g, w) = (got.shape, want.shape);
            self.check(g == w && got.values.len() == want.values.len(), || {
                format!("{what}: shape {g:?} with {} values and not {w:?}", got.values.len())
            });
            if got.values.len() != want.values.len() {
                continue;
            }
            let error = limit.error(&got.values, &want.values);
            self.checks += 1;
            if error.of_limit > self.worst {
                (self.worst, self.worst_at) = (error.of_limit, what.clone());
            }
            if error.of_limit > 1.0 {
                let (at, got, want) = error.at;
                let times = error.of_limit;
                self.failures.push(format!(
                    "{what}: error {times:.3e} times the limit; element {at} of {w:?} is {got:e} and not {want:e}"
                ));
            }
        }
    }

    /// Compares bits.
    pub(crate) fn same_bits(&mut self, what: &str, got: &[f32], want: &[f32]) {
        let differ = got.iter().zip(want).position(|(a, b)| a.to_bits() != b.to_bits());
        self.check(got.len() == want.len() && differ.is_none(), || match differ {
            Some(i) => format!("{what}: element {i} of {} is {:e} and not {:e}", want.len(), got[i], want[i]),
            None => format!("{what}: {} elements and not {}", got.len(), want.len()),
        });
    }

    /// A required operator: the backend against the oracle.
    pub(crate) fn same(&mut self, what: &str, limit: Limit, work: Work<'_>) {
        if let (Some(got), Some(want)) = (self.on_subject(what, work), self.on_oracle(what, work)) {
            self.compare(what, limit, &got, &want);
        }
    }

    /// A provided operator: the backend, with its overrides and without, against the oracle and one another.
    pub(crate) fn defined(&mut self, what: &str, limit: Limit, work: Work<'_>) {
        let stripped = Stripped(Arc::clone(&self.subject));
        let plain = self.on(&stripped, &format!("{what}, as defined"), work);
        let (got, want) = (self.on_subject(what, work), self.on_oracle(what, work));
        if let (Some(got), Some(plain), Some(want)) = (got, plain, want) {
            self.compare(what, limit, &got, &want);
            self.compare(&format!("{what}, as defined"), limit, &plain, &want);
            self.compare(&format!("{what}, override against definition"), limit, &got, &plain);
        }
    }

    /// A wrong call on inputs that `setup` makes: it must be an error, neither success nor panic.
    pub(crate) fn refuses<T, U: Debug>(
        &mut self,
        what: &str,
        setup: impl FnOnce(&dyn Backend) -> Result<T>,
        call: impl FnOnce(&dyn Backend, T) -> Result<U>,
    ) {
        self.refused(what, setup, call, |_| true);
    }

    /// A call with a handle that another backend made: it must say so.
    pub(crate) fn refuses_foreign<T, U: Debug>(
        &mut self,
        what: &str,
        setup: impl FnOnce(&dyn Backend) -> Result<T>,
        call: impl FnOnce(&dyn Backend, T) -> Result<U>,
    ) {
        self.refused(what, setup, call, |kind| matches!(kind, ErrorKind::Foreign));
    }

    fn refused<T, U: Debug>(
        &mut self,
        what: &str,
        setup: impl FnOnce(&dyn Backend) -> Result<T>,
        call: impl FnOnce(&dyn Backend, T) -> Result<U>,
        right: impl FnOnce(&ErrorKind) -> bool,
    ) {
        let subject = Arc::clone(&self.subject);
        let Some(inputs) = self.guarded(&format!("{what}, setting up"), || setup(&*subject)) else { return };
        self.checks += 1;
        match catch_unwind(AssertUnwindSafe(|| call(&*subject, inputs))) {
            Ok(Ok(_)) => self.failures.push(format!("{what}: accepted")),
            Ok(Err(e)) if !right(e.kind()) => {
                self.failures.push(format!("{what}: refused, but with the wrong kind of error: {e}"));
            }
            Ok(Err(_)) => {}
            Err(panic) => self.failures.push(format!("{what}: panicked: {}", said(&*panic))),
        }
    }
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
