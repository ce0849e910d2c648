//! Marks that carry a time, and a stream as another library wants it: what measuring needs beside what computing needs.
//!
//! Events of their own and not those of `handles`: an event with a time costs the device more, and only measurements want one. The
//! function that subtracts two of them is looked up under both its names and may be missing; nothing else fails then.
#![allow(unsafe_code)]

use super::{CUevent, Context, Stream};
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

/// `cuEventElapsedTime`
pub(super) type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> u32;

/// The function of this name that is newest.
pub(super) fn elapsed(library: &Library) -> Option<Elapsed> {
    // SAFETY: both names have the type that NVIDIA's driver API documents, and the table that holds the pointer keeps the library open.
    let find = |name: &[u8]| unsafe { library.get::<Elapsed>(name) }.ok().map(|f| *f);
    find(b"cuEventElapsedTime_v2\0").or_else(|| find(b"cuEventElapsedTime\0"))
}

/// A mark in a stream that remembers when it was reached.
#[derive(Debug)]
pub(crate) struct Mark {
    context: Arc<Context>,
    raw: CUevent,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Mark {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Mark {}

impl Stream {
    /// Queues a mark.
    pub(crate) fn mark(&self) -> Result<Mark> {
        let doing = || "marking a time in a stream".to_owned();
        let (f, mut raw) = (self.context.enter(doing)?, null_mut());
        // SAFETY: the handle is written to a pointer on the stack; no flags: the event keeps its time.
        let made = unsafe { (f.event_create)(&raw mut raw, 0) };
        self.context.check(doing, made)?;
        let mark = Mark { context: Arc::clone(&self.context), raw };
        // SAFETY: both handles live.
        self.context.check(doing, unsafe { (f.event_record)(mark.raw, self.raw) })?;
        Ok(mark)
    }

    /// The driver's handle of this stream, for a library that works on it, with its context current in this thread.
    pub(crate) fn lend(&self) -> Result<*mut c_void> {
        self.context.enter(|| "lending a stream".into())?;
        Ok(self.raw.cast())
    }

    /// The context it was made in, for what a library made there and must give back there.
    pub(crate) fn context(&self) -> Arc<Context> {
        Arc::clone(&self.context)
    }
}

impl Context {
    /// Makes it current in this thread.
    pub(crate) fn make_current(&self) -> Result<()> {
        self.enter(|| "going back to a context".into()).map(drop)
    }
}

impl Mark {
    /// Waits until it is reached.
    pub(crate) fn wait(&self) -> Result<()> {
        let doing = || "waiting for a mark".to_owned();
        let f = self.context.enter(doing)?;
        // SAFETY: the handle lives as long as this.
        self.context.check(doing, unsafe { (f.event_wait)(self.raw) })
    }

    /// The time from `earlier` to this one, both of which were reached.
    pub(crate) fn since(&self, earlier: &Self) -> Result<Duration> {
        let doing = || "reading the time between two marks".to_owned();
        let f = self.context.enter(doing)?;
        let Some(elapsed) = f.elapsed else {
            let why = "it does not tell times between events; update the driver".into();
            return Err(Error::Library { library: "the CUDA driver", why });
        };
        let mut milliseconds = 0.0;
        // SAFETY: the time is written to a number on the stack, and both handles live.
        let code = unsafe { elapsed(&raw mut milliseconds, earlier.raw, self.raw) };
        self.context.check(doing, code)?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Ok(f) = self.context.enter(String::new) {
            // SAFETY: made once by `mark`.
            unsafe { (f.event_destroy)(self.raw) };
        }
    }
}
