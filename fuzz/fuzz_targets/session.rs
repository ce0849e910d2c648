//! Arbitrary bytes as a saved session: loading must not panic or take more memory than the bytes and the cache, and what loads
//! must go on and be saved as what loads again.
//!
//! The check is the one that the crate's own tests make on damaged sessions, so that a finding here becomes a test there by
//! adding its bytes to the corpus. Each input is tried a second time with the checksum that it should have.
#![no_main]

#[path = "../../crates/ogive-engine/tests/common/touch.rs"]
mod touch;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    touch::touch_both(bytes);
});
