//! Reading a strip: what a block's words hold, sixteen rows at a time, one lane for each.
//!
//! Codes come as unsigned bytes whatever the format, raised where they are signed, because the instruction multiplies unsigned
//! codes by signed activations; what raising adds is a multiple of the activations' sums and the same for every row.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use crate::{
    linear::{E2M1_LEVELS, FACTOR, IQ4_LEVELS, SCALES, STRIP},
    simd::avx2::codes::{self, fine, offset, signed},
};
use std::arch::x86_64::*;

pub(in crate::simd) use crate::simd::formats::elements;

/// A block of sixteen rows, of `N` bytes each.
pub(in crate::simd) type Block<const N: usize> = [[u8; N]; STRIP];

/// What [`quad`] adds to codes: nothing, or a power of two, so that what it adds to products is found by a shift.
pub(in crate::simd) const fn raise(f: u8) -> i16 {
    match f {
        codes::MXFP4 | codes::NVFP4 => 16,
        _ if signed(f) => 128,
        _ => offset(f),
    }
}

/// Parts of a superblock, each with a sub-scale.
pub(in crate::simd) const fn parts(f: u8) -> usize {
    if fine(f) { 16 } else { 8 }
}

/// The blocks of a strip.
pub(in crate::simd) fn blocks<const N: usize>(strip: &[u8]) -> &[Block<N>] {
    strip.as_chunks::<N>().0.as_chunks().0
}

/// Word `w` of each row.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn word<const N: usize>(b: &Block<N>, w: usize) -> __m512i {
    assert!(64 * (w + 1) <= STRIP * N);
    // SAFETY: the 64 bytes are inside the block.
    unsafe { _mm512_loadu_si512(b.as_ptr().cast::<u8>().add(64 * w).cast()) }
}

/// `(v >> shift) & mask` in each byte; `shift` counts round the word, for what has to go left.
#[inline]
#[target_feature(enable = "avx512f")]
fn bits(v: __m512i, shift: usize, mask: i8) -> __m512i {
    let shift = _mm512_set1_epi32((shift % 32) as i32);
    _mm512_and_si512(_mm512_rorv_epi32(v, shift), _mm512_set1_epi8(mask))
}

/// The bits of `low` where `mask` has them, and of `high` elsewhere.
#[inline]
#[target_feature(enable = "avx512f")]
fn join(low: __m512i, high: __m512i, mask: i8) -> __m512i {
    _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi8(mask), low, high)
}

/// The entries of a table of 16 that bytes name, raised.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn look_up<const F: u8>(levels: &[i8; 16], q: __m512i) -> __m512i {
    // SAFETY: 16 bytes are read from an array of 16.
    let levels = unsafe { _mm_loadu_si128(levels.as_ptr().cast()) };
    let levels = _mm_add_epi8(levels, _mm_set1_epi8(raise(F) as i8));
    _mm512_shuffle_epi8(_mm512_broadcast_i32x4(levels), q)
}

/// Codes `4 i..4 i + 4` of part `p`, raised by [`raise`]. A block of 16 or 32 has one part.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::simd) fn quad<const F: u8, const N: usize>(b: &Block<N>, p: usize, i: usize) -> __m512i {
    // Halves of bytes: four words have 16 low ones and then 16 high ones.
    let halves = |first: usize| bits(word(b, first + i % 4), 4 * (i / 4), 15);
    // The same, and bit `i` of each byte of word `high` as the fifth of its code.
    let five = |high: usize| {
        let low = word(b, high + 1 + i % 4);
        join(
            _mm512_srlv_epi32(low, _mm512_set1_epi32(4 * (i / 4) as i32)),
            bits(word(b, high), i + 28, 16),
            15,
        )
    };
    // Where parts of 16 elements stand: 128 n + 32 j + 16 h.
    let (n, j, h) = (p / 8, p / 2 % 4, p % 2);
    match F {
        codes::Q4_0 => halves(0),
        codes::Q4_1 => halves(1),
        codes::Q5_0 => five(0),
        codes::Q5_1 => five(1),
        codes::Q8_0 => _mm512_xor_si512(word(b, i), _mm512_set1_epi8(-128)),
        codes::IQ4_NL => look_up::<F>(&IQ4_LEVELS, halves(0)),
        codes::MXFP4 => look_up::<F>(&E2M1_LEVELS, halves(0)),
        codes::NVFP4 => look_up::<F>(&E2M1_LEVELS, bits(word(b, i % 2), 4 * (i / 2), 15)),
        codes::Q2_K => bits(word(b, 4 + 8 * n + 4 * h + i), 2 * j, 3),
        codes::Q3_K => {
            let low = word(b, if n == 0 { 3 + 2 * (4 * h + i) } else { 19 + 4 * h + i });
            let third = bits(word(b, 4 + 2 * (4 * h + i)), 4 * n + j + 30, 4);
            join(_mm512_srlv_epi32(low, _mm512_set1_epi32(2 * j as i32)), third, 3)
        }
        codes::Q4_K => bits(word(b, 4 + 8 * (p / 2) + i), 4 * (p % 2), 15),
        codes::Q5_K => {
            let low = word(b, if p < 2 { 4 + 2 * i } else { 12 + 8 * (p / 2) + i });
            let fifth = bits(word(b, 5 + 2 * i), p + 28, 16);
            join(_mm512_srlv_epi32(low, _mm512_set1_epi32(4 * (p % 2) as i32)), fifth, 15)
        }
        codes::Q6_K => {
            let first = 4 + 24 * n + 12 * h + 3 * i;
            let low = word(b, first + j % 2);
            let high = bits(word(b, first + 2), 2 * j + 28, 48);
            join(_mm512_srlv_epi32(low, _mm512_set1_epi32(4 * (j / 2) as i32)), high, 15)
        }
        codes::TQ2 => bits(word(b, 8 * n + 4 * h + i), 2 * j, 3),
        codes::CODED => word(b, 4 * p + i),
        _ => look_up::<F>(&IQ4_LEVELS, bits(word(b, 2 + 4 * p + i % 4), 4 * (i / 4), 15)),
    }
}

/// The sub-scales of a superblock and its minima.
pub(in crate::simd) struct Scales {
    /// Four neighbours in a lane's bytes, signed. IQ4_XS's are put together when they are asked for: here are its words.
    scales: [__m512i; 4],
    /// The same of minima.
    mins: [__m512i; 4],
}

impl Scales {
    /// Those of one block.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(in crate::simd) fn of<const F: u8, const N: usize>(b: &Block<N>) -> Self {
        let zero = _mm512_setzero_si512();
        let (mut scales, mut mins) = ([zero; 4], [zero; 4]);
        match F {
            codes::Q2_K => {
                for i in 0..4 {
                    scales[i] = bits(word(b, i), 0, 15);
                    mins[i] = bits(word(b, i), 4, 15);
                }
            }
            codes::Q3_K => {
                let high = word(b, 2);
                for i in 0..4 {
                    let low = bits(word(b, i % 2), 4 * (i / 2), 15);
                    let both = _mm512_or_si512(low, bits(high, 2 * i + 28, 48));
                    scales[i] = _mm512_sub_epi8(both, _mm512_set1_epi8(32));
                }
            }
            codes::Q4_K | codes::Q5_K => {
                let [a, b, c] = [word(b, 1), word(b, 2), word(b, 3)];
                scales[0] = bits(a, 0, 63);
                scales[1] = _mm512_or_si512(bits(c, 0, 15), bits(a, 2, 48));
                mins[0] = bits(b, 0, 63);
                mins[1] = _mm512_or_si512(bits(c, 4, 15), bits(b, 2, 48));
            }
            codes::TQ2 => scales = [_mm512_set1_epi8(1); 4],
            codes::Q6_K | codes::CODED => {
                let first = if F == codes::CODED { SCALES / 4 } else { 0 };
                for i in 0..4 {
                    scales[i] = word(b, first + i);
                }
            }
            _ => scales[..2].copy_from_slice(&[word(b, 0), word(b, 1)]),
        }
        Self { scales, mins }
    }

    /// That of part `p`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(in crate::simd) fn scale<const F: u8>(&self, p: usize) -> __m512i {
        if F == codes::IQ4_XS {
            let low = _mm512_srlv_epi32(self.scales[1], _mm512_set1_epi32(4 * p as i32));
            // Sixteen bits of high pairs stand in the upper half: their first pair has to come to the fifth bit.
            let high = _mm512_srlv_epi32(self.scales[0], _mm512_set1_epi32(12 + 2 * p as i32));
            let both = _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi32(15), low, high);
            let both = _mm512_and_si512(both, _mm512_set1_epi32(63));
            return _mm512_sub_epi32(both, _mm512_set1_epi32(32));
        }
        let top = _mm512_sllv_epi32(self.scales[p / 4], _mm512_set1_epi32(24 - 8 * (p % 4) as i32));
        _mm512_srai_epi32::<24>(top)
    }

    /// Those of parts `2 i` and `2 i + 1`, 16 bits each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(in crate::simd) fn pair<const F: u8>(&self, i: usize) -> __m512i {
        if F == codes::IQ4_XS {
            let high = _mm512_slli_epi32::<16>(self.scale::<F>(2 * i + 1));
            return _mm512_mask_blend_epi16(0xaaaa_aaaa, self.scale::<F>(2 * i), high);
        }
        // The upper byte of each 16 bits, whose sign then fills the lower.
        let both = _mm512_slli_epi16::<8>(two_bytes(self.scales[i / 2], i % 2));
        _mm512_srai_epi16::<8>(both)
    }

    /// The minima of parts `2 i` and `2 i + 1`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(in crate::simd) fn mins(&self, i: usize) -> __m512i {
        two_bytes(self.mins[i / 2], i % 2)
    }
}

/// Bytes 0 and 1 of each lane, or 2 and 3, as 16 bits each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn two_bytes(v: __m512i, which: usize) -> __m512i {
    let first = (0x80 << 24 | 1 << 16 | 0x80 << 8) + (which * 0x0002_0002) as u32;
    let lanes = _mm512_add_epi32(
        _mm512_set1_epi32(first.cast_signed()),
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x0004_0004, 0x0008_0008, 0x000c_000c)),
    );
    _mm512_shuffle_epi8(v, lanes)
}

/// The factor of a block's codes, and that of its minima with its sign.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::simd) fn factors<const F: u8, const N: usize>(b: &Block<N>) -> (__m512, __m512) {
    let zero = _mm512_setzero_ps();
    let half = |v: __m512i| _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
    match F {
        codes::Q4_1 | codes::Q5_1 => {
            let both = word(b, 0);
            (half(both), half(_mm512_srli_epi32::<16>(both)))
        }
        codes::Q2_K | codes::Q4_K | codes::Q5_K => {
            let both = word(b, if F == codes::Q2_K { 20 } else { 0 });
            (half(both), _mm512_sub_ps(_mm512_set1_ps(-0.0), half(_mm512_srli_epi32::<16>(both))))
        }
        codes::IQ4_XS => (half(word(b, 0)), zero),
        codes::CODED => (_mm512_castsi512_ps(word(b, FACTOR / 4)), zero),
        codes::MXFP4 => {
            // SAFETY: the block's last 16 bytes are read.
            let e = unsafe { _mm_loadu_si128(b.as_ptr().cast::<u8>().add(STRIP * N - 16).cast()) };
            let e = _mm512_cvtepu8_epi32(e);
            let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
            let small = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
            let below = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
            (_mm512_castsi512_ps(_mm512_mask_blend_epi32(below, normal, small)), zero)
        }
        codes::NVFP4 => {
            // SAFETY: the block's last 16 bytes are read.
            let s = unsafe { _mm_loadu_si128(b.as_ptr().cast::<u8>().add(STRIP * N - 16).cast()) };
            (_mm512_mul_ps(_mm512_cvtph_ps(codes::small_halves(s)), _mm512_set1_ps(128.0)), zero)
        }
        _ => {
            // SAFETY: the block's last 32 bytes are read.
            let d = unsafe { _mm256_loadu_si256(b.as_ptr().cast::<u8>().add(STRIP * N - 32).cast()) };
            (_mm512_cvtph_ps(d), zero)
        }
    }
}
