//! A sequence's rows of the cache, out of a backend and back in.
//!
//! Composed of `store_kv` and `gather_kv`, and no operator of its own: what was rounded once rounds to itself (the
//! conformance suite holds every backend to that), so the rows are the same to the bit, and a backend has nothing to write.
//! The price is that they pass through single precision, which for a whole cache takes less time than reading the file.

use crate::backend::{Backend, Batch, BlockTable, Cache, CacheSpec, LayerCache, Plan};
use crate::tensor::{Error, F32, Format, Result, Tensor};
use std::ops::Range;

/// So many rows at a time: all that is in memory besides the cache.
pub(super) const CHUNK: usize = 256;

/// A step for some rows of a sequence, laid out as if the block they begin in were its first: what a row holds does not
/// depend on where in the sequence it is. `stored` rows of that block count as past, the others are the step's.
fn step(spec: &CacheSpec, group: usize, table: &BlockTable, rows: &Range<usize>, stored: usize) -> Batch {
    let len = spec.block_len;
    let at = |block: usize| block.saturating_sub(table.first);
    let part =
        table.blocks.get(at(rows.start / len)..at(rows.end.div_ceil(len))).unwrap_or_default().to_vec();
    // Nothing of the other groups is looked at: for them all blocks have been given back.
    let gone = BlockTable { first: part.len(), blocks: Vec::new() };
    let mut tables = vec![gone; spec.blocks.len()];
    if let Some(own) = tables.get_mut(group) {
        *own = BlockTable { first: 0, blocks: part };
    }
    let mut batch = Batch::default();
    batch.push(&vec![0; rows.start % len + rows.len() - stored], stored, tables, [0, 1]);
    batch
}

/// Keys and values of some rows of a layer. `[rows, k_dim]`, `[rows, v_dim]`
pub(super) fn read(
    b: &dyn Backend,
    cache: &Cache,
    layer: usize,
    table: &BlockTable,
    rows: &Range<usize>,
) -> Result<[Vec<f32>; 2]> {
    let spec = cache.spec();
    let (group, [k_dim, v_dim]) = paged(spec, layer)?;
    let plan = b.plan(step(spec, group, table, rows, 0))?;
    let (k, v) = b.gather_kv(layer, cache, &plan)?;
    let side = |x: &Tensor, dim: usize| {
        let mut values = b.download(x)?;
        values.drain(..values.len().saturating_sub(rows.len() * dim));
        Ok::<_, Error>(values)
    };
    Ok([side(&k, k_dim)?, v.map_or(Ok(Vec::new()), |v| side(&v, v_dim))?])
}

/// Stores rows that [`read`] gave, or that `cache` would round to what it gave.
pub(super) fn write(
    b: &dyn Backend,
    cache: &Cache,
    layer: usize,
    table: &BlockTable,
    rows: &Range<usize>,
    [k, v]: &[Vec<f32>; 2],
) -> Result<()> {
    let spec = cache.spec();
    let (group, [k_dim, v_dim]) = paged(spec, layer)?;
    let plan = b.plan(step(spec, group, table, rows, rows.start % spec.block_len))?;
    let k = b.upload(k, [rows.len(), k_dim].into())?;
    let v = (v_dim > 0).then(|| b.upload(v, [rows.len(), v_dim].into())).transpose()?;
    b.store_kv(layer, &k, v.as_ref(), cache, &plan)
}

/// The group of a layer that has pages, and the elements of its keys and values.
pub(super) fn paged(spec: &CacheSpec, layer: usize) -> Result<(usize, [usize; 2])> {
    match spec.layers.get(layer) {
        Some(LayerCache::Paged { k_dim, v_dim, group, .. }) => Ok((*group, [*k_dim, *v_dim])),
        _ => Err(Error::invalid("cache", format!("layer {layer} has no pages"))),
    }
}

/// A plan whose span reads the state in `slots[0]` and writes the one in `slots[1]`.
fn stateful(b: &dyn Backend, spec: &CacheSpec, slots: [u32; 2]) -> Result<Plan> {
    let mut batch = Batch::default();
    let gone = BlockTable { first: 1, blocks: Vec::new() };
    batch.push(&[0], 1, vec![gone; spec.blocks.len()], slots);
    b.plan(batch)
}

/// A layer's state, from the slot that is read next.
pub(super) fn read_state(b: &dyn Backend, cache: &Cache, layer: usize, slots: [u32; 2]) -> Result<Vec<f32>> {
    let plan = stateful(b, cache.spec(), slots)?;
    b.download(&b.read_state(layer, cache, &plan)?)
}

/// Puts a layer's state where it is read next.
pub(super) fn write_state(
    b: &dyn Backend,
    cache: &Cache,
    layer: usize,
    [read, written]: [u32; 2],
    state: &[f32],
) -> Result<()> {
    let plan = stateful(b, cache.spec(), [written, read])?;
    b.write_state(layer, &b.upload(state, [1, state.len()].into())?, cache, &plan)
}

/// Rows in the cache's element if it gives them back to the bit, else in single precision (a format that is only read, numbers
/// that are none).
pub(super) fn pack(element: &'static Format, values: &[f32]) -> (&'static Format, Vec<u8>) {
    let mut bytes = vec![0; element.row_bytes(values.len())];
    if element.encode_row(values, &mut bytes).is_ok() {
        let again = unpack(element, &bytes, values.len());
        if again.iter().zip(values).all(|(a, b)| a.to_bits() == b.to_bits()) {
            return (element, bytes);
        }
    }
    (&F32, values.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// `n` values from bytes that [`pack`] made in `format`.
pub(super) fn unpack(format: &Format, bytes: &[u8], n: usize) -> Vec<f32> {
    let mut values = vec![0.0; n];
    format.decode_row(bytes, &mut values);
    values
}
