//! What looking at a grammar's lexemes may cost, in one budget, and what was found out of their characters on the way.
//!
//! One budget and not a limit for each part: a small grammar can be heavy in many ways, and it is their sum that somebody waits
//! for. What is remembered is paid for as well, so the budget bounds memory too.

use crate::expr::{Arena, Id, Ranges};
use std::collections::HashMap;

/// Which bytes may come.
pub(crate) type Bytes = [u64; 4];

/// The budget, and answers about classes, which a large class takes long to give.
#[derive(Debug)]
pub(crate) struct Work {
    left: usize,
    first_bytes: HashMap<Id, Bytes>,
    meets: HashMap<(Id, Id), bool>,
}

impl Work {
    pub(crate) fn new(fuel: usize) -> Self {
        Self { left: fuel, first_bytes: HashMap::new(), meets: HashMap::new() }
    }

    /// `None` if there is not so much left; a step is a pair of numbers compared or written down.
    pub(crate) fn spend(&mut self, steps: usize) -> Option<()> {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.map(drop)
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// The first bytes of the characters of a class.
    pub(crate) fn first_bytes(&mut self, arena: &Arena, class: Id) -> Bytes {
        *self.first_bytes.entry(class).or_insert_with(|| first_bytes(arena.ranges(class)))
    }

    /// Whether a character is in both classes; `None` if the budget does not do.
    pub(crate) fn meets(&mut self, arena: &Arena, a: Id, b: Id) -> Option<bool> {
        /// Ranges that are compared faster than an answer is looked up.
        const FEW: usize = 16;
        /// What it costs to remember an answer.
        const ANSWER: usize = 8;
        let (x, y) = (arena.ranges(a), arena.ranges(b));
        if x.len() + y.len() <= FEW {
            return Some(meet(x, y));
        }
        let pair = (a.min(b), a.max(b));
        if let Some(&known) = self.meets.get(&pair) {
            return Some(known);
        }
        self.spend(ANSWER + (x.len() + y.len()) / FEW)?;
        let found = meet(x, y);
        self.meets.insert(pair, found);
        Some(found)
    }
}

fn meet(a: &Ranges, b: &Ranges) -> bool {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        if x.1 < y.0 {
            a.next();
        } else if y.1 < x.0 {
            b.next();
        } else {
            return true;
        }
    }
    false
}

/// The first bytes of the UTF-8 of all these characters.
///
/// Characters in order have first bytes in order, so a range has a range of them; with some that begin no character, which
/// does no harm.
fn first_bytes(ranges: &Ranges) -> Bytes {
    let first = |c: u32| {
        let mut utf8 = [0; 4];
        char::from_u32(c).map_or(0xff, |c| c.encode_utf8(&mut utf8).as_bytes()[0])
    };
    let mut bytes = Bytes::default();
    for &(low, high) in ranges {
        for byte in first(low)..=first(high) {
            bytes[usize::from(byte / 64)] |= 1 << (byte % 64);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Class;

    #[test]
    fn large_classes_are_compared_once() {
        let mut arena = Arena::default();
        let every_fourth =
            |from: u32| Class::new((0..10_000).map(|i| (from + 4 * i, from + 4 * i)).collect());
        let (a, b) = (arena.class(every_fourth(0x1_0000)), arena.class(every_fourth(0x1_0002)));
        let mut work = Work::new(2_000);
        for _ in 0..1_000 {
            assert_eq!(work.meets(&arena, a, b), Some(false));
            assert_eq!(work.meets(&arena, b, a), Some(false));
        }
        assert_eq!(work.meets(&arena, a, a), None, "another pair is more than is left");
        assert_eq!(work.spend(1), None, "and what was too much leaves nothing");
    }
}
