//! A strip times one or two tokens: one stream through sixteen rows, unpacked in registers.
//!
//! Nothing is summed across a register and nothing is written before the end, so a block costs little more than its products,
//! and a token waits for memory.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::{
    dot::{Dot, load},
    strip::{self, Block, Scales, elements, factors, parts, quad, raise},
};
use crate::{
    linear::{Quantised, STRIP},
    simd::formats::{fine, has_min, super_block},
};
use std::arch::aarch64::*;

/// A register for each four rows and each token.
type Sums<V, const T: usize> = [[V; 4]; T];

/// Products of a strip's rows with `T` tokens. Blocks of activations are of `block` elements.
#[inline(never)]
#[target_feature(enable = "neon")]
pub(super) fn stream<D: Dot, const F: u8, const N: usize, const T: usize>(
    d: D,
    strip: &[u8],
    x: [&Quantised; T],
    block: usize,
) -> [[f32; STRIP]; T] {
    let blocks = strip::blocks::<N>(strip);
    let sums = if super_block(F) {
        superblocks::<D, F, N, T>(d, blocks, x)
    } else {
        small::<D, F, N, T>(d, blocks, x, (block / elements(F)).max(1))
    };
    let mut out = [[0.0; STRIP]; T];
    for t in 0..T {
        for g in 0..4 {
            // SAFETY: 16 bytes are written to each quarter of an array of 64.
            unsafe { vst1q_f32(out[t].as_mut_ptr().add(4 * g), sums[t][g]) };
        }
    }
    out
}

#[inline]
#[target_feature(enable = "neon")]
fn superblocks<D: Dot, const F: u8, const N: usize, const T: usize>(
    d: D,
    blocks: &[Block<N>],
    x: [&Quantised; T],
) -> Sums<float32x4_t, T> {
    let parts = parts(F);
    let mut out = [[vdupq_n_f32(0.0); 4]; T];
    for (b, block) in blocks.iter().enumerate() {
        let mut acts: [&[[i8; 16]; 16]; T] = [&[[0; 16]; 16]; T];
        let mut act_sums: [&[i16; 16]; T] = [&[0; 16]; T];
        for t in 0..T {
            acts[t] = &x[t].codes.as_chunks().0.as_chunks().0[b];
            act_sums[t] = &x[t].sums.as_chunks().0[b];
        }
        let mut scales = [const { None }; 4];
        for g in 0..4 {
            scales[g] = Some(Scales::of::<F, N>(block, g));
        }
        let mut total = [[vdupq_n_s32(0); 4]; T];
        let mut low = [[vdupq_n_s32(0); 4]; T];
        for p in 0..parts {
            let mut sums = [0; T];
            for t in 0..T {
                let s = act_sums[t];
                sums[t] = i32::from(if fine(F) { s[p] } else { s[2 * p] + s[2 * p + 1] });
            }
            let chunks = 16 / parts;
            let mut now: [&[[i8; 16]]; T] = [&[]; T];
            for t in 0..T {
                now[t] = &acts[t][p * chunks..][..chunks];
            }
            let part = part::<D, F, N, T>(d, block, p, now, sums);
            for (g, scales) in scales.iter().flatten().enumerate() {
                let scale = scales.scale::<F>(p);
                for t in 0..T {
                    total[t][g] = vmlaq_s32(total[t][g], part[t][g], scale);
                }
                if has_min(F) {
                    let min = scales.min(p);
                    for t in 0..T {
                        low[t][g] = vmlaq_n_s32(low[t][g], min, sums[t]);
                    }
                }
            }
        }
        for g in 0..4 {
            let (d, m) = factors::<F, N>(block, g);
            for t in 0..T {
                let mut p = vmulq_f32(d, vcvtq_f32_s32(total[t][g]));
                if has_min(F) {
                    p = vfmaq_f32(p, m, vcvtq_f32_s32(low[t][g]));
                }
                out[t][g] = vfmaq_n_f32(out[t][g], p, x[t].scales[b]);
            }
        }
    }
    out
}

#[inline]
#[target_feature(enable = "neon")]
fn small<D: Dot, const F: u8, const N: usize, const T: usize>(
    d: D,
    blocks: &[Block<N>],
    x: [&Quantised; T],
    each: usize,
) -> Sums<float32x4_t, T> {
    let mut out = [[vdupq_n_f32(0.0); 4]; T];
    for (group, blocks) in blocks.chunks_exact(each).enumerate() {
        let mut p = [[vdupq_n_f32(0.0); 4]; T];
        for (b, block) in blocks.iter().enumerate() {
            let (mut acts, mut sums): ([&[[i8; 16]]; T], [i32; T]) = ([&[]; T], [0; T]);
            for t in 0..T {
                acts[t] = x[t].codes.as_chunks().0.as_chunks::<2>().0[group * each + b].as_slice();
                let [low, high] = x[t].sums.as_chunks().0[group * each + b];
                sums[t] = i32::from(low + high);
            }
            let part = part::<D, F, N, T>(d, block, 0, acts, sums);
            for g in 0..4 {
                let (d, m) = factors::<F, N>(block, g);
                for t in 0..T {
                    p[t][g] = vfmaq_f32(p[t][g], d, vcvtq_f32_s32(part[t][g]));
                    if has_min(F) {
                        p[t][g] = vfmaq_n_f32(p[t][g], m, sums[t] as f32);
                    }
                }
            }
        }
        for t in 0..T {
            for g in 0..4 {
                out[t][g] = vfmaq_n_f32(out[t][g], p[t][g], x[t].scales[group]);
            }
        }
    }
    out
}

/// The sums of part `p`'s products with activations that are `sums` in all.
#[inline]
#[target_feature(enable = "neon")]
fn part<D: Dot, const F: u8, const N: usize, const T: usize>(
    d: D,
    block: &Block<N>,
    p: usize,
    acts: [&[[i8; 16]]; T],
    sums: [i32; T],
) -> Sums<int32x4_t, T> {
    let mut part = [[vdupq_n_s32(0); 4]; T];
    if raise(F) != 0 {
        for t in 0..T {
            // What raised codes add, taken off.
            part[t] = [vdupq_n_s32(-i32::from(raise(F)) * sums[t]); 4];
        }
    }
    for c in 0..if fine(F) { 1 } else { 2 } {
        let mut a = [vdupq_n_s8(0); T];
        for t in 0..T {
            a[t] = load(&acts[t][c]);
        }
        four::<D, 0, F, N, T>(d, block, [p, 4 * c], a, &mut part);
        four::<D, 1, F, N, T>(d, block, [p, 4 * c + 1], a, &mut part);
        four::<D, 2, F, N, T>(d, block, [p, 4 * c + 2], a, &mut part);
        four::<D, 3, F, N, T>(d, block, [p, 4 * c + 3], a, &mut part);
    }
    part
}

/// Adds the products of codes `4 i..4 i + 4` of part `p` with lane `I` of the activations.
#[inline]
#[target_feature(enable = "neon")]
fn four<D: Dot, const I: i32, const F: u8, const N: usize, const T: usize>(
    d: D,
    block: &Block<N>,
    [p, i]: [usize; 2],
    acts: [int8x16_t; T],
    sums: &mut Sums<int32x4_t, T>,
) {
    for g in 0..4 {
        let codes = quad::<F, N>(block, p, i, g);
        for t in 0..T {
            sums[t][g] = d.dot::<I>(sums[t][g], codes, acts[t]);
        }
    }
}
