//! Rotary position embedding.

use super::{by_rows, take};
use crate::{CpuBackend, plan};
use ogive_backend::{Plan, Rope, RopeLayout};
use ogive_tensor::{Error, Result, Tensor};

pub(crate) fn rope(b: &CpuBackend, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
    let &[_, heads, dim] = x.shape().dims() else {
        return Err(Error::invalid("rope", format!("{:?} is not [rows, heads, dim]", x.shape())));
    };
    plan::rows_fit("rope", &x, plan)?;
    let half = rope.inv_freq.len();
    if half.checked_mul(2).is_none_or(|n| n > dim) {
        let why = format!("{half} frequencies need {} elements of a head of {dim}", 2 * half as u128);
        return Err(Error::invalid("rope", why));
    }
    let pairs = match rope.layout {
        RopeLayout::Halves => false,
        RopeLayout::Pairs => true,
        other => return Err(Error::unsupported("rope", format!("the CPU backend has no layout {other:?}"))),
    };
    let angles = plan::device(plan)?.angles(rope, &plan.batch().positions)?;
    let (_, mut x) = take("rope", x)?;
    by_rows(b, x.values(), heads * dim, |first, part| {
        for (i, row) in part.chunks_exact_mut(heads * dim).enumerate() {
            let at = (first + i) * half;
            let (cos, sin) = (&angles.cos[at..][..half], &angles.sin[at..][..half]);
            for head in row.chunks_exact_mut(dim) {
                if pairs {
                    for ((pair, cos), sin) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                        (pair[0], pair[1]) = turn(pair[0], pair[1], *cos, *sin);
                    }
                } else {
                    let (low, high) = head.split_at_mut(half);
                    for (((a, b), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                        (*a, *b) = turn(*a, *b, *cos, *sin);
                    }
                }
            }
        }
    });
    Ok(x.done())
}

#[inline(always)]
fn turn(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a * cos - b * sin, b * cos + a * sin)
}
