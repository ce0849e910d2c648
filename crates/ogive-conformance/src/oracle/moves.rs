//! Operators that only move values: split, concat, outputs.

use super::step::batch;
use super::values::{make, read};
use ogive_backend::tensor::{Error, Result, Shape, Tensor};
use ogive_backend::{Axis, Plan};

/// The extent an axis stands for, how often parts take turns along the buffer, and how many elements one step of the
/// extent is.
fn runs(shape: Shape, axis: Axis) -> (usize, usize, usize) {
    match axis {
        Axis::Rows => (shape.first(), 1, shape.dims()[1..].iter().product()),
        Axis::Cols => (shape.cols(), shape.rows(), 1),
    }
}

fn with_extent(shape: Shape, axis: Axis, n: usize) -> Shape {
    match axis {
        Axis::Rows => shape.with_first(n),
        Axis::Cols => shape.with_cols(n),
    }
}

/// Consecutive parts of one extent. A part may be empty.
pub(super) fn split(x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
    let (values, (extent, turns, unit)) = (read("split", x)?, runs(x.shape(), axis));
    if sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(extent) {
        let why = format!("parts of {sizes:?} do not add up to {extent} of {:?}", x.shape());
        return Err(Error::invalid("split", why));
    }
    let mut from = 0;
    let part = |&size: &usize| {
        let run = |turn| &values[(turn * extent + from) * unit..][..size * unit];
        let part: Vec<f32> = (0..turns).flat_map(run).copied().collect();
        from += size;
        make(with_extent(x.shape(), axis, size), part)
    };
    Ok(sizes.iter().map(part).collect())
}

/// Parts that agree in all other extents, end to end.
pub(super) fn concat(xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
    let first = xs.first().ok_or_else(|| Error::invalid("concat", "nothing to lay end to end"))?.shape();
    let (mut parts, mut extent) = (Vec::new(), 0);
    for x in xs {
        let (size, _, unit) = runs(x.shape(), axis);
        if with_extent(x.shape(), axis, 1) != with_extent(first, axis, 1) {
            return Err(Error::shape("concat", first, x.shape()));
        }
        parts.push((read("concat", x)?, size * unit));
        extent += size;
    }
    let (_, turns, _) = runs(first, axis);
    let run = |turn| parts.iter().flat_map(move |(part, len)| &part[turn * len..][..*len]);
    let values: Vec<f32> = (0..turns).flat_map(run).copied().collect();
    Ok(make(with_extent(first, axis, extent), values))
}

/// The rows whose logits are wanted.
pub(super) fn outputs(x: &Tensor, plan: &Plan) -> Result<Tensor> {
    let (values, batch) = (read("outputs", x)?, batch("outputs", plan)?);
    let (n, _, unit) = runs(x.shape(), Axis::Rows);
    if n != batch.tokens.len() {
        let why = format!("{:?} for a step of {} rows", x.shape(), batch.tokens.len());
        return Err(Error::invalid("outputs", why));
    }
    let row = |&r: &u32| &values[r as usize * unit..][..unit];
    Ok(make(x.shape().with_first(batch.outputs.len()), batch.outputs.iter().flat_map(row).copied().collect()))
}
