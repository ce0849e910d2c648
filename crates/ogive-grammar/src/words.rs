//! Long lists of alternatives, such as the words of a language: a few large expressions instead of one for each word.
//!
//! They are put in order and cut into pieces that an automaton can run, and in each piece what words begin with alike is written once:
//! then a text is in few of them at a time, and who asks what two lexemes have in common is done soon.

use crate::expr::{Arena, Id, Node};

/// Parts of one piece: fewer than places in an automaton.
pub(crate) const MAX_SIZE: u64 = 4_000;
/// Beginnings in beginnings.
const MAX_LEVELS: usize = 16;

/// The same alternatives in pieces, each with those that are in it.
pub(crate) fn pieces(arena: &mut Arena, alternatives: &[Id]) -> Vec<(Id, Vec<Id>)> {
    let parts = |id: Id| match arena.node(id) {
        Node::Seq(ids) => ids.clone(),
        _ => vec![id],
    };
    let mut all: Vec<(Vec<Id>, Id)> = alternatives.iter().map(|&id| (parts(id), id)).collect();
    all.sort_unstable();
    let mut pieces = Vec::new();
    let mut rest = &all[..];
    while !rest.is_empty() {
        let mut size = 0;
        let fit = rest.iter().take_while(|(_, id)| {
            size += arena.facts(*id).size;
            size <= MAX_SIZE
        });
        let (piece, after) = rest.split_at(fit.count().max(1));
        let words: Vec<&[Id]> = piece.iter().map(|(word, _)| &word[..]).collect();
        pieces.push((shared(arena, &words, 0), piece.iter().map(|(_, id)| *id).collect()));
        rest = after;
    }
    pieces
}

/// One of some sequences in order, with beginnings shared.
fn shared(arena: &mut Arena, words: &[&[Id]], level: usize) -> Id {
    let mut ways = Vec::new();
    // The empty one comes before all others.
    let (empty, words) = match words {
        [[], rest @ ..] => (true, rest),
        _ => (false, words),
    };
    for group in words.chunk_by(|a, b| level < MAX_LEVELS && a.first() == b.first()) {
        ways.push(match group {
            [first, .., last] => {
                let same = first.iter().zip(*last).take_while(|(a, b)| a == b).count();
                let rests: Vec<&[Id]> = group.iter().map(|word| &word[same..]).collect();
                let rest = shared(arena, &rests, level + 1);
                arena.seq([&first[..same], &[rest]].concat())
            }
            _ => arena.seq(group.concat()),
        });
    }
    let any = arena.alt(ways);
    if empty { arena.repeat(any, 0, Some(1)) } else { any }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// All texts of an expression without endless repetitions.
    fn texts(arena: &Arena, id: Id) -> BTreeSet<String> {
        match arena.node(id) {
            Node::Class(class) => {
                let all = class.ranges().iter().flat_map(|&(low, high)| low..=high);
                all.filter_map(char::from_u32).map(String::from).collect()
            }
            Node::Seq(ids) => ids.iter().fold(BTreeSet::from([String::new()]), |all, &id| {
                let next = texts(arena, id);
                all.iter().flat_map(|a| next.iter().map(move |b| format!("{a}{b}"))).collect()
            }),
            Node::Alt(ids) => ids.iter().flat_map(|&id| texts(arena, id)).collect(),
            Node::Repeat(id, ..) => texts(arena, *id).into_iter().chain([String::new()]).collect(),
            Node::Token(_) | Node::Rule(_) => BTreeSet::new(),
        }
    }

    #[test]
    fn pieces_have_the_words_that_went_in() {
        let mut arena = Arena::default();
        let words: BTreeSet<String> =
            (0..3_000).map(|i| format!("{:b}", i * 7 + 1)).chain((1..40).map(|n| "a".repeat(n))).collect();
        let mut all: Vec<Id> = words.iter().map(|word| arena.literal(word.chars().map(u32::from))).collect();
        all.push(arena.empty());
        let pieces = pieces(&mut arena, &all);
        assert!(pieces.len() > 3, "{}", pieces.len());
        let mut found = BTreeSet::new();
        for (id, members) in pieces {
            let facts = arena.facts(id);
            assert!(facts.size <= MAX_SIZE && facts.depth < 80, "{facts:?}");
            let some = texts(&arena, id);
            let own: BTreeSet<String> = members.iter().flat_map(|&id| texts(&arena, id)).collect();
            assert_eq!(some, own);
            found.extend(some);
        }
        assert!(found.remove("") && found == words);
    }
}
