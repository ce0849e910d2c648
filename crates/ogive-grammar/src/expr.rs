//! What a grammar is made of: characters, tokens and rules, in sequence, in alternatives and repeated.
//!
//! Nodes are interned: equal expressions are one node, however often a grammar repeats them, and what is known of a node
//! (its size, whether it is regular) is reckoned once, when it is made. A tree of boxes would be plainer, but inlining rules
//! into it can double it with every rule.

use std::collections::{HashMap, HashSet};

/// A node, by its place.
pub(crate) type Id = u32;

/// Characters, both ends of each range included.
pub(crate) type Ranges = [(u32, u32)];

/// A set of characters: ascending ranges with gaps between them, both ends included, no surrogates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class(Vec<(u32, u32)>);

/// What UTF-8 has no bytes for.
const SURROGATES: (u32, u32) = (0xd800, 0xdfff);
const LAST: u32 = 0x10_ffff;

impl Class {
    pub(crate) fn new(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        let mut clean = Vec::with_capacity(merged.len());
        for (low, high) in merged {
            let below = (low, high.min(SURROGATES.0 - 1));
            let above = (low.max(SURROGATES.1 + 1), high.min(LAST));
            clean.extend([below, above].into_iter().filter(|(low, high)| low <= high));
        }
        Self(clean)
    }

    pub(crate) fn one(c: u32) -> Self {
        Self::new(vec![(c, c)])
    }

    /// Every character.
    pub(crate) fn any() -> Self {
        Self::new(vec![(0, LAST)])
    }

    /// Every other character.
    pub(crate) fn negated(&self) -> Self {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0;
        for &(low, high) in &self.0 {
            if next < low {
                gaps.push((next, low - 1));
            }
            next = high + 1;
        }
        if next <= LAST {
            gaps.push((next, LAST));
        }
        Self::new(gaps)
    }

    pub(crate) fn ranges(&self) -> &Ranges {
        &self.0
    }
}

/// A token by its number or its spelling, or any but that one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenRef {
    /// As written, with its brackets: `<[10]>`, `<think>`.
    pub(crate) text: String,
    /// The number, where it was given.
    pub(crate) id: Option<u32>,
    pub(crate) negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Class(Class),
    Token(TokenRef),
    Rule(u32),
    /// All of them in order; none is the empty text.
    Seq(Vec<Id>),
    /// One of them; none is nothing at all.
    Alt(Vec<Id>),
    /// At least, and at most if there is a bound.
    Repeat(Id, u32, Option<u32>),
}

/// What is known of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Without rules and tokens.
    pub(crate) regular: bool,
    /// Takes the empty text; only for what is regular.
    pub(crate) nullable: bool,
    /// Nodes when written out.
    pub(crate) size: u64,
    pub(crate) depth: u32,
    /// Ranges of characters when written out.
    pub(crate) ranges: u64,
}

/// All nodes of a grammar.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arena {
    nodes: Vec<Node>,
    facts: Vec<Facts>,
    ids: HashMap<Node, Id>,
    /// Ranges of all classes.
    weight: usize,
}

impl Arena {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Ranges of characters in all nodes. They are not bounded by the text that a grammar is read from: `\w` is hundreds, and
    /// a set with one more character is another set.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    /// Whether a token is in any node.
    pub(crate) fn names_tokens(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node, Node::Token(_)))
    }

    /// The characters of a class; what is none has none.
    pub(crate) fn ranges(&self, id: Id) -> &Ranges {
        match self.node(id) {
            Node::Class(class) => class.ranges(),
            _ => &[],
        }
    }

    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    pub(crate) fn facts(&self, id: Id) -> Facts {
        self.facts[id as usize]
    }

    fn make(&mut self, node: Node) -> Id {
        if let Some(&id) = self.ids.get(&node) {
            return id;
        }
        let of = |ids: &[Id]| ids.iter().map(|&i| self.facts(i)).collect::<Vec<_>>();
        let (children, regular, nullable) = match &node {
            Node::Class(_) => (Vec::new(), true, false),
            Node::Token(_) | Node::Rule(_) => (Vec::new(), false, false),
            Node::Seq(ids) => {
                let c = of(ids);
                let nullable = c.iter().all(|f| f.nullable);
                (c, true, nullable)
            }
            Node::Alt(ids) => {
                let c = of(ids);
                let nullable = c.iter().any(|f| f.nullable);
                (c, true, nullable)
            }
            Node::Repeat(id, min, _) => {
                let c = of(&[*id]);
                let nullable = *min == 0 || c.iter().all(|f| f.nullable);
                (c, true, nullable)
            }
        };
        let own = if let Node::Class(class) = &node { class.ranges().len() } else { 0 };
        self.weight += own;
        let facts = Facts {
            regular: regular && children.iter().all(|f| f.regular),
            nullable,
            size: children.iter().fold(1, |n: u64, f| n.saturating_add(f.size)),
            depth: 1 + children.iter().map(|f| f.depth).max().unwrap_or(0),
            ranges: children.iter().fold(own as u64, |n, f| n.saturating_add(f.ranges)),
        };
        let id = Id::try_from(self.nodes.len()).unwrap_or(Id::MAX);
        self.nodes.push(node.clone());
        self.facts.push(facts);
        self.ids.insert(node, id);
        id
    }

    pub(crate) fn class(&mut self, class: Class) -> Id {
        if class.0.is_empty() { self.never() } else { self.make(Node::Class(class)) }
    }

    pub(crate) fn token(&mut self, token: TokenRef) -> Id {
        self.make(Node::Token(token))
    }

    pub(crate) fn rule(&mut self, rule: u32) -> Id {
        self.make(Node::Rule(rule))
    }

    pub(crate) fn empty(&mut self) -> Id {
        self.make(Node::Seq(Vec::new()))
    }

    pub(crate) fn never(&mut self) -> Id {
        self.make(Node::Alt(Vec::new()))
    }

    pub(crate) fn is_never(&self, id: Id) -> bool {
        matches!(self.node(id), Node::Alt(ids) if ids.is_empty())
    }

    pub(crate) fn is_empty(&self, id: Id) -> bool {
        matches!(self.node(id), Node::Seq(ids) if ids.is_empty())
    }

    pub(crate) fn seq(&mut self, mut ids: Vec<Id>) -> Id {
        if ids.iter().any(|&id| self.is_never(id)) {
            return self.never();
        }
        ids.retain(|&id| !self.is_empty(id));
        if let [one] = ids[..] { one } else { self.make(Node::Seq(ids)) }
    }

    /// Alternatives that are single characters become one set.
    pub(crate) fn alt(&mut self, ids: Vec<Id>) -> Id {
        let mut ranges = Vec::new();
        let mut others = Vec::with_capacity(ids.len());
        let mut seen = HashSet::with_capacity(ids.len());
        for id in ids.into_iter().filter(|&id| seen.insert(id)) {
            match self.node(id) {
                Node::Class(class) => ranges.extend_from_slice(class.ranges()),
                Node::Alt(inner) if inner.is_empty() => {}
                _ => others.push(id),
            }
        }
        if !ranges.is_empty() {
            let class = self.class(Class::new(ranges));
            others.push(class);
        }
        if let [one] = others[..] { one } else { self.make(Node::Alt(others)) }
    }

    pub(crate) fn repeat(&mut self, id: Id, min: u32, max: Option<u32>) -> Id {
        let never = self.is_never(id);
        match (min, max) {
            (_, Some(0)) => self.empty(),
            (1, Some(1)) => id,
            (0, _) if never => self.empty(),
            _ if never || self.is_empty(id) => id,
            _ => self.make(Node::Repeat(id, min, max)),
        }
    }

    /// The text, character by character.
    pub(crate) fn literal(&mut self, chars: impl IntoIterator<Item = u32>) -> Id {
        let ids = chars.into_iter().map(|c| self.class(Class::one(c))).collect();
        self.seq(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_merge_negate_and_leave_out_surrogates() {
        let class = Class::new(vec![(98, 100), (97, 97), (101, 101), (120, 122)]);
        assert_eq!(class.ranges(), [(97, 101), (120, 122)]);
        assert_eq!(class.negated().negated(), class);
        assert_eq!(Class::any().ranges(), [(0, 0xd7ff), (0xe000, LAST)]);
        assert!(Class::new(vec![(0xd800, 0xdabc)]).ranges().is_empty());
    }

    #[test]
    fn equal_expressions_are_one_node() {
        let mut a = Arena::default();
        let x = a.literal([97, 98]);
        let y = a.literal([97, 98]);
        assert_eq!(x, y);
        let (b, c) = (a.literal([98]), a.literal([99]));
        let set = a.alt(vec![b, c]);
        assert_eq!(a.node(set), &Node::Class(Class::new(vec![(98, 99)])));
        let never = a.never();
        let star = a.repeat(never, 0, None);
        assert!(a.is_empty(star));
        assert!(a.facts(star).nullable && a.facts(star).regular);
        let rule = a.rule(0);
        let both = a.seq(vec![rule, x]);
        assert!(!a.facts(both).regular);
    }
}
