//! A few queries that see the same tokens: what a step that decodes has of each sequence.
//!
//! Keys and values are used as they are read, so nothing is written down but scores, and a unit runs at the pace of memory or of
//! the multipliers. The sums are those of [`super::unit`], in its order, to the bit.

use super::unit::CHUNK;
use crate::{
    cache::{Lines, Rows},
    simd::ops::{Isa, LANES, SUMS},
};

/// Bytes of a line of the processor's cache; where lines are longer, some are asked for twice.
const LINE: usize = 64;

/// Asks for all lines of some bytes.
#[inline(always)]
pub(super) fn ask<S: Isa>(isa: S, bytes: &[u8]) {
    for byte in bytes.iter().step_by(LINE) {
        isa.ask(byte);
    }
}

/// Scores of `N` queries, side by side, for all tokens of some tiles, the first of which is at column `at` of `out`. `tiles` has the bytes of
/// a head's keys in each; with each tile the lines of one of `next` are asked for, which are read soon.
#[inline(always)]
pub(super) fn scores<S: Isa, L: Lines, const N: usize>(
    isa: S,
    q: &[[f32; N]],
    scale: f32,
    tiles: &[&[u8]],
    out: &mut [[f32; CHUNK]; N],
    at: usize,
    next: &[Rows<'_>],
) {
    // As many tiles at once as keep the multipliers busy.
    let most = if S::SUMS == SUMS { SUMS / N } else { 1 };
    let mut i = 0;
    while i < tiles.len() {
        let (rest, at) = (&tiles[i..], at + i * LANES);
        let n = match rest.len().min(most) {
            4.. => 4,
            2.. => 2,
            n => n,
        };
        let next = next.get(i..).unwrap_or_default();
        match *rest {
            [a, b, c, d, ..] if n == 4 => dots::<S, L, N, 4>(isa, q, scale, [a, b, c, d], out, at, next),
            [a, b, ..] if n == 2 => dots::<S, L, N, 2>(isa, q, scale, [a, b], out, at, next),
            [a, ..] => dots::<S, L, N, 1>(isa, q, scale, [a], out, at, next),
            [] => {}
        }
        i += n;
    }
}

/// The same for `TILES` tiles at once.
#[inline(always)]
fn dots<S: Isa, L: Lines, const N: usize, const TILES: usize>(
    isa: S,
    q: &[[f32; N]],
    scale: f32,
    tiles: [&[u8]; TILES],
    out: &mut [[f32; CHUNK]; N],
    at: usize,
    next: &[Rows<'_>],
) {
    let size = L::BYTES * LANES;
    // Little by little: there is room for few requests, and what has none holds up all that comes behind it.
    let share = (LANES * L::LEN).div_ceil(q.len().max(1));
    let mut sums = [[isa.splat(0.0); N]; TILES];
    for (b, q) in q.chunks(L::LEN).enumerate() {
        for rows in next.iter().take(TILES) {
            for row in rows.iter().skip(b * share).take(share) {
                ask(isa, row);
            }
        }
        let blocks = tiles.map(|tile| tile.get(b * size..(b + 1) * size).unwrap_or_default());
        let scales = blocks.map(|block| L::scales(isa, block));
        let keys = blocks.map(|block| L::vectors(block, LANES));
        let len = keys.iter().map(|keys| keys.len()).fold(q.len(), usize::min);
        let (q, keys) = (&q[..len], keys.map(|keys| &keys[..len]));
        for i in 0..len {
            let mut key = scales;
            for t in 0..TILES {
                key[t] = L::read(isa, &keys[t][i], scales[t]);
            }
            for n in 0..N {
                let q = isa.splat(q[i][n]);
                for t in 0..TILES {
                    sums[t][n] = isa.mul_add(q, key[t], sums[t][n]);
                }
            }
        }
    }
    for (t, sums) in sums.into_iter().enumerate() {
        for (sum, out) in sums.into_iter().zip(out.iter_mut()) {
            if let Some(out) = out.get_mut(at + t * LANES..).and_then(|out| out.first_chunk_mut()) {
                isa.store(isa.mul(sum, isa.splat(scale)), out);
            }
        }
    }
}

/// Sums of the values of some tokens, weighted for each of `N` queries; `out` is `[N][v_dim]`. The first token of `runs` has the weight
/// at column `at` of `weights`, and the others follow; with each run the lines of one of `next` are asked for.
#[inline(always)]
pub(super) fn weigh<S: Isa, L: Lines, const N: usize>(
    isa: S,
    weights: &[[f32; CHUNK]; N],
    at: usize,
    runs: &[Rows<'_>],
    out: &mut [f32],
    next: &[&[u8]],
) {
    let vectors = out.len() / N / LANES;
    let (mut d, mut next) = (0, next);
    while d < vectors {
        let most = (vectors - d).min(if S::SUMS == SUMS { 2 * SUMS / N } else { (S::SUMS / N).max(1) });
        d += match most {
            8.. => sums::<S, L, N, 8>(isa, weights, at, runs, out, d, next),
            4.. => sums::<S, L, N, 4>(isa, weights, at, runs, out, d, next),
            2.. => sums::<S, L, N, 2>(isa, weights, at, runs, out, d, next),
            _ => sums::<S, L, N, 1>(isa, weights, at, runs, out, d, next),
        };
        next = &[];
    }
}

/// The same for `D` vectors of each token's values, from vector `d` on; returns `D`.
#[inline(always)]
fn sums<S: Isa, L: Lines, const N: usize, const D: usize>(
    isa: S,
    weights: &[[f32; CHUNK]; N],
    at: usize,
    runs: &[Rows<'_>],
    out: &mut [f32],
    d: usize,
    next: &[&[u8]],
) -> usize {
    // Vectors of a block; those that are read at once are whole blocks, or part of one.
    let each = L::LEN / LANES;
    let inner = if D < each { d % each } else { 0 };
    let part = d / each * L::BYTES..(d / each + D.div_ceil(each)) * L::BYTES;
    let mut sums = [[isa.splat(0.0); D]; N];
    let mut t = at;
    for (i, run) in runs.iter().enumerate() {
        let next = next.get(i).copied().unwrap_or_default();
        let mut lines = next.chunks(next.len().div_ceil(LANES).max(1));
        for row in run.iter() {
            ask(isa, lines.next().unwrap_or_default());
            let Some(row) = row.get(part.clone()) else { continue };
            let mut values = [isa.splat(0.0); D];
            for (i, value) in values.iter_mut().enumerate() {
                let block = &row[i / each * L::BYTES..][..L::BYTES];
                *value = L::read(isa, &L::vectors(block, 1)[inner + i % each], L::scale(isa, block));
            }
            for (sums, weights) in sums.iter_mut().zip(weights) {
                let w = isa.splat(weights[t % CHUNK]);
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = isa.mul_add(w, value, *sum);
                }
            }
            t += 1;
        }
    }
    let width = out.len() / N;
    for (sums, out) in sums.into_iter().zip(out.chunks_exact_mut(width)) {
        for (sum, out) in sums.into_iter().zip(&mut out.as_chunks_mut().0[d..]) {
            isa.store(sum, out);
        }
    }
    D
}
