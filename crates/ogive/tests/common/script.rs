//! A stage that says what is drawn.

use ogive::sampler::{Candidates, Chain, Stage};

/// Lets these tokens alone through, from some place on.
#[derive(Clone, Debug)]
struct Script {
    from: usize,
    ids: Vec<u32>,
    /// Whether anything may come behind them.
    free: bool,
}

impl Stage for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        let next = self.ids.get(history.len() - self.from).copied();
        if next.is_none() && self.free {
            return;
        }
        candidates.map(|c| if Some(c.id) == next { 0.0 } else { f32::NEG_INFINITY });
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

/// Draws `ids` after so many tokens.
#[allow(dead_code)]
pub(crate) fn script_after(from: usize, ids: Vec<u32>) -> Chain {
    Chain::greedy().first(Script { from, ids, free: false })
}

/// Draws `ids` after so many tokens, and then what the model says.
#[allow(dead_code)]
pub(crate) fn begun_after(from: usize, ids: Vec<u32>, seed: u64) -> Chain {
    Chain::new(seed).first(Script { from, ids, free: true })
}
