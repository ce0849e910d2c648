//! Figures, not assertions: opening and encoding speed, in processor time.
//!
//! `cargo test --release -p ogive-tokenizer --test throughput -- --ignored --nocapture`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "skips and figures are to be seen")]

mod common;

use common::{cpu_time, gguf, shared, vocabularies};
use ogive_tokenizer::{EncodeOptions, Tokenizer};
use std::time::Duration;

fn best<T>(times: usize, mut f: impl FnMut() -> T) -> (Duration, T) {
    let mut result = None;
    let mut best = Duration::MAX;
    for _ in 0..times {
        let (time, value) = cpu_time(&mut f);
        result = Some(value);
        best = best.min(time);
    }
    (best, result.unwrap())
}

/// Four megabytes of text that looks like prose: words of a Zipf-like distribution, punctuation, numbers, lines.
fn prose(bytes: usize) -> String {
    let mut state = 1u64;
    let mut below = move |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let syllables = [
        "th", "er", "an", "in", "re", "on", "at", "en", "st", "al", "or", "it", "is", "ar", "nd", "ou", "le",
        "com", "ver", "ing", "tion",
    ];
    let words: Vec<String> =
        (0..20_000).map(|_| (0..1 + below(4)).map(|_| syllables[below(21) as usize]).collect()).collect();
    let mut text = String::with_capacity(bytes + 32);
    while text.len() < bytes {
        // The product of two uniform numbers falls off as the frequencies of words do.
        let word = &words[(below(20_000) * below(20_000) / 20_000) as usize];
        match below(40) {
            0 => text += ".\n\n",
            1 | 2 => text += ", ",
            3 => text += " 1984 ",
            4 => text += "'s naïve ",
            _ => text += " ",
        }
        text += word;
    }
    text
}

#[test]
#[ignore = "prints figures; run it in release"]
fn speed() {
    let Some(shared) = shared() else { return };
    let text = prose(4_000_000);
    for (name, tokenizer) in vocabularies(&shared) {
        let path = shared.join(format!("vocab/ggml-vocab-{name}.gguf"));
        let (open, _) = best(5, || gguf(&path));
        let (encode, ids) = best(5, || tokenizer.encode(&text, EncodeOptions::TEXT).unwrap());
        let (decode, _) = best(5, || tokenizer.decode(&ids).unwrap());
        let rate = |t: Duration| text.len() as f64 / 1e6 / t.as_secs_f64();
        println!(
            "{name}: opens in {open:.1?}; {:.1} bytes a token; encodes {:.1} MB/s, decodes {:.0} MB/s",
            text.len() as f64 / ids.len() as f64,
            rate(encode),
            rate(decode)
        );
        for unit in ["a", " ", "😀"] {
            let (short, long) = (unit.repeat(250_000), unit.repeat(1_000_000));
            let run = |text: &str| best(3, || tokenizer.encode(text, EncodeOptions::TEXT).unwrap()).0;
            let (short, long) = (run(&short), run(&long));
            println!("  1M {unit:?}: {long:.1?}, {:.1} times 250k", long.as_secs_f64() / short.as_secs_f64());
        }
    }
    let folder = shared.join("golden/llama3-rope");
    let theirs = tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).unwrap();
    let ours = Tokenizer::from_folder(&folder).unwrap();
    let (a, _) = best(3, || ours.encode(&text, EncodeOptions::TEXT).unwrap());
    let (b, _) = best(3, || theirs.encode_fast(text.as_str(), false).unwrap());
    println!("512-token tokenizer.json: {a:.1?}; the tokenizers crate's own pipeline: {b:.1?}");
}
