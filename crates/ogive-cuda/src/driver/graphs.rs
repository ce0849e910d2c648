//! Graphs: work that is queued into a stream once, kept by the driver, and launched again by one call.
//!
//! Their functions are a table of their own that may be missing: a driver for CUDA before 11.4 runs every step operator by operator.
//! A capture is relaxed: it forbids no call of anyone, as this crate itself refuses what must not be recorded.
#![allow(unsafe_code)]

use super::{CUstream, Context, Stream};
use crate::error::{Error, OUT_OF_MEMORY, Result};
use cudarc::driver::sys::{CUgraph, CUgraphExec};
use libloading::Library;
use std::ffi::c_uint;
use std::ptr::null_mut;
use std::sync::Arc;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: c_uint = 2;

/// The functions for graphs.
pub(super) struct Functions {
    begin: unsafe extern "C" fn(CUstream, c_uint) -> u32,
    end: unsafe extern "C" fn(CUstream, *mut CUgraph) -> u32,
    instantiate: unsafe extern "C" fn(*mut CUgraphExec, CUgraph, u64) -> u32,
    launch: unsafe extern "C" fn(CUgraphExec, CUstream) -> u32,
    forget: unsafe extern "C" fn(CUgraph) -> u32,
    destroy: unsafe extern "C" fn(CUgraphExec) -> u32,
}

impl Functions {
    /// All of them, or none.
    pub(super) fn of(library: &Library) -> Option<Self> {
        // SAFETY: each field has the type that NVIDIA's driver API documents for its symbol, and the table that holds these keeps
        // the library open.
        unsafe {
            Some(Self {
                begin: *library.get(b"cuStreamBeginCapture_v2\0").ok()?,
                end: *library.get(b"cuStreamEndCapture\0").ok()?,
                instantiate: *library.get(b"cuGraphInstantiateWithFlags\0").ok()?,
                launch: *library.get(b"cuGraphLaunch\0").ok()?,
                forget: *library.get(b"cuGraphDestroy\0").ok()?,
                destroy: *library.get(b"cuGraphExecDestroy\0").ok()?,
            })
        }
    }
}

fn missing(doing: &str) -> Error {
    let why = format!("{doing}: this driver knows no graphs; one for CUDA 11.4 or newer does");
    Error::Library { library: "the CUDA driver", why }
}

impl Context {
    /// Whether the driver has graphs.
    pub(crate) fn has_graphs(&self) -> bool {
        self.driver.f.graphs.is_some()
    }

    fn graphs(&self, doing: &'static str) -> Result<&Functions> {
        self.enter(|| doing.into())?.graphs.as_ref().ok_or_else(|| missing(doing))
    }
}

/// Recorded work, ready to launch.
#[derive(Debug)]
pub(crate) struct Recorded {
    context: Arc<Context>,
    raw: CUgraphExec,
}

// SAFETY: the driver's handles may be used from any thread; launches are serialised by whoever owns this.
unsafe impl Send for Recorded {}

impl Stream {
    /// What is queued from now on is recorded and not done.
    pub(crate) fn record(&self) -> Result<()> {
        let doing = "beginning to record a step";
        let f = self.context.graphs(doing)?;
        // SAFETY: the stream lives as long as this.
        self.context.check(|| doing.into(), unsafe { (f.begin)(self.raw, RELAXED) })
    }

    /// Ends a recording; what it recorded, made ready to launch if `keep`. Where the driver has no memory for that, it is asked once more after
    /// `make_room`.
    pub(crate) fn recorded(&self, keep: bool, make_room: impl FnOnce()) -> Result<Option<Recorded>> {
        let doing = "ending the record of a step";
        let (f, mut graph, mut raw) = (self.context.graphs(doing)?, null_mut(), null_mut());
        // SAFETY: the handle is written to a pointer on the stack.
        let ended = unsafe { (f.end)(self.raw, &raw mut graph) };
        self.context.check(|| doing.into(), ended)?;
        let mut make = || {
            // SAFETY: the graph is the one just made, the handle is written to a pointer on the stack.
            if keep { unsafe { (f.instantiate)(&raw mut raw, graph, 0) } } else { 0 }
        };
        let mut made = make();
        if made == OUT_OF_MEMORY {
            make_room();
            made = make();
        }
        // SAFETY: as above; what was made of it does not need it.
        unsafe { (f.forget)(graph) };
        self.context.check(|| "making a recorded step ready".into(), made)?;
        Ok(keep.then(|| Recorded { context: Arc::clone(&self.context), raw }))
    }

    /// Queues recorded work.
    pub(crate) fn replay(&self, recorded: &Recorded) -> Result<()> {
        let doing = "launching a recorded step";
        let f = self.context.graphs(doing)?;
        self.context.recent.step();
        // SAFETY: both handles live; the kernels and the memory that the record names are kept by whoever keeps the record.
        self.context.check(|| doing.into(), unsafe { (f.launch)(recorded.raw, self.raw) })
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Ok(f) = self.context.graphs("") {
            // SAFETY: made once by `recorded`; whoever drops this has waited for its launches.
            unsafe { (f.destroy)(self.raw) };
        }
    }
}
