//! Rotary position embedding, and attention that begins with it.

use super::{by_rows, take};
use crate::{CpuBackend, attend, cache, plan, plan::Angles};
use ogive_backend::{AttnSpec, Cache, Plan, Rope, RopeLayout};
use ogive_tensor::{Error, Result, Tensor};
use std::sync::Arc;

/// What rotates the rows of a step.
struct Rotation {
    angles: Arc<Angles>,
    /// Elements of a head, and frequencies.
    dim: usize,
    half: usize,
    pairs: bool,
}

impl Rotation {
    /// For `x` `[rows, heads, dim]`, with a row for each row of the step.
    fn new(x: &Tensor, rope: &Rope, plan: &Plan) -> Result<Self> {
        let &[_, _, dim] = x.shape().dims() else {
            return Err(Error::invalid("rope", format!("{:?} is not [rows, heads, dim]", x.shape())));
        };
        plan::rows_fit("rope", x, plan)?;
        let half = rope.inv_freq.len();
        if half.checked_mul(2).is_none_or(|n| n > dim) {
            let why = format!("{half} frequencies need {} elements of a head of {dim}", 2 * half as u128);
            return Err(Error::invalid("rope", why));
        }
        let pairs = match rope.layout {
            RopeLayout::Halves => false,
            RopeLayout::Pairs => true,
            other => {
                return Err(Error::unsupported("rope", format!("the CPU backend has no layout {other:?}")));
            }
        };
        let angles = plan::device(plan)?.angles(rope, plan.batch())?;
        Ok(Self { angles, dim, half, pairs })
    }

    /// Rotates the heads of row `i` of the step.
    fn turn(&self, i: usize, row: &mut [f32]) {
        let of_row = i * self.half..(i + 1) * self.half;
        let (cos, sin) = (&self.angles.cos[of_row.clone()], &self.angles.sin[of_row]);
        for head in row.chunks_exact_mut(self.dim) {
            if self.pairs {
                for ((pair, cos), sin) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                    (pair[0], pair[1]) = turn(pair[0], pair[1], *cos, *sin);
                }
            } else {
                let (low, high) = head.split_at_mut(self.half);
                for (((a, b), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                    (*a, *b) = turn(*a, *b, *cos, *sin);
                }
            }
        }
    }
}

#[inline(always)]
fn turn(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a * cos - b * sin, b * cos + a * sin)
}

pub(crate) fn rope(b: &CpuBackend, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
    let rotation = Rotation::new(&x, rope, plan)?;
    rotate(b, x, &rotation)
}

fn rotate(b: &CpuBackend, x: Tensor, rotation: &Rotation) -> Result<Tensor> {
    let cols = x.shape().len().checked_div(x.shape().first()).unwrap_or(0);
    let (_, mut x) = take(b, "rope", x)?;
    by_rows(b, x.values(), cols, |first, part| {
        part.chunks_exact_mut(cols).zip(first..).for_each(|(row, i)| rotation.turn(i, row));
    });
    Ok(x.done())
}

/// Keys are rotated on their way into the cache, and nowhere else.
pub(crate) fn rope_attend(
    b: &CpuBackend,
    layer: usize,
    [q, k, v]: [Tensor; 3],
    rope: &Rope,
    cache: &Cache,
    spec: &AttnSpec,
    plan: &Plan,
) -> Result<Tensor> {
    let of_queries = Rotation::new(&q, rope, plan)?;
    let of_keys = Rotation::new(&k, rope, plan)?;
    let q = rotate(b, q, &of_queries)?;
    let turn = |i: usize, row: &mut [f32]| of_keys.turn(i, row);
    cache::store_kv(b, layer, &k, Some(&v), Some(&turn), cache, plan)?;
    attend::attend_cache(b, layer, &q, cache, spec, plan, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_backend::{Backend, Batch, BlockTable, CacheSpec, LayerCache};
    use ogive_tensor::{BF16, F16, F32, Q4_0, Q8_0};

    const HEADS: usize = 4;
    const DIM: usize = 32;

    /// Tokens `from..to` of two sequences whose blocks are taken in turn from the end of the cache.
    fn batch(block_len: usize, from: usize, to: [usize; 2]) -> Batch {
        let mut batch = Batch::default();
        for (i, to) in to.into_iter().enumerate() {
            let blocks = (0..400u32 / block_len as u32).map(|b| 2 * (400 - b) + i as u32).collect();
            batch.push(&vec![0; to - from], from, vec![BlockTable { first: 0, blocks }], [0, 0]);
        }
        batch.want_last();
        batch
    }

    /// Many tokens at once on several threads, as one by one by `rope` and `store_kv`.
    #[test]
    fn keys_are_kept_as_they_would_be_one_by_one() {
        let (b, cols) = (CpuBackend::builder().threads(3).build().unwrap(), HEADS * DIM);
        let (frequencies, to) = ((0..DIM / 2).map(|i| 0.7f32.powi(i as i32)).collect::<Vec<_>>(), [150, 87]);
        let rows: usize = to.iter().sum();
        assert!(rows * 2 * cols >= super::super::SMALL, "no thread is woken");
        let numbers = |seed: usize| -> Vec<f32> {
            (0..rows * cols).map(|i| ((i * 7919 + seed) % 2003) as f32 / 500.0 - 2.0).collect()
        };
        let (k, v) = (numbers(1), numbers(2));
        for element in [&F32, &F16, &BF16, &Q8_0, &Q4_0] {
            for (block_len, rope) in [
                (16, Rope::new(frequencies.clone())),
                (5, Rope::new(frequencies.clone()).layout(RopeLayout::Pairs)),
            ] {
                let spec =
                    CacheSpec::new(vec![LayerCache::full(cols, cols)], block_len, 802, 1).element(element);
                let whole = b.plan(batch(block_len, 0, to)).unwrap();
                let cache = b.new_cache(&spec).unwrap();
                let up = |x: &[f32]| b.upload(x, [x.len() / cols, HEADS, DIM].into()).unwrap();
                b.rope_attend(
                    0,
                    up(&k),
                    up(&k),
                    &up(&v),
                    &rope,
                    &cache,
                    &AttnSpec::causal(HEADS, HEADS, DIM),
                    &whole,
                )
                .unwrap();
                let got = b.gather_kv(0, &cache, &whole).unwrap();

                let cache = b.new_cache(&spec).unwrap();
                for t in 0..to[0] {
                    let ends = to.map(|to| (t + 1).min(to));
                    let one = b.plan(batch(block_len, t, ends.map(|end| end.max(t)))).unwrap();
                    let places = [(t < to[0]).then_some(t), (t < to[1]).then_some(to[0] + t)];
                    let of = |x: &[f32]| -> Vec<f32> {
                        places.iter().flatten().flat_map(|row| &x[row * cols..][..cols]).copied().collect()
                    };
                    let k = b.rope(up(&of(&k)), &rope, &one).unwrap();
                    b.store_kv(0, &k, Some(&up(&of(&v))), &cache, &one).unwrap();
                }
                let want = b.gather_kv(0, &cache, &whole).unwrap();
                let bits =
                    |x: &Tensor| -> Vec<u32> { b.download(x).unwrap().iter().map(|v| v.to_bits()).collect() };
                let what = format!("{} in blocks of {block_len}", element.name);
                assert!(bits(&got.0) == bits(&want.0), "keys in {what}");
                assert!(bits(&got.1.unwrap()) == bits(&want.1.unwrap()), "values in {what}");
            }
        }
    }
}
