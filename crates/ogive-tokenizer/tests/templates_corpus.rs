//! The fuzzer's seed templates, replayed and damaged: an ordinary test that needs no fuzzer.
//!
//! Damage is deterministic, so that a failure can be run again. What the seeds render is pinned where it is short.

// Skips and counts are said aloud.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::Path;

use ogive_tokenizer::template::{ChatTemplate, DateTime, TemplateError};
use serde_json::{Value, json};

fn seeds() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/template");
    let Ok(entries) = fs::read_dir(folder) else {
        println!("skipped: fuzz/corpus/template not found");
        return Vec::new();
    };
    let mut seeds: Vec<(String, String)> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (path.file_stem().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap())
        })
        .collect();
    seeds.sort();
    seeds
}

fn render(source: &str) -> Result<String, TemplateError> {
    let variables: Value = json!({
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello, 世界", "n": [1, {"a": null}]},
        ],
        "add_generation_prompt": true,
        "bos_token": "<s>",
    });
    ChatTemplate::new(source)?.render(&variables, DateTime::new(2025, 1, 15, 12, 34, 56))
}

#[test]
fn seeds_render() {
    let expected = [
        ("alternate", "<s>[Hi][Hello, 世界]"),
        ("blocks", "CAPTURED 13<3>{{ raw }}done"),
        (
            "chatml",
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello, 世界<|im_end|>\n<|im_start|>assistant\n",
        ),
        ("date", "Today: 15 Jan 2025[0, 1, 2]{'a': 1, 'b': 2}"),
        ("filters", "3Hi[('a', 2), ('b', 1)][[1, 2], [3, 4], [5, 0]]2  a\n  bd"),
        (
            "macros",
            "[{   role: \"user\"   content: \"Hi\" },{   role: \"assistant\"   content: \"Hello, 世界\"   n: [1,{       a: null },] },]",
        ),
        ("namespace", "user/assistant:11"),
        ("numbers", "3 2 1024 0.3333333333333333 1e+16 1.5 31 True 1016"),
        ("recursive", "1a(2a(3a()))"),
        ("strings", "a\"b\\éAit'sx=03.14|7          q1,234,567['a', 'b', 'c']cbabcbd"),
        (
            "tools",
            "[{\"content\":\"Hi\",\"role\":\"user\"},{\"content\":\"Hello, \\u4e16\\u754c\",\"n\":[1,{\"a\":null}],\"role\":\"assistant\"}]",
        ),
    ];
    let seeds = seeds();
    for (name, source) in &seeds {
        let outcome = render(source);
        match expected.iter().find(|(n, _)| n == name) {
            Some((_, text)) => assert_eq!(outcome.as_deref(), Ok(*text), "{name}"),
            None if name == "doubling" => assert!(matches!(outcome, Err(TemplateError::Limit { .. }))),
            None => assert!(outcome.is_ok(), "{name}: {outcome:?}"),
        }
    }
    assert!(seeds.is_empty() || seeds.len() >= expected.len(), "a seed is missing");
}

/// A small generator of numbers: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(n.max(1)).unwrap()).unwrap()
    }
}

#[test]
fn damaged_seeds_end_in_an_error_or_a_text() {
    let seeds = seeds();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut compiled = 0;
    for (_, source) in seeds.iter().filter(|(name, _)| name != "doubling") {
        for _ in 0..60 {
            let mut chars: Vec<char> = source.chars().collect();
            for _ in 0..=dice.below(4) {
                let at = dice.below(chars.len());
                let other: Vec<char> = seeds[dice.below(seeds.len())].1.chars().collect();
                let (from, length) = (dice.below(other.len()), dice.below(12));
                match dice.below(3) {
                    0 => drop(chars.drain(at..(at + length).min(chars.len()))),
                    1 => drop(
                        chars.splice(at..at, other[from..(from + length).min(other.len())].iter().copied()),
                    ),
                    _ => chars[at] = other[from],
                }
                if chars.is_empty() {
                    chars.push('x');
                }
            }
            let damaged: String = chars.into_iter().collect();
            compiled += usize::from(!matches!(render(&damaged), Err(TemplateError::Syntax { .. })));
        }
    }
    println!("{compiled} damaged templates compiled");
    assert!(seeds.is_empty() || compiled > 20, "damage is too great to test rendering: {compiled}");
}
