//! What orders the operations of a device: chains, moments on them, and what a moment knows.
//!
//! A stream is a chain; so is each branch of a graph that is not a stream's own. Within a chain operations follow one another, and a
//! wait for an event brings one chain's knowledge to another. That is a vector clock whose entries are chains.

use std::collections::BTreeMap;

/// An operation's place in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// The chain.
    pub chain: u32,
    /// Counts the chain's operations from 1.
    pub count: u64,
}

/// What is known to have ended: for each chain, the operations up to a count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    chains: BTreeMap<u32, u64>,
}

impl Known {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the operation at `moment` has ended.
    #[must_use]
    pub fn has(&self, moment: Moment) -> bool {
        self.chains.get(&moment.chain).is_some_and(|count| moment.count <= *count)
    }

    /// From now on the operation at `moment`, and those before it in its chain, are known.
    pub fn add(&mut self, moment: Moment) {
        let count = self.chains.entry(moment.chain).or_default();
        *count = (*count).max(moment.count);
    }

    /// Takes in what `other` knows.
    pub fn join(&mut self, other: &Self) {
        for (chain, count) in &other.chains {
            self.add(Moment { chain: *chain, count: *count });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_brings_those_before_it() {
        let mut known = Known::new();
        assert!(!known.has(Moment { chain: 1, count: 1 }));
        known.add(Moment { chain: 1, count: 3 });
        known.add(Moment { chain: 1, count: 2 });
        assert!(known.has(Moment { chain: 1, count: 3 }));
        assert!(!known.has(Moment { chain: 1, count: 4 }));
        assert!(!known.has(Moment { chain: 2, count: 1 }));
    }

    #[test]
    fn an_event_carries_knowledge_on() {
        let (mut a, mut b) = (Known::new(), Known::new());
        a.add(Moment { chain: 1, count: 5 });
        b.add(Moment { chain: 2, count: 1 });
        b.join(&a);
        assert!(b.has(Moment { chain: 1, count: 5 }) && b.has(Moment { chain: 2, count: 1 }));
    }
}
