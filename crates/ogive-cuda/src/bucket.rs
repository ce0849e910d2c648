//! Steps of decoding filled up with rows of nobody's, so that one record serves several numbers of sequences.
//!
//! They are filled up only as far as products take the same kernel with the same tile: a tile is computed whole, however many of its rows are
//! somebody's. So a row keeps its bits, and what is added is little: rows of norms, of the head's result and of what comes down. Other kernels
//! read on the device which rows are nobody's, and neither attend for them nor store.
//!
//! A mixture of experts is not filled up: rows of nobody's would choose experts, whose bytes are what such a step costs.

use crate::device::Device;
use crate::ops::slabs::Least;
use ogive_backend::{Batch, StepKey};
use std::sync::atomic::Ordering::Relaxed;

/// Rows that products treat alike end at each of these: kernels for few rows compute 1, up to 4 and up to 8 at a time, tiles 8, 16, 32 and
/// 64. Beyond, cuBLAS may come in.
const ROWS: [usize; 6] = [1, 4, 8, 16, 32, 64];

/// The rows of a step of `n`.
pub(crate) fn rows(n: usize) -> usize {
    ROWS.into_iter().find(|&rows| n <= rows).unwrap_or(n)
}

/// The step as it is to be run.
pub(crate) fn pad(device: &Device, batch: Batch) -> Batch {
    if device.graphs.are_on() {
        fill(batch, device.blas.from, device.has_experts.load(Relaxed))
    } else {
        batch
    }
}

/// The same where steps are recorded, products are for cuBLAS `from` so many rows on, and the model is a mixture of experts or none.
pub(crate) fn fill(mut batch: Batch, from: Option<Least>, has_experts: bool) -> Batch {
    let to = rows(batch.tokens.len());
    // With states the number of sequences is part of the key, and nothing is gained.
    let alike = StepKey::of(0, &batch).is_some_and(|key| key.spans == 0);
    // Its products have bits of their own for each number of rows. Where it multiplies few, with weights in halves, it is asked for the number
    // that they are filled up to.
    let by_cublas = from.is_some_and(|from| to >= from.decoded);
    if !alike || by_cublas || has_experts {
        return batch;
    }
    batch.pad(to);
    if let Some(row) =
        u32::try_from(to).ok().and_then(|to| to.checked_sub(1)).filter(|_| !batch.outputs.is_empty())
    {
        batch.outputs.resize(rows(batch.outputs.len()), row);
    }
    batch
}
