//! Texts with choices in them, and slots that are filled once a text.
//!
//! `[a|b|]` is one of its parts, `{thing}` a word of the list of that name, the same wherever it stands in the text; `{thing2}` is
//! another word of the list. `{He}` is `{he}` with a capital, `{a:thing}` has its article, `{food:s}` is the plural. A small
//! grammar and not a program for each story: who adds a plot writes down how it goes.

use crate::rng::Rng;
use std::collections::{BTreeMap, HashMap};

/// The lists of `words.txt`.
#[derive(Debug)]
pub(crate) struct Words(HashMap<&'static str, Vec<&'static str>>);

impl Words {
    pub(crate) fn new() -> Self {
        let lines = include_str!("words.txt").lines().filter(|l| !l.starts_with('#'));
        Self(lines.filter_map(|l| l.split_once(": ")).map(|(k, v)| (k, v.split(", ").collect())).collect())
    }

    pub(crate) fn list(&self, name: &str) -> &[&'static str] {
        self.0.get(name).map_or(&[], |l| l)
    }
}

/// What the slots of one text hold.
#[derive(Debug)]
pub(crate) struct Scene<'w> {
    words: &'w Words,
    slots: BTreeMap<String, String>,
}

impl<'w> Scene<'w> {
    pub(crate) fn new(words: &'w Words) -> Self {
        Self { words, slots: BTreeMap::new() }
    }

    pub(crate) fn set(&mut self, slot: &str, value: impl Into<String>) {
        self.slots.insert(slot.into(), value.into());
    }

    /// What a slot holds, if anything yet.
    pub(crate) fn known(&self, slot: &str) -> Option<String> {
        self.slots.get(slot).cloned()
    }

    /// Whether a list has a word.
    pub(crate) fn is_word(&self, list: &str, word: &str) -> bool {
        self.words.list(list).contains(&word)
    }

    /// What a slot holds, drawn now if it was empty.
    ///
    /// # Panics
    /// If there is no list of that name: a mistake in the grammar, which the tests find.
    pub(crate) fn get(&mut self, slot: &str, rng: &mut Rng) -> String {
        if let Some(value) = self.slots.get(slot) {
            return value.clone();
        }
        let list = slot.trim_end_matches(char::is_numeric);
        let words = self.words.list(list);
        assert!(!words.is_empty(), "no list for the slot {slot}");
        let used: Vec<&String> =
            self.slots.iter().filter(|(k, _)| k.starts_with(list)).map(|(_, v)| v).collect();
        let free: Vec<&&str> = words.iter().filter(|w| used.iter().all(|u| u != *w)).collect();
        let value = (**rng.pick(&free)).to_owned();
        self.set(slot, &*value);
        value
    }

    /// The text with its choices made and its slots filled.
    pub(crate) fn tell(&mut self, text: &str, rng: &mut Rng) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['[', '{']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            if rest.starts_with('{') {
                let end = rest.find('}').expect("a slot ends");
                out.push_str(&self.slot(&rest[1..end], rng));
                rest = &rest[end + 1..];
            } else {
                let (parts, after) = choices(rest);
                out.push_str(&self.tell(rng.pick::<&str>(&parts), rng));
                rest = after;
            }
        }
        out.push_str(rest);
        out
    }

    fn slot(&mut self, slot: &str, rng: &mut Rng) -> String {
        if let Some(slot) = slot.strip_prefix("a:") {
            let word = self.get(slot, rng);
            let article = if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
            return format!("{article} {word}");
        }
        if let Some(slot) = slot.strip_suffix(":s") {
            return plural(&self.get(slot, rng));
        }
        let capital = slot.contains(|c: char| c.is_ascii_uppercase());
        let value = self.get(&slot.to_ascii_lowercase(), rng);
        if capital { capitalized(&value) } else { value }
    }
}

fn plural(word: &str) -> String {
    match word.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if word.ends_with("ch") => format!("{word}es"),
        None => format!("{word}s"),
    }
}

pub(crate) fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// The parts of the choice that `text` begins with, and what follows it.
fn choices(text: &str) -> (Vec<&str>, &str) {
    let (mut depth, mut start, mut parts) = (0, 1, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => {
                parts.push(&text[start..i]);
                return (parts, &text[i + 1..]);
            }
            ']' => depth -= 1,
            '|' if depth == 1 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    panic!("a choice without an end: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_nest_and_slots_stay() {
        let words = Words::new();
        let mut scene = Scene::new(&words);
        scene.set("he", "she");
        scene.set("food", "apple");
        let text = scene.tell("{He} [[x|x]|x] {a:food} {food:s}[|] {thing} {thing}", &mut Rng::new(1));
        let (start, thing) = text.split_once(" apples ").unwrap();
        assert_eq!(start, "She x an apple");
        assert_eq!(thing[..thing.len() / 2], thing[thing.len() / 2 + 1..]);
        assert_ne!(scene.get("thing2", &mut Rng::new(1)), scene.get("thing", &mut Rng::new(1)));
        assert_eq!([plural("peach"), plural("cherry"), plural("pie")], ["peaches", "cherries", "pies"]);
    }
}
