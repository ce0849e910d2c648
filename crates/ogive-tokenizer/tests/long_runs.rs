//! A million characters of one kind: the right tokens, in linear time.
//!
//! Right is shown in two steps. Up to a few hundred characters the ids equal those of the plain definition of byte-pair merging.
//! And from there on a run is periodic: the longest token of that character over and over, then what a short run of the
//! remainder gives; the definition shows the same period.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "skips and figures are to be seen")]

mod common;

use common::{cpu_time, shared, vocabularies};
use ogive_tokenizer::{EncodeOptions, Tokenizer};
use std::collections::HashMap;
use std::time::Duration;

/// Byte-level BPE as its inventors wrote it: find the pair of lowest rank, merge its first occurrence, look again.
struct Slow {
    ids: HashMap<Vec<u8>, u32>,
    ranks: HashMap<(u32, u32), (usize, u32)>,
    ignore_merges: bool,
}

impl Slow {
    fn open(shared: &std::path::Path, name: &str, tokenizer: &Tokenizer) -> Self {
        let file = gguf_file::Gguf::open(shared.join(format!("vocab/ggml-vocab-{name}.gguf"))).unwrap();
        let merges = file.metadata().array_of_str("tokenizer.ggml.merges").unwrap();
        let id = |text: &str| tokenizer.token_id(text).unwrap();
        let mut ranks = HashMap::new();
        for (rank, merge) in merges.iter_str().enumerate() {
            let (a, b) = merge.unwrap().split_once(' ').unwrap();
            ranks.insert((id(a), id(b)), (rank, id(&format!("{a}{b}"))));
        }
        let all = 0..tokenizer.vocab_size() as u32;
        let ids = all.map(|id| (tokenizer.token_bytes(id).unwrap().to_vec(), id)).collect();
        Self { ids, ranks, ignore_merges: name == "llama-bpe" }
    }

    fn word(&self, word: &str) -> Vec<u32> {
        if let (true, Some(id)) = (self.ignore_merges, self.ids.get(word.as_bytes())) {
            return vec![*id];
        }
        let mut pieces: Vec<u32> = word.bytes().map(|b| self.ids[&vec![b]]).collect();
        loop {
            let pairs =
                pieces.windows(2).enumerate().filter_map(|(i, p)| Some((*self.ranks.get(&(p[0], p[1]))?, i)));
            let Some(((_, id), at)) = pairs.min_by_key(|((rank, _), i)| (*rank, *i)) else { return pieces };
            pieces.splice(at..at + 2, [id]);
        }
    }
}

const RUNS: [&str; 8] = ["a", "X", " ", "\n", "😀", "é", "世", "="];

#[test]
fn short_runs_follow_the_definition() {
    let Some(shared) = shared() else { return };
    for (name, tokenizer) in vocabularies(&shared) {
        if name == "llama-spm" {
            continue; // Its definition stands beside its code, in the crate.
        }
        let slow = Slow::open(&shared, name, &tokenizer);
        for unit in RUNS {
            // All of a run of one of these is one word, whatever the pattern.
            for n in (1..80).chain([127, 128, 129, 300]) {
                let text = unit.repeat(n);
                assert_eq!(
                    tokenizer.encode(&text, EncodeOptions::TEXT).unwrap(),
                    slow.word(&text),
                    "{name}: {n} times {unit:?}"
                );
            }
        }
    }
}

/// The ids of a run of `n`, foretold from runs of at most 8192: a period, then a remainder.
fn foretold(tokenizer: &Tokenizer, unit: &str, n: usize) -> Vec<u32> {
    let ids = |n: usize| tokenizer.encode(&unit.repeat(n), EncodeOptions::TEXT).unwrap();
    // Runs whose lengths differ by a multiple of all token lengths differ by whole periods in the middle.
    let period = 4096;
    let (one, two) = (ids(n % period + period), ids(n % period + 2 * period));
    let head = one.iter().zip(&two).take_while(|(a, b)| a == b).count();
    let grown = two.len() - one.len();
    let middle = &two[head.saturating_sub(grown)..head.saturating_sub(grown) + grown];
    let start = head.saturating_sub(grown);
    let mut all = two[..start].to_vec();
    for _ in 0..(n - n % period - period) / period {
        all.extend(middle);
    }
    all.extend(&two[start + grown..]);
    all
}

fn time(tokenizer: &Tokenizer, text: &str) -> (Duration, Vec<u32>) {
    let (time, ids) = cpu_time(|| tokenizer.encode(text, EncodeOptions::TEXT));
    // The system counts in steps of some milliseconds.
    (time.max(Duration::from_millis(5)), ids.unwrap())
}

#[test]
fn a_million_characters() {
    let Some(shared) = shared() else { return };
    for (name, tokenizer) in vocabularies(&shared) {
        for unit in ["a", " ", "\n", "😀", "="] {
            let n = 1_000_000;
            let (short, _) = time(&tokenizer, &unit.repeat(n / 4));
            let text = unit.repeat(n);
            let (long, ids) = time(&tokenizer, &text);
            let ratio = long.as_secs_f64() / short.as_secs_f64();
            println!("{name}: 1M {unit:?}: {} tokens, {long:.1?}, {ratio:.1} times that of 250k", ids.len());
            assert!(
                tokenizer.decode_bytes(&ids).unwrap() == text.as_bytes(),
                "{name}: 1M {unit:?} does not decode to itself"
            );
            assert!(
                ids == foretold(&tokenizer, unit, n),
                "{name}: 1M {unit:?} is not what short runs foretell"
            );
            // Linear is 4, n log n a little more, quadratic 16.
            assert!(ratio < 12.0, "{name}: 1M {unit:?} took {ratio:.1} times as long as 250k");
        }
    }
}

/// Kinds that alternate: no matcher may look ahead over the same stretch again and again.
#[test]
fn a_million_characters_that_alternate() {
    let Some(shared) = shared() else { return };
    for (name, tokenizer) in vocabularies(&shared) {
        for unit in ["a ", " \n", "aB1! ", "\r\n\t", "'s", "中a", "e\u{301}"] {
            let n = 1_000_000 / unit.chars().count();
            let (short, _) = time(&tokenizer, &unit.repeat(n / 4));
            let text = unit.repeat(n);
            let (long, ids) = time(&tokenizer, &text);
            let ratio = long.as_secs_f64() / short.as_secs_f64();
            println!(
                "{name}: 1M of {unit:?}: {} tokens, {long:.1?}, {ratio:.1} times that of 250k",
                ids.len()
            );
            assert!(tokenizer.decode_bytes(&ids).unwrap() == text.as_bytes());
            assert!(ratio < 12.0, "{name}: 1M of {unit:?} took {ratio:.1} times as long as 250k");
        }
    }
}
