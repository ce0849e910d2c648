//! Superblocks times up to three tokens: AVX2's stream through the weight, 64 codes at a time.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use crate::{
    linear::{IQ4_LEVELS, Quantised},
    simd::avx2::{
        codes::{self, has_min, load, offset, signed, words},
        few::{ROWS, add_across, factors, look_ahead},
    },
};
use std::arch::x86_64::*;

/// Products of four rows with `T` tokens, `N` bytes to a superblock.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn few<const F: u8, const N: usize, const T: usize>(
    bytes: [&[u8]; ROWS],
    x: [&Quantised; T],
) -> [[f32; ROWS]; T] {
    let blocks = bytes[0].len() / N;
    let mut rows: [&[[u8; N]]; ROWS] = [&[]; ROWS];
    for r in 0..ROWS {
        rows[r] = &bytes[r].as_chunks().0[..blocks];
    }
    let zero = _mm256_setzero_si256();
    let mut sums = [_mm_setzero_ps(); T];
    for b in 0..blocks {
        look_ahead(bytes, b * N, N);
        let (mut a, mut s) = ([&[0; 256]; T], [zero; T]);
        for t in 0..T {
            a[t] = &x[t].codes.as_chunks().0[b];
            s[t] = words(&x[t].sums.as_chunks().0[b]);
        }
        let (mut by_code, mut by_min) = ([[zero; ROWS]; T], [[zero; ROWS]; T]);
        for r in 0..ROWS {
            let block = &rows[r][b];
            let (scale, min) = codes::scales::<F, N>(block);
            let mut wide = [_mm512_setzero_si512(); T];
            for j in 0..4 {
                let c = codes::<F, N>(block, j);
                let scale = spread(scale, j);
                for t in 0..T {
                    let p = pairs::<F>(c, activations(a[t], j));
                    wide[t] = _mm512_dpwssd_epi32(wide[t], p, scale);
                }
            }
            for t in 0..T {
                let high = _mm512_extracti64x4_epi64::<1>(wide[t]);
                by_code[t][r] = _mm256_add_epi32(_mm512_castsi512_si256(wide[t]), high);
                if offset(F) != 0 {
                    let scale = _mm256_mullo_epi16(scale, _mm256_set1_epi16(-offset(F)));
                    by_code[t][r] = _mm256_add_epi32(by_code[t][r], _mm256_madd_epi16(scale, s[t]));
                }
                if has_min(F) {
                    by_min[t][r] = _mm256_madd_epi16(min, s[t]);
                }
            }
        }
        let (d, m) = factors::<F, N>([&rows[0][b], &rows[1][b], &rows[2][b], &rows[3][b]]);
        for t in 0..T {
            let mut p = _mm_mul_ps(d, _mm_cvtepi32_ps(add_across(by_code[t])));
            if has_min(F) {
                p = _mm_fmadd_ps(m, _mm_cvtepi32_ps(add_across(by_min[t])), p);
            }
            sums[t] = _mm_fmadd_ps(_mm_set1_ps(x[t].scales[b]), p, sums[t]);
        }
    }
    let mut out = [[0.0; ROWS]; T];
    for t in 0..T {
        // SAFETY: 16 bytes are written to an array of 16.
        unsafe { _mm_storeu_ps(out[t].as_mut_ptr(), sums[t]) };
    }
    out
}

/// Codes of elements `64 j..64 j + 64` of a superblock: unsigned and too large by [`offset`], or [`signed`].
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512bw")]
fn codes<const F: u8, const N: usize>(b: &[u8; N], j: usize) -> __m512i {
    let (n, i) = (j / 2, 2 * (j % 2));
    match F {
        codes::Q2_K => bits(load(b, 16 + 32 * n), 2 * i, 2, 3),
        codes::Q3_K => {
            let third = _mm512_slli_epi16::<2>(bits(load(b, 0), 2 * j, 1, 1));
            _mm512_or_si512(bits(load(b, 32 + 32 * n), 2 * i, 2, 3), third)
        }
        codes::Q4_K => bits(load(b, 16 + 32 * j), 0, 4, 15),
        codes::Q5_K => {
            let fifth = _mm512_slli_epi16::<4>(bits(load(b, 16), 2 * j, 1, 1));
            _mm512_or_si512(bits(load(b, 48 + 32 * j), 0, 4, 15), fifth)
        }
        codes::Q6_K => {
            let low = _mm512_castsi256_si512(load(b, 64 * n));
            let low = _mm512_inserti64x4::<1>(low, load(b, 64 * n + 32));
            let low = if i == 0 { low } else { _mm512_srli_epi16::<4>(low) };
            let low = _mm512_and_si512(low, _mm512_set1_epi8(15));
            _mm512_or_si512(low, _mm512_slli_epi16::<4>(bits(load(b, 128 + 32 * n), 2 * i, 2, 3)))
        }
        codes::TQ2 => bits(load(b, 32 * n), 2 * i, 2, 3),
        codes::CODED => {
            assert!(64 * j + 64 <= N);
            // SAFETY: the 64 bytes are inside the array.
            unsafe { _mm512_loadu_si512(b.as_ptr().add(64 * j).cast()) }
        }
        _ => {
            let both = _mm512_castsi256_si512(load(b, 8 + 32 * j));
            let both = _mm512_shuffle_i64x2::<0b01_01_00_00>(both, both);
            let shift = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
            let q = _mm512_and_si512(_mm512_srlv_epi64(both, shift), _mm512_set1_epi8(15));
            // SAFETY: 16 bytes are read from an array of 16.
            let levels = unsafe { _mm_loadu_si128(IQ4_LEVELS.as_ptr().cast()) };
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(levels), q)
        }
    }
}

/// 32 bytes twice: `(v >> first) & mask` in each byte, and `(v >> (first + step)) & mask`.
#[inline]
#[target_feature(enable = "avx512f")]
fn bits(v: __m256i, first: usize, step: usize, mask: i8) -> __m512i {
    let (low, high) = (first as i64, (first + step) as i64);
    let shift = _mm512_set_epi64(high, high, high, high, low, low, low, low);
    _mm512_and_si512(_mm512_srlv_epi64(_mm512_broadcast_i64x4(v), shift), _mm512_set1_epi8(mask))
}

/// Sub-scales `4 j..4 j + 4`, each eight times.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn spread(scales: __m256i, j: usize) -> __m512i {
    let lane = _mm512_set_epi64(
        0x0003_0003_0003_0003,
        0x0003_0003_0003_0003,
        0x0002_0002_0002_0002,
        0x0002_0002_0002_0002,
        0x0001_0001_0001_0001,
        0x0001_0001_0001_0001,
        0,
        0,
    );
    let index = _mm512_add_epi16(lane, _mm512_set1_epi16(4 * j as i16));
    _mm512_permutexvar_epi16(index, _mm512_castsi256_si512(scales))
}

/// Sums of products of pairs. 16 bits never saturate: activations are within ±127, unsigned codes below 127, and
/// magnitudes of signed ones at most 127.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pairs<const F: u8>(codes: __m512i, a: __m512i) -> __m512i {
    if signed(F) {
        let negative = _mm512_movepi8_mask(codes);
        let a = _mm512_mask_sub_epi8(a, negative, _mm512_setzero_si512(), a);
        _mm512_maddubs_epi16(_mm512_abs_epi8(codes), a)
    } else {
        _mm512_maddubs_epi16(codes, a)
    }
}

/// Activations `64 j..64 j + 64` of a superblock.
#[inline]
#[target_feature(enable = "avx512f")]
fn activations(a: &[i8; 256], j: usize) -> __m512i {
    assert!(64 * j + 64 <= 256);
    // SAFETY: the 64 bytes are inside the array.
    unsafe { _mm512_loadu_si512(a.as_ptr().add(64 * j).cast()) }
}
