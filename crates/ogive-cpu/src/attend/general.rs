//! Attention over keys and values that must be unpacked or turned first: other elements of the cache, latent keys, tensors end to
//! end, and heads that are no whole vectors.
//!
//! Also the definition of what [`super::block`] does faster.

use super::{
    softmax::{CHUNK, Scoring, merge},
    source::Source,
    unit::Unit,
};
use crate::simd::ops::{Isa, Kernel, LANES, SUMS};
use std::ops::Range;

/// Buffers of one unit.
struct Scratch {
    /// The queries that are computed together lie side by side. `[queries / SUMS][k_dim][SUMS]`, the last fewer.
    q: Vec<f32>,
    /// Scores, then weights. `[queries][CHUNK]`
    s: Vec<f32>,
    /// `[k_dim][LANES]` of one tile of tokens, and of the next.
    keys: [Vec<f32>; 2],
    /// `[LANES][stride]`, where `stride` is `v_dim` rounded up to whole vectors.
    values: Vec<f32>,
    /// Weighted sums of a chunk. `[queries][stride]`
    sums: Vec<f32>,
    /// What each query sees of the chunk, counted from the chunk's beginning.
    seen: Vec<Range<usize>>,
    temp: Vec<f32>,
}

/// A unit, whatever its keys and values are kept as.
pub(super) struct General<'a, T>(pub(super) Unit<'a, T>);

impl<T: Source> Kernel for General<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, isa: S) {
        let unit = self.0;
        let (place, [heads, k_dim, v_dim]) = (unit.place, unit.shape);
        let scoring = Scoring { place, options: unit.options };
        let (group, stride) = (place.heads.len(), v_dim.next_multiple_of(LANES));
        let queries = group * place.rows.len();
        let mut s = Scratch {
            q: vec![0.0; queries * k_dim],
            s: vec![0.0; queries * CHUNK],
            keys: [vec![0.0; k_dim * LANES], vec![0.0; k_dim * LANES]],
            values: vec![0.0; stride * LANES],
            sums: vec![0.0; queries * stride],
            seen: vec![0..0; queries],
            temp: Vec::new(),
        };
        for (i, to) in s.q.chunks_mut(S::SUMS * k_dim).enumerate() {
            let side = to.len() / k_dim;
            for j in 0..side {
                let (row, head) = ((i * S::SUMS + j) / group, (i * S::SUMS + j) % group);
                let at = ((place.rows.start + row) * heads + place.heads.start + head) * k_dim;
                let q = &unit.q[at..][..k_dim];
                to.iter_mut().skip(j).step_by(side).zip(q).for_each(|(to, q)| *to = *q);
            }
        }
        unit.out.fill(0.0);
        unit.out.iter_mut().step_by(v_dim + 2).for_each(|top| *top = f32::NEG_INFINITY);
        for chunk in place.chunks.clone() {
            let begin = chunk * CHUNK;
            for (i, seen) in s.seen.iter_mut().enumerate() {
                let row = i / group;
                let all = unit.options.visible(place.rows.start + row, place.here + row, place.context);
                let of = |t: usize| t.clamp(begin, begin + CHUNK) - begin;
                *seen = of(all.start)..of(all.end);
            }
            let some = || s.seen.iter().filter(|r| !r.is_empty());
            let (Some(first), Some(end)) = (some().map(|r| r.start).min(), some().map(|r| r.end).max())
            else {
                continue;
            };
            let seen = first..end;
            unit.scores(isa, &mut s, begin, seen.clone());
            // Whole vectors of what was computed.
            let computed = first / LANES * LANES..end.next_multiple_of(LANES);
            let mut states = Vec::with_capacity(queries);
            for (i, weights) in s.s.chunks_exact_mut(CHUNK).enumerate() {
                states.push(scoring.softmax(weights, computed.clone(), s.seen[i].clone(), begin, i));
            }
            unit.values(isa, &mut s, begin, seen);
            for (i, (state, [top, sum])) in unit.out.chunks_exact_mut(v_dim + 2).zip(states).enumerate() {
                merge(state, [top, sum], &s.sums[i * stride..][..v_dim]);
            }
        }
    }
}

impl<T: Source> Unit<'_, T> {
    /// The scores of all queries for the tokens `seen` of a chunk, and of others in the same tiles.
    #[inline(always)]
    fn scores<S: Isa>(&self, isa: S, s: &mut Scratch, begin: usize, seen: Range<usize>) {
        let (place, k_dim) = (self.place, self.shape[1]);
        let mut at = seen.start / LANES * LANES;
        while at < seen.end {
            // Two tiles share what is read of the queries, and have twice as many sums under way.
            let tiles = if S::SUMS == SUMS && at + LANES < seen.end { 2 } else { 1 };
            for (i, keys) in s.keys.iter_mut().enumerate().take(tiles) {
                let at = at + i * LANES;
                let tokens = begin + at.max(seen.start)..begin + seen.end.min(at + LANES);
                self.source.keys(isa, place.span, place.kv_head, tokens, keys, &mut s.temp);
            }
            let blocks = s.q.chunks(S::SUMS * k_dim).zip(s.s.chunks_mut(S::SUMS * CHUNK));
            let [low, high] = &s.keys;
            for (q, out) in blocks {
                match tiles {
                    2 => scores_of::<S, 2>(isa, q, [low, high], self.scale, out, at),
                    _ => scores_of::<S, 1>(isa, q, [low], self.scale, out, at),
                }
            }
            at += tiles * LANES;
        }
    }

    /// The weighted sums of values, token after token.
    #[inline(always)]
    fn values<S: Isa>(&self, isa: S, s: &mut Scratch, begin: usize, seen: Range<usize>) {
        let (place, v_dim) = (self.place, self.shape[2]);
        let stride = s.values.len() / LANES;
        s.sums.fill(0.0);
        for at in (seen.start / LANES * LANES..seen.end).step_by(LANES) {
            let tokens = begin + at.max(seen.start)..begin + seen.end.min(at + LANES);
            self.source.values(isa, place.span, place.kv_head, tokens, v_dim, &mut s.values, &mut s.temp);
            let of_tile =
                |r: &Range<usize>| r.start.clamp(at, at + LANES) - at..r.end.clamp(at, at + LANES) - at;
            let mut i = 0;
            while let Some(first) = s.seen.get(i) {
                // Queries that see the same part of the tile share its values.
                let common = of_tile(first);
                let same = s.seen[i..].iter().take_while(|r| of_tile(r) == common).count();
                let (weights, sums) = (&s.s.as_chunks().0[i..], &mut s.sums[i * stride..]);
                i += match same {
                    SUMS.. if S::SUMS == SUMS => weigh::<S, SUMS>(isa, weights, at, &s.values, common, sums),
                    4.. => weigh::<S, 4>(isa, weights, at, &s.values, common, sums),
                    _ => weigh::<S, 1>(isa, weights, at, &s.values, common, sums),
                };
            }
        }
    }
}

/// [`dots`] of as many queries as `out` has rows.
#[inline(always)]
fn scores_of<S: Isa, const TILES: usize>(
    isa: S,
    q: &[f32],
    keys: [&[f32]; TILES],
    scale: f32,
    out: &mut [f32],
    at: usize,
) {
    match out.len() / CHUNK {
        1 => dots::<S, 1, TILES>(isa, q, keys, scale, out, at),
        2 => dots::<S, 2, TILES>(isa, q, keys, scale, out, at),
        3 => dots::<S, 3, TILES>(isa, q, keys, scale, out, at),
        4 => dots::<S, 4, TILES>(isa, q, keys, scale, out, at),
        5 => dots::<S, 5, TILES>(isa, q, keys, scale, out, at),
        6 => dots::<S, 6, TILES>(isa, q, keys, scale, out, at),
        7 => dots::<S, 7, TILES>(isa, q, keys, scale, out, at),
        _ => dots::<S, SUMS, TILES>(isa, q, keys, scale, out, at),
    }
}

/// Scores of `N` queries, side by side, and the tokens of `TILES` tiles, into columns `at` on of `out`, `[N][CHUNK]`. Each sums over
/// the head's elements in order.
#[inline(always)]
fn dots<S: Isa, const N: usize, const TILES: usize>(
    isa: S,
    q: &[f32],
    keys: [&[f32]; TILES],
    scale: f32,
    out: &mut [f32],
    at: usize,
) {
    let keys = keys.map(|keys| keys.as_chunks::<LANES>().0);
    let q = q.as_chunks::<N>().0;
    let len = keys.iter().map(|keys| keys.len()).fold(q.len(), usize::min);
    let (keys, q) = (keys.map(|keys| &keys[..len]), &q[..len]);
    let mut sums = [[isa.splat(0.0); N]; TILES];
    for i in 0..len {
        let tiles = keys.map(|keys| isa.load(&keys[i]));
        for n in 0..N {
            let q = isa.splat(q[i][n]);
            for (sums, key) in sums.iter_mut().zip(tiles) {
                sums[n] = isa.mul_add(q, key, sums[n]);
            }
        }
    }
    for (tile, sums) in sums.into_iter().enumerate() {
        for (sum, out) in sums.into_iter().zip(out.chunks_exact_mut(CHUNK)) {
            if let Some(out) = out[at + tile * LANES..].first_chunk_mut() {
                isa.store(isa.mul(sum, isa.splat(scale)), out);
            }
        }
    }
}

/// Adds the values of `tokens` of the tile at `at` to the sums of the first `N` queries of `weights`; returns `N`.
#[inline(always)]
fn weigh<S: Isa, const N: usize>(
    isa: S,
    weights: &[[f32; CHUNK]],
    at: usize,
    values: &[f32],
    tokens: Range<usize>,
    sums: &mut [f32],
) -> usize {
    let stride = values.len() / LANES;
    let none = &[0.0; LANES];
    let mut w = [none; N];
    for (w, weights) in w.iter_mut().zip(weights) {
        *w = weights[at..].first_chunk().unwrap_or(none);
    }
    let mut d = 0;
    while d < stride {
        // Two vectors of values share what is read of the weights.
        d += match stride - d {
            VALUES.. if S::SUMS == SUMS => weigh_part::<S, N, 2>(isa, w, values, d, tokens.clone(), sums),
            _ => weigh_part::<S, N, 1>(isa, w, values, d, tokens.clone(), sums),
        };
    }
    N
}

/// Two vectors of values.
const VALUES: usize = 2 * LANES;

/// The same for `D` vectors of values from element `d` on; returns how many elements those are.
#[inline(always)]
fn weigh_part<S: Isa, const N: usize, const D: usize>(
    isa: S,
    w: [&[f32; LANES]; N],
    values: &[f32],
    d: usize,
    tokens: Range<usize>,
    sums: &mut [f32],
) -> usize {
    let stride = values.len() / LANES;
    let mut acc = [[isa.splat(0.0); D]; N];
    for (acc, sums) in acc.iter_mut().zip(sums.chunks_exact(stride)) {
        for (acc, sums) in acc.iter_mut().zip(sums[d..].as_chunks().0) {
            *acc = isa.load(sums);
        }
    }
    for (t, value) in values.chunks_exact(stride).enumerate().take(LANES).take(tokens.end).skip(tokens.start)
    {
        let value = &value[d..].as_chunks().0[..D];
        let mut loaded = [isa.splat(0.0); D];
        for (to, value) in loaded.iter_mut().zip(value) {
            *to = isa.load(value);
        }
        for n in 0..N {
            let w = isa.splat(w[n][t]);
            for i in 0..D {
                acc[n][i] = isa.mul_add(w, loaded[i], acc[n][i]);
            }
        }
    }
    for (acc, sums) in acc.into_iter().zip(sums.chunks_exact_mut(stride)) {
        for (acc, sums) in acc.into_iter().zip(sums[d..].as_chunks_mut().0) {
            isa.store(acc, sums);
        }
    }
    D * LANES
}
