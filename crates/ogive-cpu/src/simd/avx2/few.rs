//! Packed weights times up to three tokens: a stream through the weight, unpacked in registers.
//!
//! Four rows advance together, because sums across a register then cost a third: two rounds of pairwise adds turn four
//! registers of partial sums into one with a lane for each row, and scales are applied to four rows at once.
#![allow(unsafe_code)]

use super::{
    codes::{self, codes, has_min, offset, pairs, single, words},
    vnni::{NONE, add_short, add_words, short},
};
use crate::linear::{Quantised, half_power};
use std::arch::x86_64::*;

/// Rows that advance together.
pub(in crate::simd) const ROWS: usize = 4;

/// Products of four rows with `T` tokens, `N` bytes to a scale block.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn few<const V: u8, const F: u8, const N: usize, const T: usize>(
    rows: [&[u8]; ROWS],
    x: [&Quantised; T],
) -> [[f32; ROWS]; T] {
    let sums = match codes::elements(F) {
        256 => superblocks::<V, F, N, T>(rows, x),
        16 => fours::<V, T>(rows, x),
        _ => blocks::<V, F, N, T>(rows, x),
    };
    let mut out = [[0.0; ROWS]; T];
    for t in 0..T {
        // SAFETY: 16 bytes are written to an array of 16.
        unsafe { _mm_storeu_ps(out[t].as_mut_ptr(), sums[t]) };
    }
    out
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn superblocks<const V: u8, const F: u8, const N: usize, const T: usize>(
    rows: [&[u8]; ROWS],
    x: [&Quantised; T],
) -> [__m128; T] {
    let bytes = rows;
    let rows: [&[[u8; N]]; ROWS] = std::array::from_fn(|r| rows[r].as_chunks().0);
    let codes_of: [&[[i8; 256]]; T] = std::array::from_fn(|t| x[t].codes.as_chunks().0);
    let sums_of: [&[[i16; 16]]; T] = std::array::from_fn(|t| x[t].sums.as_chunks().0);
    let zero = _mm256_setzero_si256();
    let mut out = [_mm_setzero_ps(); T];
    let blocks = rows[0].len();
    let rows = [rows[0], &rows[1][..blocks], &rows[2][..blocks], &rows[3][..blocks]];
    for b in 0..blocks {
        look_ahead(bytes, b * N, N);
        let (mut sums, mut mins) = ([[zero; ROWS]; T], [[zero; ROWS]; T]);
        for r in 0..ROWS {
            let block = &rows[r][b];
            let (scale, min) = codes::scales::<F, N>(block);
            for t in 0..T {
                let s = words(&sums_of[t][b]);
                if offset(F) != 0 {
                    let scale = _mm256_mullo_epi16(scale, _mm256_set1_epi16(-offset(F)));
                    sums[t][r] = _mm256_madd_epi16(scale, s);
                }
                if has_min(F) {
                    mins[t][r] = _mm256_madd_epi16(min, s);
                }
            }
            let scale = even_odd(scale);
            for j in 0..8 {
                let c = codes::<F, N>(block, j);
                let scale = _mm256_shuffle_epi8(scale, _mm256_set1_epi16(0x0100 + 0x0202 * j as i16));
                for t in 0..T {
                    let p = pairs::<F>(c, activations(&codes_of[t][b], j));
                    sums[t][r] = add_words::<V>(sums[t][r], p, scale);
                }
            }
        }
        let (d, m) = factors::<F, N>([&rows[0][b], &rows[1][b], &rows[2][b], &rows[3][b]]);
        for t in 0..T {
            let mut p = _mm_mul_ps(d, _mm_cvtepi32_ps(add_across(sums[t])));
            if has_min(F) {
                p = _mm_fmadd_ps(m, _mm_cvtepi32_ps(add_across(mins[t])), p);
            }
            out[t] = _mm_fmadd_ps(_mm_set1_ps(x[t].scales[b]), p, out[t]);
        }
    }
    out
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn blocks<const V: u8, const F: u8, const N: usize, const T: usize>(
    rows: [&[u8]; ROWS],
    x: [&Quantised; T],
) -> [__m128; T] {
    let bytes = rows;
    let rows: [&[[u8; N]]; ROWS] = std::array::from_fn(|r| rows[r].as_chunks().0);
    let codes_of: [&[[i8; 32]]; T] = std::array::from_fn(|t| x[t].codes.as_chunks().0);
    let sums_of: [&[[i16; 2]]; T] = std::array::from_fn(|t| x[t].sums.as_chunks().0);
    let mut out = [_mm_setzero_ps(); T];
    let scales = x[0].scales.len();
    let each = rows[0].len().checked_div(scales).unwrap_or(0);
    for a in 0..scales {
        look_ahead(bytes, a * each * N, each * N);
        // Cut to one length, so that the loop below checks no bounds.
        let span = a * each..(a + 1) * each;
        let rows =
            [&rows[0][span.clone()], &rows[1][span.clone()], &rows[2][span.clone()], &rows[3][span.clone()]];
        let (mut codes_of, mut sums_of) = (codes_of, sums_of);
        for t in 0..T {
            (codes_of[t], sums_of[t]) = (&codes_of[t][span.clone()], &sums_of[t][span.clone()]);
        }
        let mut p = [_mm_setzero_ps(); T];
        for b in 0..rows[0].len() {
            let block = [&rows[0][b], &rows[1][b], &rows[2][b], &rows[3][b]];
            let (d, m) = factors::<F, N>(block);
            let mut sums = [[_mm256_setzero_si256(); ROWS]; T];
            for r in 0..ROWS {
                let c = codes::<F, N>(block[r], 0);
                for t in 0..T {
                    let a = activations(&codes_of[t][b], 0);
                    sums[t][r] = short::<V, F>(sums[t][r], c, a);
                }
            }
            for t in 0..T {
                let [low, high] = sums_of[t][b];
                let total = i32::from(low) + i32::from(high);
                let mut sum = if V == NONE { add_pairs_across::<F>(sums[t]) } else { add_across(sums[t]) };
                if offset(F) != 0 {
                    sum = _mm_sub_epi32(sum, _mm_set1_epi32(total * i32::from(offset(F))));
                }
                p[t] = _mm_fmadd_ps(d, _mm_cvtepi32_ps(sum), p[t]);
                if has_min(F) {
                    p[t] = _mm_fmadd_ps(m, _mm_set1_ps(total as f32), p[t]);
                }
            }
        }
        for t in 0..T {
            out[t] = _mm_fmadd_ps(_mm_set1_ps(x[t].scales[a]), p[t], out[t]);
        }
    }
    out
}

/// The same of NVFP4, whose blocks have four scales: sums of two sixteens stay apart in a register's halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fours<const V: u8, const T: usize>(rows: [&[u8]; ROWS], x: [&Quantised; T]) -> [__m128; T] {
    const F: u8 = codes::NVFP4;
    let bytes = rows;
    let rows: [&[[u8; 36]]; ROWS] = std::array::from_fn(|r| rows[r].as_chunks().0);
    let codes_of: [&[[i8; 64]]; T] = std::array::from_fn(|t| x[t].codes.as_chunks().0);
    let sums_of: [&[[i16; 4]]; T] = std::array::from_fn(|t| x[t].sums.as_chunks().0);
    let scales = x[0].scales.len();
    let each = rows[0].len().checked_div(scales).unwrap_or(0);
    let mut out = [_mm_setzero_ps(); T];
    for a in 0..scales {
        look_ahead(bytes, a * each * 36, each * 36);
        let mut p = [_mm_setzero_ps(); T];
        for b in a * each..(a + 1) * each {
            let block = [&rows[0][b], &rows[1][b], &rows[2][b], &rows[3][b]];
            let d = codes::four_scales(block);
            for (i, d) in d.into_iter().enumerate() {
                let mut sums = [[_mm256_setzero_si256(); ROWS]; T];
                for r in 0..ROWS {
                    let c = codes::two_sixteens(block[r], i);
                    for t in 0..T {
                        let product = short::<V, F>(sums[t][r], c, activations(&codes_of[t][b], i));
                        sums[t][r] = add_short::<V>(sums[t][r], product);
                    }
                }
                for t in 0..T {
                    let [low, high] = [2 * i, 2 * i + 1].map(|i| i32::from(sums_of[t][b][i]));
                    let totals = _mm256_setr_m128i(_mm_set1_epi32(low), _mm_set1_epi32(high));
                    let raised = _mm256_mullo_epi32(totals, _mm256_set1_epi32(offset(F).into()));
                    let v = sums[t];
                    let both =
                        _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
                    let both = _mm256_cvtepi32_ps(_mm256_sub_epi32(both, raised));
                    p[t] = _mm_fmadd_ps(_mm256_castps256_ps128(d), _mm256_castps256_ps128(both), p[t]);
                    let (d, both) = (_mm256_extractf128_ps::<1>(d), _mm256_extractf128_ps::<1>(both));
                    p[t] = _mm_fmadd_ps(d, both, p[t]);
                }
            }
        }
        for t in 0..T {
            out[t] = _mm_fmadd_ps(_mm_set1_ps(x[t].scales[a]), p[t], out[t]);
        }
    }
    out
}

/// Asks for the bytes that the next four rows have where these have `len` from `from` on: the processor's own guess gets
/// no further than a row, and four short streams at once confuse it. Into the second cache, which waits for more lines at once than
/// the first, and has room for long rows.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn look_ahead(rows: [&[u8]; ROWS], from: usize, len: usize) {
    for row in rows {
        let next = row.as_ptr().wrapping_add(ROWS * row.len() + from);
        for at in (0..len).step_by(64) {
            // SAFETY: a prefetch reads nothing and never faults, wherever it points.
            #[allow(unused_unsafe, reason = "older compilers have it as an unsafe function")]
            unsafe {
                _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(at).cast())
            };
        }
    }
}

/// Activations `32 j..32 j + 32` of a block.
#[inline]
#[target_feature(enable = "avx2")]
fn activations<const N: usize>(a: &[i8; N], j: usize) -> __m256i {
    assert!(32 * j + 32 <= N);
    // SAFETY: the 32 bytes are inside the array.
    unsafe { _mm256_loadu_si256(a.as_ptr().add(32 * j).cast()) }
}

/// Sixteen words: the even ones to the lower half, the odd ones to the upper.
#[inline]
#[target_feature(enable = "avx2")]
fn even_odd(v: __m256i) -> __m256i {
    let order = _mm256_set_epi64x(
        0x0f0e_0b0a_0706_0302,
        0x0d0c_0908_0504_0100,
        0x0f0e_0b0a_0706_0302,
        0x0d0c_0908_0504_0100,
    );
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(v, order))
}

/// The sum of each register, in a lane of its own.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn add_across(v: [__m256i; 4]) -> __m128i {
    let pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs))
}

/// The sum of each register of sixteen words, in a lane of its own.
#[inline]
#[target_feature(enable = "avx2")]
fn add_pairs_across<const F: u8>(v: [__m256i; 4]) -> __m128i {
    let ones = _mm256_set1_epi16(1);
    let mut s = [_mm256_setzero_si256(); 4];
    for r in 0..4 {
        s[r] = _mm256_madd_epi16(v[r], ones);
    }
    if codes::adds(F) < 8 {
        return add_across(s);
    }
    // All 32 products fit 16 bits together, so that sums may be packed and added by one multiplication.
    let two = [_mm256_packs_epi32(s[0], s[1]), _mm256_packs_epi32(s[2], s[3])];
    let two = [_mm256_madd_epi16(two[0], ones), _mm256_madd_epi16(two[1], ones)];
    let one = _mm256_madd_epi16(_mm256_packs_epi32(two[0], two[1]), ones);
    _mm_add_epi32(_mm256_castsi256_si128(one), _mm256_extracti128_si256::<1>(one))
}

/// The factors of codes and minima of four blocks, with their signs.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(in crate::simd) fn factors<const F: u8, const N: usize>(b: [&[u8; N]; 4]) -> (__m128, __m128) {
    let (at, min_at) = codes::factors_at(F);
    let d = if F == codes::MXFP4 {
        _mm_setr_ps(half_power(b[0][0]), half_power(b[1][0]), half_power(b[2][0]), half_power(b[3][0]))
    } else if F == codes::CODED {
        _mm_setr_ps(single(b[0]), single(b[1]), single(b[2]), single(b[3]))
    } else {
        halves(b, at)
    };
    let m = if has_min(F) { halves(b, min_at) } else { _mm_setzero_ps() };
    (d, if codes::super_block(F) { _mm_xor_ps(m, _mm_set1_ps(-0.0)) } else { m })
}

/// The f16 at the same place of four blocks.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn halves<const N: usize>(b: [&[u8; N]; 4], at: usize) -> __m128 {
    let h = |i: usize| i32::from(u16::from_le_bytes([b[i][at], b[i][at + 1]]));
    let v = _mm_cvtsi32_si128(h(0));
    let v = _mm_insert_epi16::<2>(_mm_insert_epi16::<1>(v, h(1)), h(2));
    _mm_cvtph_ps(_mm_insert_epi16::<3>(v, h(3)))
}
