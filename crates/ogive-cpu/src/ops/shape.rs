//! Operators that move numbers and change none: lookups, splitting, joining, choosing rows.

use super::{by_rows, make, read};
use crate::{CpuBackend, held, plan};
use ogive_backend::{Axis, Ids, Plan, Weight};
use ogive_tensor::{Error, Result, Shape, Tensor};

pub(crate) fn embed(b: &CpuBackend, table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor> {
    plan::device(plan)?;
    let (ids, what) = match ids {
        Ids::Tokens => (&plan.batch().tokens, "token"),
        Ids::Positions => (&plan.batch().positions, "position"),
        Ids::Types => (&plan.batch().types, "segment"),
        other => return Err(Error::unsupported("embed", format!("the CPU backend has no ids {other:?}"))),
    };
    let [experts, len, dim] = table.shape();
    if experts != 1 {
        return Err(Error::invalid("embed", format!("a table of {experts} matrices; it must be one")));
    }
    if let Some(id) = ids.iter().find(|&&id| id as usize >= len) {
        return Err(Error::invalid("embed", format!("{what} {id} is outside a table of {len} rows")));
    }
    let data = held::now(table)?;
    let mut out = vec![0.0; ids.len() * dim];
    by_rows(b, &mut out, dim, |first, part| {
        for (out, &id) in part.chunks_exact_mut(dim).zip(&ids[first..]) {
            data.decode_row(id as usize, out);
        }
    });
    Ok(make([ids.len(), dim], out))
}

/// How often parts take turns, and how many elements one step of the extent is.
fn runs(shape: Shape, axis: Axis) -> (usize, usize) {
    match axis {
        Axis::Rows => (1, shape.len() / shape.first().max(1)),
        Axis::Cols => (shape.rows(), 1),
    }
}

fn resized(shape: Shape, axis: Axis, size: usize) -> Shape {
    if axis == Axis::Rows { shape.with_first(size) } else { shape.with_cols(size) }
}

fn extent(shape: Shape, axis: Axis) -> usize {
    if axis == Axis::Rows { shape.first() } else { shape.cols() }
}

pub(crate) fn split(x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
    let (xs, shape) = (read("split", x)?, x.shape());
    let total = extent(shape, axis);
    let sum = sizes.iter().try_fold(0usize, |sum, s| sum.checked_add(*s));
    if sum != Some(total) {
        let why = format!("parts {sizes:?} do not add up to the extent {total} of {shape:?}");
        return Err(Error::invalid("split", why));
    }
    let (outer, unit) = runs(shape, axis);
    let mut from = 0;
    let part = |&size: &usize| {
        let mut values = Vec::with_capacity(outer * size * unit);
        for o in 0..outer {
            values.extend_from_slice(&xs[(o * total + from) * unit..][..size * unit]);
        }
        from += size;
        make(resized(shape, axis, size), values)
    };
    Ok(sizes.iter().map(part).collect())
}

pub(crate) fn concat(xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
    let first = xs.first().ok_or_else(|| Error::invalid("concat", "nothing to lay end to end"))?.shape();
    let mut total = 0;
    for x in xs {
        let shape = x.shape();
        let own = extent(shape, axis);
        if resized(first, axis, own) != shape {
            return Err(Error::shape("concat", first, shape));
        }
        total += own;
    }
    let parts = xs.iter().map(|x| read("concat", x)).collect::<Result<Vec<_>>>()?;
    let shape = resized(first, axis, total);
    let outer = if axis == Axis::Rows { 1 } else { first.rows() };
    let mut out = Vec::with_capacity(shape.len());
    for o in 0..outer {
        for part in &parts {
            let n = part.len() / outer;
            out.extend_from_slice(&part[o * n..][..n]);
        }
    }
    Ok(make(shape, out))
}

pub(crate) fn outputs(x: &Tensor, plan: &Plan) -> Result<Tensor> {
    plan::rows_fit("outputs", x, plan)?;
    let (xs, rows) = (read("outputs", x)?, &plan.batch().outputs);
    let len = x.shape().len() / x.shape().first().max(1);
    let mut out = Vec::with_capacity(rows.len() * len);
    for &row in rows {
        let row = xs.get(row as usize * len..).and_then(|r| r.get(..len));
        let row = row.ok_or_else(|| Error::invalid("outputs", "a wanted row is outside the step"))?;
        out.extend_from_slice(row);
    }
    Ok(make(x.shape().with_first(rows.len()), out))
}
