//! Dense rows times many tokens in single precision: a sum's sixteen lanes are one register.
#![allow(unsafe_code)]

use crate::linear::LANES;
use std::arch::x86_64::*;

/// Rows that meet a few tokens at a time.
pub(super) const ROWS: usize = 4;

/// Products of four rows with `T` tokens, all padded to lanes and equally long.
#[target_feature(enable = "avx512f")]
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
    let mut sums = [[_mm512_setzero_ps(); ROWS]; T];
    for i in 0..len {
        let mut w = [_mm512_setzero_ps(); ROWS];
        for r in 0..ROWS {
            w[r] = load(&ws[r][i]);
        }
        for t in 0..T {
            let x = load(&xs[t][i]);
            for r in 0..ROWS {
                sums[t][r] = _mm512_fmadd_ps(x, w[r], sums[t][r]);
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

/// The tree at the end: halves are added until one is left.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_lanes(s: __m512) -> f32 {
    let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(s)));
    let s = _mm256_add_ps(_mm512_castps512_ps256(s), high);
    let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
    let s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps::<1>(s, s)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(v: &[f32; LANES]) -> __m512 {
    // SAFETY: 64 bytes are read from an array of 64.
    unsafe { _mm512_loadu_ps(v.as_ptr()) }
}
