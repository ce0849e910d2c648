//! Rotary position embedding, in place.

use crate::device::Device;
use crate::launch::Call;
use crate::plan;
use ogive_backend::{Plan, Rope, RopeLayout};
use ogive_kernels::ROPE;
use ogive_tensor::{Error, Result, Tensor};

/// Rotates the first `2 * inv_freq.len()` elements of each head of `[n, heads, dim]`.
pub(crate) fn rope(device: &Device, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
    let at = "rope";
    device.read(at, &x)?;
    let (shape, step) = (x.shape(), plan::device(at, device, plan)?);
    let &[n, heads, dim] = shape.dims() else {
        return Err(Error::invalid(at, format!("needs [rows, heads, dim] and was given {shape:?}")));
    };
    let (pairs, rows) = (rope.inv_freq.len(), plan.batch().positions.len());
    if n != rows || pairs > dim / 2 {
        let why = format!("{shape:?} with {rows} positions and {pairs} frequencies");
        return Err(Error::invalid(at, why));
    }
    let neighbours = match rope.layout {
        RopeLayout::Halves => false,
        RopeLayout::Pairs => true,
        other => return Err(Error::unsupported(at, format!("CUDA does not know {other:?}"))),
    };
    let frequencies = device.constant(at, &rope.inv_freq)?;
    let x = device.owned(at, x)?;
    if pairs == 0 || heads == 0 {
        return Ok(x);
    }
    Call::new(device, at, &ROPE, "rope")
        .at(device.read(at, &x)?)
        .at(frequencies.address())
        .float(rope.factor)
        .count("heads", heads)
        .count("elements of a head", dim)
        .count("pairs", pairs)
        .yes(neighbours)
        .at(step.address())
        .run([n, 1, 1], [32, 8, 1])?;
    Ok(x)
}
