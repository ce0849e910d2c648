//! One thread's share of attention: some rows and heads of one span that read the same keys.
//!
//! Softmax runs over chunks of 256 tokens that begin at multiples of 256 of the sequence, and chunks are merged oldest
//! first. A row's result is thus a function of its query and its context: not of the rows beside it, not of how chunks
//! were shared out. What a row does not see it does not touch, not even with a weight of zero: a page may hold anything
//! behind the end of a sequence.

use super::{
    block::{Ask, Most, Run, Scores, SideBySide, Weigh},
    general::General,
    options::Options,
    softmax::{CHUNK, Merge, Scoring, Softmax},
    source::{Source, Tiles},
    unpack::Unpacked,
};
use crate::{
    cache::{Brains, Element, Halves, Lines, Q8, Singles},
    simd::{
        Path,
        ops::{LANES, SUMS, run},
    },
};
use std::{array::from_ref, marker::PhantomData, ops::Range};

/// So many blocks of queries gain more by keys and values in single precision than unpacking these takes.
const UNPACKED: usize = 4;

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

/// What it is computed from, and where it goes.
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

impl<T: Source> Unit<'_, T> {
    /// Computes it.
    pub(super) fn compute(self, path: Path) {
        let [_, k_dim, v_dim] = self.shape;
        match self.source.in_vectors([k_dim, v_dim]) {
            Some(Element::F32) => self.in_vectors::<Singles>(path),
            Some(Element::F16) => self.in_vectors::<Halves>(path),
            Some(Element::BF16) => self.in_vectors::<Brains>(path),
            Some(Element::Q8) => self.in_vectors::<Q8>(path),
            Some(Element::Other) | None => run(path, General(self)),
        }
    }

    /// The same where keys and values can be used as they are read.
    fn in_vectors<L: Lines>(self, path: Path) {
        let queries = self.place.rows.len() * self.place.heads.len();
        match queries.min(run(path, Most)) {
            1 => self.in_blocks::<L, 1>(path),
            2 => self.in_blocks::<L, 2>(path),
            3..=4 => self.in_blocks::<L, 4>(path),
            5..=6 => self.in_blocks::<L, 6>(path),
            _ => self.in_blocks::<L, SUMS>(path),
        }
    }

    /// The same with blocks of `N` queries.
    fn in_blocks<L: Lines, const N: usize>(self, path: Path) {
        let (place, [_, k_dim, v_dim]) = (self.place, self.shape);
        let queries = place.heads.len() * place.rows.len();
        let mut q = vec![[0.0; N]; queries.div_ceil(N) * k_dim];
        for (i, out) in q.chunks_exact_mut(k_dim).enumerate() {
            // Where the last block has fewer, the unit's first is there instead.
            let q = std::array::from_fn(|n| self.query(if i * N + n < queries { i * N + n } else { 0 }));
            run(path, SideBySide { q, out });
        }
        self.out.fill(0.0);
        self.out.iter_mut().step_by(v_dim + 2).for_each(|top| *top = f32::NEG_INFINITY);
        let (group, source) = (place.heads.len(), self.source);
        let mut blocks = Blocks { unit: self, q, weights: [[0.0; CHUNK]; N], sums: vec![0.0; N * v_dim] };
        let all = union((0..queries).step_by(group).map(|query| blocks.sees(query)));
        let tokens = |chunk: usize| all.start.max(chunk * CHUNK)..all.end.min((chunk + 1) * CHUNK);
        let tiles = |chunk: usize| match tokens(chunk) {
            tokens if tokens.is_empty() => Tiles::NONE,
            tokens => source.tiles(place.span, place.kv_head, tokens, [k_dim, v_dim]),
        };
        let wanted = L::BYTES < L::LEN * size_of::<f32>() && queries.div_ceil(N) >= UNPACKED;
        let mut unpacked = wanted.then(|| Unpacked::new([k_dim, v_dim]));
        // Those of the unit's chunks that some query sees.
        let chunks = place.chunks.start.max(all.start / CHUNK)..place.chunks.end.min(all.end.div_ceil(CHUNK));
        let mut next = tiles(chunks.start);
        run(path, Ask(next.keys()));
        for chunk in chunks {
            let now = std::mem::replace(&mut next, tiles(chunk + 1));
            let tokens = tokens(chunk);
            match &mut unpacked {
                Some(unpacked) => {
                    let now = unpacked.fill::<L>(path, &now);
                    blocks.compute::<Singles>(path, tokens, &now, [&next, &next]);
                }
                None => blocks.compute::<L>(path, tokens, &now, [&now, &next]),
            }
        }
    }

    /// A query's elements.
    fn query(&self, query: usize) -> &[f32] {
        let (place, [heads, k_dim, _]) = (self.place, self.shape);
        let group = place.heads.len();
        let (row, head) = (place.rows.start + query / group, place.heads.start + query % group);
        &self.q[(row * heads + head) * k_dim..][..k_dim]
    }
}

/// The blocks of `N` queries of a unit.
struct Blocks<'a, T, const N: usize> {
    unit: Unit<'a, T>,
    /// `[blocks][k_dim][N]`
    q: Vec<[f32; N]>,
    /// Of one block for a chunk: scores, then weights, and weighted sums, `[N][v_dim]`.
    weights: [[f32; CHUNK]; N],
    sums: Vec<f32>,
}

impl<T: Source, const N: usize> Blocks<'_, T, N> {
    /// What a query of the unit sees.
    fn sees(&self, query: usize) -> Range<usize> {
        let place = self.unit.place;
        let row = query / place.heads.len();
        self.unit.options.visible(place.rows.start + row, place.here + row, place.context)
    }

    /// Adds a chunk, of which `tokens` are seen by some, to the states of all queries. Meanwhile the values of the first of `soon` and then the
    /// keys of the second are asked for.
    fn compute<L: Lines>(
        &mut self,
        path: Path,
        tokens: Range<usize>,
        tiles: &Tiles<'_>,
        soon: [&Tiles<'_>; 2],
    ) {
        let (place, [_, k_dim, v_dim], element) = (self.unit.place, self.unit.shape, PhantomData::<L>);
        let scoring = Scoring { place, options: self.unit.options };
        let queries = place.heads.len() * place.rows.len();
        let begin = tokens.start / CHUNK * CHUNK;
        let first = tokens.start - begin;
        let of_chunk = Run { tiles: tiles.values(), first };
        let mut tops = [[0.0; 2]; N];
        for i in 0..queries.div_ceil(N) {
            let block = i * N..queries.min((i + 1) * N);
            let mut seen = [const { 0..0 }; N];
            for (seen, query) in seen.iter_mut().zip(block.clone()) {
                let (all, of) = (self.sees(query), |t: usize| t.clamp(begin, begin + CHUNK) - begin);
                *seen = of(all.start)..of(all.end);
            }
            let seen = &seen[..block.len()];
            let any = union(seen.iter().cloned());
            if any.is_empty() {
                continue;
            }
            let computed = any.start / LANES * LANES..any.end.next_multiple_of(LANES);
            let keys = computed.start / LANES - first / LANES..computed.end / LANES - first / LANES;
            // What is read soon is asked for once.
            let (values, later) = match i {
                0 => (soon[0].values(), soon[1].keys()),
                _ => Default::default(),
            };
            let scores = Scores {
                q: &self.q[i * k_dim..][..k_dim],
                scale: self.unit.scale,
                tiles: &tiles.keys()[keys],
                out: &mut self.weights,
                at: computed.start,
                next: values,
                element,
            };
            run(path, scores);
            let (weights, out) = (&mut self.weights[..block.len()], &mut tops[..]);
            run(path, Softmax { scoring, weights, computed, seen, begin, first: block.start, out });
            // Tokens that all see; the others are added for fewer queries, and all in order.
            let common = common(seen);
            self.sums.fill(0.0);
            self.weigh_some::<L>(path, of_chunk, seen, |seen| seen.start..seen.end.min(common.start));
            let (weights, out, tokens) = (&self.weights, &mut self.sums, common.clone());
            run(path, Weigh { weights, run: of_chunk, tokens, out, next: later, element });
            self.weigh_some::<L>(path, of_chunk, seen, |seen| seen.start.max(common.end)..seen.end);
            let into = &mut self.unit.out[block.start * (v_dim + 2)..block.end * (v_dim + 2)];
            run(path, Merge { tops: &tops[..block.len()], sums: &self.sums, into });
        }
    }

    /// Adds the values of tokens that only some queries of a block see: of each what `part` makes of the columns it sees. Heads of a row see
    /// the same.
    fn weigh_some<L: Lines>(
        &mut self,
        path: Path,
        of_chunk: Run<'_>,
        seen: &[Range<usize>],
        part: impl Fn(&Range<usize>) -> Range<usize>,
    ) {
        let v_dim = self.unit.shape[2];
        let mut n = 0;
        while let Some(first) = seen.get(n) {
            let tokens = part(first);
            let same = seen[n..].iter().take_while(|seen| part(seen) == tokens).count();
            let (weights, sums) = (&self.weights[n..], &mut self.sums[n * v_dim..]);
            n += match weights.first_chunk() {
                _ if tokens.is_empty() => same,
                Some(weights) if same >= 4 => {
                    weigh::<L, 4>(path, weights, of_chunk, tokens, &mut sums[..4 * v_dim])
                }
                _ => weigh::<L, 1>(path, from_ref(&weights[0]), of_chunk, tokens, &mut sums[..v_dim]),
            };
        }
    }
}

/// [`Weigh`] for as many queries as `weights` has, into the first of `sums`; returns how many those are.
fn weigh<L: Lines, const N: usize>(
    path: Path,
    weights: &[[f32; CHUNK]; N],
    of_chunk: Run<'_>,
    tokens: Range<usize>,
    sums: &mut [f32],
) -> usize {
    let element = PhantomData::<L>;
    run(path, Weigh { weights, run: of_chunk, tokens, out: sums, next: &[], element });
    N
}

/// From where the first begins to where the last ends; empty ones do not count.
fn union(ranges: impl Iterator<Item = Range<usize>>) -> Range<usize> {
    let some = ranges.filter(|r| !r.is_empty());
    some.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// What is in all of them; empty ones do not count, and where nothing is, an empty range that each of them is before or after.
fn common(ranges: &[Range<usize>]) -> Range<usize> {
    let some = ranges.iter().filter(|r| !r.is_empty()).cloned();
    let common = some.reduce(|a, b| a.start.max(b.start)..a.end.min(b.end)).unwrap_or(0..0);
    common.start..common.end.max(common.start)
}
