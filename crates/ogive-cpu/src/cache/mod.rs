//! What sequences remember: a lock for each layer, pages of keys and values or places for states behind it.
//!
//! A lock for each layer and not one for the cache, so that a poisoned layer is an error of that layer; hardly anybody waits,
//! since a step goes through its layers one by one, and a thread that was held up in a layer has the length of a step to leave it.
//! Every index is checked before anything is written: a step that fails has changed nothing.

mod lines;
mod pages;
mod states;

pub(crate) use lines::{Brains, Halves, Lines, Q8, Singles};
pub(crate) use pages::{Element, Pages, Rows, Turn};
pub(crate) use states::{advance_states, read_state, write_state};

use crate::{
    CpuBackend,
    ops::{make, read, zeros},
    plan,
};
use ogive_backend::{BlockTable, Cache, CacheSpec, LayerCache, Plan, Span};
use ogive_tensor::{Error, ErrorKind, Result, Tensor};
use states::States;
use std::sync::{Arc, RwLock, RwLockReadGuard};

/// What [`Cache::data`] is here.
#[derive(Debug)]
pub(crate) struct CpuCache {
    layers: Vec<Layer>,
}

#[derive(Debug)]
enum Layer {
    Paged(Arc<RwLock<Pages>>),
    State(RwLock<States>),
    Shared,
}

pub(crate) fn new_cache(spec: &CacheSpec) -> Result<Cache> {
    spec.check()?;
    let too_large = || Error::invalid("cache", "the cache's size overflows; ask for fewer blocks or slots");
    let needed = spec.bytes().ok_or_else(too_large)?;
    // Asked for and given back, so that too much is an error here and not an abort below. Zeroed pages then take real
    // memory only when they are written.
    if Vec::<u8>::new().try_reserve_exact(needed).is_err() {
        let available = crate::memory::available().unwrap_or(0);
        return Err(Error::new("cache", ErrorKind::Memory { needed: needed as u64, available }));
    }
    let layers = spec.layers.iter().map(|layer| match *layer {
        LayerCache::Paged { k_dim, v_dim, group, .. } => {
            let blocks = *spec.blocks.get(group).ok_or_else(too_large)?;
            let pages = Pages::new(spec.element, spec.block_len, blocks, k_dim, v_dim)?;
            Ok(Layer::Paged(Arc::new(RwLock::new(pages))))
        }
        LayerCache::State { len } => {
            Ok(Layer::State(RwLock::new(States::new(spec.slots.checked_mul(len).ok_or_else(too_large)?))))
        }
        LayerCache::Shares(_) => Ok(Layer::Shared),
        other => Err(Error::unsupported("cache", format!("the CPU backend cannot hold {other:?}"))),
    });
    let layers = layers.collect::<Result<_>>()?;
    Ok(Cache::new(spec.clone(), CpuCache { layers }))
}

fn poisoned<T>(_: T) -> Error {
    Error::invalid("cache", "a thread failed while it wrote this layer; make a new cache")
}

/// The pages a layer reads, and the group they belong to.
fn pages(cache: &Cache, layer: usize) -> Result<(&Arc<RwLock<Pages>>, usize)> {
    let data = cache.data::<CpuCache>()?;
    match (cache.spec().owner(layer)?, data.layers.get(cache.spec().owner(layer)?.0)) {
        ((_, LayerCache::Paged { group, .. }), Some(Layer::Paged(pages))) => Ok((pages, group)),
        _ => Err(Error::invalid("cache", format!("layer {layer} has no pages"))),
    }
}

/// The pages of `layer`, and the table of each span.
pub(crate) fn reader<'a>(
    layer: usize,
    cache: &'a Cache,
    plan: &'a Plan,
) -> Result<(&'a Arc<RwLock<Pages>>, Vec<&'a BlockTable>)> {
    plan::device(plan)?;
    let (lock, group) = pages(cache, layer)?;
    let tables = plan.batch().spans.iter().map(|s| table(s, group)).collect::<Result<_>>()?;
    Ok((lock, tables))
}

/// Locks a layer for reading.
pub(crate) fn locked(pages: &RwLock<Pages>) -> Result<RwLockReadGuard<'_, Pages>> {
    pages.read().map_err(poisoned)
}

fn table(span: &Span, group: usize) -> Result<&BlockTable> {
    span.tables.get(group).ok_or_else(|| {
        Error::invalid(
            "cache",
            format!("a span has {} block tables, none for group {group}", span.tables.len()),
        )
    })
}

/// `turn` is given each row and a copy of its keys, to change before they are kept.
pub(crate) fn store_kv(
    b: &CpuBackend,
    layer: usize,
    k: &Tensor,
    v: Option<&Tensor>,
    turn: Option<&Turn<'_>>,
    cache: &Cache,
    plan: &Plan,
) -> Result<()> {
    const AT: &str = "store_kv";
    if matches!(cache.spec().layers.get(layer), Some(LayerCache::Shares(_))) {
        return Err(Error::invalid(
            AT,
            format!("layer {layer} shares another's cache and cannot be written"),
        ));
    }
    let (lock, group) = pages(cache, layer)?;
    let mut pages = lock.write().map_err(poisoned)?;
    let rows_of = |x: &Tensor, dim: usize| {
        plan::rows_fit(AT, x, plan)?;
        let n = x.shape().first();
        if x.shape().len() != n * dim { Err(Error::shape(AT, x.shape(), [n, dim].into())) } else { Ok(()) }
    };
    rows_of(k, pages.k_dim)?;
    match v {
        Some(v) => rows_of(v, pages.v_dim)?,
        None if pages.v_dim > 0 => {
            return Err(Error::invalid(AT, format!("layer {layer} wants values and got none")));
        }
        None => {}
    }
    let (ks, vs) = (read(AT, k)?, v.map(|v| read(AT, v)).transpose()?);
    let mut places = Vec::with_capacity(plan.batch().tokens.len());
    for span in &plan.batch().spans {
        let table = table(span, group)?;
        for t in span.past..span.context() {
            places.push(pages.place(table, t)?.ok_or_else(|| {
                Error::invalid(AT, format!("the block of token {t} was given back before it was written"))
            })?);
        }
    }
    pages.store(&b.pool, &places, ks, vs, turn)
}

pub(crate) fn gather_kv(layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
    let (lock, tables) = reader(layer, cache, plan)?;
    let (pages, spans) = (locked(lock)?, &plan.batch().spans);
    // A past may be any number: no room for its rows before the table has blocks up to its end.
    for (span, table) in spans.iter().zip(&tables).filter(|(span, _)| span.context() > 0) {
        pages.place(table, span.context() - 1)?;
    }
    // A window can have left behind more than there is memory for.
    let n = plan.batch().contexts();
    let (mut k, mut v) = (zeros("gather_kv", n, pages.k_dim)?, zeros("gather_kv", n, pages.v_dim)?);
    let mut row = 0;
    for (span, table) in spans.iter().zip(tables) {
        for t in 0..span.context() {
            if let Some(place) = pages.place(table, t)? {
                pages.load(place, &mut k[row * pages.k_dim..][..pages.k_dim], &mut v[row * pages.v_dim..]);
            }
            row += 1;
        }
    }
    let v = (pages.v_dim > 0).then(|| make([n, pages.v_dim], v));
    Ok((make([n, pages.k_dim], k), v))
}

pub(crate) fn copy_blocks(cache: &Cache, plan: &Plan) -> Result<()> {
    plan::device(plan)?;
    let (spec, data) = (cache.spec(), cache.data::<CpuCache>()?);
    for copy in &plan.batch().copies {
        let blocks = spec.blocks.get(copy.group).copied().unwrap_or(0);
        if copy.from.max(copy.to) as usize >= blocks {
            let why = format!("{copy:?} names a block outside the {blocks} of its group");
            return Err(Error::invalid("copy_blocks", why));
        }
    }
    if plan.batch().copies.is_empty() {
        return Ok(());
    }
    for (what, layer) in spec.layers.iter().zip(&data.layers) {
        let (LayerCache::Paged { group, .. }, Layer::Paged(pages)) = (what, layer) else { continue };
        let mut pages = pages.write().map_err(poisoned)?;
        for copy in plan.batch().copies.iter().filter(|c| c.group == *group) {
            pages.copy(copy.from as usize, copy.to as usize);
        }
    }
    Ok(())
}
