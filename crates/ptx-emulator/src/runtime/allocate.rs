//! Allocating and freeing: at once, in stream order, pinned, registered.
//!
//! Memory allocated in stream order is there at once, as it is when a real pool has some; memory freed in stream order is gone when the stream
//! comes to it, and who still uses it then is found.
#![allow(unsafe_code)]

use super::Machine;
use super::error::{Code, Error, Result};
use super::handle::{Context, Pool, Stream};
use super::state::{Origin, Owned, State};
use super::work::Work;
use crate::memory::{self, Place};

impl From<memory::Error> for Error {
    fn from(error: memory::Error) -> Self {
        let code = match error {
            memory::Error::Registered { .. } => Code::HOST_MEMORY_ALREADY_REGISTERED,
            memory::Error::Full { .. } | memory::Error::Exhausted { .. } => Code::OUT_OF_MEMORY,
            _ => Code::INVALID_VALUE,
        };
        Self::new(code, error.to_string())
    }
}

impl Machine {
    /// Allocates device memory.
    ///
    /// # Errors
    /// No bytes; more than are free (`CUDA_ERROR_OUT_OF_MEMORY`); a capture that forbids it.
    pub fn allocate(&self, context: Context, bytes: u64) -> Result<u64> {
        {
            let mut state = self.lock();
            state.context(context)?;
            state.not_while_capturing("allocating memory")?;
        }
        self.counted(context, bytes, Origin::Device)
    }

    /// Allocates device memory from a pool, in stream order.
    ///
    /// # Errors
    /// As [`Machine::allocate`]; a capturing stream (memory owned by a graph is not emulated).
    pub fn allocate_async(
        &self,
        context: Context,
        bytes: u64,
        pool: Option<Pool>,
        stream: Stream,
    ) -> Result<u64> {
        let pool = {
            let mut state = self.lock();
            let stream = state.stream(context, stream)?;
            if state.streams.get(&stream).is_some_and(|stream| stream.capture.is_some()) {
                return Code::NOT_SUPPORTED.error(
                    "allocating while the stream captures: memory owned by graphs is not emulated; allocate before the capture",
                );
            }
            let home = state.streams.get(&stream).map_or(context, |stream| stream.context);
            let device = state.context(home)?.device;
            match pool {
                Some(pool) if state.pools.contains_key(&pool) => pool,
                Some(pool) => return Code::INVALID_HANDLE.error(format!("{pool:x?} is no memory pool")),
                None => self.pools_of(&mut state, device).1,
            }
        };
        self.counted(context, bytes, Origin::Pool(pool))
    }

    /// Frees device memory once everything queued on its device is done, as the driver does.
    ///
    /// # Errors
    /// An address that is not the start of a living allocation; a capture that forbids it.
    pub fn free(&self, context: Context, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let mut state = self.lock();
        state.context(context)?;
        state.not_while_capturing("freeing memory")?;
        let owned =
            self.owner(&state, address, |origin| matches!(origin, Origin::Device | Origin::Pool(_)))?;
        let context = owned.context;
        let goals = state.queued_in(context);
        state.counts.host_waits += 1;
        let mut state = self.run_until(state, &goals);
        self.release_memory(&mut state, address);
        state.context(context).map(|_| ())
    }

    /// Frees device memory when a stream comes to it.
    ///
    /// # Errors
    /// An address that is not the start of a living allocation, or that was freed this way already; a capturing stream.
    pub fn free_async(&self, context: Context, address: u64, stream: Stream) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        if state.streams.get(&stream).is_some_and(|stream| stream.capture.is_some()) {
            return Code::INVALID_VALUE
                .error("freeing while the stream captures: the memory does not belong to the graph");
        }
        let owned =
            self.owner(&state, address, |origin| matches!(origin, Origin::Device | Origin::Pool(_)))?;
        if owned.freeing {
            return Code::INVALID_VALUE.error(format!("freeing {address:#x}: it is being freed already"));
        }
        if let Some(owned) = state.owned.get_mut(&address) {
            owned.freeing = true;
        }
        let before = state.before(stream);
        state.append(stream, Work::Free(address), before, None);
        self.queued(state);
        Ok(())
    }

    /// Allocates pinned host memory; every device can use its address.
    ///
    /// # Errors
    /// No bytes; a host without memory; a capture that forbids it.
    pub fn allocate_host(&self, context: Context, bytes: u64, flags: u32) -> Result<u64> {
        let mut state = self.lock();
        let device = state.context(context)?.device;
        state.not_while_capturing("allocating pinned memory")?;
        if bytes == 0 {
            return Code::INVALID_VALUE.error("allocating pinned memory of 0 bytes");
        }
        state.counts.host_allocations += 1;
        let count = state.counts.host_allocations;
        if let Some(nth) = self.shared.settings.faults.host_alloc.iter().find(|nth| nth.strikes(count)) {
            return Code(nth.code).error("made to fail by the settings");
        }
        let address = self.shared.memory.allocate(Place::Pinned, bytes)?.start;
        let owned = Owned { context, device, origin: Origin::Pinned, freeing: false, flags };
        state.owned.insert(address, owned);
        Ok(address)
    }

    /// Frees pinned host memory once everything queued is done.
    ///
    /// # Errors
    /// An address that is not the start of such memory.
    pub fn free_host(&self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let state = self.lock();
        let owned = self.owner(&state, address, |origin| origin == Origin::Pinned)?;
        self.free_pinned(state, address, owned)
    }

    /// Makes memory of the program pinned.
    ///
    /// # Safety
    /// The memory must stay where it is until the registration ends.
    ///
    /// # Errors
    /// A part of it is pinned already.
    pub unsafe fn register_host(
        &self,
        context: Context,
        start: *mut u8,
        bytes: u64,
        flags: u32,
    ) -> Result<()> {
        let mut state = self.lock();
        let device = state.context(context)?.device;
        if start.is_null() || bytes == 0 {
            return Code::INVALID_VALUE.error("registering no memory");
        }
        let address = self.shared.memory.register(start, bytes)?.start;
        let owned = Owned { context, device, origin: Origin::Registered, freeing: false, flags };
        state.owned.insert(address, owned);
        Ok(())
    }

    /// Ends a registration once everything queued is done.
    ///
    /// # Errors
    /// An address that is not the start of one.
    pub fn unregister_host(&self, address: u64) -> Result<()> {
        let state = self.lock();
        match self.owner(&state, address, |origin| origin == Origin::Registered) {
            Ok(owned) => self.free_pinned(state, address, owned),
            Err(error) => Err(Error::new(Code::HOST_MEMORY_NOT_REGISTERED, error.message)),
        }
    }

    /// Free and total bytes of a context's device.
    ///
    /// # Errors
    /// A context that is none or dead.
    pub fn memory_info(&self, context: Context) -> Result<(u64, u64)> {
        let device = self.lock().context(context)?.device;
        let total = self.device(device)?.memory;
        Ok((total.saturating_sub(self.shared.memory.used(device)), total))
    }

    /// The flags pinned memory was allocated with.
    ///
    /// # Errors
    /// An address that lies in no pinned memory.
    pub fn host_flags(&self, address: u64) -> Result<u32> {
        let state = self.lock();
        let start = self.shared.memory.find(address).map_or(address, |allocation| allocation.start);
        let pinned = |origin| matches!(origin, Origin::Pinned | Origin::Registered);
        Ok(self.owner(&state, start, pinned)?.flags)
    }

    /// What the driver knows of an address: the context, the device, whether it is pinned, and the allocation's start and bytes.
    ///
    /// # Errors
    /// An address in no allocation.
    pub fn pointer(&self, address: u64) -> Result<PointerFacts> {
        let Some(allocation) = self.shared.memory.find(address) else {
            let what = self.shared.memory.describe(address);
            return Code::INVALID_VALUE.error(format!("{address:#x} is unknown to the driver: {what}"));
        };
        let state = self.lock();
        let owned = state.owned.get(&allocation.start);
        Ok(PointerFacts {
            context: owned.map(|owned| owned.context).unwrap_or_default(),
            device: owned.map_or(0, |owned| owned.device),
            pinned: allocation.place == Place::Pinned,
            start: allocation.start,
            bytes: allocation.len,
            serial: allocation.serial,
            pool: owned.and_then(|owned| match owned.origin {
                Origin::Pool(pool) => Some(pool),
                _ => None,
            }),
        })
    }

    /// Memory for a library's intermediate result; pinned, so that it is not counted against the device.
    pub(crate) fn allocate_scratch(&self, context: Context, bytes: u64) -> Result<u64> {
        self.lock().context(context)?;
        Ok(self.shared.memory.allocate(Place::Pinned, bytes)?.start)
    }

    /// Gives it back; everything that used it was waited for.
    pub(crate) fn free_scratch(&self, address: u64) {
        // It was allocated a moment ago.
        let _ = self.shared.memory.free(address);
    }

    fn counted(&self, context: Context, bytes: u64, origin: Origin) -> Result<u64> {
        if bytes == 0 {
            return Code::INVALID_VALUE.error("allocating 0 bytes");
        }
        {
            let mut state = self.lock();
            state.counts.allocations += 1;
            let count = state.counts.allocations;
            if let Some(nth) = self.shared.settings.faults.alloc.iter().find(|nth| nth.strikes(count)) {
                return Code(nth.code).error(format!("allocation {count} was made to fail by the settings"));
            }
        }
        self.reserve(context, bytes, origin)
    }

    /// Takes memory of a device; what is only waiting to be freed is freed first if there is no room.
    pub(super) fn reserve(&self, context: Context, bytes: u64, origin: Origin) -> Result<u64> {
        let mut state = self.lock();
        let device = match origin {
            Origin::Pool(pool) => state.pools.get(&pool).map_or(0, |pool| pool.device),
            _ => state.context(context)?.device,
        };
        let place = Place::Device(device);
        let mut got = self.shared.memory.allocate(place, bytes);
        if matches!(got, Err(memory::Error::Full { .. })) {
            // A real pool waits for its streams before it gives up.
            let frees = state.tasks.which(|task| matches!(task.work, Some(Work::Free(_))));
            if !frees.is_empty() {
                state = self.run_until(state, &frees);
                got = self.shared.memory.allocate(place, bytes);
            }
        }
        let address = got?.start;
        state.counts.most_bytes = state.counts.most_bytes.max(self.shared.memory.used_in_all());
        state.note_owned(address, context, device, origin);
        if let Origin::Pool(pool) = origin {
            state.pool_took(pool, bytes);
        }
        Ok(address)
    }

    /// Gives memory back now.
    pub(super) fn release_memory(&self, state: &mut State, address: u64) {
        let Ok(gone) = self.shared.memory.free(address) else { return };
        if let Some(races) = &self.shared.races {
            races.forget(address, gone.len);
        }
        if let Some(Owned { origin: Origin::Pool(pool), .. }) = state.owned.remove(&address) {
            state.pool_gave(pool, gone.len);
        }
    }

    pub(super) fn write_memory(&self, address: u64, bytes: &[u8]) -> Result<()> {
        use super::copy::{Copy, Side, copy};
        let staged = Side::Staged(std::sync::Arc::new(bytes.to_vec()));
        let whole = Copy::line(Side::Device(address), staged, bytes.len() as u64);
        copy(&self.shared.memory, &whole).map_err(|fault| Error::new(Code::INVALID_VALUE, fault.message))
    }

    fn owner(&self, state: &State, address: u64, fits: impl Fn(Origin) -> bool) -> Result<Owned> {
        match state.owned.get(&address) {
            Some(owned) if fits(owned.origin) => Ok(*owned),
            Some(owned) => Code::INVALID_VALUE
                .error(format!("{address:#x} is {:?} memory and not freed this way", owned.origin)),
            None => {
                let what = self.shared.memory.describe(address);
                Code::INVALID_VALUE.error(format!("{address:#x} is not the start of an allocation: {what}"))
            }
        }
    }

    fn free_pinned(&self, state: std::sync::MutexGuard<'_, State>, address: u64, owned: Owned) -> Result<()> {
        // Every device may be using it.
        let goals = state.tasks.which(|_| true);
        let mut state = self.run_until(state, &goals);
        state.owned.remove(&address);
        let gone = self.shared.memory.free(address)?;
        if let Some(races) = &self.shared.races {
            races.forget(address, gone.len);
        }
        match state.contexts.get(&owned.context).and_then(|context| context.error) {
            None => Ok(()),
            Some(code) => code.error("an earlier error of this context"),
        }
    }
}

/// What the driver knows of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerFacts {
    /// Where it was allocated.
    pub context: Context,
    /// Index of the device.
    pub device: u32,
    /// Host memory.
    pub pinned: bool,
    /// First address of the allocation.
    pub start: u64,
    /// Bytes of the allocation.
    pub bytes: u64,
    /// Counts allocations.
    pub serial: u64,
    /// The pool it came from.
    pub pool: Option<Pool>,
}
