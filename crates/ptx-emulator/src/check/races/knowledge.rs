//! What a warp knows of other blocks, by way of fences and atomics.
//!
//! The model is that of C++ and PTX: what came before a fence is released by a strong write after it; a strong read takes that in,
//! and a fence after the read makes it known. A strong access with an ordering of its own is both at once. Two liberties, both of
//! which can hide a race and never invent one: a warp is one party, and a later strong write adds to what a flag carries instead of
//! replacing it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::clocks::Clock;

/// A block of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Party {
    /// The operation.
    pub(crate) operation: u32,
    /// The block, counted through the grid.
    pub(crate) block: u32,
}

/// For each block that is known of: the epochs of its warps below these numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knowledge {
    blocks: Arc<BTreeMap<Party, Arc<Clock>>>,
}

impl Knowledge {
    /// Whether what a warp of another block did in `epoch` is known.
    pub(crate) fn has(&self, party: Party, warp: usize, epoch: u32) -> bool {
        self.blocks.get(&party).and_then(|clock| clock.get(warp)).is_some_and(|known| epoch < *known)
    }

    /// Takes in all that `other` knows.
    pub(crate) fn join(&mut self, other: &Self) {
        if Arc::ptr_eq(&self.blocks, &other.blocks) || other.blocks.is_empty() {
            return;
        }
        if self.blocks.is_empty() {
            self.blocks = Arc::clone(&other.blocks);
            return;
        }
        let mine = Arc::make_mut(&mut self.blocks);
        for (party, clock) in other.blocks.iter() {
            match mine.get_mut(party) {
                None => {
                    mine.insert(*party, Arc::clone(clock));
                }
                Some(old) if Arc::ptr_eq(old, clock) => {}
                Some(old) => crate::check::clocks::join(Arc::make_mut(old), clock),
            }
        }
    }

    /// Takes in what a block's own clock says.
    pub(crate) fn learn(&mut self, party: Party, clock: &[u32]) {
        let known = Arc::make_mut(&mut self.blocks).entry(party).or_default();
        crate::check::clocks::join(Arc::make_mut(known), clock);
    }

    /// Forgets operations that `keep` does not want.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        if self.blocks.keys().any(|party| !keep(party.operation)) {
            Arc::make_mut(&mut self.blocks).retain(|party, _| keep(party.operation));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Party = Party { operation: 1, block: 0 };
    const B: Party = Party { operation: 1, block: 1 };

    #[test]
    fn knowledge_is_of_epochs_below() {
        let mut k = Knowledge::default();
        assert!(!k.has(A, 0, 0));
        k.learn(A, &[2, 1]);
        assert!(k.has(A, 0, 1) && !k.has(A, 0, 2) && k.has(A, 1, 0) && !k.has(A, 1, 1));
        assert!(!k.has(A, 7, 0) && !k.has(B, 0, 0));
    }

    #[test]
    fn joining_leaves_the_other_as_it_was() {
        let (mut x, mut y) = (Knowledge::default(), Knowledge::default());
        x.learn(A, &[5]);
        y.join(&x);
        y.learn(A, &[9]);
        y.learn(B, &[3]);
        assert!(!x.has(A, 0, 5) && !x.has(B, 0, 0));
        assert!(y.has(A, 0, 8) && y.has(B, 0, 2));
        x.join(&y);
        assert!(x.has(A, 0, 8) && x.has(B, 0, 2));
    }

    #[test]
    fn old_operations_can_be_dropped() {
        let mut k = Knowledge::default();
        k.learn(A, &[5]);
        k.learn(Party { operation: 2, block: 0 }, &[5]);
        k.retain(|operation| operation == 2);
        assert!(!k.has(A, 0, 0) && k.has(Party { operation: 2, block: 0 }, 0, 0));
    }
}
