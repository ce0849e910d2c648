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
    source::Source,
};
use crate::{
    cache::{Brains, Element, Halves, Lines, Q8, Singles},
    simd::{
        Path,
        ops::{LANES, SUMS, run},
    },
};
use std::{array::from_ref, marker::PhantomData, ops::Range};

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
            _ => self.in_blocks::<L, SUMS>(path),
        }
    }

    /// The same with blocks of `N` queries.
    fn in_blocks<L: Lines, const N: usize>(self, path: Path) {
        let (place, [_, k_dim, v_dim], element) = (self.place, self.shape, PhantomData::<L>);
        let scoring = Scoring { place, options: self.options };
        let group = place.heads.len();
        let queries = group * place.rows.len();
        let mut q = vec![[0.0; N]; queries.div_ceil(N) * k_dim];
        for (i, out) in q.chunks_exact_mut(k_dim).enumerate() {
            // Where the last block has fewer, the unit's first is there instead.
            let q = std::array::from_fn(|n| self.query(if i * N + n < queries { i * N + n } else { 0 }));
            run(path, SideBySide { q, out });
        }
        let (mut weights, mut tops) = ([[0.0; CHUNK]; N], [[0.0; 2]; N]);
        let mut sums = vec![0.0; N * v_dim];
        self.out.fill(0.0);
        self.out.iter_mut().step_by(v_dim + 2).for_each(|top| *top = f32::NEG_INFINITY);
        let sees = |query: usize| self.options.visible(place.here + query / group, place.context);
        let all = union((0..queries).step_by(group).map(sees));
        let mut asked = false;
        for chunk in place.chunks.clone() {
            let begin = chunk * CHUNK;
            let tokens = all.start.max(begin)..all.end.min(begin + CHUNK);
            if tokens.is_empty() {
                continue;
            }
            let first = tokens.start - begin;
            let tiles = self.source.tiles(place.span, place.kv_head, tokens, [k_dim, v_dim]);
            if !asked {
                run(path, Ask(tiles.keys()));
                asked = true;
            }
            let of_chunk = Run { tiles: tiles.values(), first };
            for i in 0..queries.div_ceil(N) {
                let block = i * N..queries.min((i + 1) * N);
                let q = &q[i * k_dim..][..k_dim];
                let mut seen = [const { 0..0 }; N];
                for (seen, query) in seen.iter_mut().zip(block.clone()) {
                    let (all, of) = (sees(query), |t: usize| t.clamp(begin, begin + CHUNK) - begin);
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
                let (values, later) =
                    if i == 0 { (tiles.values(), tiles.next()) } else { Default::default() };
                let scores = Scores {
                    q,
                    scale: self.scale,
                    tiles: &tiles.keys()[keys],
                    out: &mut weights,
                    at: computed.start,
                    next: values,
                    element,
                };
                run(path, scores);
                let (of_block, out) = (&mut weights[..block.len()], &mut tops[..]);
                run(
                    path,
                    Softmax { scoring, weights: of_block, computed, seen, begin, first: block.start, out },
                );
                // Tokens that all see; the others are added for each query alone, and all in order.
                let common = common(seen);
                sums.fill(0.0);
                let alone = |n: usize, tokens: Range<usize>, sums: &mut [f32]| {
                    if !tokens.is_empty() {
                        let (weights, out) = (from_ref(&weights[n]), &mut sums[n * v_dim..][..v_dim]);
                        run(path, Weigh::<L, 1> { weights, run: of_chunk, tokens, out, next: &[], element });
                    }
                };
                for (n, seen) in seen.iter().enumerate() {
                    alone(n, seen.start..seen.end.min(common.start), &mut sums);
                }
                let (weights, tokens) = (&weights, common.clone());
                run(path, Weigh { weights, run: of_chunk, tokens, out: &mut sums, next: later, element });
                for (n, seen) in seen.iter().enumerate() {
                    alone(n, seen.start.max(common.end)..seen.end, &mut sums);
                }
                let into = &mut self.out[block.start * (v_dim + 2)..block.end * (v_dim + 2)];
                run(path, Merge { tops: &tops[..block.len()], sums: &sums, into });
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
