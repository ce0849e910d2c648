//! What a call has to do, as its operands say.
//!
//! Counted are the bytes that must come from memory or go there, each once however often a kernel comes back to it: packed weights
//! and what the cache holds. Activations and small tensors (norms, biases) are left out: they are few, and stay in a processor's
//! caches. Operations are two for each product, a multiplication and an addition, of weights and of attention; what is done once for
//! an element (norms, activations, softmax) is left out.

use crate::{AttnSpec, Cache, Experts, LayerCache, Plan, Span, Weight};
use ogive_tensor::Tensor;
use std::ops::{Add, AddAssign};

/// Bytes to move and operations to make. Sums stay at the greatest number rather than begin again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// Bytes of packed weights and of the cache, read or written, each once a call. Of a mixture of experts as many experts as the rows
    /// can have chosen: with several rows that is the most it can be.
    pub bytes: u64,
    /// Two for each product of weights or attention.
    pub operations: u64,
}

impl Work {
    /// Neither bytes nor products, or none that are counted.
    pub(super) const NONE: Self = Self { bytes: 0, operations: 0 };

    fn bytes(bytes: u64) -> Self {
        Self { bytes, operations: 0 }
    }

    /// Products of so many rows with each of `ws`.
    pub(super) fn products<'a>(rows: usize, ws: impl IntoIterator<Item = &'a Weight>) -> Self {
        let one = |w: &Weight| {
            let [_, out, cols] = w.shape();
            Self { bytes: weight_bytes(w), operations: times([2, rows, out, cols]) }
        };
        ws.into_iter().map(one).fold(Self::NONE, Add::add)
    }

    /// A row of the table for each of the step.
    pub(super) fn embed(table: &Weight, plan: &Plan) -> Self {
        let [_, _, cols] = table.shape();
        Self::bytes(times([plan.batch().tokens.len(), table.format().row_bytes(cols)]))
    }

    /// Each of `rows` through `k` experts.
    pub(super) fn experts(rows: usize, k: usize, experts: &Experts) -> Self {
        let one = |w: &Weight| {
            let [count, out, cols] = w.shape();
            let touched = rows.saturating_mul(k).min(count);
            Self {
                bytes: times([touched, out, w.format().row_bytes(cols)]),
                operations: times([2, rows, k, out]).saturating_mul(cols as u64),
            }
        };
        experts.weights().into_iter().map(one).fold(Self::NONE, Add::add)
    }

    /// The products of attention: with the key of each token that a row sees, and with its value.
    pub(super) fn attend(spec: &AttnSpec, plan: &Plan) -> Self {
        let ends = spec.mutual(plan.batch());
        let seen = |span: &Span| {
            let row = |i| {
                let here = span.past.saturating_add(i);
                let until =
                    ends.as_ref().and_then(|ends| ends.get(span.start + i).copied()).unwrap_or(here + 1);
                spec.visible_until(here, until, span.context()).len() as u64
            };
            (0..span.len).map(row).fold(0, u64::saturating_add)
        };
        let pairs = plan.batch().spans.iter().map(seen).fold(0, u64::saturating_add);
        let each = times([2, spec.heads, spec.k_dim.saturating_add(spec.v_dim), 1]);
        Self { bytes: 0, operations: pairs.saturating_mul(each) }
    }

    /// The same over a layer of the cache, of which each token that some row sees is read.
    pub(super) fn attend_cache(layer: usize, cache: &Cache, spec: &AttnSpec, plan: &Plan) -> Self {
        let seen = |span: &Span| {
            let of = |i| spec.visible(span.past.saturating_add(i), span.context());
            of(span.len.saturating_sub(1)).end.saturating_sub(of(0).start)
        };
        Self::rows(layer, cache, plan.batch().spans.iter().map(seen)) + Self::attend(spec, plan)
    }

    /// A row of the cache for each row of a sequence.
    pub(super) fn store(layer: usize, cache: &Cache, plan: &Plan) -> Self {
        Self::rows(layer, cache, plan.batch().spans.iter().map(|s| s.len))
    }

    /// All that the layer still has of the contexts.
    pub(super) fn gather(layer: usize, cache: &Cache, plan: &Plan) -> Self {
        let group = match cache.spec().owner(layer) {
            Ok((_, LayerCache::Paged { group, .. })) => group,
            _ => return Self::NONE,
        };
        let gone =
            |s: &Span| s.tables.get(group).map_or(0, |t| t.first.saturating_mul(cache.spec().block_len));
        Self::rows(layer, cache, plan.batch().spans.iter().map(|s| s.context().saturating_sub(gone(s))))
    }

    /// Blocks are read and written in every layer of their group.
    pub(super) fn copy_blocks(cache: &Cache, plan: &Plan) -> Self {
        let spec = cache.spec();
        let layer = |wanted: usize, (i, own): (usize, &LayerCache)| match own {
            LayerCache::Paged { group, .. } if *group == wanted => row_bytes(i, cache),
            _ => 0,
        };
        let copy = |of: usize| {
            let row = spec.layers.iter().enumerate().map(|own| layer(of, own)).fold(0, u64::saturating_add);
            row.saturating_mul(times([2, spec.block_len]))
        };
        Self::bytes(plan.batch().copies.iter().map(|c| copy(c.group)).fold(0, u64::saturating_add))
    }

    /// The state of each sequence, moved so many times.
    pub(super) fn states(times_moved: usize, layer: usize, cache: &Cache, plan: &Plan) -> Self {
        match cache.spec().owner(layer) {
            Ok((_, LayerCache::State { len })) => {
                Self::bytes(times([4, times_moved, plan.batch().spans.len(), len]))
            }
            _ => Self::NONE,
        }
    }

    /// A convolution's products, and its states read and written.
    pub(super) fn conv(layer: usize, x: &Tensor, w: &Tensor, cache: &Cache, plan: &Plan) -> Self {
        let operations = times([2, x.shape().rows(), w.shape().len()]);
        Self { operations, ..Self::states(2, layer, cache, plan) }
    }

    /// A scan's products, four for each element of a state and row, and its states read and written.
    pub(super) fn scan(layer: usize, x: &Tensor, a: &Tensor, cache: &Cache, plan: &Plan) -> Self {
        let operations = times([8, x.shape().rows(), a.shape().len()]);
        Self { operations, ..Self::states(2, layer, cache, plan) }
    }

    /// Its products, three for each element of a state and row or four by the delta rule, and its states read and written.
    pub(super) fn linear_attention(
        layer: usize,
        k: &Tensor,
        v: &Tensor,
        delta: bool,
        cache: &Cache,
        plan: &Plan,
    ) -> Self {
        let operations = times([if delta { 8 } else { 6 }, v.shape().len(), k.shape().cols()]);
        Self { operations, ..Self::states(2, layer, cache, plan) }
    }

    fn rows(layer: usize, cache: &Cache, counts: impl Iterator<Item = usize>) -> Self {
        let rows = counts.map(|n| n as u64).fold(0, u64::saturating_add);
        Self::bytes(rows.saturating_mul(row_bytes(layer, cache)))
    }
}

/// What a token's keys and values take in a layer.
fn row_bytes(layer: usize, cache: &Cache) -> u64 {
    let element = cache.spec().element;
    match cache.spec().owner(layer) {
        Ok((_, LayerCache::Paged { k_dim, v_dim, .. })) => {
            (element.row_bytes(k_dim) as u64).saturating_add(element.row_bytes(v_dim) as u64)
        }
        _ => 0,
    }
}

fn weight_bytes(w: &Weight) -> u64 {
    let [experts, out, cols] = w.shape();
    times([experts, out, w.format().row_bytes(cols)])
}

fn times<const N: usize>(factors: [usize; N]) -> u64 {
    factors.into_iter().fold(1, |product, n| product.saturating_mul(n as u64))
}

impl Add for Work {
    type Output = Self;
    fn add(self, more: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(more.bytes),
            operations: self.operations.saturating_add(more.operations),
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Self) {
        *self = *self + more;
    }
}
