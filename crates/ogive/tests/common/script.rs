//! A stage that says what is drawn.

use ogive::sampler::{Candidates, Chain, Stage};

/// Lets these tokens alone through, from some place on.
#[derive(Clone, Debug)]
struct Script {
    from: usize,
    ids: Vec<u32>,
}

impl Stage for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        let next = self.ids.get(history.len() - self.from).copied();
        candidates.map(|c| if Some(c.id) == next { 0.0 } else { f32::NEG_INFINITY });
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

/// Draws `ids` after so many tokens.
pub(crate) fn script_after(from: usize, ids: Vec<u32>) -> Chain {
    Chain::greedy().first(Script { from, ids })
}
