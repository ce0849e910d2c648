//! A panel of thirty-two unpacked rows times a tile of up to six tokens: two registers, one value of each row.
//!
//! A load of codes serves all tokens, a broadcast of activations both registers, and twelve sums keep both multipliers
//! busy. What is done beside the products is kept to two instructions a part: one to convert, one to scale and add.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    panel::{Both, Panel, Scaling, bytes, floats, integers, scaling, words},
    strip::{parts, raise},
};
use crate::{
    linear::Tile,
    simd::avx2::codes::{fine, has_min, super_block},
};
use std::arch::x86_64::*;

/// The loop of [`part`], spelt out: a compiler that schedules it across parts runs out of registers, and half of the time goes to
/// the sums it puts away and fetches.
macro_rules! products {
    ($sums:ident, $codes:ident, $acts:ident, $quads:ident, $tokens:ident, $($t:literal $a:ident $b:ident),+) => {
        // Their type names the registers.
        let mut spent = [_mm512_setzero_si512(); 3];
        // SAFETY: what is read are the arrays behind the two references, of so many quads each.
        unsafe {
            std::arch::asm!(
                ".rept {quads}",
                "vmovdqa64 {c0}, zmmword ptr [{codes}]",
                "vmovdqa64 {c1}, zmmword ptr [{codes} + 64]",
                $(
                    concat!("vpbroadcastd {x}, dword ptr [{acts} + 4 * ", $t, "]"),
                    concat!("vpdpbusd {", stringify!($a), "}, {c0}, {x}"),
                    concat!("vpdpbusd {", stringify!($b), "}, {c1}, {x}"),
                )+
                "add {codes}, 128",
                "add {acts}, {step}",
                ".endr",
                quads = const $quads,
                step = const 4 * $tokens,
                codes = inout(reg) $codes.as_ptr() => _,
                acts = inout(reg) $acts.as_ptr() => _,
                c0 = out(zmm_reg) spent[0],
                c1 = out(zmm_reg) spent[1],
                x = out(zmm_reg) spent[2],
                $($a = inout(zmm_reg) $sums[$t][0], $b = inout(zmm_reg) $sums[$t][1],)+
                options(pure, readonly, nostack),
            );
        }
        let _ = spent;
    };
}

/// A register for each half of the rows and each token.
type Sums<V, const T: usize> = [[V; 2]; T];

/// Adds the products of a panel with the activations of a tile of `T` tokens from element `from` on. Blocks of activations are
/// of `block` elements.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn many<const F: u8, const T: usize>(
    panel: &Panel,
    tile: &Tile,
    block: usize,
    from: usize,
    sums: &mut [Both<f32>; T],
) {
    if super_block(F) {
        superblocks::<F, T>(panel, tile, from, sums);
    } else {
        blocks::<F, T>(panel, tile, block, from, sums);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn superblocks<const F: u8, const T: usize>(
    panel: &Panel,
    tile: &Tile,
    from: usize,
    out: &mut [Both<f32>; T],
) {
    let first = from / 256;
    let count = panel.d.len();
    let parts = parts(F);
    let acts = &tile.codes.as_chunks::<T>().0.as_chunks::<64>().0[first..][..count];
    let sixteens = &tile.sixteens.as_chunks::<T>().0.as_chunks::<8>().0[first..][..count];
    let codes = &panel.codes.as_chunks::<64>().0[..count];
    let scales = &tile.scales.as_chunks::<T>().0[first..][..count];
    for b in 0..count {
        let part_scales = &panel.scales[b * parts..][..parts];
        let total = match scaling(F) {
            Scaling::Singles(each) => singles::<F, T>(&codes[b], part_scales, &acts[b], &sixteens[b], each),
            Scaling::Integers => whole::<F, T>(&codes[b], part_scales, &acts[b], &sixteens[b]),
        };
        let mut low = [[_mm512_setzero_si512(); 2]; T];
        if has_min(F) {
            let pairs = parts / 2;
            let sums = if fine(F) { &tile.sixteens } else { &tile.pairs };
            let sums = &sums.as_chunks::<T>().0[(first + b) * pairs..][..pairs];
            for (min, sums) in panel.mins[b * pairs..][..pairs].iter().zip(sums) {
                let min = [words(&min[0]), words(&min[1])];
                for t in 0..T {
                    let s = two(sums[t]);
                    for h in 0..2 {
                        low[t][h] = _mm512_dpwssd_epi32(low[t][h], min[h], s);
                    }
                }
            }
        }
        for t in 0..T {
            let scale = _mm512_set1_ps(scales[b][t]);
            for h in 0..2 {
                let mut p = _mm512_mul_ps(floats(&panel.d[b][h]), total[t][h]);
                if has_min(F) {
                    p = _mm512_fmadd_ps(floats(&panel.m[b][h]), _mm512_cvtepi32_ps(low[t][h]), p);
                }
                add(&mut out[t][h].0, scale, p);
            }
        }
    }
}

/// A superblock's parts, scaled and summed in single precision: exact over `each` of them, and rounded once when the last two
/// such sums are added.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn singles<const F: u8, const T: usize>(
    codes: &[Both<[u8; 4]>; 64],
    scales: &[Both<i32>],
    acts: &[[[i8; 4]; T]; 64],
    sixteens: &[[[i16; 2]; T]; 8],
    each: usize,
) -> Sums<__m512, T> {
    let quads = 64 / parts(F);
    let mut total = [[_mm512_setzero_ps(); 2]; T];
    for from in (0..parts(F)).step_by(each) {
        let mut sums = [[_mm512_setzero_ps(); 2]; T];
        for i in from..from + each {
            let starts = starts::<F, T>(&sixteens[sums_at::<F>(i)], i);
            let part = if fine(F) {
                part::<T, 4>(starts, &codes[i * quads..], &acts[i * quads..])
            } else {
                part::<T, 8>(starts, &codes[i * quads..], &acts[i * quads..])
            };
            let scale = [integers(&scales[i][0]), integers(&scales[i][1])];
            for t in 0..T {
                for h in 0..2 {
                    let scale = _mm512_castsi512_ps(scale[h]);
                    sums[t][h] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(part[t][h]), scale, sums[t][h]);
                }
            }
        }
        for t in 0..T {
            for h in 0..2 {
                total[t][h] = _mm512_add_ps(total[t][h], sums[t][h]);
            }
        }
    }
    total
}

/// The same in integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn whole<const F: u8, const T: usize>(
    codes: &[Both<[u8; 4]>; 64],
    scales: &[Both<i32>],
    acts: &[[[i8; 4]; T]; 64],
    sixteens: &[[[i16; 2]; T]; 8],
) -> Sums<__m512, T> {
    let quads = 64 / parts(F);
    let mut sums = [[_mm512_setzero_si512(); 2]; T];
    for (i, scale) in scales.iter().enumerate() {
        let starts = starts::<F, T>(&sixteens[sums_at::<F>(i)], i);
        let part = if fine(F) {
            part::<T, 4>(starts, &codes[i * quads..], &acts[i * quads..])
        } else {
            part::<T, 8>(starts, &codes[i * quads..], &acts[i * quads..])
        };
        let scale = [integers(&scale[0]), integers(&scale[1])];
        for t in 0..T {
            for h in 0..2 {
                sums[t][h] = _mm512_add_epi32(sums[t][h], _mm512_mullo_epi32(part[t][h], scale[h]));
            }
        }
    }
    let mut total = [[_mm512_setzero_ps(); 2]; T];
    for t in 0..T {
        for h in 0..2 {
            total[t][h] = _mm512_cvtepi32_ps(sums[t][h]);
        }
    }
    total
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn blocks<const F: u8, const T: usize>(
    panel: &Panel,
    tile: &Tile,
    block: usize,
    from: usize,
    out: &mut [Both<f32>; T],
) {
    let (first, each) = (from / 32, (block / 32).max(1));
    let count = panel.d.len();
    let acts = &tile.codes.as_chunks::<T>().0.as_chunks::<8>().0[first..][..count];
    let sixteens = &tile.sixteens.as_chunks::<T>().0[first..][..count];
    let totals = &tile.totals.as_chunks::<T>().0[first..][..count];
    let codes = &panel.codes.as_chunks::<8>().0[..count];
    for group in 0..count / each {
        let mut p = [[_mm512_setzero_ps(); 2]; T];
        for b in group * each..(group + 1) * each {
            let part = part::<T, 8>(starts::<F, T>(&sixteens[b], 0), &codes[b], &acts[b]);
            let d = [floats(&panel.d[b][0]), floats(&panel.d[b][1])];
            for t in 0..T {
                for h in 0..2 {
                    p[t][h] = _mm512_fmadd_ps(d[h], _mm512_cvtepi32_ps(part[t][h]), p[t][h]);
                    if has_min(F) {
                        let total = _mm512_set1_ps(totals[b][t]);
                        p[t][h] = _mm512_fmadd_ps(floats(&panel.m[b][h]), total, p[t][h]);
                    }
                }
            }
        }
        let scales = &tile.scales.as_chunks::<T>().0[first / each + group];
        for t in 0..T {
            let scale = _mm512_set1_ps(scales[t]);
            for h in 0..2 {
                add(&mut out[t][h].0, scale, p[t][h]);
            }
        }
    }
}

/// Adds products of codes and activations, `QUADS` times four neighbours.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn part<const T: usize, const QUADS: usize>(
    mut sums: Sums<__m512i, T>,
    codes: &[Both<[u8; 4]>],
    acts: &[[[i8; 4]; T]],
) -> Sums<__m512i, T> {
    let (codes, acts) = (&codes[..QUADS], &acts[..QUADS]);
    if let Some(sums) = sums.first_chunk_mut::<6>().filter(|_| T == 6) {
        products!(sums, codes, acts, QUADS, T, 0 a0 b0, 1 a1 b1, 2 a2 b2, 3 a3 b3, 4 a4 b4, 5 a5 b5);
    } else if let Some(sums) = sums.first_chunk_mut::<5>().filter(|_| T == 5) {
        products!(sums, codes, acts, QUADS, T, 0 a0 b0, 1 a1 b1, 2 a2 b2, 3 a3 b3, 4 a4 b4);
    } else {
        for (codes, acts) in codes.iter().zip(acts) {
            let c = [bytes(&codes[0]), bytes(&codes[1])];
            for t in 0..T {
                let a = four(acts[t]);
                for h in 0..2 {
                    sums[t][h] = _mm512_dpbusd_epi32(sums[t][h], c[h], a);
                }
            }
        }
    }
    sums
}

/// What the sums of part `p` start from: what raised codes add, taken off. `sums` are of the activations it is for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn start<const F: u8>(sums: [i16; 2], p: usize) -> __m512i {
    let off = i32::from(-raise(F));
    // A part of 32 takes both sums; of two parts of 16 each takes its own.
    let first = if fine(F) && p % 2 == 1 { 0 } else { off & 0xffff };
    let second = if fine(F) && p.is_multiple_of(2) { 0 } else { off << 16 };
    _mm512_madd_epi16(two(sums), _mm512_set1_epi32(first | second))
}

/// The same for both registers of rows and each token.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn starts<const F: u8, const T: usize>(sums: &[[i16; 2]; T], p: usize) -> Sums<__m512i, T> {
    let mut starts = [[_mm512_setzero_si512(); 2]; T];
    if raise(F) != 0 {
        for t in 0..T {
            starts[t] = [start::<F>(sums[t], p); 2];
        }
    }
    starts
}

/// Where the sums of part `p` stand among those of two times 16 elements.
pub(super) const fn sums_at<const F: u8>(p: usize) -> usize {
    if fine(F) { p / 2 } else { p }
}

/// Four neighbouring codes, for every row.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn four(a: [i8; 4]) -> __m512i {
    _mm512_set1_epi32(i32::from_le_bytes(a.map(i8::cast_unsigned)))
}

/// Two neighbouring sums, for every row.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn two(s: [i16; 2]) -> __m512i {
    let [a, b] = [s[0].to_le_bytes(), s[1].to_le_bytes()];
    _mm512_set1_epi32(i32::from_le_bytes([a[0], a[1], b[0], b[1]]))
}

/// `to += a * b`, rounded once.
#[inline]
#[target_feature(enable = "avx512f")]
fn add(to: &mut [f32; 16], a: __m512, b: __m512) {
    // SAFETY: 64 bytes are read from and written to an array of 64.
    unsafe {
        let sum = _mm512_fmadd_ps(a, b, _mm512_loadu_ps(to.as_ptr()));
        _mm512_storeu_ps(to.as_mut_ptr(), sum);
    }
}
