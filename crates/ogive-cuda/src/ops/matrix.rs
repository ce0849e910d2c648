//! Products by tensor cores: which tile for which rows, and the calls. Of many rows by cuBLAS (`slabs`), where there is one.
//!
//! The choice is one table, from the device's generation and the step's rows to a tile, so that measurements can fill it and nothing
//! else has to change. What stands there now is arithmetic (in `tile_mma.cu`) and has not been measured. It hangs on nothing but
//! sizes and the device: the same step gives the same bits.

use crate::builder::Compute;
use crate::cuda::Products;
use crate::device::Device;
use crate::driver::{Address, DeviceInfo};
use crate::launch::{Call, THREADS};
use crate::memory::{Buffer, Pool};
use crate::ops::elementwise::{self, function};
use crate::ops::int8;
use crate::ops::linear::FEW;
use crate::ops::slabs::{self, Least};
use crate::weight::{CudaWeight, Kept};
use ogive_backend::Activation;
use ogive_kernels::{GATED_HALVES, HALVES, LINEAR_MMA};
use ogive_tensor::{Error, Result, Tensor};
use std::sync::Arc;

/// What a block computes and how its warps share it, by the names of `tile_mma.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Warps along the outputs.
    down: usize,
    /// Warps along the inputs.
    across: usize,
    /// Sixteens of outputs of a warp.
    mt: usize,
    /// Eights of rows.
    nt: usize,
    /// Inputs of a step.
    step: usize,
}

/// For devices of this capability and newer, and for this many rows of activations: a tile.
struct Entry {
    from: (u32, u32),
    rows: [usize; 2],
    tile: Tile,
}

const fn entry(from: (u32, u32), rows: [usize; 2], tile: [usize; 5]) -> Entry {
    Entry { from, rows, tile: Tile::of(tile) }
}

const ANY: usize = usize::MAX;

/// Of the entries that fit, the first that gives every multiprocessor a block is taken; if none does, the one with the most blocks. So for 17 to
/// 64 rows, 32 outputs a block are for weights that have too few for 64: 4096 are 64 blocks, and an H100 has 132 multiprocessors. Such a
/// block has as many warps as the larger one, more of them along the inputs; with 64 rows that takes twice the shared memory for activations,
/// and where it is too much the tile of four warps is taken.
const TABLE: [Entry; 10] = [
    entry((8, 0), [2, 8], [2, 4, 1, 1, 128]),
    entry((8, 0), [9, 16], [2, 4, 1, 2, 128]),
    entry((8, 0), [17, 32], [4, 2, 1, 4, 64]),
    entry((8, 0), [17, 32], [2, 4, 1, 4, 64]),
    entry((8, 0), [65, ANY], [4, 1, 2, 16, 64]),
    entry((8, 0), [33, ANY], [4, 2, 1, 8, 64]),
    entry((8, 0), [33, 64], [2, 4, 1, 8, 64]),
    entry((7, 5), [2, 16], [2, 2, 1, 2, 64]),
    entry((7, 5), [2, ANY], [4, 1, 1, 8, 64]),
    entry((7, 5), [17, 64], [2, 2, 1, 8, 64]),
];

/// Inputs of activations are filled up to a multiple of this: of every tile's step.
const PADDED: usize = 128;

/// The oldest device that computes in this type.
pub(crate) fn oldest(compute: Compute) -> (u32, u32) {
    match compute {
        Compute::F16 => (7, 5),
        Compute::Bf16 => (8, 0),
        // `Auto` is one of the others by the time that there is a weight.
        Compute::F32 | Compute::Auto => (u32::MAX, 0),
    }
}

/// How a weight's rows are staged for a tile.
struct Staged {
    /// Inputs at a time: whole blocks that cover a step.
    raw: usize,
    /// Bytes of a row at a time: an odd number of sixteens, so that rows begin in different banks.
    pitch: usize,
}

impl Tile {
    /// Of its numbers in their order.
    pub(super) const fn of([down, across, mt, nt, step]: [usize; 5]) -> Self {
        Self { down, across, mt, nt, step }
    }

    pub(super) fn outputs(self) -> usize {
        16 * self.mt * self.down
    }

    pub(super) fn rows(self) -> usize {
        8 * self.nt
    }

    /// Of a block.
    pub(super) fn threads(self) -> u32 {
        u32::try_from(32 * self.down * self.across).unwrap_or(0)
    }

    /// For weights that are multiplied side by side.
    fn staged(self, ws: &[Kept]) -> Staged {
        let raw = ws.iter().map(|w| w.block().0).fold(self.step, usize::max);
        let needed = ws.iter().map(|w| {
            let (len, bytes) = w.block();
            let aligned = if len == 1 { w.is_wide() } else { bytes.is_multiple_of(16) };
            raw / len * bytes + if aligned { 0 } else { 15 }
        });
        Staged { raw, pitch: 16 * (needed.max().unwrap_or(0).div_ceil(16) | 1) }
    }

    /// Bytes of shared memory of a block.
    pub(super) fn shared(self, ws: &[Kept]) -> usize {
        let activations = self.across * self.rows() * self.step * 2;
        let weights = self.down * self.across * 16 * self.mt * self.staged(ws).pitch;
        // Two of each; in the end the sums of all parts but the first.
        (2 * (activations + weights)).max((self.across - 1) * self.outputs() * self.rows() * 4)
    }

    /// What a kernel that has it is compiled with, beside the formats.
    pub(super) fn defines<'a>(self, call: Call<'a>, compute: Compute, ws: &[Kept]) -> Call<'a> {
        let Staged { raw, pitch } = self.staged(ws);
        call.define("VECTOR", ws.iter().all(Kept::is_wide).into())
            .word("HALF", compute.name())
            .define("DOWN", self.down)
            .define("ACROSS", self.across)
            .define("MT", self.mt)
            .define("NT", self.nt)
            .define("STEP", self.step)
            .define("RAW", raw)
            .define("PITCH", pitch)
    }

    fn blocks(self, n: usize, outputs: usize) -> usize {
        outputs.div_ceil(self.outputs()) * n.div_ceil(self.rows())
    }
}

/// The tiles that could multiply `n` rows with this weight, in the table's order.
fn fitting(info: &DeviceInfo, compute: Compute, n: usize, w: &Kept) -> impl Iterator<Item = Tile> {
    let able = info.capability >= oldest(compute) && w.shape[2] > 0;
    let fits = move |e: &&Entry| {
        able && info.capability >= e.from
            && (e.rows[0]..=e.rows[1]).contains(&n)
            && e.tile.shared(&[*w]) <= info.shared_memory as usize
    };
    TABLE.iter().filter(fits).map(|e| e.tile)
}

fn choose(info: &DeviceInfo, compute: Compute, n: usize, w: &Kept) -> Option<Tile> {
    let blocks = |t: &Tile| t.blocks(n, w.shape[1]);
    let busy = |t: &Tile| blocks(t) >= info.multiprocessors.max(1) as usize;
    let first = fitting(info, compute, n, w).find(busy);
    first.or_else(|| fitting(info, compute, n, w).reduce(|a, b| if blocks(&b) > blocks(&a) { b } else { a }))
}

/// Whether products of `n` rows with this weight are computed by tensor cores.
pub(super) fn takes(device: &Device, compute: Compute, n: usize, w: &CudaWeight) -> bool {
    choose(&device.info, compute, n, &w.kept()).is_some()
}

/// Activations as tensor cores take them.
#[derive(Clone, Debug)]
pub(crate) struct Halves {
    pub(super) buffer: Arc<Buffer>,
    pub(super) compute: Compute,
    /// Rows and inputs.
    shape: [usize; 2],
    /// Elements of a row, zeros behind the inputs.
    pub(super) padded: usize,
}

impl Halves {
    /// Not yet written.
    fn new(device: &Device, at: &str, compute: Compute, shape: [usize; 2]) -> Result<Self> {
        let (padded, bytes) = filled_up(shape)
            .ok_or_else(|| Error::invalid(at, "the input is more elements than can be counted"))?;
        Ok(Self { buffer: Arc::new(device.take(at, bytes)?), compute, shape, padded })
    }
}

/// Elements of a row of them, and bytes of them all.
pub(super) fn filled_up([n, cols]: [usize; 2]) -> Option<(usize, usize)> {
    let padded = cols.checked_next_multiple_of(PADDED)?;
    Some((padded, padded.checked_mul(n)?.checked_mul(2)?))
}

/// Bytes of such activations, as the pool has them.
pub(super) fn size_of_halves(shape: [usize; 2]) -> u64 {
    filled_up(shape).and_then(|(_, bytes)| Pool::size(bytes)).map_or(u64::MAX, |bytes| bytes as u64)
}

/// Bytes that a product of `n` rows takes beside its result, as the pool has them; products of so many rows as `cublas` says are its. Where
/// halves are left of the input, they are none of the product's. `None` where tensor cores do not compute it.
pub(super) fn scratch(
    info: &DeviceInfo,
    compute: Compute,
    cublas: Option<Least>,
    n: usize,
    w: &Kept,
    is_left: bool,
) -> Option<u64> {
    choose(info, compute, n, w)?;
    let halves = if is_left { 0 } else { size_of_halves([n, w.shape[2]]) };
    Some(halves.saturating_add(slabs::scratch(info, compute, cublas, n, w)))
}

/// Quads that a thread of the kernel which rounds has at a time, and of that which activates too; and rows that one launch has blocks for.
const QUADS: usize = 4;
const QUADS_GATED: usize = 2;
const ROWS: usize = 65_535;

/// `x` rounded, in the order that lies at `order` if that is not 0: what was left of it, or made now.
pub(super) fn halves(
    device: &Device,
    at: &str,
    compute: Compute,
    x: &Tensor,
    order: Address,
) -> Result<Halves> {
    let (from, shape) = (device.read(at, x)?, [x.shape().rows(), x.shape().cols()]);
    let is_same = |left: &&Halves| order == 0 && left.compute == compute && left.shape == shape;
    if let Some(left) = Device::halves(x).filter(is_same) {
        return Ok(left.clone());
    }
    let made = Halves::new(device, at, compute, shape)?;
    let [n, cols] = shape;
    let blocks = [made.padded.div_ceil(QUADS * 4 * THREADS as usize), n.min(ROWS), 1];
    Call::new(device, at, &HALVES, "halves")
        .word("HALF", compute.name())
        .define("VECTOR", cols.is_multiple_of(4).into())
        .flag("ORDER", order != 0)
        .at(from)
        .at(order)
        .at(made.buffer.address())
        .count("rows", n)
        .count("inputs", cols)
        .count("inputs, filled up", made.padded)
        .run(blocks, [THREADS, 1, 1])?;
    Ok(made)
}

/// The type of which a gated activation of this shape leaves halves beside its result, if it does: that in which both its products are computed,
/// as the one that comes is by all likelihood. It is only a guess: if that product is computed in another, it makes its own. Few rows are left as
/// they are, for integers and for products that are bound by their weights.
fn left_as(info: &DeviceInfo, compute: Compute, [n, cols]: [usize; 2]) -> Option<Compute> {
    (n > FEW && cols > 0 && info.capability >= oldest(compute)).then_some(compute)
}

/// The same by its name, by how the two weights are kept, with bytes as the pool has them; or what products in integers leave.
pub(crate) fn left(products: &Products, n: usize, [gate, up]: [&Kept; 2]) -> Option<(&'static str, u64)> {
    if let Some(left) = int8::left_of_gated(products, n, [gate, up]) {
        return left;
    }
    let (info, shape) = (&products.info, [n, gate.shape[1]]);
    let compute = products.compute.with(info, &[gate.format, up.format]);
    Some((left_as(info, compute, shape)?.name(), size_of_halves(shape)))
}

/// `f(gate) * up` of two products that are computed in `compute`, with halves for the next if they are for it.
pub(super) fn gated(
    device: &Device,
    compute: Compute,
    mut gate: Tensor,
    up: &Tensor,
    f: Activation,
) -> Result<Tensor> {
    let (at, [n, cols]) = ("gated", [gate.shape().rows(), gate.shape().cols()]);
    let Some(compute) = left_as(&device.info, compute, [n, cols]).filter(|_| gate.shape() == up.shape())
    else {
        return elementwise::gated(device, gate, up, f);
    };
    let (number, from, other) = (function(f)?, device.read(at, &gate)?, device.read(at, up)?);
    let fresh = if Device::is_free(&mut gate) { None } else { Some(device.tensor(at, gate.shape())?) };
    let to = fresh.as_ref().map_or(Ok(from), |t| device.read(at, t))?;
    let halves = Halves::new(device, at, compute, [n, cols])?;
    let blocks = [halves.padded.div_ceil(QUADS_GATED * 4 * THREADS as usize), n.min(ROWS), 1];
    Call::new(device, at, &GATED_HALVES, "gated_halves")
        .word("HALF", compute.name())
        .define("VECTOR", cols.is_multiple_of(4).into())
        .define("FUNCTION", number as usize)
        .at(from)
        .at(other)
        .at(to)
        .at(halves.buffer.address())
        .count("rows", n)
        .count("outputs", cols)
        .count("outputs, filled up", halves.padded)
        .run(blocks, [THREADS, 1, 1])?;
    Ok(Device::with_halves(fresh.unwrap_or(gate), halves))
}

/// `x · wᵀ`, if there is a tile for it: by cuBLAS where it is for so many rows, else in tiles.
pub(super) fn product(
    device: &Device,
    at: &str,
    x: &Halves,
    w: &CudaWeight,
    y: &Tensor,
    n: usize,
) -> Result<()> {
    let tile = choose(&device.info, x.compute, n, &w.kept());
    let tile = tile.ok_or_else(|| Error::unsupported(at, "there is no tile for this device"))?;
    if slabs::product(device, at, x, w, y, n)? { Ok(()) } else { with(device, at, tile, x, w, y, n) }
}

fn with(
    device: &Device,
    at: &str,
    tile: Tile,
    x: &Halves,
    w: &CudaWeight,
    y: &Tensor,
    n: usize,
) -> Result<()> {
    let ([_, out, cols], kept) = (w.shape, [w.kept()]);
    let grid = [out.div_ceil(tile.outputs()), n.div_ceil(tile.rows()), 1];
    let call = Call::new(device, at, &LINEAR_MMA, "linear_mma").word("FORMAT", w.format);
    tile.defines(call, x.compute, &kept)
        .at(x.buffer.address())
        .at(w.address())
        .at(device.read(at, y)?)
        .count("rows", n)
        .count("outputs", out)
        .count("inputs", cols)
        .count("inputs, filled up", x.padded)
        .long(w.row_bytes)
        .run_shared(grid, [tile.threads(), 1, 1], tile.shared(&kept))?;
    Ok(())
}

#[cfg(test)]
#[path = "matrix_tests.rs"]
pub(super) mod tests;
