//! The fuzzer's seeds for tokenizer.json: what each must say, the whole corpus replayed, and a short fuzzing run of our own.
//! `cargo test -p ogive-tokenizer --test corpus -- --ignored` writes the seeds anew from `common/samples.rs`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "skips and figures are to be seen")]

mod common;

use common::samples;
use common::touch::touch;
use ogive_tokenizer::Tokenizer;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tokenizer_json")
}

#[test]
fn every_seed_opens_or_says_why_not() {
    for (name, bytes, error) in samples::seeds() {
        assert_eq!(touch(&bytes), error.is_none(), "{name}: {:?}", Tokenizer::from_json(&bytes).err());
        if let (Some(word), Err(e)) = (error, Tokenizer::from_json(&bytes)) {
            assert!(e.to_string().contains(word), "{name}: {e}");
        }
    }
}

#[test]
fn every_file_of_the_corpus_is_harmless() {
    // Absent where the crate is tested from its package alone.
    let Ok(entries) = fs::read_dir(folder()) else {
        println!("skipped: fuzz/corpus/tokenizer_json not found");
        return;
    };
    let mut replayed = 0;
    for entry in entries {
        touch(&fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 20, "only {replayed} files were replayed");
}

/// Bytes flipped, cut and copied about, from a fixed seed: what a fuzzer does first.
#[test]
fn damaged_seeds_are_harmless() {
    // What opens is changed in ways that often open.
    let seeds: Vec<Vec<u8>> = samples::seeds().into_iter().filter(|s| s.2.is_none()).map(|s| s.1).collect();
    let mut state = 99u64;
    let mut below = move |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as usize) % n
    };
    let mut opened = 0;
    for _ in 0..6000 {
        let mut bytes = seeds[below(seeds.len())].clone();
        for _ in 0..1 + below(4) {
            let at = below(bytes.len());
            match below(5) {
                0 => bytes[at] ^= 1 << below(8),
                1 => bytes[at] = b"0123456789\"[]{},:-.e"[below(20)],
                2 => drop(bytes.drain(at..(at + 1 + below(8)).min(bytes.len()))),
                3 => bytes.insert(at, b"09-\"\\ "[below(6)]),
                _ => {
                    let from = below(bytes.len());
                    let part = bytes[from..(from + 12).min(bytes.len())].to_vec();
                    bytes.splice(at..at, part);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        opened += usize::from(touch(&bytes));
    }
    println!("{opened} of 6000 damaged files opened");
    assert!(opened > 500, "damage that always stops the parser tests only the parser");
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, bytes, _) in samples::seeds().into_iter().filter(|(_, bytes, _)| bytes.len() < 20_000) {
        fs::write(folder().join(name), bytes).unwrap();
    }
}
