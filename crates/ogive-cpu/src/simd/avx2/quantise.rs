//! Activations to 8 bits.
#![allow(unsafe_code)]

use crate::linear::{Quantised, block_len, factors};
use std::arch::x86_64::*;

/// The twin of [`Quantised::fill`].
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn quantise(x: &[f32], out: &mut Quantised) {
    let len = block_len(x.len());
    let blocks = x.chunks_exact(len).zip(out.codes.chunks_exact_mut(len));
    for ((x, codes), scale) in blocks.zip(&mut out.scales) {
        let (inverse, s) = factors(largest(x));
        *scale = s;
        let Some(inverse) = inverse else {
            codes.fill(0);
            continue;
        };
        let inverse = _mm256_set1_ps(inverse);
        for (x, codes) in x.as_chunks::<32>().0.iter().zip(codes.as_chunks_mut::<32>().0) {
            // SAFETY: the array has four times eight elements.
            let at = |i: usize| unsafe { _mm256_loadu_ps(x.as_ptr().add(8 * i)) };
            let round = |i: usize| _mm256_cvtps_epi32(_mm256_mul_ps(at(i), inverse));
            let (low, high) =
                (_mm256_packs_epi32(round(0), round(1)), _mm256_packs_epi32(round(2), round(3)));
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let v = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
            // SAFETY: 32 bytes are written to an array of 32.
            unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), v) };
        }
    }
    for (sum, codes) in out.sums.iter_mut().zip(out.codes.as_chunks::<16>().0) {
        *sum = codes.iter().map(|&c| i16::from(c)).sum();
    }
}

/// The largest magnitude; infinite or not a number if any element is.
#[inline]
#[target_feature(enable = "avx2")]
fn largest(x: &[f32]) -> f32 {
    let sign = _mm256_set1_epi32(i32::MAX);
    let mut max = _mm256_setzero_si256();
    for x in x.as_chunks::<8>().0 {
        // SAFETY: 32 bytes are read from eight elements. Without their signs the order of floats is that of integers.
        let v = unsafe { _mm256_loadu_si256(x.as_ptr().cast()) };
        max = _mm256_max_epi32(max, _mm256_and_si256(v, sign));
    }
    let mut lanes = [0_u32; 8];
    // SAFETY: 32 bytes are written to an array of 32.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), max) };
    f32::from_bits(lanes.into_iter().fold(0, u32::max))
}
