//! A panel times sixteen tokens: products in tiles, then what is done to their sums in registers with a lane for each row.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    panel::{HalfTile, Panel, STRIPS, Way, planes, way},
    tile::{Sums, Tiles},
};
use crate::{
    linear::{Group, Tokens},
    simd::{
        avx2::{
            codes::{self, fine, has_min},
            panel::Lanes,
        },
        avx512::{
            many::two,
            panel::{floats, integers, words},
            strip::{parts, raise},
        },
    },
};
use std::arch::x86_64::*;

/// The sums of sixteen tokens with each strip.
pub(super) type Out = [[Lanes<f32>; 16]; STRIPS];

/// Where tiles are written to be read as rows: the planes of a unit, or a block.
pub(super) struct Written([Sums; 3]);

impl Default for Written {
    fn default() -> Self {
        Self([Sums([[0; 16]; 16]); 3])
    }
}

/// What superblock `b` gives for all groups: `sums` has one for each, which the first superblock begins.
///
/// A unit is one strip and one group. Units take turns with two sets of tiles: while the products of one are summed, what the last
/// one summed is written, and what the one before that wrote is scaled and added, a quarter after each quarter of the products. So
/// the processor, which looks some hundred instructions ahead, always sees products to begin.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn superblock<const F: u8>(
    tiles: &Tiles,
    panel: &Panel,
    groups: &[Group],
    b: usize,
    sums: &mut [Out],
    written: &mut [Written; STRIPS],
) {
    let strips = panel.strips;
    let total = groups.len() * strips;
    let (mut now, mut before) = ((0, 0), (0, 0));
    let mut i = 0;
    macro_rules! step {
        ($set:literal, $other:literal) => {
            if i < total {
                for quarter in 0..4 {
                    products::<F, $set>(tiles, panel, &groups[now.0], now.1, b, quarter);
                }
            }
            if (1..=total).contains(&i) {
                let (g, strip) = before;
                write::<F, $other>(tiles, &mut written[$other]);
                scale::<F>(panel, &groups[g], strip, b, &mut sums[g][strip], &written[$other]);
            }
            before = now;
            now = if now.1 + 1 < strips { (now.0, now.1 + 1) } else { (now.0 + 1, 0) };
            i += 1;
        };
    }
    while i <= total {
        step!(0, 1);
        step!(1, 0);
    }
}

/// Sums a quarter of a unit's products, in a tile for each plane.
#[inline(always)]
fn products<const F: u8, const SET: usize>(
    tiles: &Tiles,
    panel: &Panel,
    group: &Group,
    strip: usize,
    b: usize,
    quarter: usize,
) {
    let planes_of_it = &panel.planes[(strip * 4 + quarter) * planes(F)..][..planes(F)];
    macro_rules! sum {
        ($multiply:ident, $($c:literal $plane:literal),+) => {{
            if quarter == 0 {
                $(tiles.zero::<$c>();)+
            }
            // SAFETY: a whole tile A is read, and of each plane a whole tile B.
            unsafe {
                tiles.load::<6, 64>(group.codes[4 * b + quarter].0.as_ptr().cast());
                $(
                    tiles.load::<7, 64>(planes_of_it[$plane].as_ptr().cast());
                    tiles.$multiply::<$c, 6, 7>();
                )+
            }
        }};
    }
    match (planes(F), raise(F) != 0, SET) {
        (1, true, 0) => sum!(signed, 0 0),
        (1, true, _) => sum!(signed, 2 0),
        (1, false, 0) => sum!(unsigned, 0 0),
        (1, false, _) => sum!(unsigned, 2 0),
        (2, _, 0) => sum!(unsigned, 0 0, 1 1),
        (2, _, _) => sum!(unsigned, 2 0, 3 1),
        (_, _, 0) => sum!(signed, 0 0, 1 1, 4 2),
        _ => sum!(signed, 2 0, 3 1, 5 2),
    }
}

/// Writes what [`products`] has summed.
#[inline(always)]
fn write<const F: u8, const SET: usize>(tiles: &Tiles, to: &mut Written) {
    let Written([a, b, c]) = to;
    macro_rules! write {
        ($a:literal, $b:literal, $c:literal) => {{
            tiles.store::<$a>(a);
            if planes(F) > 1 {
                tiles.store::<$b>(b);
            }
            if planes(F) > 2 {
                tiles.store::<$c>(c);
            }
        }};
    }
    if SET == 0 { write!(0, 1, 4) } else { write!(2, 3, 5) }
}

/// Puts a unit's planes together and adds them, scaled, to its sums: a quarter of the tokens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn scale<const F: u8>(
    panel: &Panel,
    group: &Group,
    strip: usize,
    b: usize,
    out: &mut [Lanes<f32>; 16],
    Written(planes): &Written,
) {
    let scales = &group.scales[b].0;
    let d = floats(&panel.d[strip]);
    let m = if has_min(F) { floats(&panel.m[strip]) } else { d };
    let pairs = if has_min(F) { parts(F) / 2 } else { 0 };
    let mins = &panel.mins[strip * pairs..][..pairs];
    let sums = if fine(F) { &group.sixteens } else { &group.pairs };
    let sums = &sums[b * pairs..][..pairs];
    for t in 0..16 {
        let sum = |n: usize| row(&planes[n].0[t]);
        let sum = match way(F) {
            Way::Planes(1, -1) => _mm512_sub_epi32(_mm512_setzero_si512(), sum(0)),
            Way::Planes(2, 16) => _mm512_add_epi32(_mm512_slli_epi32::<4>(sum(0)), sum(1)),
            Way::Planes(2, _) => _mm512_add_epi32(_mm512_slli_epi32::<3>(sum(0)), sum(1)),
            Way::Planes(3, _) => {
                let seven = |v: __m512i| _mm512_sub_epi32(_mm512_slli_epi32::<3>(v), v);
                _mm512_add_epi32(seven(_mm512_add_epi32(seven(sum(0)), sum(1))), sum(2))
            }
            _ => sum(0),
        };
        let mut p = _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum));
        if has_min(F) {
            let mut low = _mm512_setzero_si512();
            for i in 0..pairs {
                low = _mm512_dpwssd_epi32(low, words(&mins[i]), two(sums[i].0[t]));
            }
            p = _mm512_fmadd_ps(m, _mm512_cvtepi32_ps(low), p);
        }
        add(&mut out[t], _mm512_set1_ps(scales[t]), p, b == 0);
    }
}

/// What the panel's blocks of 32 give for all groups, from element `from` on. Blocks of activations are of `block` elements.
///
/// Four tiles take turns: one sums products, one is written, one that was written is scaled and added.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn blocks<const F: u8>(
    tiles: &Tiles,
    panel: &Panel,
    groups: &[Group],
    block: usize,
    from: usize,
    sums: &mut [Out],
    written: &mut [Written; STRIPS],
) {
    let each = if codes::super_block(F) { 8 } else { block / 32 };
    let (strips, count) = (panel.strips, panel.blocks.len() / panel.strips);
    let (first, total) = (from / 32, groups.len() * panel.blocks.len());
    let mut p = [_mm512_setzero_ps(); 16];
    // Group, strip and block that are multiplied next, and those that are scaled next.
    let (mut next, mut last) = ((0, 0, 0), (0, 0, 0));
    let after = |(g, strip, b)| {
        if b + 1 < count {
            (g, strip, b + 1)
        } else if strip + 1 < strips {
            (g, strip + 1, 0)
        } else {
            (g + 1, 0, 0)
        }
    };
    let mut i = 0;
    macro_rules! step {
        ($c:literal, $a:literal, $b:literal, $write:literal, $read:literal) => {
            if (3..total + 3).contains(&i) {
                tiles.store::<$write>(&mut written[$write].0[0]);
            }
            if i < total {
                let (g, strip, b) = next;
                next = after(next);
                product::<$c, $a, $b>(tiles, &groups[g], first + b, &panel.blocks[strip * count + b]);
            }
            if (5..total + 5).contains(&i) {
                let (g, strip, b) = last;
                last = after(last);
                one::<F>(panel, &groups[g], first + b, strip * count + b, &written[$read].0[0], &mut p);
                if b % each == each - 1 {
                    let scales = &groups[g].scales[(first + b) / each].0;
                    for t in 0..16 {
                        if codes::super_block(F) {
                            let sum = _mm512_cvtepi32_ps(_mm512_castps_si512(p[t]));
                            p[t] = _mm512_mul_ps(floats(&panel.d[strip]), sum);
                        }
                        add(&mut sums[g][strip][t], _mm512_set1_ps(scales[t]), p[t], first + b < each);
                        p[t] = _mm512_setzero_ps();
                    }
                }
            }
            i += 1;
        };
    }
    while i < total + 5 {
        step!(0, 4, 6, 1, 3);
        step!(1, 5, 7, 2, 0);
        step!(2, 4, 6, 3, 1);
        step!(3, 5, 7, 0, 2);
    }
}

/// A block's products with one strip, to tile `C`.
#[inline(always)]
fn product<const C: u8, const A: u8, const B: u8>(tiles: &Tiles, group: &Group, at: usize, b: &HalfTile) {
    let Tokens(codes) = &group.codes[at / 2];
    let a = &codes.as_flattened()[at % 2 * 32..];
    tiles.zero::<C>();
    // SAFETY: sixteen rows of 32 bytes that begin 64 apart, and eight of 64, are read.
    unsafe {
        tiles.load::<A, 64>(a.as_ptr().cast());
        tiles.load::<B, 64>(b.as_ptr().cast());
    }
    tiles.signed::<C, A, B>();
}

/// Adds the sums of a block, scaled, to `p`: single precision, or integers where it is a part of a superblock. `at` is its place in
/// the activations, `b` in the panel.
#[inline(always)]
fn one<const F: u8>(panel: &Panel, group: &Group, at: usize, b: usize, sums: &Sums, p: &mut [__m512; 16]) {
    // SAFETY: only kernels with these instructions call this.
    unsafe {
        if codes::super_block(F) {
            let scale = integers(&panel.scales[b]);
            for t in 0..16 {
                let part = _mm512_mullo_epi32(row(&sums.0[t]), scale);
                p[t] = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p[t]), part));
            }
            return;
        }
        let d = floats(&panel.d[b]);
        for t in 0..16 {
            p[t] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(row(&sums.0[t])), p[t]);
        }
        if has_min(F) {
            let (m, totals) = (floats(&panel.m[b]), &group.totals[at].0);
            for t in 0..16 {
                p[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(totals[t]), p[t]);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn row(v: &[i32; 16]) -> __m512i {
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_loadu_si512(v.as_ptr().cast()) }
}

/// `to += a * b`, rounded once; the `first` begins with zero.
#[inline]
#[target_feature(enable = "avx512f")]
fn add(to: &mut Lanes<f32>, a: __m512, b: __m512, first: bool) {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe {
        let so_far = if first { _mm512_setzero_ps() } else { _mm512_load_ps(to.0.as_ptr()) };
        _mm512_store_ps(to.0.as_mut_ptr(), _mm512_fmadd_ps(a, b, so_far));
    }
}
