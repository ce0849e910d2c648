//! Eight rows of a strip, unpacked for many tokens.
//!
//! Codes are signed bytes as they are meant, so that what multiplies them knows nothing of formats but how many parts a block
//! has. How neighbours lie is the multiplier's choice: four of four rows to a register, or eight of two.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::{
    dot::Dot,
    strip::{self, Block, Scales, elements, factors, parts, quad, raise},
};
use crate::simd::formats::{has_min, super_block};
use std::arch::aarch64::*;

/// Rows of a panel.
pub(super) const ROWS: usize = 8;

/// Four codes of each row; of every two of these the first may have eight codes of four rows.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(in crate::simd) struct Quad(pub(super) [[i8; 4]; ROWS]);

/// The unpacked rows; its buffers are used again.
#[derive(Debug, Default)]
pub(super) struct Panel {
    /// `[k / 4]`
    pub(super) codes: Vec<Quad>,
    /// Sub-scales. `[superblocks * parts]`
    pub(super) scales: Vec<[i32; ROWS]>,
    /// What sums of activations are multiplied with. `[superblocks * parts]`
    pub(super) mins: Vec<[i16; ROWS]>,
    /// The factor of the codes. `[blocks]`
    pub(super) d: Vec<[f32; ROWS]>,
    /// The factor of the minima, with its sign; empty where there are none. `[blocks]`
    pub(super) m: Vec<[f32; ROWS]>,
}

impl Panel {
    /// Unpacks half of a strip's rows, the lower ones or the upper.
    #[target_feature(enable = "neon")]
    pub(super) fn unpack<D: Dot, const F: u8, const N: usize>(&mut self, strip: &[u8], upper: bool) {
        let blocks = strip::blocks::<N>(strip);
        let (count, quads) = (blocks.len(), elements(F) / 4);
        let sub = if super_block(F) { count * parts(F) } else { 0 };
        self.codes.resize(count * quads, Quad([[0; 4]; ROWS]));
        self.scales.resize(sub, [0; ROWS]);
        self.mins.resize(if has_min(F) { sub } else { 0 }, [0; ROWS]);
        self.d.resize(count, [0.0; ROWS]);
        self.m.resize(if has_min(F) { count } else { 0 }, [0.0; ROWS]);
        let g = if upper { 2 } else { 0 };
        for (b, block) in blocks.iter().enumerate() {
            let each = quads / parts(F);
            for (p, to) in self.codes[b * quads..][..quads].chunks_exact_mut(each).enumerate() {
                for (i, to) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    put::<D>(to, [codes::<F, N>(block, p, 2 * i, g), codes::<F, N>(block, p, 2 * i + 1, g)]);
                }
            }
            let (low, high) = (factors::<F, N>(block, g), factors::<F, N>(block, g + 1));
            put_singles(&mut self.d[b], [low.0, high.0]);
            if has_min(F) {
                put_singles(&mut self.m[b], [low.1, high.1]);
            }
            if super_block(F) {
                self.scales::<F, N>(b, block, g);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn scales<const F: u8, const N: usize>(&mut self, b: usize, block: &Block<N>, g: usize) {
        let scales = [Scales::of::<F, N>(block, g), Scales::of::<F, N>(block, g + 1)];
        for (p, to) in self.scales[b * parts(F)..][..parts(F)].iter_mut().enumerate() {
            for r in 0..2 {
                // SAFETY: 16 bytes are written to each half of an array of 32.
                unsafe { vst1q_s32(to.as_mut_ptr().add(4 * r), scales[r].scale::<F>(p)) };
            }
        }
        if has_min(F) {
            for (p, to) in self.mins[b * parts(F)..][..parts(F)].iter_mut().enumerate() {
                let both = vcombine_s16(vmovn_s32(scales[0].min(p)), vmovn_s32(scales[1].min(p)));
                // SAFETY: 16 bytes are written to an array of 16.
                unsafe { vst1q_s16(to.as_mut_ptr(), both) };
            }
        }
    }
}

/// Codes `4 i..4 i + 4` of part `p` of eight rows, as they are meant.
#[inline]
#[target_feature(enable = "neon")]
fn codes<const F: u8, const N: usize>(b: &Block<N>, p: usize, i: usize, g: usize) -> [int8x16_t; 2] {
    let mut both = [quad::<F, N>(b, p, i, g), quad::<F, N>(b, p, i, g + 1)];
    if raise(F) != 0 {
        for r in 0..2 {
            both[r] = vsubq_s8(both[r], vdupq_n_s8(raise(F)));
        }
    }
    both
}

/// Writes eight neighbours of eight rows.
#[inline]
#[target_feature(enable = "neon")]
fn put<D: Dot>(to: &mut [Quad; 2], [first, second]: [[int8x16_t; 2]; 2]) {
    let mut v = [first[0], first[1], second[0], second[1]];
    if D::EIGHTS {
        for r in 0..2 {
            let (a, b) = (vreinterpretq_s32_s8(first[r]), vreinterpretq_s32_s8(second[r]));
            v[2 * r] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
            v[2 * r + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
        }
    }
    for r in 0..4 {
        // SAFETY: 16 bytes are written to each quarter of an array of 64.
        unsafe { vst1q_s8(to.as_mut_ptr().cast::<i8>().add(16 * r), v[r]) };
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn put_singles(to: &mut [f32; ROWS], v: [float32x4_t; 2]) {
    // SAFETY: 16 bytes are written to each half of an array of 32.
    unsafe {
        vst1q_f32(to.as_mut_ptr(), v[0]);
        vst1q_f32(to.as_mut_ptr().add(4), v[1]);
    }
}
