//! Reading a strip: what a block's words hold, four rows at a time, one lane for each.
//!
//! Sixteen rows make four registers; `g` says which. Codes come as signed bytes, raised where the format keeps them raised.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::asm::widen;
use crate::{
    linear::{E2M1_LEVELS, FACTOR, IQ4_LEVELS, RAISE, SCALES, STRIP},
    simd::formats::{self as f, fine, super_block},
};
use std::arch::aarch64::*;

/// A block of sixteen rows, of `N` bytes each.
pub(super) type Block<const N: usize> = [[u8; N]; STRIP];

/// What [`quad`]'s codes are too large by.
pub(super) const fn raise(format: u8) -> i8 {
    match format {
        f::Q4_0 => 8,
        f::Q5_0 => 16,
        f::Q3_K => 4,
        f::Q6_K => 32,
        f::TQ2 => 1,
        f::CODED => RAISE as i8,
        _ => 0,
    }
}

/// Parts of a block, each with a sub-scale if there are several.
pub(super) const fn parts(format: u8) -> usize {
    match format {
        _ if fine(format) => 16,
        _ if super_block(format) => 8,
        _ => 1,
    }
}

/// Elements of a block.
pub(super) const fn elements(format: u8) -> usize {
    if super_block(format) { 256 } else { 32 }
}

/// The blocks of a strip.
pub(super) fn blocks<const N: usize>(strip: &[u8]) -> &[Block<N>] {
    strip.as_chunks::<N>().0.as_chunks().0
}

/// Word `w` of four rows.
#[inline]
#[target_feature(enable = "neon")]
fn word<const N: usize>(b: &Block<N>, w: usize, g: usize) -> uint8x16_t {
    assert!(64 * w + 16 * (g + 1) <= STRIP * N);
    // SAFETY: the 16 bytes are inside the block.
    unsafe { vld1q_u8(b.as_ptr().cast::<u8>().add(64 * w + 16 * g)) }
}

/// Each byte shifted left, or right by a negative number.
#[inline]
#[target_feature(enable = "neon")]
fn shift(v: uint8x16_t, by: isize) -> uint8x16_t {
    vshlq_u8(v, vdupq_n_s8(by as i8))
}

/// The same, and then only the bits of a mask.
#[inline]
#[target_feature(enable = "neon")]
fn bits(v: uint8x16_t, by: isize, mask: u8) -> uint8x16_t {
    vandq_u8(shift(v, by), vdupq_n_u8(mask))
}

/// The bits of `low` where `mask` has them, and of `high` elsewhere.
#[inline]
#[target_feature(enable = "neon")]
fn join(low: uint8x16_t, high: uint8x16_t, mask: u8) -> uint8x16_t {
    vbslq_u8(vdupq_n_u8(mask), low, high)
}

/// The entries of a table of 16 that bytes name.
#[inline]
#[target_feature(enable = "neon")]
fn look_up(levels: &[i8; 16], q: uint8x16_t) -> uint8x16_t {
    vreinterpretq_u8_s8(vqtbl1q_s8(super::dot::load(levels), q))
}

#[inline]
#[target_feature(enable = "neon")]
fn lanes(v: [u32; 4]) -> uint32x4_t {
    // SAFETY: 16 bytes are read from an array of 16.
    unsafe { vld1q_u32(v.as_ptr()) }
}

/// Codes `4 i..4 i + 4` of part `p`, raised by [`raise`]. A block of 32 has one part.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn quad<const F: u8, const N: usize>(b: &Block<N>, p: usize, i: usize, g: usize) -> int8x16_t {
    let word = |w: usize| word(b, w, g);
    // Halves of bytes: four words have 16 low ones and then 16 high ones.
    let halves = |first: usize| bits(word(first + i % 4), -4 * (i / 4).cast_signed(), 15);
    // Bit `i` of each byte is the fifth of its code.
    let fifth = |v| bits(v, 4 - i.cast_signed(), 16);
    // Where parts of 16 elements stand: 128 n + 32 j + 16 h.
    let (n, j, h) = (p / 8, p / 2 % 4, p % 2);
    let (nibble, pair) = (-4 * (p % 2).cast_signed(), 2 * j.cast_signed());
    let codes = match F {
        f::Q4_0 => halves(0),
        f::Q4_1 => halves(1),
        f::Q5_0 => vorrq_u8(halves(1), fifth(word(0))),
        f::Q5_1 => vorrq_u8(halves(2), fifth(word(1))),
        f::Q8_0 => word(i),
        f::IQ4_NL => look_up(&IQ4_LEVELS, halves(0)),
        f::MXFP4 => look_up(&E2M1_LEVELS, halves(0)),
        f::Q2_K => bits(word(4 + 8 * n + 4 * h + i), -pair, 3),
        f::Q3_K => {
            let third = bits(word(4 + 2 * (4 * h + i)), 2 - (4 * n + j).cast_signed(), 4);
            let low = word(if n == 0 { 3 + 2 * (4 * h + i) } else { 19 + 4 * h + i });
            join(shift(low, -pair), third, 3)
        }
        f::Q4_K => bits(word(4 + 8 * (p / 2) + i), nibble, 15),
        f::Q5_K => {
            let fifth = bits(word(5 + 2 * i), 4 - p.cast_signed(), 16);
            let low = word(if p < 2 { 4 + 2 * i } else { 12 + 8 * (p / 2) + i });
            join(shift(low, nibble), fifth, 15)
        }
        f::Q6_K => {
            let first = 4 + 24 * n + 12 * h + 3 * i;
            let high = bits(word(first + 2), 4 - pair, 48);
            join(shift(word(first + j % 2), -4 * (j / 2).cast_signed()), high, 15)
        }
        f::TQ2 => bits(word(8 * n + 4 * h + i), -pair, 3),
        f::CODED => word(4 * p + i),
        _ => look_up(&IQ4_LEVELS, bits(word(2 + 4 * p + i % 4), -4 * (i / 4).cast_signed(), 15)),
    };
    vreinterpretq_s8_u8(codes)
}

/// The sub-scales of a superblock and its minima, of four rows.
pub(super) struct Scales {
    /// Four neighbours in a lane's bytes. IQ4_XS's are put together when they are asked for: here are its words.
    scales: [uint8x16_t; 4],
    /// The same of minima.
    mins: [uint8x16_t; 4],
}

impl Scales {
    /// Those of one block.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn of<const F: u8, const N: usize>(b: &Block<N>, g: usize) -> Self {
        let word = |w: usize| word(b, w, g);
        let (mut scales, mut mins) = ([vdupq_n_u8(0); 4], [vdupq_n_u8(0); 4]);
        match F {
            f::Q2_K => {
                for i in 0..4 {
                    scales[i] = bits(word(i), 0, 15);
                    mins[i] = shift(word(i), -4);
                }
            }
            f::Q3_K => {
                let high = word(2);
                for i in 0..4 {
                    let low = bits(word(i % 2), -4 * (i / 2).cast_signed(), 15);
                    let both = vorrq_u8(low, bits(high, 4 - 2 * i.cast_signed(), 48));
                    scales[i] = vsubq_u8(both, vdupq_n_u8(32));
                }
            }
            f::Q4_K | f::Q5_K => {
                let [a, b, c] = [word(1), word(2), word(3)];
                scales[0] = bits(a, 0, 63);
                scales[1] = vorrq_u8(bits(c, 0, 15), bits(a, -2, 48));
                mins[0] = bits(b, 0, 63);
                mins[1] = vorrq_u8(shift(c, -4), bits(b, -2, 48));
            }
            f::TQ2 => scales = [vdupq_n_u8(1); 4],
            f::Q6_K | f::CODED => {
                let first = if F == f::CODED { SCALES / 4 } else { 0 };
                for i in 0..4 {
                    scales[i] = word(first + i);
                }
            }
            _ => (scales[0], scales[1]) = (word(0), word(1)),
        }
        Self { scales, mins }
    }

    /// That of part `p`.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn scale<const F: u8>(&self, p: usize) -> int32x4_t {
        let shift = |v, by: isize| vshlq_u32(vreinterpretq_u32_u8(v), vdupq_n_s32(by as i32));
        if F == f::IQ4_XS {
            let low = vandq_u32(shift(self.scales[1], -4 * p.cast_signed()), vdupq_n_u32(15));
            // Sixteen bits of high pairs stand in the upper half: their first pair has to come to the fifth bit.
            let high = vandq_u32(shift(self.scales[0], -12 - 2 * p.cast_signed()), vdupq_n_u32(48));
            return vsubq_s32(vreinterpretq_s32_u32(vorrq_u32(low, high)), vdupq_n_s32(32));
        }
        let top = shift(self.scales[p / 4], 24 - 8 * (p % 4).cast_signed());
        vshrq_n_s32::<24>(vreinterpretq_s32_u32(top))
    }

    /// The minimum of part `p`.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn min(&self, p: usize) -> int32x4_t {
        let by = vdupq_n_s32(-8 * (p % 4) as i32);
        let low = vshlq_u32(vreinterpretq_u32_u8(self.mins[p / 4]), by);
        vreinterpretq_s32_u32(vandq_u32(low, vdupq_n_u32(255)))
    }
}

/// The factor of a block's codes, and that of its minima with its sign, of four rows.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn factors<const F: u8, const N: usize>(b: &Block<N>, g: usize) -> (float32x4_t, float32x4_t) {
    let zero = vdupq_n_f32(0.0);
    let whole = |w: usize| vreinterpretq_u32_u8(word(b, w, g));
    match F {
        f::Q4_1 | f::Q5_1 => (widen(vmovn_u32(whole(0))), widen(vshrn_n_u32::<16>(whole(0)))),
        f::Q2_K | f::Q4_K | f::Q5_K => {
            let both = whole(if F == f::Q2_K { 20 } else { 0 });
            (widen(vmovn_u32(both)), vnegq_f32(widen(vshrn_n_u32::<16>(both))))
        }
        f::IQ4_XS => (widen(vmovn_u32(whole(0))), zero),
        f::CODED => (vreinterpretq_f32_u32(whole(FACTOR / 4)), zero),
        f::MXFP4 => {
            let tail = b.as_flattened().last_chunk::<STRIP>().unwrap_or(&[0; STRIP]);
            let e = lanes([tail[4 * g], tail[4 * g + 1], tail[4 * g + 2], tail[4 * g + 3]].map(u32::from));
            let normal = vshlq_n_u32::<23>(vsubq_u32(e, vdupq_n_u32(1)));
            let small = vshlq_u32(vdupq_n_u32(0x0020_0000), vreinterpretq_s32_u32(e));
            let below = vcltq_u32(e, vdupq_n_u32(2));
            (vreinterpretq_f32_u32(vbslq_u32(below, small, normal)), zero)
        }
        _ => {
            assert!(g < 4);
            // SAFETY: eight of the block's last 32 bytes are read.
            let d = unsafe { vld1_u8(b.as_ptr().cast::<u8>().add(STRIP * N - 32 + 8 * g)) };
            (widen(vreinterpret_u16_u8(d)), zero)
        }
    }
}
