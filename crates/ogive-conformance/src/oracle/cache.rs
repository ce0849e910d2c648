//! The cache: rows of keys and values by layer, block and place in the block; states by layer and slot.
//!
//! Maps and not buffers: a row exists once it is stored and is zero before, so however large a cache is asked for, only
//! what is used takes memory. Rows are kept as the element type rounds them; states are never rounded.

use super::step::batch;
use super::values::{make, read, row, zeros};
use ogive_backend::tensor::{Error, FEW_BITS, Format, Result, Tensor};
use ogive_backend::{Batch, Cache, CacheSpec, LayerCache, Plan, Span};
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Layer, block, token in the block.
type Place = (usize, u32, usize);

#[derive(Default)]
struct Memory {
    /// The key and the value of a token.
    rows: BTreeMap<Place, [Vec<f32>; 2]>,
    /// By layer and slot.
    states: BTreeMap<(usize, u32), Vec<f32>>,
}

/// Reserves nothing, but refuses what no backend could reserve.
pub(super) fn new(spec: &CacheSpec) -> Result<Cache> {
    spec.check()?;
    if spec.element.encode.is_none() {
        let why = format!("{} can be read but not written", spec.element.name);
        return Err(Error::unsupported("new_cache", why));
    }
    if FEW_BITS.contains(&spec.element) {
        let why = format!("{} is for weights alone, which are packed once", spec.element.name);
        return Err(Error::unsupported("new_cache", why));
    }
    if spec.bytes().is_none() {
        return Err(Error::invalid("new_cache", "the cache has more bytes than can be counted"));
    }
    Ok(Cache::new(spec.clone(), RwLock::<Memory>::default()))
}

fn reading<'a>(at: &str, cache: &'a Cache) -> Result<RwLockReadGuard<'a, Memory>> {
    let memory = cache.data::<RwLock<Memory>>().map_err(|e| e.within(at))?;
    Ok(memory.read().unwrap_or_else(PoisonError::into_inner))
}

fn writing<'a>(at: &str, cache: &'a Cache) -> Result<RwLockWriteGuard<'a, Memory>> {
    let memory = cache.data::<RwLock<Memory>>().map_err(|e| e.within(at))?;
    Ok(memory.write().unwrap_or_else(PoisonError::into_inner))
}

/// The pages a layer uses.
struct Pages {
    owner: usize,
    dims: [usize; 2],
    group: usize,
    blocks: usize,
    block_len: usize,
}

impl Pages {
    fn of(at: &str, cache: &Cache, layer: usize) -> Result<Self> {
        let spec = cache.spec();
        match spec.owner(layer).map_err(|e| e.within(at))? {
            (owner, LayerCache::Paged { k_dim, v_dim, group, .. }) => Ok(Self {
                owner,
                dims: [k_dim, v_dim],
                group,
                blocks: spec.blocks.get(group).copied().unwrap_or(0),
                block_len: spec.block_len,
            }),
            _ => Err(Error::invalid(at, format!("layer {layer} has no pages"))),
        }
    }

    /// Where token `t` of a sequence lies; `None` if its block was given back.
    fn place(&self, at: &str, span: &Span, t: usize) -> Result<Option<Place>> {
        let missing =
            || Error::invalid(at, format!("a sequence has no block for token {t} in group {}", self.group));
        let table = span.tables.get(self.group).ok_or_else(missing)?;
        if t / self.block_len < table.first {
            return Ok(None);
        }
        let block = table.block(t, self.block_len).ok_or_else(missing)?;
        self.check(at, block)?;
        Ok(Some((self.owner, block, t % self.block_len)))
    }

    fn check(&self, at: &str, block: u32) -> Result<()> {
        if block as usize >= self.blocks {
            let why = format!("block {block} of group {} is outside its {}", self.group, self.blocks);
            return Err(Error::invalid(at, why));
        }
        Ok(())
    }
}

/// Appends the keys and values of every row that belongs to a sequence.
pub(super) fn store_kv(
    layer: usize,
    k: &Tensor,
    v: Option<&Tensor>,
    cache: &Cache,
    plan: &Plan,
) -> Result<()> {
    let at = "store_kv";
    let (pages, batch, element) = (Pages::of(at, cache, layer)?, batch(at, plan)?, cache.spec().element);
    if pages.owner != layer {
        return Err(Error::invalid(at, format!("layer {layer} shares what layer {} stores", pages.owner)));
    }
    if v.is_some() != (pages.dims[1] > 0) {
        let why = format!("layer {layer} keeps values of {} elements", pages.dims[1]);
        return Err(Error::invalid(at, why));
    }
    let ks = step_rows(at, k, batch, pages.dims[0])?;
    let vs = v.map(|v| step_rows(at, v, batch, pages.dims[1])).transpose()?;
    // Nothing is written before everything is known to have a place.
    let mut stored = Vec::new();
    for span in &batch.spans {
        for (t, r) in (span.past..).zip(span.rows()) {
            let place = pages.place(at, span, t)?.ok_or_else(|| {
                Error::invalid(at, format!("the block of token {t} was given back before it was stored"))
            })?;
            let key = rounded(element, row(ks, r, pages.dims[0]))?;
            let value = vs.map_or(Ok(Vec::new()), |vs| rounded(element, row(vs, r, pages.dims[1])))?;
            stored.push((place, [key, value]));
        }
    }
    writing(at, cache)?.rows.extend(stored);
    Ok(())
}

/// The values of a tensor that has `dim` elements for each row of the step, in one extent or in heads.
fn step_rows<'a>(at: &str, x: &'a Tensor, batch: &Batch, dim: usize) -> Result<&'a [f32]> {
    let n = batch.tokens.len();
    if x.shape().first() != n || Some(x.shape().len()) != n.checked_mul(dim) {
        return Err(Error::shape(at, x.shape(), [n, dim].into()));
    }
    read(at, x)
}

/// What is left of `values` when `element` has held them.
fn rounded(element: &Format, values: &[f32]) -> Result<Vec<f32>> {
    let (mut bytes, mut out) = (vec![0; element.row_bytes(values.len())], vec![0.0; values.len()]);
    element.encode_row(values, &mut bytes)?;
    element.decode_row(&bytes, &mut out);
    Ok(out)
}

/// What a layer holds of the contexts; zeros where blocks were given back.
pub(super) fn gather_kv(layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
    let at = "gather_kv";
    let (pages, batch) = (Pages::of(at, cache, layer)?, batch(at, plan)?);
    let memory = reading(at, cache)?;
    // A past may be any number: no room for its rows before a table has blocks up to its end.
    for span in batch.spans.iter().filter(|s| s.context() > 0) {
        pages.place(at, span, span.context() - 1)?;
    }
    let contexts = batch.contexts();
    let side = |side: usize| {
        let dim = pages.dims[side];
        let mut out = zeros(at, &[contexts, dim])?;
        let tokens = batch.spans.iter().flat_map(|span| (0..span.context()).map(move |t| (span, t)));
        for (i, (span, t)) in tokens.enumerate() {
            if let Some(row) = pages.place(at, span, t)?.and_then(|place| memory.rows.get(&place)) {
                out[i * dim..][..dim].copy_from_slice(&row[side]);
            }
        }
        Ok(make([contexts, dim], out))
    };
    Ok((side(0)?, if pages.dims[1] > 0 { Some(side(1)?) } else { None }))
}

/// Copies blocks in the order they are named, so that a copy of a copy is one of the first.
pub(super) fn copy_blocks(cache: &Cache, plan: &Plan) -> Result<()> {
    let at = "copy_blocks";
    let (spec, batch) = (cache.spec(), batch(at, plan)?);
    for copy in &batch.copies {
        let blocks = spec.blocks.get(copy.group).copied().unwrap_or(0);
        if let Some(block) = [copy.from, copy.to].into_iter().find(|&b| b as usize >= blocks) {
            let why = format!("block {block} of group {} is outside its {blocks}", copy.group);
            return Err(Error::invalid(at, why));
        }
    }
    let mut memory = writing(at, cache)?;
    let member = |layer: usize, wanted: usize| matches!(spec.layers.get(layer), Some(LayerCache::Paged { group, .. }) if *group == wanted);
    for copy in batch.copies.iter().filter(|c| c.from != c.to) {
        let of = |block: u32| move |&(layer, b, _): &Place| b == block && member(layer, copy.group);
        let (is_source, is_target) = (of(copy.from), of(copy.to));
        let source: Vec<_> = memory
            .rows
            .iter()
            .filter(|(place, _)| is_source(place))
            .map(|(&(layer, _, t), row)| ((layer, copy.to, t), row.clone()))
            .collect();
        memory.rows.retain(|place, _| !is_target(place));
        memory.rows.extend(source);
    }
    Ok(())
}

fn state_len(at: &str, cache: &Cache, layer: usize) -> Result<(usize, usize)> {
    match cache.spec().owner(layer).map_err(|e| e.within(at))? {
        (owner, LayerCache::State { len }) => Ok((owner, len)),
        _ => Err(Error::invalid(at, format!("layer {layer} has no state"))),
    }
}

fn slot(at: &str, cache: &Cache, slot: u32) -> Result<u32> {
    if slot as usize >= cache.spec().slots {
        return Err(Error::invalid(at, format!("slot {slot} is outside the cache's {}", cache.spec().slots)));
    }
    Ok(slot)
}

/// The state each span reads; zeros where nothing has gone before.
pub(super) fn read_state(layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
    let at = "read_state";
    let ((owner, len), batch) = (state_len(at, cache, layer)?, batch(at, plan)?);
    let memory = reading(at, cache)?;
    let mut out = zeros(at, &[batch.spans.len(), len])?;
    for (i, span) in batch.spans.iter().enumerate().filter(|(_, s)| s.past > 0) {
        if let Some(state) = memory.states.get(&(owner, slot(at, cache, span.slots[0])?)) {
            out[i * len..][..len].copy_from_slice(state);
        }
    }
    Ok(make([batch.spans.len(), len], out))
}

/// Replaces the state each span writes; what it reads stays.
pub(super) fn write_state(layer: usize, state: &Tensor, cache: &Cache, plan: &Plan) -> Result<()> {
    let at = "write_state";
    let ((owner, len), batch) = (state_len(at, cache, layer)?, batch(at, plan)?);
    if owner != layer {
        return Err(Error::invalid(at, format!("layer {layer} shares what layer {owner} writes")));
    }
    let spans = batch.spans.len();
    if state.shape().first() != spans || Some(state.shape().len()) != spans.checked_mul(len) {
        return Err(Error::shape(at, state.shape(), [spans, len].into()));
    }
    let values = read(at, state)?;
    let place = |span: &Span| Ok((owner, slot(at, cache, span.slots[1])?));
    let places = batch.spans.iter().map(place).collect::<Result<Vec<_>>>()?;
    let written = places.into_iter().enumerate().map(|(i, place)| (place, row(values, i, len).to_vec()));
    writing(at, cache)?.states.extend(written);
    Ok(())
}
