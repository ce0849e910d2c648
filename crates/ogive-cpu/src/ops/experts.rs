//! Rows through the experts chosen for them.
//!
//! Rows are grouped by expert, so that a step reads each expert's weights once. The grouping cannot be seen in the
//! result: a product's bits do not depend on the rows beside it, and each row adds its experts in the order of its own
//! routing.

use super::{elementwise, make, math::Function, read};
use crate::{CpuBackend, held, linear};
use ogive_backend::{Experts, Routing};
use ogive_tensor::{Error, Result, Tensor};

pub(crate) fn experts(b: &CpuBackend, x: &Tensor, routing: &Routing, w: &Experts) -> Result<Tensor> {
    let (n, dim, k) = (x.shape().rows(), x.shape().cols(), routing.ids.shape().cols());
    let (gate, up, down) = (held::now(&w.gate)?, held::now(&w.up)?, held::now(&w.down)?);
    let [count, hidden, _] = w.gate.shape();
    if w.gate.shape() != [count, hidden, dim] || w.up.shape() != w.gate.shape() {
        return Err(Error::shape("experts", w.gate.shape().into(), w.up.shape().into()));
    }
    if w.down.shape() != [count, dim, hidden] {
        return Err(Error::shape("experts", w.gate.shape().into(), w.down.shape().into()));
    }
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
    let f = Function::of(w.activation)?;
    let xs = read("experts", x)?;
    let mut outs = vec![0.0; n * k * dim]; // [n, k, dim]
    for (e, places) in places.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
        let mut rows = Vec::with_capacity(places.len() * dim);
        places.iter().for_each(|p| rows.extend_from_slice(&xs[p / k * dim..][..dim]));
        let mut h = vec![0.0; places.len() * hidden];
        let path = b.path;
        let apply = move |part: &mut [f32]| elementwise::apply(path, f, part);
        linear::linear_gated(&b.pool, &rows, places.len(), &gate, &up, e, apply, &mut h)?;
        linear::linear(&b.pool, &h, places.len(), &down, e, &mut rows)?;
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
