//! One thread's share of attention: some rows and heads of one span that read the same keys.
//!
//! Softmax runs over chunks of 256 tokens that begin at multiples of 256 of the sequence, and chunks are merged oldest
//! first. A row's result is thus a function of its query and its context: not of the rows beside it, not of how chunks
//! were shared out. What a row does not see it does not touch, not even with a weight of zero: a page may hold anything
//! behind the end of a sequence.

use super::{
    few,
    options::{Edit, Options},
    source::Source,
};
use crate::{
    cache::{Brains, Element, Halves, Lines, Q8, Singles},
    ops::{math, norm::lane_sum},
    simd::ops::{Isa, Kernel, LANES, SUMS},
};
use std::ops::Range;

/// Tokens before which their keys and values are asked for: as many as take longer to compute than to fetch, and whose keys fit the
/// nearest cache.
const AHEAD: usize = 64;
/// Tokens that share a maximum and a sum.
pub(super) const CHUNK: usize = 256;

/// What a unit is about.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Which span.
    pub(super) span: usize,
    /// Rows of the step.
    pub(super) rows: Range<usize>,
    /// The position of the first of them.
    pub(super) here: usize,
    /// Tokens in the span's context.
    pub(super) context: usize,
    /// Which key and value head.
    pub(super) kv_head: usize,
    /// Query heads that read it.
    pub(super) heads: Range<usize>,
    /// Which chunks of the context.
    pub(super) chunks: Range<usize>,
}

/// The kernel's arguments.
pub(super) struct Unit<'a, T> {
    pub(super) place: &'a Place,
    pub(super) source: &'a T,
    pub(super) options: &'a Options<'a>,
    /// `[rows, heads, k_dim]`
    pub(super) q: &'a [f32],
    /// All query heads, elements of a key and of a value.
    pub(super) shape: [usize; 3],
    pub(super) scale: f32,
    /// For each query (row by row, its heads in order) a state of `v_dim + 2`.
    pub(super) out: &'a mut [f32],
}

/// Merges two softmaxes under way. A state is the largest score, the sum of exponentials relative to it, and the
/// weighted sum of values; an empty one has the maximum -infinity and the sum 0.
#[inline(always)]
pub(super) fn merge(into: &mut [f32], of: &[f32]) {
    let empty = |s: &[f32]| s[0] == f32::NEG_INFINITY && s[1] == 0.0;
    if empty(of) {
        return;
    }
    if empty(into) {
        return into.copy_from_slice(of);
    }
    let (m, n) = (into[0], of[0]);
    let top = if n > m { n } else { m };
    let (a, b) = (math::exp(m - top), math::exp(n - top));
    into[0] = top;
    for (x, y) in into[1..].iter_mut().zip(&of[1..]) {
        *x = *x * a + *y * b;
    }
}

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

impl<T: Source> Kernel for Unit<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(mut self, isa: S) {
        let (place, [heads, k_dim, v_dim]) = (self.place, self.shape);
        let few = place.rows.len() == 1 && place.heads.len() <= S::SUMS;
        match self.source.in_vectors([k_dim, v_dim]).filter(|_| few) {
            Some(Element::F32) => return self.one_row::<S, Singles>(isa),
            Some(Element::F16) => return self.one_row::<S, Halves>(isa),
            Some(Element::BF16) => return self.one_row::<S, Brains>(isa),
            Some(Element::Q8) => return self.one_row::<S, Q8>(isa),
            Some(Element::Other) | None => {}
        }
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
                let q = &self.q[at..][..k_dim];
                to.iter_mut().skip(j).step_by(side).zip(q).for_each(|(to, q)| *to = *q);
            }
        }
        let mut part = vec![0.0; v_dim + 2];
        part[0] = f32::NEG_INFINITY;
        self.out.chunks_exact_mut(v_dim + 2).take(queries).for_each(|state| state.copy_from_slice(&part));
        let start = place.chunks.start * CHUNK;
        (start..start + AHEAD).step_by(LANES).for_each(|t| self.ask(isa, t));
        for chunk in place.chunks.clone() {
            let begin = chunk * CHUNK;
            for (i, seen) in s.seen.iter_mut().enumerate() {
                let all = self.options.visible(place.here + i / group, place.context);
                let of = |t: usize| t.clamp(begin, begin + CHUNK) - begin;
                *seen = of(all.start)..of(all.end);
            }
            let some = || s.seen.iter().filter(|r| !r.is_empty());
            let (Some(first), Some(end)) = (some().map(|r| r.start).min(), some().map(|r| r.end).max())
            else {
                continue;
            };
            let seen = first..end;
            self.scores(isa, &mut s, begin, seen.clone());
            // Whole vectors of what was computed.
            let computed = first / LANES * LANES..end.next_multiple_of(LANES);
            let mut states = Vec::with_capacity(queries);
            for (i, weights) in s.s.chunks_exact_mut(CHUNK).enumerate() {
                states.push(self.softmax(weights, computed.clone(), s.seen[i].clone(), begin, i));
            }
            self.values(isa, &mut s, begin, seen);
            for (i, (state, [top, sum])) in self.out.chunks_exact_mut(v_dim + 2).zip(states).enumerate() {
                (part[0], part[1]) = (top, sum);
                part[2..].copy_from_slice(&s.sums[i * stride..][..v_dim]);
                merge(state, &part);
            }
        }
    }
}

impl<T: Source> Unit<'_, T> {
    /// All of it, where few queries are of one row, and keys and values can be used as they are read (see [`few`]).
    #[inline(always)]
    fn one_row<S: Isa, L: Lines>(&mut self, isa: S) {
        match self.place.heads.len() {
            1 => self.few::<S, L, 1>(isa),
            2 => self.few::<S, L, 2>(isa),
            3..=4 => self.few::<S, L, 4>(isa),
            _ => self.few::<S, L, SUMS>(isa),
        }
    }

    /// The same for up to `N` queries.
    #[inline(always)]
    fn few<S: Isa, L: Lines, const N: usize>(&mut self, isa: S) {
        let (place, [heads, k_dim, v_dim]) = (self.place, self.shape);
        let queries = place.heads.len();
        let mut q = vec![[0.0; N]; k_dim];
        let of_row = &self.q[(place.rows.start * heads + place.heads.start) * k_dim..][..queries * k_dim];
        for (n, of_head) in of_row.chunks_exact(k_dim).enumerate() {
            q.iter_mut().zip(of_head).for_each(|(to, q)| to[n] = *q);
        }
        let mut weights = [[0.0; CHUNK]; N];
        let (mut sums, mut part) = (vec![0.0; N * v_dim], vec![0.0; v_dim + 2]);
        part[0] = f32::NEG_INFINITY;
        self.out.chunks_exact_mut(v_dim + 2).take(queries).for_each(|state| state.copy_from_slice(&part));
        let all = self.options.visible(place.here, place.context);
        let all = all.start.max(place.chunks.start * CHUNK)..all.end.min(place.chunks.end * CHUNK);
        let first = (all.start / LANES * LANES..all.end).step_by(LANES).take(CHUNK / LANES);
        first.for_each(|t| self.source.ask_keys(isa, place.span, place.kv_head, t, k_dim));
        for chunk in place.chunks.clone() {
            let begin = chunk * CHUNK;
            let tokens = all.start.max(begin)..all.end.min(begin + CHUNK);
            if tokens.is_empty() {
                continue;
            }
            let seen = tokens.start - begin..tokens.end - begin;
            let computed = seen.start / LANES * LANES..seen.end.next_multiple_of(LANES);
            let tiles = self.source.tiles(place.span, place.kv_head, tokens, [k_dim, v_dim]);
            few::scores::<S, L, N>(
                isa,
                &q,
                self.scale,
                tiles.keys(),
                &mut weights,
                computed.start,
                tiles.values(),
            );
            let mut states = [[0.0; 2]; N];
            for (i, (state, weights)) in states.iter_mut().zip(&mut weights).enumerate().take(queries) {
                *state = self.softmax(weights, computed.clone(), seen.clone(), begin, i);
            }
            few::weigh::<S, L, N>(isa, &weights, seen.start, tiles.values(), &mut sums, tiles.next());
            let sums = sums.chunks_exact(v_dim).zip(states);
            for (out, (sum, [top, total])) in self.out.chunks_exact_mut(v_dim + 2).zip(sums).take(queries) {
                (part[0], part[1]) = (top, total);
                part[2..].copy_from_slice(sum);
                merge(out, &part);
            }
        }
    }

    /// Asks for the keys and values of the tile that begins with token `t`.
    #[inline(always)]
    fn ask<S: Isa>(&self, isa: S, t: usize) {
        let (place, [_, k_dim, v_dim]) = (self.place, self.shape);
        self.source.ask_keys(isa, place.span, place.kv_head, t, k_dim);
        self.source.ask_values(isa, place.span, place.kv_head, t, v_dim);
    }

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
                self.ask(isa, begin + at + AHEAD);
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

    /// Makes the scores of query `i` weights: the largest of them and their sum. What the query does not see gets 0.
    #[inline(always)]
    fn softmax(
        &self,
        s: &mut [f32],
        computed: Range<usize>,
        seen: Range<usize>,
        begin: usize,
        i: usize,
    ) -> [f32; 2] {
        let place = self.place;
        let (row, head) = (i / place.heads.len(), place.heads.start + i % place.heads.len());
        for edit in &self.options.edits {
            let s = &mut s[seen.clone()];
            match *edit {
                Edit::SoftCap(cap) => s.iter_mut().for_each(|v| *v = cap * math::tanh(*v / cap)),
                Edit::Alibi(slopes) => {
                    let (slope, here) = (slopes[head], place.here + row);
                    for (t, v) in (begin + seen.start..).zip(s) {
                        *v -= slope * here.abs_diff(t) as f32;
                    }
                }
                Edit::Mask(mask, cols) => {
                    let mask = &mask[(place.rows.start + row) * cols + begin + seen.start..];
                    s.iter_mut().zip(mask).for_each(|(v, m)| *v += m);
                }
            }
        }
        s[computed.start..seen.start.max(computed.start)].fill(f32::NEG_INFINITY);
        s[seen.end.max(computed.start)..computed.end].fill(f32::NEG_INFINITY);
        let s = &mut s[computed];
        let mut tops = [f32::NEG_INFINITY; LANES];
        for c in s.as_chunks::<LANES>().0 {
            for i in 0..LANES {
                tops[i] = if c[i] > tops[i] { c[i] } else { tops[i] };
            }
        }
        let top = tops.iter().fold(f32::NEG_INFINITY, |m, v| if *v > m { *v } else { m });
        // Where nothing is larger than -infinity, every weight is 0, or NaN where the score was.
        let base = if top == f32::NEG_INFINITY { 0.0 } else { top };
        // A loop, as a closure in one of the library's functions may be compiled without vectors.
        for v in s.iter_mut() {
            *v = math::exp(*v - base);
        }
        [top, lane_sum(s, |v| v)]
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
