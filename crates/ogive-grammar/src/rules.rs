//! A grammar's rules, and what can be said of them before there is a vocabulary: which can end, and which are regular.
//!
//! Regular rules are written out where they are used, so that what a grammar says of characters becomes few large expressions:
//! those run in an automaton, and only what is left between them costs a parser's step. A rule that calls itself at its end
//! alone, as llama.cpp's grammars for blanks did for years (`ws ::= ([ \t\n] ws)?`), is a repetition and counts as regular.

use crate::error::{GrammarError, at_most};
use crate::expr::{Arena, Id, Node};
use std::collections::{BTreeSet, HashMap};

/// Parts of a grammar: grammars made from schemas of whole interfaces have some ten thousand.
const MAX_NODES: usize = 200_000;
/// Parts in parts: what is walked by recursion.
const MAX_DEPTH: u32 = 400;
/// Ranges of characters in all classes: `\w` has 800.
const MAX_RANGES: usize = 4_000_000;
/// Beyond so many parts, written out, a rule stays one.
pub(crate) const MAX_INLINE: u64 = 20_000;
/// Beyond this depth too: regular expressions are read by recursion.
pub(crate) const MAX_INLINE_DEPTH: u32 = 100;

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) body: Id,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) arena: Arena,
    pub(crate) rules: Vec<Rule>,
    pub(crate) root: u32,
}

/// Whether a grammar is of a sensible size as far as it was read: asked after each part, for one rule can be the whole text.
pub(crate) fn fits(arena: &Arena) -> Result<(), GrammarError> {
    at_most("its number of parts", arena.len(), MAX_NODES)?;
    ranges_fit(arena)
}

fn ranges_fit(arena: &Arena) -> Result<(), GrammarError> {
    at_most("its number of ranges of characters", arena.weight(), MAX_RANGES)
}

/// What each rule becomes where it is used; `None` leaves it.
type Replacement = HashMap<u32, Id>;

impl Rules {
    pub(crate) fn declare(&mut self, name: &str) -> u32 {
        let body = self.arena.never();
        self.rules.push(Rule { name: name.into(), body });
        u32::try_from(self.rules.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn define(&mut self, rule: u32, body: Id) {
        self.rules[rule as usize].body = body;
    }

    pub(crate) fn body(&self, rule: u32) -> Id {
        self.rules[rule as usize].body
    }

    /// One rule that is this expression.
    pub(crate) fn single(arena: Arena, body: Id) -> Self {
        Self { arena, rules: vec![Rule { name: "root".into(), body }], root: 0 }
    }

    /// For each rule, those that it names.
    fn references(&self) -> Vec<BTreeSet<u32>> {
        let mut seen = vec![u32::MAX; self.arena.len()];
        (0..)
            .zip(&self.rules)
            .map(|(r, rule)| {
                let (mut found, mut open) = (BTreeSet::new(), vec![rule.body]);
                while let Some(id) = open.pop() {
                    if std::mem::replace(&mut seen[id as usize], r) == r {
                        continue;
                    }
                    match self.arena.node(id) {
                        Node::Rule(other) => drop(found.insert(*other)),
                        Node::Seq(ids) | Node::Alt(ids) => open.extend(ids),
                        Node::Repeat(id, ..) => open.push(*id),
                        Node::Class(_) | Node::Token(_) => {}
                    }
                }
                found
            })
            .collect()
    }

    /// Takes out what can never end.
    ///
    /// # Errors
    /// If nothing is left, or the rules are nested too deeply.
    pub(crate) fn prune(mut self) -> Result<Self, GrammarError> {
        for rule in &self.rules {
            let depth = self.arena.facts(rule.body).depth;
            at_most("its depth in groups and repetitions", depth as usize, MAX_DEPTH as usize)?;
        }
        let ends = self.ends();
        if !ends[self.root as usize] {
            return Err(GrammarError::Endless { name: self.rules[self.root as usize].name.clone() });
        }
        if ends.contains(&false) {
            let never = self.arena.never();
            let gone = (0..).zip(&ends).filter(|(_, ends)| !**ends).map(|(r, _)| (r, never)).collect();
            self.replace_all(&gone);
            ranges_fit(&self.arena)?;
        }
        Ok(self)
    }

    /// For each rule, whether it can end.
    ///
    /// Each part counts those of its parts that it still waits for, so that none is looked at twice: a rule's whole body for
    /// each rule in it would be too much.
    fn ends(&self) -> Vec<bool> {
        let mut part_of: Vec<Vec<Id>> = vec![Vec::new(); self.arena.len()];
        let mut body_of: Vec<Vec<u32>> = vec![Vec::new(); self.arena.len()];
        let mut calls: Vec<Option<Id>> = vec![None; self.rules.len()];
        let mut missing = vec![1usize; self.arena.len()];
        let mut open = Vec::new();
        for id in (0..).take(self.arena.len()) {
            let needs = &mut missing[id as usize];
            match self.arena.node(id) {
                Node::Class(_) | Node::Token(_) => *needs = 0,
                Node::Rule(rule) => calls[*rule as usize] = Some(id),
                Node::Seq(ids) => {
                    *needs = ids.len();
                    ids.iter().for_each(|&part| part_of[part as usize].push(id));
                }
                // One of them will do.
                Node::Alt(ids) => ids.iter().for_each(|&part| part_of[part as usize].push(id)),
                Node::Repeat(_, 0, _) => *needs = 0,
                Node::Repeat(part, ..) => part_of[*part as usize].push(id),
            }
            if *needs == 0 {
                open.push(id);
            }
        }
        for (r, rule) in (0..).zip(&self.rules) {
            body_of[rule.body as usize].push(r);
        }
        let mut ends = vec![false; self.rules.len()];
        while let Some(id) = open.pop() {
            let rules = &body_of[id as usize];
            rules.iter().for_each(|&rule| ends[rule as usize] = true);
            let calls = rules.iter().filter_map(|&rule| calls[rule as usize]);
            for whole in part_of[id as usize].iter().copied().chain(calls) {
                // An alternative may come after the one that did.
                let left = missing[whole as usize].checked_sub(1);
                if left == Some(0) {
                    open.push(whole);
                }
                missing[whole as usize] = left.unwrap_or(0);
            }
        }
        ends
    }

    fn replace_all(&mut self, with: &Replacement) {
        let mut done = HashMap::new();
        for r in 0..self.rules.len() {
            self.rules[r].body = self.replace(self.rules[r].body, with, &mut done);
        }
    }

    /// The expression with other rules in it.
    fn replace(&mut self, id: Id, with: &Replacement, done: &mut HashMap<Id, Id>) -> Id {
        if let Some(&new) = done.get(&id) {
            return new;
        }
        // Sets of characters put together are new sets; the caller sees that there are too many.
        if self.arena.weight() > MAX_RANGES {
            return id;
        }
        let new = match self.arena.node(id).clone() {
            Node::Class(_) | Node::Token(_) => id,
            Node::Rule(r) => with.get(&r).copied().unwrap_or(id),
            Node::Seq(ids) => {
                let ids = ids.into_iter().map(|id| self.replace(id, with, done)).collect();
                self.arena.seq(ids)
            }
            Node::Alt(ids) => {
                let ids = ids.into_iter().map(|id| self.replace(id, with, done)).collect();
                self.arena.alt(ids)
            }
            Node::Repeat(inner, min, max) => {
                let inner = self.replace(inner, with, done);
                self.arena.repeat(inner, min, max)
            }
        };
        done.insert(id, new);
        new
    }

    /// Writes regular rules out where they are used.
    ///
    /// # Errors
    /// If that makes too many sets of characters.
    pub(crate) fn inline(&mut self) -> Result<(), GrammarError> {
        let references = self.references();
        let mut used_by = vec![Vec::new(); self.rules.len()];
        let mut missing = vec![0usize; self.rules.len()];
        for (r, names) in (0u32..).zip(&references) {
            for &name in names.iter().filter(|&&name| name != r) {
                used_by[name as usize].push(r);
                missing[r as usize] += 1;
            }
        }
        let mut regular = Replacement::new();
        let mut open: Vec<u32> = (0..).zip(&missing).filter(|(_, n)| **n == 0).map(|(r, _)| r).collect();
        while let Some(r) = open.pop() {
            let mut body = self.replace(self.body(r), &regular, &mut HashMap::new());
            if references[r as usize].contains(&r) {
                let Some(repeated) = self.unrolled(r, body) else { continue };
                body = repeated;
            }
            let facts = self.arena.facts(body);
            if facts.regular && facts.size <= MAX_INLINE && facts.depth <= MAX_INLINE_DEPTH {
                regular.insert(r, body);
                for &user in &used_by[r as usize] {
                    missing[user as usize] -= 1;
                    if missing[user as usize] == 0 {
                        open.push(user);
                    }
                }
            }
        }
        self.replace_all(&regular);
        for (r, body) in regular {
            self.define(r, body);
        }
        ranges_fit(&self.arena)
    }

    /// A rule that calls itself only at the end of its alternatives, or only at their beginning, as a repetition (Arden's
    /// lemma).
    fn unrolled(&mut self, rule: u32, body: Id) -> Option<Id> {
        let mut recursive = HashMap::new();
        for at_end in [true, false] {
            let (mut again, mut once) = (Vec::new(), Vec::new());
            if self.split(body, rule, at_end, &mut recursive, &mut again, &mut once).is_some() {
                let (again, once) = (self.arena.alt(again), self.arena.alt(once));
                let again = self.arena.repeat(again, 0, None);
                return Some(self.arena.seq(if at_end { vec![again, once] } else { vec![once, again] }));
            }
        }
        None
    }

    /// Parts the alternatives of `id` into what stands beside a call of `rule`, and those without one.
    fn split(
        &mut self,
        id: Id,
        rule: u32,
        at_end: bool,
        known: &mut HashMap<Id, bool>,
        again: &mut Vec<Id>,
        once: &mut Vec<Id>,
    ) -> Option<()> {
        if !self.calls(id, rule, known) {
            once.push(id);
            return Some(());
        }
        match self.arena.node(id).clone() {
            Node::Rule(_) => {
                again.push(self.arena.empty());
                Some(())
            }
            Node::Alt(ids) => {
                ids.into_iter().try_for_each(|id| self.split(id, rule, at_end, known, again, once))
            }
            Node::Repeat(inner, 0, Some(1)) => {
                once.push(self.arena.empty());
                self.split(inner, rule, at_end, known, again, once)
            }
            Node::Seq(mut ids) => {
                let edge = if at_end { ids.pop()? } else { ids.remove(0) };
                if ids.iter().any(|&id| self.calls(id, rule, known)) {
                    return None;
                }
                let (mut inner_again, mut inner_once) = (Vec::new(), Vec::new());
                self.split(edge, rule, at_end, known, &mut inner_again, &mut inner_once)?;
                // One part, however many alternatives come beside it.
                let rest = self.arena.seq(ids);
                for (parts, all) in [(inner_again, &mut *again), (inner_once, &mut *once)] {
                    for part in parts {
                        let whole = if at_end { vec![rest, part] } else { vec![part, rest] };
                        all.push(self.arena.seq(whole));
                    }
                }
                Some(())
            }
            _ => None,
        }
    }

    fn calls(&self, id: Id, rule: u32, known: &mut HashMap<Id, bool>) -> bool {
        if let Some(&calls) = known.get(&id) {
            return calls;
        }
        let calls = match self.arena.node(id) {
            Node::Class(_) | Node::Token(_) => false,
            Node::Rule(r) => *r == rule,
            Node::Seq(ids) | Node::Alt(ids) => ids.iter().any(|&id| self.calls(id, rule, known)),
            Node::Repeat(id, ..) => self.calls(*id, rule, known),
        };
        known.insert(id, calls);
        calls
    }
}

#[cfg(test)]
mod tests {
    use crate::expr::Node;
    use crate::gbnf::parse;

    fn is_regular(text: &str) -> bool {
        let mut rules = parse(text).unwrap();
        rules.inline().unwrap();
        rules.arena.facts(rules.body(rules.root)).regular
    }

    #[test]
    fn rules_that_only_repeat_are_regular() {
        for regular in [
            "root ::= a \"x\"\na ::= b b\nb ::= [0-9]+",
            "root ::= \"a\" ws \"b\"\nws ::= ([ \\t\\n] ws)?",
            "root ::= \"a\" root | \"b\"",
            "root ::= root \"a\" | \"b\"",
            "root ::= \"x\" (\"a\" root | \"b\" (\"c\" root)?)",
            "root ::= (\"a\" | root) [ab]?",
        ] {
            assert!(is_regular(regular), "{regular}");
        }
        for not in [
            "root ::= \"(\" root \")\" | \"x\"",
            "root ::= a | \"x\"\na ::= \"a\" root",
            "root ::= root root | \"a\"",
            "root ::= \"a\" <[3]>",
        ] {
            assert!(!is_regular(not), "{not}");
        }
    }

    /// Each rule is the one before it twice: written out it would have 2^60 parts.
    #[test]
    fn doubling_rules_stay_rules() {
        let mut text = String::from("root ::= r60\nr0 ::= \"a\" [bc]\n");
        for i in 1..=60 {
            text += &format!("r{i} ::= r{j} r{j}\n", j = i - 1);
        }
        let mut rules = parse(&text).unwrap();
        rules.inline().unwrap();
        assert!(rules.arena.len() < 1000);
        assert!(!rules.arena.facts(rules.body(rules.root)).regular);
    }

    #[test]
    fn what_cannot_end_is_taken_out() {
        for text in [
            "root ::= \"a\" | b\nb ::= \"x\" b",
            "root ::= b{0,2} \"a\"\nb ::= b{1} | c c\nc ::= b | d\nd ::= c{2}",
            "root ::= (b | \"a\" | \"b\" b | \"c\")+ d*\nb ::= d \"x\" b\nd ::= b | \"y\" | \"z\"",
        ] {
            let rules = parse(text).unwrap();
            assert!(!rules.references()[rules.root as usize].contains(&1), "{text}: {rules:?}");
        }
    }

    /// In this order of the rules each that is found to end is the next of the long one, which would be looked through again.
    #[test]
    fn long_sequences_of_rules_are_looked_through_once() {
        let n = 60_000;
        let mut text = String::new();
        (0..n).for_each(|i| text += &format!("r{i} ::= \"a\"\n"));
        text += "root ::=";
        (0..n).rev().for_each(|i| text += &format!(" r{i}"));
        let rules = parse(&text).unwrap();
        assert_eq!(rules.rules.len(), n + 1);
    }

    /// Each rule's set is the large one and a character more.
    #[test]
    fn sets_of_characters_are_bounded_when_rules_are_written_out() {
        let even: String = (0..5_000).filter_map(|i| char::from_u32(0x1_0000 + 2 * i)).collect();
        let mut text = format!("big ::= [{even}]\nroot ::= \"x\"");
        (0..5_000).for_each(|i| text += &format!(" | r{i} <[5]>"));
        (0..5_000).for_each(|i| text += &format!("\nr{i} ::= big | [\\U{:08x}]", 0x1_0001 + 2 * i));
        let mut rules = parse(&text).unwrap();
        let e = rules.inline().unwrap_err().to_string();
        assert!(e.contains("its number of ranges of characters is 400"), "{e}");
        assert!(rules.arena.weight() < 4_100_000);
    }

    /// What the alternatives of a rule that calls itself have before them is one part and no copy for each.
    #[test]
    fn rules_made_repetitions_grow_little() {
        let (same, n) = ("\"b\" \"c\" ".repeat(500), 500);
        let ways: String = (0..n).map(|i| format!("| \"{i}\" root ")).collect();
        let mut rules = parse(&format!("root ::= \"x\" | {same} (\"a\" {ways})")).unwrap();
        rules.inline().unwrap();
        let parts = |id| match rules.arena.node(id) {
            Node::Seq(ids) | Node::Alt(ids) => ids.len(),
            _ => 0,
        };
        let all: usize = (0..).take(rules.arena.len()).map(parts).sum();
        assert!(all < 20 * n, "{all}");
    }
}
