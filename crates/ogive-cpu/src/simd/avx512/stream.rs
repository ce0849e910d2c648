//! A strip times up to eight tokens: one stream through sixteen rows, unpacked in registers.
//!
//! Nothing is summed across a register and nothing is written before the end, so a block costs little more than its products,
//! and one token waits for memory. Tokens share what unpacking costs. A block is read strictly in the order of its bytes, its factors last:
//! a processor reads ahead of whoever does so, and a load out of turn costs up to half of the rate at which memory is read.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    many::{four, two},
    strip::{self, Block, Scales, elements, factors, parts, quad, raise},
};
use crate::{
    linear::Tile,
    simd::avx2::{
        ahead::{AHEAD, Ahead, Level, in_order},
        codes::{self, fine, has_min, super_block},
        panel::Lanes,
    },
};
use std::arch::x86_64::*;

/// Up to so many tokens there are registers for the sums of all parts whose codes are in the same words.
const TOGETHER: usize = 4;

/// Parts of a superblock that are written out side by side, so that what differs between them is known to the compiler.
const fn group(f: u8, tokens: usize) -> usize {
    if fine(f) && tokens <= TOGETHER { 4 } else { 2 }
}

/// Part `i` of group `g`: neighbours, or of four pairs of bits (codes `128 n + 32 i + 16 h`) those in the same bytes.
const fn part(f: u8, tokens: usize, g: usize, i: usize) -> usize {
    if group(f, tokens) == 4 { 8 * (g / 2) + g % 2 + 2 * i } else { 2 * g + i }
}

/// Up to so many tokens memory takes longer than the arithmetic of short blocks.
const WAITS: usize = 2;

/// Products of a strip's rows with the tokens of a tile, which are `T`. Blocks of activations are of `block` elements.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn stream<const F: u8, const N: usize, const T: usize>(
    strip: &[u8],
    tile: &Tile,
    block: usize,
) -> [Lanes<f32>; T] {
    let blocks = strip::blocks::<N>(strip);
    let sums = if super_block(F) {
        superblocks::<F, N, T>(blocks, tile)
    } else if elements(F) == 16 {
        sixteens::<F, N, T>(blocks, tile, (block / 16).max(2))
    } else {
        small::<F, N, T>(blocks, tile, (block / elements(F)).max(1))
    };
    let mut out = [Lanes([0.0; 16]); T];
    for t in 0..T {
        // SAFETY: 64 bytes are written to an array of 64 that starts at a multiple of 64.
        unsafe { _mm512_store_ps(out[t].0.as_mut_ptr(), sums[t]) };
    }
    out
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn superblocks<const F: u8, const N: usize, const T: usize>(blocks: &[Block<N>], tile: &Tile) -> [__m512; T] {
    let parts = parts(F);
    let acts = tile.codes.as_chunks::<T>().0.as_chunks::<64>().0;
    let pairs = if fine(F) { &tile.sixteens } else { &tile.pairs }.as_chunks::<T>().0;
    let mut out = [_mm512_setzero_ps(); T];
    let each = blocks.iter().zip(acts).zip(tile.scales.as_chunks::<T>().0);
    for (b, ((block, acts), act_scales)) in each.enumerate() {
        let scales = Scales::of::<F, N>(block);
        let mut sums = [_mm512_setzero_si512(); T];
        for g in 0..parts / group(F, T) {
            add_parts::<F, N, T>(block, &scales, g, acts, &mut sums);
        }
        // What minima are multiplied with, or what raised codes add.
        let mut low = [_mm512_setzero_si512(); T];
        for (i, sums) in pairs[b * parts / 2..][..parts / 2].iter().enumerate() {
            let factor = if has_min(F) { scales.mins(i) } else { scales.pair::<F>(i) };
            for t in 0..T {
                low[t] = _mm512_dpwssd_epi32(low[t], factor, two(sums[t]));
            }
        }
        let (d, m) = factors::<F, N>(block);
        for t in 0..T {
            let mut p = sums[t];
            if !has_min(F) {
                let raise = _mm512_set1_epi32(raise(F).trailing_zeros() as i32);
                p = _mm512_sub_epi32(p, _mm512_sllv_epi32(low[t], raise));
            }
            let mut p = _mm512_mul_ps(d, _mm512_cvtepi32_ps(p));
            if has_min(F) {
                p = _mm512_fmadd_ps(m, _mm512_cvtepi32_ps(low[t]), p);
            }
            out[t] = _mm512_fmadd_ps(_mm512_set1_ps(act_scales[t]), p, out[t]);
        }
    }
    out
}

/// Whether one token's lines are asked for even where others' are not. Two Zen 4 cores read Q4_K at 95 % of plain reads so and at 87 unasked,
/// and Q6_K at 98 unasked.
const fn is_asked_for(f: u8) -> bool {
    f == codes::Q4_K || f == codes::Q5_K
}

/// Adds the parts of group `g`, scaled, and raised as their codes are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_parts<const F: u8, const N: usize, const T: usize>(
    block: &Block<N>,
    scales: &Scales,
    g: usize,
    acts: &[[[i8; 4]; T]; 64],
    sums: &mut [__m512i; T],
) {
    let (groups, quads) = (parts(F) / group(F, T), 64 / parts(F));
    let mut products = [[_mm512_setzero_si512(); T]; 4];
    // Looked up once a strip, one token of Q5_K takes a tenth longer.
    let level = if T == 1 && !is_asked_for(F) { Level::while_waiting() } else { Some(Level::here()) };
    let ahead = Ahead::of(block.as_flattened(), g, groups, level, AHEAD);
    for i in 0..quads {
        ahead.ask(i, quads);
        for k in 0..group(F, T) {
            let p = part(F, T, g, k);
            let c = quad::<F, N>(block, p, i);
            for t in 0..T {
                products[k][t] = _mm512_dpbusd_epi32(products[k][t], c, four(acts[p * quads + i][t]));
            }
        }
    }
    for k in 0..group(F, T) {
        let scale = scales.scale::<F>(part(F, T, g, k));
        for t in 0..T {
            sums[t] = _mm512_add_epi32(sums[t], _mm512_mullo_epi32(products[k][t], scale));
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn small<const F: u8, const N: usize, const T: usize>(
    blocks: &[Block<N>],
    tile: &Tile,
    each: usize,
) -> [__m512; T] {
    let acts = tile.codes.as_chunks::<T>().0.as_chunks::<8>().0;
    let eights = tile.eights.as_chunks::<T>().0;
    let totals = tile.totals.as_chunks::<T>().0;
    let mut out = [_mm512_setzero_ps(); T];
    let level = if T <= WAITS { Level::while_waiting() } else { Some(Level::here()) };
    let groups = blocks.chunks_exact(each).zip(acts.chunks_exact(each)).zip(eights.chunks_exact(each));
    for (((blocks, acts), eights), (totals, scales)) in
        groups.zip(totals.chunks_exact(each).zip(tile.scales.as_chunks::<T>().0))
    {
        let mut sums = [_mm512_setzero_ps(); T];
        for (block, (acts, (eights, totals))) in blocks.iter().zip(acts.iter().zip(eights.iter().zip(totals)))
        {
            let ahead = Ahead::of(block.as_flattened(), 0, 1, level, AHEAD);
            let mut part = [_mm512_setzero_si512(); T];
            if raise(F) != 0 {
                let times = _mm512_set1_epi32(raise(F).trailing_zeros() as i32 - 3);
                for t in 0..T {
                    part[t] = _mm512_sllv_epi32(_mm512_set1_epi32(eights[t]), times);
                }
            }
            if T <= WAITS {
                eight!(i => {
                    ahead.ask(i, 8);
                    add_quad::<F, N, T, 8>(block, acts, i, &mut part);
                    in_order();
                });
            } else {
                // At once: requests between products keep a compiler from ordering these, and cost up to a seventh of their rate.
                ahead.ask(0, 1);
                for i in 0..8 {
                    add_quad::<F, N, T, 8>(block, acts, i, &mut part);
                }
            }
            let (d, m) = factors::<F, N>(block);
            for t in 0..T {
                sums[t] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(part[t]), sums[t]);
                if has_min(F) {
                    sums[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(totals[t]), sums[t]);
                }
            }
        }
        for t in 0..T {
            out[t] = _mm512_fmadd_ps(_mm512_set1_ps(scales[t]), sums[t], out[t]);
        }
    }
    out
}

/// The same of blocks of 16, two by two: sums of activations stand so.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn sixteens<const F: u8, const N: usize, const T: usize>(
    blocks: &[Block<N>],
    tile: &Tile,
    each: usize,
) -> [__m512; T] {
    let acts = tile.codes.as_chunks::<T>().0.as_chunks::<4>().0;
    let pairs = tile.sixteens.as_chunks::<T>().0;
    // The lower word of each lane, or the upper.
    let raised = i32::from(-raise(F));
    let raised = [_mm512_set1_epi32(raised & 0xffff), _mm512_set1_epi32(raised << 16)];
    let mut out = [_mm512_setzero_ps(); T];
    let level = if T <= WAITS { Level::while_waiting() } else { Some(Level::here()) };
    let groups = blocks.chunks_exact(each).zip(acts.chunks_exact(each)).zip(pairs.chunks_exact(each / 2));
    for (((blocks, acts), pairs), scales) in groups.zip(tile.scales.as_chunks::<T>().0) {
        let mut sums = [_mm512_setzero_ps(); T];
        let twos = blocks.as_chunks::<2>().0.iter().zip(acts.as_chunks::<2>().0).zip(pairs);
        for ((blocks, acts), pair) in twos {
            for h in 0..2 {
                let ahead = Ahead::of(blocks[h].as_flattened(), 0, 1, level, AHEAD);
                let mut part = [_mm512_setzero_si512(); T];
                for t in 0..T {
                    part[t] = _mm512_madd_epi16(two(pair[t]), raised[h]);
                }
                ahead.ask(0, 1);
                for i in 0..4 {
                    add_quad::<F, N, T, 4>(&blocks[h], &acts[h], i, &mut part);
                }
                let (d, _) = factors::<F, N>(&blocks[h]);
                for t in 0..T {
                    sums[t] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(part[t]), sums[t]);
                }
            }
        }
        for t in 0..T {
            out[t] = _mm512_fmadd_ps(_mm512_set1_ps(scales[t]), sums[t], out[t]);
        }
    }
    out
}

/// Adds the products of a short block's quad `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_quad<const F: u8, const N: usize, const T: usize, const QUADS: usize>(
    block: &Block<N>,
    acts: &[[[i8; 4]; T]; QUADS],
    i: usize,
    sums: &mut [__m512i; T],
) {
    let c = quad::<F, N>(block, 0, i);
    for t in 0..T {
        sums[t] = _mm512_dpbusd_epi32(sums[t], c, four(acts[i][t]));
    }
}
