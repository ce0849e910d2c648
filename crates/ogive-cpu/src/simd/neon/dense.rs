//! Dense rows times activations in single precision: a register has the four lanes of a row.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::asm::widen;
use crate::linear::{Dense, LANES};
use std::arch::aarch64::*;

pub(super) const F32: u8 = Dense::F32 as u8;
pub(super) const F16: u8 = Dense::F16 as u8;
pub(super) const BF16: u8 = Dense::Bf16 as u8;

/// Rows that tokens meet together.
pub(super) const ROWS: usize = 8;
/// Elements that are read together.
const CHUNK: usize = 2 * LANES;

/// Products of eight rows, as the file has them, with `T` tokens; a chunk takes `BYTES`.
#[target_feature(enable = "neon")]
pub(super) fn few<const W: u8, const BYTES: usize, const T: usize>(
    kind: Dense,
    rows: [&[u8]; ROWS],
    x: [&[f32]; T],
) -> [[f32; ROWS]; T] {
    let whole = rows[0].len() / BYTES;
    let (no_row, no_token): (&[[u8; BYTES]], &[[f32; CHUNK]]) = (&[], &[]);
    let (mut ws, mut xs) = ([no_row; ROWS], [no_token; T]);
    for r in 0..ROWS {
        ws[r] = &rows[r].as_chunks().0[..whole];
    }
    for t in 0..T {
        xs[t] = &x[t].as_chunks().0[..whole];
    }
    let mut sums = [[vdupq_n_f32(0.0); ROWS]; T];
    for i in 0..whole {
        for r in 0..ROWS {
            let w = read::<W>(&ws[r][i]);
            for t in 0..T {
                let x = xs[t][i].as_chunks().0;
                sums[t][r] = vfmaq_f32(vfmaq_f32(sums[t][r], load(&x[0]), w[0]), load(&x[1]), w[1]);
            }
        }
    }
    let rest = x.map(|x| x[whole * CHUNK..].as_chunks::<LANES>().0);
    let mut end = [0.0; CHUNK];
    let end = &mut end[..rest[0].len() * LANES];
    for r in 0..if end.is_empty() { 0 } else { ROWS } {
        kind.decode(&rows[r][whole * BYTES..], end);
        for (i, w) in end.as_chunks().0.iter().enumerate() {
            for t in 0..T {
                sums[t][r] = vfmaq_f32(sums[t][r], load(&rest[t][i]), load(w));
            }
        }
    }
    let mut out = [[0.0; ROWS]; T];
    for t in 0..T {
        for r in 0..ROWS {
            out[t][r] = add_lanes(sums[t][r]);
        }
    }
    out
}

/// The twin of [`Dense::decode`].
#[target_feature(enable = "neon")]
pub(super) fn decode(kind: Dense, row: &[u8], out: &mut [f32]) {
    match kind {
        Dense::F32 => kind.decode(row, out),
        Dense::F16 => decode_halves::<F16>(kind, row, out),
        Dense::Bf16 => decode_halves::<BF16>(kind, row, out),
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn decode_halves<const W: u8>(kind: Dense, row: &[u8], out: &mut [f32]) {
    let (whole, rest) = row.as_chunks::<{ 2 * CHUNK }>();
    let (to, end) = out.split_at_mut(whole.len() * CHUNK);
    for (w, [low, high]) in whole.iter().zip(to.as_chunks_mut().0.as_chunks_mut().0) {
        let values = read::<W>(w);
        store(values[0], low);
        store(values[1], high);
    }
    kind.decode(rest, end);
}

/// Products of eight rows with `T` tokens, all padded and equally long.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn many<const T: usize>(w: [&[f32]; ROWS], x: [&[f32]; T]) -> [[f32; ROWS]; T] {
    let len = w[0].len() / LANES;
    let none: &[[f32; LANES]] = &[];
    let (mut ws, mut xs) = ([none; ROWS], [none; T]);
    for r in 0..ROWS {
        ws[r] = &w[r].as_chunks().0[..len];
    }
    for t in 0..T {
        xs[t] = &x[t].as_chunks().0[..len];
    }
    let mut sums = [[vdupq_n_f32(0.0); ROWS]; T];
    for i in 0..len {
        let mut x = [vdupq_n_f32(0.0); T];
        for t in 0..T {
            x[t] = load(&xs[t][i]);
        }
        for r in 0..ROWS {
            let w = load(&ws[r][i]);
            for t in 0..T {
                sums[t][r] = vfmaq_f32(sums[t][r], x[t], w);
            }
        }
    }
    let mut out = [[0.0; ROWS]; T];
    for t in 0..T {
        for r in 0..ROWS {
            out[t][r] = add_lanes(sums[t][r]);
        }
    }
    out
}

/// Neighbours are added, then pairs of them.
#[inline]
#[target_feature(enable = "neon")]
fn add_lanes(s: float32x4_t) -> f32 {
    vpadds_f32(vget_low_f32(vpaddq_f32(s, s)))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(v: &[f32; LANES]) -> float32x4_t {
    // SAFETY: 16 bytes are read from an array of 16.
    unsafe { vld1q_f32(v.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(v: float32x4_t, to: &mut [f32; LANES]) {
    // SAFETY: 16 bytes are written to an array of 16.
    unsafe { vst1q_f32(to.as_mut_ptr(), v) };
}

/// Eight elements in order.
#[inline]
#[target_feature(enable = "neon")]
fn read<const W: u8>(b: &[u8]) -> [float32x4_t; 2] {
    match W {
        F32 => [vreinterpretq_f32_u32(words(b)), vreinterpretq_f32_u32(words(&b[16..]))],
        F16 => {
            let halves = vreinterpretq_u16_u32(words(b));
            [widen(vget_low_u16(halves)), widen(vget_high_u16(halves))]
        }
        _ => {
            let pairs = words(b);
            let odd = vbicq_u32(pairs, vdupq_n_u32(0xffff));
            [vreinterpretq_f32_u32(odd), vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs))]
        }
    }
}

/// Sixteen bytes as words.
#[inline]
#[target_feature(enable = "neon")]
fn words(b: &[u8]) -> uint32x4_t {
    assert!(b.len() >= 16);
    // SAFETY: there are so many.
    vreinterpretq_u32_u8(unsafe { vld1q_u8(b.as_ptr()) })
}
