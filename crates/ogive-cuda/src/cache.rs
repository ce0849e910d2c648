//! The paged cache on the device: a buffer of keys and one of values for each layer that has its own, and one of states.
//!
//! A row is kept in the element type as the host's encoder would pack it; `pages.cu` in ogive-kernels knows where a token's row lies.
//! All of it is zero at first, so that what was never stored reads as nothing.

use crate::device::Device;
use crate::driver::Address;
use crate::launch::Call;
use crate::memory::{Buffer, Pool};
use crate::plan::{self, Checked, CudaPlan};
use crate::record::Need;
use crate::values::count;
use ogive_backend::{Batch, Cache, CacheSpec, LayerCache, Plan};
use ogive_kernels as kernels;
use ogive_tensor::{BF16, Error, F16, F32, Q8_0, Result, Tensor};

/// What [`Cache::data`] is here.
#[derive(Debug)]
struct CudaCache {
    device: u64,
    /// Keys and values, or states, of each layer; nothing for a layer that shares another's.
    layers: Vec<[Option<Buffer>; 2]>,
    /// The element type, by its name in the kernels.
    element: &'static str,
}

/// One side of a layer's pages: where it is and how its rows lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) address: Address,
    /// Elements of a row.
    pub(crate) dim: usize,
    /// Bytes of a row.
    pub(crate) row_bytes: usize,
}

/// The pages a layer uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    pub(crate) owner: usize,
    pub(crate) k: Side,
    /// None where values are part of the keys.
    pub(crate) v: Option<Side>,
    pub(crate) group: usize,
    pub(crate) blocks: usize,
    pub(crate) block_len: usize,
    pub(crate) element: &'static str,
}

fn element(spec: &CacheSpec) -> Result<&'static str> {
    let known = [(&F32, "f32"), (&F16, "f16"), (&BF16, "bf16"), (&Q8_0, "q8_0")];
    let found = known.into_iter().find(|(format, _)| std::ptr::eq(*format, spec.element));
    found.map(|(_, name)| name).ok_or_else(|| {
        let why =
            format!("a cache of {} is not supported on CUDA; use f32, f16, bf16 or q8_0", spec.element.name);
        Error::unsupported("new_cache", why)
    })
}

/// Bytes of device memory that the cache would take.
pub(crate) fn size(spec: &CacheSpec) -> Option<u64> {
    let tokens = |group: usize| spec.blocks.get(group).copied().unwrap_or(0).checked_mul(spec.block_len);
    let mut sum = 0u64;
    for layer in &spec.layers {
        let sides = match *layer {
            LayerCache::Paged { k_dim, v_dim, group, .. } => [k_dim, v_dim]
                .map(|dim| (dim > 0).then(|| tokens(group)?.checked_mul(spec.element.row_bytes(dim)))),
            LayerCache::State { len } => [Some(spec.slots.checked_mul(len)?.checked_mul(4)), None],
            _ => [None, None],
        };
        for bytes in sides.into_iter().flatten() {
            sum = sum.checked_add(Pool::size(bytes?)? as u64)?;
        }
    }
    Some(sum)
}

/// Reserves the cache.
pub(crate) fn new_cache(device: &Device, spec: &CacheSpec) -> Result<Cache> {
    let at = "new_cache";
    device.outside(at)?;
    spec.check()?;
    let element = element(spec)?;
    let total = spec.bytes().filter(|&n| isize::try_from(n).is_ok());
    total.ok_or_else(|| Error::invalid(at, "the cache has more bytes than can be counted"))?;
    let cleared = |bytes: usize| {
        let buffer = device.take(at, bytes)?;
        if bytes > 0 {
            device.stream().clear(buffer.address(), bytes)?;
        }
        Ok::<_, Error>(Some(buffer))
    };
    let mut layers = Vec::with_capacity(spec.layers.len());
    for layer in &spec.layers {
        layers.push(match *layer {
            LayerCache::Paged { k_dim, v_dim, group, .. } => {
                let tokens = spec.blocks.get(group).copied().unwrap_or(0) * spec.block_len;
                let side = |dim| cleared(tokens * spec.element.row_bytes(dim));
                [side(k_dim)?, if v_dim > 0 { side(v_dim)? } else { None }]
            }
            LayerCache::State { len } => [cleared(4 * spec.slots * len)?, None],
            LayerCache::Shares(_) => [None, None],
            other => return Err(Error::unsupported(at, format!("CUDA does not know {other:?}"))),
        });
    }
    Ok(Cache::new(spec.clone(), CudaCache { device: device.id(), layers, element }))
}

fn own<'a>(device: &Device, at: &str, cache: &'a Cache) -> Result<&'a CudaCache> {
    let own = cache.data::<CudaCache>().map_err(|e| e.within(at))?;
    device.own("cache", own.device).map_err(|e| e.within(at))?;
    Ok(own)
}

/// The pages that `layer` uses.
pub(crate) fn pages(device: &Device, at: &str, cache: &Cache, layer: usize) -> Result<Pages> {
    let (own, spec) = (own(device, at, cache)?, cache.spec());
    let (owner, LayerCache::Paged { k_dim, v_dim, group, .. }) =
        spec.owner(layer).map_err(|e| e.within(at))?
    else {
        return Err(Error::invalid(at, format!("layer {layer} has no pages")));
    };
    let side = |i: usize, dim: usize| {
        let buffer = own.layers.get(owner).and_then(|sides| sides.get(i)?.as_ref());
        buffer.map(|b| Side { address: b.address(), dim, row_bytes: spec.element.row_bytes(dim) })
    };
    let k = side(0, k_dim).ok_or_else(|| Error::invalid(at, format!("layer {layer} has no pages")))?;
    Ok(Pages {
        owner,
        k,
        v: side(1, v_dim),
        group,
        blocks: spec.blocks.get(group).copied().unwrap_or(0),
        block_len: spec.block_len,
        element: own.element,
    })
}

impl Pages {
    /// Checks that the blocks are there which a step touches.
    pub(crate) fn check(
        &self,
        device: &Device,
        at: &str,
        step: &CudaPlan,
        batch: &Batch,
        context: bool,
    ) -> Result<()> {
        count(at, "tokens in a block", self.block_len)?;
        let (group, blocks, block_len) = (self.group, self.blocks, self.block_len);
        let want = Checked { group, blocks, block_len, context };
        device.needs(Need::Blocks(want));
        step.check_blocks(at, batch, want)
    }
}

/// Appends a step's keys and values.
pub(crate) fn store_kv(
    device: &Device,
    layer: usize,
    k: &Tensor,
    v: Option<&Tensor>,
    cache: &Cache,
    plan: &Plan,
) -> Result<()> {
    let at = "store_kv";
    let (pages, step) = (pages(device, at, cache, layer)?, plan::device(at, device, plan)?);
    if pages.owner != layer {
        return Err(Error::invalid(at, format!("layer {layer} shares what layer {} stores", pages.owner)));
    }
    let sides = match (v, pages.v) {
        (Some(v), Some(side)) => vec![(k, pages.k), (v, side)],
        (None, None) => vec![(k, pages.k)],
        _ => {
            let dim = pages.v.map_or(0, |side| side.dim);
            return Err(Error::invalid(at, format!("layer {layer} keeps values of {dim} elements")));
        }
    };
    let n = plan.batch().tokens.len();
    for (x, side) in &sides {
        device.read(at, x)?;
        if x.shape().first() != n || Some(x.shape().len()) != n.checked_mul(side.dim) {
            return Err(Error::shape(at, x.shape(), [n, side.dim].into()));
        }
    }
    pages.check(device, at, step, plan.batch(), false)?;
    for (x, side) in sides {
        Call::new(device, at, &kernels::CACHE, "store")
            .word("ELEMENT", pages.element)
            .flag("PACKED", pages.element == "q8_0")
            .at(device.read(at, x)?)
            .count("elements of a row", side.dim)
            .at(side.address)
            .long(side.row_bytes)
            .count("tokens in a block", pages.block_len)
            .count("groups", pages.group)
            .at(step.address())
            .by_rows(n, side.dim)?;
    }
    Ok(())
}

/// What a layer holds of the contexts.
pub(crate) fn gather_kv(
    device: &Device,
    layer: usize,
    cache: &Cache,
    plan: &Plan,
) -> Result<(Tensor, Option<Tensor>)> {
    let at = "gather_kv";
    // As many rows as all contexts have.
    device.outside(at)?;
    let (pages, step) = (pages(device, at, cache, layer)?, plan::device(at, device, plan)?);
    pages.check(device, at, step, plan.batch(), true)?;
    let side = |side: Side| {
        let out = device.tensor(at, [step.contexts, side.dim])?;
        let spans = plan.batch().spans.len().min(65_535);
        Call::new(device, at, &kernels::CACHE, "gather")
            .word("ELEMENT", pages.element)
            .flag("PACKED", pages.element == "q8_0")
            .at(side.address)
            .long(side.row_bytes)
            .count("tokens in a block", pages.block_len)
            .count("groups", pages.group)
            .at(device.read(at, &out)?)
            .count("elements of a row", side.dim)
            .at(step.address())
            .run([step.longest.min(4096), spans, 1], [crate::launch::threads(side.dim), 1, 1])?;
        Ok::<_, Error>(out)
    };
    Ok((side(pages.k)?, pages.v.map(side).transpose()?))
}

/// Copies blocks in the order they are named, in every layer of their group.
pub(crate) fn copy_blocks(device: &Device, cache: &Cache, plan: &Plan) -> Result<()> {
    let at = "copy_blocks";
    let (own, spec) = (own(device, at, cache)?, cache.spec());
    plan::device(at, device, plan)?;
    let copies = &plan.batch().copies;
    if !copies.is_empty() {
        device.outside(at)?;
    }
    for copy in copies {
        let blocks = spec.blocks.get(copy.group).copied().unwrap_or(0);
        if let Some(block) = [copy.from, copy.to].into_iter().find(|&b| b as usize >= blocks) {
            let why = format!("block {block} of group {} is outside its {blocks}", copy.group);
            return Err(Error::invalid(at, why));
        }
    }
    for copy in copies.iter().filter(|c| c.from != c.to) {
        for (layer, sides) in spec.layers.iter().zip(&own.layers) {
            let LayerCache::Paged { k_dim, v_dim, group, .. } = *layer else { continue };
            for (buffer, dim) in sides.iter().zip([k_dim, v_dim]).filter(|_| group == copy.group) {
                let bytes = spec.block_len * spec.element.row_bytes(dim);
                let Some(buffer) = buffer.as_ref().filter(|_| bytes > 0) else { continue };
                let place = |block: u32| buffer.address() + u64::from(block) * bytes as u64;
                device.stream().copy_within(place(copy.to), place(copy.from), bytes)?;
            }
        }
    }
    Ok(())
}

/// The states of a layer: where they are, how long each is, and the layer they belong to.
fn states(device: &Device, at: &str, cache: &Cache, layer: usize) -> Result<(Address, usize, usize)> {
    let own = own(device, at, cache)?;
    let none = || Error::invalid(at, format!("layer {layer} has no state"));
    let (owner, LayerCache::State { len }) = cache.spec().owner(layer).map_err(|e| e.within(at))? else {
        return Err(none());
    };
    let buffer = own.layers.get(owner).and_then(|[buffer, _]| buffer.as_ref()).ok_or_else(none)?;
    Ok((buffer.address(), len, owner))
}

fn check_slots(device: &Device, at: &str, cache: &Cache, batch: &Batch, written: bool) -> Result<()> {
    let most = cache.spec().slots;
    device.needs(Need::Slots { written, below: most });
    let touched = batch.spans.iter().filter(|s| written || s.past > 0);
    let slots = touched.map(|s| s.slots[usize::from(written)]);
    match { slots }.find(|&slot| slot as usize >= most) {
        Some(slot) => Err(Error::invalid(at, format!("slot {slot} is outside the cache's {most}"))),
        None => Ok(()),
    }
}

/// Where the states lie that an operator reads and writes of a layer, if there are `len` elements of each: all that [`read_state`] and
/// [`write_state`] check.
pub(crate) fn states_in_place(
    device: &Device,
    at: &str,
    cache: &Cache,
    layer: usize,
    plan: &Plan,
    len: Option<usize>,
) -> Result<Address> {
    let (address, found, owner) = states(device, at, cache, layer)?;
    if owner != layer {
        return Err(Error::invalid(at, format!("layer {layer} shares what layer {owner} writes")));
    }
    if len != Some(found) {
        let spans = plan.batch().spans.len();
        return Err(Error::shape(at, [spans, found].into(), [spans, len.unwrap_or(usize::MAX)].into()));
    }
    check_slots(device, at, cache, plan.batch(), false)?;
    check_slots(device, at, cache, plan.batch(), true)?;
    Ok(address)
}

/// The state each span reads.
pub(crate) fn read_state(device: &Device, layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
    let at = "read_state";
    let ((address, len, _), step) = (states(device, at, cache, layer)?, plan::device(at, device, plan)?);
    let spans = &plan.batch().spans;
    check_slots(device, at, cache, plan.batch(), false)?;
    let out = device.tensor(at, [spans.len(), len])?;
    Call::new(device, at, &kernels::MOVES, "read_state")
        .at(address)
        .at(device.read(at, &out)?)
        .count("elements of a state", len)
        .at(step.address())
        .by_rows(spans.len(), len)?;
    Ok(out)
}

/// Replaces the state each span writes.
pub(crate) fn write_state(
    device: &Device,
    layer: usize,
    x: &Tensor,
    cache: &Cache,
    plan: &Plan,
) -> Result<()> {
    let at = "write_state";
    let ((address, len, owner), step) = (states(device, at, cache, layer)?, plan::device(at, device, plan)?);
    if owner != layer {
        return Err(Error::invalid(at, format!("layer {layer} shares what layer {owner} writes")));
    }
    let spans = &plan.batch().spans;
    let from = device.read(at, x)?;
    if x.shape().first() != spans.len() || Some(x.shape().len()) != spans.len().checked_mul(len) {
        return Err(Error::shape(at, x.shape(), [spans.len(), len].into()));
    }
    check_slots(device, at, cache, plan.batch(), true)?;
    Call::new(device, at, &kernels::MOVES, "write_state")
        .at(from)
        .at(address)
        .count("elements of a state", len)
        .at(step.address())
        .by_rows(spans.len(), len)?;
    Ok(())
}
