//! Arbitrary text as PTX: reading and checking must not panic, and what passes both must be lowered or refused.
//!
//! Bytes that are no UTF-8 are replaced and not skipped: the fuzzer then wastes no input on learning what UTF-8 is.
#![no_main]

use ptx_emulator::{lower, ptx};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(module) = ptx::parse(&String::from_utf8_lossy(bytes)) else { return };
    if ptx::verify(&module).is_err() {
        return;
    }
    for kernel in module.functions.iter().filter(|function| function.entry && function.body.is_some()) {
        let _ = lower::lower(&module, &kernel.name, &|_| Some(4096));
    }
});
