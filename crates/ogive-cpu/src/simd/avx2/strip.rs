//! Reading a strip: what a block's words hold, eight rows at a time, one lane for each.
//!
//! Sixteen rows make two registers; `h` says which. Codes come as those of [`codes`](super::codes) do: unsigned and too large by
//! [`offset`], or [`signed`](super::codes::signed).
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::codes::{self, bits, look_up, offset, raised};
use crate::{
    linear::{E2M1_LEVELS, FACTOR, IQ4_LEVELS, SCALES, STRIP},
    simd::formats::{elements, fine, super_block},
};
use std::arch::x86_64::*;

/// A block of sixteen rows, of `N` bytes each.
pub(super) type Block<const N: usize> = [[u8; N]; STRIP];

/// The blocks of a strip.
pub(super) fn blocks<const N: usize>(strip: &[u8]) -> &[Block<N>] {
    strip.as_chunks::<N>().0.as_chunks().0
}

/// Parts of a block, each with a sub-scale if there are several.
pub(super) const fn parts(f: u8) -> usize {
    match f {
        _ if fine(f) => 16,
        _ if super_block(f) => 8,
        _ => 1,
    }
}

/// Fours of codes of a part.
pub(super) const fn quads(f: u8) -> usize {
    if fine(f) || elements(f) == 16 { 4 } else { 8 }
}

/// Word `w` of eight rows.
#[inline]
#[target_feature(enable = "avx2")]
fn word<const N: usize>(b: &Block<N>, w: usize, h: usize) -> __m256i {
    assert!(64 * w + 32 * (h + 1) <= STRIP * N);
    // SAFETY: the 32 bytes are inside the block.
    unsafe { _mm256_loadu_si256(b.as_ptr().cast::<u8>().add(64 * w + 32 * h).cast()) }
}

/// Bit `bit` of each byte, and nothing else, as `value`, which is one bit too.
#[inline]
#[target_feature(enable = "avx2")]
fn one_bit(v: __m256i, bit: usize, value: i8) -> __m256i {
    let low = bits(v, bit, 1);
    // A byte of 0 or 1 times a power of two; there is no shift of bytes.
    _mm256_sll_epi16(low, _mm_cvtsi32_si128(value.trailing_zeros().cast_signed()))
}

/// Bit `i` of each byte as the fifth of its code.
#[inline]
#[target_feature(enable = "avx2")]
fn fifth(v: __m256i, i: usize) -> __m256i {
    // What comes from a neighbouring byte is in other bits.
    let v = if i < 4 {
        _mm256_sll_epi16(v, _mm_cvtsi32_si128(4 - i as i32))
    } else {
        _mm256_srl_epi16(v, _mm_cvtsi32_si128(i as i32 - 4))
    };
    _mm256_and_si256(v, _mm256_set1_epi8(16))
}

/// Codes `4 i..4 i + 4` of part `p`. A block of 32 has one part.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn quad<const F: u8, const N: usize>(b: &Block<N>, p: usize, i: usize, half: usize) -> __m256i {
    let word = |w: usize| word(b, w, half);
    // Halves of bytes: four words have 16 low ones and then 16 high ones.
    let halves = |first: usize| bits(word(first + i % 4), 4 * (i / 4), 15);
    // Where parts of 16 elements stand: 128 n + 32 j + 16 h.
    let (n, j, h) = (p / 8, p / 2 % 4, p % 2);
    match F {
        codes::Q4_0 => halves(0),
        codes::Q4_1 => halves(1),
        codes::Q5_0 => _mm256_or_si256(halves(1), fifth(word(0), i)),
        codes::Q5_1 => _mm256_or_si256(halves(2), fifth(word(1), i)),
        codes::Q8_0 => word(i),
        codes::IQ4_NL => look_up(&IQ4_LEVELS, halves(0)),
        codes::MXFP4 => look_up(&const { raised(E2M1_LEVELS, offset(codes::MXFP4) as i8) }, halves(0)),
        codes::NVFP4 => {
            let halves = bits(word(i % 2), 4 * (i / 2), 15);
            look_up(&const { raised(E2M1_LEVELS, offset(codes::NVFP4) as i8) }, halves)
        }
        codes::Q2_K => bits(word(4 + 8 * n + 4 * h + i), 2 * j, 3),
        codes::Q3_K => {
            let third = one_bit(word(4 + 2 * (4 * h + i)), 4 * n + j, 4);
            let low = word(if n == 0 { 3 + 2 * (4 * h + i) } else { 19 + 4 * h + i });
            _mm256_or_si256(bits(low, 2 * j, 3), third)
        }
        codes::Q4_K => bits(word(4 + 8 * (p / 2) + i), 4 * (p % 2), 15),
        codes::Q5_K => {
            let low = word(if p < 2 { 4 + 2 * i } else { 12 + 8 * (p / 2) + i });
            _mm256_or_si256(bits(low, 4 * (p % 2), 15), one_bit(word(5 + 2 * i), p, 16))
        }
        codes::Q6_K => {
            let first = 4 + 24 * n + 12 * h + 3 * i;
            let low = bits(word(first + j % 2), 4 * (j / 2), 15);
            _mm256_or_si256(low, _mm256_slli_epi16::<4>(bits(word(first + 2), 2 * j, 3)))
        }
        codes::TQ2 => bits(word(8 * n + 4 * h + i), 2 * j, 3),
        codes::CODED => word(4 * p + i),
        _ => look_up(&IQ4_LEVELS, bits(word(2 + 4 * p + i % 4), 4 * (i / 4), 15)),
    }
}

/// The sub-scales of a superblock and its minima, of eight rows.
pub(super) struct Scales {
    /// Four neighbours in a lane's bytes, signed. IQ4_XS's are put together when they are asked for: here are its words.
    scales: [__m256i; 4],
    /// The same of minima.
    mins: [__m256i; 4],
}

impl Scales {
    /// Those of one block.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn of<const F: u8, const N: usize>(b: &Block<N>, h: usize) -> Self {
        let word = |w: usize| word(b, w, h);
        let zero = _mm256_setzero_si256();
        let (mut scales, mut mins) = ([zero; 4], [zero; 4]);
        match F {
            codes::Q2_K => {
                for i in 0..4 {
                    scales[i] = bits(word(i), 0, 15);
                    mins[i] = bits(word(i), 4, 15);
                }
            }
            codes::Q3_K => {
                let high = word(2);
                for i in 0..4 {
                    let low = bits(word(i % 2), 4 * (i / 2), 15);
                    let both = _mm256_or_si256(low, _mm256_slli_epi16::<4>(bits(high, 2 * i, 3)));
                    scales[i] = _mm256_sub_epi8(both, _mm256_set1_epi8(32));
                }
            }
            codes::Q4_K | codes::Q5_K => {
                let [a, b, c] = [word(1), word(2), word(3)];
                let top = |v| _mm256_slli_epi16::<4>(bits(v, 6, 3));
                scales[0] = bits(a, 0, 63);
                scales[1] = _mm256_or_si256(bits(c, 0, 15), top(a));
                mins[0] = bits(b, 0, 63);
                mins[1] = _mm256_or_si256(bits(c, 4, 15), top(b));
            }
            codes::TQ2 => scales = [_mm256_set1_epi8(1); 4],
            codes::Q6_K | codes::CODED => {
                let first = if F == codes::CODED { SCALES / 4 } else { 0 };
                for i in 0..4 {
                    scales[i] = word(first + i);
                }
            }
            _ => (scales[0], scales[1]) = (word(0), word(1)),
        }
        Self { scales, mins }
    }

    /// That of part `p`, in both words of a lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn twice<const F: u8>(&self, p: usize) -> __m256i {
        if F == codes::IQ4_XS {
            let one = self.iq4_xs(p);
            return _mm256_or_si256(
                _mm256_slli_epi32::<16>(one),
                _mm256_and_si256(one, _mm256_set1_epi32(0xffff)),
            );
        }
        signed_bytes(self.scales[p / 4], [p % 4; 2])
    }

    /// Those of parts `2 i` and `2 i + 1`, in the words of a lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn pair<const F: u8>(&self, i: usize) -> __m256i {
        if F == codes::IQ4_XS {
            let [low, high] = [self.iq4_xs(2 * i), self.iq4_xs(2 * i + 1)];
            return _mm256_blend_epi16::<0xaa>(low, _mm256_slli_epi32::<16>(high));
        }
        signed_bytes(self.scales[i / 2], [2 * (i % 2), 2 * (i % 2) + 1])
    }

    /// The minima of parts `2 i` and `2 i + 1`, in the words of a lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn mins(&self, i: usize) -> __m256i {
        // No minimum has a sign.
        signed_bytes(self.mins[i / 2], [2 * (i % 2), 2 * (i % 2) + 1])
    }

    /// A sub-scale of IQ4_XS, in a lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn iq4_xs(&self, p: usize) -> __m256i {
        let shifted = |v, by: usize, mask| {
            _mm256_and_si256(_mm256_srl_epi32(v, _mm_cvtsi32_si128(by as i32)), _mm256_set1_epi32(mask))
        };
        // Sixteen bits of high pairs stand in the upper half: their first pair has to come to the fifth bit.
        let both =
            _mm256_or_si256(shifted(self.scales[1], 4 * p, 15), shifted(self.scales[0], 12 + 2 * p, 48));
        _mm256_sub_epi32(both, _mm256_set1_epi32(32))
    }
}

/// Two of each lane's bytes as words.
#[inline]
#[target_feature(enable = "avx2")]
fn signed_bytes(v: __m256i, which: [usize; 2]) -> __m256i {
    // To the upper byte of each word, whose sign then fills the lower.
    let [low, high] = which.map(|byte| byte as i32);
    let first = _mm256_set1_epi32(0x80 | low << 8 | 0x80 << 16 | high << 24);
    let lanes =
        _mm256_setr_epi32(0, 0x0400_0400, 0x0800_0800, 0x0c00_0c00, 0, 0x0400_0400, 0x0800_0800, 0x0c00_0c00);
    _mm256_srai_epi16::<8>(_mm256_shuffle_epi8(v, _mm256_add_epi32(first, lanes)))
}

/// The factor of a block's codes, and that of its minima with its sign, of eight rows.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn factors<const F: u8, const N: usize>(b: &Block<N>, h: usize) -> (__m256, __m256) {
    let zero = _mm256_setzero_ps();
    let word = |w: usize| word(b, w, h);
    match F {
        codes::Q4_1 | codes::Q5_1 => (lower(word(0)), lower(_mm256_srli_epi32::<16>(word(0)))),
        codes::Q2_K | codes::Q4_K | codes::Q5_K => {
            let both = word(if F == codes::Q2_K { 20 } else { 0 });
            let m = lower(_mm256_srli_epi32::<16>(both));
            (lower(both), _mm256_xor_ps(m, _mm256_set1_ps(-0.0)))
        }
        codes::IQ4_XS => (lower(word(0)), zero),
        codes::CODED => (_mm256_castsi256_ps(word(FACTOR / 4)), zero),
        codes::MXFP4 => {
            assert!(h < 2);
            // SAFETY: eight of the block's last 16 bytes are read.
            let e = unsafe { _mm_loadl_epi64(b.as_ptr().cast::<u8>().add(STRIP * N - 16 + 8 * h).cast()) };
            let e = _mm256_cvtepu8_epi32(e);
            let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, _mm256_set1_epi32(1)));
            let small = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
            let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
            (_mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, below)), zero)
        }
        codes::NVFP4 => {
            assert!(h < 2);
            // SAFETY: eight of the block's last 16 bytes are read.
            let s = unsafe { _mm_loadl_epi64(b.as_ptr().cast::<u8>().add(STRIP * N - 16 + 8 * h).cast()) };
            let halves = _mm256_castsi256_si128(codes::small_halves(s));
            (_mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(128.0)), zero)
        }
        _ => {
            assert!(h < 2);
            // SAFETY: sixteen of the block's last 32 bytes are read.
            let d = unsafe { _mm_loadu_si128(b.as_ptr().cast::<u8>().add(STRIP * N - 32 + 16 * h).cast()) };
            (_mm256_cvtph_ps(d), zero)
        }
    }
}

/// The half in the lower half of each lane.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn lower(v: __m256i) -> __m256 {
    let low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    let packed = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256::<1>(low));
    _mm256_cvtph_ps(packed)
}
