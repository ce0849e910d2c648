//! A panel of thirty-two unpacked rows times a tile of up to six tokens: two registers, one value of each row.
//!
//! A load of codes serves all tokens, a broadcast of activations both registers, and twelve sums keep both multipliers
//! busy. What is done beside the products is kept to two instructions a part: one to convert, one to scale and add.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    panel::{Both, Panel, Scaling, bytes, exact, floats, integers, words},
    strip::{elements, parts},
};
use crate::{
    linear::Tile,
    simd::avx2::codes::{fine, has_min, super_block},
};
use std::{arch::x86_64::*, hint::black_box};

/// The loop of [`add_part`], spelt out: a compiler that schedules it across parts runs out of registers, and half of the time goes
/// to the sums it puts away and fetches.
macro_rules! add_part {
    ($way:ident, $sums:ident, $part:ident, $codes:ident, $acts:ident, $scale:ident, $quads:ident, $tokens:ident,
        $($t:literal $a:ident $b:ident $x:ident $y:ident),+) => {
        // Their type names the registers.
        let mut spent = [_mm512_setzero_si512(); 3];
        // SAFETY: what is read are the arrays behind the three references, of so many quads each and of two registers.
        unsafe {
            std::arch::asm!(
                ".rept {quads}",
                "vmovdqa64 {c0}, zmmword ptr [{codes}]",
                "vmovdqa64 {c1}, zmmword ptr [{codes} + 64]",
                $(
                    concat!("vpbroadcastd {q}, dword ptr [{acts} + 4 * ", $t, "]"),
                    concat!("vpdpbusd {", stringify!($a), "}, {q}, {c0}"),
                    concat!("vpdpbusd {", stringify!($b), "}, {q}, {c1}"),
                )+
                "add {codes}, 128",
                "add {acts}, {step}",
                ".endr",
                "vmovdqa64 {c0}, zmmword ptr [{scale}]",
                "vmovdqa64 {c1}, zmmword ptr [{scale} + 64]",
                $(
                    scale!($way, $a, c0),
                    scale!($way, $b, c1),
                    sum!($way, $x, $a, c0),
                    sum!($way, $y, $b, c1),
                )+
                quads = const $quads,
                step = const 4 * $tokens,
                codes = inout(reg) $codes.as_ptr() => _,
                acts = inout(reg) $acts.as_ptr() => _,
                scale = in(reg) $scale.as_ptr(),
                c0 = out(zmm_reg) spent[0],
                c1 = out(zmm_reg) spent[1],
                q = out(zmm_reg) spent[2],
                $(
                    $a = inout(zmm_reg) $part[$t][0] => _, $b = inout(zmm_reg) $part[$t][1] => _,
                    $x = inout(zmm_reg) $sums[$t][0], $y = inout(zmm_reg) $sums[$t][1],
                )+
                options(pure, readonly, nostack),
            );
        }
        let _ = spent;
    };
}

/// What is done with a part before it is added.
macro_rules! scale {
    (singles, $a:ident, $c:ident) => {
        concat!("vcvtdq2ps {", stringify!($a), "}, {", stringify!($a), "}")
    };
    (integers, $a:ident, $c:ident) => {
        concat!("vpmulld {", stringify!($a), "}, {", stringify!($a), "}, {", stringify!($c), "}")
    };
}

/// How it is added.
macro_rules! sum {
    (singles, $x:ident, $a:ident, $c:ident) => {
        concat!("vfmadd231ps {", stringify!($x), "}, {", stringify!($a), "}, {", stringify!($c), "}")
    };
    (integers, $x:ident, $a:ident, $c:ident) => {
        concat!("vpaddd {", stringify!($x), "}, {", stringify!($x), "}, {", stringify!($a), "}")
    };
}

/// A register for each half of the rows and each token.
type Sums<V, const T: usize> = [[V; 2]; T];

/// Adds the products of a panel with the activations of a tile of `T` tokens, of the same columns; `next` is looked at next. Blocks
/// of activations are of `block` elements.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn many<const F: u8, const T: usize>(
    panel: &Panel,
    [tile, next]: [&Tile; 2],
    block: usize,
    sums: &mut [Both<f32>; T],
) {
    if super_block(F) {
        superblocks::<F, T>(panel, [tile, next], sums);
    } else {
        match elements(F) {
            16 => blocks::<F, T, 4>(panel, [tile, next], block, sums),
            _ => blocks::<F, T, 8>(panel, [tile, next], block, sums),
        }
    }
}

/// Asks for what stands at a place of a list, from that place on so many bytes; little by little, as a core has room for no
/// more than some sixteen lines that it waits for.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn ask<V>(list: &[V], at: usize, bytes: usize) {
    let first = list.as_ptr().wrapping_add(at).cast::<i8>();
    for line in (0..bytes).step_by(64) {
        // SAFETY: a prefetch reads nothing and never faults, wherever it points.
        #[allow(unused_unsafe, reason = "older compilers have it as an unsafe function")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(line))
        };
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn superblocks<const F: u8, const T: usize>(
    panel: &Panel,
    [tile, next]: [&Tile; 2],
    out: &mut [Both<f32>; T],
) {
    let count = panel.d.len();
    let parts = parts(F);
    let acts = &tile.codes.as_chunks::<T>().0.as_chunks::<64>().0[..count];
    let codes = &panel.codes.as_chunks::<64>().0[..count];
    let scales = &tile.scales.as_chunks::<T>().0[..count];
    for b in 0..count {
        let (part_scales, starts) =
            (&panel.scales[b * parts..][..parts], &panel.starts[b * parts..][..parts]);
        if has_min(F) && fine(F) {
            ask(&next.sixteens, b * 8 * T, 32 * T);
        }
        if has_min(F) && !fine(F) {
            ask(&next.pairs, b * 4 * T, 16 * T);
        }
        ask(&next.scales, b * T, 4 * T);
        let (codes, acts, next) = (&codes[b], &acts[b], &next.codes);
        let total = match panel.scaling {
            Scaling::Singles if exact(F) > 0 => {
                scaled_parts::<F, T, true>(codes, part_scales, starts, acts, next, b * 64 * T)
            }
            _ => scaled_parts::<F, T, false>(codes, part_scales, starts, acts, next, b * 64 * T),
        };
        let mut low = [[_mm512_setzero_si512(); 2]; T];
        if has_min(F) {
            let pairs = parts / 2;
            let sums = if fine(F) { &tile.sixteens } else { &tile.pairs };
            let sums = &sums.as_chunks::<T>().0[b * pairs..][..pairs];
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

/// A superblock's parts, scaled and summed: in integers, or in single precision exact over [`exact`] of them and rounded once when the
/// last two such sums are added.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn scaled_parts<const F: u8, const T: usize, const SINGLES: bool>(
    codes: &[Both<[i8; 4]>; 64],
    scales: &[Both<i32>],
    starts: &[Both<i32>],
    acts: &[[[i8; 4]; T]; 64],
    next: &[[i8; 4]],
    at: usize,
) -> Sums<__m512, T> {
    let quads = 64 / parts(F);
    let each = if SINGLES { exact(F) } else { parts(F) };
    let mut total = [[_mm512_setzero_ps(); 2]; T];
    // A compiler that knows how many there are writes all of them out. Those ten kilobytes took a quarter longer on Zen 5 than
    // the loop, presumably for being decoded again and again.
    for (from, (scales, starts)) in black_box(scales).chunks(each).zip(starts.chunks(each)).enumerate() {
        let mut sums = [[_mm512_setzero_si512(); 2]; T];
        for (i, (scale, start)) in scales.iter().zip(starts).enumerate() {
            let i = from * each + i;
            ask(next, at + i * quads * T, 4 * quads * T);
            let (codes, acts) = (&codes[i * quads..], &acts[i * quads..]);
            if fine(F) {
                add_part::<T, 4, SINGLES, _>(&mut sums, start, codes, acts, scale);
            } else {
                add_part::<T, 8, SINGLES, _>(&mut sums, start, codes, acts, scale);
            }
        }
        for t in 0..T {
            for h in 0..2 {
                total[t][h] = if SINGLES {
                    _mm512_add_ps(total[t][h], _mm512_castsi512_ps(sums[t][h]))
                } else {
                    _mm512_cvtepi32_ps(sums[t][h])
                };
            }
        }
    }
    total
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn blocks<const F: u8, const T: usize, const QUADS: usize>(
    panel: &Panel,
    [tile, next]: [&Tile; 2],
    block: usize,
    out: &mut [Both<f32>; T],
) {
    let each = (block / (4 * QUADS)).max(1);
    let count = panel.d.len();
    let acts = &tile.codes.as_chunks::<T>().0.as_chunks::<QUADS>().0[..count];
    let totals = tile.totals.as_chunks::<T>().0;
    // Blocks of 16 have no minima, and there are half as many sums.
    let totals = if has_min(F) { &totals[..count] } else { totals };
    let codes = &panel.codes.as_chunks::<QUADS>().0[..count];
    for group in 0..count / each {
        let mut p = [[_mm512_setzero_si512(); 2]; T];
        for b in group * each..(group + 1) * each {
            ask(&next.codes, b * QUADS * T, 4 * QUADS * T);
            if has_min(F) {
                ask(&next.totals, b * T, 4 * T);
            }
            add_part::<T, QUADS, true, _>(&mut p, &panel.starts[b], &codes[b], &acts[b], &panel.d[b]);
            if has_min(F) {
                for t in 0..T {
                    let total = _mm512_set1_ps(totals[b][t]);
                    for h in 0..2 {
                        let sum = _mm512_castsi512_ps(p[t][h]);
                        p[t][h] = _mm512_castps_si512(_mm512_fmadd_ps(floats(&panel.m[b][h]), total, sum));
                    }
                }
            }
        }
        let scales = &tile.scales.as_chunks::<T>().0[group];
        for t in 0..T {
            let scale = _mm512_set1_ps(scales[t]);
            for h in 0..2 {
                add(&mut out[t][h].0, scale, _mm512_castsi512_ps(p[t][h]));
            }
        }
    }
}

/// Adds one part to the sums, scaled: the products of codes and activations, `QUADS` times four neighbours, beginning at
/// `start`. Factors and sums are in single precision or else integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn add_part<const T: usize, const QUADS: usize, const SINGLES: bool, S>(
    sums: &mut Sums<__m512i, T>,
    start: &Both<i32>,
    codes: &[Both<[i8; 4]>],
    acts: &[[[i8; 4]; T]],
    scale: &Both<S>,
) {
    const { assert!(size_of::<Both<S>>() == 128) };
    let (codes, acts) = (&codes[..QUADS], &acts[..QUADS]);
    let mut part = [start.each_ref().map(|half| integers(half)); T];
    if T == 6
        && let (Some(sums), Some(part)) = (sums.first_chunk_mut::<6>(), part.first_chunk::<6>())
    {
        if SINGLES {
            add_part!(singles, sums, part, codes, acts, scale, QUADS, T, 0 a0 b0 x0 y0, 1 a1 b1 x1 y1, 2 a2 b2 x2 y2, 3 a3 b3 x3 y3, 4 a4 b4 x4 y4, 5 a5 b5 x5 y5);
        } else {
            add_part!(integers, sums, part, codes, acts, scale, QUADS, T, 0 a0 b0 x0 y0, 1 a1 b1 x1 y1, 2 a2 b2 x2 y2, 3 a3 b3 x3 y3, 4 a4 b4 x4 y4, 5 a5 b5 x5 y5);
        }
        return;
    }
    if T == 5
        && let (Some(sums), Some(part)) = (sums.first_chunk_mut::<5>(), part.first_chunk::<5>())
    {
        if SINGLES {
            add_part!(singles, sums, part, codes, acts, scale, QUADS, T, 0 a0 b0 x0 y0, 1 a1 b1 x1 y1, 2 a2 b2 x2 y2, 3 a3 b3 x3 y3, 4 a4 b4 x4 y4);
        } else {
            add_part!(integers, sums, part, codes, acts, scale, QUADS, T, 0 a0 b0 x0 y0, 1 a1 b1 x1 y1, 2 a2 b2 x2 y2, 3 a3 b3 x3 y3, 4 a4 b4 x4 y4);
        }
        return;
    }
    for (codes, acts) in codes.iter().zip(acts) {
        let c = [bytes(&codes[0]), bytes(&codes[1])];
        for t in 0..T {
            let a = four(acts[t]);
            for h in 0..2 {
                part[t][h] = _mm512_dpbusd_epi32(part[t][h], a, c[h]);
            }
        }
    }
    for h in 0..2 {
        // SAFETY: the array has 64 bytes, as stands above, and starts at a multiple of 64.
        let scale = unsafe { _mm512_load_si512(scale[h].0.as_ptr().cast()) };
        for t in 0..T {
            sums[t][h] = if SINGLES {
                let part = _mm512_cvtepi32_ps(part[t][h]);
                let sum = _mm512_fmadd_ps(part, _mm512_castsi512_ps(scale), _mm512_castsi512_ps(sums[t][h]));
                _mm512_castps_si512(sum)
            } else {
                _mm512_add_epi32(sums[t][h], _mm512_mullo_epi32(part[t][h], scale))
            };
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        linear::{STRIP, some_rows},
        simd::avx2::{
            codes::{Q2_K, Q3_K, Q4_K},
            panel::Lanes,
        },
    };

    /// What a panel makes with each way of scaling, of two strips with these bytes.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn both_ways<const F: u8, const N: usize>(byte: impl Fn(usize) -> u8, tile: &Tile) {
        let strip: Vec<u8> = (0..2 * N * STRIP).map(byte).collect();
        let sums = [Scaling::Integers, Scaling::Singles].map(|scaling| {
            let (mut panel, mut sums) = (Panel::default(), [const { [Lanes([0.0; STRIP]); 2] }; 6]);
            panel.unpack_for::<F, N>(scaling, [&strip, &strip]);
            assert!(panel.scaling == scaling && exact(F) > 0);
            many::<F, 6>(&panel, [tile, tile], 256, &mut sums);
            sums.map(|both| both.map(|lanes| lanes.0.map(f32::to_bits)))
        });
        assert!(sums[0] == sums[1] && sums[0][0][0].iter().any(|bits| f32::from_bits(*bits).is_normal()));
    }

    #[test]
    fn both_ways_of_scaling_give_the_same_bits() {
        if !is_x86_feature_detected!("avx512vnni") {
            return;
        }
        let mut tile = Tile::default();
        tile.fill(&some_rows(6, 512), 512, 0..512, true);
        let mut most = tile.clone();
        most.codes.fill([-1; 4]);
        for tile in [tile, most] {
            let mixed = |i: usize| (((i * 7919) >> 3) as u8 & 0x3f) | 0x10;
            // SAFETY: who has VNNI at this width has the others.
            unsafe {
                both_ways::<Q2_K, 84>(mixed, &tile);
                both_ways::<Q3_K, 110>(mixed, &tile);
                both_ways::<Q4_K, 144>(mixed, &tile);
                // The largest codes and scales there are, and numbers that are neither infinite nor NaN.
                both_ways::<Q2_K, 84>(|_| 0x7b, &tile);
                both_ways::<Q4_K, 144>(
                    |i| if i < 16 * STRIP || i % (144 * STRIP) < 16 * STRIP { 0x7b } else { 0xff },
                    &tile,
                );
            }
        }
    }
}
