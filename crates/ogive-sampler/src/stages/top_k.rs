//! Top-k: only the k best tokens (Fan, Lewis and Dauphin 2018). Zero is off, as in llama.cpp, so that one
//! number in a configuration can say so.

use crate::candidates::Candidates;
use crate::stage::{Needs, Stage};

/// Keeps the k best candidates, best first. Partial selection: linear in the vocabulary, plus k log k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK {
    k: usize,
}

impl TopK {
    /// Keeps `k` candidates; 0 keeps all.
    pub fn new(k: usize) -> Self {
        Self { k }
    }
}

impl Stage for TopK {
    fn name(&self) -> &str {
        "top-k"
    }

    fn text(&self) -> String {
        format!("top_k:{}", self.k)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        if self.k > 0 {
            candidates.keep_best(self.k);
        }
    }

    fn needs(&self) -> Needs {
        if self.k > 0 { Needs::Best(self.k) } else { Needs::Next }
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(*self)
    }
}
