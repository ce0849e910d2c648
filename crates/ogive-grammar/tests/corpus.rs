//! The fuzzer's seeds, as they are and damaged: nothing a user can give as a grammar panics, hangs or is silently nothing.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use common::bytes;
use ogive_grammar::{Grammar, Vocabulary};
use ogive_sampler::Rng;
use std::fs;
use std::path::Path;

fn seeds() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/grammar");
    // Absent where the crate is tested from its package alone.
    let Ok(entries) = fs::read_dir(folder) else {
        println!("skipped: fuzz/corpus/grammar not found");
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 20, "only {} seeds", paths.len());
    paths.into_iter().map(|p| fs::read_to_string(p).unwrap()).collect()
}

/// Reads a text as each kind of grammar; gives how many compiled.
fn touch(text: &str, vocabulary: &Vocabulary) -> usize {
    let mut compiled = 0;
    for grammar in [Grammar::gbnf(text), Grammar::regex(text), Grammar::json_schema(text)] {
        match grammar.and_then(|g| g.compile(vocabulary)) {
            Ok(mut constraint) => {
                assert!(constraint.allowed().count() > 0, "{text}");
                compiled += 1;
            }
            Err(e) => {
                let e = e.to_string();
                assert!(
                    !e.contains("this is a mistake") && !e.contains("backtrace") && e.len() < 1500,
                    "{text}: {e}"
                );
            }
        }
    }
    compiled
}

#[test]
fn seeds_are_read_or_refused() {
    let vocabulary = bytes();
    let seeds = seeds();
    let compiled: usize = seeds.iter().map(|text| touch(text, &vocabulary)).sum();
    assert!(seeds.is_empty() || compiled >= 15, "{compiled} compiled");
}

/// Characters that mean something in one of the languages.
const ODD: &[u8] = b"()[]{}*+?|\"\\^-.,:=<>! abr09#\n";

/// Characters changed, taken out, and pieces copied about, from a fixed seed: what a fuzzer does first.
#[test]
fn damaged_seeds_are_harmless() {
    let (vocabulary, seeds) = (bytes(), seeds());
    let mut rng = Rng::new(77);
    let mut below = |n: usize| rng.below(n.max(1) as u64) as usize;
    let mut compiled = 0;
    for _ in 0..if seeds.is_empty() { 0 } else { 700 } {
        let mut text: Vec<char> = seeds[below(seeds.len())].chars().collect();
        for _ in 0..1 + below(3) {
            let at = below(text.len());
            match below(4) {
                0 if at < text.len() => text[at] = ODD[below(ODD.len())].into(),
                1 if at < text.len() => drop(text.remove(at)),
                2 => text.truncate(at),
                _ => {
                    let to = at + below(text.len() - at);
                    let piece: Vec<char> = text[at..to].to_vec();
                    let here = below(text.len());
                    text.splice(here..here, piece);
                }
            }
        }
        compiled += touch(&text.iter().collect::<String>(), &vocabulary);
    }
    assert!(seeds.is_empty() || compiled > 50, "{compiled} compiled");
}
