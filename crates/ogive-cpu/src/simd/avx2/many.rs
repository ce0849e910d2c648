//! A panel of sixteen unpacked rows times up to four tokens.
//!
//! Four activations are broadcast and meet four codes of each row. Products of pairs are summed in 16 bits for as long as
//! they fit, so that most of the work is one multiplication and one addition for 32 codes; with VNNI it is one instruction.
#![allow(unsafe_code)]

use super::{
    codes::{Pairs, elements, has_min, offset, super_block},
    panel::{Lanes, Panel, mins, subs},
    vnni::{add_scaled, add_short, pays_in_order, short, short_in_order, step},
};
use crate::linear::Quantised;
use std::arch::x86_64::*;

/// Tokens that a panel meets at a time.
pub(super) const TOKENS: usize = 4;

/// A sum for each of sixteen rows.
type Sums = [__m256; 2];

/// The same in integers.
type Integers = [__m256i; 2];

/// Adds the products of a panel with the activations from element `from` on.
#[target_feature(enable = "avx2,fma")]
pub(super) fn many<const V: u8, const F: u8, const T: usize>(
    panel: &Panel,
    x: [&Quantised; T],
    from: usize,
    sums: &mut [Lanes<f32>; T],
) {
    let mut out = [[_mm256_setzero_ps(); 2]; T];
    for t in 0..T {
        out[t] = floats(&sums[t]);
    }
    if super_block(F) {
        superblocks::<V, F, T>(panel, x, from, &mut out);
    } else if elements(F) == 16 {
        sixteens::<V, F, T>(panel, x, from, &mut out);
    } else {
        blocks::<V, F, T>(panel, x, from, &mut out);
    }
    for (sums, v) in sums.iter_mut().zip(out) {
        let to = sums.0.as_mut_ptr();
        // SAFETY: the array has 64 bytes and starts at a multiple of 64.
        unsafe {
            _mm256_store_ps(to, v[0]);
            _mm256_store_ps(to.add(8), v[1]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn superblocks<const V: u8, const F: u8, const T: usize>(
    panel: &Panel,
    x: [&Quantised; T],
    from: usize,
    out: &mut [Sums; T],
) {
    let first = from / 256;
    let codes_of: [&[[i8; 256]]; T] = std::array::from_fn(|t| &x[t].codes.as_chunks().0[first..]);
    let sums_of: [&[[i16; 16]]; T] = std::array::from_fn(|t| &x[t].sums.as_chunks().0[first..]);
    let quads = 64 / subs(F);
    let blocks = panel.codes.as_chunks::<64>().0.iter().zip(panel.scales.chunks_exact(subs(F)));
    let blocks = blocks.zip(panel.mins.chunks_exact(mins(F)));
    for (b, ((codes, scales), mins)) in blocks.enumerate() {
        let (mut a, mut s) = ([&[0; 256]; T], [&[0; 16]; T]);
        for t in 0..T {
            (a[t], s[t]) = (&codes_of[t][b], &sums_of[t][b]);
        }
        let mut low = [[_mm256_setzero_si256(); 2]; T];
        if offset(F) != 0 || has_min(F) {
            let mut pairs = [Pairs::of::<F>(s[0]); T];
            for t in 1..T {
                pairs[t] = Pairs::of::<F>(s[t]);
            }
            for (i, min) in mins.iter().enumerate() {
                let min = words(min);
                for t in 0..T {
                    let pair = pairs[t].pair(i);
                    for r in 0..2 {
                        low[t][r] = _mm256_add_epi32(low[t][r], _mm256_madd_epi16(min[r], pair));
                    }
                }
            }
        }
        let mut sums = if offset(F) != 0 { low } else { [[_mm256_setzero_si256(); 2]; T] };
        if pays_in_order(V, F) {
            let parts = codes.as_chunks::<8>().0.iter().zip(scales.chunks_exact(subs(F) / 8));
            for (i, (codes, scales)) in parts.enumerate() {
                let mut short = [[_mm256_setzero_si256(); 2]; T];
                let mut part = [&[0; 32]; T];
                for t in 0..T {
                    part[t] = &a[t].as_chunks().0[i];
                }
                let step = step(V, F, quads);
                eight!(q => {
                    add_in_order(&codes[q], part, q, q.is_multiple_of(step), &mut short);
                    if q % step == step - 1 {
                        add_all_scaled::<V, T>(&mut sums, short, words(&scales[q / quads]));
                    }
                });
            }
        } else {
            for (i, (codes, scale)) in codes.chunks_exact(quads).zip(scales).enumerate() {
                let step = step(V, F, quads);
                for (g, codes) in codes.chunks_exact(step).enumerate() {
                    let short = short_sums::<V, F, T, _>(codes, a, 4 * (i * quads + g * step));
                    add_all_scaled::<V, T>(&mut sums, short, words(scale));
                }
            }
        }
        let d = floats(&panel.d[b]);
        for t in 0..T {
            let scale = _mm256_set1_ps(x[t].scales[first + b]);
            for r in 0..2 {
                let mut p = _mm256_mul_ps(d[r], _mm256_cvtepi32_ps(sums[t][r]));
                if has_min(F) {
                    p = _mm256_fmadd_ps(floats(&panel.m[b])[r], _mm256_cvtepi32_ps(low[t][r]), p);
                }
                out[t][r] = _mm256_fmadd_ps(scale, p, out[t][r]);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn blocks<const V: u8, const F: u8, const T: usize>(
    panel: &Panel,
    x: [&Quantised; T],
    from: usize,
    out: &mut [Sums; T],
) {
    let first = from / 32;
    let codes_of: [&[[i8; 32]]; T] = std::array::from_fn(|t| &x[t].codes.as_chunks().0[first..]);
    let sums_of: [&[[i16; 2]]; T] = std::array::from_fn(|t| &x[t].sums.as_chunks().0[first..]);
    let each = x[0].codes.len() / 32 / x[0].scales.len().max(1);
    let ones = _mm256_set1_epi16(1);
    let codes = panel.codes.as_chunks::<8>().0;
    for (group, codes) in codes.chunks(each.max(1)).enumerate() {
        let mut p = [[_mm256_setzero_ps(); 2]; T];
        for (i, codes) in codes.iter().enumerate() {
            let b = group * each + i;
            let mut a = [&[0; 32]; T];
            let mut sums = [[_mm256_setzero_si256(); 2]; T];
            let mut totals = [_mm256_setzero_si256(); T];
            for t in 0..T {
                a[t] = &codes_of[t][b];
                let [low, high] = sums_of[t][b];
                let pair = _mm256_set1_epi32(join(low, high));
                if offset(F) != 0 {
                    sums[t] = [_mm256_madd_epi16(pair, _mm256_set1_epi16(-offset(F))); 2];
                }
                if has_min(F) {
                    totals[t] = _mm256_madd_epi16(pair, ones);
                }
            }
            let step = step(V, F, 8);
            if pays_in_order(V, F) {
                let mut short = [[_mm256_setzero_si256(); 2]; T];
                eight!(q => {
                    add_in_order(&codes[q], a, q, q.is_multiple_of(step), &mut short);
                    if q % step == step - 1 {
                        add_all::<V, T>(&mut sums, short);
                    }
                });
            } else {
                for (g, codes) in codes.chunks_exact(step).enumerate() {
                    add_all::<V, T>(&mut sums, short_sums::<V, F, T, _>(codes, a, 4 * g * step));
                }
            }
            let d = floats(&panel.d[b]);
            for t in 0..T {
                for r in 0..2 {
                    p[t][r] = _mm256_fmadd_ps(d[r], _mm256_cvtepi32_ps(sums[t][r]), p[t][r]);
                    if has_min(F) {
                        let m = floats(&panel.m[b])[r];
                        p[t][r] = _mm256_fmadd_ps(m, _mm256_cvtepi32_ps(totals[t]), p[t][r]);
                    }
                }
            }
        }
        for t in 0..T {
            let scale = _mm256_set1_ps(x[t].scales[first / each.max(1) + group]);
            for r in 0..2 {
                out[t][r] = _mm256_fmadd_ps(scale, p[t][r], out[t][r]);
            }
        }
    }
}

/// The same of blocks of 16, which have no minima.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sixteens<const V: u8, const F: u8, const T: usize>(
    panel: &Panel,
    x: [&Quantised; T],
    from: usize,
    out: &mut [Sums; T],
) {
    let first = from / 16;
    let codes_of: [&[[i8; 16]]; T] = std::array::from_fn(|t| &x[t].codes.as_chunks().0[first..]);
    let sums_of: [&[i16]; T] = std::array::from_fn(|t| &x[t].sums[first..]);
    let each = (x[0].codes.len() / 16 / x[0].scales.len().max(1)).max(1);
    for (group, codes) in panel.codes.as_chunks::<4>().0.chunks(each).enumerate() {
        let mut p = [[_mm256_setzero_ps(); 2]; T];
        for (i, codes) in codes.iter().enumerate() {
            let b = group * each + i;
            let (mut a, mut sums) = ([&[0; 16]; T], [[_mm256_setzero_si256(); 2]; T]);
            for t in 0..T {
                a[t] = &codes_of[t][b];
                sums[t] = [_mm256_set1_epi32(-i32::from(offset(F)) * i32::from(sums_of[t][b])); 2];
            }
            let step = step(V, F, 4);
            for (g, codes) in codes.chunks_exact(step).enumerate() {
                add_all::<V, T>(&mut sums, short_sums::<V, F, T, _>(codes, a, 4 * g * step));
            }
            let d = floats(&panel.d[b]);
            for t in 0..T {
                for r in 0..2 {
                    p[t][r] = _mm256_fmadd_ps(d[r], _mm256_cvtepi32_ps(sums[t][r]), p[t][r]);
                }
            }
        }
        for t in 0..T {
            let scale = _mm256_set1_ps(x[t].scales[first / each + group]);
            for r in 0..2 {
                out[t][r] = _mm256_fmadd_ps(scale, p[t][r], out[t][r]);
            }
        }
    }
}

/// Begins or goes on with the products of a four of codes of each row with the `q`-th four of 32 activations.
#[inline]
#[target_feature(enable = "avx2")]
fn add_in_order<const T: usize>(
    codes: &Lanes<[u8; 4]>,
    a: [&[i8; 32]; T],
    q: usize,
    begins: bool,
    short: &mut [Integers; T],
) {
    let c = bytes(codes);
    for t in 0..T {
        let a = a[t].as_chunks::<4>().0[q].map(i8::cast_unsigned);
        short_in_order(&mut short[t], begins, c, _mm256_set1_epi32(i32::from_le_bytes(a)));
    }
}

/// Sums of a few fours of codes with the activations from `at` on.
#[inline]
#[target_feature(enable = "avx2")]
fn short_sums<const V: u8, const F: u8, const T: usize, const N: usize>(
    codes: &[Lanes<[u8; 4]>],
    a: [&[i8; N]; T],
    at: usize,
) -> [Integers; T] {
    let mut sums = [[_mm256_setzero_si256(); 2]; T];
    for (q, codes) in codes.iter().enumerate() {
        let c = bytes(codes);
        for t in 0..T {
            let a = &a[t][at + 4 * q..][..4];
            let a = _mm256_set1_epi32(i32::from_le_bytes([a[0] as u8, a[1] as u8, a[2] as u8, a[3] as u8]));
            for r in 0..2 {
                sums[t][r] = short::<V, F>(sums[t][r], c[r], a);
            }
        }
    }
    sums
}

/// Adds what [`short`] made for each token.
#[inline]
#[target_feature(enable = "avx2")]
fn add_all<const V: u8, const T: usize>(sums: &mut [Integers; T], short: [Integers; T]) {
    for t in 0..T {
        for r in 0..2 {
            sums[t][r] = add_short::<V>(sums[t][r], short[t][r]);
        }
    }
}

/// The same times the rows' scales.
#[inline]
#[target_feature(enable = "avx2")]
fn add_all_scaled<const V: u8, const T: usize>(
    sums: &mut [Integers; T],
    short: [Integers; T],
    scale: Integers,
) {
    for t in 0..T {
        for r in 0..2 {
            sums[t][r] = add_scaled::<V>(sums[t][r], short[t][r], scale[r]);
        }
    }
}

/// Two words as a doubleword.
pub(super) fn join(low: i16, high: i16) -> i32 {
    i32::from(low) & 0xffff | i32::from(high) << 16
}

#[inline]
#[target_feature(enable = "avx2")]
fn bytes(v: &Lanes<[u8; 4]>) -> [__m256i; 2] {
    let p: *const __m256i = v.0.as_ptr().cast();
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { [_mm256_load_si256(p), _mm256_load_si256(p.add(1))] }
}

#[inline]
#[target_feature(enable = "avx2")]
fn words(v: &Lanes<[i16; 2]>) -> [__m256i; 2] {
    let p: *const __m256i = v.0.as_ptr().cast();
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { [_mm256_load_si256(p), _mm256_load_si256(p.add(1))] }
}

#[inline]
#[target_feature(enable = "avx2")]
fn floats(v: &Lanes<f32>) -> [__m256; 2] {
    let p = v.0.as_ptr();
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { [_mm256_load_ps(p), _mm256_load_ps(p.add(8))] }
}
