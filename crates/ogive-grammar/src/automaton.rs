//! Where a regular expression can stand after each character: Glushkov's automaton, whose states are the places in the
//! expression (Glushkov 1961).
//!
//! It decides what may be one lexeme (see [`lexemes`](crate::lexemes)), and nothing else: texts are matched by llguidance's
//! automata, made of derivatives. So large repetitions are rounded up to endless ones here: what is then thought possible is
//! at least what is.

use crate::expr::{Arena, Class, Id, Node};
use std::collections::{HashSet, VecDeque};

/// Places of one expression.
const MAX_PLACES: usize = 5_000;
/// Places that a bounded repetition may take; larger ones become endless.
const MAX_UNROLLED: u64 = 256;

#[derive(Debug)]
pub(crate) struct Automaton {
    classes: Vec<Class>,
    first: Vec<usize>,
    follow: Vec<Vec<usize>>,
    last: Vec<bool>,
}

/// Which bytes may come.
pub(crate) type Bytes = [u64; 4];

#[derive(Clone, Debug, Default)]
struct Part {
    nullable: bool,
    first: Vec<usize>,
    last: Vec<usize>,
}

/// How two expressions that begin at one place can meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meeting {
    /// A text is in both.
    pub(crate) both: bool,
    /// One can end where the other goes on with a byte that may also come after its end.
    pub(crate) left_ends: bool,
    /// The same the other way round.
    pub(crate) right_ends: bool,
}

impl Automaton {
    /// `None` if it would be too large.
    pub(crate) fn new(arena: &Arena, id: Id) -> Option<Self> {
        let mut new = Self { classes: Vec::new(), first: Vec::new(), follow: Vec::new(), last: Vec::new() };
        let part = new.build(arena, id)?;
        new.last = vec![false; new.classes.len()];
        part.last.iter().for_each(|&p| new.last[p] = true);
        new.first = part.first;
        Some(new)
    }

    fn build(&mut self, arena: &Arena, id: Id) -> Option<Part> {
        match arena.node(id) {
            Node::Class(class) => {
                let place = self.classes.len();
                if place == MAX_PLACES {
                    return None;
                }
                self.classes.push(class.clone());
                self.follow.push(Vec::new());
                Some(Part { nullable: false, first: vec![place], last: vec![place] })
            }
            Node::Token(_) | Node::Rule(_) => None,
            Node::Seq(ids) => {
                let mut whole = Part { nullable: true, ..Part::default() };
                for &id in ids {
                    let next = self.build(arena, id)?;
                    whole = self.join(whole, next)?;
                }
                Some(whole)
            }
            Node::Alt(ids) => {
                let mut whole = Part::default();
                for &id in ids {
                    let next = self.build(arena, id)?;
                    whole.nullable |= next.nullable;
                    whole.first.extend(next.first);
                    whole.last.extend(next.last);
                }
                Some(whole)
            }
            Node::Repeat(id, min, max) => {
                let size = arena.facts(*id).size;
                let fits = |n: u32| size.saturating_mul(n.into()) <= MAX_UNROLLED;
                let (copies, endless, needed) = match (*min, *max) {
                    (min, Some(max)) if fits(max) => (max, false, min),
                    (min, None) if fits(min) => (min.max(1), true, min),
                    (min, _) => (1, true, min.min(1)),
                };
                let mut whole = Part { nullable: true, ..Part::default() };
                for copy in 0..copies {
                    let mut next = self.build(arena, *id)?;
                    if endless && copy + 1 == copies {
                        self.link(&next.last, &next.first)?;
                    }
                    next.nullable |= copy >= needed;
                    whole = self.join(whole, next)?;
                }
                Some(whole)
            }
        }
    }

    fn join(&mut self, a: Part, b: Part) -> Option<Part> {
        self.link(&a.last, &b.first)?;
        let mut first = a.first;
        if a.nullable {
            first.extend_from_slice(&b.first);
        }
        let mut last = b.last;
        if b.nullable {
            last.extend_from_slice(&a.last);
        }
        Some(Part { nullable: a.nullable && b.nullable, first, last })
    }

    fn link(&mut self, from: &[usize], to: &[usize]) -> Option<()> {
        /// Alternatives of alternatives, repeated, link every one with every one.
        const MAX_LINKS: usize = 1 << 20;
        if from.len().saturating_mul(to.len()) > MAX_LINKS {
            return None;
        }
        for &place in from {
            let follow = &mut self.follow[place];
            follow.extend_from_slice(to);
            follow.sort_unstable();
            follow.dedup();
        }
        Some(())
    }

    /// The bytes that it can begin with.
    pub(crate) fn first_bytes(&self) -> Bytes {
        let mut bytes = Bytes::default();
        self.first.iter().for_each(|&p| add_first_bytes(&self.classes[p], &mut bytes));
        bytes
    }

    /// How two can meet, where what comes after each begins with one of the given bytes. Every pair of places costs one of
    /// `fuel`; `None` if it does not do.
    pub(crate) fn meet(&self, other: &Self, after: [&Bytes; 2], fuel: &mut usize) -> Option<Meeting> {
        let mut meeting = Meeting::default();
        let (mut seen, mut open) = (HashSet::new(), VecDeque::new());
        let mut reach = |from: &[usize], to: &[usize], open: &mut VecDeque<_>| {
            for &p in from {
                for &q in to {
                    *fuel = fuel.checked_sub(1)?;
                    if self.classes[p].meets(&other.classes[q]) && seen.insert((p, q)) {
                        open.push_back((p, q));
                    }
                }
            }
            Some(())
        };
        reach(&self.first, &other.first, &mut open)?;
        while let Some((p, q)) = open.pop_front() {
            let (mine, theirs) = (self.last[p], other.last[q]);
            meeting.both |= mine && theirs;
            meeting.left_ends |= mine && other.goes_on(q, after[0]);
            meeting.right_ends |= theirs && self.goes_on(p, after[1]);
            reach(&self.follow[p], &other.follow[q], &mut open)?;
        }
        Some(meeting)
    }

    fn goes_on(&self, place: usize, with: &Bytes) -> bool {
        let mut bytes = Bytes::default();
        self.follow[place].iter().for_each(|&p| add_first_bytes(&self.classes[p], &mut bytes));
        bytes.iter().zip(with).any(|(a, b)| a & b != 0)
    }
}

/// Adds the first bytes of the UTF-8 of all characters of a class.
///
/// Characters in order have first bytes in order, so a range has a range of them; with some that begin no character, which
/// does no harm.
fn add_first_bytes(class: &Class, bytes: &mut Bytes) {
    let first = |c: u32| {
        let mut utf8 = [0; 4];
        char::from_u32(c).map_or(0xff, |c| c.encode_utf8(&mut utf8).as_bytes()[0])
    };
    for &(low, high) in class.ranges() {
        for byte in first(low)..=first(high) {
            bytes[usize::from(byte / 64)] |= 1 << (byte % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet(a: &str, after_a: &str, b: &str, after_b: &str) -> Meeting {
        let automaton = |text: &str| {
            let rules = crate::gbnf::parse(&format!("root ::= {text}")).unwrap();
            Automaton::new(&rules.arena, rules.body(rules.root)).unwrap()
        };
        let after = [automaton(after_a).first_bytes(), automaton(after_b).first_bytes()];
        automaton(a).meet(&automaton(b), [&after[0], &after[1]], &mut 100_000).unwrap()
    }

    #[test]
    fn what_can_end_or_go_on_is_seen() {
        let m = |both, left_ends, right_ends| Meeting { both, left_ends, right_ends };
        assert_eq!(meet("[0-9]+", "\"x\"", "[0-9]+", "\"x\""), m(true, false, false));
        assert_eq!(meet("[0-9]+", "[0-9]", "[0-9]+", "\"x\""), m(true, true, false));
        assert_eq!(meet("\"ab\"", "\"c\"", "\"abcd\"", "\"x\""), m(false, true, false));
        assert_eq!(meet("\"ab\"", "\"d\"", "\"abcd\"", "\"x\""), m(false, false, false));
        assert_eq!(meet("\"a\"{3}", "\"a\"", "\"a\"{2}", "\"a\""), m(false, false, true));
        // Rounded up to endless: seen where it is not quite so.
        assert_eq!(meet("\"a\"{1000}", "\"a\"", "\"b\"", "\"a\""), m(false, false, false));
        assert!(meet("\"a\"{1000}", "\"a\"", "\"a\"{1000}", "\"b\"").left_ends);
        // Other characters, the same first byte.
        assert!(meet("[é]", "[è]", "[é] [ê]", "\"x\"").left_ends);
        assert_eq!(
            meet("\"\\\"\" [^\"]* \"\\\"\"", ".", "\"\\\"\" [^\"]* \"\\\"\"", "."),
            m(true, false, false)
        );
    }
}
