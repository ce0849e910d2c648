//! What may come first and next in a cut grammar, as for an LL parser.
//!
//! The rules are gone through again and again until nothing is added, in an order in which facts find the rules that they are
//! for still ahead of them: in the order of the text a chain of rules would take as many rounds as it has rules.

use crate::lexemes::{Cut, Sym};
use crate::work::Work;

/// Lexemes by number.
pub(crate) type Set = Vec<u64>;

pub(crate) fn add(set: &mut Set, more: &Set) -> bool {
    let mut grown = false;
    for (a, b) in set.iter_mut().zip(more) {
        grown |= *b & !*a != 0;
        *a |= b;
    }
    grown
}

pub(crate) fn members(set: &Set) -> impl Iterator<Item = usize> + '_ {
    let bits = |mut word: u64| {
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros() as usize);
            word &= word.wrapping_sub(1);
            bit
        })
    };
    set.iter().enumerate().flat_map(move |(i, &word)| bits(word).map(move |bit| i * 64 + bit))
}

/// Steps that it takes to go through one set: words are quicker than what else is counted.
pub(crate) fn steps(set: &Set) -> usize {
    1 + set.len() / 8
}

/// What may come first and next.
pub(crate) struct Flow {
    empty: Set,
    /// For each rule: what it begins with, what comes after it, and whether it may be empty.
    pub(crate) first: Vec<Set>,
    after_rule: Vec<Set>,
    nullable: Vec<bool>,
    /// For each lexeme: what comes after it.
    pub(crate) after: Vec<Set>,
    /// What comes after any token.
    pub(crate) after_token: Set,
}

impl Flow {
    /// Whether all sets together take a sensible amount of memory.
    pub(crate) fn fits(cut: &Cut) -> bool {
        /// Lexemes in all sets of rules: 4 MB, which are there twice.
        const MAX_OF_RULES: usize = 1 << 25;
        /// Lexemes in all sets of lexemes: 32 MB.
        const MAX_OF_LEXEMES: usize = 1 << 28;
        let (rules, lexemes) = (cut.rules.len(), cut.lexemes.len());
        rules.saturating_mul(lexemes) <= MAX_OF_RULES && lexemes.saturating_mul(lexemes) <= MAX_OF_LEXEMES
    }

    /// `None` if it is too much work.
    pub(crate) fn new(cut: &Cut, work: &mut Work) -> Option<Self> {
        let (rules, lexemes) = (cut.rules.len(), cut.lexemes.len());
        let empty: Set = vec![0; lexemes.div_ceil(64)];
        let sets = |n| vec![empty.clone(); n];
        let (first, after_rule, after) = (sets(rules), sets(rules), sets(lexemes));
        let after_token = empty.clone();
        let mut flow = Self { empty, first, after_rule, nullable: vec![false; rules], after, after_token };
        // What a rule begins with is told by those it names; what comes after it, by those that name it.
        let named_first = named_first(cut);
        let mut grown = true;
        while grown {
            grown = false;
            for &r in &named_first {
                for sequence in &cut.rules[r] {
                    let (first, nullable) = flow.begins(sequence, work)?;
                    grown |= add(&mut flow.first[r], &first) | (nullable && !flow.nullable[r]);
                    flow.nullable[r] |= nullable;
                }
            }
        }
        grown = true;
        while grown {
            grown = false;
            for &r in named_first.iter().rev() {
                for sequence in &cut.rules[r] {
                    work.spend(steps(&flow.empty))?;
                    let mut next = flow.after_rule[r].clone();
                    for sym in sequence.iter().rev() {
                        next = flow.pass(sym, next, &mut grown, work)?;
                    }
                }
            }
        }
        Some(flow)
    }

    fn begins_one(&self, sym: &Sym, work: &mut Work) -> Option<(Set, bool)> {
        work.spend(steps(&self.empty))?;
        Some(match sym {
            Sym::Lexeme(l) => {
                let mut set = self.empty.clone();
                set[l / 64] |= 1 << (l % 64);
                (set, false)
            }
            Sym::Rule(r) => (self.first[*r].clone(), self.nullable[*r]),
            // Begins with a byte that no text has.
            Sym::Token(_) => (self.empty.clone(), false),
            Sym::Repeat(sym, min, _) => {
                let (first, nullable) = self.begins_one(sym, work)?;
                (first, nullable || *min == 0)
            }
        })
    }

    fn begins(&self, sequence: &[Sym], work: &mut Work) -> Option<(Set, bool)> {
        work.spend(steps(&self.empty))?;
        let mut all = self.empty.clone();
        for sym in sequence {
            let (first, nullable) = self.begins_one(sym, work)?;
            add(&mut all, &first);
            if !nullable {
                return Some((all, false));
            }
        }
        Some((all, true))
    }

    /// Notes that `next` comes after `sym`; gives what comes after what is before it.
    fn pass(&mut self, sym: &Sym, next: Set, grown: &mut bool, work: &mut Work) -> Option<Set> {
        match sym {
            Sym::Lexeme(l) => *grown |= add(&mut self.after[*l], &next),
            Sym::Rule(r) => *grown |= add(&mut self.after_rule[*r], &next),
            Sym::Token(_) => *grown |= add(&mut self.after_token, &next),
            Sym::Repeat(inner, ..) => {
                let mut again = self.begins_one(inner, work)?.0;
                add(&mut again, &next);
                self.pass(inner, again, grown, work)?;
            }
        }
        let (mut first, nullable) = self.begins_one(sym, work)?;
        if nullable {
            add(&mut first, &next);
        }
        Some(first)
    }
}

/// The rules in an order in which each comes after those that it names, where they do not name each other around.
fn named_first(cut: &Cut) -> Vec<usize> {
    let names = |r: usize| -> Vec<usize> {
        cut.rules[r]
            .iter()
            .flatten()
            .filter_map(|mut sym| {
                loop {
                    match sym {
                        Sym::Rule(other) => return Some(*other),
                        Sym::Repeat(inner, ..) => sym = inner,
                        Sym::Lexeme(_) | Sym::Token(_) => return None,
                    }
                }
            })
            .collect()
    };
    let (mut seen, mut order) = (vec![false; cut.rules.len()], Vec::with_capacity(cut.rules.len()));
    for start in 0..cut.rules.len() {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        // Rules within which it is, each with those that it names and were not looked at yet.
        let mut path = vec![(start, names(start))];
        while let Some((r, rest)) = path.last_mut() {
            match rest.pop() {
                Some(next) if !std::mem::replace(&mut seen[next], true) => path.push((next, names(next))),
                Some(_) => {}
                None => {
                    order.push(*r);
                    path.pop();
                }
            }
        }
    }
    order
}
