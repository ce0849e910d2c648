//! What a grammar costs at a vocabulary of 151,936. `cargo bench -p ogive-benches --bench grammar`
//!
//! The vocabulary is Qwen2's, from the test data: an invented one would have other beginnings in common, and those are what a mask
//! costs. A first mask fills the parser's tables; `mask, seen` is what a place like it costs from then on, with
//! the step from the token before.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use ogive_grammar::{Grammar, Token, Vocabulary};
use ogive_sampler::{SamplerParams, Stage};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const SCHEMA: &str = r#"{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0},
    "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}}, "address": {"type": "object", "properties": {"street":
    {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["street", "zip"], "additionalProperties": false}},
    "required": ["name", "age", "tags", "address"], "additionalProperties": false}"#;

const GBNF: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"#;

/// What a byte-level BPE writes for each character of its tokens.
fn byte(c: char) -> Option<u8> {
    let plain = |b: u32| (33..127).contains(&b) || (161..173).contains(&b) || (174..256).contains(&b);
    let c = u32::from(c);
    if plain(c) {
        u8::try_from(c).ok()
    } else {
        (0..256).filter(|&b| !plain(b)).nth(c.checked_sub(256)? as usize).map(|b| b as u8)
    }
}

fn words() -> Option<Vec<Vec<u8>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vocab/ggml-vocab-qwen2.gguf");
    let gguf = gguf_file::Gguf::open(path).ok()?;
    let gguf_file::Value::Array(gguf_file::Array::String(tokens)) =
        gguf.metadata().get("tokenizer.ggml.tokens")?
    else {
        return None;
    };
    Some(tokens.iter_str().map(|t| t.unwrap_or_default().chars().filter_map(byte).collect()).collect())
}

/// A text in the longest tokens there are.
fn cut(words: &[Vec<u8>], text: &str) -> Vec<u32> {
    let (mut tokens, mut rest) = (Vec::new(), text.as_bytes());
    while !rest.is_empty() {
        let fits = (0u32..).zip(words).filter(|(_, w)| !w.is_empty() && rest.starts_with(w));
        let (id, word) = fits.max_by_key(|(_, w)| w.len()).unwrap();
        tokens.push(id);
        rest = &rest[word.len()..];
    }
    tokens
}

fn grammars(c: &mut Criterion) {
    let Some(words) = words() else {
        println!("skipped: shared test data not found");
        return;
    };
    let end = words.len() as u32 - 1;
    let start = Instant::now();
    let vocabulary = Vocabulary::new(words.iter().map(|w| Token::Text(w)), &[end]).unwrap();
    println!("a vocabulary of {} prepared in {:?}", words.len(), start.elapsed());
    let logits = ogive_benches::values(words.len(), 2.0);
    for (name, grammar, texts) in [
        (
            "schema",
            Grammar::json_schema(SCHEMA).unwrap(),
            [r#"{"#, r#"{"name": "An"#, r#"{"name": "Ann", "age": 4"#],
        ),
        ("gbnf", Grammar::gbnf(GBNF).unwrap(), [r#"{"#, r#"{"name": "An"#, r#"{"name": "Ann", "age": 4"#]),
    ] {
        let start = Instant::now();
        let constraint = grammar.compile(&vocabulary).unwrap();
        println!("{name}: compiled, with its first mask, in {:?}", start.elapsed());
        for text in texts {
            let tokens = cut(&words, text);
            let before = &tokens[..tokens.len() - 1];
            let mut here = constraint.clone();
            here.mask(&[]);
            here.mask(before);
            let start = Instant::now();
            let count = here.mask(&tokens).unwrap().count();
            println!("{name} after {text}: first mask ({count} tokens) in {:?}", start.elapsed());
            c.bench_function(&format!("{name} after {text}: mask, seen"), |b| {
                let one_before = || {
                    let mut fresh = here.clone();
                    fresh.mask(before);
                    fresh
                };
                b.iter_batched_ref(
                    one_before,
                    |it| black_box(it.mask(&tokens).map(|m| m.count())),
                    BatchSize::SmallInput,
                );
            });
            let chain = SamplerParams::default().build().unwrap().first(here.clone());
            c.bench_function(&format!("{name} after {text}: default chain, mask known"), |b| {
                b.iter(|| chain.distribution(&logits, &tokens).map(|d| d.len()));
            });
        }
    }
    let chain = SamplerParams::default().build().unwrap();
    c.bench_function("default chain without a grammar", |b| {
        b.iter(|| chain.distribution(&logits, &[]).map(|d| d.len()))
    });
}

criterion_group!(benches, grammars);
criterion_main!(benches);
