//! Vocabularies for tests, and texts cut into their tokens.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses what it needs")]

use ogive_grammar::{Constraint, Token, Vocabulary};
use ogive_sampler::Stage;
use std::path::{Path, PathBuf};

/// Ends texts in the vocabulary of bytes.
pub(crate) const END: u32 = 256;

/// A token for each byte, the end, and 16 special tokens, of which the first is number 257.
pub(crate) fn bytes() -> Vocabulary {
    let bytes: Vec<[u8; 1]> = (0..=255).map(|b| [b]).collect();
    let names: Vec<String> = (257..273).map(|id| format!("<special{id}>")).collect();
    let tokens = bytes.iter().map(|b| Token::Text(b)).chain([Token::Special(b"</s>")]);
    let tokens = tokens.chain(names.iter().map(|n| Token::Special(n.as_bytes())));
    Vocabulary::new(tokens, &[END]).unwrap()
}

/// Whether the tokens make a whole sentence.
pub(crate) fn takes(constraint: &Constraint, tokens: &[u32]) -> bool {
    let mut constraint = constraint.clone();
    constraint.mask(&[]);
    for &token in tokens {
        if !constraint.allowed().allows(token) {
            return false;
        }
        constraint.accept(token);
    }
    let complete = constraint.is_complete(tokens);
    assert_eq!(constraint.allowed().allows(END), complete, "the end is allowed where a sentence is complete");
    complete
}

/// A file of the test data, or `None` with a visible word where that is missing.
#[allow(clippy::print_stdout)]
pub(crate) fn shared(file: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("OGIVE_SHARED").map_or(beside, PathBuf::from);
    if shared.is_dir() {
        return Some(shared.join(file));
    }
    println!("skipped: shared test data not found");
    None
}
