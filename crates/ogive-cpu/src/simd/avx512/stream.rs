//! A strip times up to eight tokens: one stream through sixteen rows, unpacked in registers.
//!
//! Nothing is summed across a register and nothing is written before the end, so a block costs little more than its products,
//! and one token waits for memory. Tokens share what unpacking costs. Bytes are asked for some blocks ahead: the processor's own
//! guess stops at the end of each page, and what it has asked for by then does not cover a superblock's arithmetic.
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
        codes::{fine, has_min, super_block},
        panel::Lanes,
    },
};
use std::arch::x86_64::*;

/// How many bytes ahead of what is being read: some blocks, and well within the first cache.
pub(super) const AHEAD: usize = 6 << 10;

/// Asks for part `p` of `of` of the block that is [`AHEAD`] of this one, be it in the next strip. Little by little, because
/// a core has room for no more than some sixteen lines that it waits for.
#[inline]
#[target_feature(enable = "avx512f")]
fn look_ahead<const N: usize>(block: &Block<N>, p: usize, of: usize) {
    let lines = size_of::<Block<N>>().div_ceil(64);
    let next = block.as_ptr().cast::<i8>().wrapping_add(AHEAD);
    for line in p * lines / of..(p + 1) * lines / of {
        // SAFETY: a prefetch reads nothing and never faults, wherever it points.
        #[allow(unused_unsafe, reason = "older compilers have it as an unsafe function")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(64 * line))
        };
    }
}

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
    let sixteens = tile.sixteens.as_chunks::<T>().0.as_chunks::<8>().0;
    let pairs = if fine(F) { &tile.sixteens } else { &tile.pairs }.as_chunks::<T>().0;
    let mut out = [_mm512_setzero_ps(); T];
    let each = blocks.iter().zip(acts).zip(sixteens).zip(tile.scales.as_chunks::<T>().0);
    for (b, (((block, acts), sixteens), act_scales)) in each.enumerate() {
        let scales = Scales::of::<F, N>(block);
        let mut sums = [_mm512_setzero_si512(); T];
        for p in 0..parts {
            look_ahead(block, p, parts);
            let part = one::<F, N, T>(block, p, acts, sixteens);
            let scale = scales.scale::<F>(p);
            for t in 0..T {
                sums[t] = _mm512_add_epi32(sums[t], _mm512_mullo_epi32(part[t], scale));
            }
        }
        let (d, m) = factors::<F, N>(block);
        let mut low = [_mm512_setzero_si512(); T];
        if has_min(F) {
            for (i, sums) in pairs[b * parts / 2..][..parts / 2].iter().enumerate() {
                let min = scales.mins(i);
                for t in 0..T {
                    low[t] = _mm512_dpwssd_epi32(low[t], min, two(sums[t]));
                }
            }
        }
        for t in 0..T {
            let mut p = _mm512_mul_ps(d, _mm512_cvtepi32_ps(sums[t]));
            if has_min(F) {
                p = _mm512_fmadd_ps(m, _mm512_cvtepi32_ps(low[t]), p);
            }
            out[t] = _mm512_fmadd_ps(_mm512_set1_ps(act_scales[t]), p, out[t]);
        }
    }
    out
}

/// One part's sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn one<const F: u8, const N: usize, const T: usize>(
    block: &Block<N>,
    p: usize,
    acts: &[[[i8; 4]; T]; 64],
    sixteens: &[[[i16; 2]; T]; 8],
) -> [__m512i; T] {
    let quads = 64 / parts(F);
    let mut part = [_mm512_setzero_si512(); T];
    if raise(F) != 0 {
        for t in 0..T {
            part[t] = start::<F>(sixteens[sums_at::<F>(p)][t], p);
        }
    }
    for i in 0..quads {
        let c = quad::<F, N>(block, p, i);
        for t in 0..T {
            part[t] = _mm512_dpbusd_epi32(part[t], c, four(acts[p * quads + i][t]));
        }
    }
    part
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn small<const F: u8, const N: usize, const T: usize>(
    blocks: &[Block<N>],
    tile: &Tile,
    each: usize,
) -> [__m512; T] {
    let acts = tile.codes.as_chunks::<T>().0.as_chunks::<8>().0;
    let sixteens = tile.sixteens.as_chunks::<T>().0;
    let totals = tile.totals.as_chunks::<T>().0;
    let mut out = [_mm512_setzero_ps(); T];
    let groups = blocks.chunks_exact(each).zip(acts.chunks_exact(each)).zip(sixteens.chunks_exact(each));
    for (((blocks, acts), sixteens), (totals, scales)) in
        groups.zip(totals.chunks_exact(each).zip(tile.scales.as_chunks::<T>().0))
    {
        let mut sums = [_mm512_setzero_ps(); T];
        for (block, (acts, (sixteens, totals))) in
            blocks.iter().zip(acts.iter().zip(sixteens.iter().zip(totals)))
        {
            look_ahead(block, 0, 1);
            let (d, m) = factors::<F, N>(block);
            let mut part = [_mm512_setzero_si512(); T];
            if raise(F) != 0 {
                for t in 0..T {
                    part[t] = start::<F>(sixteens[t], 0);
                }
            }
            for i in 0..8 {
                let c = quad::<F, N>(block, 0, i);
                for t in 0..T {
                    part[t] = _mm512_dpbusd_epi32(part[t], c, four(acts[i][t]));
                }
            }
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

/// What the sums of part `p` start from: what raised codes add, taken off. `sums` are of the activations it is for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn start<const F: u8>(sums: [i16; 2], p: usize) -> __m512i {
    let off = i32::from(-raise(F));
    // A part of 32 takes both sums; of two parts of 16 each takes its own.
    let first = if fine(F) && p % 2 == 1 { 0 } else { off & 0xffff };
    let second = if fine(F) && p.is_multiple_of(2) { 0 } else { off << 16 };
    _mm512_madd_epi16(two(sums), _mm512_set1_epi32(first | second))
}

/// Where the sums of part `p` stand among those of two times 16 elements.
const fn sums_at<const F: u8>(p: usize) -> usize {
    if fine(F) { p / 2 } else { p }
}
