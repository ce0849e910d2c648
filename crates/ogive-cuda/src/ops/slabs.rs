//! Products of many rows by cuBLAS: a slab of a weight's rows is decoded to halves, which stay in the L2, and multiplied from there; then
//! the next one in its place.
//!
//! A slab and not the whole weight, which would be two bytes an element more of device memory, written to and read from it; a weight that
//! is of these halves already is multiplied where it lies. From how many rows on that is worth it is `FROM`: the numbers are
//! arithmetic, wait for measurements, and are all that a measurement has to change.

use super::matrix::Halves;
use crate::builder::Compute;
use crate::device::Device;
use crate::driver::{Address, DeviceInfo};
use crate::launch::Call;
use crate::library::{Element, Product};
use crate::memory::Pool;
use crate::values::count;
use crate::weight::{CudaWeight, Kept};
use ogive_kernels::UNPACK;
use ogive_tensor::{Result, Tensor};

/// From how many rows on products are for cuBLAS: with weights that are decoded for it, and with those that are in halves already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Least {
    pub(crate) decoded: usize,
    pub(crate) ready: usize,
}

impl Least {
    /// Of a product with such a weight.
    fn of(self, compute: Compute, w: &Kept) -> usize {
        if is_ready(compute, w) { self.ready } else { self.decoded }
    }
}

/// Devices of this capability and newer give products of so many rows and more to cuBLAS, with weights that are decoded and with others; the
/// first entry that fits counts.
///
/// 9.0 was measured (H100, cuBLAS 13.1; Q4_K and F16, 4096 inputs to 14,336 outputs): own tiles take 55 us for 16 rows, 82 for 64, 393 for
/// 512 of Q4_K, and decoding for cuBLAS 105, 105 and 152; of F16 they take 52, 54, 75 and 364 us for 8, 16, 64 and 512 rows, cuBLAS 45, 46, 50
/// and 99. The others are arithmetic. Decoding costs 2 bytes an element written to the L2 and 2 read, the product 2 operations an element and row. Rows at which the former
/// is a tenth of the latter, from the makers' figures for matrix units (dense, sums in single precision) and an L2's rate as others
/// measured it, rounded up to a tile of 128: 2250 TFLOP/s and 10 TB/s, 450 rows (10.0); 990 and 5.5, 360 (9.0); 312 and 4, 160 (8.0);
/// 210 and 6, 70 (12.0); 165 and 5, 70 (8.9); 65 and 1.3, 100 (7.5).
const FROM: [((u32, u32), [usize; 2]); 6] = [
    ((12, 0), [128, 128]),
    ((10, 0), [512, 512]),
    ((9, 0), [96, 2]),
    ((8, 9), [128, 128]),
    ((8, 0), [256, 256]),
    ((7, 5), [128, 128]),
];

/// From how many rows on products are for cuBLAS; `None`: never.
pub(crate) fn from(capability: (u32, u32)) -> Option<Least> {
    let found = FROM.iter().find(|(oldest, _)| capability >= *oldest);
    found.map(|&(_, [decoded, ready])| Least { decoded, ready })
}

/// Devices of these capabilities get slabs as large as there are: a product of 2048 rows with 25 MB of a weight is 1.45 rounds of blocks for an
/// H100's multiprocessors, and takes two; with 117 MB it is seven. What leaves the L2 then takes a ninth of the product's time to write, and
/// as much to read while it is computed.
const WHOLE_WEIGHTS: std::ops::Range<(u32, u32)> = (9, 0)..(12, 0);
/// Bytes of a slab by the L2, at least and at most.
const LEAST: usize = 8 << 20;
const MOST: usize = 32 << 20;
/// Bytes of any slab, at most.
const ALL: usize = 128 << 20;

/// Bytes of a slab on this device for products of `n` rows with a weight of so many inputs: where not all that may be, half of its L2, as activations and results
/// pass through it too, but no less than gives every multiprocessor a block. A block is lost time for as long as it takes, and a
/// slab that leaves the L2 is written to memory and read from it once.
fn limit(info: &DeviceInfo, n: usize, cols: usize) -> usize {
    if WHOLE_WEIGHTS.contains(&info.capability) {
        return ALL;
    }
    let cached = (info.l2_cache as usize / 2).clamp(LEAST, MOST);
    let blocks = (info.multiprocessors as usize).div_ceil(n.div_ceil(WHOLE).max(1));
    let row = cols.checked_next_multiple_of(FILLED).and_then(|cols| cols.checked_mul(2));
    let busy = row.and_then(|row| row.checked_mul(blocks * WHOLE)).unwrap_or(ALL);
    cached.max(busy.min(ALL))
}

/// Bytes of memory that cuBLAS works in: what its documentation recommends.
fn workspace(info: &DeviceInfo) -> usize {
    if info.capability >= (9, 0) { 32 << 20 } else { 4 << 20 }
}

/// Inputs of a decoded row are filled up to a multiple of this: rows then begin at 128 bytes.
const FILLED: usize = 64;
/// Rows of a slab are a multiple of this, where they can be: of what a block of cuBLAS's computes.
const WHOLE: usize = 128;

/// How a weight is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slabs {
    /// Rows of all slabs but the last.
    rows: usize,
    /// Elements from a decoded row to the next.
    pitch: usize,
    /// Bytes to take for one.
    bytes: usize,
}

/// Whether cuBLAS can read the weight where it lies: rows are halves of this type and begin at sixteen bytes.
fn is_ready(compute: Compute, w: &Kept) -> bool {
    w.format == compute.name() && w.is_wide()
}

impl Slabs {
    /// For a weight of `[out, cols]`, in slabs of at most `limit` bytes; of one row where that is more. `None`: more than can be counted.
    fn of([out, cols]: [usize; 2], limit: usize) -> Option<Self> {
        let pitch = cols.checked_next_multiple_of(FILLED)?;
        let row = pitch.checked_mul(2)?;
        let most = (limit / row.max(1)).max(1);
        let most = if most > WHOLE { most / WHOLE * WHOLE } else { most };
        // As many slabs as there must be, of equal size.
        let rows = out.max(1).div_ceil(out.max(1).div_ceil(most));
        let rows = rows.next_multiple_of(WHOLE).min(most).min(out.max(1));
        // A few sizes only, so that the pool's pieces serve many weights.
        let bytes = rows.checked_mul(row)?;
        Some(Self { rows, pitch, bytes: bytes.checked_next_power_of_two()?.min(limit).max(bytes) })
    }
}

/// Bytes that a product of `n` rows takes beside its result and activations, as the pool has them, if it is for cuBLAS.
pub(super) fn scratch(info: &DeviceInfo, compute: Compute, from: Option<Least>, n: usize, w: &Kept) -> u64 {
    if from.is_none_or(|from| n < from.of(compute, w)) {
        return 0;
    }
    let size = |bytes: usize| Pool::size(bytes).map_or(u64::MAX, |n| n as u64);
    let [_, out, cols] = w.shape;
    let slab = match is_ready(compute, w) {
        true => 0,
        false => Slabs::of([out, cols], limit(info, n, cols)).map_or(u64::MAX, |slabs| size(slabs.bytes)),
    };
    size(workspace(info)).saturating_add(slab)
}

/// `x · wᵀ` by cuBLAS, if it is for that: `false` leaves it to own kernels, whatever was written to `y`.
pub(super) fn product(
    device: &Device,
    at: &str,
    x: &Halves,
    w: &CudaWeight,
    y: &Tensor,
    n: usize,
) -> Result<bool> {
    let from = device.blas.from.map_or(usize::MAX, |from| from.of(x.compute, &w.kept()));
    let wanted = n >= from && device.blas.is_there(device)?;
    Ok(wanted && with(device, at, limit(&device.info, n, w.shape[2]), x, w, y, n)?)
}

/// The same, in slabs of at most `limit` bytes.
fn with(
    device: &Device,
    at: &str,
    limit: usize,
    x: &Halves,
    w: &CudaWeight,
    y: &Tensor,
    n: usize,
) -> Result<bool> {
    let [_, out, cols] = w.shape;
    let from = match x.compute {
        Compute::F16 => Element::F16,
        Compute::Bf16 => Element::Bf16,
        Compute::F32 | Compute::Auto => return Ok(false),
    };
    let own = is_ready(x.compute, &w.kept());
    let cut = if own {
        Some(Slabs { rows: out.max(1), pitch: cols, bytes: 0 })
    } else {
        Slabs::of([out, cols], limit)
    };
    let Some(Slabs { rows, pitch, bytes }) = cut else { return Ok(false) };
    let bytes_of_work = workspace(&device.info);
    let work = device.take(at, bytes_of_work)?;
    let slab = if own { None } else { Some(device.take(at, bytes)?) };
    let (xs, to) = (x.buffer.address(), device.read(at, y)?);
    let int = |what, size| count(at, what, size);
    let rows_of_x = int("rows", n)?;
    // Both sides have zeros up to here.
    let inner = int("inputs", cols.next_multiple_of(8))?;
    let pitches =
        [int("inputs, filled up", x.padded)?, int("inputs, filled up", pitch)?, int("outputs", out)?];
    let done = device.blas.run(|cublas| {
        cublas.work_on(device.stream(), (work.address(), bytes_of_work))?;
        for first in (0..out).step_by(rows) {
            let rows = rows.min(out - first);
            let ws = match &slab {
                Some(slab) => unpack(device, at, x.compute, w, [first, rows, pitch], slab.address())?,
                None => w.address(),
            };
            let sizes = [rows_of_x, int("outputs", rows)?, inner];
            let at = [xs, ws, to + 4 * first as u64];
            cublas.multiply(&Product { sizes, from, to: Element::F32, at, pitches })?;
        }
        Ok(())
    });
    Ok(done?)
}

/// Decodes `rows` rows from `first` on to halves at `to`, `pitch` elements each.
fn unpack(
    device: &Device,
    at: &str,
    compute: Compute,
    w: &CudaWeight,
    [first, rows, pitch]: [usize; 3],
    to: Address,
) -> crate::error::Result<Address> {
    let threads = (pitch / 8).next_multiple_of(32).min(256);
    Call::new(device, at, &UNPACK, "unpack")
        .word("FORMAT", w.format)
        .define("VECTOR", w.is_wide().into())
        .word("HALF", compute.name())
        .at(w.address() + (first * w.row_bytes) as u64)
        .at(to)
        .count("inputs", w.shape[2])
        .count("inputs, filled up", pitch)
        .long(w.row_bytes)
        .run([rows, 1, 1], [u32::try_from(threads).unwrap_or(32), 1, 1])?;
    Ok(to)
}

#[cfg(test)]
#[path = "slabs_tests.rs"]
mod tests;
