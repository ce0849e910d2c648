//! Products of 8-bit codes summed in 32 bits, with what the machine has for them.
//!
//! All sums are exact, so all three ways give the same; a kernel is written once and takes the way as a value that is made only
//! where the machine has it.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::{asm, panel::Quad};
use std::arch::aarch64::*;

/// A way to multiply.
pub(in crate::simd) trait Dot: Copy {
    /// Whether a panel's register has eight neighbouring codes of two rows, and not four of four.
    const EIGHTS: bool;
    /// The way for few tokens: where two differ in [`Dot::part`] alone, theirs is the same.
    type Few: Dot;

    /// That way.
    fn few(self) -> Self::Few;

    /// Adds to each lane, which is a row, the products of its four codes with the four of lane `I` of `acts`.
    fn dot<const I: i32>(self, sum: int32x4_t, codes: int8x16_t, acts: int8x16_t) -> int32x4_t;

    /// Sums of products of eight rows with `T` tokens: as many codes as `acts` has, which is a multiple of 16.
    #[inline(always)]
    fn part<const T: usize>(self, codes: &[Quad], acts: [&[[i8; 16]]; T]) -> [[int32x4_t; 2]; T] {
        // SAFETY: every machine these kernels run on has NEON.
        unsafe { fours(self, codes, acts) }
    }
}

/// What every 64-bit ARM has.
#[derive(Clone, Copy)]
pub(in crate::simd) struct Plain;

impl Dot for Plain {
    const EIGHTS: bool = false;
    type Few = Self;

    #[inline(always)]
    fn few(self) -> Self {
        self
    }

    #[inline(always)]
    fn dot<const I: i32>(self, sum: int32x4_t, codes: int8x16_t, acts: int8x16_t) -> int32x4_t {
        // SAFETY: every machine these kernels run on has NEON.
        unsafe {
            let acts = vreinterpretq_s8_s32(vdupq_laneq_s32::<I>(vreinterpretq_s32_s8(acts)));
            // Two products fit 16 bits: codes are within ±128 and activations within ±127.
            let low = vmull_s8(vget_low_s8(codes), vget_low_s8(acts));
            let high = vmull_high_s8(codes, acts);
            vpadalq_s16(sum, vpaddq_s16(low, high))
        }
    }
}

/// With `sdot`.
#[derive(Clone, Copy)]
pub(in crate::simd) struct Dotprod(());

impl Dotprod {
    /// # Safety
    /// The machine must have `dotprod`.
    pub(in crate::simd) unsafe fn new() -> Self {
        Self(())
    }
}

impl Dot for Dotprod {
    const EIGHTS: bool = false;
    type Few = Self;

    #[inline(always)]
    fn few(self) -> Self {
        self
    }

    #[inline(always)]
    fn dot<const I: i32>(self, sum: int32x4_t, codes: int8x16_t, acts: int8x16_t) -> int32x4_t {
        // SAFETY: whoever made `self` says that the machine has the instruction.
        unsafe { asm::sdot::<I>(sum, codes, acts) }
    }
}

/// With `smmla` for many tokens and `sdot` for few.
#[derive(Clone, Copy)]
pub(in crate::simd) struct I8mm(Dotprod);

impl I8mm {
    /// # Safety
    /// The machine must have `dotprod` and `i8mm`.
    pub(in crate::simd) unsafe fn new() -> Self {
        Self(Dotprod(()))
    }
}

impl Dot for I8mm {
    const EIGHTS: bool = true;
    type Few = Dotprod;

    #[inline(always)]
    fn few(self) -> Dotprod {
        self.0
    }

    #[inline(always)]
    fn dot<const I: i32>(self, sum: int32x4_t, codes: int8x16_t, acts: int8x16_t) -> int32x4_t {
        self.0.dot::<I>(sum, codes, acts)
    }

    #[inline(always)]
    fn part<const T: usize>(self, codes: &[Quad], acts: [&[[i8; 16]]; T]) -> [[int32x4_t; 2]; T] {
        // SAFETY: whoever made `self` says that the machine has the instructions.
        unsafe { eights(codes, acts) }
    }
}

/// [`Dot::part`] of a panel with four codes of four rows to a register.
#[inline]
#[target_feature(enable = "neon")]
fn fours<D: Dot, const T: usize>(d: D, codes: &[Quad], acts: [&[[i8; 16]]; T]) -> [[int32x4_t; 2]; T] {
    let mut sums = [[vdupq_n_s32(0); 2]; T];
    for (c, codes) in codes.as_chunks::<4>().0.iter().enumerate() {
        let mut a = [vdupq_n_s8(0); T];
        for t in 0..T {
            a[t] = load(&acts[t][c]);
        }
        quad::<D, 0, T>(d, &codes[0], a, &mut sums);
        quad::<D, 1, T>(d, &codes[1], a, &mut sums);
        quad::<D, 2, T>(d, &codes[2], a, &mut sums);
        quad::<D, 3, T>(d, &codes[3], a, &mut sums);
    }
    sums
}

#[inline]
#[target_feature(enable = "neon")]
fn quad<D: Dot, const I: i32, const T: usize>(
    d: D,
    codes: &Quad,
    acts: [int8x16_t; T],
    sums: &mut [[int32x4_t; 2]; T],
) {
    let codes = both(codes);
    for t in 0..T {
        for r in 0..2 {
            sums[t][r] = d.dot::<I>(sums[t][r], codes[r], acts[t]);
        }
    }
}

/// [`Dot::part`] of a panel with eight codes of two rows to a register. An odd last token is multiplied with twice.
///
/// # Safety
/// The machine must have `i8mm`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn eights<const T: usize>(codes: &[Quad], acts: [&[[i8; 16]]; T]) -> [[int32x4_t; 2]; T] {
    // Four pairs of rows with each pair of tokens.
    let mut sums = [[vdupq_n_s32(0); 4]; T];
    for (c, codes) in codes.as_chunks::<4>().0.iter().enumerate() {
        for pair in 0..T.div_ceil(2) {
            let one = vreinterpretq_s64_s8(load(&acts[2 * pair][c]));
            let other = vreinterpretq_s64_s8(load(&acts[(2 * pair + 1).min(T - 1)][c]));
            let tokens = [vzip1q_s64(one, other), vzip2q_s64(one, other)];
            for half in 0..2 {
                let (low, high) = (both(&codes[2 * half]), both(&codes[2 * half + 1]));
                let rows = [low[0], low[1], high[0], high[1]];
                for r in 0..4 {
                    let tokens = vreinterpretq_s8_s64(tokens[half]);
                    // SAFETY: the caller says that the machine has the instruction.
                    sums[pair][r] = unsafe { asm::smmla(sums[pair][r], rows[r], tokens) };
                }
            }
        }
    }
    let mut out = [[vdupq_n_s32(0); 2]; T];
    for t in 0..T {
        for r in 0..2 {
            let (low, high) = (sums[t / 2][2 * r], sums[t / 2][2 * r + 1]);
            out[t][r] = if t % 2 == 0 { vuzp1q_s32(low, high) } else { vuzp2q_s32(low, high) };
        }
    }
    out
}

/// Sixteen codes.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load(codes: &[i8; 16]) -> int8x16_t {
    // SAFETY: 16 bytes are read from an array of 16.
    unsafe { vld1q_s8(codes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn both(codes: &Quad) -> [int8x16_t; 2] {
    let codes = codes.0.as_ptr().cast::<i8>();
    // SAFETY: 32 bytes are read from an array of 32.
    unsafe { [vld1q_s8(codes), vld1q_s8(codes.add(16))] }
}
