//! Products with weights: one kernel for few rows, which are bound by the weight's bytes, and one for many, which are bound by
//! arithmetic.

use crate::device::Device;
use crate::launch::Call;
use crate::weight::{self, CudaWeight};
use ogive_backend::Weight;
use ogive_kernels::{LINEAR_FEW, LINEAR_MANY};
use ogive_tensor::{Error, Result, Tensor};

/// More rows than this are done in tiles.
const FEW: usize = 8;
/// Warps of a block where rows are few, an output each.
const WARPS: u32 = 4;
/// Rows and outputs of a tile.
const TILE: usize = 64;

/// `x · wᵀ`. `[.., in] -> [.., out]`
pub(crate) fn linear(device: &Device, x: &Tensor, w: &Weight) -> Result<Tensor> {
    let at = "linear";
    let (from, w) = (device.read(at, x)?, weight::read(device, at, w)?);
    let [experts, out, cols] = w.shape;
    if experts != 1 || x.shape().cols() != cols {
        return Err(Error::shape(at, x.shape(), w.shape.into()));
    }
    let n = x.shape().rows();
    let y = device.tensor(at, x.shape().with_cols(out))?;
    let to = device.read(at, &y)?;
    if n <= FEW {
        // As few versions of a kernel as make a difference.
        let rows = [1, 4, FEW].into_iter().find(|&r| n <= r).unwrap_or(FEW);
        let call =
            product(Call::new(device, at, &LINEAR_FEW, "linear_few"), w, from, to, n).define("ROWS", rows);
        call.run([out.div_ceil(WARPS as usize), n.div_ceil(rows), 1], [32 * WARPS, 1, 1])?;
    } else {
        let call = product(Call::new(device, at, &LINEAR_MANY, "linear_many"), w, from, to, n);
        call.run([out.div_ceil(TILE), n.div_ceil(TILE), 1], [256, 1, 1])?;
    }
    Ok(y)
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
