//! Thirty-two rows of a packed weight, unpacked for many tokens: one lane, one row, two registers.
//!
//! Codes are signed bytes whatever the format, four neighbours of a row in a lane. Activations come raised by 128 (see
//! [`Tile`](crate::linear::Tile)); what that adds is known here already and becomes the value that sums start from. Sub-scales
//! are single precision where sums of a few scaled parts are exact in it, and else integers: [`Scaling`] says which.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use crate::{
    linear::{RAISED, half_power},
    simd::avx2::{
        codes::{self, codes, fine, has_min, offset},
        panel::{Lanes, array, half, transpose},
    },
};
use std::arch::x86_64::*;

/// Rows of a register.
const HALF: usize = 16;
/// Rows of a panel.
pub(super) const ROWS: usize = 2 * HALF;

/// A value for each row.
pub(super) type Both<T> = [Lanes<T>; 2];

/// How a superblock's parts are scaled and added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scaling {
    /// In single precision, exact over so many parts: `127 · largest code · elements · largest scale < 2^24`.
    Singles(usize),
    /// In integers.
    Integers,
}

/// The way of a format.
pub(super) const fn scaling(f: u8) -> Scaling {
    match f {
        // 3 · 15 and 4 · 32 times 127 · 256.
        codes::Q2_K | codes::Q3_K => Scaling::Singles(16),
        // 15 · 63 times 127 · 128.
        codes::Q4_K => Scaling::Singles(4),
        _ => Scaling::Integers,
    }
}

/// Parts of a superblock, each with a sub-scale.
pub(super) const fn parts(f: u8) -> usize {
    if fine(f) { 16 } else { 8 }
}

/// The unpacked rows; its buffers are used again.
#[derive(Debug, Default)]
pub(super) struct Panel {
    /// Four neighbouring codes. `[k / 4]`
    pub(super) codes: Vec<Both<[i8; 4]>>,
    /// What sums start from. `[blocks]`; with single-precision sub-scales `[superblocks * parts]`
    pub(super) starts: Vec<Both<i32>>,
    /// Sub-scales as bits: of `f32`, or integers. `[superblocks * parts]`
    pub(super) scales: Vec<Both<i32>>,
    /// What neighbouring sums of activations are multiplied with. `[superblocks * parts / 2]`
    pub(super) mins: Vec<Both<[i16; 2]>>,
    /// The factor of the codes. `[blocks]`
    pub(super) d: Vec<Both<f32>>,
    /// The factor of the minima, with its sign. `[blocks]`
    pub(super) m: Vec<Both<f32>>,
}

impl Panel {
    /// Unpacks rows of whole blocks of `N` bytes, all equally long.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn unpack<const F: u8, const N: usize>(&mut self, rows: &[&[u8]; ROWS]) {
        let blocks = rows[0].len() / N;
        let none: &[[u8; N]] = &[];
        let mut of = [none; ROWS];
        for r in 0..ROWS {
            of[r] = &rows[r].as_chunks().0[..blocks];
        }
        let supers = if codes::super_block(F) { blocks } else { 0 };
        let quads = if codes::super_block(F) { 64 } else { 8 };
        let starts =
            if let (true, Scaling::Singles(_)) = (codes::super_block(F), scaling(F)) { parts(F) } else { 1 };
        self.codes.resize(blocks * quads, [Lanes([[0; 4]; HALF]); 2]);
        self.starts.resize(blocks * starts, [Lanes([0; HALF]); 2]);
        self.scales.resize(supers * parts(F), [Lanes([0; HALF]); 2]);
        self.mins.resize(if has_min(F) { supers * parts(F) / 2 } else { 0 }, [Lanes([[0; 2]; HALF]); 2]);
        self.d.resize(blocks, [Lanes([0.0; HALF]); 2]);
        self.m.resize(if has_min(F) { blocks } else { 0 }, [Lanes([0.0; HALF]); 2]);
        for b in 0..blocks {
            self.codes::<F, N>(b, &of);
            self.factors::<F, N>(b, &of);
        }
        // Only now: what was written in halves cannot be read whole until it has reached the cache.
        for b in 0..blocks {
            for half in 0..2 {
                self.starts::<F>(b, half);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
    fn codes<const F: u8, const N: usize>(&mut self, b: usize, rows: &[&[[u8; N]]; ROWS]) {
        let quads = if codes::super_block(F) { 64 } else { 8 };
        for (j, to) in self.codes[b * quads..][..quads].chunks_exact_mut(8).enumerate() {
            for quarter in 0..4 {
                let mut v = [_mm256_setzero_si256(); 8];
                for r in 0..8 {
                    let raised = codes::<F, N>(&rows[8 * quarter + r][b], j);
                    v[r] = _mm256_sub_epi8(raised, _mm256_set1_epi8(offset(F) as i8));
                }
                let v = transpose(v);
                for q in 0..8 {
                    let to: &mut [[i8; 4]] = &mut to[q][quarter / 2].0[quarter % 2 * 8..][..8];
                    // SAFETY: 32 bytes are written to eight elements of 4.
                    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v[q]) };
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
    fn factors<const F: u8, const N: usize>(&mut self, b: usize, rows: &[&[[u8; N]]; ROWS]) {
        let (at, min_at) = codes::factors_at(F);
        for r in 0..ROWS {
            let (block, h, lane) = (&rows[r][b], r / HALF, r % HALF);
            self.d[b][h].0[lane] = if F == codes::MXFP4 { half_power(block[0]) } else { half(block, at) };
            if has_min(F) {
                let m = half(block, min_at);
                self.m[b][h].0[lane] = if codes::super_block(F) { -m } else { m };
            }
            if !codes::super_block(F) {
                continue;
            }
            let (scale, min) = codes::scales::<F, N>(block);
            let mut bits = [0_i32; 16];
            let wide = _mm512_cvtepi16_epi32(scale);
            let wide = match scaling(F) {
                Scaling::Singles(_) => _mm512_castps_si512(_mm512_cvtepi32_ps(wide)),
                Scaling::Integers => wide,
            };
            // SAFETY: 64 bytes are written to an array of 64.
            unsafe { _mm512_storeu_si512(bits.as_mut_ptr().cast(), wide) };
            // Of what serves 32 elements, each is there twice.
            let step = 16 / parts(F);
            for (i, to) in self.scales[b * parts(F)..][..parts(F)].iter_mut().enumerate() {
                to[h].0[lane] = bits[i * step];
            }
            if has_min(F) {
                let min = array(min);
                for (i, to) in self.mins[b * parts(F) / 2..][..parts(F) / 2].iter_mut().enumerate() {
                    to[h].0[lane] = [min[2 * i * step], min[(2 * i + 1) * step]];
                }
            }
        }
    }

    /// What raised activations add too much, negated: to each block, to each part of it, or to its parts scaled and summed.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn starts<const F: u8>(&mut self, b: usize, half: usize) {
        let (zero, raised) = (_mm512_setzero_si512(), _mm512_set1_epi8(RAISED as i8));
        let (parts, quads) = if codes::super_block(F) { (parts(F), 64 / parts(F)) } else { (1, 8) };
        let mut whole = zero;
        for i in 0..parts {
            let mut sum = zero;
            for q in 0..quads {
                let codes = &self.codes[(b * parts + i) * quads + q][half];
                sum = _mm512_dpbusd_epi32(sum, raised, bytes(codes));
            }
            let sum = _mm512_sub_epi32(zero, sum);
            if !codes::super_block(F) {
                put(&mut self.starts[b][half], sum);
            } else if let Scaling::Singles(_) = scaling(F) {
                put(&mut self.starts[b * parts + i][half], sum);
            } else {
                let scale = integers(&self.scales[b * parts + i][half]);
                whole = _mm512_add_epi32(whole, _mm512_mullo_epi32(sum, scale));
            }
        }
        if codes::super_block(F) && scaling(F) == Scaling::Integers {
            put(&mut self.starts[b][half], whole);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn bytes(v: &Lanes<[i8; 4]>) -> __m512i {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_si512(v.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn words(v: &Lanes<[i16; 2]>) -> __m512i {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_si512(v.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn integers(v: &Lanes<i32>) -> __m512i {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_si512(v.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn floats(v: &Lanes<f32>) -> __m512 {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_ps(v.0.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn put(to: &mut Lanes<i32>, v: __m512i) {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_store_si512(to.0.as_mut_ptr().cast(), v) }
}
