//! What the driver gives out, owned: streams, events, page-locked memory, modules and their kernels.
//!
//! Each holds the context it was made in, so that the context goes last whatever the order in which a program drops things.
#![allow(unsafe_code)]

use super::{
    Address, CARVEOUT, CUevent, CUfunction, CUmodule, CUstream, Context, DECLARED_SHARED, DYNAMIC_SHARED,
    Functions, GRANTED,
};
use crate::error::{PAGE_LOCKED, Result};
use std::ffi::{CString, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

/// `CU_STREAM_NON_BLOCKING`: does not wait for the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`
const UNTIMED: c_uint = 2;

/// Memory of the host that the device reads and writes by itself.
#[derive(Debug)]
pub(crate) struct Pinned {
    context: Arc<Context>,
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory is owned, and reached through `&mut self` and `&self` alone.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(crate) fn new(context: &Arc<Context>, len: usize) -> Result<Self> {
        let doing = || format!("taking {len} bytes of {PAGE_LOCKED}");
        let (f, mut start) = (context.enter(doing)?, null_mut());
        // SAFETY: the address is written to a pointer on the stack.
        let code = unsafe { (f.pinned_allocate)(&raw mut start, len, 0) };
        context.check(doing, code)?;
        // SAFETY: the driver gave `len` bytes from `start`; zeroing makes all of them readable.
        unsafe { start.cast::<u8>().write_bytes(0, len) };
        Ok(Self { context: Arc::clone(context), start: start.cast(), len })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `new` took and filled `len` bytes from `start`; callers wait for copies before they look.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Ok(f) = self.context.enter(String::new) {
            // SAFETY: taken once by `new`.
            unsafe { (f.pinned_free)(self.start.cast()) };
        }
    }
}

/// A queue of work.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) context: Arc<Context>,
    pub(super) raw: CUstream,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Stream {}

/// How a kernel is spread: blocks, threads of a block, and shared memory of its own choosing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grid, block, shared } = self;
        write!(f, "on {grid:?} blocks of {block:?}")?;
        if *shared == 0 { Ok(()) } else { write!(f, " with {shared} bytes of shared memory") }
    }
}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        let doing = || "making a stream".to_owned();
        let (f, mut raw) = (context.enter(doing)?, null_mut());
        // SAFETY: the handle is written to a pointer on the stack.
        let code = unsafe { (f.stream_create)(&raw mut raw, NON_BLOCKING) };
        context.check(doing, code)?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Waits until all that was queued is done.
    pub(crate) fn wait(&self, doing: &str) -> Result<()> {
        let doing = || format!("{doing}: waiting for the device");
        let f = self.context.enter(doing)?;
        // SAFETY: the stream lives as long as this.
        self.context.check(doing, unsafe { (f.stream_wait)(self.raw) })
    }

    /// Queues a copy of `range` of `from` to the device. The caller leaves those bytes alone until an event says it is done.
    pub(crate) fn copy_in(
        &self,
        to: Address,
        from: &mut Pinned,
        range: std::ops::Range<usize>,
    ) -> Result<()> {
        let doing = || format!("sending {} bytes to the device", range.len());
        let f = self.context.enter(doing)?;
        let bytes = &from.bytes()[range.clone()];
        // SAFETY: the source is a part of pinned memory, which outlives the stream's work: whoever frees it waits first.
        let code = unsafe { (f.copy_in)(to, bytes.as_ptr().cast(), bytes.len(), self.raw) };
        self.context.check(doing, code)
    }

    /// Queues a copy of device memory to the start of `to`.
    pub(crate) fn copy_out(&self, to: &mut Pinned, from: Address, len: usize) -> Result<()> {
        let doing = || format!("fetching {len} bytes from the device");
        let f = self.context.enter(doing)?;
        let bytes = &mut to.bytes()[..len];
        // SAFETY: the target is pinned memory that the caller holds mutably and does not look at before it has waited.
        let code = unsafe { (f.copy_out)(bytes.as_mut_ptr().cast(), from, len, self.raw) };
        self.context.check(doing, code)
    }

    /// Queues a copy within device memory.
    pub(crate) fn copy_within(&self, to: Address, from: Address, len: usize) -> Result<()> {
        let doing = || format!("copying {len} bytes on the device");
        let f = self.context.enter(doing)?;
        // SAFETY: device memory is reached by address; a wrong one is an error of the driver's.
        self.context.check(doing, unsafe { (f.copy_within)(to, from, len, self.raw) })
    }

    /// Queues setting device memory to zero.
    pub(crate) fn clear(&self, at: Address, len: usize) -> Result<()> {
        let doing = || format!("clearing {len} bytes of device memory");
        let f = self.context.enter(doing)?;
        // SAFETY: as for `copy_within`.
        self.context.check(doing, unsafe { (f.fill)(at, 0, len, self.raw) })
    }

    /// Queues a kernel. `arguments` are its parameters' bytes, in order.
    pub(crate) fn launch(
        &self,
        kernel: &Function,
        doing: &str,
        e: Extent,
        arguments: &mut [[u64; 2]],
    ) -> Result<()> {
        let doing = || format!("{doing}: launching {} of {} {e}", kernel.name, kernel.image.what);
        let f = self.context.enter(doing)?;
        let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(|a| (&raw mut *a).cast()).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (e.grid, e.block);
        // SAFETY: the driver reads as many bytes behind each pointer as the kernel's parameter has, at most sixteen, all of
        // them set; `Call` packs one for each parameter. The kernel itself reaches device memory only.
        let code = unsafe {
            (f.launch)(
                kernel.raw,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                e.shared,
                self.raw,
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        self.context.recent.kernel(kernel.name, &kernel.image.what, e);
        self.context.check(doing, code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(f) = self.context.enter(String::new) {
            // SAFETY: made once by `new`; work that is queued ends first.
            unsafe { (f.stream_wait)(self.raw) };
            // SAFETY: as above.
            unsafe { (f.stream_destroy)(self.raw) };
        }
    }
}

/// A mark in a stream.
#[derive(Debug)]
pub(crate) struct Event {
    pub(super) context: Arc<Context>,
    pub(super) raw: CUevent,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        let doing = || "making an event".to_owned();
        let (f, mut raw) = (context.enter(doing)?, null_mut());
        // SAFETY: the handle is written to a pointer on the stack.
        let code = unsafe { (f.event_create)(&raw mut raw, UNTIMED) };
        context.check(doing, code)?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Marks what is queued so far.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        let doing = || "marking a place in a stream".to_owned();
        let f = self.context.enter(doing)?;
        // SAFETY: both handles live as long as their owners.
        self.context.check(doing, unsafe { (f.event_record)(self.raw, stream.raw) })
    }

    /// Waits until the mark is reached; at once if none was made.
    pub(crate) fn wait(&self, doing: &str) -> Result<()> {
        let doing = || format!("{doing}: waiting for a place in a stream");
        let f = self.context.enter(doing)?;
        // SAFETY: the handle lives as long as this.
        self.context.check(doing, unsafe { (f.event_wait)(self.raw) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(f) = self.context.enter(String::new) {
            // SAFETY: made once by `new`.
            unsafe { (f.event_destroy)(self.raw) };
        }
    }
}

/// A module that was loaded.
#[derive(Debug)]
pub(crate) struct Image {
    context: Arc<Context>,
    raw: CUmodule,
    /// Its name, and what it was compiled with and for.
    pub(super) what: Arc<str>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Image {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Image {}

impl Image {
    /// Loads machine code, or PTX, which the driver then compiles. A zero is put at its end, as PTX must have.
    pub(crate) fn load(context: &Arc<Context>, what: &str, code: &[u8]) -> Result<Arc<Self>> {
        let doing = || format!("loading {what}");
        let (f, mut raw) = (context.enter(doing)?, null_mut());
        let mut text = code.to_vec();
        text.push(0);
        // SAFETY: the driver reads PTX up to the zero and machine code by the sizes in its header; the disk cache keeps a
        // checksum, so both are as NVRTC wrote them.
        let code = unsafe { (f.module_load)(&raw mut raw, text.as_ptr().cast()) };
        context.check(doing, code)?;
        Ok(Arc::new(Self { context: Arc::clone(context), raw, what: what.into() }))
    }

    /// One of its kernels.
    pub(crate) fn function(self: &Arc<Self>, name: &'static str) -> Result<Function> {
        let doing = || format!("looking for the kernel {name} in {}", self.what);
        let (f, mut raw) = (self.context.enter(doing)?, null_mut());
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: the name ends with a zero, and the handle is written to a pointer on the stack.
        let code = unsafe { (f.module_function)(&raw mut raw, self.raw, text.as_ptr()) };
        self.context.check(doing, code)?;
        let mut declared = 0;
        // SAFETY: the handle is the module's, and the number is written to an integer on the stack.
        let code = unsafe { (f.function_get)(&raw mut declared, DECLARED_SHARED, raw) };
        self.context.check(doing, code)?;
        let granted = Mutex::new(GRANTED.saturating_sub(u32::try_from(declared).unwrap_or(0)));
        let function = Function { raw, name, image: Arc::clone(self), granted };
        function.prefer_shared(f, self.context.shared.load(Relaxed));
        Ok(function)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Ok(f) = self.context.enter(String::new) {
            // SAFETY: loaded once by `load`.
            unsafe { (f.module_unload)(self.raw) };
        }
    }
}

/// Hundredths of a multiprocessor's L1 and shared memory that are shared memory, for all kernels alike: a kernel that wants another split than
/// the one before waits until that has left the multiprocessor. 100 of an H100's 228 kB, as much as products with one row of q6_k fill; the rest is
/// L1, which is where what all blocks read must stay while weights stream past. Where blocks stay that have it in shared memory, all ask for all.
pub(super) const ALL_KERNELS: c_int = 45;
/// The same for kernels whose blocks take more than every kernel is granted: all of it, so that several fit.
pub(super) const LARGE_BLOCKS: c_int = 100;

/// A kernel that can be launched.
#[derive(Debug)]
pub(crate) struct Function {
    pub(super) raw: CUfunction,
    pub(super) name: &'static str,
    pub(super) image: Arc<Image>,
    /// Bytes of shared memory that its launches may have beside what it declares. Never fewer than before: all threads and records of steps
    /// share the kernel, and one may be about to launch it with as many.
    granted: Mutex<u32>,
}

// SAFETY: the handle is the module's, which lives as long, and may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Function {}

impl Function {
    /// Lets its launches have `bytes` of shared memory of their choosing and more, where that must be asked for.
    pub(crate) fn allow_shared(&self, bytes: u32) -> Result<()> {
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes <= *granted {
            return Ok(());
        }
        let doing = || format!("asking for {bytes} bytes of shared memory for {}", self.name);
        let (context, value) = (&self.image.context, c_int::try_from(bytes).unwrap_or(c_int::MAX));
        let f = context.enter(doing)?;
        self.prefer_shared(f, LARGE_BLOCKS);
        // SAFETY: the handle lives as long as its module, which this holds.
        context.check(doing, unsafe { (f.function_set)(self.raw, DYNAMIC_SHARED, value) })?;
        *granted = bytes;
        Ok(())
    }

    /// How much of what L1 and shared memory have together is to be shared memory, in hundredths. A hint, which some devices do not take.
    fn prefer_shared(&self, f: &Functions, hundredths: c_int) {
        // SAFETY: as above.
        unsafe { (f.function_set)(self.raw, CARVEOUT, hundredths) };
    }
}
