//! States: a place for each slot, from which a step reads and to which it writes.

use super::{CpuCache, Layer, poisoned};
use crate::{
    ops::{make, read},
    plan,
};
use ogive_backend::{Cache, LayerCache, Plan, Span};
use ogive_tensor::{Error, Result, Tensor};
use std::{
    ops::{Deref, DerefMut},
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// `[slots, len]`, from the beginning of a line of the cache on, as writing past the caches wants it.
#[derive(Debug)]
pub(super) struct States {
    values: Vec<f32>,
    from: usize,
    len: usize,
}

impl States {
    /// So many zeros, which take memory only when they are written.
    pub(super) fn new(len: usize) -> Self {
        let most = LINE / size_of::<f32>() - 1;
        let values = vec![0.0f32; len.saturating_add(most)];
        // No more than there are, should the system not say where they lie.
        let from = values.as_ptr().align_offset(LINE).min(most);
        Self { values, from, len }
    }
}

impl Deref for States {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.values[self.from..][..self.len]
    }
}

impl DerefMut for States {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.from..][..self.len]
    }
}

/// The states of a layer, and how long each is.
fn states(cache: &Cache, layer: usize) -> Result<(&RwLock<States>, usize)> {
    let data = cache.data::<CpuCache>()?;
    let (own, what) = cache.spec().owner(layer)?;
    match (what, data.layers.get(own)) {
        (LayerCache::State { len }, Some(Layer::State(states))) => Ok((states, len)),
        _ => Err(Error::invalid("cache", format!("layer {layer} has no state"))),
    }
}

/// Where the state in `slot` begins and ends.
fn slot(slot: u32, len: usize, states: &[f32]) -> Result<std::ops::Range<usize>> {
    let from = (slot as usize).checked_mul(len);
    from.and_then(|from| Some(from..from.checked_add(len)?)).filter(|r| r.end <= states.len()).ok_or_else(
        || {
            let places = states.len().checked_div(len).unwrap_or(0);
            Error::invalid("cache", format!("a span's state is in slot {slot} of {places}"))
        },
    )
}

pub(crate) fn read_state(layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
    plan::device(plan)?;
    let (lock, len) = states(cache, layer)?;
    let states: RwLockReadGuard<'_, States> = lock.read().map_err(poisoned)?;
    let spans = &plan.batch().spans;
    let mut out = Vec::with_capacity(spans.len() * len);
    for span in spans {
        match span.past {
            0 => out.resize(out.len() + len, 0.0),
            _ => out.extend_from_slice(&states[slot(span.slots[0], len, &states)?]),
        }
    }
    Ok(make([spans.len(), len], out))
}

/// A span's state before, if anything has gone before, and the place of that after.
pub(crate) type Before<'a> = (Option<&'a [f32]>, &'a mut [f32]);

/// Has `f` write the state of each span where it belongs, from the one before: [`read_state`] and [`write_state`] without copies, unless two
/// share a slot. States are of `len` numbers each.
pub(crate) fn advance_states<T>(
    at: &str,
    layer: usize,
    len: usize,
    cache: &Cache,
    plan: &Plan,
    f: impl FnOnce(Vec<Before<'_>>) -> T,
) -> Result<T> {
    plan::device(plan)?;
    let (lock, own) = states(cache, layer)?;
    let spans = &plan.batch().spans;
    if own != len {
        return Err(Error::shape(at, [spans.len(), own].into(), [spans.len(), len].into()));
    }
    if len == 0 {
        return Ok(f(spans.iter().map(|_| (None, [].as_mut_slice())).collect()));
    }
    let mut states: RwLockWriteGuard<'_, States> = lock.write().map_err(poisoned)?;
    let reads = |s: &Span| (s.past > 0).then_some(s.slots[0]);
    let mut used: Vec<u32> = spans.iter().flat_map(|s| reads(s).into_iter().chain([s.slots[1]])).collect();
    used.iter().try_for_each(|s| slot(*s, len, &states).map(drop))?;
    used.sort_unstable();
    if used.windows(2).any(|pair| pair[0] == pair[1]) {
        let before = spans.iter().map(|s| reads(s).map(|s| states[s as usize * len..][..len].to_vec()));
        let (before, mut after): (Vec<_>, _) = (before.collect(), vec![0.0; spans.len() * len]);
        let turns = before.iter().map(Option::as_deref).zip(after.chunks_exact_mut(len));
        let result = f(turns.collect());
        for (span, after) in spans.iter().zip(after.chunks_exact(len)) {
            states[span.slots[1] as usize * len..][..len].copy_from_slice(after);
        }
        return Ok(result);
    }
    let mut places: Vec<Option<&mut [f32]>> = states.chunks_exact_mut(len).map(Some).collect();
    let mut place = |slot: u32| places[slot as usize].take().unwrap_or_default();
    Ok(f(spans.iter().map(|s| (reads(s).map(|s| &*place(s)), place(s.slots[1]))).collect()))
}

pub(crate) fn write_state(layer: usize, x: &Tensor, cache: &Cache, plan: &Plan) -> Result<()> {
    plan::device(plan)?;
    let ((lock, len), from) = (states(cache, layer)?, read("write_state", x)?);
    let spans = &plan.batch().spans;
    if from.len() != spans.len() * len {
        return Err(Error::shape("write_state", x.shape(), [spans.len(), len].into()));
    }
    let mut states: RwLockWriteGuard<'_, States> = lock.write().map_err(poisoned)?;
    let places = spans.iter().map(|s| slot(s.slots[1], len, &states)).collect::<Result<Vec<_>>>()?;
    for (i, place) in places.into_iter().enumerate() {
        states[place].copy_from_slice(&from[i * len..][..len]);
    }
    Ok(())
}
