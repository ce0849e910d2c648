//! Activations in the order of a weight's columns, where that is another one (act-order).
//!
//! What rounds activations for a product (`int8`, `matrix`) reads them in that order. For products in single precision they are moved once, and
//! not read in their new order by each kernel: packed kernels read neighbours together, every warp anew, and a move of some rows is
//! little beside the weight that they meet.

use crate::device::Device;
use crate::launch::{Call, THREADS};
use crate::memory::Pool;
use crate::values::bytes;
use crate::weight::{CudaWeight, Kept};
use ogive_kernels::MOVES;
use ogive_tensor::{Error, Result, Tensor};

/// Rows that one launch has blocks for.
const ROWS: usize = 65_535;

/// `x` as the columns of `w`, which has an order, want it.
pub(super) fn moved(device: &Device, at: &str, x: &Tensor, w: &CudaWeight) -> Result<Tensor> {
    let (from, shape, cols) = (device.read(at, x)?, x.shape(), w.shape[2]);
    // The order names columns of the weight's own.
    if shape.cols() != cols {
        return Err(Error::shape(at, shape, w.shape.into()));
    }
    let (rows, y) = (shape.rows(), device.tensor(at, shape)?);
    let threads = THREADS.min(u32::try_from(cols.next_multiple_of(32)).unwrap_or(THREADS));
    Call::new(device, at, &MOVES, "permute_columns")
        .at(from)
        .at(w.order())
        .at(device.read(at, &y)?)
        .count("columns", cols)
        .count("rows", rows)
        .run([cols.div_ceil(THREADS as usize), rows.min(ROWS), 1], [threads, 1, 1])?;
    Ok(y)
}

/// Bytes that a product of `rows` takes for that, as the pool has them.
pub(crate) fn scratch(rows: usize, w: &Kept) -> u64 {
    let moved = || bytes("estimate", [rows, w.shape[2]].into()).ok().and_then(Pool::size);
    if w.ordered { moved().map_or(u64::MAX, |n| n as u64) } else { 0 }
}
