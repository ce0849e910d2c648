//! Products of packed weights with few rows of activations in 8-bit integers: when, and the calls.
//!
//! They go before products in a half where they are asked for: of one row by `dp4a`, of two to 64 by tensor cores in integers (`MMA`), or of up
//! to eight by `dp4a` where a device has none. A row of a step of two to 64 has the same bits in any such company, one alone others.

use crate::builder::Activations;
use crate::cuda::Products;
use crate::device::Device;
use crate::driver::DeviceInfo;
use crate::launch::Call;
use crate::ops::codes::{self, Codes, OLDEST, goes_to_tiles};
use crate::ops::linear::{FEW, TOGETHER, WARPS, rows, weight_and_result};
use crate::weight::{CudaWeight, Kept};
use ogive_kernels::{LINEAR_GATED_INT8, LINEAR_INT8, LINEAR_INT8_MMA, Source};
use ogive_tensor::{Result, Tensor};

/// From so many eights of rows on two sixteens of outputs are a warp's.
const WIDE: usize = 4;

/// What a block of `linear_int8_mma` computes: how many outputs and rows. Its warps, and inputs that one has at a time, are the
/// kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Sixteens of outputs.
    mt: usize,
    /// Eights of rows.
    nt: usize,
    /// Bytes of a staged row of weights: an odd number of sixteens, so that rows begin in different banks.
    pitch: usize,
}

impl Tile {
    const PARTS: usize = 8;
    const CHUNK: usize = 256;

    /// For so many rows and sixteens of outputs, of formats of such blocks.
    fn of(n: usize, mt: usize, blocks: impl Iterator<Item = (usize, usize)>) -> Self {
        let nt = [1, 2, 4].into_iter().find(|nt| n <= 8 * nt).unwrap_or(8);
        // With what lies before a row's first byte in its sixteen, and a word after its last.
        let bytes = blocks.map(|(len, bytes)| Self::CHUNK / len.max(1) * bytes + 15 + 4).max().unwrap_or(0);
        Self { mt, nt, pitch: 16 * (bytes.div_ceil(16) | 1) }
    }

    fn outputs(self) -> usize {
        16 * self.mt
    }

    /// Bytes of shared memory of a block: two chunks of its rows and a tile of codes for each warp; in the end all sums.
    fn shared(self) -> usize {
        let warp = 2 * self.outputs() * self.pitch + self.mt * 2 * 16 * 32;
        Self::PARTS * warp.max(self.mt * self.nt * 512)
    }

    /// Whether compilers find registers for it. Those for 10.3 make products in integers of other instructions.
    fn has_registers(self, info: &DeviceInfo) -> bool {
        let most = match info.capability {
            (10, 3) => 4,
            (10.., _) => 8,
            _ => 16,
        };
        self.mt * self.nt <= most
    }

    /// Whether this device has it: room, and registers.
    fn fits(self, info: &DeviceInfo) -> bool {
        self.has_registers(info) && self.shared() <= info.shared_memory as usize
    }
}

/// The tile for `n` rows with weights that are kept so.
fn tile(info: &DeviceInfo, n: usize, kept: &[Kept]) -> Tile {
    let [narrow, wide] = [1, 2].map(|mt| Tile::of(n, mt, kept.iter().map(Kept::block)));
    let narrow = if narrow.has_registers(info) { narrow } else { Tile { nt: narrow.nt / 2, ..narrow } };
    let blocks = kept.iter().map(|w| w.shape[1].div_ceil(wide.outputs())).sum::<usize>();
    // Two sixteens of outputs share what they read of many rows, if every multiprocessor still gets a block.
    let is_busy = blocks >= info.multiprocessors as usize;
    if wide.nt >= WIDE && is_busy && wide.fits(info) { wide } else { narrow }
}

/// Whether products of `n` rows with a weight that is kept so are computed in integers.
pub(crate) fn is_for(info: &DeviceInfo, activations: Activations, n: usize, w: &Kept) -> bool {
    let able = activations == Activations::Int8 && info.capability >= OLDEST && w.has_codes();
    able && ((1..=FEW).contains(&n) || goes_to_tiles(info, n))
}

/// The same on this device.
pub(super) fn takes(device: &Device, n: usize, w: &CudaWeight) -> bool {
    is_for(&device.info, device.activations, n, &w.kept())
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

/// The names of their formats in the kernel, of the weights after the first that one launch multiplies.
pub(super) const NAMES: [&str; TOGETHER - 1] = ["FORMAT2", "FORMAT3"];

/// `x · wᵀ` of each weight into its result, all of one input; weights of one length of rows and in one order.
pub(super) fn products(
    device: &Device,
    at: &str,
    x: &Codes,
    products: &[(&CudaWeight, &Tensor)],
    n: usize,
) -> Result<()> {
    // Two outputs of a warp share what they read of rows, if every multiprocessor still gets a block, and of one row if it gets as many as it has
    // room for. The bits are the same.
    let least = device.info.multiprocessors.max(1) as usize * if n == 1 { 5 } else { 1 };
    for some in products.chunks(TOGETHER) {
        if goes_to_tiles(&device.info, n) {
            let kept: Vec<_> = some.iter().map(|(w, _)| w.kept()).collect();
            by_tensor_cores(device, at, x, some, n, tile(&device.info, n, &kept))?;
        } else {
            let busy = blocks(some, 2) >= least;
            with(device, at, x, some, n, if busy { 2 } else { 1 })?;
        }
    }
    Ok(())
}

/// Blocks of these weights, with so many outputs of a warp.
fn blocks(products: &[(&CudaWeight, &Tensor)], outs: usize) -> usize {
    products.iter().map(|(w, _)| w.shape[1].div_ceil(outs * WARPS as usize)).sum()
}

/// A call with the formats of all weights but the first, and after the activations what `products.cu` takes.
fn of_weights<'a>(
    device: &Device,
    at: &str,
    mut call: Call<'a>,
    products: &[(&CudaWeight, &Tensor)],
    n: usize,
) -> Result<Call<'a>> {
    for (name, (w, _)) in NAMES.into_iter().zip(products.iter().skip(1)) {
        call = call.word(name, w.format);
    }
    let inputs = products.first().map_or(0, |(first, _)| first.shape[2]);
    call = call.count("rows", n).count("inputs", inputs);
    (0..TOGETHER).try_fold(call, |call, i| weight_and_result(device, at, call, products.get(i)))
}

/// The same of so many as one launch takes, by tensor cores.
fn by_tensor_cores(
    device: &Device,
    at: &str,
    x: &Codes,
    products: &[(&CudaWeight, &Tensor)],
    n: usize,
    tile: Tile,
) -> Result<()> {
    let Some((first, _)) = products.first() else { return Ok(()) };
    x.check_for_tiles(at)?;
    let call = Call::new(device, at, &LINEAR_INT8_MMA, "linear_int8_mma").word("FORMAT", first.format);
    let call = call.define("MT", tile.mt).define("NT", tile.nt).define("PITCH", tile.pitch);
    let call = of_weights(device, at, x.given(call), products, n)?;
    let blocks = products.iter().map(|(w, _)| w.shape[1].div_ceil(tile.outputs())).sum();
    let threads = u32::try_from(32 * Tile::PARTS).unwrap_or(0);
    call.run_shared([blocks, n.div_ceil(8 * tile.nt), 1], [threads, 1, 1], tile.shared())?;
    Ok(())
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
    let call = call(device, at, &LINEAR_INT8, x, first.format, rows).define("OUTS", outs);
    let call = of_weights(device, at, call, products, n)?;
    call.run([blocks(products, outs), n.div_ceil(rows), 1], [32 * WARPS, 1, 1])?;
    Ok(())
}

/// What `f(x · gateᵀ) * (x · upᵀ)` leaves for the next product, with bytes as the pool has them, if both products are in integers.
pub(super) fn left_of_gated(
    products: &Products,
    n: usize,
    of: [&Kept; 2],
) -> Option<Option<(&'static str, u64)>> {
    let Products { info, activations, .. } = products;
    let both = of.iter().all(|w| is_for(info, *activations, n, w));
    let left = || (codes::NAME, codes::size_of_tiles([n, of[0].shape[1]]));
    both.then(|| codes::leaves_tiles(info, n, of.map(|w| w.shape)).then(left))
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
pub(crate) mod tests;
