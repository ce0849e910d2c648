//! Arbitrary bytes as an image file: reading must not panic, and an image is prepared, or refused, by every family of models that see.
//!
//! The check is the one that the crate's own tests make on damaged files, so that a finding here becomes a test there by
//! adding its bytes to the corpus.
#![no_main]

#[path = "../../crates/ogive-vision/tests/common/touch.rs"]
mod touch;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    touch::touch(bytes);
});
