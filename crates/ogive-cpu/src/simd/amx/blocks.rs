//! Blocks of 32 times groups of tokens: one product of tiles for each, then what is done to its sums with a lane for each row.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    panel::{HalfTile, Panel},
    sums::{Out, Written, add, row},
    tile::{Sums, Tiles},
};
use crate::{
    linear::{GROUP, Group, Tokens},
    simd::{
        avx2::codes::{self, has_min},
        avx512::panel::{floats, integers},
    },
};
use std::arch::x86_64::*;

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
                    let out = &mut sums[g / 2 * strips + strip][half..];
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
    let codes = &group.codes[at / 2 * GROUP + 16 * half..][..16];
    tiles.zero::<C>();
    // SAFETY: sixteen rows of 32 bytes that begin 64 apart, and eight of 64, are read.
    unsafe {
        tiles.load::<A, 64>(codes.as_ptr().cast::<u8>().add(at % 2 * 32));
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
