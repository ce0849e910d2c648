//! A panel of eight unpacked rows times up to four tokens: two registers with a lane for each row.
//!
//! Eight sums of a part and eight of a superblock fit the registers with what is multiplied, so nothing is put away between.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::{
    dot::Dot,
    panel::{Panel, ROWS},
};
use crate::linear::Quantised;
use std::arch::aarch64::*;

/// Tokens that a panel meets at a time.
pub(super) const TOKENS: usize = 4;

/// A register for each half of the rows and each token.
type Sums<V, const T: usize> = [[V; 2]; T];

/// A slice of each token's row.
type Cut<'a, V, const T: usize> = [&'a [V]; T];

/// Adds the products of a panel with activations from element `from` on. Its blocks have `P` parts: one of 32 elements, or
/// several of a superblock. Blocks of activations are of `block` elements.
#[inline(never)]
#[target_feature(enable = "neon")]
pub(super) fn many<D: Dot, const P: usize, const T: usize>(
    d: D,
    panel: &Panel,
    x: [&Quantised; T],
    block: usize,
    from: usize,
    sums: [&mut [f32; ROWS]; T],
) {
    let mut out = [[vdupq_n_f32(0.0); 2]; T];
    for t in 0..T {
        out[t] = floats(sums[t]);
    }
    if P == 1 {
        blocks(d, panel, x, block, from, &mut out);
    } else {
        superblocks::<D, P, T>(d, panel, x, from, &mut out);
    }
    for (sums, out) in sums.into_iter().zip(out) {
        // SAFETY: 16 bytes are written to each half of an array of 32.
        unsafe {
            vst1q_f32(sums.as_mut_ptr(), out[0]);
            vst1q_f32(sums.as_mut_ptr().add(4), out[1]);
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn superblocks<D: Dot, const P: usize, const T: usize>(
    d: D,
    panel: &Panel,
    x: [&Quantised; T],
    from: usize,
    out: &mut Sums<float32x4_t, T>,
) {
    let (first, quads) = (from / 256, 64 / P);
    let count = panel.d.len();
    let codes = &panel.codes.as_chunks::<64>().0[..count];
    let scales = &panel.scales.as_chunks::<P>().0[..count];
    // Cut to one length, so that the loop below checks no bounds.
    let mut acts_of: Cut<'_, [[i8; 16]; 16], T> = [&[]; T];
    let mut sums_of: Cut<'_, [i16; 16], T> = [&[]; T];
    let mut scale_of: Cut<'_, f32, T> = [&[]; T];
    for t in 0..T {
        acts_of[t] = &x[t].codes.as_chunks().0.as_chunks().0[first..][..count];
        sums_of[t] = &x[t].sums.as_chunks().0[first..][..count];
        scale_of[t] = &x[t].scales[first..][..count];
    }
    for b in 0..count {
        let mut total = [[vdupq_n_s32(0); 2]; T];
        for p in 0..P {
            let mut now: Cut<'_, [i8; 16], T> = [&[]; T];
            for t in 0..T {
                now[t] = &acts_of[t][b][p * quads / 4..][..quads / 4];
            }
            let part = d.part(&codes[b][p * quads..][..quads], now);
            let scale = integers(&scales[b][p]);
            for t in 0..T {
                for r in 0..2 {
                    total[t][r] = vmlaq_s32(total[t][r], part[t][r], scale[r]);
                }
            }
        }
        let mut low = [[vdupq_n_s32(0); 2]; T];
        if let Some(mins) = panel.mins.as_chunks::<P>().0.get(b) {
            let mut s = [[vdupq_n_s16(0); 2]; T];
            for t in 0..T {
                s[t] = part_sums::<P>(&sums_of[t][b]);
            }
            for (i, mins) in mins.as_chunks::<8>().0.iter().enumerate() {
                by_min::<0, T>(&mins[0], &s, i, &mut low);
                by_min::<1, T>(&mins[1], &s, i, &mut low);
                by_min::<2, T>(&mins[2], &s, i, &mut low);
                by_min::<3, T>(&mins[3], &s, i, &mut low);
                by_min::<4, T>(&mins[4], &s, i, &mut low);
                by_min::<5, T>(&mins[5], &s, i, &mut low);
                by_min::<6, T>(&mins[6], &s, i, &mut low);
                by_min::<7, T>(&mins[7], &s, i, &mut low);
            }
        }
        let factor = floats(&panel.d[b]);
        for t in 0..T {
            for r in 0..2 {
                let mut p = vmulq_f32(factor[r], vcvtq_f32_s32(total[t][r]));
                if let Some(m) = panel.m.get(b) {
                    p = vfmaq_f32(p, floats(m)[r], vcvtq_f32_s32(low[t][r]));
                }
                out[t][r] = vfmaq_n_f32(out[t][r], p, scale_of[t][b]);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn blocks<D: Dot, const T: usize>(
    d: D,
    panel: &Panel,
    x: [&Quantised; T],
    block: usize,
    from: usize,
    out: &mut Sums<float32x4_t, T>,
) {
    let (first, each) = (from / 32, (block / 32).max(1));
    let count = panel.d.len();
    let codes = &panel.codes.as_chunks::<8>().0[..count];
    for group in 0..count / each {
        // Cut to one length, so that the loop below checks no bounds.
        let (codes, d_of) = (&codes[group * each..][..each], &panel.d[group * each..][..each]);
        let m_of = panel.m.get(group * each..).unwrap_or_default();
        let mut acts_of: Cut<'_, [[i8; 16]; 2], T> = [&[]; T];
        let mut sums_of: Cut<'_, [i16; 2], T> = [&[]; T];
        for t in 0..T {
            acts_of[t] = &x[t].codes.as_chunks().0.as_chunks().0[first + group * each..][..each];
            sums_of[t] = &x[t].sums.as_chunks().0[first + group * each..][..each];
        }
        let mut p = [[vdupq_n_f32(0.0); 2]; T];
        for b in 0..each {
            let mut acts: Cut<'_, [i8; 16], T> = [&[]; T];
            for t in 0..T {
                acts[t] = acts_of[t][b].as_slice();
            }
            let part = d.part(&codes[b], acts);
            let factor = floats(&d_of[b]);
            for t in 0..T {
                for r in 0..2 {
                    p[t][r] = vfmaq_f32(p[t][r], factor[r], vcvtq_f32_s32(part[t][r]));
                }
                if let Some(m) = m_of.get(b) {
                    let [low, high] = sums_of[t][b];
                    for r in 0..2 {
                        p[t][r] = vfmaq_n_f32(p[t][r], floats(m)[r], f32::from(low + high));
                    }
                }
            }
        }
        for t in 0..T {
            for r in 0..2 {
                out[t][r] = vfmaq_n_f32(out[t][r], p[t][r], x[t].scales[first / each + group]);
            }
        }
    }
}

/// The sums of the activations of each part, eight or sixteen; the second register is one of the latter.
#[inline]
#[target_feature(enable = "neon")]
fn part_sums<const P: usize>(sums: &[i16; 16]) -> [int16x8_t; 2] {
    // SAFETY: 16 bytes are read from each half of an array of 32.
    let both = unsafe { [vld1q_s16(sums.as_ptr()), vld1q_s16(sums.as_ptr().add(8))] };
    if P == 16 { both } else { [vpaddq_s16(both[0], both[1]); 2] }
}

/// Adds the product of the minima of part `8 i + L` with its sum.
#[inline]
#[target_feature(enable = "neon")]
fn by_min<const L: i32, const T: usize>(
    mins: &[i16; ROWS],
    sums: &[[int16x8_t; 2]; T],
    i: usize,
    low: &mut Sums<int32x4_t, T>,
) {
    // SAFETY: 16 bytes are read from an array of 16.
    let mins = unsafe { vld1q_s16(mins.as_ptr()) };
    for t in 0..T {
        low[t][0] = vmlal_laneq_s16::<L>(low[t][0], vget_low_s16(mins), sums[t][i]);
        low[t][1] = vmlal_high_laneq_s16::<L>(low[t][1], mins, sums[t][i]);
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn integers(v: &[i32; ROWS]) -> [int32x4_t; 2] {
    // SAFETY: 16 bytes are read from each half of an array of 32.
    unsafe { [vld1q_s32(v.as_ptr()), vld1q_s32(v.as_ptr().add(4))] }
}

#[inline]
#[target_feature(enable = "neon")]
fn floats(v: &[f32; ROWS]) -> [float32x4_t; 2] {
    // SAFETY: 16 bytes are read from each half of an array of 32.
    unsafe { [vld1q_f32(v.as_ptr()), vld1q_f32(v.as_ptr().add(4))] }
}
