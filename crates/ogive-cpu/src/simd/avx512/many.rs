//! A panel of sixteen unpacked rows times up to eight tokens: one register, one value of each row.
#![allow(unsafe_code)]

use crate::{
    linear::Quantised,
    simd::avx2::{
        codes::{has_min, super_block},
        panel::{Lanes, Panel, raised, subs},
    },
};
use std::arch::x86_64::*;

/// Adds the products of a panel with the activations from element `from` on.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn many<const F: u8, const T: usize>(
    panel: &Panel,
    x: &[Quantised; T],
    from: usize,
    sums: &mut [Lanes<f32>; T],
) {
    let mut out = [_mm512_setzero_ps(); T];
    for t in 0..T {
        out[t] = floats(&sums[t]);
    }
    if super_block(F) {
        superblocks::<F, T>(panel, x, from, &mut out);
    } else {
        blocks::<F, T>(panel, x, from, &mut out);
    }
    for t in 0..T {
        // SAFETY: the array has 64 bytes and starts at a multiple of 64.
        unsafe { _mm512_store_ps(sums[t].0.as_mut_ptr(), out[t]) };
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn superblocks<const F: u8, const T: usize>(
    panel: &Panel,
    x: &[Quantised; T],
    from: usize,
    out: &mut [__m512; T],
) {
    let first = from / 256;
    let quads = 64 / subs(F);
    let blocks = panel.codes.as_chunks::<64>().0.iter().zip(panel.scales.chunks_exact(subs(F)));
    let blocks = blocks.zip(panel.mins.as_chunks::<8>().0);
    for (b, ((codes, scales), mins)) in blocks.enumerate() {
        let (mut a, mut s) = ([&[0; 256]; T], [&[0; 16]; T]);
        for t in 0..T {
            a[t] = &x[t].codes.as_chunks().0[first + b];
            s[t] = &x[t].sums.as_chunks().0[first + b];
        }
        let mut low = [_mm512_setzero_si512(); T];
        if raised(F, true) != 0 || has_min(F) {
            for (i, min) in mins.iter().enumerate() {
                let min = words(min);
                for t in 0..T {
                    low[t] = _mm512_dpwssd_epi32(low[t], min, two(s[t], 2 * i));
                }
            }
        }
        let mut sums = if raised(F, true) != 0 { low } else { [_mm512_setzero_si512(); T] };
        for (i, (codes, scale)) in codes.chunks_exact(quads).zip(scales).enumerate() {
            let scale = _mm512_srai_epi32::<16>(words(scale));
            let mut part = [_mm512_setzero_si512(); T];
            for (q, codes) in codes.iter().enumerate() {
                let c = bytes(codes);
                for t in 0..T {
                    part[t] = _mm512_dpbusd_epi32(part[t], c, four(a[t], 4 * (i * quads + q)));
                }
            }
            for t in 0..T {
                sums[t] = _mm512_add_epi32(sums[t], _mm512_mullo_epi32(part[t], scale));
            }
        }
        let d = floats(&panel.d[b]);
        for t in 0..T {
            let mut p = _mm512_mul_ps(d, _mm512_cvtepi32_ps(sums[t]));
            if has_min(F) {
                p = _mm512_fmadd_ps(floats(&panel.m[b]), _mm512_cvtepi32_ps(low[t]), p);
            }
            out[t] = _mm512_fmadd_ps(_mm512_set1_ps(x[t].scales[first + b]), p, out[t]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn blocks<const F: u8, const T: usize>(
    panel: &Panel,
    x: &[Quantised; T],
    from: usize,
    out: &mut [__m512; T],
) {
    let first = from / 32;
    let each = (x[0].codes.len() / 32 / x[0].scales.len().max(1)).max(1);
    let ones = _mm512_set1_epi16(1);
    let offset = _mm512_set1_epi16(-raised(F, true));
    let zero = _mm512_setzero_si512();
    for (group, codes) in panel.codes.as_chunks::<8>().0.chunks(each).enumerate() {
        let mut p = [_mm512_setzero_ps(); T];
        for (i, codes) in codes.iter().enumerate() {
            let b = group * each + i;
            let (mut a, mut s) = ([&[0; 32]; T], [&[0; 2]; T]);
            for t in 0..T {
                a[t] = &x[t].codes.as_chunks().0[first + b];
                s[t] = &x[t].sums.as_chunks().0[first + b];
            }
            let mut sums = [zero; T];
            if raised(F, true) != 0 {
                for t in 0..T {
                    sums[t] = _mm512_madd_epi16(offset, two(s[t], 0));
                }
            }
            for (q, codes) in codes.iter().enumerate() {
                let c = bytes(codes);
                for t in 0..T {
                    sums[t] = _mm512_dpbusd_epi32(sums[t], c, four(a[t], 4 * q));
                }
            }
            let d = floats(&panel.d[b]);
            for t in 0..T {
                p[t] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sums[t]), p[t]);
                if has_min(F) {
                    let total = _mm512_cvtepi32_ps(_mm512_madd_epi16(ones, two(s[t], 0)));
                    p[t] = _mm512_fmadd_ps(floats(&panel.m[b]), total, p[t]);
                }
            }
        }
        for t in 0..T {
            let scale = _mm512_set1_ps(x[t].scales[first / each + group]);
            out[t] = _mm512_fmadd_ps(scale, p[t], out[t]);
        }
    }
}

/// Four neighbouring activations, for every row.
#[inline]
#[target_feature(enable = "avx512f")]
fn four<const N: usize>(a: &[i8; N], at: usize) -> __m512i {
    let b = [a[at] as u8, a[at + 1] as u8, a[at + 2] as u8, a[at + 3] as u8];
    _mm512_set1_epi32(i32::from_le_bytes(b))
}

/// Two neighbouring sums, for every row.
#[inline]
#[target_feature(enable = "avx512f")]
fn two<const N: usize>(s: &[i16; N], at: usize) -> __m512i {
    _mm512_set1_epi32(i32::from(s[at]) & 0xffff | i32::from(s[at + 1]) << 16)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn bytes(v: &Lanes<[u8; 4]>) -> __m512i {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_si512(v.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn words(v: &Lanes<[i16; 2]>) -> __m512i {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_si512(v.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn floats(v: &Lanes<f32>) -> __m512 {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe { _mm512_load_ps(v.0.as_ptr()) }
}
