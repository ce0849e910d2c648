//! Dense rows times activations in single precision.
#![allow(unsafe_code)]

use crate::linear::{Dense, LANES};
use std::arch::x86_64::*;

pub(super) const F32: u8 = Dense::F32 as u8;
pub(super) const F16: u8 = Dense::F16 as u8;
pub(super) const BF16: u8 = Dense::Bf16 as u8;

/// Rows that a stream through the weight takes together.
pub(super) const ROWS: usize = 4;

/// The sixteen lanes of a sum.
type Sum = [__m256; 2];

/// Elements that are read together, and how many bytes they take.
const fn chunk(kind: u8) -> (usize, usize) {
    match kind {
        F32 => (16, 64),
        F16 => (16, 32),
        _ => (32, 64),
    }
}

/// Products of four rows, as the file has them, with one token.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn few<const W: u8>(kind: Dense, rows: [&[u8]; ROWS], x: &[f32]) -> [f32; ROWS] {
    let (len, bytes) = chunk(W);
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
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
#[target_feature(enable = "avx2,fma,f16c")]
fn step<const W: u8>(w: &[u8], x: &[f32], sum: &mut Sum) {
    let x = x.as_chunks::<LANES>().0;
    match W {
        F32 => multiply(single(w), load(&x[0]), sum),
        F16 => multiply(halves(w), load(&x[0]), sum),
        _ => {
            let (odd, even) = odd_even(w);
            multiply(odd, load(&x[0]), sum);
            multiply(even, load(&x[1]), sum);
        }
    }
}

/// The twin of [`Dense::decode`].
#[target_feature(enable = "avx2,f16c")]
pub(in crate::simd) fn decode(kind: Dense, row: &[u8], out: &mut [f32]) {
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

/// Products of `R` rows with `T` tokens, all padded and equally long.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn many<const R: usize, const T: usize>(w: [&[f32]; R], x: [&[f32]; T]) -> [[f32; R]; T] {
    let w: [&[[f32; LANES]]; R] = std::array::from_fn(|r| w[r].as_chunks().0);
    let x: [&[[f32; LANES]]; T] = std::array::from_fn(|t| &x[t].as_chunks().0[..w[0].len()]);
    let w: [&[[f32; LANES]]; R] = std::array::from_fn(|r| &w[r][..w[0].len()]);
    let mut sums = [[[_mm256_setzero_ps(); 2]; R]; T];
    for i in 0..w[0].len() {
        for t in 0..T {
            let x = load(&x[t][i]);
            for r in 0..R {
                multiply(load(&w[r][i]), x, &mut sums[t][r]);
            }
        }
    }
    let mut out = [[0.0; R]; T];
    for t in 0..T {
        for r in 0..R {
            out[t][r] = add_lanes(sums[t][r]);
        }
    }
    out
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply(w: Sum, x: Sum, sum: &mut Sum) {
    for i in 0..2 {
        sum[i] = _mm256_fmadd_ps(x[i], w[i], sum[i]);
    }
}

/// The tree at the end: halves are added until one is left.
#[inline]
#[target_feature(enable = "avx2")]
fn add_lanes(s: Sum) -> f32 {
    let s = _mm256_add_ps(s[0], s[1]);
    let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
    let s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps::<1>(s, s)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(v: &[f32; LANES]) -> Sum {
    // SAFETY: 64 bytes are read from an array of 64.
    unsafe { [_mm256_loadu_ps(v.as_ptr()), _mm256_loadu_ps(v.as_ptr().add(8))] }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(v: Sum, to: &mut [f32; LANES]) {
    // SAFETY: 64 bytes are written to an array of 64.
    unsafe {
        _mm256_storeu_ps(to.as_mut_ptr(), v[0]);
        _mm256_storeu_ps(to.as_mut_ptr().add(8), v[1]);
    }
}

/// The odd and the even elements of 64 bytes of bf16.
#[inline]
#[target_feature(enable = "avx2")]
fn odd_even(b: &[u8]) -> (Sum, Sum) {
    let (low, high) = (integers(&b[..32]), integers(&b[32..]));
    let mask = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
    let odd = [_mm256_and_si256(low, mask), _mm256_and_si256(high, mask)];
    let even = [_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high)];
    (
        [_mm256_castsi256_ps(odd[0]), _mm256_castsi256_ps(odd[1])],
        [_mm256_castsi256_ps(even[0]), _mm256_castsi256_ps(even[1])],
    )
}

#[inline]
#[target_feature(enable = "avx2")]
fn integers(b: &[u8]) -> __m256i {
    assert!(b.len() >= 32);
    // SAFETY: there are 32 bytes.
    unsafe { _mm256_loadu_si256(b.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn single(b: &[u8]) -> Sum {
    [_mm256_castsi256_ps(integers(b)), _mm256_castsi256_ps(integers(&b[32..]))]
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn halves(b: &[u8]) -> Sum {
    let v = integers(b);
    [_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(v))]
}
