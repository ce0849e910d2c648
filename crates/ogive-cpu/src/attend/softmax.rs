//! Softmax in chunks: scores become weights, and chunks are merged oldest first.

use super::{
    options::{Edit, Options},
    unit::Place,
};
use crate::{
    ops::{math, norm::fold},
    simd::ops::{Isa, Kernel, LANES},
};
use std::ops::Range;

/// Tokens that share a maximum and a sum.
pub(super) const CHUNK: usize = 256;

/// Merges a softmax under way with another, of which `of` has the largest score and the sum of exponentials relative to it, and
/// `sums` the weighted sum of values; `into` has all that in order. An empty one has the maximum -infinity and the sum 0.
#[inline(always)]
pub(super) fn merge(into: &mut [f32], of: [f32; 2], sums: &[f32]) {
    let empty = |s: [f32; 2]| s[0] == f32::NEG_INFINITY && s[1] == 0.0;
    if empty(of) {
        return;
    }
    let ([m, sum], [n, of_sum]) = ([into[0], into[1]], of);
    if empty([m, sum]) {
        into[..2].copy_from_slice(&of);
        return into[2..].copy_from_slice(sums);
    }
    let top = if n > m { n } else { m };
    let (a, b) = (math::exp(m - top), math::exp(n - top));
    (into[0], into[1]) = (top, sum * a + of_sum * b);
    for (x, y) in into[2..].iter_mut().zip(sums) {
        *x = *x * a + *y * b;
    }
}

/// What is done with the scores of a unit.
#[derive(Clone, Copy)]
pub(super) struct Scoring<'a> {
    pub(super) place: &'a Place,
    pub(super) options: &'a Options<'a>,
}

impl Scoring<'_> {
    /// Makes the scores of query `i` weights: the largest of them and their sum. What the query does not see gets 0.
    #[inline(always)]
    pub(super) fn softmax(
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
        let s = s[computed].as_chunks_mut::<LANES>().0;
        let mut tops = [f32::NEG_INFINITY; LANES];
        for c in s.iter() {
            for i in 0..LANES {
                tops[i] = if c[i] > tops[i] { c[i] } else { tops[i] };
            }
        }
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                tops[i] = if tops[i + half] > tops[i] { tops[i + half] } else { tops[i] };
            }
            half /= 2;
        }
        let top = tops[0];
        // Where nothing is larger than -infinity, every weight is 0, or NaN where the score was.
        let base = if top == f32::NEG_INFINITY { 0.0 } else { top };
        let mut sums = [0.0; LANES];
        // Loops, as a closure in one of the library's functions may be compiled without vectors.
        for c in s {
            for i in 0..LANES {
                c[i] = math::exp_down(c[i] - base);
                sums[i] += c[i];
            }
        }
        [top, fold(sums)]
    }
}

/// [`Scoring::softmax`] for the queries of a block.
pub(super) struct Softmax<'a> {
    pub(super) scoring: Scoring<'a>,
    pub(super) weights: &'a mut [[f32; CHUNK]],
    /// Whole tiles of the chunk's columns that have scores.
    pub(super) computed: Range<usize>,
    /// What each query sees of the chunk.
    pub(super) seen: &'a [Range<usize>],
    /// The chunk's first token.
    pub(super) begin: usize,
    /// Which of the unit's queries the first is.
    pub(super) first: usize,
    /// The largest score of each query, and the sum of its weights.
    pub(super) out: &'a mut [[f32; 2]],
}

impl Kernel for Softmax<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let queries = self.weights.iter_mut().zip(self.seen).zip(self.out);
        for (i, ((weights, seen), out)) in queries.enumerate() {
            let computed = self.computed.clone();
            *out = self.scoring.softmax(weights, computed, seen.clone(), self.begin, self.first + i);
        }
    }
}

/// [`merge`] for the queries of a block.
pub(super) struct Merge<'a> {
    /// What [`Softmax`] gave for each query.
    pub(super) tops: &'a [[f32; 2]],
    /// `[queries][v_dim]`
    pub(super) sums: &'a [f32],
    /// States of `v_dim + 2`.
    pub(super) into: &'a mut [f32],
}

impl Kernel for Merge<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let width = self.into.len() / self.tops.len().max(1);
        let sums = self.sums.chunks_exact(width - 2);
        for ((into, top), sums) in self.into.chunks_exact_mut(width).zip(self.tops).zip(sums) {
            merge(into, *top, sums);
        }
    }
}
