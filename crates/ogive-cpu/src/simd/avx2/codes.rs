//! Unpacking: 32 codes of a row at a time, in the order of their elements, and the sub-scales of K-quants.
//!
//! The kernels for few and for many tokens share what is here, so that a format is written down once. Formats are const
//! parameters and not types, because a trait's methods cannot be safe functions with target features; a match on a
//! constant costs nothing.
#![allow(unsafe_code)]

use crate::linear::{E2M1_LEVELS, FACTOR, IQ4_LEVELS, LOW, RAISE, SCALES, iq4_xs_scales, k_pairs, q3_scales};
use std::arch::x86_64::*;

pub(in crate::simd) use crate::simd::formats::*;

/// Whether [`codes`] are signed; they are then multiplied by way of their magnitudes.
pub(in crate::simd) const fn signed(f: u8) -> bool {
    matches!(f, Q8_0 | IQ4_NL | IQ4_XS)
}

/// What [`codes`] are too large by.
pub(in crate::simd) const fn offset(f: u8) -> i16 {
    match f {
        Q4_0 => 8,
        Q5_0 => 16,
        MXFP4 | NVFP4 => 12,
        Q3_K => 4,
        Q6_K => 32,
        TQ2 => 1,
        CODED => RAISE as i16,
        SMALL => LOW as i16,
        _ => 0,
    }
}

/// How many products of pairs fit a 16-bit sum: `2 · 127 · largest code · adds < 2^15`.
pub(in crate::simd) const fn adds(f: u8) -> usize {
    match f {
        Q4_0 | Q4_1 | Q4_K | TQ2 => 8,
        Q5_0 | Q5_1 | Q5_K | MXFP4 | NVFP4 | Q2_K | Q3_K | SMALL => 4,
        Q6_K => 2,
        _ => 1,
    }
}

/// 32 bytes of a block.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn load<const N: usize>(b: &[u8; N], at: usize) -> __m256i {
    assert!(at + 32 <= N);
    // SAFETY: the 32 bytes from `at` are inside the array.
    unsafe { _mm256_loadu_si256(b.as_ptr().add(at).cast()) }
}

/// 16 bytes of a block.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn load_half<const N: usize>(b: &[u8; N], at: usize) -> __m128i {
    assert!(at + 16 <= N);
    // SAFETY: the 16 bytes from `at` are inside the array.
    unsafe { _mm_loadu_si128(b.as_ptr().add(at).cast()) }
}

/// The halves of 16 bytes: low ones first.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles<const N: usize>(b: &[u8; N], at: usize) -> __m256i {
    let twice = _mm256_broadcastsi128_si256(load_half(b, at));
    let high = _mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    _mm256_and_si256(high, _mm256_set1_epi8(15))
}

/// 16 in each byte whose bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn fifth_bits<const N: usize>(b: &[u8; N], at: usize) -> __m256i {
    let word = i32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bits = _mm256_shuffle_epi8(_mm256_set1_epi32(word), spread);
    let mask = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    let set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, mask), mask);
    _mm256_and_si256(set, _mm256_set1_epi8(16))
}

/// The entries of a table of 16 that `q` names.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn look_up(levels: &[i8; 16], q: __m256i) -> __m256i {
    // SAFETY: 16 bytes are read from an array of 16.
    let levels = unsafe { _mm_loadu_si128(levels.as_ptr().cast()) };
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), q)
}

/// `(v >> shift) & mask` in each byte.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn bits(v: __m256i, shift: usize, mask: i8) -> __m256i {
    _mm256_and_si256(_mm256_srl_epi16(v, _mm_cvtsi32_si128(shift as i32)), _mm256_set1_epi8(mask))
}

/// Codes of elements `32 j..32 j + 32` of a block: unsigned and too large by [`offset`], or [`signed`].
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn codes<const F: u8, const N: usize>(b: &[u8; N], j: usize) -> __m256i {
    let (n, i) = (j / 4, j % 4);
    match F {
        Q4_0 => nibbles(b, 2),
        Q4_1 => nibbles(b, 4),
        Q5_0 => _mm256_or_si256(nibbles(b, 6), fifth_bits(b, 2)),
        Q5_1 => _mm256_or_si256(nibbles(b, 8), fifth_bits(b, 4)),
        Q8_0 => load(b, 2),
        IQ4_NL => look_up(&IQ4_LEVELS, nibbles(b, 2)),
        MXFP4 => look_up(&const { raised(E2M1_LEVELS, offset(MXFP4) as i8) }, nibbles(b, 1)),
        Q2_K => bits(load(b, 16 + 32 * n), 2 * i, 3),
        Q3_K => {
            let third = _mm256_slli_epi16::<2>(bits(load(b, 0), j, 1));
            _mm256_or_si256(bits(load(b, 32 + 32 * n), 2 * i, 3), third)
        }
        Q4_K => bits(load(b, 16 + 32 * (j / 2)), 4 * (j % 2), 15),
        Q5_K => {
            let fifth = _mm256_slli_epi16::<4>(bits(load(b, 16), j, 1));
            _mm256_or_si256(bits(load(b, 48 + 32 * (j / 2)), 4 * (j % 2), 15), fifth)
        }
        Q6_K => {
            let high = _mm256_slli_epi16::<4>(bits(load(b, 128 + 32 * n), 2 * i, 3));
            _mm256_or_si256(bits(load(b, 64 * n + 32 * (i % 2)), 4 * (i / 2), 15), high)
        }
        TQ2 => bits(load(b, 32 * n), 2 * i, 3),
        CODED => load(b, 32 * j),
        _ => look_up(&IQ4_LEVELS, nibbles(b, 8 + 16 * j)),
    }
}

/// Scales of NVFP4 as halves that are 2^8 times as small: E4M3's bits without the sign, and ggml's zero for what would be NaN.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn small_halves(scales: __m128i) -> __m256i {
    let nothing = _mm_cmpeq_epi8(scales, _mm_set1_epi8(0x7f));
    let magnitudes = _mm_andnot_si128(nothing, _mm_and_si128(scales, _mm_set1_epi8(0x7f)));
    _mm256_slli_epi16::<7>(_mm256_cvtepu8_epi16(magnitudes))
}

/// The scales of four blocks of NVFP4, halved: of the first sixteens in the lower half of the first register, of the second in its upper half, and so on.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(in crate::simd) fn four_scales(b: [&[u8; 36]; 4]) -> [__m256; 2] {
    let of = |r: usize| i32::from_le_bytes([b[r][0], b[r][1], b[r][2], b[r][3]]);
    let rows = _mm_setr_epi32(of(0), of(1), of(2), of(3));
    let turned = _mm_shuffle_epi8(rows, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    let halves = small_halves(turned);
    let larger = _mm256_set1_ps(128.0);
    let (low, high) = (_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
    [_mm256_mul_ps(_mm256_cvtph_ps(low), larger), _mm256_mul_ps(_mm256_cvtph_ps(high), larger)]
}

/// Codes of elements `32 i..32 i + 32` of a block of NVFP4, too large by [`offset`].
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn two_sixteens(b: &[u8; 36], i: usize) -> __m256i {
    let both = _mm256_broadcastsi128_si256(load_half(b, 4 + 16 * i));
    // The first eight bytes twice, and the others twice: low halves of each come first.
    let eights = _mm256_setr_epi64x(
        0x0706_0504_0302_0100,
        0x0706_0504_0302_0100,
        0x0f0e_0d0c_0b0a_0908,
        0x0f0e_0d0c_0b0a_0908,
    );
    let halves = _mm256_srlv_epi64(_mm256_shuffle_epi8(both, eights), _mm256_setr_epi64x(0, 4, 0, 4));
    let levels = &const { raised(E2M1_LEVELS, offset(NVFP4) as i8) };
    look_up(levels, _mm256_and_si256(halves, _mm256_set1_epi8(15)))
}

pub(super) const fn raised(mut levels: [i8; 16], by: i8) -> [i8; 16] {
    let mut i = 0;
    while i < 16 {
        levels[i] += by;
        i += 1;
    }
    levels
}

/// What a superblock's every 16 codes and, where the format has minima, every 16 activations are multiplied with.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn scales<const F: u8, const N: usize>(b: &[u8; N]) -> (__m256i, __m256i) {
    let zero = _mm256_setzero_si256();
    match F {
        Q2_K => {
            let both = load_half(b, 0);
            let low = _mm_set1_epi8(15);
            let (s, m) = (_mm_and_si128(both, low), _mm_and_si128(_mm_srli_epi16::<4>(both), low));
            (_mm256_cvtepu8_epi16(s), _mm256_cvtepu8_epi16(m))
        }
        Q3_K => (words(&q3_scales(&b[96..108])), zero),
        Q4_K | Q5_K => {
            let (s, m) = k_pairs(&b[4..16]);
            (twice(i64::from_le_bytes(s.map(|v| v))), twice(i64::from_le_bytes(m)))
        }
        Q6_K => (_mm256_cvtepi8_epi16(load_half(b, 192)), zero),
        TQ2 => (_mm256_set1_epi16(1), zero),
        CODED => (_mm256_cvtepu8_epi16(load_half(b, SCALES)), zero),
        _ => {
            let s = iq4_xs_scales(b);
            (words(&std::array::from_fn(|i| s[i / 2])), zero)
        }
    }
}

/// Eight bytes, each twice, as words.
#[inline]
#[target_feature(enable = "avx2")]
fn twice(bytes: i64) -> __m256i {
    let v = _mm_cvtsi64_si128(bytes);
    _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(v, v))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn words(v: &[i16; 16]) -> __m256i {
    // SAFETY: 32 bytes are read from an array of 32.
    unsafe { _mm256_loadu_si256(v.as_ptr().cast()) }
}

/// Sums of products of pairs: codes of a weight with activations. 16 bits never saturate: activations are within ±127,
/// unsigned codes below 127, and magnitudes of signed ones at most 128.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn pairs<const F: u8>(codes: __m256i, a: __m256i) -> __m256i {
    if signed(F) {
        _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes))
    } else {
        _mm256_maddubs_epi16(codes, a)
    }
}

/// The factor of a block of [`CODED`].
pub(in crate::simd) fn single<const N: usize>(b: &[u8; N]) -> f32 {
    f32::from_le_bytes([b[FACTOR], b[FACTOR + 1], b[FACTOR + 2], b[FACTOR + 3]])
}

/// Where the factors of codes and minima stand, in halves; a format without minima gives any place.
pub(in crate::simd) const fn factors_at(f: u8) -> (usize, usize) {
    match f {
        Q2_K => (80, 82),
        Q3_K => (108, 0),
        Q6_K => (208, 0),
        TQ2 => (64, 0),
        Q4_1 | Q5_1 | Q4_K | Q5_K => (0, 2),
        _ => (0, 0),
    }
}

/// Sums of a superblock's activations, in the pairs that meet pairs of minima: of 16 elements each where sub-scales are of 16, else of 32.
#[derive(Clone, Copy)]
pub(super) struct Pairs([__m256i; 2]);

impl Pairs {
    /// Of sums of 16 elements.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn of<const F: u8>(sixteens: &[i16; 16]) -> Self {
        let v = words(sixteens);
        if fine(F) {
            return Self([_mm256_permute2x128_si256::<0x00>(v, v), _mm256_permute2x128_si256::<0x11>(v, v)]);
        }
        // They fit words: 32 · 127 < 2^15.
        let thirties = _mm256_madd_epi16(v, _mm256_set1_epi16(1));
        let packed = _mm256_packs_epi32(thirties, thirties);
        Self([_mm256_permute4x64_epi64::<0b10_00_10_00>(packed); 2])
    }

    /// Pair `i`, as words of every lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn pair(&self, i: usize) -> __m256i {
        let v = self.0[i / 4];
        match i % 4 {
            0 => _mm256_shuffle_epi32::<0b00_00_00_00>(v),
            1 => _mm256_shuffle_epi32::<0b01_01_01_01>(v),
            2 => _mm256_shuffle_epi32::<0b10_10_10_10>(v),
            _ => _mm256_shuffle_epi32::<0b11_11_11_11>(v),
        }
    }
}
