//! Keys and values of tensors in tiles, as a cache in single precision has them: laid once for all the queries that read them, where [`General`] lays
//! them anew for each unit.
//!
//! Heads that are no whole vectors are filled up with zeros, which add nothing to a score, and to sums that nobody asks for. So what comes out is
//! the same to the bit.
//!
//! [`General`]: super::general::General

use super::{
    row_widths,
    source::{EndToEnd, Kept, Laid, Source, Tiles},
};
use crate::{
    CpuBackend,
    cache::{Element, Rows},
    ops::{by_rows, make_in, read},
    simd::ops::{Isa, LANES},
};
use ogive_backend::{AttnSpec, Batch};
use ogive_tensor::{Result, Tensor};
use std::ops::Range;

/// Bytes of a number.
const BYTES: usize = size_of::<f32>();
/// What vectors begin at multiples of: a line of the processor's cache, so that none lies in two.
const LINE: usize = 64;

/// Elements of heads as they are laid: whole vectors.
fn filled(dims: [usize; 2]) -> [usize; 2] {
    dims.map(|dim| dim.next_multiple_of(LANES))
}

/// Keys and values of all spans.
pub(super) struct Tiled {
    /// From `begin` on, head by head: for each tile `[k_dim][LANES]`, then `[LANES][v_dim]`.
    bytes: Vec<u8>,
    begin: usize,
    /// Elements of a key and of a value, whole vectors.
    dims: [usize; 2],
    /// The first tile of each span, and behind the last.
    first: Vec<usize>,
}

impl Tiled {
    /// Lays the keys and values of a step.
    pub(super) fn new(b: &CpuBackend, laid: &Laid, spec: &AttnSpec, batch: &Batch) -> Self {
        let dims = filled([spec.k_dim, spec.v_dim]);
        let mut first = vec![0];
        for span in &batch.spans {
            first.push(first[first.len() - 1] + span.context().div_ceil(LANES));
        }
        let (tiles, each) = (first[first.len() - 1], tile_bytes(dims));
        let mut bytes = vec![0; spec.kv_heads * tiles * each + LINE];
        let begin = bytes.as_ptr().align_offset(LINE).min(LINE);
        let from = laid.source();
        let end = begin + spec.kv_heads * tiles * each;
        b.pool.chunks(&mut bytes[begin..end], each, &|i, to| {
            let (head, tile) = (i / tiles, i % tiles);
            let span = first.partition_point(|first| *first <= tile) - 1;
            let t = (tile - first[span]) * LANES;
            let tokens = t..batch.spans[span].context().min(t + LANES);
            fill(&from, [span, head], tokens, [spec.k_dim, spec.v_dim], to);
        });
        Self { bytes, begin, dims, first }
    }

    /// The bytes of a head's tile: keys, values.
    #[inline(always)]
    fn tile(&self, head: usize, tile: usize) -> (&[u8], &[u8]) {
        let (each, tiles) = (tile_bytes(self.dims), self.first[self.first.len() - 1]);
        let bytes = &self.bytes[self.begin + (head * tiles + tile) * each..][..each];
        bytes.split_at(LANES * self.dims[0] * BYTES)
    }
}

fn tile_bytes(dims: [usize; 2]) -> usize {
    LANES * (dims[0] + dims[1]) * BYTES
}

/// Lays some tokens' keys and values of a head, `[LANES]` of them or fewer, into a tile of zeros.
fn fill(
    from: &EndToEnd<'_>,
    [span, head]: [usize; 2],
    tokens: Range<usize>,
    dims: [usize; 2],
    to: &mut [u8],
) {
    let [k_dim, v_dim] = filled(dims);
    let (keys, values) = to.split_at_mut(LANES * k_dim * BYTES);
    let (keys, values) = (keys.as_chunks_mut::<BYTES>().0, values.as_chunks_mut::<BYTES>().0);
    for (i, t) in tokens.enumerate() {
        let (key, value) = (from.key(span, head, dims[0], t), from.value(span, head, dims[1], t));
        for (column, k) in keys.chunks_exact_mut(LANES).zip(key) {
            column[i] = k.to_ne_bytes();
        }
        for (to, v) in values[i * v_dim..].iter_mut().zip(value) {
            *to = v.to_ne_bytes();
        }
    }
}

impl Kept for Tiled {
    type Source<'a> = &'a Self;
    fn source(&self) -> &Self {
        self
    }
}

impl Source for &Tiled {
    fn in_vectors(&self, _: [usize; 2]) -> Option<Element> {
        Some(Element::F32)
    }

    #[inline(always)]
    fn tiles(&self, span: usize, head: usize, tokens: Range<usize>, _: [usize; 2]) -> Tiles<'_> {
        let first = tokens.start / LANES * LANES;
        Tiles::new((first..tokens.end).step_by(LANES).map(|t| {
            let of_tile = t.max(tokens.start) - t..tokens.end.min(t + LANES) - t;
            let (keys, values) = self.tile(head, self.first[span] + t / LANES);
            let row = self.dims[1] * BYTES;
            let n = of_tile.len();
            (keys, Rows::end_to_end(&values[of_tile.start * row..of_tile.end * row], n))
        }))
    }

    // For units that read no tiles, of which there are none.
    fn keys<S: Isa>(&self, _: S, _: usize, _: usize, _: Range<usize>, _: &mut [f32], _: &mut Vec<f32>) {}
    fn values<S: Isa>(
        &self,
        _: S,
        _: usize,
        _: usize,
        _: Range<usize>,
        _: usize,
        _: &mut [f32],
        _: &mut Vec<f32>,
    ) {
    }
}

/// The same attention of heads that are whole vectors, and the queries for it.
pub(super) fn in_whole_vectors(b: &CpuBackend, q: &Tensor, spec: &AttnSpec) -> Result<(Tensor, AttnSpec)> {
    let ([k_dim, v_dim], mut whole) = (filled([spec.k_dim, spec.v_dim]), spec.clone());
    (whole.k_dim, whole.v_dim) = (k_dim, v_dim);
    row_widths("attend", &whole)?;
    if k_dim == spec.k_dim {
        return Ok((q.clone(), whole));
    }
    let (from, n) = (read("attend", q)?, q.shape().first());
    let mut to = b.spare.take(n * spec.heads * k_dim);
    by_rows(b, &mut to, k_dim, |first, heads| {
        for (i, head) in heads.chunks_exact_mut(k_dim).enumerate() {
            let (own, more) = head.split_at_mut(spec.k_dim);
            own.copy_from_slice(&from[(first + i) * spec.k_dim..][..spec.k_dim]);
            more.fill(0.0);
        }
    });
    Ok((make_in(b, [n, spec.heads * k_dim], to), whole))
}

/// What was asked for of sums in whole vectors. `[n, heads * filled] -> [n, heads * v_dim]`
pub(super) fn without_filling(b: &CpuBackend, y: Tensor, spec: &AttnSpec) -> Result<Tensor> {
    let ([_, v_dim], n) = (filled([spec.k_dim, spec.v_dim]), y.shape().first());
    if v_dim == spec.v_dim {
        return Ok(y);
    }
    let from = read("attend", &y)?;
    let mut to = b.spare.take(n * spec.heads * spec.v_dim);
    by_rows(b, &mut to, spec.v_dim, |first, heads| {
        for (i, head) in heads.chunks_exact_mut(spec.v_dim).enumerate() {
            head.copy_from_slice(&from[(first + i) * v_dim..][..spec.v_dim]);
        }
    });
    Ok(make_in(b, [n, spec.heads * spec.v_dim], to))
}

#[cfg(test)]
mod tests {
    use super::super::{attend, compute};
    use super::*;
    use ogive_backend::{AttnOption, Backend};

    #[test]
    fn tiles_give_what_the_definition_gives_to_the_bit() {
        let b = CpuBackend::builder().threads(3).build().unwrap();
        let mut state = 1u32;
        let mut values = |n: usize| {
            let next = |_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            (0..n).map(next).collect::<Vec<f32>>()
        };
        for (heads, kv_heads, k_dim, v_dim) in [(3, 3, 72, 72), (4, 2, 80, 24), (2, 2, 64, 64), (6, 2, 12, 5)]
        {
            for options in [
                vec![],
                vec![AttnOption::Causal],
                vec![AttnOption::Causal, AttnOption::Window(37)],
                vec![AttnOption::Window(38), AttnOption::Ahead(37)],
            ] {
                let mut batch = Batch::default();
                // A whole text, one that goes on, and a short one, with rows of nobody's behind them.
                for (len, past) in [(301, 0), (140, 333), (7, 0)] {
                    batch.push(&vec![0; len], past, vec![], [0, 0]);
                }
                batch.pad(451);
                let contexts = batch.contexts();
                let plan = b.plan(batch).unwrap();
                let up = |values: &[f32], shape: [usize; 2]| b.upload(values, shape.into()).unwrap();
                let q = up(&values(451 * heads * k_dim), [451, heads * k_dim]);
                let k = up(&values(contexts * kv_heads * k_dim), [contexts, kv_heads * k_dim]);
                let v = up(&values(contexts * kv_heads * v_dim), [contexts, kv_heads * v_dim]);
                let spec = AttnSpec::new(heads, kv_heads, k_dim, v_dim);
                let spec = options.into_iter().fold(spec, AttnSpec::with);
                let laid = Laid {
                    kv: [k.clone(), v.clone()],
                    widths: [kv_heads * k_dim, kv_heads * v_dim],
                    first: vec![0, 301, 774],
                };
                let defined = compute(&b, "attend", &q, laid, &spec, &plan).unwrap();
                let fast = attend(&b, &q, &k, &v, &spec, &plan).unwrap();
                let bits =
                    |x: &Tensor| read("test", x).unwrap().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert!(
                    bits(&defined) == bits(&fast),
                    "{heads} {kv_heads} {k_dim} {v_dim} {:?}",
                    spec.options
                );
            }
        }
    }
}
