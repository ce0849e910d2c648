//! A device taken: its context, its one stream, its memory, its kernels.
//!
//! One stream that works, on purpose: a step is a chain of operators that each need the one before, and with one queue no buffer needs a
//! lock or an event to be used again. Another stream is there to record steps, and never does anything.

use crate::blas::Blas;
use crate::builder::Activations;
use crate::driver::{Address, Context, DeviceInfo, Stream};
use crate::error::{Error, Result};
use crate::graph::Graphs;
use crate::library::{self, Nvrtc, Wanted};
use crate::memory::{Buffer, Pool};
use crate::module::Modules;
use crate::ops::grouped;
use crate::peer::Peers;
use crate::plan::Slots;
use crate::record::Need;
use crate::trace;
use crate::transfer::Transfer;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Everything that belongs to one device. Two of them on one device share nothing.
#[derive(Debug)]
pub(crate) struct Device {
    /// Makes handles of one backend strangers to another.
    id: u64,
    pub(crate) info: DeviceInfo,
    pub(crate) driver: (u32, u32),
    /// Recorded steps; before what they launch.
    pub(crate) graphs: Graphs,
    pub(crate) slots: Slots,
    pub(crate) modules: Modules,
    pub(crate) transfer: Transfer,
    pub(crate) peers: Peers,
    pub(crate) pool: Arc<Pool>,
    /// Before the streams that it is lent.
    pub(crate) blas: Blas,
    work: Arc<Stream>,
    record: Stream,
    constants: Mutex<Vec<Constant>>,
    /// Orders of columns that weights here have.
    orders: Mutex<Vec<Weak<[u32]>>>,
    /// Whether kernels are launched before the one before is done.
    pub(crate) overlap: bool,
    /// Where kernels note when they ran, if they do.
    pub(crate) trace: Option<trace::Slots>,
    /// What few rows are rounded to for packed weights.
    pub(crate) activations: Activations,
    /// Whether products of one row are computed by blocks that stay.
    pub(crate) persistent: bool,
    /// Choices that an expert has on average where a mixture's rows are grouped.
    pub(crate) grouped_from: usize,
    /// Whether a stack of experts was ever taken in.
    pub(crate) has_experts: AtomicBool,
}

/// Values of the host and their copy.
type Constant = (Arc<[f32]>, Arc<Buffer>);

/// Bytes without which a device is of no use: what the pool asks the driver for first.
const LEAST: u64 = 4 << 20;

impl Device {
    pub(crate) fn new(number: usize, limit: Option<u64>, graphs: bool) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (driver, _) = library::driver().map_err(|e| match e {
            // It says so when it starts, before a number was asked for.
            Error::NoDevice { found, .. } => Error::NoDevice { asked: number, found },
            e => e,
        })?;
        let (info, version) = (driver.info(number)?, driver.version);
        let wanted = Wanted { driver: version, capability: info.capability };
        let nvrtc = library::nvrtc(wanted)?;
        let context = Context::new(driver, number)?;
        let work = Arc::new(Stream::new(&context)?);
        let (transfer, peers) = (Transfer::new(&context)?, Peers::new(&context)?);
        let pool = Pool::new(&context, &work, limit)?;
        let device = Self {
            id: NUMBER.fetch_add(1, Relaxed),
            driver: version,
            graphs: Graphs::new(graphs && context.has_graphs()),
            slots: Slots::default(),
            modules: Modules::new(&context, &pool, Arc::new(nvrtc), info.capability),
            transfer,
            peers,
            pool,
            blas: Blas::default(),
            work,
            record: Stream::new(&context)?,
            info,
            constants: Mutex::default(),
            orders: Mutex::default(),
            overlap: false,
            trace: None,
            activations: Activations::Float,
            persistent: false,
            grouped_from: grouped::CHOICES,
            has_experts: AtomicBool::new(false),
        };
        // One kernel now: whether this driver takes what this compiler makes shows nowhere else, and whoever would fall back to
        // another backend must know before a model is loaded.
        let trial = device.modules.kernel(&ogive_kernels::ELEMENTWISE, "add", Vec::new());
        trial.map_err(|e| refused(e, device.modules.nvrtc(), wanted))?;
        // Who sets a limit may have a reason for so small a one.
        let (free, total) = (device.pool.limit(), device.info.memory);
        if limit.is_none() && free < LEAST {
            return Err(Error::Memory { doing: format!("opening cuda:{number}"), asked: LEAST, free, total });
        }
        Ok(device)
    }

    /// What libraries are wanted for here.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted { driver: self.driver, capability: self.info.capability }
    }

    /// Whether they could be: the driver has the call, and kernels are compiled with the instructions.
    pub(crate) fn can_overlap(&self) -> bool {
        let compiled = self.modules.nvrtc().nearest(self.info.capability);
        compiled.is_some_and(|a| a >= 90) && self.work.can_overlap()
    }

    /// Where this thread's work is queued.
    pub(crate) fn stream(&self) -> &Stream {
        if self.pool.recorder.here() { &self.record } else { &self.work }
    }

    /// Where steps are recorded.
    pub(crate) fn record(&self) -> &Stream {
        &self.record
    }

    /// Waits until all that was queued is done, failed or not.
    pub(crate) fn settle(&self) {
        if let Err(e) = self.work.wait("dropping a recorded step") {
            tracing::debug!(target: "ogive::cuda", error = %e, "the device failed");
        }
    }

    /// Waits, and gives `len` bytes at `from` to `take`, part after part. An error if what they came from failed, here or on another device.
    pub(crate) fn fetch(
        &self,
        at: &str,
        from: Address,
        len: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        self.transfer.fetch(self.stream(), at, from, len, take)?;
        self.peers.check()
    }

    /// An error if this thread records a step: what `at` does cannot be replayed.
    pub(crate) fn outside(&self, at: &str) -> Result<()> {
        self.pool.recorder.outside(at, true)
    }

    /// Notes what was checked of a step, if one is recorded.
    pub(crate) fn needs(&self, need: Need) {
        self.pool.recorder.needs(need);
    }

    /// Memory for `bytes`, for operator `at`. If there is too little, recorded steps give theirs back: that may wait for another thread's step, so
    /// the caller holds no lock that a step may want.
    pub(crate) fn take(&self, at: &str, bytes: usize) -> Result<Buffer> {
        if let Some(arena) = self.pool.recorder.arena() {
            return arena.take(&self.pool, at, bytes);
        }
        match self.pool.take(at, bytes) {
            Err(Error::Memory { .. }) if self.graphs.forget(self) => self.pool.take(at, bytes),
            taken => taken,
        }
    }

    /// The same for a weight. None is taken while a step is recorded.
    pub(crate) fn take_lasting(&self, at: &str, bytes: usize) -> Result<Buffer> {
        match self.pool.take_lasting(at, bytes) {
            Err(Error::Memory { .. }) if self.graphs.forget(self) => self.pool.take_lasting(at, bytes),
            taken => taken,
        }
    }

    /// An error unless `device` is this one.
    pub(crate) fn own(&self, at: &str, device: u64) -> ogive_tensor::Result<()> {
        if device == self.id { Ok(()) } else { Err(ogive_tensor::Error::foreign(at)) }
    }

    /// What handles of this device carry.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The first of all equal orders that weights here have, so that two are told apart by their addresses.
    pub(crate) fn order(&self, order: &Arc<[u32]>) -> Arc<[u32]> {
        let mut known = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|held| held.strong_count() > 0);
        if let Some(held) = known.iter().filter_map(Weak::upgrade).find(|held| held == order) {
            return held;
        }
        known.push(Arc::downgrade(order));
        Arc::clone(order)
    }

    /// Values of the host that many calls use, sent up once and kept as long as anyone else holds them.
    pub(crate) fn constant(&self, at: &str, values: &Arc<[f32]>) -> Result<Arc<Buffer>> {
        let lock = || self.constants.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |known: &[Constant]| {
            let found = known.iter().find(|(held, _)| Arc::ptr_eq(held, values));
            found.map(|(_, buffer)| Arc::clone(buffer))
        };
        let mut known = lock();
        if let Some(buffer) = find(&known) {
            return Ok(buffer);
        }
        self.pool.recorder.outside("sending constants", false)?;
        known.retain(|(held, _)| Arc::strong_count(held) > 1);
        // A step that taking memory waits for may want a constant.
        drop(known);
        let buffer = Arc::new(self.take(at, 4 * values.len())?);
        let mut known = lock();
        if let Some(sooner) = find(&known) {
            return Ok(sooner);
        }
        self.transfer.send_values(&self.work, buffer.address(), values)?;
        known.push((Arc::clone(values), Arc::clone(&buffer)));
        Ok(buffer)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Page-locked memory and modules go next: nothing may still be using them.
        if let Err(e) = self.work.wait("closing the device") {
            tracing::debug!(target: "ogive::cuda", error = %e, "the device failed before it was closed");
        }
    }
}

/// A driver that takes nothing of a newer compiler says so by a number; this says it in words, with what helps.
fn refused(e: Error, nvrtc: &Nvrtc, wanted: Wanted) -> Error {
    match e {
        // No kernel image, no binary for the device, invalid PTX, an unsupported version of PTX.
        Error::Driver { code: code @ (200 | 209 | 218 | 222), name, .. } if nvrtc.version > wanted.driver => {
            library::newer(nvrtc, wanted, &format!("the CUDA driver says {name} ({code})"))
        }
        e => e,
    }
}

/// The first device that there is a compiler for; the reason of the first where there is none. Whether the driver takes what that compiler makes
/// shows when the device is opened.
pub(crate) fn first_with_compiler(devices: &[DeviceInfo]) -> Result<usize> {
    let (driver, _) = library::driver()?;
    let mut why = None;
    for info in devices {
        match library::nvrtc(Wanted { driver: driver.version, capability: info.capability }) {
            Ok(_) => return Ok(info.number),
            Err(e) => why = why.or(Some(e)),
        }
    }
    Err(why.unwrap_or(Error::NoDevice { asked: 0, found: 0 }))
}
