//! The largest elements of rows. Few are found on the device, so that a step sends kilobytes back; for many the rows come down.

use crate::device::Device;
use crate::launch::Call;
use ogive_kernels::BEST;
use ogive_tensor::{Result, Tensor};

/// More than this many are found on the host: each costs a pass over the row.
const FEW: usize = 64;

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
    // Places and values in one piece, so that one copy brings both.
    let found = device.indices(at, [2, n * k], cols)?;
    let (place, _) = device.read_indices(at, &found)?;
    Call::new(device, at, &BEST, "best")
        .at(from)
        .count("columns", cols)
        .count("candidates", k)
        .at(place)
        .at(place + 4 * (n * k) as u64)
        .run([n, 1, 1], [if cols > 4096 { 1024 } else { 256 }, 1, 1])?;
    let mut words: Vec<u32> = Vec::with_capacity(2 * n * k);
    device.transfer.fetch(device.stream(), at, place, 8 * n * k, &mut |part| {
        let word = |b: &[u8]| u32::from_le_bytes(b.first_chunk::<4>().copied().unwrap_or_default());
        words.extend(part.chunks_exact(4).map(word));
    })?;
    let (ids, values) = words.split_at(n * k);
    let row = |(ids, values): (&[u32], &[u32])| {
        ids.iter().zip(values).map(|(&i, &bits)| (i, f32::from_bits(bits))).collect()
    };
    Ok(Some(ids.chunks(k).zip(values.chunks(k)).map(row).collect()))
}
