//! Rows of activations rounded to 8 bits, for products of packed weights in integers (`int8`): in what order, by whom, and what it takes.
//!
//! Of one row, and on devices without tensor cores for integers of few, codes lie one row after the other; of two to 64 rows elsewhere in
//! tiles, in the order of the fragments that those take (`rounding.cu`).
//!
//! What an RMS norm gives comes rounded, by its own kernel and to the same bits, so that such products of it need no other launch; what attention gives
//! does where rows lie one after the other, and what is gated where they lie in tiles. None knows what will read its result: it rounds all that
//! could be meant, as a quarter more of what it writes is little.

use crate::builder::Activations;
use crate::cuda::Products;
use crate::device::Device;
use crate::driver::{Address, DeviceInfo};
use crate::launch::Call;
use crate::memory::{Buffer, Pool};
use crate::ops::linear::FEW;
use crate::weight::Kept;
use ogive_kernels::CODES;
use ogive_tensor::{Error, Result, Shape, Tensor};
use std::sync::Arc;

/// The oldest device with `dp4a`.
pub(super) const OLDEST: (u32, u32) = (6, 1);
/// Elements that share a scale.
pub(super) const GROUP: usize = 32;
/// Bytes of a scale and two sums.
const SCALE: usize = 8;

/// The oldest device with `mma` of 32 bytes.
const OLDEST_MMA: (u32, u32) = (8, 0);
/// So many rows at least are multiplied by tensor cores in integers, and so many at most.
pub(super) const MMA: usize = 2;
const MOST: usize = 64;

/// Whether so many rows are rounded to tiles, for tensor cores.
pub(super) fn goes_to_tiles(info: &DeviceInfo, n: usize) -> bool {
    info.capability >= OLDEST_MMA && (MMA..=MOST).contains(&n)
}

/// Activations as codes and, behind those, a scale and sums for each group: rows one after the other, or in tiles.
#[derive(Clone, Debug)]
pub(crate) struct Codes {
    buffer: Arc<Buffer>,
    /// Bytes of all codes.
    codes: usize,
    /// In tiles, pairs of groups in a row; else none.
    pairs: usize,
    /// Rows and columns that tiles are of; those of rows may be any that are as many elements.
    of: [usize; 2],
}

/// Rows and columns of a tile.
const TILE: [usize; 2] = [8, 2 * GROUP];

impl Codes {
    /// Not yet written, for so many rows.
    fn new(device: &Device, at: &str, n: usize, cols: usize) -> Result<Self> {
        let all = if cols.is_multiple_of(GROUP) { bytes(n, cols) } else { None };
        let all = all.ok_or_else(|| {
            Error::invalid(at, format!("{n} rows of {cols} elements are no whole groups of {GROUP} to round"))
        })?;
        Ok(Self { buffer: Arc::new(device.take(at, all)?), codes: n * cols, pairs: 0, of: [n, cols] })
    }

    /// The same in tiles.
    fn in_tiles(device: &Device, at: &str, n: usize, cols: usize) -> Result<Self> {
        let [rows, filled] = tiled([n, cols]);
        Ok(Self { pairs: filled / TILE[1], of: [n, cols], ..Self::new(device, at, rows, filled)? })
    }

    /// Whether they are one row after the other, which any number of rows may be read from.
    pub(super) fn in_rows(&self) -> bool {
        self.pairs == 0
    }

    /// An error where there are more than a kernel counts in 32 bits: of 64 rows, those of 67 million inputs.
    pub(super) fn check_for_tiles(&self, at: &str) -> Result<()> {
        match u32::try_from(self.codes) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::unsupported(
                at,
                "several rows of so many inputs in integers: compute one at a time",
            )),
        }
    }

    /// Where all of it lies, and its bytes.
    #[cfg(test)]
    pub(super) fn place(&self) -> (Address, usize) {
        (self.buffer.address(), self.codes + self.codes / GROUP * SCALE)
    }

    /// What every kernel that multiplies or makes them takes.
    pub(super) fn given<'a>(&self, call: Call<'a>) -> Call<'a> {
        call.at(self.buffer.address()).at(self.buffer.address() + self.codes as u64)
    }
}

/// Rows and columns filled up to whole tiles.
fn tiled(shape: [usize; 2]) -> [usize; 2] {
    // What cannot be filled up cannot be counted in bytes either, and that says so.
    [0, 1].map(|i| shape[i].checked_next_multiple_of(TILE[i]).unwrap_or(shape[i]))
}

/// Bytes of `rows` of `cols` that are rounded; packed weights have rows of whole groups.
fn bytes(rows: usize, cols: usize) -> Option<usize> {
    let codes = rows.checked_mul(cols)?;
    codes.checked_add(codes / GROUP * SCALE)
}

/// Whether what is gated of two products of `n` rows in integers, with weights of these shapes, is left in tiles.
pub(super) fn leaves_tiles(info: &DeviceInfo, n: usize, [gate, up]: [[usize; 3]; 2]) -> bool {
    goes_to_tiles(info, n) && gate == up && gate[1].is_multiple_of(GROUP)
}

/// What a gated activation leaves its result in, for products in integers.
pub(super) const NAME: &str = "tiles of int8";

/// Bytes that such a product takes beside its result, as the pool has them, of a row that a norm left or a gated activation in tiles.
pub(crate) fn scratch(products: &Products, n: usize, w: &Kept, normed: bool, gated: bool) -> u64 {
    let info = &products.info;
    let shape = [n, w.shape[2]];
    match goes_to_tiles(info, n) {
        true if gated || normed && is_in_tiles(info, shape) => 0,
        true => size_of_tiles(shape),
        false if normed => 0,
        false => size(shape),
    }
}

/// Bytes of rows that are rounded, as the pool has them.
pub(super) fn size([rows, cols]: [usize; 2]) -> u64 {
    bytes(rows, cols).and_then(Pool::size).map_or(u64::MAX, |n| n as u64)
}

/// The same of tiles that hold them.
pub(super) fn size_of_tiles(shape: [usize; 2]) -> u64 {
    size(tiled(shape))
}

/// Whether a norm leaves a result of this shape in tiles: of rows that fill them.
fn is_in_tiles(info: &DeviceInfo, [n, cols]: [usize; 2]) -> bool {
    goes_to_tiles(info, n) && cols.is_multiple_of(TILE[1])
}

/// Whether a norm, or attention, rounds its result of this shape too: of as many rows as products take in integers. Results of more dimensions are heads,
/// which meet no weight.
fn is_left(info: &DeviceInfo, activations: Activations, shape: Shape) -> bool {
    let (n, cols) = (shape.rows(), shape.cols());
    let rows = (1..=FEW).contains(&n) && !goes_to_tiles(info, n) || is_in_tiles(info, [n, cols]);
    let wanted = activations == Activations::Int8 && info.capability >= OLDEST && rows;
    wanted && shape.dims().len() == 2 && cols > 0 && cols.is_multiple_of(GROUP)
}

/// Bytes that a norm leaves so, as the pool has them.
pub(crate) fn left(products: &Products, shape: Shape) -> u64 {
    let (is_left, of) = (is_left(&products.info, products.activations, shape), [shape.rows(), shape.cols()]);
    match is_left {
        true if goes_to_tiles(&products.info, of[0]) => size_of_tiles(of),
        true => size(of),
        false => 0,
    }
}

/// The same of attention, which leaves no tiles.
pub(crate) fn left_in_rows(products: &Products, shape: Shape) -> u64 {
    if goes_to_tiles(&products.info, shape.rows()) { 0 } else { left(products, shape) }
}

/// A tensor for the result of a norm, with codes if it is to leave them.
pub(super) fn normed(device: &Device, at: &str, shape: Shape) -> Result<Tensor> {
    if !is_left(&device.info, device.activations, shape) {
        return device.tensor(at, shape);
    }
    let (n, cols) = (shape.rows(), shape.cols());
    let codes = match goes_to_tiles(&device.info, n) {
        true => Codes::in_tiles(device, at, n, cols)?,
        false => Codes::new(device, at, n, cols)?,
    };
    device.rounded(at, shape, codes)
}

/// The same for attention.
pub(super) fn attended(device: &Device, at: &str, shape: Shape) -> Result<Tensor> {
    match goes_to_tiles(&device.info, shape.rows()) {
        true => device.tensor(at, shape),
        false => normed(device, at, shape),
    }
}

/// Where codes and groups of attention's result are to be written; nowhere, if it leaves none.
pub(super) fn places(y: &Tensor) -> [Address; 2] {
    Device::codes(y).map_or([0; 2], |y| [y.buffer.address(), y.buffer.address() + y.codes as u64])
}

/// The same for the kernel of a norm, with pairs of groups in a row of tiles.
pub(super) fn rounding_to<'a>(y: &Tensor, call: Call<'a>) -> Call<'a> {
    let [codes, groups] = places(y);
    let pairs = Device::codes(y).map_or(0, |y| y.pairs);
    call.at(codes).at(groups).count("pairs of groups", pairs)
}

/// The codes of `x`, of rows that a packed weight multiplies, one after the other: those that a norm left, or made now. Where `order` is not 0, it lies
/// there, with a number for each column, and the codes are in it.
pub(super) fn codes(device: &Device, at: &str, x: &Tensor, order: Address) -> Result<Codes> {
    let (from, cols) = (device.read(at, x)?, x.shape().cols());
    if let Some(left) = Device::codes(x).filter(|left| order == 0 && left.in_rows()) {
        return Ok(left.clone());
    }
    let made = Codes::new(device, at, x.shape().rows(), cols)?;
    made.given(Call::new(device, at, &CODES, "codes").at(from).at(order))
        .count("words of codes", made.codes / 4)
        .count("columns", cols)
        .over(made.codes / 4)?;
    Ok(made)
}

/// What products of so many rows read of `x`, in the order that lies at `order`: as `codes`, or in tiles.
pub(super) fn given(device: &Device, at: &str, x: &Tensor, order: Address) -> Result<Codes> {
    let (n, cols) = (x.shape().rows(), x.shape().cols());
    if !goes_to_tiles(&device.info, n) {
        return codes(device, at, x, order);
    }
    // Tiles of rows that were cut anew since (`Tensor::reshape`) have another order.
    let same = |left: &&Codes| order == 0 && !left.in_rows() && left.of == [n, cols];
    if let Some(left) = Device::codes(x).filter(same) {
        return Ok(left.clone());
    }
    let (from, made) = (device.read(at, x)?, Codes::in_tiles(device, at, n, cols)?);
    to_tiles(
        Call::new(device, at, &CODES, "codes_in_tiles").at(from).at(order).at(0).at(0),
        &made,
        [n, cols],
        0,
    )?;
    Ok(made)
}

/// The rest of that call.
fn to_tiles(call: Call<'_>, made: &Codes, [n, cols]: [usize; 2], f: u32) -> Result<()> {
    let call = made.given(call).count("rows", n).count("columns", cols);
    call.count("pairs of groups", made.pairs).number(f).over(made.codes / 4)?;
    Ok(())
}

/// `f(gate) * up` of two products in tiles, in tiles for the next.
pub(super) fn gated_in_tiles(
    device: &Device,
    at: &str,
    gate: &Tensor,
    up: &Tensor,
    f: u32,
) -> Result<Tensor> {
    let (shape, [from, other]) = (gate.shape(), [device.read(at, gate)?, device.read(at, up)?]);
    let of = [shape.rows(), shape.cols()];
    let y = device.rounded(at, shape, Codes::in_tiles(device, at, of[0], of[1])?)?;
    if let Some(made) = Device::codes(&y) {
        let call = Call::new(device, at, &CODES, "codes_in_tiles").at(from).at(0);
        to_tiles(call.at(other).at(device.read(at, &y)?), made, of, f)?;
    }
    Ok(y)
}
