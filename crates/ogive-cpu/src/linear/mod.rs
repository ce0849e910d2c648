//! Products of activations and weights.
//!
//! The result for one token and one row of a weight is a pure function of that token and that row: the same bits however
//! many tokens there are, wherever the token stands among them, on any number of threads and on every path. `dot` says
//! which function.

mod dot;

use crate::{
    pool::{Matrix, Pool},
    weight::CpuWeight,
};
use ogive_tensor::{Error, Result};

/// Rows of a weight that a thread takes at a time.
const STRIPE: usize = 32;

/// `x · wᵀ` for one expert of `w`. `x`: `[n, k]`, `out`: `[n, rows]`. An activation that is not a number or not finite
/// makes the results that read it not a number.
pub(crate) fn linear(
    pool: &Pool,
    x: &[f32],
    n: usize,
    w: &CpuWeight,
    expert: usize,
    out: &mut [f32],
) -> Result<()> {
    let [_, rows, cols] = check(x, n, w, expert)?;
    if out.len() != n * rows {
        return Err(Error::shape("linear", [out.len()].into(), [n, rows].into()));
    }
    pool.stripes(&mut [Matrix { values: out, cols: rows }], STRIPE, &|_, first, stripe| {
        let mut row = vec![0.0; cols];
        for r in 0..stripe.width() {
            w.decode_row(expert * rows + first + r, &mut row);
            for t in 0..n {
                stripe.row(t)[r] = dot::f32(&x[t * cols..][..cols], &row);
            }
        }
    });
    Ok(())
}

/// Products of one input with several weights of one expert each, in one fork and join.
pub(crate) fn linear_many(
    pool: &Pool,
    x: &[f32],
    n: usize,
    ws: &[&CpuWeight],
    outs: &mut [Vec<f32>],
) -> Result<()> {
    if ws.len() != outs.len() {
        return Err(Error::invalid("linear_many", "as many results as weights are needed"));
    }
    ws.iter().zip(outs).try_for_each(|(w, out)| linear(pool, x, n, w, 0, out))
}

/// `f(x · gateᵀ) * (x · upᵀ)` for one expert; `f` changes a slice in place.
pub(crate) fn linear_gated(
    pool: &Pool,
    x: &[f32],
    n: usize,
    gate: &CpuWeight,
    up: &CpuWeight,
    expert: usize,
    f: &(dyn Fn(&mut [f32]) + Sync),
    out: &mut [f32],
) -> Result<()> {
    let mut second = vec![0.0; out.len()];
    linear(pool, x, n, gate, expert, out)?;
    linear(pool, x, n, up, expert, &mut second)?;
    f(out);
    out.iter_mut().zip(second).for_each(|(g, u)| *g *= u);
    Ok(())
}

/// The weight's shape, if `x` and `expert` fit it.
fn check(x: &[f32], n: usize, w: &CpuWeight, expert: usize) -> Result<[usize; 3]> {
    let shape @ [experts, _, cols] = w.shape();
    if x.len() != n * cols {
        return Err(Error::shape("linear", [n, x.len() / n.max(1)].into(), shape.into()));
    }
    if expert >= experts {
        return Err(Error::invalid(
            "linear",
            format!("`{}` has no expert {expert}, only {experts}", w.host().name),
        ));
    }
    Ok(shape)
}
