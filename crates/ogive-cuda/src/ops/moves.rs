//! Operators that only move values.

use crate::device::Device;
use crate::driver::Address;
use crate::launch::{Call, THREADS};
use crate::record::Need;
use crate::{plan, weight};
use ogive_backend::{Axis, Ids, Plan, Weight};
use ogive_kernels::{EMBED, MOVES};
use ogive_tensor::{Error, Result, Shape, Tensor};

/// The extent an axis stands for, how often parts take turns along the buffer, and elements of one step of the extent.
fn runs(shape: Shape, axis: Axis) -> (usize, usize, usize) {
    match axis {
        Axis::Rows => (shape.first(), 1, shape.dims().iter().skip(1).product()),
        Axis::Cols => (shape.cols(), shape.rows(), 1),
    }
}

fn with_extent(shape: Shape, axis: Axis, n: usize) -> Shape {
    match axis {
        Axis::Rows => shape.with_first(n),
        Axis::Cols => shape.with_cols(n),
    }
}

/// `turns` runs of `width` elements.
struct Runs {
    from: Address,
    from_stride: usize,
    to: Address,
    to_stride: usize,
    width: usize,
    turns: usize,
}

fn copy(device: &Device, at: &str, r: &Runs) -> Result<()> {
    if r.turns == 1 {
        if r.width > 0 {
            device.stream().copy_within(r.to, r.from, 4 * r.width)?;
        }
        return Ok(());
    }
    let blocks = r.width.div_ceil(THREADS as usize).min(1024);
    Call::new(device, at, &MOVES, "copy_runs")
        .at(r.from)
        .long(r.from_stride)
        .at(r.to)
        .long(r.to_stride)
        .count("elements", r.width)
        .count("rows", r.turns)
        .run(
            [blocks, r.turns.min(65_535), 1],
            [THREADS.min(r.width.next_multiple_of(32).max(32) as u32), 1, 1],
        )?;
    Ok(())
}

/// Consecutive parts of one extent. A part may be empty.
pub(crate) fn split(device: &Device, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
    let at = "split";
    let (from, (extent, turns, unit)) = (device.read(at, x)?, runs(x.shape(), axis));
    if sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(extent) {
        let why = format!("parts of {sizes:?} do not add up to {extent} of {:?}", x.shape());
        return Err(Error::invalid(at, why));
    }
    let mut before = 0;
    let part = |&size: &usize| {
        let part = device.tensor(at, with_extent(x.shape(), axis, size))?;
        let (to, start) = (device.read(at, &part)?, from + 4 * (before * unit) as u64);
        before += size;
        let width = size * unit;
        copy(
            device,
            at,
            &Runs { from: start, from_stride: extent * unit, to, to_stride: width, width, turns },
        )?;
        Ok(part)
    };
    sizes.iter().map(part).collect()
}

/// Parts that agree in all other extents, end to end.
pub(crate) fn concat(device: &Device, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
    let at = "concat";
    let first = xs.first().ok_or_else(|| Error::invalid(at, "nothing to lay end to end"))?.shape();
    let mut extent = 0usize;
    for x in xs {
        device.read(at, x)?;
        if with_extent(x.shape(), axis, 1) != with_extent(first, axis, 1) {
            return Err(Error::shape(at, first, x.shape()));
        }
        extent = extent.saturating_add(runs(x.shape(), axis).0);
    }
    let out = device.tensor(at, with_extent(first, axis, extent))?;
    let (to, mut before) = (device.read(at, &out)?, 0);
    for x in xs {
        let (size, turns, unit) = runs(x.shape(), axis);
        let width = size * unit;
        let start = to + 4 * (before * unit) as u64;
        let from = device.read(at, x)?;
        copy(
            device,
            at,
            &Runs { from, from_stride: width, to: start, to_stride: extent * unit, width, turns },
        )?;
        before += size;
    }
    Ok(out)
}

/// The rows whose logits are wanted.
pub(crate) fn outputs(device: &Device, x: &Tensor, plan: &Plan) -> Result<Tensor> {
    let at = "outputs";
    let (from, step) = (device.read(at, x)?, plan::device(at, device, plan)?);
    plan::rows_fit(at, x, plan)?;
    let (_, _, width) = runs(x.shape(), Axis::Rows);
    let wanted = plan.batch().outputs.len();
    let out = device.tensor(at, x.shape().with_first(wanted))?;
    let call = Call::new(device, at, &MOVES, "outputs").at(from).at(device.read(at, &out)?);
    call.count("elements of a row", width).at(step.address()).by_rows(wanted, width)?;
    Ok(out)
}

/// Rows of `table`, one for each row of the step.
pub(crate) fn embed(device: &Device, table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor> {
    let at = "embed";
    let (w, step) = (weight::read(device, at, table)?, plan::device(at, device, plan)?);
    let kind = match ids {
        Ids::Tokens => 0,
        Ids::Positions => 1,
        Ids::Types => 2,
        other => return Err(Error::unsupported(at, format!("CUDA does not know {other:?}"))),
    };
    let ([experts, len, cols], n) = (w.shape, plan.batch().tokens.len());
    if experts != 1 {
        return Err(Error::invalid(at, format!("a weight of {:?} is not one table", w.shape)));
    }
    let largest = step.largest(kind);
    if n > 0 && largest as usize >= len {
        return Err(Error::invalid(at, format!("id {largest} is outside a table of {len} rows")));
    }
    device.needs(Need::Ids { kind, below: len });
    let out = device.tensor(at, [n, cols])?;
    Call::new(device, at, &EMBED, "embed")
        .word("FORMAT", w.format)
        .define("VECTOR", w.is_wide().into())
        .define("KIND", kind)
        .at(w.address())
        .long(w.row_bytes)
        .at(w.order())
        .at(device.read(at, &out)?)
        .count("columns", cols)
        .at(step.address())
        .by_rows(n, cols.div_ceil(8))?;
    Ok(out)
}
