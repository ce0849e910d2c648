//! The two 16-bit floats as lanes: to f32 and back.
//!
//! By integers and selects, which run everywhere and become vectors; whole rows of f16 go by the processor's conversion where there is one, because
//! arithmetic on packed halves is little else than converting.
#![allow(unsafe_code)]

/// A 16-bit format.
pub(super) trait Half: Copy {
    /// The NaN that results are.
    const NAN: u16;
    /// Exact.
    fn widen(bits: u16) -> f32;
    /// Rounded to nearest, ties to even; NaN becomes [`Self::NAN`].
    fn narrow(value: f32) -> u16;
    /// Infinity.
    const INFINITY: u16;
    /// The least normal number.
    const LEAST_NORMAL: u16;
    /// One.
    const ONE: u16;

    /// [`Self::widen`] of many; `FAST` promises AVX2 and F16C.
    #[inline(always)]
    fn widen_all<const FAST: bool, const N: usize>(bits: &[u16; N]) -> [f32; N] {
        let mut out = [0.0; N];
        for at in 0..N {
            out[at] = Self::widen(bits[at]);
        }
        out
    }

    /// [`Self::narrow`] of many; `FAST` promises AVX2 and F16C.
    #[inline(always)]
    fn narrow_all<const FAST: bool, const N: usize>(values: &[f32; N]) -> [u16; N] {
        let mut out = [0; N];
        for at in 0..N {
            out[at] = Self::narrow(values[at]);
        }
        out
    }
}

/// IEEE binary16.
#[derive(Clone, Copy, Debug)]
pub(super) struct F16;

/// The upper half of an f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bf16;

impl Half for F16 {
    const NAN: u16 = 0x7fff;
    const INFINITY: u16 = 0x7c00;
    const LEAST_NORMAL: u16 = 0x0400;
    const ONE: u16 = 0x3c00;

    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        let magnitude = u32::from(bits & 0x7fff) << 13;
        let sign = u32::from(bits & 0x8000) << 16;
        let exponent = magnitude & 0x0f80_0000;
        // The exponent's bias differs by 112; infinity and NaN keep the highest one.
        let normal = magnitude + (112 << 23);
        let special = magnitude + (224 << 23);
        // A subnormal: its mantissa below a one at 2^-14, and that one taken away.
        let small = (f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
        let value = if exponent == 0x0f80_0000 { special } else { normal };
        f32::from_bits(sign | if exponent == 0 { small } else { value })
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
        // Half of the last bit that stays, less one if that is even; carries run into the exponent as they should.
        let normal = magnitude.wrapping_add(0xfff + (magnitude >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
        // Below 2^-14 the last bit is 2^-24, which is the last bit of numbers from one half to one.
        let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let value = if magnitude < 113 << 23 { small } else { normal };
        let value = if magnitude >= 143 << 23 { 0x7c00 } else { value };
        let value = if magnitude > 255 << 23 { u32::from(Self::NAN) } else { value | sign };
        value as u16
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn widen_all<const FAST: bool, const N: usize>(bits: &[u16; N]) -> [f32; N] {
        use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
        let mut out = [0.0; N];
        if FAST {
            for (bits, out) in bits.chunks_exact(8).zip(out.chunks_exact_mut(8)) {
                // SAFETY: both chunks have eight elements, and `FAST` is set only in functions compiled for F16C.
                unsafe {
                    let bits = _mm_loadu_si128(bits.as_ptr().cast());
                    _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(bits));
                }
            }
        } else {
            for at in 0..N {
                out[at] = Self::widen(bits[at]);
            }
        }
        out
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn narrow_all<const FAST: bool, const N: usize>(values: &[f32; N]) -> [u16; N] {
        use std::arch::x86_64::{
            _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps,
        };
        let mut out = [0; N];
        if FAST {
            for (values, out) in values.chunks_exact(8).zip(out.chunks_exact_mut(8)) {
                // SAFETY: both chunks have eight elements, and `FAST` is set only in functions compiled for F16C.
                unsafe {
                    let values = _mm256_loadu_ps(values.as_ptr());
                    let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
                    _mm_storeu_si128(out.as_mut_ptr().cast(), bits);
                }
            }
            for bits in &mut out {
                *bits = if *bits & 0x7fff > Self::INFINITY { Self::NAN } else { *bits };
            }
        } else {
            for at in 0..N {
                out[at] = Self::narrow(values[at]);
            }
        }
        out
    }
}

impl Half for Bf16 {
    const NAN: u16 = 0x7fff;
    const INFINITY: u16 = 0x7f80;
    const LEAST_NORMAL: u16 = 0x0080;
    const ONE: u16 = 0x3f80;

    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        (if bits & 0x7fff_ffff > 255 << 23 { u32::from(Self::NAN) } else { rounded }) as u16
    }
}

/// A subnormal becomes a zero of its sign.
#[inline(always)]
pub(super) fn flush<H: Half>(bits: u16) -> u16 {
    if bits & 0x7fff < H::LEAST_NORMAL { bits & 0x8000 } else { bits }
}

/// The halves of a row: 32, one in each word, or 64, two in each in the host's order.
#[inline(always)]
pub(super) fn split<const N: usize>(row: &[u32; 32]) -> [u16; N] {
    let mut out = [0; N];
    if N == 64 {
        // SAFETY: both are 128 bytes of plain integers; loops over pairs become shuffles, and this nothing at all.
        let all: [u16; 64] = unsafe { std::mem::transmute(*row) };
        out.copy_from_slice(&all[..N]);
    } else {
        for at in 0..N {
            out[at] = row[at] as u16;
        }
    }
    out
}

/// The inverse of [`split`].
#[inline(always)]
pub(super) fn join<const N: usize>(halves: &[u16; N]) -> [u32; 32] {
    if N == 64 {
        let mut all = [0; 64];
        all[..N].copy_from_slice(halves);
        // SAFETY: as in `split`.
        unsafe { std::mem::transmute::<[u16; 64], [u32; 32]>(all) }
    } else {
        std::array::from_fn(|at| u32::from(halves[at]))
    }
}

/// The lower and the upper half of a word.
#[inline(always)]
pub(super) fn halves(word: u32) -> (u16, u16) {
    (word as u16, (word >> 16) as u16)
}

/// A word of two halves.
#[inline(always)]
pub(super) fn word(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}
