//! Device memory itself: moves of bytes that other threads may move too.
//!
//! Everything goes through relaxed atomics of the access's width. They compile to plain moves, and a race in the kernel stays what it
//! is on a GPU: a wrong value, not undefined behaviour of the emulator.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

macro_rules! access {
    ($load:ident, $store:ident, $atomic:ty, $value:ty) => {
        /// Loads one value.
        #[inline(always)]
        pub(crate) fn $load(host: *mut u8) -> $value {
            // SAFETY: `host` comes from `Windows::host`, which checked that this many bytes lie in an allocation kept alive by the
            // window, and the caller checked the alignment of the device address, which the host's shares up to 256.
            unsafe { <$atomic>::from_ptr(host.cast()) }.load(Relaxed)
        }
        /// Stores one value.
        #[inline(always)]
        pub(crate) fn $store(host: *mut u8, value: $value) {
            // SAFETY: as above.
            unsafe { <$atomic>::from_ptr(host.cast()) }.store(value, Relaxed)
        }
    };
}
access!(load8, store8, AtomicU8, u8);
access!(load16, store16, AtomicU16, u16);
access!(load32, store32, AtomicU32, u32);
access!(load64, store64, AtomicU64, u64);

/// Reads bytes; in words of 8 where the pointer is aligned to them.
pub(crate) fn read(host: *mut u8, to: &mut [u8]) {
    let mut at = 0;
    if host.align_offset(8) == 0 {
        for word in to.chunks_exact_mut(8) {
            word.copy_from_slice(&load64(host.wrapping_add(at)).to_le_bytes());
            at += 8;
        }
    }
    for byte in &mut to[at..] {
        *byte = load8(host.wrapping_add(at));
        at += 1;
    }
}

/// Writes bytes; in words of 8 where the pointer is aligned to them.
pub(crate) fn write(host: *mut u8, from: &[u8]) {
    let mut at = 0;
    if host.align_offset(8) == 0 {
        for word in from.chunks_exact(8) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            store64(host.wrapping_add(at), u64::from_le_bytes(bytes));
            at += 8;
        }
    }
    for byte in &from[at..] {
        store8(host.wrapping_add(at), *byte);
        at += 1;
    }
}
