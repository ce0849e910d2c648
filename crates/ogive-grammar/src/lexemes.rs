//! Cuts a grammar into lexemes: which of its expressions an automaton may run.
//!
//! llguidance's lexer is greedy: it ends a lexeme only where no lexeme that may stand there goes on. GBNF knows no lexemes, and
//! `root ::= [a-z]+ "b"` has the sentence `ab`. One lexeme for each character would always be right, and costs a parser's step
//! for every byte of every token of the vocabulary. So all that is regular begins as one lexeme, and those are cut into their
//! parts that can be caught being greedy: some other lexeme may end where this one goes on, and the next may begin with the very
//! byte that it goes on with. That is asked of the grammar's own automata; where it cannot be answered cheaply, the answer is
//! yes. What is left is a cut on which the greedy lexer loses nothing (tested against a matcher without lexemes).

use crate::automaton::{Automaton, TooMuch};
use crate::expr::{Arena, Id, Node, TokenRef};
use crate::flow::{Flow, Set, add, members, steps};
use crate::rules::{MAX_INLINE, MAX_INLINE_DEPTH, Rules};
use crate::words;
use crate::work::{Bytes, Work};
use std::collections::{HashMap, HashSet};

/// Steps of work for a whole grammar, from its automata to the last pair of places looked at: some tenths of a second.
const FUEL: usize = 32_000_000;
/// Pairs of lexemes that may stand at one place.
const MAX_PAIRS: usize = 100_000;
/// Ranges of characters in all lexemes as they are written for the parser behind, which takes a second or two to read so many:
/// `\w` has 800, and twice in a lexeme it is written twice.
const MAX_RANGES: u64 = 1_000_000;
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
    cut_within(rules, &mut Work::new(FUEL))
}

fn cut_within(rules: &mut Rules, work: &mut Work) -> Cut {
    let (mut fine, mut automata) = (HashSet::new(), HashMap::new());
    for _ in 0..MAX_ROUNDS {
        let cut = Cutter::new(rules, Some(&fine)).run();
        match caught(&rules.arena, &cut, &mut automata, work) {
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

    /// Alternatives that are too many for one lexeme in few, where they may be that.
    fn pieces(&mut self, together: Id, alternatives: Vec<Id>) -> Vec<Id> {
        let large = self.rules.arena.facts(together).size > words::MAX_SIZE;
        if !large || self.fine.is_none() {
            return alternatives;
        }
        let pieces = words::pieces(&mut self.rules.arena, &alternatives);
        let lexemes = |(piece, of)| if self.is_lexeme(piece) { vec![piece] } else { of };
        pieces.into_iter().flat_map(lexemes).collect()
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
                    syms.extend(self.pieces(together, regular).into_iter().map(|id| vec![self.expr(id)]));
                }
                syms.extend(others.into_iter().map(|id| vec![self.expr(id)]));
                Sym::Rule(self.rule(syms))
            }
            Node::Repeat(id, min, max) => Sym::Repeat(Box::new(self.expr(id)), min, max),
        }
    }
}

/// The lexemes that a greedy lexer would go on with where another one, or the same, must end. `None` if that is too much to
/// find out. The automata that were there before are not built again.
fn caught(
    arena: &Arena,
    cut: &Cut,
    automata: &mut HashMap<Id, Automaton>,
    work: &mut Work,
) -> Option<HashSet<Id>> {
    // The whole grammar is one lexeme, or it has none.
    if cut.lexemes.is_empty() {
        return Some(HashSet::new());
    }
    let ranges = cut.lexemes.iter().fold(0, |n: u64, &id| n.saturating_add(arena.facts(id).ranges));
    if ranges > MAX_RANGES || !Flow::fits(cut) {
        return None;
    }
    let mut greedy = HashSet::new();
    for &id in cut.lexemes.iter().filter(|id| !automata.contains_key(id)).collect::<Vec<_>>() {
        match Automaton::new(arena, id, work) {
            Ok(automaton) => drop(automata.insert(id, automaton)),
            Err(TooMuch::Expression) => drop(greedy.insert(id)),
            Err(TooMuch::Work) => return None,
        }
    }
    if !greedy.is_empty() {
        return Some(greedy);
    }
    let automata: Vec<&Automaton> = cut.lexemes.iter().map(|id| automata.get(id)).collect::<Option<_>>()?;
    let flow = Flow::new(cut, work)?;
    let begins: Vec<Bytes> = automata.iter().map(|a| a.first_bytes(arena, work)).collect();
    let mut after: Vec<Bytes> = Vec::with_capacity(automata.len());
    for set in &flow.after {
        let mut bytes = Bytes::default();
        work.spend(steps(set))?;
        for l in members(set) {
            work.spend(1)?;
            bytes = std::array::from_fn(|i| bytes[i] | begins[l][i]);
        }
        after.push(bytes);
    }

    let (mut seen, mut open) = (HashSet::new(), Vec::new());
    let mut together = |set: &Set, open: &mut Vec<(usize, usize)>, work: &mut Work| {
        work.spend(steps(set))?;
        let all: Vec<usize> = members(set).collect();
        for (i, &x) in all.iter().enumerate() {
            for &y in &all[i..] {
                work.spend(1)?;
                if seen.insert((x, y)) {
                    open.push((x, y));
                }
            }
            if seen.len() > MAX_PAIRS {
                return None;
            }
        }
        Some(())
    };
    together(flow.first.first()?, &mut open, work)?;
    // As many places, but which tokens are others only a vocabulary can tell.
    together(&flow.after_token, &mut open, work)?;
    // The same comes after many lexemes; each two kinds are put together once.
    let (mut kinds, mut joined) = (HashMap::new(), HashSet::new());
    let mut number = |set| {
        let next = kinds.len();
        *kinds.entry(set).or_insert(next)
    };
    let kind: Vec<usize> = flow.after.iter().map(&mut number).collect();
    while let Some((a, b)) = open.pop() {
        let meeting = automata[a].meet(automata[b], [&after[a], &after[b]], arena, work)?;
        if meeting.left_ends {
            greedy.insert(cut.lexemes[b]);
        }
        if meeting.right_ends {
            greedy.insert(cut.lexemes[a]);
        }
        // Both end here, so what comes after either may stand at one place.
        if meeting.both && joined.insert((kind[a].min(kind[b]), kind[a].max(kind[b]))) {
            let mut next = flow.after[a].clone();
            add(&mut next, &flow.after[b]);
            together(&next, &mut open, work)?;
        }
    }
    Some(greedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// The cut, and how much work it was.
    fn cut_of(text: &str, fuel: usize) -> (Cut, usize) {
        let mut rules = crate::gbnf::parse(text).unwrap();
        rules.inline().unwrap();
        let mut work = Work::new(fuel);
        let cut = cut_within(&mut rules, &mut work);
        (cut, fuel - work.left())
    }

    /// Each lexeme is of a size that one may have. All automata together would take gigabytes.
    #[test]
    fn all_automata_together_are_bounded() {
        let grammar = |n: usize, letters: usize| {
            let begins: Vec<String> = (0..n).map(|i| format!("\"{i:04}\" big <[5]>")).collect();
            format!("root ::= {}\nbig ::= {}", begins.join(" | "), "[a-z]? ".repeat(letters))
        };
        assert_eq!(cut_of(&grammar(20, 10), FUEL).0.lexemes.len(), 20);
        let (cut, spent) = cut_of(&grammar(500, 100), 2_000_000);
        assert_eq!((cut.lexemes.len(), spent), (11, 2_000_000), "digits and letters by themselves");
    }

    /// What comes first travels from the last rule to the first, and what comes next the other way.
    #[test]
    fn a_chain_of_rules_is_gone_through_in_a_few_rounds() {
        let spent = |n: usize, up: bool| {
            let mut text = String::from("root ::= r0 <[5]>\n");
            let mut rules: Vec<_> = (0..n).map(|i| format!("r{i} ::= r{} <[5]>\n", i + 1)).collect();
            if up {
                rules.reverse();
            }
            let _ = write!(text, "{}r{n} ::= [a-z]+", rules.concat());
            cut_of(&text, FUEL).1
        };
        for up in [true, false] {
            let (some, more) = (spent(500, up), spent(2_000, up));
            assert!(more < 5 * some, "{more} for 2000 rules, {some} for 500");
        }
    }

    /// Each time that a class stands in a lexeme it is written out.
    #[test]
    fn large_classes_many_times_are_no_lexeme() {
        let cut_of = |n: usize| cut(&mut crate::regex::parse(&"\\w".repeat(n)).unwrap());
        assert_eq!(cut_of(1_000).rules[0][0].len(), 1);
        assert_eq!(cut_of(4_900).rules[1][0].len(), 4_900);
    }

    /// Each lexeme may follow each, so each two of them would ask for all pairs again.
    #[test]
    fn the_same_lexemes_are_put_together_once() {
        let words: Vec<String> = (0..100).map(|i| format!("[a-z]{{{}}} <[5]>? root?", i + 1)).collect();
        let (_, spent) = cut_of(&format!("root ::= {}", words.join(" | ")), FUEL);
        assert!(spent < 2_000_000, "{spent}");
    }
}
