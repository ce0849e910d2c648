//! What tests of layers begin with that read no file: nothing to read from, and a step of no rows, by the oracle.

use crate::backend::{Backend, Batch, CacheSpec};
use crate::tensor::{Error, HostWeight, Result, Source, WeightInfo};
use crate::{Loader, Step};
use ogive_conformance::Oracle;

#[derive(Debug)]
struct Nothing;

impl Source for Nothing {
    fn get(&self, name: &str) -> Result<HostWeight> {
        Err(Error::missing(name))
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        Vec::new()
    }
}

/// Gives `f` the oracle, a step and a loader that finds nothing.
pub(crate) fn with_nothing(f: impl FnOnce(&Oracle, &Step<'_>, &Loader<'_>)) {
    let b = Oracle;
    let cache = b.new_cache(&CacheSpec::new(Vec::new(), 1, 0, 0)).unwrap();
    let plan = b.plan(Batch::default()).unwrap();
    f(&b, &Step::new(&b, &plan, &cache), &Loader::new(&Nothing, &b));
}
