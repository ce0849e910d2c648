//! What goes from one device to another without the host: streams that wait for one another, and copies between contexts.
//!
//! A table of its own that may be missing: a driver without these functions still runs every device by itself. The copy is
//! `cuMemcpyPeerAsync` and not `cuMemcpyDtoDAsync` with unified addresses: it names both contexts, and where two devices do not reach one
//! another's memory the driver goes through memory of its own.
#![allow(unsafe_code)]

use super::{Address, CUcontext, CUdevice, CUdeviceptr, CUevent, CUstream, Context, Event, Stream};
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{c_int, c_uint};

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`: by another backend, or another library in the process.
const ENABLED: u32 = 704;
/// `CUDA_ERROR_NOT_READY`
const NOT_READY: u32 = 600;

/// The functions for more than one device.
pub(super) struct Functions {
    wait: unsafe extern "C" fn(CUstream, CUevent, c_uint) -> u32,
    query: unsafe extern "C" fn(CUevent) -> u32,
    copy: unsafe extern "C" fn(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream) -> u32,
    can_access: unsafe extern "C" fn(*mut c_int, CUdevice, CUdevice) -> u32,
    enable_access: unsafe extern "C" fn(CUcontext, c_uint) -> u32,
}

impl Functions {
    /// All of them, or none.
    pub(super) fn of(library: &Library) -> Option<Self> {
        // SAFETY: each field has the type that NVIDIA's driver API documents for its symbol, and the table that holds these keeps
        // the library open.
        unsafe {
            Some(Self {
                wait: *library.get(b"cuStreamWaitEvent\0").ok()?,
                query: *library.get(b"cuEventQuery\0").ok()?,
                copy: *library.get(b"cuMemcpyPeerAsync\0").ok()?,
                can_access: *library.get(b"cuDeviceCanAccessPeer\0").ok()?,
                enable_access: *library.get(b"cuCtxEnablePeerAccess\0").ok()?,
            })
        }
    }
}

fn missing(doing: &str) -> Error {
    let why = format!("{doing}: this driver does not copy between devices; update the driver");
    Error::Library { library: "the CUDA driver", why }
}

impl Context {
    fn peers(&self, doing: impl Fn() -> String) -> Result<&Functions> {
        self.enter(&doing)?.peers.as_ref().ok_or_else(|| missing(&doing()))
    }

    /// Whether the driver copies between devices.
    pub(crate) fn has_peers(&self) -> bool {
        self.driver.f.peers.is_some()
    }

    /// Lets this context reach the memory of the other one's device, for good; whether it does. Copies are made without that too.
    pub(crate) fn reach(&self, other: &Self) -> Result<bool> {
        let doing = || "asking whether one device reaches the memory of another".to_owned();
        let (f, mut can) = (self.peers(doing)?, 0);
        if self.device == other.device {
            return Ok(true);
        }
        // SAFETY: the answer is written to a number on the stack.
        let asked = unsafe { (f.can_access)(&raw mut can, self.device, other.device) };
        self.check(doing, asked)?;
        if can == 0 {
            return Ok(false);
        }
        // SAFETY: the other context is retained as long as `other` lives; this one is current.
        match unsafe { (f.enable_access)(other.raw, 0) } {
            0 | ENABLED => Ok(true),
            code => {
                self.check(|| "letting a device reach the memory of another".into(), code)?;
                Ok(false)
            }
        }
    }
}

impl Stream {
    /// Lets what is queued from now on wait for what was marked, on whichever device. The host does not wait.
    pub(crate) fn after(&self, event: &Event) -> Result<()> {
        let doing = || "letting one stream wait for another".to_owned();
        let f = self.context.peers(doing)?;
        // SAFETY: both handles live; the driver keeps what it needs of the event.
        self.context.check(doing, unsafe { (f.wait)(self.raw, event.raw, 0) })
    }

    /// Queues a copy from the device that `other` is a stream of. In the order of this stream alone: `other` is told by events.
    pub(crate) fn copy_from(&self, to: Address, other: &Self, from: Address, len: usize) -> Result<()> {
        let (own, theirs) = (&self.context, &other.context);
        if own.raw == theirs.raw {
            return self.copy_within(to, from, len);
        }
        let doing = || format!("copying {len} bytes from one device to another");
        let f = own.peers(doing)?;
        // SAFETY: device memory is reached by address, and a wrong one is an error of the driver's; both contexts are retained.
        own.check(doing, unsafe { (f.copy)(to, own.raw, from, theirs.raw, len, self.raw) })
    }
}

impl Event {
    /// Whether what was marked is done; an error if its device failed. The host does not wait.
    pub(crate) fn is_reached(&self) -> Result<bool> {
        let doing = || "asking whether another device has done its part".to_owned();
        let f = self.context.peers(doing)?;
        // SAFETY: the handle lives as long as this.
        match unsafe { (f.query)(self.raw) } {
            NOT_READY => Ok(false),
            code => self.context.check(doing, code).map(|()| true),
        }
    }
}
