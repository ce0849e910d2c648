//! VNNI on vectors of 256 bits: products of bytes that are added in fours to 32 bits, and of words in pairs, by one instruction each.
//!
//! Processors without AVX-512 have it in an encoding of its own (AVX-VNNI: Intel's Core since the 12th generation), those with AVX-512 VNNI
//! and VL in that of AVX-512, and some in both. So which it is is a constant of the kernels, and they are tested wherever one
//! of the two is there. The instructions allow themselves, as those in `neon/asm.rs` do: a kernel's features would have to
//! be others for each encoding.
#![allow(unsafe_code)]

use super::codes::{self, signed};
use std::arch::{asm, x86_64::*};

/// Neither: AVX2 alone.
pub(in crate::simd) const NONE: u8 = 0;
/// The encoding of AVX-VNNI.
pub(in crate::simd) const VEX: u8 = 1;
/// The encoding of AVX-512 VNNI with VL.
pub(in crate::simd) const EVEX: u8 = 2;

/// Whether the machine has the encoding of AVX-VNNI.
pub(in crate::simd) fn has_vex() -> bool {
    is_x86_feature_detected!("avxvnni")
}

/// Whether it has that of AVX-512.
pub(in crate::simd) fn has_evex() -> bool {
    is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl")
}

/// Adds products of codes with activations to the eight sums of four each. The machine must have the encoding `V`.
#[inline]
#[target_feature(enable = "avx2")]
fn dots<const V: u8, const F: u8>(mut sum: __m256i, codes: __m256i, a: __m256i) -> __m256i {
    let (codes, a) =
        if signed(F) { (_mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes)) } else { (codes, a) };
    // SAFETY: registers are all that is read and written, and the path that names an encoding is taken where it was found.
    unsafe {
        match V {
            VEX => {
                asm!("{{vex}} vpdpbusd {sum}, {codes}, {a}", sum = inout(ymm_reg) sum, codes = in(ymm_reg) codes,
                a = in(ymm_reg) a, options(pure, nomem, nostack, preserves_flags))
            }
            _ => {
                asm!("{{evex}} vpdpbusd {sum}, {codes}, {a}", sum = inout(ymm_reg) sum, codes = in(ymm_reg) codes,
                a = in(ymm_reg) a, options(pure, nomem, nostack, preserves_flags))
            }
        }
    }
    sum
}

/// Adds products of words to the eight sums of two each. The machine must have the encoding `V`, if it is one.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_words<const V: u8>(mut sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: as above.
    unsafe {
        match V {
            VEX => asm!("{{vex}} vpdpwssd {sum}, {a}, {b}", sum = inout(ymm_reg) sum, a = in(ymm_reg) a,
                b = in(ymm_reg) b, options(pure, nomem, nostack, preserves_flags)),
            EVEX => asm!("{{evex}} vpdpwssd {sum}, {a}, {b}", sum = inout(ymm_reg) sum, a = in(ymm_reg) a,
                b = in(ymm_reg) b, options(pure, nomem, nostack, preserves_flags)),
            _ => sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)),
        }
    }
    sum
}

/// Adds to sums what [`step`] has of codes with activations: by VNNI eight sums of fours, and otherwise sixteen of pairs, as long as those fit.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn short<const V: u8, const F: u8>(sum: __m256i, c: __m256i, a: __m256i) -> __m256i {
    if V == NONE { _mm256_add_epi16(sum, codes::pairs::<F>(c, a)) } else { dots::<V, F>(sum, c, a) }
}

/// Whether it pays to write products out in order ([`short_in_order`]): without VNNI, and where sums of more than two fit 16 bits. Others measured
/// faster as a compiler has them.
pub(super) const fn pays_in_order(v: u8, f: u8) -> bool {
    v == NONE && codes::adds(f) > 2
}

/// Begins or goes on with [`short`] of sixteen rows, without VNNI and for codes that are not signed, as it is written here: a compiler that sees
/// through eight of these in a row takes one token after the other through all codes, for which there are not enough registers.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn short_in_order(sums: &mut [__m256i; 2], begins: bool, c: [__m256i; 2], a: __m256i) {
    let [s0, s1] = sums;
    // SAFETY: registers are all that is read and written.
    unsafe {
        if begins {
            asm!("vpmaddubsw {s0}, {c0}, {a}", "vpmaddubsw {s1}, {c1}, {a}",
                s0 = out(ymm_reg) *s0, s1 = lateout(ymm_reg) *s1, c0 = in(ymm_reg) c[0], c1 = in(ymm_reg) c[1],
                a = in(ymm_reg) a, options(nomem, nostack, preserves_flags));
        } else {
            asm!("vpmaddubsw {p0}, {c0}, {a}", "vpmaddubsw {p1}, {c1}, {a}", "vpaddw {s0}, {s0}, {p0}", "vpaddw {s1}, {s1}, {p1}",
                s0 = inout(ymm_reg) *s0, s1 = inout(ymm_reg) *s1, p0 = out(ymm_reg) _, p1 = out(ymm_reg) _,
                c0 = in(ymm_reg) c[0], c1 = in(ymm_reg) c[1], a = in(ymm_reg) a, options(nomem, nostack, preserves_flags));
        }
    }
}

/// How many times [`short`] may be added up, of `most`.
pub(super) const fn step(v: u8, f: u8, most: usize) -> usize {
    if v == NONE && codes::adds(f) < most { codes::adds(f) } else { most }
}

/// Adds what [`short`] made, times scales that stand in both words of a lane.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_scaled<const V: u8>(sum: __m256i, short: __m256i, scale: __m256i) -> __m256i {
    let scaled = if V == NONE {
        _mm256_madd_epi16(short, scale)
    } else {
        _mm256_mullo_epi32(short, _mm256_srai_epi32::<16>(scale))
    };
    _mm256_add_epi32(sum, scaled)
}

/// Adds what [`short`] made.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_short<const V: u8>(sum: __m256i, short: __m256i) -> __m256i {
    let fours = if V == NONE { _mm256_madd_epi16(short, _mm256_set1_epi16(1)) } else { short };
    _mm256_add_epi32(sum, fours)
}
