//! Dense rows times many tokens in single precision: a register has the four lanes of four rows.
#![allow(unsafe_code)]

use crate::linear::{LANES, Quads, TILE};
use std::arch::x86_64::*;

/// Registers of a tile's rows.
pub(super) const WIDE: usize = TILE / LANES;

/// Products of a tile's rows with `T` tokens, padded to as many elements.
#[target_feature(enable = "avx512f")]
pub(super) fn many<const T: usize>(tile: &[Quads], x: [&[f32]; T]) -> [[f32; TILE]; T] {
    let none: &[[f32; LANES]] = &[];
    let mut xs = [none; T];
    for t in 0..T {
        xs[t] = &x[t].as_chunks().0[..tile.len()];
    }
    let mut sums = [[_mm512_setzero_ps(); WIDE]; T];
    for (i, quads) in tile.iter().enumerate() {
        let mut w = [_mm512_setzero_ps(); WIDE];
        for (w, four) in w.iter_mut().zip(quads.as_chunks::<LANES>().0) {
            // SAFETY: 64 bytes are read from an array of 64.
            *w = unsafe { _mm512_loadu_ps(four.as_ptr().cast()) };
        }
        for t in 0..T {
            let x = quad(&xs[t][i]);
            for r in 0..WIDE {
                sums[t][r] = _mm512_fmadd_ps(x, w[r], sums[t][r]);
            }
        }
    }
    let mut out = [[0.0; TILE]; T];
    for (out, sums) in out.iter_mut().zip(sums) {
        for (out, sums) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
            *out = add_lanes(sums);
        }
    }
    out
}

/// Four elements, for each of four rows.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn quad(x: &[f32; LANES]) -> __m512 {
    // SAFETY: 16 bytes are read from an array of 16.
    _mm512_broadcast_f32x4(unsafe { _mm_loadu_ps(x.as_ptr()) })
}

/// Each row's lanes: neighbours are added, then pairs of them.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add_lanes(s: __m512) -> [f32; LANES] {
    let s = _mm512_add_ps(s, _mm512_permute_ps::<0b10_11_00_01>(s));
    let s = _mm512_add_ps(s, _mm512_permute_ps::<0b01_00_11_10>(s));
    // All four of a row are its sum now.
    let mut rows = [[0.0; LANES]; LANES];
    // SAFETY: 64 bytes are written to an array of 64.
    unsafe { _mm512_storeu_ps(rows.as_mut_ptr().cast(), s) };
    rows.map(|row| row[0])
}
