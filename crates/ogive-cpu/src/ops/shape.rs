//! Operators that move numbers and change none: lookups, splitting, joining, choosing rows.

use super::{by_rows, make_in, read};
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
    let mut out = b.spare.take(ids.len() * dim);
    by_rows(b, &mut out, dim, |first, part| {
        for (out, &id) in part.chunks_exact_mut(dim).zip(&ids[first..]) {
            data.decode_row(id as usize, out);
        }
    });
    Ok(make_in(b, [ids.len(), dim], out))
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

pub(crate) fn split(b: &CpuBackend, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
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
        let mut values = b.spare.take(outer * size * unit);
        by_rows(b, &mut values, size * unit, |first, rows| {
            for (i, row) in rows.chunks_exact_mut(size * unit).enumerate() {
                row.copy_from_slice(&xs[((first + i) * total + from) * unit..][..size * unit]);
            }
        });
        from += size;
        make_in(b, resized(shape, axis, size), values)
    };
    Ok(sizes.iter().map(part).collect())
}

pub(crate) fn concat(b: &CpuBackend, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
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
    let mut out = b.spare.take(shape.len());
    by_rows(b, &mut out, shape.len().checked_div(outer).unwrap_or(0), |first, rows| {
        let mut rest = rows;
        let mut row = first;
        while !rest.is_empty() {
            for part in &parts {
                let n = part.len() / outer;
                let (to, after) = rest.split_at_mut(n);
                to.copy_from_slice(&part[row * n..][..n]);
                rest = after;
            }
            row += 1;
        }
    });
    Ok(make_in(b, shape, out))
}

pub(crate) fn outputs(b: &CpuBackend, x: &Tensor, plan: &Plan) -> Result<Tensor> {
    plan::rows_fit("outputs", x, plan)?;
    let (xs, rows) = (read("outputs", x)?, &plan.batch().outputs);
    let len = x.shape().len() / x.shape().first().max(1);
    let outside = || Error::invalid("outputs", "a wanted row is outside the step");
    let wanted = rows.iter().map(|row| xs.get(*row as usize * len..).and_then(|r| r.get(..len)));
    let wanted = wanted.map(|row| row.ok_or_else(outside)).collect::<Result<Vec<_>>>()?;
    let mut out = b.spare.take(rows.len() * len);
    by_rows(b, &mut out, len, |first, rows| {
        rows.chunks_exact_mut(len).zip(&wanted[first..]).for_each(|(to, from)| to.copy_from_slice(from));
    });
    Ok(make_in(b, x.shape().with_first(rows.len()), out))
}
