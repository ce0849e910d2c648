//! Rows through the experts chosen for them.
//!
//! Rows are grouped by expert, so that a step reads each expert's weights once. The grouping cannot be seen in the
//! result: a product's bits do not depend on the rows beside it, and each row adds its experts in the order of its own
//! routing.

use super::{elementwise, make, math::Function, read};
use crate::{CpuBackend, held, linear};
use ogive_backend::{Experts, Gating, Routing};
use ogive_tensor::{Error, Result, Tensor};

/// What happens between an expert's products, beside the activation: biases, and another gating.
#[derive(Clone, Copy)]
struct Between<'a> {
    f: Function,
    /// Of gate and up; the third, of down, comes after.
    bias: Option<[&'a [f32]; 3]>,
    limit: Option<f32>,
}

impl<'a> Between<'a> {
    fn of(w: &'a Experts) -> Result<Self> {
        let bias = match &w.bias {
            Some([gate, up, down]) => {
                Some([read("experts", gate)?, read("experts", up)?, read("experts", down)?])
            }
            None => None,
        };
        let limit = match w.gating {
            Gating::Product => None,
            Gating::Clamped { limit } => Some(limit),
            other => {
                return Err(Error::unsupported("experts", format!("the CPU backend has no {other:?}")));
            }
        };
        Ok(Self { f: Function::of(w.activation)?, bias, limit })
    }

    fn is_plain(&self) -> bool {
        self.bias.is_none() && self.limit.is_none()
    }

    /// A row of expert `e`: what came of the gate becomes what goes to `down`.
    fn row(&self, b: &CpuBackend, e: usize, gate: &mut [f32], up: &mut [f32]) {
        if let Some([of_gate, of_up, _]) = self.bias {
            let begin = e * gate.len();
            add(gate, &of_gate[begin..]);
            add(up, &of_up[begin..]);
        }
        // Comparisons, as bounds of what is no number are none.
        if let Some(limit) = self.limit {
            gate.iter_mut().for_each(|g| *g = if *g > limit { limit } else { *g });
            up.iter_mut().for_each(|u| *u = u.clamp(-limit, limit) + 1.0);
        }
        elementwise::apply(b.path, self.f, gate);
        gate.iter_mut().zip(up).for_each(|(g, u)| *g *= *u);
    }
}

/// Adds the first of `bias` to a row.
fn add(row: &mut [f32], bias: &[f32]) {
    row.iter_mut().zip(bias).for_each(|(v, b)| *v += b);
}

pub(crate) fn experts(b: &CpuBackend, x: &Tensor, routing: &Routing, w: &Experts) -> Result<Tensor> {
    let (n, dim, k) = (x.shape().rows(), x.shape().cols(), routing.ids.shape().cols());
    let (gate, up, down) = (held::now(&w.gate)?, held::now(&w.up)?, held::now(&w.down)?);
    w.check(dim)?;
    let [count, hidden, _] = w.gate.shape();
    let between = Between::of(w)?;
    let (ids, shares) = (routing.ids.data::<Vec<u32>>()?, read("experts", &routing.weights)?);
    if ids.len() != n * k || shares.len() != n * k {
        return Err(Error::shape("experts", x.shape(), routing.ids.shape()));
    }
    // The places of `[n, k]` that each expert has.
    let mut places = vec![Vec::new(); count];
    for (place, &e) in ids.iter().enumerate() {
        let of = places
            .get_mut(e as usize)
            .ok_or_else(|| Error::invalid("experts", format!("a row was sent to expert {e} of {count}")))?;
        of.push(place);
    }
    let xs = read("experts", x)?;
    let mut outs = vec![0.0; n * k * dim]; // [n, k, dim]
    for (e, places) in places.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
        let mut rows = Vec::with_capacity(places.len() * dim);
        places.iter().for_each(|p| rows.extend_from_slice(&xs[p / k * dim..][..dim]));
        let mut h = vec![0.0; places.len() * hidden];
        let Between { f, bias, .. } = between;
        if between.is_plain() {
            let path = b.path;
            let apply = move |part: &mut [f32]| elementwise::apply(path, f, part);
            linear::linear_gated(&b.pool, &rows, places.len(), &gate, &up, e, apply, &mut h)?;
        } else {
            let mut both = [h, vec![0.0; places.len() * hidden]];
            linear::linear_many(&b.pool, &rows, places.len(), &[&gate, &up], e, &mut both)?;
            let [g, u] = &mut both;
            super::by_rows_of_two(b, [g, u], hidden, |_, [g, u]| {
                for (g, u) in g.chunks_exact_mut(hidden).zip(u.chunks_exact_mut(hidden)) {
                    between.row(b, e, g, u);
                }
            });
            [h, _] = both;
        }
        linear::linear(&b.pool, &h, places.len(), &down, e, &mut rows)?;
        if let Some([.., down]) = bias {
            rows.chunks_exact_mut(dim.max(1)).for_each(|row| add(row, &down[e * dim..]));
        }
        for (p, y) in places.iter().zip(rows.chunks_exact(dim.max(1))) {
            outs[p * dim..][..dim].copy_from_slice(y);
        }
    }
    let mut out = vec![0.0; n * dim];
    super::by_rows(b, &mut out, dim, |first, part| {
        for (i, o) in part.chunks_exact_mut(dim).enumerate() {
            for j in (first + i) * k..(first + i + 1) * k {
                o.iter_mut().zip(&outs[j * dim..][..dim]).for_each(|(o, y)| *o += shares[j] * y);
            }
        }
    });
    Ok(make(x.shape(), out))
}
