//! Device memory: a pool that keeps what was given back, so that the same step gets the same addresses.
//!
//! Sizes are rounded up by at most an eighth (large ones by a sixteenth), so that sizes which differ a little share places. The driver's own
//! grain is two megabytes: small pieces are cut from large ones, and what is not small is counted in whole grains, as the driver takes
//! them. Everything runs on one stream, so a piece may be used again as soon as it is given back: whatever still reads it was queued earlier,
//! or is another device's copy that the stream was told to wait for. The driver gets memory back when the stream is done.
//!
//! Weights stay, and share the pieces they lie in (`lasting.rs`). Such a piece is in use as long as any of them is.

mod lasting;

use crate::driver::{Address, Context, Stream};
use crate::error::{Error, OUT_OF_MEMORY, Result};
use crate::record::{Arena, Recorder};
use lasting::Lasting;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Every piece begins at a multiple of this, and is as long as one.
const GRAIN: usize = 256;
/// Larger pieces are the driver's own.
const SMALL: usize = 1 << 20;
/// Those are multiples of this, which a driver's pages are since Pascal.
const PAGE: usize = 2 << 20;
/// What small pieces are cut from.
const SLAB: usize = 4 << 20;
/// A variable: with `apart`, whatever is asked for is the driver's own, and so long as was asked, so that a tool that watches memory sees where each
/// piece ends, which in one that is cut from a larger one or was another's before it cannot.
const MEMORY: &str = "OGIVE_CUDA_MEMORY";
/// What may lie idle then, which is never used again.
const IDLE: u64 = 64 << 20;
/// Left to the driver and to others, at most.
const MARGIN: u64 = 512 << 20;

#[derive(Debug, Default)]
struct State {
    /// Pieces by size, given back.
    free: BTreeMap<usize, Vec<Address>>,
    /// What the driver gave for small pieces.
    slabs: Vec<Address>,
    /// What is left of the last slab.
    rest: (Address, usize),
    /// What weights are cut from.
    lasting: Lasting,
    /// Bytes had from the driver.
    held: u64,
    /// Bytes in use.
    used: u64,
    /// The most bytes that ever were.
    peak: u64,
    /// Whom to tell when what lies there is given back.
    watched: HashMap<Address, Vec<Arc<AtomicBool>>>,
}

/// The pool of one device.
#[derive(Debug)]
pub(crate) struct Pool {
    context: Arc<Context>,
    /// Where whatever reads and writes the memory is queued.
    work: Arc<Stream>,
    limit: u64,
    total: u64,
    /// Whether each piece is the driver's own.
    apart: bool,
    state: Mutex<State>,
    /// Who records a step.
    pub(crate) recorder: Recorder,
}

/// Device memory in use; dropped, it goes back to the pool, or to the arena it came from.
#[derive(Debug)]
pub(crate) struct Buffer {
    address: Address,
    size: usize,
    pool: Arc<Pool>,
    arena: Option<Arc<Arena>>,
    /// Whether it is a part of a slab.
    lasts: bool,
}

impl Buffer {
    /// Where it lies. A step that is recorded leans on it from now on.
    pub(crate) fn address(&self) -> Address {
        if self.arena.is_none() {
            self.pool.recorder.uses(self.address);
        }
        self.address
    }

    /// Bytes of it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Whether `address` lies in it.
    pub(crate) fn holds(&self, address: Address) -> bool {
        (self.address..self.address + self.size as u64).contains(&address)
    }

    /// The same, to be given back to `arena`.
    pub(crate) fn of_arena(mut self, arena: Arc<Arena>) -> Self {
        self.arena = Some(arena);
        self
    }

    /// Whether it is of an arena.
    pub(crate) fn is_of_arena(&self) -> bool {
        self.arena.is_some()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(arena) = self.arena.take() {
            let pool = Arc::clone(&self.pool);
            return arena.give(Self {
                address: self.address,
                size: self.size,
                pool,
                arena: None,
                lasts: false,
            });
        }
        let mut state = self.pool.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watching) = state.watched.remove(&self.address) {
            watching.iter().for_each(|stale| stale.store(true, Relaxed));
        }
        let whole = match self.lasts {
            true => state.lasting.give(self.address, self.size),
            false => Some((self.address, self.size)),
        };
        if let Some((address, size)) = whole {
            state.used -= size as u64;
            state.free.entry(size).or_default().push(address);
        }
    }
}

/// The size of the piece for `bytes`: a multiple of a part of the power of two above it, finer for what is large.
fn rounded(bytes: usize) -> Option<usize> {
    let part = if bytes <= SMALL { 16 } else { 32 };
    let step = (bytes.checked_next_power_of_two()? / part).max(if bytes <= SMALL { GRAIN } else { PAGE });
    bytes.max(1).checked_next_multiple_of(step)
}

/// Where weights end and begin: kernels and cuBLAS read them in sixteens of bytes.
fn grained(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(GRAIN)
}

impl Pool {
    /// A pool of what is free now, less a margin, and of no more than `limit` bytes.
    pub(crate) fn new(context: &Arc<Context>, work: &Arc<Stream>, limit: Option<u64>) -> Result<Arc<Self>> {
        let (free, total) = context.memory()?;
        let most = free.saturating_sub((total / 32).min(MARGIN));
        let limit = limit.map_or(most, |l| l.min(most));
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            work: Arc::clone(work),
            limit,
            total,
            apart: std::env::var_os(MEMORY).is_some_and(|memory| memory == "apart"),
            state: Mutex::default(),
            recorder: Recorder::default(),
        }))
    }

    /// Bytes it may hold.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use now, and the most there ever were.
    pub(crate) fn used(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.used, state.peak)
    }

    /// Bytes that could be had now: what it keeps, and what the driver has free.
    pub(crate) fn left(&self) -> Result<u64> {
        let (free, _) = self.context.memory()?;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = state.held.saturating_sub(state.used);
        Ok(free.saturating_add(kept).min(self.limit.saturating_sub(state.used)))
    }

    /// Memory for `bytes`, for what `doing` says.
    pub(crate) fn take(self: &Arc<Self>, doing: &str, bytes: usize) -> Result<Buffer> {
        let size = if self.apart { Some(bytes.max(1)) } else { rounded(bytes) };
        let size = size.ok_or_else(|| self.short(doing, u64::MAX, 0))?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let address = match self.again(&mut state, size) {
            Some(found) => found,
            None if self.is_whole(size) => (self.more(&mut state, doing, size)?, size),
            None => (self.cut(&mut state, doing, size)?, size),
        };
        let (address, size) = address;
        state.used += size as u64;
        state.peak = state.peak.max(state.used);
        Ok(Buffer { address, size, pool: Arc::clone(self), arena: None, lasts: false })
    }

    /// The same for what stays as long as a model: it shares pages with others of its kind.
    pub(crate) fn take_lasting(self: &Arc<Self>, doing: &str, bytes: usize) -> Result<Buffer> {
        if self.apart {
            return self.take(doing, bytes);
        }
        let size = grained(bytes).ok_or_else(|| self.short(doing, u64::MAX, 0))?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let address = match state.lasting.cut(size) {
            Some(address) => address,
            None => {
                let (slab, len) = self.slab(&mut state, doing, size)?;
                state.lasting.add(slab, len, size);
                state.used += len as u64;
                state.peak = state.peak.max(state.used);
                slab
            }
        };
        Ok(Buffer { address, size, pool: Arc::clone(self), arena: None, lasts: true })
    }

    /// Gives the driver back what lies idle, for what it wants memory for that is not the pool's: code, graphs, other libraries.
    pub(crate) fn make_room(&self) {
        self.trim(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What `f` gives, for which the driver takes memory by itself. Where it has none, `f` is asked once more after that.
    pub(crate) fn retried<T>(&self, f: impl Fn() -> Result<T>) -> Result<T> {
        match f() {
            Err(Error::Driver { code: OUT_OF_MEMORY, .. }) => {
                self.make_room();
                f()
            }
            done => done,
        }
    }

    /// The size of the piece for `bytes`, if there is one.
    pub(crate) fn size(bytes: usize) -> Option<usize> {
        rounded(bytes)
    }

    /// What is taken for lasting pieces of so many bytes that come in this order, if it can be counted.
    pub(crate) fn lasting_size(bytes: impl IntoIterator<Item = u64>) -> Option<u64> {
        lasting::taken(bytes)
    }

    /// Sets `stale` when what lies at any of `addresses` is given back.
    pub(crate) fn watch(&self, addresses: impl IntoIterator<Item = Address>, stale: &Arc<AtomicBool>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            let watching = state.watched.entry(address).or_default();
            watching.retain(|other| Arc::strong_count(other) > 1);
            watching.push(Arc::clone(stale));
        }
    }

    /// Whether a piece of this size is the driver's own, and not cut from a slab.
    fn is_whole(&self, size: usize) -> bool {
        self.apart || size > SMALL
    }

    /// A piece that was given back: of this size, or of a larger one where little is lost.
    fn again(&self, state: &mut State, size: usize) -> Option<(Address, usize)> {
        if self.apart {
            return None;
        }
        let most = if size <= SMALL { size } else { size.saturating_add(size / 4) };
        for (&size, pieces) in state.free.range_mut(size..=most) {
            if let Some(address) = pieces.pop() {
                return Some((address, size));
            }
        }
        None
    }

    fn cut(&self, state: &mut State, doing: &str, size: usize) -> Result<Address> {
        if state.rest.1 < size {
            let slab = self.more(state, &format!("{doing} (for this and other small pieces)"), SLAB)?;
            state.slabs.push(slab);
            state.rest = (slab, SLAB);
        }
        let (at, left) = state.rest;
        state.rest = (at + size as u64, left - size);
        Ok(at)
    }

    /// A slab for a lasting piece and others after it. Where memory is short it is shorter, down to the piece's own pages.
    fn slab(&self, state: &mut State, doing: &str, size: usize) -> Result<(Address, usize)> {
        let countless = || self.short(doing, u64::MAX, 0);
        let least = size.checked_next_multiple_of(PAGE).ok_or_else(countless)?;
        let mut len = state.lasting.wanted(size).ok_or_else(countless)?;
        loop {
            if let Some(found) = self.again(state, len) {
                return Ok(found);
            }
            match self.more(state, doing, len) {
                Err(Error::Memory { .. }) if len > least => {
                    len = (len / 2).next_multiple_of(PAGE).max(least);
                }
                taken => return taken.map(|address| (address, len)),
            }
        }
    }

    fn more(&self, state: &mut State, doing: &str, size: usize) -> Result<Address> {
        let idle = self.apart && state.held - state.used > IDLE;
        if idle || state.held.saturating_add(size as u64) > self.limit {
            self.trim(state);
        }
        if state.held.saturating_add(size as u64) > self.limit {
            return Err(self.short(doing, size as u64, self.limit - state.held.min(self.limit)));
        }
        let address = match self.context.allocate(size) {
            Err(Error::Driver { code: OUT_OF_MEMORY, .. }) => {
                self.trim(state);
                self.context.allocate(size)
            }
            taken => taken,
        };
        match address {
            Ok(address) => {
                state.held += size as u64;
                Ok(address)
            }
            Err(Error::Driver { code: OUT_OF_MEMORY, .. }) => {
                let free = self.context.memory().map_or(0, |(free, _)| free);
                Err(self.short(doing, size as u64, free))
            }
            Err(e) => Err(e),
        }
    }

    /// Gives the driver back what is not in use and is not part of a slab. It need not wait for what is queued, so that is done here.
    fn trim(&self, state: &mut State) {
        let whole =
            state.free.iter_mut().filter(|(size, pieces)| self.is_whole(**size) && !pieces.is_empty());
        let mut whole = whole.peekable();
        if whole.peek().is_some() {
            self.settle();
        }
        for (size, pieces) in whole {
            for address in pieces.drain(..) {
                self.context.free(address);
                state.held -= *size as u64;
            }
        }
    }

    /// Waits until all that was queued is done, failed or not.
    fn settle(&self) {
        if let Err(e) = self.work.wait("giving memory back") {
            tracing::debug!(target: "ogive::cuda", error = %e, "the device failed");
        }
    }

    fn short(&self, doing: &str, asked: u64, free: u64) -> Error {
        Error::Memory { doing: doing.into(), asked, free, total: self.total }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.settle();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = state.free.iter().filter(|(size, _)| self.is_whole(**size));
        let whole = whole.flat_map(|(_, pieces)| pieces);
        whole.chain(&state.slabs).for_each(|&address| self.context.free(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_an_eighth_at_most_or_to_a_page() {
        assert_eq!(rounded(0), Some(256));
        assert_eq!(rounded(256), Some(256));
        assert_eq!(rounded(257), Some(512));
        assert_eq!(rounded(1 << 20), Some(1 << 20));
        for bytes in [1000, 5000, 70_000, 1_000_003, 1_100_000, 123_456_789_usize] {
            let size = rounded(bytes).unwrap();
            assert!(size >= bytes && size.is_multiple_of(GRAIN), "{bytes}");
            let most = if bytes <= SMALL { (bytes / 8).max(GRAIN) } else { (bytes / 16).max(PAGE) };
            assert!(size - bytes <= most, "{bytes}: {size}");
            assert!(bytes <= SMALL || size.is_multiple_of(PAGE), "{bytes}: {size}");
        }
        assert_eq!(rounded(usize::MAX), None);
    }
}
