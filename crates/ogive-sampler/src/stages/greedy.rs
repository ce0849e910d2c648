//! Only the best token. A stage and not a special case of the chain, so that penalties and constraints
//! before it count.

use crate::candidates::Candidates;
use crate::stage::{Needs, Stage};

/// Keeps the best candidate; of equal ones the lowest token. One pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greedy;

impl Stage for Greedy {
    fn name(&self) -> &str {
        "greedy"
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        candidates.keep_best(1);
    }

    fn needs(&self) -> Needs {
        Needs::Best(1)
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(*self)
    }
}
