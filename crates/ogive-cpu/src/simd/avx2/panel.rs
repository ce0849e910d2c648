//! Sixteen rows of a packed weight, unpacked for many tokens: one lane, one row.
//!
//! Codes stay bytes: a panel of 2048 columns takes 32 KiB and lives in the first cache while every token passes. With a
//! lane for each row nothing is summed across registers, and sub-scales are a multiplication that has to be done anyway
//! (pairs of 16-bit sums to 32 bits).
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    codes::{self, codes, fine, has_min, offset},
    strip::{self, Scales},
};
use crate::linear::half_power;
use std::arch::x86_64::*;

/// Rows of a panel.
pub(in crate::simd) const ROWS: usize = 16;

/// A value for each row.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(in crate::simd) struct Lanes<T>(pub(in crate::simd) [T; ROWS]);

/// The unpacked rows; its buffers are used again.
#[derive(Debug, Default)]
pub(in crate::simd) struct Panel {
    /// Four neighbouring codes of each row. `[k / 4]`
    pub(in crate::simd) codes: Vec<Lanes<[u8; 4]>>,
    /// Each sub-scale twice in 16 bits. `[superblocks * sub-scales]`
    pub(in crate::simd) scales: Vec<Lanes<[i16; 2]>>,
    /// What neighbouring sums of activations are multiplied with, each over the elements of a sub-scale: minima, or the offset of the codes
    /// times their scales. `[superblocks * sub-scales / 2]`
    pub(in crate::simd) mins: Vec<Lanes<[i16; 2]>>,
    /// The factor of the codes. `[blocks]`
    pub(in crate::simd) d: Vec<Lanes<f32>>,
    /// The factor of the minima, with its sign. `[blocks]`
    pub(in crate::simd) m: Vec<Lanes<f32>>,
}

/// Sub-scales of a superblock.
pub(in crate::simd) const fn subs(f: u8) -> usize {
    if fine(f) { 16 } else { 8 }
}

/// Pairs of minima of a superblock.
pub(super) const fn mins(f: u8) -> usize {
    subs(f) / 2
}

impl Panel {
    /// Makes room for so many blocks.
    pub(super) fn set_len<const F: u8>(&mut self, blocks: usize) {
        let (quads, supers) = (codes::elements(F) / 4, if codes::super_block(F) { blocks } else { 0 });
        self.codes.resize(blocks * quads, Lanes([[0; 4]; ROWS]));
        self.d.resize(blocks, Lanes([0.0; ROWS]));
        self.m.resize(if has_min(F) { blocks } else { 0 }, Lanes([0.0; ROWS]));
        self.scales.resize(supers * subs(F), Lanes([[0; 2]; ROWS]));
        self.mins.resize(supers * mins(F), Lanes([[0; 2]; ROWS]));
    }

    /// Unpacks rows of whole blocks of `N` bytes, all equally long.
    #[target_feature(enable = "avx2,f16c")]
    pub(in crate::simd) fn unpack<const F: u8, const N: usize>(&mut self, rows: &[&[u8]; ROWS]) {
        let rows: [&[[u8; N]]; ROWS] = std::array::from_fn(|r| rows[r].as_chunks().0);
        let blocks = rows[0].len();
        let quads = if codes::super_block(F) { 64 } else { 8 };
        self.set_len::<F>(blocks);
        for b in 0..blocks {
            let to = &mut self.codes[b * quads..][..quads];
            for (j, to) in to.chunks_exact_mut(8).enumerate() {
                for half in 0..2 {
                    let mut v = [_mm256_setzero_si256(); 8];
                    for r in 0..8 {
                        v[r] = codes::<F, N>(&rows[8 * half + r][b], j);
                    }
                    for (to, v) in to.iter_mut().zip(transpose(v)) {
                        let to: &mut [[u8; 4]] = &mut to.0[8 * half..][..8];
                        // SAFETY: 32 bytes are written to eight elements of 4.
                        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) };
                    }
                }
            }
            self.factors::<F, N>(b, &rows);
        }
    }

    /// The same of a strip.
    #[target_feature(enable = "avx2,f16c")]
    pub(in crate::simd) fn unpack_strip<const F: u8, const N: usize>(&mut self, strip: &[u8]) {
        let blocks = strip::blocks::<N>(strip);
        self.set_len::<F>(blocks.len());
        let (parts, quads) = (strip::parts(F), strip::quads(F));
        for (b, block) in blocks.iter().enumerate() {
            let to = &mut self.codes[b * parts * quads..][..parts * quads];
            for (p, to) in to.chunks_exact_mut(quads).enumerate() {
                for (i, to) in to.iter_mut().enumerate() {
                    put(to, [strip::quad::<F, N>(block, p, i, 0), strip::quad::<F, N>(block, p, i, 1)]);
                }
            }
            let [(d0, m0), (d1, m1)] = [strip::factors::<F, N>(block, 0), strip::factors::<F, N>(block, 1)];
            put(&mut self.d[b], [_mm256_castps_si256(d0), _mm256_castps_si256(d1)]);
            if has_min(F) {
                put(&mut self.m[b], [_mm256_castps_si256(m0), _mm256_castps_si256(m1)]);
            }
            if codes::super_block(F) {
                let scales = [Scales::of::<F, N>(block, 0), Scales::of::<F, N>(block, 1)];
                for (p, to) in self.scales[b * parts..][..parts].iter_mut().enumerate() {
                    put(to, [scales[0].twice::<F>(p), scales[1].twice::<F>(p)]);
                }
                for (i, to) in self.mins[b * mins(F)..][..mins(F)].iter_mut().enumerate() {
                    let mut both = [_mm256_setzero_si256(); 2];
                    for r in 0..2 {
                        both[r] = match offset(F) {
                            0 if !has_min(F) => both[r],
                            0 => scales[r].mins(i),
                            by => _mm256_mullo_epi16(scales[r].pair::<F>(i), _mm256_set1_epi16(-by)),
                        };
                    }
                    put(to, both);
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn factors<const F: u8, const N: usize>(&mut self, b: usize, rows: &[&[[u8; N]]; ROWS]) {
        let (at, min_at) = codes::factors_at(F);
        for r in 0..ROWS {
            let block = &rows[r][b];
            self.d[b].0[r] = match F {
                codes::MXFP4 => half_power(block[0]),
                codes::CODED => codes::single(block),
                _ => half(block, at),
            };
            if has_min(F) {
                self.m[b].0[r] =
                    if codes::super_block(F) { -half(block, min_at) } else { half(block, min_at) };
            }
            if codes::super_block(F) {
                let (scale, min) = codes::scales::<F, N>(block);
                let min = match offset(F) {
                    0 => min,
                    offset => _mm256_mullo_epi16(scale, _mm256_set1_epi16(-offset)),
                };
                let (scale, min) = (array(scale), array(min));
                for (i, to) in self.scales[b * subs(F)..][..subs(F)].iter_mut().enumerate() {
                    to.0[r] = [scale[i * (16 / subs(F))]; 2];
                }
                for (i, to) in self.mins[b * mins(F)..][..mins(F)].iter_mut().enumerate() {
                    let each = 16 / subs(F);
                    to.0[r] = [min[2 * i * each], min[(2 * i + 1) * each]];
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn put<T>(to: &mut Lanes<T>, v: [__m256i; 2]) {
    const { assert!(size_of::<Lanes<T>>() == 64) };
    let to: *mut __m256i = to.0.as_mut_ptr().cast();
    // SAFETY: the array has 64 bytes and starts at a multiple of 64. Its elements are numbers of any bits.
    unsafe {
        _mm256_store_si256(to, v[0]);
        _mm256_store_si256(to.add(1), v[1]);
    }
}

#[inline]
#[target_feature(enable = "f16c")]
fn half<const N: usize>(b: &[u8; N], at: usize) -> f32 {
    let bits = i32::from(u16::from_le_bytes([b[at], b[at + 1]]));
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn array(v: __m256i) -> [i16; 16] {
    let mut out = [0; 16];
    // SAFETY: 32 bytes are written to an array of 32.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) };
    out
}

/// Eight rows of eight doublewords become eight columns.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(v: [__m256i; 8]) -> [__m256i; 8] {
    let mut pairs = v;
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    let mut fours = pairs;
    for i in 0..2 {
        for k in 0..2 {
            let (low, high) = (pairs[4 * i + k], pairs[4 * i + 2 + k]);
            fours[4 * i + 2 * k] = _mm256_unpacklo_epi64(low, high);
            fours[4 * i + 2 * k + 1] = _mm256_unpackhi_epi64(low, high);
        }
    }
    let mut out = fours;
    for i in 0..4 {
        out[i] = _mm256_permute2x128_si256::<0x20>(fours[i], fours[4 + i]);
        out[4 + i] = _mm256_permute2x128_si256::<0x31>(fours[i], fours[4 + i]);
    }
    out
}
