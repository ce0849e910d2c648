//! Instructions that the oldest supported compiler has no stable function for.
//!
//! Each allows itself its extension, so that callers are plain functions for any 64-bit ARM, and inlining never stops at a
//! boundary of features; that the machine has the extension is the caller's promise.
#![allow(unsafe_code)]

use std::arch::{aarch64::*, asm};

/// Adds to each lane the products of its four codes with the four of lane `I` of `acts`.
///
/// # Safety
/// The machine must have `dotprod`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn sdot<const I: i32>(mut sum: int32x4_t, codes: int8x16_t, acts: int8x16_t) -> int32x4_t {
    // SAFETY: registers are all that is read and written, and the caller says that the instruction is there.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {sum:v}.4s, {codes:v}.16b, {acts:v}.4b[{lane}]",
            sum = inout(vreg) sum,
            codes = in(vreg) codes,
            acts = in(vreg) acts,
            lane = const I,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Adds the products of two rows of eight codes with two of eight activations: `[r0 t0, r0 t1, r1 t0, r1 t1]`.
///
/// # Safety
/// The machine must have `i8mm`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn smmla(mut sum: int32x4_t, rows: int8x16_t, tokens: int8x16_t) -> int32x4_t {
    // SAFETY: registers are all that is read and written, and the caller says that the instruction is there.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "smmla {sum:v}.4s, {rows:v}.16b, {tokens:v}.16b",
            sum = inout(vreg) sum,
            rows = in(vreg) rows,
            tokens = in(vreg) tokens,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Four halves in single precision.
#[inline]
#[target_feature(enable = "neon")]
pub(in crate::simd) fn widen(halves: uint16x4_t) -> float32x4_t {
    let singles;
    // SAFETY: every NEON has the instruction, and registers are all that it reads and writes.
    unsafe {
        asm!(
            "fcvtl {singles:v}.4s, {halves:v}.4h",
            halves = in(vreg) halves,
            singles = lateout(vreg) singles,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    singles
}
