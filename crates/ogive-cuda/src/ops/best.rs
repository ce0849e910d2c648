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
    let (from, n, cols) = (device.read(at, x)?, x.shape().rows(), x.shape().cols());
    let k = k.min(cols);
    if k > FEW || k == 0 || n == 0 {
        return Ok(None);
    }
    let (ids, values) = (device.indices(at, [n, k], cols)?, device.tensor(at, [n, k])?);
    let (ids_at, values_at) = (device.read_indices(at, &ids)?.0, device.read(at, &values)?);
    Call::new(device, at, &BEST, "best")
        .at(from)
        .count("columns", cols)
        .count("candidates", k)
        .at(ids_at)
        .at(values_at)
        .run([n, 1, 1], [if cols > 4096 { 1024 } else { 256 }, 1, 1])?;
    let (mut numbers, mut scores) = (Vec::with_capacity(n * k), Vec::with_capacity(n * k));
    let word = |b: &[u8]| b.first_chunk::<4>().copied().unwrap_or_default();
    device.transfer.fetch(&device.stream, at, ids_at, 4 * n * k, &mut |part| {
        numbers.extend(part.chunks_exact(4).map(|b| u32::from_le_bytes(word(b))));
    })?;
    device.transfer.fetch(&device.stream, at, values_at, 4 * n * k, &mut |part| {
        scores.extend(part.chunks_exact(4).map(|b| f32::from_le_bytes(word(b))));
    })?;
    let row = |(ids, values): (&[u32], &[f32])| ids.iter().copied().zip(values.iter().copied()).collect();
    Ok(Some(numbers.chunks(k).zip(scores.chunks(k)).map(row).collect()))
}
