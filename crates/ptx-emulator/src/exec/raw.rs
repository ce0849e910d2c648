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

/// A value of plain bits, as wide as a register's element or narrower.
pub(crate) trait Plain: Copy + Default + PartialEq + std::fmt::Debug {
    /// Bytes.
    const BYTES: usize;
    /// As a register of 32 bits holds it, extended with zeros or the sign; the low half of 64 bits.
    fn word(self, signed: bool) -> u32;
    /// As a register of 64 bits holds it.
    fn long(self, signed: bool) -> u64;
    /// The low bits.
    fn cut(value: u64) -> Self;
}

macro_rules! plain {
    ($unsigned:ty, $signed:ty) => {
        impl Plain for $unsigned {
            const BYTES: usize = size_of::<$unsigned>();
            #[inline(always)]
            fn word(self, signed: bool) -> u32 {
                if signed { self as $signed as u32 } else { self as u32 }
            }
            #[inline(always)]
            fn long(self, signed: bool) -> u64 {
                if signed { self as $signed as u64 } else { self as u64 }
            }
            #[inline(always)]
            fn cut(value: u64) -> Self {
                value as Self
            }
        }
    };
}
plain!(u8, i8);
plain!(u16, i16);
plain!(u32, i32);
plain!(u64, i64);

/// Loads 32 groups of values that stand one after the other. The caller found as many bytes there; the pointer is aligned to a group.
#[inline(always)]
pub(crate) fn load_rows<T: Plain, const N: usize>(host: *mut u8) -> [[T; N]; 32] {
    let mut rows = [[T::default(); N]; 32];
    let to = rows.as_mut_ptr().cast::<u64>();
    if host.align_offset(8) == 0 {
        for word in 0..4 * N * T::BYTES {
            // SAFETY: the rows have 32 * N * BYTES bytes, and any bits are a value of T.
            unsafe { to.add(word).write_unaligned(load64(host.wrapping_add(8 * word))) };
        }
    } else {
        for byte in 0..32 * N * T::BYTES {
            // SAFETY: as above.
            unsafe { to.cast::<u8>().add(byte).write(load8(host.wrapping_add(byte))) };
        }
    }
    rows
}

/// Stores 32 groups of values one after the other.
#[inline(always)]
pub(crate) fn store_rows<T: Plain, const N: usize>(host: *mut u8, rows: &[[T; N]; 32]) {
    let from = rows.as_ptr().cast::<u64>();
    if host.align_offset(8) == 0 {
        for word in 0..4 * N * T::BYTES {
            // SAFETY: the rows have 32 * N * BYTES bytes.
            store64(host.wrapping_add(8 * word), unsafe { from.add(word).read_unaligned() });
        }
    } else {
        for byte in 0..32 * N * T::BYTES {
            // SAFETY: as above.
            store8(host.wrapping_add(byte), unsafe { from.cast::<u8>().add(byte).read() });
        }
    }
}

/// 32 groups of values as bytes.
#[inline(always)]
pub(crate) fn bytes_of<T: Plain, const N: usize>(rows: &[[T; N]; 32]) -> &[u8] {
    // SAFETY: plain values have no padding, and as many bytes as this says.
    unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), 32 * N * T::BYTES) }
}

/// 32 groups of values from as many bytes; fewer leave the rest zero.
#[inline(always)]
pub(crate) fn rows_of<T: Plain, const N: usize>(bytes: &[u8]) -> [[T; N]; 32] {
    let mut rows = [[T::default(); N]; 32];
    let len = bytes.len().min(32 * N * T::BYTES);
    // SAFETY: both sides have `len` bytes, and any bits are a value of T.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), rows.as_mut_ptr().cast(), len) };
    rows
}

/// Values from as many bytes as they have; fewer leave the rest zero.
#[inline(always)]
pub(crate) fn group_of<T: Plain, const N: usize>(bytes: &[u8]) -> [T; N] {
    std::array::from_fn(|k| {
        let mut value = [0; 8];
        if let Some(from) = bytes.get(k * T::BYTES..(k + 1) * T::BYTES) {
            value[..T::BYTES].copy_from_slice(from);
        }
        T::cut(u64::from_le_bytes(value))
    })
}

/// Loads one value of 1, 2, 4 or 8 bytes.
#[inline(always)]
pub(crate) fn load(host: *mut u8, bytes: usize) -> u64 {
    match bytes {
        1 => u64::from(load8(host)),
        2 => u64::from(load16(host)),
        4 => u64::from(load32(host)),
        _ => load64(host),
    }
}

/// Stores one value of 1, 2, 4 or 8 bytes.
#[inline(always)]
pub(crate) fn store(host: *mut u8, bytes: usize, value: u64) {
    match bytes {
        1 => store8(host, value as u8),
        2 => store16(host, value as u16),
        4 => store32(host, value as u32),
        _ => store64(host, value),
    }
}

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
