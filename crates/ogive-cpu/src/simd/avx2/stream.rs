//! A strip times up to four tokens: one stream through sixteen rows, unpacked in registers.
//!
//! Nothing is summed across a register and nothing is written before the end. Eight rows have a register, and both registers of a word
//! are taken together, so that memory is read in the order of its bytes, once.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    ahead::{Ahead, Level, distance},
    codes::{self, Pairs, has_min, offset, super_block},
    panel::Lanes,
    strip::{Block, Scales, blocks, factors, parts, quad, quads},
    vnni::{add_scaled, add_short, add_words, pays_in_order, short, short_in_order, step},
};
use crate::{
    linear::{Quantised, STRIP, block_len},
    simd::formats::{elements, fine},
};
use std::arch::x86_64::*;

/// Tokens that meet a strip at a time.
pub(super) const TOKENS: usize = 4;

/// Parts of a superblock that share words, and are therefore taken side by side, as far as there are registers for their sums.
const fn group(f: u8, tokens: usize) -> usize {
    match tokens {
        1 if fine(f) => 4,
        1 | 2 => 2,
        _ => 1,
    }
}

/// Part `i` of group `g`: neighbours, or of four pairs of bits (codes `128 n + 32 i + 16 h`) those in the same bytes.
const fn part(f: u8, tokens: usize, g: usize, i: usize) -> usize {
    match group(f, tokens) {
        4 => 8 * (g / 2) + g % 2 + 2 * i,
        each => each * g + i,
    }
}

/// A value for each row.
type Both<T> = [T; 2];

/// Products of a strip's rows with `T` tokens.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn stream<const V: u8, const F: u8, const N: usize, const T: usize>(
    strip: &[u8],
    x: [&Quantised; T],
) -> [[f32; STRIP]; T] {
    let blocks = blocks::<N>(strip);
    let sums = match elements(F) {
        256 => superblocks::<V, F, N, T>(blocks, x),
        16 => sixteens::<V, F, N, T>(blocks, x),
        _ => small::<V, F, N, T>(blocks, x),
    };
    let mut out = [Lanes([0.0; STRIP]); T];
    for t in 0..T {
        let to = out[t].0.as_mut_ptr();
        // SAFETY: the array has 64 bytes and starts at a multiple of 64.
        unsafe {
            _mm256_store_ps(to, sums[t][0]);
            _mm256_store_ps(to.add(8), sums[t][1]);
        }
    }
    out.map(|lanes| lanes.0)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn superblocks<const V: u8, const F: u8, const N: usize, const T: usize>(
    blocks: &[Block<N>],
    x: [&Quantised; T],
) -> [Both<__m256>; T] {
    let zero = _mm256_setzero_si256();
    let mut codes_of: [&[[i8; 256]]; T] = [&[]; T];
    let mut sums_of: [&[[i16; 16]]; T] = [&[]; T];
    for t in 0..T {
        codes_of[t] = &x[t].codes.as_chunks().0[..blocks.len()];
        sums_of[t] = &x[t].sums.as_chunks().0[..blocks.len()];
    }
    let mut out = [[_mm256_setzero_ps(); 2]; T];
    for (b, block) in blocks.iter().enumerate() {
        let mut a = [&[0; 256]; T];
        for t in 0..T {
            a[t] = &codes_of[t][b];
        }
        let scales = [Scales::of::<F, N>(block, 0), Scales::of::<F, N>(block, 1)];
        let (mut sums, mut low) = ([[zero; 2]; T], [[zero; 2]; T]);
        // What minima are multiplied with, or what codes that are too large add.
        if has_min(F) || offset(F) != 0 {
            let mut pairs = [Pairs::of::<F>(&[0; 16]); T];
            for t in 0..T {
                pairs[t] = Pairs::of::<F>(&sums_of[t][b]);
            }
            for i in 0..parts(F) / 2 {
                for r in 0..2 {
                    let factor = if has_min(F) { scales[r].mins(i) } else { scales[r].pair::<F>(i) };
                    for t in 0..T {
                        low[t][r] = add_words::<V>(low[t][r], factor, pairs[t].pair(i));
                    }
                }
            }
        }
        for g in 0..parts(F) / group(F, T) {
            add_parts::<V, F, N, T>(block, &scales, g, a, &mut sums);
        }
        for r in 0..2 {
            let (d, m) = factors::<F, N>(block, r);
            for t in 0..T {
                if offset(F) != 0 {
                    let raised = _mm256_mullo_epi32(low[t][r], _mm256_set1_epi32(offset(F).into()));
                    sums[t][r] = _mm256_sub_epi32(sums[t][r], raised);
                }
                let mut p = _mm256_mul_ps(d, _mm256_cvtepi32_ps(sums[t][r]));
                if has_min(F) {
                    p = _mm256_fmadd_ps(m, _mm256_cvtepi32_ps(low[t][r]), p);
                }
                out[t][r] = _mm256_fmadd_ps(_mm256_set1_ps(x[t].scales[b]), p, out[t][r]);
            }
        }
    }
    out
}

/// Two words as a doubleword.
fn join([low, high]: [i16; 2]) -> i32 {
    i32::from(low) & 0xffff | i32::from(high) << 16
}

/// Four codes of an activation, in every lane.
#[inline]
#[target_feature(enable = "avx2")]
fn four<const N: usize>(a: &[i8; N], i: usize) -> __m256i {
    _mm256_set1_epi32(i32::from_le_bytes(a.as_chunks::<4>().0[i].map(i8::cast_unsigned)))
}

/// Whether tokens meet codes in the order that is written: of several a compiler takes one after the other through all codes. One token of a
/// superblock, and two of Q5_K, measured faster as a compiler has them.
const fn written_out(v: u8, f: u8, tokens: usize) -> bool {
    pays_in_order(v, f) && (!super_block(f) || tokens > if f == codes::Q5_K { 2 } else { 1 })
}

/// Adds the parts of group `g`, scaled.
#[inline]
#[target_feature(enable = "avx2")]
fn add_parts<const V: u8, const F: u8, const N: usize, const T: usize>(
    block: &Block<N>,
    scales: &Both<Scales>,
    g: usize,
    a: [&[i8; 256]; T],
    sums: &mut [Both<__m256i>; T],
) {
    let (groups, step) = (parts(F) / group(F, T), step(V, F, quads(F)));
    // At once: here arithmetic takes nearly as long as memory, and requests between products cost Q4_K up to a fifth of its rate in caches.
    Ahead::of(block.as_flattened(), g, groups, Some(Level::here()), distance(T)).ask(0, 1);
    for first in (0..quads(F)).step_by(step) {
        let mut products = [[[_mm256_setzero_si256(); 2]; T]; 4];
        for i in first..first + step {
            for k in 0..group(F, T) {
                let p = part(F, T, g, k);
                let c = [quad::<F, N>(block, p, i, 0), quad::<F, N>(block, p, i, 1)];
                for t in 0..T {
                    let a = four(a[t], p * quads(F) + i);
                    if const { written_out(V, F, T) } {
                        short_in_order(&mut products[k][t], i == first, c, a);
                        continue;
                    }
                    for r in 0..2 {
                        products[k][t][r] = short::<V, F>(products[k][t][r], c[r], a);
                    }
                }
            }
        }
        for k in 0..group(F, T) {
            for r in 0..2 {
                let scale = scales[r].twice::<F>(part(F, T, g, k));
                for t in 0..T {
                    sums[t][r] = add_scaled::<V>(sums[t][r], products[k][t][r], scale);
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn small<const V: u8, const F: u8, const N: usize, const T: usize>(
    blocks: &[Block<N>],
    x: [&Quantised; T],
) -> [Both<__m256>; T] {
    let each = block_len(32 * blocks.len()) / 32;
    let ones = _mm256_set1_epi16(1);
    let mut out = [[_mm256_setzero_ps(); 2]; T];
    let level = if T == 1 { Level::while_waiting() } else { Some(Level::here()) };
    for (group, blocks) in blocks.chunks_exact(each).enumerate() {
        let mut p = [[_mm256_setzero_ps(); 2]; T];
        for (i, block) in blocks.iter().enumerate() {
            let b = group * each + i;
            let ahead = Ahead::of(block.as_flattened(), 0, 1, level, distance(T));
            // Sums are looked up here, though they are wanted last: a bound that is checked after the products costs these registers.
            let (mut a, mut pairs) = ([&[0; 32]; T], [0; T]);
            for t in 0..T {
                a[t] = &x[t].codes.as_chunks().0[b];
                pairs[t] = join(x[t].sums.as_chunks().0[b]);
            }
            let mut sums = [[_mm256_setzero_si256(); 2]; T];
            let step = step(V, F, 8);
            let mut products = [[_mm256_setzero_si256(); 2]; T];
            eight!(i => {
                ahead.ask(i, 8);
                let c = [quad::<F, N>(block, 0, i, 0), quad::<F, N>(block, 0, i, 1)];
                for t in 0..T {
                    let a = four(a[t], i);
                    let begins = i.is_multiple_of(step);
                    if const { written_out(V, F, T) } {
                        short_in_order(&mut products[t], begins, c, a);
                    }
                    for r in 0..2 {
                        if const { !written_out(V, F, T) } {
                            let sum = if begins { _mm256_setzero_si256() } else { products[t][r] };
                            products[t][r] = short::<V, F>(sum, c[r], a);
                        }
                        if i % step == step - 1 {
                            sums[t][r] = add_short::<V>(sums[t][r], products[t][r]);
                        }
                    }
                }
            });
            for r in 0..2 {
                let (d, m) = factors::<F, N>(block, r);
                for t in 0..T {
                    let pair = _mm256_set1_epi32(pairs[t]);
                    let mut sum = sums[t][r];
                    if offset(F) != 0 {
                        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pair, _mm256_set1_epi16(-offset(F))));
                    }
                    p[t][r] = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sum), p[t][r]);
                    if has_min(F) {
                        let total = _mm256_cvtepi32_ps(_mm256_madd_epi16(pair, ones));
                        p[t][r] = _mm256_fmadd_ps(m, total, p[t][r]);
                    }
                }
            }
        }
        for t in 0..T {
            let scale = _mm256_set1_ps(x[t].scales[group]);
            for r in 0..2 {
                out[t][r] = _mm256_fmadd_ps(scale, p[t][r], out[t][r]);
            }
        }
    }
    out
}

/// The same of blocks of 16, which have no minima.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sixteens<const V: u8, const F: u8, const N: usize, const T: usize>(
    blocks: &[Block<N>],
    x: [&Quantised; T],
) -> [Both<__m256>; T] {
    let each = block_len(16 * blocks.len()) / 16;
    let mut out = [[_mm256_setzero_ps(); 2]; T];
    let level = if T == 1 { Level::while_waiting() } else { Some(Level::here()) };
    for (group, blocks) in blocks.chunks_exact(each).enumerate() {
        let mut p = [[_mm256_setzero_ps(); 2]; T];
        for (i, block) in blocks.iter().enumerate() {
            let b = group * each + i;
            Ahead::of(block.as_flattened(), 0, 1, level, distance(T)).ask(0, 1);
            let (mut a, mut sums) = ([&[0; 16]; T], [_mm256_setzero_si256(); T]);
            for t in 0..T {
                a[t] = &x[t].codes.as_chunks().0[b];
                sums[t] = _mm256_set1_epi32(-i32::from(offset(F)) * i32::from(x[t].sums[b]));
            }
            let mut products = [[_mm256_setzero_si256(); 2]; T];
            for i in 0..4 {
                let c = [quad::<F, N>(block, 0, i, 0), quad::<F, N>(block, 0, i, 1)];
                for t in 0..T {
                    let a = four(a[t], i);
                    if const { written_out(V, F, T) } {
                        short_in_order(&mut products[t], i == 0, c, a);
                        continue;
                    }
                    for r in 0..2 {
                        products[t][r] = short::<V, F>(products[t][r], c[r], a);
                    }
                }
            }
            for r in 0..2 {
                let (d, _) = factors::<F, N>(block, r);
                for t in 0..T {
                    let sum = add_short::<V>(sums[t], products[t][r]);
                    p[t][r] = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sum), p[t][r]);
                }
            }
        }
        for t in 0..T {
            let scale = _mm256_set1_ps(x[t].scales[group]);
            for r in 0..2 {
                out[t][r] = _mm256_fmadd_ps(scale, p[t][r], out[t][r]);
            }
        }
    }
    out
}
