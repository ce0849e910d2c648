//! Where a regular expression can stand after each character: Glushkov's automaton, whose states are the places in the
//! expression (Glushkov 1961).
//!
//! It decides what may be one lexeme (see [`lexemes`](crate::lexemes)), and nothing else: texts are matched by llguidance's
//! automata, made of derivatives. So large repetitions are rounded up to endless ones here: what is then thought possible is
//! at least what is.

use crate::expr::{Arena, Id, Node};
use crate::work::{Bytes, Work};
use std::collections::VecDeque;

/// Places of one expression.
const MAX_PLACES: usize = 5_000;
/// Places that a bounded repetition may take; larger ones become endless.
const MAX_UNROLLED: u64 = 256;
/// Links of one expression: alternatives of alternatives, repeated, link every one with every one. With more, there would be
/// too many pairs in its meeting with itself.
const MAX_LINKS: usize = 1 << 20;
/// Pairs of places that one meeting may come to; they wait to be looked at, so this is memory.
const MAX_SEEN: usize = 4_000_000;
/// Steps that a place costs, which takes so many times the memory of a link.
const PLACE: usize = 20;

#[derive(Debug)]
pub(crate) struct Automaton {
    places: Vec<Place>,
    first: Vec<u32>,
}

#[derive(Debug)]
struct Place {
    class: Id,
    follow: Vec<u32>,
    /// What may come next begins with one of these.
    next: Bytes,
    last: bool,
}

#[derive(Clone, Debug, Default)]
struct Part {
    nullable: bool,
    first: Vec<u32>,
    last: Vec<u32>,
}

/// Why an expression has no automaton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMuch {
    /// It would be too large.
    Expression,
    /// The work on all expressions is.
    Work,
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

/// An automaton that is being built.
struct Builder<'a> {
    arena: &'a Arena,
    work: &'a mut Work,
    places: Vec<Place>,
    links: usize,
}

impl Builder<'_> {
    fn spend(&mut self, steps: usize) -> Result<(), TooMuch> {
        self.work.spend(steps).ok_or(TooMuch::Work)
    }

    fn build(&mut self, id: Id) -> Result<Part, TooMuch> {
        let arena = self.arena;
        match arena.node(id) {
            Node::Class(_) => {
                if self.places.len() == MAX_PLACES {
                    return Err(TooMuch::Expression);
                }
                self.spend(PLACE)?;
                let place = u32::try_from(self.places.len()).map_err(|_| TooMuch::Expression)?;
                self.places.push(Place {
                    class: id,
                    follow: Vec::new(),
                    next: Bytes::default(),
                    last: false,
                });
                Ok(Part { nullable: false, first: vec![place], last: vec![place] })
            }
            Node::Token(_) | Node::Rule(_) => Err(TooMuch::Expression),
            Node::Seq(ids) => {
                let mut whole = Part { nullable: true, ..Part::default() };
                for &id in ids {
                    let next = self.build(id)?;
                    whole = self.join(whole, next)?;
                }
                Ok(whole)
            }
            Node::Alt(ids) => {
                let mut whole = Part::default();
                for &id in ids {
                    let next = self.build(id)?;
                    whole.nullable |= next.nullable;
                    whole.first.extend(next.first);
                    whole.last.extend(next.last);
                }
                Ok(whole)
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
                    let mut next = self.build(*id)?;
                    if endless && copy + 1 == copies {
                        self.link(&next.last, &next.first)?;
                    }
                    next.nullable |= copy >= needed;
                    whole = self.join(whole, next)?;
                }
                Ok(whole)
            }
        }
    }

    fn join(&mut self, a: Part, b: Part) -> Result<Part, TooMuch> {
        self.link(&a.last, &b.first)?;
        self.spend(a.last.len() + b.first.len())?;
        let mut first = a.first;
        if a.nullable {
            first.extend_from_slice(&b.first);
        }
        let mut last = b.last;
        if b.nullable {
            last.extend_from_slice(&a.last);
        }
        Ok(Part { nullable: a.nullable && b.nullable, first, last })
    }

    /// Lets each of `to` follow each of `from`. What is there twice is taken out at the end, once for all.
    fn link(&mut self, from: &[u32], to: &[u32]) -> Result<(), TooMuch> {
        let links = from.len().saturating_mul(to.len());
        self.links = self.links.saturating_add(links);
        if self.links > MAX_LINKS {
            return Err(TooMuch::Expression);
        }
        self.spend(links)?;
        for &place in from {
            self.places[place as usize].follow.extend_from_slice(to);
        }
        Ok(())
    }

    fn finish(mut self, part: Part) -> Automaton {
        for &place in &part.last {
            self.places[place as usize].last = true;
        }
        for at in 0..self.places.len() {
            let mut follow = std::mem::take(&mut self.places[at].follow);
            follow.sort_unstable();
            follow.dedup();
            follow.shrink_to_fit();
            self.places[at].next = first_bytes(&self.places, &follow, self.arena, self.work);
            self.places[at].follow = follow;
        }
        Automaton { places: self.places, first: part.first }
    }
}

fn first_bytes(places: &[Place], of: &[u32], arena: &Arena, work: &mut Work) -> Bytes {
    of.iter().fold(Bytes::default(), |all, &place| {
        let bytes = work.first_bytes(arena, places[place as usize].class);
        std::array::from_fn(|i| all[i] | bytes[i])
    })
}

fn share(a: &Bytes, b: &Bytes) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

/// Pairs of places that were come to: bits, for a hash of each pair took nine tenths of all the time.
struct Seen {
    /// For each place of the one the places of the other; empty where there are none yet.
    rows: Vec<Vec<u64>>,
    row: usize,
}

impl Seen {
    /// Whether the pair is new.
    fn insert(&mut self, p: usize, q: usize) -> bool {
        let row = &mut self.rows[p];
        if row.is_empty() {
            row.resize(self.row, 0);
        }
        let (word, bit) = (&mut row[q / 64], 1 << (q % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

impl Automaton {
    /// Takes its places and links from the budget.
    pub(crate) fn new(arena: &Arena, id: Id, work: &mut Work) -> Result<Self, TooMuch> {
        let mut builder = Builder { arena, work, places: Vec::new(), links: 0 };
        let part = builder.build(id)?;
        Ok(builder.finish(part))
    }

    /// The bytes that it can begin with.
    pub(crate) fn first_bytes(&self, arena: &Arena, work: &mut Work) -> Bytes {
        first_bytes(&self.places, &self.first, arena, work)
    }

    /// How two can meet, where what comes after each begins with one of the given bytes. Every pair of places is a step of
    /// work; `None` if that is too much.
    pub(crate) fn meet(
        &self,
        other: &Self,
        after: [&Bytes; 2],
        arena: &Arena,
        work: &mut Work,
    ) -> Option<Meeting> {
        let mut meeting = Meeting::default();
        let mut seen =
            Seen { rows: vec![Vec::new(); self.places.len()], row: other.places.len().div_ceil(64) };
        let (mut count, mut open) = (0, VecDeque::new());
        let mut reach = |from: &[u32], to: &[u32], open: &mut VecDeque<_>| {
            for &p in from {
                for &q in to {
                    work.spend(1)?;
                    let (mine, theirs) = (&self.places[p as usize], &other.places[q as usize]);
                    if work.meets(arena, mine.class, theirs.class)? && seen.insert(p as usize, q as usize) {
                        count += 1;
                        open.push_back((mine, theirs));
                    }
                }
                if count > MAX_SEEN {
                    return None;
                }
            }
            Some(())
        };
        reach(&self.first, &other.first, &mut open)?;
        while let Some((mine, theirs)) = open.pop_front() {
            meeting.both |= mine.last && theirs.last;
            meeting.left_ends |= mine.last && share(&theirs.next, after[0]);
            meeting.right_ends |= theirs.last && share(&mine.next, after[1]);
            reach(&mine.follow, &theirs.follow, &mut open)?;
        }
        Some(meeting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet(a: &str, after_a: &str, b: &str, after_b: &str) -> Meeting {
        let text = format!("root ::= a x b y\na ::= {a}\nx ::= {after_a}\nb ::= {b}\ny ::= {after_b}");
        let rules = crate::gbnf::parse(&text).unwrap();
        let (arena, mut work) = (&rules.arena, Work::new(100_000));
        let [a, x, b, y] = ["a", "x", "b", "y"].map(|name| {
            let rule = rules.rules.iter().find(|rule| rule.name == name).unwrap();
            Automaton::new(arena, rule.body, &mut work).unwrap()
        });
        let [x, y] = [x, y].map(|after| after.first_bytes(arena, &mut work));
        a.meet(&b, [&x, &y], arena, &mut work).unwrap()
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

    /// What a place follows is put in order once, at the end: joint by joint it would be `n^3 / 6` visits.
    #[test]
    fn work_is_counted_while_an_automaton_is_built() {
        let built = |n: usize, fuel: usize| {
            let rules = crate::gbnf::parse(&format!("root ::= {}", "\"a\"? ".repeat(n))).unwrap();
            let mut work = Work::new(fuel);
            let automaton = Automaton::new(&rules.arena, rules.body(rules.root), &mut work);
            (automaton.map(|a| a.places.iter().map(|p| p.follow.len()).sum::<usize>()), fuel - work.left())
        };
        // Each place once, each pair of them linked once and copied once, and each first place copied at its two joints.
        assert_eq!(built(1_000, 2_000_000), (Ok(499_500), 1_000 * PLACE + 2 * 499_500 + 2_000));
        assert_eq!(built(1_000, 1_000_000), (Err(TooMuch::Work), 1_000_000));
        let (result, spent) = built(4_990, usize::MAX);
        assert_eq!(result, Err(TooMuch::Expression));
        assert!(spent < 2 * MAX_LINKS + 4_990 * PLACE, "{spent}");
        assert_eq!(built(5_001, usize::MAX).0, Err(TooMuch::Expression));
    }
}
