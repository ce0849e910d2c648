//! Encoding and decoding four megabytes of text that looks like prose, and a million characters that make one word, with
//! each vocabulary of the test data. `cargo bench -p ogive-benches --bench tokenizer`
#![allow(missing_docs, clippy::print_stdout)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ogive_tokenizer::{EncodeOptions, Tokenizer};
use std::path::{Path, PathBuf};

/// Words of a Zipf-like distribution, punctuation, numbers, lines.
fn prose(bytes: usize) -> String {
    let mut state = 1u64;
    let mut below = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let syllables = [
        "th", "er", "an", "in", "re", "on", "at", "en", "st", "al", "or", "it", "is", "ar", "nd", "ou", "le",
        "com", "ver", "ing", "tion",
    ];
    let words: Vec<String> =
        (0..20_000).map(|_| (0..=below(4)).map(|_| syllables[below(21) as usize]).collect()).collect();
    let mut text = String::with_capacity(bytes + 32);
    while text.len() < bytes {
        // The product of two uniform numbers falls off as the frequencies of words do.
        let word = &words[(below(20_000) * below(20_000) / 20_000) as usize];
        text += match below(40) {
            0 => ".\n\n",
            1 | 2 => ", ",
            3 => " 1984 ",
            4 => "'s naïve ",
            _ => " ",
        };
        text += word;
    }
    text
}

/// The vocabularies beside the workspace: GGUF files without weights.
fn vocabularies() -> Vec<(String, PathBuf)> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = std::env::var_os("OGIVE_SHARED").map_or(beside, PathBuf::from).join("vocab");
    let files = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut all: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .filter_map(|path| {
            Some((path.file_stem()?.to_str()?.trim_start_matches("ggml-vocab-").to_owned(), path))
        })
        .collect();
    all.sort();
    all
}

fn speed(c: &mut Criterion) {
    let (text, all) = (prose(4_000_000), vocabularies());
    if all.is_empty() {
        println!("skipped: shared test data not found");
    }
    for (name, path) in all {
        // Those that are there to be refused.
        let open = || Tokenizer::from_gguf(gguf_file::Gguf::open(&path).ok()?.metadata()).ok();
        let Some(tokenizer) = open() else { continue };
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        group.bench_function("open", |b| b.iter(open));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("encode", |b| b.iter(|| tokenizer.encode(&text, EncodeOptions::TEXT)));
        let ids = tokenizer.encode(&text, EncodeOptions::TEXT).unwrap_or_default();
        group.bench_function("decode", |b| b.iter(|| tokenizer.decode(&ids)));
        let word = "a".repeat(1_000_000);
        group.throughput(Throughput::Bytes(word.len() as u64));
        group.bench_function("a word of a million letters", |b| {
            b.iter(|| tokenizer.encode(&word, EncodeOptions::TEXT));
        });
        group.finish();
    }
}

criterion_group!(benches, speed);
criterion_main!(benches);
