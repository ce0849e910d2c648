//! The suite: cases, each run by itself, and a report of all.
//!
//! A failing case never hides another: errors, wrong numbers and panics are collected, and a run ends with a table. So a
//! backend author sees at once what is missing.

mod cases;
mod lab;
mod limit;
mod options;
mod random;
mod report;

pub use options::Options;
pub use report::{Outcome, Report, Status};

use lab::{Lab, said};
use ogive_backend::Backend;
use ogive_backend::tensor::Result;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

type Body = Box<dyn Fn(&mut Lab<'_>) -> Result<()> + Send + Sync>;

/// One thing that is tested, such as `attend_cache/window/f16`.
pub struct Case {
    name: String,
    body: Body,
}

impl Case {
    fn new(
        name: impl Into<String>,
        body: impl Fn(&mut Lab<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), body: Box::new(body) }
    }

    /// The operator first, then what is special: what [`Options::filter`] looks at.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs this case alone.
    pub fn run(&self, backend: &Arc<dyn Backend>, options: &Options) -> Outcome {
        let start = Instant::now();
        let mut lab = Lab::new(backend, options, &self.name);
        let ran = catch_unwind(AssertUnwindSafe(|| (self.body)(&mut lab)));
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(e)) => lab.check(false, || format!("ended early: {e}")),
            Err(panic) => lab.check(false, || format!("panicked: {}", said(&*panic))),
        }
        lab.finish(&self.name, start.elapsed())
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({})", self.name)
    }
}

/// Every case there is for these options, whatever their filter: formats and cache elements are cases of their own.
pub fn cases(options: &Options) -> Vec<Case> {
    cases::all(options)
}

/// Puts `backend` through every case that `options` ask for.
pub fn run(backend: &Arc<dyn Backend>, options: &Options) -> Report {
    let wanted = cases(options).into_iter().filter(|case| options.wants(&case.name));
    let outcomes = wanted.map(|case| case.run(backend, options)).collect();
    Report { backend: backend.facts().name, seed: options.seed, outcomes }
}

/// For tests: puts `backend` through every case and panics with the whole table unless all that ran passed.
///
/// # Panics
/// If a case fails, or if the filter leaves none.
pub fn assert_conforms(backend: &Arc<dyn Backend>, options: &Options) {
    let report = run(backend, options);
    assert!(report.passed(), "the backend does not conform\n{report}");
}
