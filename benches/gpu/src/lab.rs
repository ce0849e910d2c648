//! What operators are measured on: packed weights, activations, caches with sequences in them.
//!
//! Weights are sixteen rows repeated. A device does not look at what it multiplies (numbers or not), but it does look at addresses: each copy of a
//! weight lies in memory of its own, so that one after the other comes from memory and not from the L2.

use crate::{Result, Run};
use ogive::backend::{Backend, Batch, BlockTable, Cache, CacheSpec, HostWeight, LayerCache, Plan, Weight};
use ogive::cuda::CudaBackend;
use ogive::tensor::{F16, FEW_BITS, Format, Tensor};
use std::ops::Range;

/// Tokens of a cache block, as engines have it.
pub(crate) const BLOCK: usize = 32;

/// Numbers between -1 and 1.
pub(crate) fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i.wrapping_mul(7919) % 2003) as f32 / 1001.5 - 1.0).collect()
}

pub(crate) fn tensor(b: &CudaBackend, rows: usize, cols: usize) -> Result<Tensor> {
    Ok(b.upload(&values(rows * cols), [rows, cols].into())?)
}

/// Copies of a weight of `[experts, rows, cols]`: as many as `rotate` bytes hold, one at least and 64 at most.
pub(crate) fn weights(
    b: &CudaBackend,
    format: &'static Format,
    shape: [usize; 3],
    rotate: usize,
) -> Result<Vec<Weight>> {
    let [experts, rows, cols] = shape;
    let (row_bytes, count) = (format.row_bytes(cols), experts * rows);
    let mut some = vec![0; 16 * row_bytes];
    if FEW_BITS.contains(&format) {
        // Any bytes, so that lanes look all over its tables, as they would.
        some.iter_mut().enumerate().for_each(|(i, byte)| *byte = any_byte(i));
    } else {
        for (row, values) in some.chunks_mut(row_bytes).zip(values(16 * cols).chunks(cols)) {
            format.encode_row(values, row)?;
        }
    }
    let bytes: Vec<u8> = some.iter().copied().cycle().take(count * row_bytes).collect();
    let copies = (rotate / bytes.len().max(1)).clamp(1, 64);
    let host = HostWeight::new("w", shape, format, bytes.into())?;
    (0..copies).map(|_| Ok(b.upload_weight(&host)?)).collect()
}

/// Bytes without an order that a device could lean on: the upper bits of a generator's `i`-th state.
fn any_byte(i: usize) -> u8 {
    ((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sequences in a cache.
#[derive(Debug)]
pub(crate) struct Sequences {
    pub(crate) cache: Cache,
    tables: Vec<BlockTable>,
    /// Whether they have states, each read in one place and written in another.
    states: bool,
}

impl Sequences {
    /// Of up to `context` tokens each, in half precision.
    pub(crate) fn new(
        b: &CudaBackend,
        layers: Vec<LayerCache>,
        count: usize,
        context: usize,
    ) -> Result<Self> {
        Self::of(b, layers, &F16, count, 0..context)
    }

    /// The same in another element, where whole blocks before the first of these tokens were given back, as they are behind a window.
    /// Blocks of sequences alternate, as they do where those grew side by side.
    pub(crate) fn of(
        b: &CudaBackend,
        layers: Vec<LayerCache>,
        element: &'static Format,
        count: usize,
        tokens: Range<usize>,
    ) -> Result<Self> {
        let states = layers.iter().any(|layer| matches!(layer, LayerCache::State { .. }));
        let first = tokens.start / BLOCK;
        let (each, n) = (tokens.end.div_ceil(BLOCK) - first, u32::try_from(count)?);
        let cache = b.new_cache(&CacheSpec::new(layers, BLOCK, each * count, 2 * count).element(element))?;
        let table = |s: u32| BlockTable { first, blocks: (0..each as u32).map(|i| i * n + s).collect() };
        Ok(Self { cache, tables: (0..n).map(table).collect(), states })
    }

    /// A step of `rows` tokens for each sequence, after `past`; `outputs` of the last ones wanted.
    pub(crate) fn batch(&self, rows: usize, past: usize) -> Batch {
        let mut batch = Batch::default();
        for (i, table) in (0u32..).zip(&self.tables) {
            let tokens: Vec<u32> = (0..rows as u32).map(|t| (t * 31 + i * 7) % 256).collect();
            // Where there are no states, as engines say it.
            let slots = if self.states { [2 * i, 2 * i + 1] } else { [0; 2] };
            batch.push(&tokens, past, vec![table.clone()], slots);
            batch.want_last();
        }
        batch
    }

    pub(crate) fn plan(&self, b: &CudaBackend, rows: usize, past: usize) -> Result<Plan> {
        Ok(b.plan(self.batch(rows, past))?)
    }
}

/// Bytes that a ring of copies must have so that none of it is in the L2 when it comes again.
pub(crate) fn rotate(run: &Run) -> usize {
    run.pick(512 << 20, 0)
}
