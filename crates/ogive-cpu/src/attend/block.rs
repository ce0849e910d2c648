//! Up to eight queries and the tokens of one chunk: what attention's time goes to.
//!
//! Keys and values are used as they are read, so nothing is written down but scores and weighted sums, and a step that decodes runs at
//! the pace of memory, one that reads a prompt at that of the multipliers. The sums are those of [`super::general`], in its order, to
//! the bit.
//!
//! Each step is a kernel of its own: compiled into one function with its callers, sums would be put away for lack of registers.

// A closure that is not compiled in has the sums lie in memory, and so has an iterator's step.
#![allow(clippy::needless_range_loop)]

use super::softmax::CHUNK;
use crate::{
    cache::{Lines, Rows},
    simd::ops::{Isa, Kernel, LANES, SUMS},
};
use std::{marker::PhantomData, ops::Range};

/// Bytes of a line of the processor's cache; where lines are longer, some are asked for twice.
const LINE: usize = 64;

/// Asks for all lines of some bytes.
#[inline(always)]
pub(super) fn ask<S: Isa>(isa: S, bytes: &[u8]) {
    for byte in bytes.iter().step_by(LINE) {
        isa.ask(byte);
    }
}

/// How many queries a block may have.
pub(super) struct Most;

impl Kernel for Most {
    type Out = usize;

    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> usize {
        S::SUMS
    }
}

/// Asks for the keys of some tiles.
pub(super) struct Ask<'a>(pub(super) &'a [&'a [u8]]);

impl Kernel for Ask<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, isa: S) {
        for tile in self.0 {
            ask(isa, tile);
        }
    }
}

/// Lays `N` equally long queries side by side.
pub(super) struct SideBySide<'a, const N: usize> {
    pub(super) q: [&'a [f32]; N],
    pub(super) out: &'a mut [[f32; N]],
}

impl<const N: usize> Kernel for SideBySide<'_, N> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        // Some at a time, so that it is done in registers.
        let (out, rest) = self.out.as_chunks_mut::<LANES>();
        let whole = out.len();
        for (i, out) in out.iter_mut().enumerate() {
            let mut from = [&[0.0; LANES]; N];
            for n in 0..N {
                from[n] = self.q[n].as_chunks().0.get(i).unwrap_or(from[n]);
            }
            for i in 0..LANES {
                for n in 0..N {
                    out[i][n] = from[n][i];
                }
            }
        }
        for (i, out) in rest.iter_mut().enumerate() {
            for n in 0..N {
                out[n] = self.q[n].get(whole * LANES + i).copied().unwrap_or(0.0);
            }
        }
    }
}

/// Scores of `N` queries, side by side, for all tokens of some tiles.
pub(super) struct Scores<'a, L, const N: usize> {
    /// `[k_dim][N]`
    pub(super) q: &'a [[f32; N]],
    pub(super) scale: f32,
    /// The bytes of a head's keys in each tile.
    pub(super) tiles: &'a [&'a [u8]],
    pub(super) out: &'a mut [[f32; CHUNK]; N],
    /// The column of the first tile's first token in `out`.
    pub(super) at: usize,
    /// What is read soon: with each tile the lines of one of these are asked for.
    pub(super) next: &'a [Rows<'a>],
    pub(super) element: PhantomData<L>,
}

impl<L: Lines, const N: usize> Kernel for Scores<'_, L, N> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, isa: S) {
        let Self { q, scale, tiles, out, at, next, .. } = self;
        // As many tiles at once as keep the multipliers busy; two share what is read of the queries.
        let most = if S::SUMS == SUMS { (SUMS / N).max(2) } else { 1 };
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
}

/// [`Scores`] for `TILES` tiles at once.
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

/// Values of tokens that follow each other.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    /// Tile by tile; the first and the last may be parts of one.
    pub(super) tiles: &'a [Rows<'a>],
    /// The column of the first token.
    pub(super) first: usize,
}

/// Adds the values of the tokens in the columns `tokens`, weighted for each of `N` queries, to sums.
pub(super) struct Weigh<'a, L, const N: usize> {
    pub(super) weights: &'a [[f32; CHUNK]; N],
    pub(super) run: Run<'a>,
    pub(super) tokens: Range<usize>,
    /// `[N][v_dim]`
    pub(super) out: &'a mut [f32],
    /// What is read soon: with each tile the lines of one of these are asked for.
    pub(super) next: &'a [&'a [u8]],
    pub(super) element: PhantomData<L>,
}

impl<L: Lines, const N: usize> Kernel for Weigh<'_, L, N> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, isa: S) {
        let Self { weights, run, tokens, out, mut next, .. } = self;
        let vectors = out.len() / N / LANES;
        let mut d = 0;
        while d < vectors {
            let most = (vectors - d).min(if S::SUMS == SUMS { 2 * SUMS / N } else { (S::SUMS / N).max(1) });
            let tokens = tokens.clone();
            d += match most {
                8.. => sums::<S, L, N, 8>(isa, weights, run, tokens, out, d, next),
                4.. => sums::<S, L, N, 4>(isa, weights, run, tokens, out, d, next),
                2.. => sums::<S, L, N, 2>(isa, weights, run, tokens, out, d, next),
                _ => sums::<S, L, N, 1>(isa, weights, run, tokens, out, d, next),
            };
            next = &[];
        }
    }
}

/// [`Weigh`] for `D` vectors of each token's values, from vector `d` on; returns `D`.
#[inline(always)]
fn sums<S: Isa, L: Lines, const N: usize, const D: usize>(
    isa: S,
    weights: &[[f32; CHUNK]; N],
    run: Run<'_>,
    tokens: Range<usize>,
    out: &mut [f32],
    d: usize,
    next: &[&[u8]],
) -> usize {
    // Vectors of a block; those that are read at once are whole blocks, or part of one.
    let each = L::LEN / LANES;
    let inner = if D < each { d % each } else { 0 };
    let part = d / each * L::BYTES..(d / each + D.div_ceil(each)) * L::BYTES;
    let width = out.len() / N;
    // As often as the compiler can see: where it cannot, sums lie in memory, and are written there after each product.
    let mut sums = [[isa.splat(0.0); D]; N];
    for n in 0..N {
        let out = out.get(n * width..).unwrap_or_default().as_chunks().0;
        for i in 0..D {
            if let Some(out) = out.get(d + i) {
                sums[n][i] = isa.load(out);
            }
        }
    }
    let skipped = (tokens.start / LANES).saturating_sub(run.first / LANES);
    for (i, tile) in run.tiles.iter().enumerate().skip(skipped) {
        let first = run.first.max((run.first / LANES + i) * LANES);
        if first >= tokens.end {
            break;
        }
        let (begin, end) = (first.max(tokens.start), tokens.end.min(first + tile.len()));
        // Little by little here too.
        let mut lines = next.get(i).copied().unwrap_or_default().chunks(LINE);
        let share = lines.len().div_ceil(LANES);
        let mut rows = tile.from(begin - first, part.start);
        // Nothing that may be called here and not compiled in: the sums would be put away for it.
        for t in begin..end {
            for _ in 0..share {
                ask(isa, lines.next().unwrap_or_default());
            }
            let row = rows.get(..part.len());
            rows = rows.get(tile.stride()..).unwrap_or_default();
            let Some(row) = row else { continue };
            let mut values = [isa.splat(0.0); D];
            for i in 0..D {
                let block = &row[i / each * L::BYTES..][..L::BYTES];
                values[i] = L::read(isa, &L::vectors(block, 1)[inner + i % each], L::scale(isa, block));
            }
            for n in 0..N {
                let w = isa.splat(weights[n][t % CHUNK]);
                for i in 0..D {
                    sums[n][i] = isa.mul_add(w, values[i], sums[n][i]);
                }
            }
        }
    }
    for n in 0..N {
        let out = out.get_mut(n * width..).unwrap_or_default().as_chunks_mut().0;
        for i in 0..D {
            if let Some(out) = out.get_mut(d + i) {
                isa.store(sums[n][i], out);
            }
        }
    }
    D
}
