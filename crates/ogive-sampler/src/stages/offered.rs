//! What a stage that steers by the drawn token's probability keeps between `apply` and `accept`.
//!
//! A copy of the list, for the token is not known in `apply` and the list is gone in `accept`. It is empty while
//! no draw is pending, so that a clone of the chain between two tokens copies nothing.

use crate::candidates::{Candidate, Candidates};
use crate::softmax::Softmax;

/// The candidates of a pending draw and their weights.
#[derive(Clone, Debug, Default)]
pub(super) struct Offered {
    list: Vec<Candidate>,
    softmax: Option<Softmax>,
}

impl Offered {
    /// Takes note of the candidates as they are now.
    pub(super) fn note(&mut self, candidates: &Candidates, softmax: Softmax) {
        self.list.clear();
        self.list.extend_from_slice(candidates.as_slice());
        self.softmax = Some(softmax);
    }

    /// The probability that the accepted token had, if it was on offer. Nothing is pending afterwards. Of a list in which nothing was
    /// possible nothing was on offer.
    pub(super) fn take(&mut self, token: u32) -> Option<f64> {
        let softmax = self.softmax.take();
        let found = self.list.iter().find(|c| c.id == token).copied();
        self.list.clear();
        let (softmax, c) = (softmax.filter(|softmax| softmax.total > 0)?, found?);
        Some(softmax.weight(c) as f64 / softmax.total as f64)
    }

    /// Nothing is pending.
    pub(super) fn forget(&mut self) {
        self.list.clear();
        self.softmax = None;
    }
}
