//! Arbitrary bytes as an importance matrix, in GGUF or in the older form: reading must not panic, and what is read has finite sums of at least 0
//! and is the same once it was written and read again.
#![no_main]

use ogive_quantize::Importance;
use ogive_quantize::gguf_file::Gguf;

fn read(bytes: &[u8]) -> Option<Importance> {
    match Gguf::from_bytes(bytes.to_vec()) {
        Ok(gguf) => Importance::from_gguf(&gguf).ok(),
        Err(_) => Importance::from_dat(bytes).ok(),
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(all) = read(bytes) else { return };
    assert!(all.iter().all(|(_, squares)| squares.sums().iter().all(|v| (0.0..=f32::MAX).contains(v))));
    // Names may be longer than GGUF takes them.
    let Ok(written) = all.to_gguf() else { return };
    let again = read(&written).expect("what was written is read");
    assert!(again.iter().map(|(name, s)| (name, s.sums())).eq(all.iter().map(|(name, s)| (name, s.sums()))));
});
