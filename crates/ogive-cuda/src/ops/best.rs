//! The largest elements of rows. Few are found on the device, so that a step sends kilobytes back; for many the rows come down.

use crate::device::Device;
use crate::driver::Address;
use crate::launch::Call;
use crate::memory::Buffer;
use crate::values::bytes;
use ogive_kernels::BEST;
use ogive_tensor::{Error, Result, Tensor};

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
    let n = x.shape().rows();
    let (from, top_k) = device.read_top_k(at, x)?;
    if let Some(kept) = top_k {
        if k > kept {
            let why = format!("the best {kept} of each row were kept and {k} are asked for; keep as many");
            return Err(Error::invalid(at, why));
        }
        return fetch(device, at, from, [n, x.shape().cols() / 2, k]).map(Some);
    }
    let Some(kept) = few(x, k) else { return Ok(None) };
    let found = last(device, at, from, [n, x.shape().cols(), kept])?;
    fetch(device, at, found.address(), [n, kept, kept]).map(Some)
}

/// The `k` best of each row, left on the device for [`best`]; all of `x` if they are too many.
pub(crate) fn top_k(device: &Device, x: Tensor, k: usize) -> Result<Tensor> {
    let at = "top_k";
    let (from, n, cols) = (device.read(at, &x)?, x.shape().rows(), x.shape().cols());
    let Some(kept) = few(&x, k) else { return Ok(x) };
    Ok(device.held(last(device, at, from, [n, cols, kept])?, [n, 2 * kept].into(), Some(k)))
}

/// How many of each row the device finds, if it does.
fn few(x: &Tensor, k: usize) -> Option<usize> {
    let k = k.min(x.shape().cols());
    (k <= FEW && k > 0 && x.shape().rows() > 0).then_some(k)
}

/// Waits for the `kept` best of `n` rows at `from`, and gives `k` of each.
fn fetch(device: &Device, at: &str, from: Address, [n, kept, k]: [usize; 3]) -> Result<Rows> {
    let mut words: Vec<u32> = Vec::with_capacity(2 * n * kept);
    device.fetch(at, from, 8 * n * kept, &mut |part| {
        let word = |b: &[u8]| u32::from_le_bytes(b.first_chunk::<4>().copied().unwrap_or_default());
        words.extend(part.chunks_exact(4).map(word));
    })?;
    let (ids, values) = words.split_at(n * kept);
    let row = |(ids, values): (&[u32], &[u32])| {
        ids.iter().zip(values).take(k).map(|(&i, &bits)| (i, f32::from_bits(bits))).collect()
    };
    Ok(ids.chunks(kept).zip(values.chunks(kept)).map(row).collect())
}

/// The best of rows of `cols` at `from`, places before values in one piece, so that one copy brings both: the best of each slice, then of
/// what those left, until a row is one slice. A slice leaves `k`, far less than it is long.
fn last(device: &Device, at: &str, from: Address, [n, cols, k]: [usize; 3]) -> Result<Buffer> {
    let (mut values, mut names, mut len, mut held) = (from, 0, cols, Vec::new());
    loop {
        let slices = len.div_ceil(SLICE);
        let before = slices.saturating_sub(1);
        let all = before * k + k.min(len - before * SLICE);
        let found = device.take(at, bytes(at, [2, n * all].into())?)?;
        let place = found.address();
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
