//! Two strips of a packed weight, unpacked for many tokens: one lane, one row, two registers.
//!
//! Codes are signed bytes whatever the format, four neighbours of a row in a lane, and meet activations raised by 128: the instruction
//! multiplies unsigned bytes with signed ones. What raising adds depends on the rows alone, so sums start from it with its sign
//! turned, which costs a load; raised codes would cost a product for each token. Sub-scales are integers, or single precision where sums
//! of a few scaled parts are exact in it and the processor is faster so: [`Scaling`] says which.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::strip::{self, Scales, elements, factors, parts, quad, raise};
use crate::{
    linear::STRIP,
    simd::avx2::{
        codes::{self, has_min, super_block},
        panel::Lanes,
    },
    simd::vendor::is_amd,
};
use std::arch::x86_64::*;

/// Rows of a panel.
pub(in crate::simd) const ROWS: usize = 2 * STRIP;

/// A value for each row.
pub(in crate::simd) type Both<T> = [Lanes<T>; 2];

/// How a superblock's parts are scaled and added. The sums are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::simd) enum Scaling {
    /// In integers.
    #[default]
    Integers,
    /// In single precision, as many parts as [`exact`] has it.
    Singles,
}

impl Scaling {
    /// The faster way of a format: an integer product is one of AMD's multiplications, and two of Intel's.
    fn of(f: u8) -> Self {
        if exact(f) > 0 && !is_amd() { Self::Singles } else { Self::Integers }
    }
}

/// How many scaled parts have sums that are exact in single precision: `127 · largest code · elements · largest scale < 2^24`. None where
/// one alone may not be.
pub(in crate::simd) const fn exact(f: u8) -> usize {
    match f {
        // 3 · 15, 4 · 32 and 2 times 127 · 256.
        codes::Q2_K | codes::Q3_K | codes::TQ2 => 16,
        // 15 · 63 times 127 · 128.
        codes::Q4_K => 4,
        _ => 0,
    }
}

/// The unpacked rows; its buffers are used again.
#[derive(Debug, Default)]
pub(in crate::simd) struct Panel {
    /// Four neighbouring codes. `[k / 4]`
    pub(in crate::simd) codes: Vec<Both<[i8; 4]>>,
    /// -128 times the sum of a part's codes, or of a block's. `[superblocks * parts]`, or `[blocks]`
    pub(in crate::simd) starts: Vec<Both<i32>>,
    /// What sub-scales are.
    pub(in crate::simd) scaling: Scaling,
    /// Sub-scales as bits: of `f32`, or integers. `[superblocks * parts]`
    pub(in crate::simd) scales: Vec<Both<i32>>,
    /// What neighbouring sums of activations are multiplied with. `[superblocks * parts / 2]`
    pub(in crate::simd) mins: Vec<Both<[i16; 2]>>,
    /// The factor of the codes. `[blocks]`
    pub(in crate::simd) d: Vec<Both<f32>>,
    /// The factor of the minima, with its sign. `[blocks]`
    pub(in crate::simd) m: Vec<Both<f32>>,
}

impl Panel {
    /// Unpacks two equally long strips of whole blocks of `N` bytes a row.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(in crate::simd) fn unpack<const F: u8, const N: usize>(&mut self, strips: [&[u8]; 2]) {
        self.unpack_for::<F, N>(Scaling::of(F), strips);
    }

    /// The same for a way of scaling.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn unpack_for<const F: u8, const N: usize>(&mut self, scaling: Scaling, strips: [&[u8]; 2]) {
        self.scaling = scaling;
        let count = strip::blocks::<N>(strips[0]).len();
        let (quads, supers) = (elements(F) / 4, if super_block(F) { count } else { 0 });
        self.codes.resize(count * quads, [Lanes([[0; 4]; STRIP]); 2]);
        let each = if super_block(F) { quads / parts(F) } else { quads };
        self.starts.resize(count * (quads / each), [Lanes([0; STRIP]); 2]);
        self.scales.resize(supers * parts(F), [Lanes([0; STRIP]); 2]);
        self.mins.resize(if has_min(F) { supers * parts(F) / 2 } else { 0 }, [Lanes([[0; 2]; STRIP]); 2]);
        self.d.resize(count, [Lanes([0.0; STRIP]); 2]);
        self.m.resize(if has_min(F) { count } else { 0 }, [Lanes([0.0; STRIP]); 2]);
        for half in 0..2 {
            let blocks = &strip::blocks::<N>(strips[half])[..count];
            for (b, block) in blocks.iter().enumerate() {
                let parts = self.codes[b * quads..][..quads].chunks_exact_mut(each);
                let starts = &mut self.starts[b * (quads / each)..][..quads / each];
                for (p, (to, start)) in parts.zip(starts).enumerate() {
                    let mut sum = _mm512_setzero_si512();
                    for (i, to) in to.iter_mut().enumerate() {
                        let code =
                            _mm512_sub_epi8(quad::<F, N>(block, p, i), _mm512_set1_epi8(raise(F) as i8));
                        // The first factor is 128.
                        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), code);
                        put(&mut to[half], code);
                    }
                    put(&mut start[half], _mm512_sub_epi32(_mm512_setzero_si512(), sum));
                }
                let (d, m) = factors::<F, N>(block);
                put(&mut self.d[b][half], _mm512_castps_si512(d));
                if has_min(F) {
                    put(&mut self.m[b][half], _mm512_castps_si512(m));
                }
                if super_block(F) {
                    self.scales::<F>(b, half, &Scales::of::<F, N>(block));
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn scales<const F: u8>(&mut self, b: usize, half: usize, scales: &Scales) {
        for (p, to) in self.scales[b * parts(F)..][..parts(F)].iter_mut().enumerate() {
            let scale = scales.scale::<F>(p);
            let scale = match self.scaling {
                Scaling::Singles => _mm512_castps_si512(_mm512_cvtepi32_ps(scale)),
                Scaling::Integers => scale,
            };
            put(&mut to[half], scale);
        }
        if has_min(F) {
            for (i, to) in self.mins[b * parts(F) / 2..][..parts(F) / 2].iter_mut().enumerate() {
                put(&mut to[half], scales.mins(i));
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::simd) fn bytes(v: &Lanes<[i8; 4]>) -> __m512i {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_si512(v.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::simd) fn words(v: &Lanes<[i16; 2]>) -> __m512i {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_si512(v.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::simd) fn integers(v: &Lanes<i32>) -> __m512i {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_si512(v.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::simd) fn floats(v: &Lanes<f32>) -> __m512 {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_ps(v.0.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::simd) fn put<T>(to: &mut Lanes<T>, v: __m512i) {
    const { assert!(size_of::<Lanes<T>>() == 64) };
    // SAFETY: the array has 64 bytes and starts at a multiple of 64. Its elements are numbers of any bits.
    unsafe { _mm512_store_si512(to.0.as_mut_ptr().cast(), v) }
}

/// Writes the sums of a strip's rows, or of those of them that there are.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::simd) fn put_strip(to: &mut [f32], sums: &[f32; STRIP]) {
    match <&mut [f32; STRIP]>::try_from(&mut *to) {
        // SAFETY: 64 bytes are read from an array of 64 and written to another. A copy would be made one call for this case and the next.
        Ok(to) => unsafe { _mm512_storeu_ps(to.as_mut_ptr(), _mm512_loadu_ps(sums.as_ptr())) },
        Err(_) => to.copy_from_slice(&sums[..to.len()]),
    }
}
