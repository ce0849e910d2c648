//! Arbitrary bytes as a safetensors file: opening must not panic, and what opens must be whole: every tensor lies within
//! the file, overlaps none and decodes.
//!
//! The check is the one that the crate's own tests make on damaged files, so that a finding here becomes a test there by
//! adding its bytes to the corpus.
#![no_main]

#[path = "../../crates/ogive-weights/tests/common/touch.rs"]
mod touch;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    touch::touch(bytes);
});
