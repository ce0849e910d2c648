//! A panel times sixteen tokens: products in tiles, then what is done to their sums in registers with a lane for each row.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    panel::{HalfTile, Panel, STRIPS, Way, planes, way},
    tile::{Sums, Tiles},
};
use crate::{
    linear::{GROUP, Group, Tokens},
    simd::{
        avx2::{
            codes::{self, has_min},
            panel::Lanes,
        },
        avx512::{
            panel::{floats, integers},
            strip::raise,
        },
    },
};
use std::arch::x86_64::*;

/// The sums of a group's tokens with each strip.
pub(super) type Out = [[Lanes<f32>; GROUP]; STRIPS];

/// Where tiles are written to be read as rows: those of a unit of a superblock, or the first of them a block.
pub(super) struct Written {
    /// For each half of the tokens each plane.
    planes: [[Sums<i32>; 3]; 2],
    /// For each half of the tokens the minima.
    low: [Sums<f32>; 2],
}

impl Default for Written {
    fn default() -> Self {
        Self { planes: [[Sums([[0; 16]; 16]); 3]; 2], low: [Sums([[0.0; 16]; 16]); 2] }
    }
}

/// What superblock `b` gives for all groups: `sums` has one for each, which the first superblock begins.
///
/// A unit is one strip and one group. While its products are summed, what the unit before it wrote is scaled and added, a quarter
/// of that after each quarter of the products: the processor looks some five hundred operations ahead, and has to see products.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn superblock<const F: u8>(
    tiles: &Tiles,
    panel: &Panel,
    groups: &[Group],
    b: usize,
    sums: &mut [Out],
    written: &mut [Written; 4],
) {
    let total = groups.len() * panel.strips;
    for i in 0..=total {
        let [g, strip] = [i / panel.strips, i % panel.strips];
        let before = i.checked_sub(1).map(|i| [i / panel.strips, i % panel.strips]);
        for quarter in 0..4 {
            if i < total {
                products::<F>(tiles, panel, &groups[g], strip, b, quarter);
            }
            if let Some([g, strip]) = before {
                let written = &written[(i - 1) % 2];
                scale::<F>(panel, &groups[g], strip, b, quarter, &mut sums[g][strip], written);
            }
        }
        if i < total {
            write::<F>(tiles, panel, &groups[g], strip, b, &mut written[i % 2]);
        }
    }
}

/// Sums a quarter of a unit's products, in a tile for each half of the tokens and each plane.
#[inline(always)]
fn products<const F: u8>(
    tiles: &Tiles,
    panel: &Panel,
    group: &Group,
    strip: usize,
    b: usize,
    quarter: usize,
) {
    let codes = &group.codes[4 * b + quarter].0;
    let (first, second) = (codes.as_ptr().cast(), codes[16..].as_ptr().cast());
    let plane = &panel.planes[(strip * 4 + quarter) * planes(F)..][..planes(F)];
    if quarter == 0 {
        tiles.zero::<0>();
        tiles.zero::<2>();
        if planes(F) > 1 {
            tiles.zero::<1>();
            tiles.zero::<3>();
        }
        if planes(F) > 2 {
            tiles.zero::<4>();
            tiles.zero::<5>();
        }
    }
    // SAFETY: whole tiles are read, of codes and of planes.
    unsafe {
        match planes(F) {
            1 => {
                tiles.load::<4, 64>(first);
                tiles.load::<5, 64>(plane[0].as_ptr().cast());
                tiles.load::<7, 64>(second);
                if raise(F) == 0 {
                    tiles.unsigned::<0, 4, 5>();
                    tiles.unsigned::<2, 7, 5>();
                } else {
                    tiles.signed::<0, 4, 5>();
                    tiles.signed::<2, 7, 5>();
                }
            }
            2 => {
                tiles.load::<4, 64>(first);
                tiles.load::<5, 64>(plane[0].as_ptr().cast());
                tiles.unsigned::<0, 4, 5>();
                tiles.load::<6, 64>(plane[1].as_ptr().cast());
                tiles.unsigned::<1, 4, 6>();
                tiles.load::<7, 64>(second);
                tiles.unsigned::<2, 7, 5>();
                tiles.unsigned::<3, 7, 6>();
            }
            // Six tiles of sums leave room for one of each kind.
            _ => {
                tiles.load::<6, 64>(first);
                tiles.load::<7, 64>(plane[0].as_ptr().cast());
                tiles.signed::<0, 6, 7>();
                tiles.load::<7, 64>(plane[1].as_ptr().cast());
                tiles.signed::<1, 6, 7>();
                tiles.load::<7, 64>(plane[2].as_ptr().cast());
                tiles.signed::<4, 6, 7>();
                tiles.load::<6, 64>(second);
                tiles.signed::<5, 6, 7>();
                tiles.load::<7, 64>(plane[1].as_ptr().cast());
                tiles.signed::<3, 6, 7>();
                tiles.load::<7, 64>(plane[0].as_ptr().cast());
                tiles.signed::<2, 6, 7>();
            }
        }
    }
}

/// Writes what [`products`] has summed, and what the minima are multiplied with.
#[inline(always)]
fn write<const F: u8>(
    tiles: &Tiles,
    panel: &Panel,
    group: &Group,
    strip: usize,
    b: usize,
    Written { planes: to, low }: &mut Written,
) {
    let [[a0, a1, a2], [b0, b1, b2]] = to;
    tiles.store::<0, _>(a0);
    tiles.store::<2, _>(b0);
    if planes(F) > 1 {
        tiles.store::<1, _>(a1);
        tiles.store::<3, _>(b1);
    }
    if planes(F) > 2 {
        tiles.store::<4, _>(a2);
        tiles.store::<5, _>(b2);
    }
    if has_min(F) {
        let sums = &group.sums[b].0;
        tiles.zero::<0>();
        tiles.zero::<2>();
        // SAFETY: whole tiles are read, of sums and of minima.
        unsafe {
            tiles.load::<5, 64>(panel.mins[strip].as_ptr().cast());
            tiles.load::<4, 64>(sums.as_ptr().cast());
            tiles.bf16::<0, 4, 5>();
            tiles.load::<7, 64>(sums[16..].as_ptr().cast());
            tiles.bf16::<2, 7, 5>();
        }
        tiles.store::<0, _>(&mut low[0]);
        tiles.store::<2, _>(&mut low[1]);
    }
}

/// Puts a unit's planes together and adds them, scaled, to its sums: a quarter of the tokens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn scale<const F: u8>(
    panel: &Panel,
    group: &Group,
    strip: usize,
    b: usize,
    quarter: usize,
    out: &mut [Lanes<f32>; GROUP],
    Written { planes, low }: &Written,
) {
    let d = floats(&panel.d[strip]);
    let m = if has_min(F) { floats(&panel.m[strip]) } else { d };
    let (half, first) = (quarter / 2, quarter % 2 * 8);
    let (planes, low) = (&planes[half], &low[half]);
    let at = quarter * 8;
    let (scales, out) = (&group.scales[b].0[at..at + 8], &mut out[at..at + 8]);
    for t in 0..8 {
        let sum = |n: usize| row(&planes[n].0[first + t]);
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
            p = _mm512_fmadd_ps(m, single(&low.0[first + t]), p);
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
    written: &mut [Written; 4],
) {
    let each = if codes::super_block(F) { 8 } else { block / 32 };
    let (strips, count) = (panel.strips, panel.blocks.len() / panel.strips);
    let (first, total) = (from / 32, 2 * groups.len() * panel.blocks.len());
    let mut p = [_mm512_setzero_ps(); 16];
    // Half a group, strip and block that are multiplied next, and those that are scaled next.
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
                tiles.store::<$write, _>(&mut written[$write].planes[0][0]);
            }
            if i < total {
                let (g, strip, b) = next;
                next = after(next);
                product::<$c, $a, $b>(
                    tiles,
                    &groups[g / 2],
                    g % 2,
                    first + b,
                    &panel.blocks[strip * count + b],
                );
            }
            if (5..total + 5).contains(&i) {
                let (g, strip, b) = last;
                last = after(last);
                let sums_of_it = &written[$read].planes[0][0];
                let half = 16 * (g % 2);
                one::<F>(
                    panel,
                    &groups[g / 2].totals,
                    half,
                    first + b,
                    strip * count + b,
                    sums_of_it,
                    &mut p,
                );
                if b % each == each - 1 {
                    let scales = &groups[g / 2].scales[(first + b) / each].0[half..];
                    let out = &mut sums[g / 2][strip][half..];
                    for t in 0..16 {
                        if codes::super_block(F) {
                            let sum = _mm512_cvtepi32_ps(_mm512_castps_si512(p[t]));
                            p[t] = _mm512_mul_ps(floats(&panel.d[strip]), sum);
                        }
                        add(&mut out[t], _mm512_set1_ps(scales[t]), p[t], first + b < each);
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
fn product<const C: u8, const A: u8, const B: u8>(
    tiles: &Tiles,
    group: &Group,
    half: usize,
    at: usize,
    b: &HalfTile,
) {
    let Tokens(codes) = &group.codes[at / 2];
    let a = &codes[16 * half..].as_flattened()[at % 2 * 32..];
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
fn one<const F: u8>(
    panel: &Panel,
    totals: &[Tokens<f32>],
    half: usize,
    at: usize,
    b: usize,
    sums: &Sums<i32>,
    p: &mut [__m512; 16],
) {
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
            let (m, totals) = (floats(&panel.m[b]), &totals[at].0[half..]);
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

#[inline]
#[target_feature(enable = "avx512f")]
fn single(v: &[f32; 16]) -> __m512 {
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_loadu_ps(v.as_ptr()) }
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
