//! A device taken: its context, its one stream, its memory, its kernels.
//!
//! One stream that works, on purpose: a step is a chain of operators that each need the one before, and with one queue no buffer needs a
//! lock or an event to be used again. Another stream is there to record steps, and never does anything.

use crate::blas::Blas;
use crate::builder::Activations;
use crate::driver::{Address, Context, DeviceInfo, Stream};
use crate::error::{Error, Result};
use crate::graph::{Graphs, Loan};
use crate::library::{self, Nvrtc, Wanted};
use crate::memory::{Buffer, Pool};
use crate::module::Modules;
use crate::ops::codes::Codes;
use crate::ops::grouped;
use crate::ops::matrix::Halves;
use crate::peer::Peers;
use crate::plan::Slots;
use crate::record::Need;
use crate::trace;
use crate::transfer::Transfer;
use ogive_tensor::{Shape, Tensor};
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
    /// Choices that an expert has on average where a mixture's rows are grouped.
    pub(crate) grouped_from: usize,
    /// Whether a stack of experts was ever taken in.
    pub(crate) has_experts: AtomicBool,
}

/// Values of the host and their copy.
type Constant = (Arc<[f32]>, Arc<Buffer>);

/// What a tensor is here: single precision numbers, row-major.
#[derive(Debug)]
pub(crate) struct Values {
    place: Place,
    device: u64,
    /// The same rounded, where the operator that made them did that too.
    codes: Option<Codes>,
    halves: Option<Halves>,
    /// Of how many asked for these are the best of rows, if they are: places of all rows, then their values. `[n, 2 * k]`
    top_k: Option<usize>,
    /// Whether the host sent them, and no kernel wrote there since.
    sent: bool,
}

/// Whose the memory of values is.
#[derive(Debug)]
enum Place {
    Own(Buffer),
    /// A recorded step's, until the next one is launched.
    Lent(Arc<Loan>),
}

/// What chosen experts are: 32-bit numbers, all below `below`.
#[derive(Debug)]
pub(crate) struct Indices {
    buffer: Buffer,
    device: u64,
    below: usize,
}

impl Values {
    /// Other numbers will lie there.
    fn overwritten(&mut self) {
        self.codes = None;
        self.halves = None;
        self.sent = false;
    }
}

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
        let device = Self {
            id: NUMBER.fetch_add(1, Relaxed),
            driver: version,
            graphs: Graphs::new(graphs && context.has_graphs()),
            slots: Slots::default(),
            modules: Modules::new(&context, Arc::new(nvrtc), info.capability),
            transfer: Transfer::new(&context)?,
            peers: Peers::new(&context)?,
            pool: Pool::new(&context, &work, limit)?,
            blas: Blas::default(),
            work,
            record: Stream::new(&context)?,
            info,
            constants: Mutex::default(),
            orders: Mutex::default(),
            overlap: false,
            trace: None,
            activations: Activations::Float,
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

    /// Memory for `bytes`, for operator `at`. If there is too little, recorded steps give theirs back.
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

    /// A tensor not yet written.
    pub(crate) fn tensor(&self, at: &str, shape: impl Into<Shape>) -> ogive_tensor::Result<Tensor> {
        let shape = shape.into();
        let buffer = self.take(at, bytes(at, shape)?)?;
        Ok(self.tensor_in(Place::Own(buffer), shape, None))
    }

    fn tensor_in(&self, place: Place, shape: Shape, top_k: Option<usize>) -> Tensor {
        Tensor::new(shape, Values { place, device: self.id, codes: None, halves: None, top_k, sent: false })
    }

    /// What is in `buffer`: values, or what was found of them if the best were asked for.
    pub(crate) fn held(&self, buffer: Buffer, shape: Shape, top_k: Option<usize>) -> Tensor {
        self.tensor_in(Place::Own(buffer), shape, top_k)
    }

    /// The same, with codes not yet written either.
    pub(crate) fn rounded(&self, at: &str, shape: Shape, codes: Codes) -> ogive_tensor::Result<Tensor> {
        let mut y = self.tensor(at, shape)?;
        if let Some(values) = y.data_mut::<Values>() {
            values.codes = Some(codes);
        }
        Ok(y)
    }

    /// `x`, if no one else holds it, as what the host sends there now.
    pub(crate) fn as_sent(mut x: Tensor) -> Tensor {
        if let Some(values) = x.data_mut::<Values>() {
            values.sent = true;
        }
        x
    }

    /// Whether the values of `x` are as the host sent them: a kernel may read them before those before it are done, for which copies wait, and
    /// which wait for copies.
    pub(crate) fn is_as_sent(x: &Tensor) -> bool {
        x.data::<Values>().is_ok_and(|values| values.sent)
    }

    /// The codes of `x`, where they were made with it.
    pub(crate) fn codes(x: &Tensor) -> Option<&Codes> {
        x.data::<Values>().ok().and_then(|values| values.codes.as_ref())
    }

    /// `x` with `halves` of the same values, if no one else holds it.
    pub(crate) fn with_halves(mut x: Tensor, halves: Halves) -> Tensor {
        if let Some(values) = x.data_mut::<Values>() {
            values.halves = Some(halves);
        }
        x
    }

    /// The halves of `x`, where they were made with it.
    pub(crate) fn halves(x: &Tensor) -> Option<&Halves> {
        x.data::<Values>().ok().and_then(|values| values.halves.as_ref())
    }

    /// A tensor in the memory of a recorded step.
    pub(crate) fn lent(&self, loan: &Arc<Loan>, shape: Shape, top_k: Option<usize>) -> Tensor {
        self.tensor_in(Place::Lent(Arc::clone(loan)), shape, top_k)
    }

    /// Where the values of `x` lie, if they are of this device.
    pub(crate) fn read(&self, at: &str, x: &Tensor) -> ogive_tensor::Result<Address> {
        match self.read_top_k(at, x)? {
            (address, None) => Ok(address),
            (_, Some(k)) => {
                let why = format!("only the best {k} of each row were kept; `best` takes them, or keep all");
                Err(ogive_tensor::Error::invalid(at, why))
            }
        }
    }

    /// Where `x` lies, and of how many asked for it is the best of rows, if it is.
    pub(crate) fn read_top_k(&self, at: &str, x: &Tensor) -> ogive_tensor::Result<(Address, Option<usize>)> {
        let values = x.data::<Values>().map_err(|e| e.within(at))?;
        self.own(at, values.device)?;
        let address = match &values.place {
            Place::Own(buffer) => buffer.address(),
            // The next launch may overwrite it, this record's included.
            Place::Lent(loan) => {
                self.outside("reading the result of an earlier step")?;
                loan.address
            }
        };
        Ok((address, values.top_k))
    }

    /// Where the result of a recorded step lies, its shape, and of how many asked for it is the best of rows: if it is the step's own and no
    /// one else's.
    pub(crate) fn recorded(&self, mut y: Tensor) -> Option<(Address, Shape, Option<usize>)> {
        let shape = y.shape();
        match y.data_mut::<Values>() {
            Some(Values { place: Place::Own(buffer), device, top_k, .. }) if *device == self.id => {
                buffer.is_of_arena().then(|| (buffer.address(), shape, *top_k))
            }
            _ => None,
        }
    }

    /// Whether no one else holds the values of `x`, so that they may be overwritten. Who asks will, so codes are given back.
    pub(crate) fn is_free(x: &mut Tensor) -> bool {
        x.data_mut::<Values>().map(Values::overwritten).is_some()
    }

    /// `x` to be written anew, if its memory is its own and no one else holds it.
    pub(crate) fn reused(&self, mut x: Tensor) -> Option<Tensor> {
        let values = x.data_mut::<Values>()?;
        values.overwritten();
        (values.device == self.id && matches!(values.place, Place::Own(_))).then_some(x)
    }

    /// `x` if no one else holds it, a copy otherwise.
    pub(crate) fn owned(&self, at: &str, mut x: Tensor) -> ogive_tensor::Result<Tensor> {
        let from = self.read(at, &x)?;
        if Self::is_free(&mut x) {
            return Ok(x);
        }
        let copy = self.tensor(at, x.shape())?;
        let len = bytes(at, x.shape())?;
        if len > 0 {
            self.stream().copy_within(self.read(at, &copy)?, from, len)?;
        }
        Ok(copy)
    }

    /// Numbers not yet written, which will all be below `below`.
    pub(crate) fn indices(
        &self,
        at: &str,
        shape: impl Into<Shape>,
        below: usize,
    ) -> ogive_tensor::Result<Tensor> {
        let shape = shape.into();
        let buffer = self.take(at, bytes(at, shape)?)?;
        Ok(Tensor::new(shape, Indices { buffer, device: self.id, below }))
    }

    /// Where the numbers of `x` lie, and what they are below.
    pub(crate) fn read_indices(&self, at: &str, x: &Tensor) -> ogive_tensor::Result<(Address, usize)> {
        let indices = x.data::<Indices>().map_err(|e| e.within(at))?;
        self.own(at, indices.device)?;
        Ok((indices.buffer.address(), indices.below))
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
        let mut known = self.constants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, buffer)) = known.iter().find(|(held, _)| Arc::ptr_eq(held, values)) {
            return Ok(Arc::clone(buffer));
        }
        self.pool.recorder.outside("sending constants", false)?;
        known.retain(|(held, _)| Arc::strong_count(held) > 1);
        let buffer = Arc::new(self.take(at, 4 * values.len())?);
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

/// Bytes of a tensor in single precision.
pub(crate) fn bytes(at: &str, shape: Shape) -> ogive_tensor::Result<usize> {
    let fold = shape.dims().iter().try_fold(4usize, |n, d| n.checked_mul(*d));
    // No allocation of Rust's own could be larger either.
    fold.filter(|&n| isize::try_from(n).is_ok()).ok_or_else(|| {
        ogive_tensor::Error::invalid(at, format!("{shape:?} is more elements than can be counted"))
    })
}

/// A size as kernels count, which is in 31 bits.
pub(crate) fn count(doing: &str, what: &'static str, size: usize) -> Result<i32> {
    let limit = i32::MAX as u64;
    i32::try_from(size).map_err(|_| Error::Limit { doing: doing.into(), what, size: size as u64, limit })
}
