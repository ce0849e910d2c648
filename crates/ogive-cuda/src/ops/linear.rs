//! Products with weights: one kernel for few rows, which are bound by the weight's bytes, and one for many, which are bound by
//! arithmetic; where the backend was told to compute in a half, tensor cores for more than one row (`matrix`); and where it was told
//! to round few rows for packed weights, integers (`int8`), which go first.

use crate::builder::Compute;
use crate::device::Device;
use crate::launch::Call;
use crate::ops::elementwise::function;
use crate::ops::int8::{self, Codes};
use crate::ops::matrix::{self, Halves};
use crate::weight::{self, CudaWeight};
use ogive_backend::{Activation, Weight};
use ogive_kernels::{LINEAR_FEW, LINEAR_MANY};
use ogive_tensor::{Error, Result, Tensor};

/// More rows than this are done in tiles.
pub(super) const FEW: usize = 8;
/// Warps of a block where rows are few, an output each.
pub(super) const WARPS: u32 = 4;
/// Rows and outputs of a tile.
const TILE: usize = 64;

/// What earlier products left of the input they share.
#[derive(Default)]
struct Rounded {
    halves: Option<Halves>,
    codes: Option<Codes>,
}

/// `x · wᵀ`. `[.., in] -> [.., out]`
pub(crate) fn linear(device: &Device, compute: Compute, x: &Tensor, w: &Weight) -> Result<Tensor> {
    one(device, "linear", compute, x, w, &mut Rounded::default())
}

/// Several products of one input, which is rounded once.
pub(crate) fn linear_many(
    device: &Device,
    compute: Compute,
    x: &Tensor,
    ws: &[&Weight],
) -> Result<Vec<Tensor>> {
    let mut rounded = Rounded::default();
    ws.iter().map(|w| one(device, "linear_many", compute, x, w, &mut rounded)).collect()
}

/// Two products of one input, likewise.
pub(crate) fn both(
    device: &Device,
    compute: Compute,
    x: &Tensor,
    [a, b]: [&Weight; 2],
) -> Result<(Tensor, Tensor)> {
    let (at, mut rounded) = ("linear_gated", Rounded::default());
    Ok((one(device, at, compute, x, a, &mut rounded)?, one(device, at, compute, x, b, &mut rounded)?))
}

/// One product; `rounded` is what earlier ones left of the input.
fn one(
    device: &Device,
    at: &str,
    compute: Compute,
    x: &Tensor,
    w: &Weight,
    Rounded { halves, codes }: &mut Rounded,
) -> Result<Tensor> {
    let (from, w) = (device.read(at, x)?, weight::read(device, at, w)?);
    let [experts, out, cols] = w.shape;
    if experts != 1 || x.shape().cols() != cols {
        return Err(Error::shape(at, x.shape(), w.shape.into()));
    }
    let n = x.shape().rows();
    let y = device.tensor(at, x.shape().with_cols(out))?;
    let to = device.read(at, &y)?;
    if int8::takes(device, n, w) {
        let x = match codes.take() {
            Some(x) => codes.insert(x),
            None => codes.insert(int8::codes(device, at, x)?),
        };
        int8::product(device, at, x, w, &y, n)?;
    } else if matrix::takes(device, compute, n, w) {
        let x = match halves.take() {
            Some(x) => halves.insert(x),
            None => halves.insert(matrix::halves(device, at, compute, x)?),
        };
        matrix::product(device, at, x, w, &y, n)?;
    } else if n <= FEW {
        let rows = rows(n);
        let call =
            product(Call::new(device, at, &LINEAR_FEW, "linear_few"), w, from, to, n).define("ROWS", rows);
        call.run([out.div_ceil(WARPS as usize), n.div_ceil(rows), 1], [32 * WARPS, 1, 1])?;
    } else {
        let call = product(Call::new(device, at, &LINEAR_MANY, "linear_many"), w, from, to, n);
        call.run([out.div_ceil(TILE), n.div_ceil(TILE), 1], [256, 1, 1])?;
    }
    Ok(y)
}

/// `f(x · gateᵀ) * (x · upᵀ)` in one kernel, for few rows; `None` where that is not for this step.
pub(crate) fn linear_gated(
    device: &Device,
    compute: Compute,
    x: &Tensor,
    gate: &Weight,
    up: &Weight,
    f: Activation,
) -> Result<Option<Tensor>> {
    let at = "linear_gated";
    let (from, f) = (device.read(at, x)?, function(f)?);
    let (gate, up) = (weight::read(device, at, gate)?, weight::read(device, at, up)?);
    let ([experts, out, cols], n) = (gate.shape, x.shape().rows());
    let integers = [gate, up].map(|w| int8::takes(device, n, w));
    let tiles = [gate, up].iter().any(|w| matrix::takes(device, compute, n, w));
    if n > FEW || gate.shape != up.shape || integers[0] != integers[1] || (tiles && !integers[0]) {
        return Ok(None);
    }
    if experts != 1 || x.shape().cols() != cols {
        return Err(Error::shape(at, x.shape(), gate.shape.into()));
    }
    let (y, rows) = (device.tensor(at, x.shape().with_cols(out))?, rows(n));
    if integers[0] {
        int8::gated(device, at, &int8::codes(device, at, x)?, [gate, up], f, &y, n)?;
        return Ok(Some(y));
    }
    Call::new(device, at, &LINEAR_FEW, "linear_gated_few")
        .word("FORMAT", gate.format)
        .word("UP", up.format)
        .define("VECTOR", gate.is_wide().into())
        .define("ROWS", rows)
        .at(from)
        .at(gate.address())
        .long(gate.row_bytes)
        .at(up.address())
        .long(up.row_bytes)
        .at(device.read(at, &y)?)
        .count("rows", n)
        .count("outputs", out)
        .count("inputs", cols)
        .number(f)
        .run([out.div_ceil(WARPS as usize), n.div_ceil(rows), 1], [32 * WARPS, 1, 1])?;
    Ok(Some(y))
}

/// Rows that a kernel for few does at a time: as few versions of it as make a difference.
pub(super) fn rows(n: usize) -> usize {
    [1, 4].into_iter().find(|&r| n <= r).unwrap_or(FEW)
}

/// What both kernels take.
fn product<'a>(call: Call<'a>, w: &CudaWeight, from: u64, to: u64, n: usize) -> Call<'a> {
    let [_, out, cols] = w.shape;
    call.word("FORMAT", w.format)
        .define("VECTOR", w.is_wide().into())
        .at(from)
        .at(w.address())
        .at(to)
        .count("rows", n)
        .count("outputs", out)
        .count("inputs", cols)
        .long(w.row_bytes)
}
