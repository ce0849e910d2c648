//! Registers of 16-bit elements as eight rows of eight, and transposed, by the processor's own conversions.
//!
//! Apart from the formats, since it is written in intrinsics: a compiler that sees the definition takes every element apart by itself,
//! and unpacking then costs more than the products.
#![allow(unsafe_code)]
#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::{
    __m256, _mm_loadu_si128, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
    _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_unpackhi_ps,
    _mm256_unpacklo_ps,
};

/// Eight rows of eight numbers.
type Square = [[f32; 8]; 8];

/// The rows of a register: lanes `4 g` to `4 g + 3` hold row `g`. Of f16 if `HALF`, else of bf16.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn vectors<const HALF: bool>(words: &[u32; 32]) -> [__m256; 8] {
    std::array::from_fn(|g| {
        // SAFETY: four words from `4 g` on, of 32.
        let bits = unsafe { _mm_loadu_si128(words.as_ptr().add(4 * g).cast()) };
        if HALF {
            _mm256_cvtph_ps(bits)
        } else {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
        }
    })
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
fn stored(rows: [__m256; 8]) -> Square {
    let mut out = [[0.0; 8]; 8];
    for (row, to) in rows.into_iter().zip(&mut out) {
        // SAFETY: a row has eight numbers.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), row) };
    }
    out
}

/// The numbers of a register, by rows.
#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(super) fn rows<const HALF: bool>(words: &[u32; 32]) -> Square {
    stored(vectors::<HALF>(words))
}

/// The numbers of a register, transposed.
#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(super) fn columns<const HALF: bool>(words: &[u32; 32]) -> Square {
    let r = vectors::<HALF>(words);
    // Pairs of rows, then fours, then the halves.
    let low: [__m256; 4] = std::array::from_fn(|i| _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]));
    let high: [__m256; 4] = std::array::from_fn(|i| _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]));
    let four = |a: __m256, b: __m256| [_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xee>(a, b)];
    let [a0, a1] = four(low[0], low[1]);
    let [a2, a3] = four(high[0], high[1]);
    let [b0, b1] = four(low[2], low[3]);
    let [b2, b3] = four(high[2], high[3]);
    let (a, b) = ([a0, a1, a2, a3], [b0, b1, b2, b3]);
    stored(std::array::from_fn(|j| {
        if j < 4 {
            _mm256_permute2f128_ps::<0x20>(a[j], b[j])
        } else {
            _mm256_permute2f128_ps::<0x31>(a[j - 4], b[j - 4])
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::super::elements::{Bf16, Element, F16};
    use super::Square;

    fn same(given: &Square, expected: &Square) {
        for (given, expected) in given.as_flattened().iter().zip(expected.as_flattened()) {
            // Both are NaN where one is; a product of NaN has one pattern whatever came in.
            assert!(given.to_bits() == expected.to_bits() || given.is_nan() && expected.is_nan());
        }
    }

    #[test]
    fn every_half_by_rows_and_columns() {
        if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")) {
            return;
        }
        for start in (0..1u32 << 16).step_by(64) {
            let words: [u32; 32] = std::array::from_fn(|at| {
                let low = start + 2 * at as u32;
                low | (low + 1) << 16
            });
            // SAFETY: the features are there.
            unsafe {
                same(&super::rows::<true>(&words), &F16::rows::<false>(&words));
                same(&super::rows::<false>(&words), &Bf16::rows::<false>(&words));
                same(&super::columns::<true>(&words), &F16::columns::<false>(&words));
                same(&super::columns::<false>(&words), &Bf16::columns::<false>(&words));
            }
        }
    }
}
