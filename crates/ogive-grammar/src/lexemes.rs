//! Cuts a grammar into lexemes: which of its expressions an automaton may run.
//!
//! llguidance's lexer is greedy: it ends a lexeme only where no lexeme that may stand there goes on. GBNF knows no lexemes, and
//! `root ::= [a-z]+ "b"` has the sentence `ab`. One lexeme for each character would always be right, and costs a parser's step
//! for every byte of every token of the vocabulary. So all that is regular begins as one lexeme, and those are cut into their
//! parts that can be caught being greedy: some other lexeme may end where this one goes on, and the next may begin with the very
//! byte that it goes on with. That is asked of the grammar's own automata; where it cannot be answered cheaply, the answer is
//! yes. What is left is a cut on which the greedy lexer loses nothing (tested against a matcher without lexemes).

use crate::automaton::{Automaton, Bytes};
use crate::expr::{Arena, Id, Node, TokenRef};
use crate::rules::{MAX_INLINE, MAX_INLINE_DEPTH, Rules};
use std::collections::{HashMap, HashSet};

/// Pairs of places looked at, for all lexemes together: some tenths of a second.
const FUEL: usize = 4_000_000;
/// Pairs of lexemes: with the automata, what may take memory.
const MAX_PAIRS: usize = 100_000;
/// So often the cut is refined; each round cuts what was found one level down.
const MAX_ROUNDS: usize = 64;

/// A part of a rule.
#[derive(Clone, Debug)]
pub(crate) enum Sym {
    Lexeme(usize),
    Rule(usize),
    Token(TokenRef),
    Repeat(Box<Self>, u32, Option<u32>),
}

/// A grammar over lexemes. Rule 0 is the first.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// Regular expressions, the empty text excepted.
    pub(crate) lexemes: Vec<Id>,
    /// Alternatives of sequences.
    pub(crate) rules: Vec<Vec<Vec<Sym>>>,
}

/// Cuts a grammar whose regular rules are written out.
pub(crate) fn cut(rules: &mut Rules) -> Cut {
    let mut fine = HashSet::new();
    for _ in 0..MAX_ROUNDS {
        let cut = Cutter::new(rules, Some(&fine)).run();
        match caught(&rules.arena, &cut) {
            Some(greedy) if greedy.is_empty() => return cut,
            Some(greedy) => fine.extend(greedy),
            None => break,
        }
    }
    Cutter::new(rules, None).run()
}

struct Cutter<'r> {
    rules: &'r mut Rules,
    /// What may be no lexeme; `None` allows characters alone.
    fine: Option<&'r HashSet<Id>>,
    cut: Cut,
    lexemes: HashMap<Id, usize>,
    done: HashMap<Id, Sym>,
    /// The rules that are named: theirs in the cut.
    named: HashMap<u32, usize>,
    open: Vec<(u32, usize)>,
}

impl<'r> Cutter<'r> {
    fn new(rules: &'r mut Rules, fine: Option<&'r HashSet<Id>>) -> Self {
        let (cut, named, open) = (Cut::default(), HashMap::new(), Vec::new());
        Self { rules, fine, cut, lexemes: HashMap::new(), done: HashMap::new(), named, open }
    }

    fn run(mut self) -> Cut {
        self.name(self.rules.root);
        while let Some((rule, at)) = self.open.pop() {
            let body = self.rules.body(rule);
            let sym = self.expr(body);
            self.cut.rules[at] = vec![vec![sym]];
        }
        self.cut
    }

    fn name(&mut self, rule: u32) -> usize {
        if let Some(&at) = self.named.get(&rule) {
            return at;
        }
        let at = self.rule(Vec::new());
        self.named.insert(rule, at);
        self.open.push((rule, at));
        at
    }

    fn rule(&mut self, alternatives: Vec<Vec<Sym>>) -> usize {
        self.cut.rules.push(alternatives);
        self.cut.rules.len() - 1
    }

    fn is_lexeme(&self, id: Id) -> bool {
        let facts = self.rules.arena.facts(id);
        match self.fine {
            _ if matches!(self.rules.arena.node(id), Node::Class(_)) => true,
            None => false,
            Some(fine) => {
                let small = facts.size <= MAX_INLINE && facts.depth <= MAX_INLINE_DEPTH;
                facts.regular && small && !fine.contains(&id) && !self.rules.arena.is_empty(id)
            }
        }
    }

    fn expr(&mut self, id: Id) -> Sym {
        if let Some(sym) = self.done.get(&id) {
            return sym.clone();
        }
        let sym = if self.is_lexeme(id) {
            let next = self.cut.lexemes.len();
            let at = *self.lexemes.entry(id).or_insert(next);
            if at == next {
                self.cut.lexemes.push(id);
            }
            let lexeme = Sym::Lexeme(at);
            if self.rules.arena.facts(id).nullable {
                Sym::Rule(self.rule(vec![Vec::new(), vec![lexeme]]))
            } else {
                lexeme
            }
        } else {
            self.parts(id)
        };
        self.done.insert(id, sym.clone());
        sym
    }

    fn parts(&mut self, id: Id) -> Sym {
        match self.rules.arena.node(id).clone() {
            Node::Token(token) => Sym::Token(token),
            Node::Rule(rule) => Sym::Rule(self.name(rule)),
            Node::Class(_) => Sym::Rule(self.rule(Vec::new())),
            Node::Seq(ids) => {
                let mut syms = Vec::with_capacity(ids.len());
                let regular = |id: Id| self.rules.arena.facts(id).regular;
                let runs: Vec<Vec<Id>> =
                    ids.chunk_by(|&a, &b| regular(a) && regular(b)).map(<[Id]>::to_vec).collect();
                for run in runs {
                    let together = self.rules.arena.seq(run.clone());
                    if run.len() > 1 && run.len() < ids.len() && self.is_lexeme(together) {
                        syms.push(self.expr(together));
                    } else {
                        syms.extend(run.into_iter().map(|id| self.expr(id)));
                    }
                }
                Sym::Rule(self.rule(vec![syms]))
            }
            Node::Alt(ids) => {
                let (regular, others): (Vec<Id>, Vec<Id>) =
                    ids.iter().partition(|&&id| self.rules.arena.facts(id).regular);
                let together = self.rules.arena.alt(regular.clone());
                let mut syms = Vec::with_capacity(ids.len());
                if !others.is_empty() && !regular.is_empty() && self.is_lexeme(together) {
                    syms.push(vec![self.expr(together)]);
                } else {
                    syms.extend(regular.into_iter().map(|id| vec![self.expr(id)]));
                }
                syms.extend(others.into_iter().map(|id| vec![self.expr(id)]));
                Sym::Rule(self.rule(syms))
            }
            Node::Repeat(id, min, max) => Sym::Repeat(Box::new(self.expr(id)), min, max),
        }
    }
}

/// Lexemes by number.
type Set = Vec<u64>;

fn add(set: &mut Set, more: &Set) -> bool {
    let mut grown = false;
    for (a, b) in set.iter_mut().zip(more) {
        grown |= *b & !*a != 0;
        *a |= b;
    }
    grown
}

fn members(set: &Set) -> impl Iterator<Item = usize> + '_ {
    set.iter()
        .enumerate()
        .flat_map(|(i, &word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| i * 64 + bit))
}

/// What may come first and next, as for an LL parser.
struct Flow {
    empty: Set,
    /// For each rule: what it begins with, what comes after it, and whether it may be empty.
    first: Vec<Set>,
    after_rule: Vec<Set>,
    nullable: Vec<bool>,
    /// For each lexeme: what comes after it.
    after: Vec<Set>,
}

impl Flow {
    fn new(cut: &Cut) -> Self {
        let empty: Set = vec![0; cut.lexemes.len().div_ceil(64)];
        let sets = |n| vec![empty.clone(); n];
        let (first, after_rule, after) =
            (sets(cut.rules.len()), sets(cut.rules.len()), sets(cut.lexemes.len()));
        let mut flow = Self { empty, first, after_rule, nullable: vec![false; cut.rules.len()], after };
        let mut grown = true;
        while grown {
            grown = false;
            for r in 0..cut.rules.len() {
                for sequence in &cut.rules[r] {
                    let (first, nullable) = flow.begins(sequence);
                    grown |= add(&mut flow.first[r], &first) | (nullable && !flow.nullable[r]);
                    flow.nullable[r] |= nullable;
                }
            }
        }
        grown = true;
        while grown {
            grown = false;
            for r in 0..cut.rules.len() {
                for sequence in &cut.rules[r] {
                    let mut next = flow.after_rule[r].clone();
                    for sym in sequence.iter().rev() {
                        next = flow.pass(sym, next, &mut grown);
                    }
                }
            }
        }
        flow
    }

    fn begins_one(&self, sym: &Sym) -> (Set, bool) {
        match sym {
            Sym::Lexeme(l) => {
                let mut set = self.empty.clone();
                set[l / 64] |= 1 << (l % 64);
                (set, false)
            }
            Sym::Rule(r) => (self.first[*r].clone(), self.nullable[*r]),
            // Begins with a byte that no text has.
            Sym::Token(_) => (self.empty.clone(), false),
            Sym::Repeat(sym, min, _) => {
                let (first, nullable) = self.begins_one(sym);
                (first, nullable || *min == 0)
            }
        }
    }

    fn begins(&self, sequence: &[Sym]) -> (Set, bool) {
        let mut all = self.empty.clone();
        for sym in sequence {
            let (first, nullable) = self.begins_one(sym);
            add(&mut all, &first);
            if !nullable {
                return (all, false);
            }
        }
        (all, true)
    }

    /// Notes that `next` comes after `sym`; gives what comes after what is before it.
    fn pass(&mut self, sym: &Sym, next: Set, grown: &mut bool) -> Set {
        match sym {
            Sym::Lexeme(l) => *grown |= add(&mut self.after[*l], &next),
            Sym::Rule(r) => *grown |= add(&mut self.after_rule[*r], &next),
            Sym::Token(_) => {}
            Sym::Repeat(inner, ..) => {
                let mut again = self.begins_one(inner).0;
                add(&mut again, &next);
                self.pass(inner, again, grown);
            }
        }
        let (mut first, nullable) = self.begins_one(sym);
        if nullable {
            add(&mut first, &next);
        }
        first
    }
}

/// The lexemes that a greedy lexer would go on with where another one, or the same, must end. `None` if that is too much to
/// find out.
fn caught(arena: &Arena, cut: &Cut) -> Option<HashSet<Id>> {
    // The whole grammar is one lexeme, or it has none.
    if cut.lexemes.is_empty() {
        return Some(HashSet::new());
    }
    if cut.rules.len().saturating_mul(cut.lexemes.len()) > 1 << 25 {
        return None;
    }
    let mut greedy = HashSet::new();
    let mut automata = Vec::with_capacity(cut.lexemes.len());
    for &id in &cut.lexemes {
        match Automaton::new(arena, id) {
            Some(automaton) => automata.push(automaton),
            None => drop(greedy.insert(id)),
        }
    }
    if !greedy.is_empty() {
        return Some(greedy);
    }
    let flow = Flow::new(cut);
    let begins: Vec<Bytes> = automata.iter().map(Automaton::first_bytes).collect();
    let after: Vec<Bytes> = flow
        .after
        .iter()
        .map(|set| {
            members(set).fold(Bytes::default(), |all, l| std::array::from_fn(|i| all[i] | begins[l][i]))
        })
        .collect();

    let mut fuel = FUEL;
    let (mut seen, mut open) = (HashSet::new(), Vec::new());
    let mut together = |a: &Set, b: &Set, open: &mut Vec<(usize, usize)>| {
        for x in members(a) {
            for y in members(b) {
                let pair = (x.min(y), x.max(y));
                if seen.insert(pair) {
                    open.push(pair);
                }
            }
            if seen.len() > MAX_PAIRS {
                return None;
            }
        }
        Some(())
    };
    let start = flow.first.first()?;
    together(start, start, &mut open)?;
    while let Some((a, b)) = open.pop() {
        let meeting = automata[a].meet(&automata[b], [&after[a], &after[b]], &mut fuel)?;
        if meeting.left_ends {
            greedy.insert(cut.lexemes[b]);
        }
        if meeting.right_ends {
            greedy.insert(cut.lexemes[a]);
        }
        // Both end here, so what comes after either may stand at one place.
        if meeting.both {
            let mut next = flow.after[a].clone();
            add(&mut next, &flow.after[b]);
            together(&next, &next, &mut open)?;
        }
    }
    Some(greedy)
}
