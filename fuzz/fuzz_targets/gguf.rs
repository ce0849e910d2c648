//! Arbitrary bytes as a GGUF file: opening must not panic, and what opens must be whole: every key and every tensor is
//! read, written again and compared.
//!
//! The check is the one that the crate's own tests make on damaged files, so that a finding here becomes a test there by
//! adding its bytes to the corpus.
#![no_main]

#[path = "../../crates/gguf-file/tests/common/touch.rs"]
mod touch;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    touch::touch(bytes);
});
