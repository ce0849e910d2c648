//! Products of packed weights with few rows of activations in 8-bit integers: when, and the calls.
//!
//! They go before tensor cores for one to eight rows where they are asked for. By arithmetic they take less time for up to four rows,
//! and tiles less for eight, by no more than half again; but so a row has the same bits in any company of up to eight, and one error.
//!
//! What an RMS norm or attention gives comes rounded, by its own kernel and to the same bits, so that such products of it need no other launch.
//! Neither knows what will read its result: it rounds all that could be meant, as a quarter more of what it writes is little.

use crate::builder::Activations;
use crate::cuda::Products;
use crate::device::Device;
use crate::driver::{Address, DeviceInfo};
use crate::launch::Call;
use crate::memory::{Buffer, Pool};
use crate::ops::linear::{FEW, TOGETHER, WARPS, rows, weight_and_result};
use crate::weight::{CudaWeight, Kept};
use ogive_kernels::{CODES, LINEAR_GATED_INT8, LINEAR_INT8, Source};
use ogive_tensor::{Error, Result, Shape, Tensor};
use std::sync::Arc;

/// The oldest device with `dp4a`.
const OLDEST: (u32, u32) = (6, 1);
/// Elements that share a scale.
const GROUP: usize = 32;
/// Bytes of a scale and two sums.
const SCALE: usize = 8;

/// Whether products of `n` rows with a weight that is kept so are computed in integers.
pub(crate) fn is_for(info: &DeviceInfo, activations: Activations, n: usize, w: &Kept) -> bool {
    activations == Activations::Int8 && info.capability >= OLDEST && (1..=FEW).contains(&n) && w.block().0 > 1
}

/// The same on this device.
pub(super) fn takes(device: &Device, n: usize, w: &CudaWeight) -> bool {
    is_for(&device.info, device.activations, n, &w.kept())
}

/// Activations as codes and, behind those, a scale and sums for each group.
#[derive(Clone, Debug)]
pub(crate) struct Codes {
    buffer: Arc<Buffer>,
    /// Bytes of all codes.
    codes: usize,
}

impl Codes {
    /// Not yet written, for so many rows.
    fn new(device: &Device, at: &str, n: usize, cols: usize) -> Result<Self> {
        let all = if cols.is_multiple_of(GROUP) { bytes(n, cols) } else { None };
        let all = all.ok_or_else(|| {
            Error::invalid(at, format!("{n} rows of {cols} elements are no whole groups of {GROUP} to round"))
        })?;
        Ok(Self { buffer: Arc::new(device.take(at, all)?), codes: n * cols })
    }

    /// Where all of it lies, and its bytes.
    #[cfg(test)]
    pub(super) fn place(&self) -> (Address, usize) {
        (self.buffer.address(), self.codes + self.codes / GROUP * SCALE)
    }

    /// What every kernel that multiplies them takes first.
    pub(super) fn given<'a>(&self, call: Call<'a>) -> Call<'a> {
        call.at(self.buffer.address()).at(self.buffer.address() + self.codes as u64)
    }
}

/// Bytes of `rows` of `cols` that are rounded; packed weights have rows of whole groups.
fn bytes(rows: usize, cols: usize) -> Option<usize> {
    let codes = rows.checked_mul(cols)?;
    codes.checked_add(codes / GROUP * SCALE)
}

/// Bytes that such a product takes beside its result, as the pool has them.
pub(crate) fn scratch(rows: usize, w: &Kept) -> u64 {
    size(rows, w.shape[2])
}

/// Bytes of rows that are rounded, as the pool has them.
pub(super) fn size(rows: usize, cols: usize) -> u64 {
    bytes(rows, cols).and_then(Pool::size).map_or(u64::MAX, |n| n as u64)
}

/// Whether a norm, or attention, rounds its result of this shape too: of as many rows as products take in integers. Results of more dimensions are heads,
/// which meet no weight.
fn is_left(info: &DeviceInfo, activations: Activations, shape: Shape) -> bool {
    let (n, cols) = (shape.rows(), shape.cols());
    let wanted = activations == Activations::Int8 && info.capability >= OLDEST && (1..=FEW).contains(&n);
    wanted && shape.dims().len() == 2 && cols > 0 && cols.is_multiple_of(GROUP)
}

/// Bytes that a norm or attention leaves so, as the pool has them.
pub(crate) fn left(products: &Products, shape: Shape) -> u64 {
    let is_left = is_left(&products.info, products.activations, shape);
    if is_left { size(shape.rows(), shape.cols()) } else { 0 }
}

/// A tensor for the result of a norm or attention, with codes if it is to leave them.
pub(super) fn normed(device: &Device, at: &str, shape: Shape) -> Result<Tensor> {
    if !is_left(&device.info, device.activations, shape) {
        return device.tensor(at, shape);
    }
    device.rounded(at, shape, Codes::new(device, at, shape.rows(), shape.cols())?)
}

/// Where codes and groups of a norm's result are to be written; nowhere, if it leaves none.
pub(super) fn places(y: &Tensor) -> [Address; 2] {
    Device::codes(y).map_or([0; 2], |y| [y.buffer.address(), y.buffer.address() + y.codes as u64])
}

/// The codes of `x`, of rows that a packed weight multiplies: those that a norm left, or made now. Where `order` is not 0, it lies there, with
/// a number for each column, and the codes are in it.
pub(super) fn codes(device: &Device, at: &str, x: &Tensor, order: Address) -> Result<Codes> {
    let (from, cols) = (device.read(at, x)?, x.shape().cols());
    if let Some(left) = Device::codes(x).filter(|_| order == 0) {
        return Ok(left.clone());
    }
    let made = Codes::new(device, at, x.shape().rows(), cols)?;
    made.given(Call::new(device, at, &CODES, "codes").at(from).at(order))
        .long(made.codes / 4)
        .count("columns", cols)
        .over(made.codes / 4)?;
    Ok(made)
}

/// What both kernels begin with: the defines and the activations.
fn call<'a>(
    device: &'a Device,
    at: &'a str,
    source: &'static Source,
    x: &Codes,
    format: &'static str,
    rows: usize,
) -> Call<'a> {
    x.given(Call::new(device, at, source, source.name).word("FORMAT", format).define("ROWS", rows))
}

/// The names of their formats in the kernel, of weights that one launch multiplies.
const NAMES: [&str; TOGETHER] = ["FORMAT", "FORMAT2", "FORMAT3"];

/// `x · wᵀ` of each weight into its result, all of one input; weights of one length of rows and in one order.
pub(super) fn products(
    device: &Device,
    at: &str,
    x: &Codes,
    products: &[(&CudaWeight, &Tensor)],
    n: usize,
) -> Result<()> {
    // Two outputs of a warp share what they read of several rows, if every multiprocessor still gets a block. The bits are the same.
    let least = device.info.multiprocessors.max(1) as usize;
    for some in products.chunks(TOGETHER) {
        let busy = blocks(some, 2) >= least;
        with(device, at, x, some, n, if n > 1 && busy { 2 } else { 1 })?;
    }
    Ok(())
}

/// Blocks of these weights, with so many outputs of a warp.
fn blocks(products: &[(&CudaWeight, &Tensor)], outs: usize) -> usize {
    products.iter().map(|(w, _)| w.shape[1].div_ceil(outs * WARPS as usize)).sum()
}

/// The same of so many as one launch takes, with so many outputs of a warp.
fn with(
    device: &Device,
    at: &str,
    x: &Codes,
    products: &[(&CudaWeight, &Tensor)],
    n: usize,
    outs: usize,
) -> Result<()> {
    let Some(((first, _), rows)) = products.first().map(|first| (first, rows(n))) else { return Ok(()) };
    let mut call = call(device, at, &LINEAR_INT8, x, first.format, rows);
    for (name, (w, _)) in NAMES.into_iter().zip(products).skip(1) {
        call = call.word(name, w.format);
    }
    call = call.define("OUTS", outs).count("rows", n).count("inputs", first.shape[2]);
    for i in 0..TOGETHER {
        call = weight_and_result(device, at, call, products.get(i))?;
    }
    call.run([blocks(products, outs), n.div_ceil(rows), 1], [32 * WARPS, 1, 1])?;
    Ok(())
}

/// `f(x · gateᵀ) * (x · upᵀ)`, of weights of one shape.
pub(super) fn gated(
    device: &Device,
    at: &str,
    x: &Codes,
    [gate, up]: [&CudaWeight; 2],
    f: u32,
    y: &Tensor,
    n: usize,
) -> Result<()> {
    let ([_, out, cols], rows) = (gate.shape, rows(n));
    call(device, at, &LINEAR_GATED_INT8, x, gate.format, rows)
        .word("UP", up.format)
        .at(gate.address())
        .long(gate.row_bytes)
        .at(up.address())
        .long(up.row_bytes)
        .at(device.read(at, y)?)
        .count("rows", n)
        .count("outputs", out)
        .count("inputs", cols)
        .number(f)
        .run([out.div_ceil(WARPS as usize), n.div_ceil(rows), 1], [32 * WARPS, 1, 1])?;
    Ok(())
}

#[cfg(test)]
#[path = "int8_tests.rs"]
mod tests;
