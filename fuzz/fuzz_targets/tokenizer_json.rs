//! Arbitrary bytes as a tokenizer.json: opening must not panic, and what opens must encode any bytes to ids of its own vocabulary
//! and stream exactly what it decodes.
//!
//! The check is the one that the crate's own tests make on damaged files, so that a finding here becomes a test there by
//! adding its bytes to the corpus.
#![no_main]

#[path = "../../crates/ogive-tokenizer/tests/common/touch.rs"]
mod touch;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    touch::touch(bytes);
});
