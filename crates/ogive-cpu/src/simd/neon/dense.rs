//! Dense rows times activations in single precision: a sum's sixteen lanes are four registers.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::asm::widen;
use crate::linear::{Dense, LANES};
use std::arch::aarch64::*;

pub(super) const F32: u8 = Dense::F32 as u8;
pub(super) const F16: u8 = Dense::F16 as u8;
pub(super) const BF16: u8 = Dense::Bf16 as u8;

/// Rows that a stream through the weight takes together.
pub(super) const ROWS: usize = 4;

/// The sixteen lanes of a sum.
type Sum = [float32x4_t; 4];

/// Elements that are read together, and how many bytes they take.
const fn chunk(kind: u8) -> (usize, usize) {
    match kind {
        F32 => (16, 64),
        F16 => (16, 32),
        _ => (32, 64),
    }
}

/// Products of four rows, as the file has them, with one token.
#[target_feature(enable = "neon")]
pub(super) fn few<const W: u8>(kind: Dense, rows: [&[u8]; ROWS], x: &[f32]) -> [f32; ROWS] {
    let (len, bytes) = chunk(W);
    let mut sums = [[vdupq_n_f32(0.0); 4]; ROWS];
    let whole = rows[0].len() / bytes;
    for (i, x) in x.chunks_exact(len).take(whole).enumerate() {
        for r in 0..ROWS {
            step::<W>(&rows[r][i * bytes..][..bytes], x, &mut sums[r]);
        }
    }
    let rest = x.get(whole * len..).unwrap_or_default();
    if !rest.is_empty() {
        let mut end = [0.0; 32];
        for r in 0..ROWS {
            kind.decode(&rows[r][whole * bytes..], &mut end[..len]);
            for (w, x) in end[..len].as_chunks::<LANES>().0.iter().zip(rest.as_chunks().0) {
                multiply(load(w), load(x), &mut sums[r]);
            }
        }
    }
    let mut out = [0.0; ROWS];
    for r in 0..ROWS {
        out[r] = add_lanes(sums[r]);
    }
    out
}

/// Adds the products of one chunk.
#[inline]
#[target_feature(enable = "neon")]
fn step<const W: u8>(w: &[u8], x: &[f32], sum: &mut Sum) {
    let x = x.as_chunks::<LANES>().0;
    match W {
        F32 => multiply(singles(w), load(&x[0]), sum),
        F16 => multiply(halves(w), load(&x[0]), sum),
        _ => {
            let (odd, even) = odd_even(w);
            multiply(odd, load(&x[0]), sum);
            multiply(even, load(&x[1]), sum);
        }
    }
}

/// The twin of [`Dense::decode`].
#[target_feature(enable = "neon")]
pub(super) fn decode(kind: Dense, row: &[u8], out: &mut [f32]) {
    match kind {
        Dense::F32 => kind.decode(row, out),
        Dense::F16 => {
            let (whole, rest) = row.as_chunks::<32>();
            let (to, end) = out.split_at_mut(whole.len() * LANES);
            for (w, o) in whole.iter().zip(to.as_chunks_mut().0) {
                store(halves(w), o);
            }
            kind.decode(rest, end);
        }
        Dense::Bf16 => {
            let (whole, rest) = row.as_chunks::<64>();
            let (to, end) = out.split_at_mut(whole.len() * 2 * LANES);
            for (w, [odd, even]) in whole.iter().zip(to.as_chunks_mut().0.as_chunks_mut().0) {
                let sums = odd_even(w);
                store(sums.0, odd);
                store(sums.1, even);
            }
            kind.decode(rest, end);
        }
    }
}

/// Products of two rows with `T` tokens, all padded and equally long.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn many<const T: usize>(w: [&[f32]; 2], x: [&[f32]; T]) -> [[f32; 2]; T] {
    let len = w[0].len() / LANES;
    let none: &[[f32; LANES]] = &[];
    let (mut ws, mut xs) = ([none; 2], [none; T]);
    for r in 0..2 {
        ws[r] = &w[r].as_chunks().0[..len];
    }
    for t in 0..T {
        xs[t] = &x[t].as_chunks().0[..len];
    }
    let mut sums = [[[vdupq_n_f32(0.0); 4]; 2]; T];
    for i in 0..len {
        let w = [load(&ws[0][i]), load(&ws[1][i])];
        for t in 0..T {
            let x = load(&xs[t][i]);
            for r in 0..2 {
                multiply(w[r], x, &mut sums[t][r]);
            }
        }
    }
    let mut out = [[0.0; 2]; T];
    for t in 0..T {
        for r in 0..2 {
            out[t][r] = add_lanes(sums[t][r]);
        }
    }
    out
}

#[inline]
#[target_feature(enable = "neon")]
fn multiply(w: Sum, x: Sum, sum: &mut Sum) {
    for i in 0..4 {
        sum[i] = vfmaq_f32(sum[i], x[i], w[i]);
    }
}

/// The tree at the end: halves are added until one is left.
#[inline]
#[target_feature(enable = "neon")]
fn add_lanes(s: Sum) -> f32 {
    let s = vaddq_f32(vaddq_f32(s[0], s[2]), vaddq_f32(s[1], s[3]));
    vpadds_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s)))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(v: &[f32; LANES]) -> Sum {
    let from = v.as_ptr();
    // SAFETY: 16 bytes are read from each quarter of an array of 64.
    unsafe { [vld1q_f32(from), vld1q_f32(from.add(4)), vld1q_f32(from.add(8)), vld1q_f32(from.add(12))] }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(v: Sum, to: &mut [f32; LANES]) {
    for i in 0..4 {
        // SAFETY: 16 bytes are written to each quarter of an array of 64.
        unsafe { vst1q_f32(to.as_mut_ptr().add(4 * i), v[i]) };
    }
}

/// 64 bytes as words.
#[inline]
#[target_feature(enable = "neon")]
fn words(b: &[u8]) -> [uint32x4_t; 4] {
    assert!(b.len() >= 64);
    let mut v = [vdupq_n_u32(0); 4];
    for i in 0..4 {
        // SAFETY: there are 64 bytes.
        v[i] = vreinterpretq_u32_u8(unsafe { vld1q_u8(b.as_ptr().add(16 * i)) });
    }
    v
}

/// The odd and the even elements of 64 bytes of bf16.
#[inline]
#[target_feature(enable = "neon")]
fn odd_even(b: &[u8]) -> (Sum, Sum) {
    let zero = vdupq_n_f32(0.0);
    let (mut odd, mut even) = ([zero; 4], [zero; 4]);
    let words = words(b);
    for i in 0..4 {
        odd[i] = vreinterpretq_f32_u32(vbicq_u32(words[i], vdupq_n_u32(0xffff)));
        even[i] = vreinterpretq_f32_u32(vshlq_n_u32::<16>(words[i]));
    }
    (odd, even)
}

#[inline]
#[target_feature(enable = "neon")]
fn singles(b: &[u8]) -> Sum {
    let mut v = [vdupq_n_f32(0.0); 4];
    let words = words(b);
    for i in 0..4 {
        v[i] = vreinterpretq_f32_u32(words[i]);
    }
    v
}

#[inline]
#[target_feature(enable = "neon")]
fn halves(b: &[u8]) -> Sum {
    assert!(b.len() >= 32);
    let mut v = [vdupq_n_f32(0.0); 4];
    for i in 0..4 {
        // SAFETY: there are 32 bytes.
        v[i] = widen(vreinterpret_u16_u8(unsafe { vld1_u8(b.as_ptr().add(8 * i)) }));
    }
    v
}
