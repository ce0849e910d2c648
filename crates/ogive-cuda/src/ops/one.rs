//! Products with one row by blocks that stay, of packed weights in integers and of halves as they are: when, and the calls.
//!
//! Each block has the row in its shared memory, normed, and for packed weights rounded, by itself where nothing before did (`deferred`), so that no kernel need
//! stand between two products. Where the backend was told to, they go before all others on devices with copies that go on by themselves and room for the row.

use crate::builder::Activations;
use crate::device::Device;
use crate::driver::{Address, DeviceInfo};
use crate::launch::Call;
use crate::ops::codes::{Codes, GROUP};
use crate::ops::deferred::Deferred;
use crate::ops::int8::{self, NAMES};
use crate::ops::linear::{TOGETHER, weight_and_result};
use crate::weight::{CudaWeight, Kept};
use ogive_kernels::LINEAR_ONE;
use ogive_tensor::{Error, Result, Shape, Tensor};
use std::sync::Arc;

/// The oldest device with copies that go on by themselves.
const OLDEST: (u32, u32) = (8, 0);
/// Inputs that lie together in shared memory, and their bytes with scales.
const STRETCH: usize = 2048;
const STRETCH_BYTES: usize = STRETCH + STRETCH / 32 * 8;
/// Elements of a quad, and quads of a row that a thread has at a time at most.
const QUAD: usize = 4;
const HELD: usize = 4;

/// Bytes of shared memory that the kernels declare themselves: a norm's sums of warps.
const DECLARED: usize = 128;
/// Floats that lie together in shared memory.
const FLOATS: usize = 256;
/// Bytes of it for a warp's halves, of one line at a time and of two: rows of floats take more than rounded ones, and of two lines one chunk less is on its way.
const AREAS_OF_HALVES: [usize; 2] = [4096, 5120];
/// The same of packed weights, for two lines, where there is room: four chunks of q6_k.
const AREA_OF_TWO: usize = 6848;

/// How a block is made: its warps, bytes of shared memory for the weights of each, and whether the row is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    warps: usize,
    area: usize,
    rounds: bool,
}

impl Block {
    /// So that two blocks, of two kernels one after the other, fit on a multiprocessor: where that has 164 kB and more, of a row of 14,336 and one of 4096.
    fn of(info: &DeviceInfo, rounds: bool, lines: usize) -> Self {
        let (warps, area) = match info.shared_memory {
            200_000.. if lines > 1 => (16, AREA_OF_TWO),
            200_000.. => (16, 5760),
            160_000.. => (12, 5136),
            _ => (8, 5136),
        };
        let area = if rounds { area } else { AREAS_OF_HALVES[usize::from(lines > 1)] };
        Self { warps, area, rounds }
    }

    fn threads(self) -> usize {
        32 * self.warps
    }

    /// Bytes of shared memory of a block with a row of so many inputs, beside [`DECLARED`].
    fn shared(self, cols: usize) -> usize {
        let row = match self.rounds {
            true => cols.div_ceil(STRETCH).saturating_mul(STRETCH_BYTES),
            false => cols.div_ceil(FLOATS).saturating_mul(4 * FLOATS),
        };
        row.saturating_add(self.warps * self.area)
    }
}

/// Whether a weight that is kept so is of halves that are read by eights.
fn is_of_halves(w: &Kept) -> bool {
    w.block() == (1, 2) && w.is_wide()
}

/// Whether products of `n` rows with a weight that is kept so could be computed by blocks that stay.
fn fits(info: &DeviceInfo, activations: Activations, n: usize, w: &Kept) -> bool {
    let rounds = int8::is_for(info, activations, n, w);
    let able = n == 1 && info.capability >= OLDEST && (rounds || is_of_halves(w));
    let most = (info.shared_memory as usize).saturating_sub(DECLARED);
    able && Block::of(info, rounds, 2).shared(w.shape[2]) <= most
}

/// Whether they are on this device.
pub(super) fn takes(device: &Device, n: usize, w: &CudaWeight) -> bool {
    device.persistent && fits(&device.info, device.activations, n, &w.kept())
}

/// Whether the norm of such a row is left to them: one that a block holds at once.
pub(super) fn norms(device: &Device, shape: Shape) -> bool {
    let (rows, cols, info) = (shape.rows(), shape.cols(), &device.info);
    let able = device.persistent && info.capability >= OLDEST;
    let whole = shape.dims().len() == 2 && rows == 1 && cols > 0 && cols.is_multiple_of(GROUP);
    able && whole && cols <= QUAD * HELD * Block::of(info, true, 1).threads()
}

/// The row, as it is given.
#[derive(Debug)]
pub(super) enum Row {
    Codes(Codes),
    Floats(Address),
    /// A norm that is left to the product, and its result.
    Norm(Arc<Deferred>, Tensor),
}

impl Row {
    /// What there is of `x`, for products with `w`.
    pub(super) fn of(device: &Device, at: &str, x: &Tensor, w: &CudaWeight) -> Result<Self> {
        if let Some(norm) = Device::deferred(x).filter(|norm| norm.state().is_some()) {
            device.check(at, x)?;
            return Ok(Self::Norm(Arc::clone(norm), x.clone()));
        }
        let from = device.read(at, x)?;
        // Those in tiles are of several rows that were cut anew since.
        let codes = Device::codes(x).filter(|codes| codes.in_rows() && !is_of_halves(&w.kept()));
        Ok(codes.cloned().map_or(Self::Floats(from), Self::Codes))
    }
}

/// Makes a call of `kernel`: of `rows` of weights, of which `first` is the first, and the rest of its arguments by `rest`.
fn call<'a>(
    (device, at): (&'a Device, &'a str),
    (kernel, lines): (&'static str, usize),
    x: &Row,
    (rows, first): (usize, &CudaWeight),
    rest: impl FnOnce(Call<'a>) -> Result<Call<'a>>,
) -> Result<()> {
    let (block, cols) = (Block::of(&device.info, !is_of_halves(&first.kept()), lines), first.shape[2]);
    let mut left = match x {
        Row::Norm(norm, _) => Some(norm.state()),
        _ => None,
    };
    let computed;
    let x = match x {
        // Another thread read it in the meantime.
        Row::Norm(_, x) if left.as_ref().is_none_or(|norm| norm.is_none()) => {
            left = None;
            computed = Row::of(device, at, x, first)?;
            &computed
        }
        x => x,
    };
    let call = Call::new(device, at, &LINEAR_ONE, kernel).word("FORMAT", first.format);
    let call = call.define("VECTOR", 1).define("WARPS", block.warps).define("AREA", block.area);
    let held = cols.div_ceil(QUAD * block.threads()).clamp(1, HELD);
    let norm = left.as_ref().and_then(|norm| norm.as_ref());
    let call = match (x, norm) {
        (Row::Codes(x), _) => x.given(call.define("INPUT", 0).define("HELD", 1)).at(0).at(0).at(0).float(0.0),
        (_, Some(norm)) => {
            let from = device.read(at, &norm.x)?;
            let [other, sum] = match &norm.added {
                Some([other, sum]) => [device.read(at, other)?, device.read(at, sum)?],
                None => [0; 2],
            };
            let input = if norm.added.is_some() { 3 } else { 2 };
            let call = call.define("INPUT", input).define("HELD", held).at(from).at(0);
            call.at(other).at(sum).at(device.read(at, &norm.factors)?).float(norm.eps)
        }
        (Row::Floats(x), None) => {
            call.define("INPUT", 1).define("HELD", held).at(*x).at(0).at(0).at(0).at(0).float(0.0)
        }
        (Row::Norm(..), None) => return Err(Error::invalid(at, "a norm was left to no one")),
    };
    let (call, all) = (rest(call.count("inputs", cols))?, device.info.multiprocessors.max(1) as usize);
    let threads = u32::try_from(block.threads()).unwrap_or(0);
    // A block a multiprocessor, if there are so many rows.
    call.run_shared([rows.min(all), 1, 1], [threads, 1, 1], block.shared(cols))?;
    // Nothing runs for a weight of no rows.
    if rows == 0 {
        return Ok(());
    }
    if let Some(norm) = left.as_mut().and_then(|norm| norm.as_mut()) {
        norm.summed();
    }
    Ok(())
}

/// `x · wᵀ` of each weight into its result, all of one row; weights of one length of rows and in one order.
pub(super) fn products(
    device: &Device,
    at: &str,
    x: &Row,
    products: &[(&CudaWeight, &Tensor)],
) -> Result<()> {
    for some in products.chunks(TOGETHER) {
        let Some((first, _)) = some.first() else { continue };
        let rows = some.iter().map(|(w, _)| w.shape[1]).sum();
        call((device, at), ("linear_one", 1), x, (rows, first), |mut call| {
            for (name, (w, _)) in NAMES.into_iter().zip(some.iter().skip(1)) {
                call = call.word(name, w.format);
            }
            (0..TOGETHER).try_fold(call, |call, i| weight_and_result(device, at, call, some.get(i)))
        })?;
    }
    Ok(())
}

/// `f(x · gateᵀ) * (x · upᵀ)`, of weights of one shape and format.
pub(super) fn gated(
    device: &Device,
    at: &str,
    x: &Row,
    [gate, up]: [&CudaWeight; 2],
    f: u32,
    y: &Tensor,
) -> Result<()> {
    let (out, to) = (gate.shape[1], device.read(at, y)?);
    call((device, at), ("linear_gated_one", 2), x, (out, gate), |call| {
        let call = call.at(gate.address()).long(gate.row_bytes).at(up.address()).at(to);
        Ok(call.count("outputs", out).number(f))
    })
}

#[cfg(test)]
#[path = "one_tests.rs"]
mod tests;
