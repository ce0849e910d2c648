//! The largest elements of rows. Few are found on the device, so that a step sends kilobytes back; for many the rows come down.

use crate::device::Device;
use crate::driver::Address;
use crate::launch::Call;
use ogive_kernels::BEST;
use ogive_tensor::{Result, Tensor};

/// More than this many are found on the host: each costs a pass over every slice.
const FEW: usize = 64;
/// Threads of a block, and elements of its slice of a row: `THREADS` and `SLICE` in the kernel.
const THREADS: u32 = 256;
const SLICE: usize = 4096;

/// Places and values, best first, for each row.
type Rows = Vec<Vec<(u32, f32)>>;

/// The `k` best of each row; `None` if they are too many for the device.
pub(crate) fn best(device: &Device, x: &Tensor, k: usize) -> Result<Option<Rows>> {
    let at = "best";
    device.outside(at)?;
    let (from, n, cols) = (device.read(at, x)?, x.shape().rows(), x.shape().cols());
    let k = k.min(cols);
    if k > FEW || k == 0 || n == 0 {
        return Ok(None);
    }
    let found = last(device, at, from, [n, cols, k])?;
    let (place, _) = device.read_indices(at, &found)?;
    let mut words: Vec<u32> = Vec::with_capacity(2 * n * k);
    device.fetch(at, place, 8 * n * k, &mut |part| {
        let word = |b: &[u8]| u32::from_le_bytes(b.first_chunk::<4>().copied().unwrap_or_default());
        words.extend(part.chunks_exact(4).map(word));
    })?;
    let (ids, values) = words.split_at(n * k);
    let row = |(ids, values): (&[u32], &[u32])| {
        ids.iter().zip(values).map(|(&i, &bits)| (i, f32::from_bits(bits))).collect()
    };
    Ok(Some(ids.chunks(k).zip(values.chunks(k)).map(row).collect()))
}

/// The best of rows of `cols` at `from`, places before values in one piece, so that one copy brings both: the best of each slice, then of
/// what those left, until a row is one slice. A slice leaves `k`, far less than it is long.
fn last(device: &Device, at: &str, from: Address, [n, cols, k]: [usize; 3]) -> Result<Tensor> {
    let (mut values, mut names, mut len, mut held) = (from, 0, cols, Vec::new());
    loop {
        let slices = len.div_ceil(SLICE);
        let before = slices.saturating_sub(1);
        let all = before * k + k.min(len - before * SLICE);
        let found = device.indices(at, [2, n * all], cols)?;
        let (place, _) = device.read_indices(at, &found)?;
        let beside = place + 4 * (n * all) as u64;
        Call::new(device, at, &BEST, "best")
            .at(values)
            .at(names)
            .count("columns", len)
            .count("candidates", k)
            .count("candidates of all slices", all)
            .at(place)
            .at(beside)
            .run([n, slices, 1], [THREADS, 1, 1])?;
        if slices == 1 {
            return Ok(found);
        }
        (values, names, len) = (beside, place, all);
        // Until the launch that reads it is queued: that would be given the same memory to write to.
        held.push(found);
    }
}

#[cfg(test)]
#[path = "best_tests.rs"]
mod tests;
