//! Arbitrary text as a grammar, a regular expression and a JSON schema: reading and compiling must not panic, overflow a stack or
//! take more than seconds, and what compiles allows something at the beginning.
#![no_main]

use ogive_grammar::{Grammar, Token, Vocabulary};
use std::sync::OnceLock;

fn vocabulary() -> &'static Vocabulary {
    static VOCABULARY: OnceLock<Vocabulary> = OnceLock::new();
    VOCABULARY.get_or_init(|| {
        let bytes: Vec<[u8; 1]> = (0..=255).map(|b| [b]).collect();
        let tokens =
            bytes.iter().map(|b| Token::Text(b)).chain([Token::Special(b"</s>"), Token::Special(b"<think>")]);
        Vocabulary::new(tokens, &[256]).expect("bytes are a vocabulary")
    })
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    for grammar in
        [Grammar::gbnf(text), Grammar::regex(text), Grammar::json_schema(text)].into_iter().flatten()
    {
        if let Ok(mut constraint) = grammar.compile(vocabulary()) {
            assert!(constraint.allowed().count() > 0);
        }
    }
});
