//! Superblocks times groups of tokens: products of planes in tiles, put together, scaled and added with a lane for each row.
#![allow(unsafe_code)]

use super::{
    panel::{Panel, Way, planes, way},
    sums::{Out, Written, add, row, single},
    tile::Tiles,
};
use crate::{
    linear::{GROUP, Group},
    simd::{
        avx2::{codes::has_min, panel::Lanes},
        avx512::{panel::floats, strip::raise},
    },
};
use std::arch::x86_64::*;

/// What superblock `b` gives for all groups: `sums` has one for each and each strip, which the first superblock begins.
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
                scale::<F>(
                    panel,
                    &groups[g],
                    strip,
                    b,
                    quarter,
                    &mut sums[g * panel.strips + strip],
                    written,
                );
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
    let codes = &group.codes[(4 * b + quarter) * GROUP..][..GROUP];
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
                tiles.load_once::<4, 64>(first);
                tiles.load::<5, 64>(plane[0].as_ptr().cast());
                tiles.load_once::<7, 64>(second);
                product::<F, 0, 4, 5>(tiles);
                product::<F, 2, 7, 5>(tiles);
            }
            2 => {
                tiles.load_once::<4, 64>(first);
                tiles.load::<5, 64>(plane[0].as_ptr().cast());
                tiles.unsigned::<0, 4, 5>();
                tiles.load::<6, 64>(plane[1].as_ptr().cast());
                tiles.unsigned::<1, 4, 6>();
                tiles.load_once::<7, 64>(second);
                tiles.unsigned::<2, 7, 5>();
                tiles.unsigned::<3, 7, 6>();
            }
            // Six tiles of sums leave room for one of each kind.
            _ => {
                tiles.load_once::<6, 64>(first);
                tiles.load::<7, 64>(plane[0].as_ptr().cast());
                tiles.signed::<0, 6, 7>();
                tiles.load::<7, 64>(plane[1].as_ptr().cast());
                tiles.signed::<1, 6, 7>();
                tiles.load::<7, 64>(plane[2].as_ptr().cast());
                tiles.signed::<4, 6, 7>();
                tiles.load_once::<6, 64>(second);
                tiles.signed::<5, 6, 7>();
                tiles.load::<7, 64>(plane[1].as_ptr().cast());
                tiles.signed::<3, 6, 7>();
                tiles.load::<7, 64>(plane[0].as_ptr().cast());
                tiles.signed::<2, 6, 7>();
            }
        }
    }
}

/// Adds to tile `C` the products of tile `A` and of a plane, tile `B`. Planes of raised codes are signed.
#[inline(always)]
pub(super) fn product<const F: u8, const C: u8, const A: u8, const B: u8>(tiles: &Tiles) {
    if raise(F) == 0 {
        tiles.unsigned::<C, A, B>();
    } else {
        tiles.signed::<C, A, B>();
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
        let sums = &group.sums[b * GROUP..][..GROUP];
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
pub(super) fn scale<const F: u8>(
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
