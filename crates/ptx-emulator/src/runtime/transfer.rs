//! Copies and fills as the host asks for them: what is checked at the call, and what is read when.
//!
//! CUDA says of an asynchronous copy from pageable memory that the source may be changed after the call, and of one from pinned memory that it may
//! not. The first is staged here at the call, the other read late. A download to pageable memory "might be synchronous": drivers wait, so it does here,
//! unless the settings want it late.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::Machine;
use super::copy::{Copy, Extent, Fill, Pitch, Side, locate};
use super::error::{Code, Error, Result};
use super::handle::{Context, Stream};
use super::work::Operation;
use crate::memory::Place;

/// Uploads from pageable memory up to this size are staged; larger ones wait, as the driver does when its buffers are full.
const STAGED: u64 = 64 << 20;

/// One side of a copy, as the caller names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place3 {
    /// An address of the device or of the host.
    pub address: u64,
    /// Bytes from row to row.
    pub pitch: u64,
    /// Rows from layer to layer.
    pub height: u64,
}

/// A copy, as the caller asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where to.
    pub to: Place3,
    /// Where from.
    pub from: Place3,
    /// `to` must be device memory (or pinned).
    pub to_device: bool,
    /// `from` must be device memory (or pinned).
    pub from_device: bool,
    /// Bytes, rows, layers.
    pub extent: [u64; 3],
}

impl Transfer {
    /// A copy of `bytes` bytes in a row.
    #[must_use]
    pub fn line(to: u64, to_device: bool, from: u64, from_device: bool, bytes: u64) -> Self {
        let place = |address| Place3 { address, pitch: 0, height: 0 };
        Self { to: place(to), from: place(from), to_device, from_device, extent: [bytes, 1, 1] }
    }
}

impl Machine {
    /// Copies, in stream order; with `wait` the call returns when it is done.
    ///
    /// # Safety
    /// A side that is not memory of the driver's must be the caller's to read or write for the extent given: from now until the stream
    /// has done the copy.
    ///
    /// # Errors
    /// Addresses that are not where they should be; the rules of capture; with `wait`, what went wrong on the device.
    pub unsafe fn transfer(
        &self,
        context: Context,
        stream: Stream,
        transfer: &Transfer,
        wait: bool,
    ) -> Result<()> {
        let copy = self.checked(transfer)?;
        let bytes = copy.extent.bytes();
        if bytes == 0 {
            return self.lock().context(context).map(|_| ());
        }
        let pageable_upload = matches!(copy.from, Side::Host(_)) && matches!(copy.to, Side::Device(_));
        let pageable = matches!(copy.from, Side::Host(_)) || matches!(copy.to, Side::Host(_));
        let host_only = !transfer.to_device && !transfer.from_device;
        if wait {
            self.lock().not_while_capturing("a synchronous copy")?;
        }
        let capturing = {
            let mut state = self.lock();
            let stream = state.stream(context, stream)?;
            if wait {
                state.not_capturing(stream, "a synchronous copy in it")?;
            }
            state.streams.get(&stream).is_some_and(|stream| stream.capture.is_some())
        };
        let mut copy = copy;
        let mut wait = wait;
        if pageable_upload && !wait && !capturing {
            if bytes <= STAGED && copy.extent.height == 1 && copy.extent.depth == 1 {
                copy.from = stage(&copy);
            } else {
                wait = true;
            }
        }
        let download = matches!(copy.to, Side::Host(_)) && matches!(copy.from, Side::Device(_));
        wait |= download && !capturing && !self.shared.settings.late_downloads;
        // Between two places on the device nobody waits, not even in the "synchronous" call.
        let wait = wait && (pageable || host_only || !self.within_device(&copy));
        self.submit(context, stream, Operation::Copy(copy))?;
        if wait { self.synchronize_stream(context, stream) } else { Ok(()) }
    }

    /// Copies bytes of the caller's to the device; they may be changed when this returns.
    ///
    /// # Errors
    /// As [`Machine::transfer`].
    pub fn upload(&self, context: Context, stream: Stream, to: u64, bytes: &[u8]) -> Result<()> {
        let transfer = Transfer::line(to, true, bytes.as_ptr() as u64, false, bytes.len() as u64);
        let mut copy = self.checked(&transfer)?;
        if matches!(copy.from, Side::Host(_)) {
            copy.from = Side::Staged(Arc::new(bytes.to_vec()));
        }
        if bytes.is_empty() {
            return self.lock().context(context).map(|_| ());
        }
        self.submit(context, stream, Operation::Copy(copy))
    }

    /// Copies bytes of the device to the caller, and waits for them.
    ///
    /// # Errors
    /// As [`Machine::transfer`].
    pub fn download(&self, context: Context, stream: Stream, bytes: &mut [u8], from: u64) -> Result<()> {
        let transfer = Transfer::line(bytes.as_mut_ptr() as u64, false, from, true, bytes.len() as u64);
        // SAFETY: the call waits, so the slice is not written after it.
        unsafe { self.transfer(context, stream, &transfer, true) }
    }

    /// Fills rows with a value of 1, 2 or 4 bytes, in stream order.
    ///
    /// # Errors
    /// Addresses that are not in living memory, or not aligned to the value.
    pub fn fill(
        &self,
        context: Context,
        stream: Stream,
        address: u64,
        pitch: u64,
        value: (u32, u32),
        columns: u64,
        rows: u64,
    ) -> Result<()> {
        let fill = self.checked_fill(address, pitch, value, columns, rows)?;
        if columns == 0 || rows == 0 {
            return self.lock().context(context).map(|_| ());
        }
        self.submit(context, stream, Operation::Fill(fill))
    }

    pub(crate) fn checked_fill(
        &self,
        address: u64,
        pitch: u64,
        (value, size): (u32, u32),
        columns: u64,
        rows: u64,
    ) -> Result<Fill> {
        let invalid = |what: String| Code::INVALID_VALUE.error(what);
        if !matches!(size, 1 | 2 | 4) || !address.is_multiple_of(u64::from(size)) {
            return invalid(format!("filling {address:#x} with values of {size} bytes"));
        }
        let Some(width) = columns.checked_mul(u64::from(size)) else {
            return invalid(format!("filling {columns} values"));
        };
        if rows > 1 && pitch < width {
            return invalid(format!("filling rows of {width} bytes that begin every {pitch}"));
        }
        let span = Extent { width, height: rows, depth: 1 }.span(Pitch { row: pitch, layer: 0 });
        let Some(span) = span else { return invalid("filling beyond all addresses".into()) };
        if span > 0 {
            locate(&self.shared.memory, address, span, "filling")
                .map_err(|fault| Error::new(Code::INVALID_VALUE, fault.message))?;
        }
        Ok(Fill { address, value, size, columns, rows, pitch })
    }

    /// A copy with its sides looked up and its bounds checked.
    pub(crate) fn checked(&self, transfer: &Transfer) -> Result<Copy> {
        let [width, height, depth] = transfer.extent;
        let extent = Extent { width, height, depth };
        let layers =
            |place: Place3| Pitch { row: place.pitch, layer: place.pitch.saturating_mul(place.height) };
        let (to_pitch, from_pitch) = (layers(transfer.to), layers(transfer.from));
        let side = |place: Place3, pitch: Pitch, device: bool, doing: &str| -> Result<Side> {
            let invalid = |what: String| Code::INVALID_VALUE.error(what);
            if height > 1 && place.pitch < width {
                return invalid(format!("{doing} rows of {width} bytes that begin every {}", place.pitch));
            }
            let Some(span) = extent.span(pitch) else {
                return invalid(format!("{doing} beyond all addresses"));
            };
            if span == 0 {
                return Ok(Side::Host(0));
            }
            match locate(&self.shared.memory, place.address, span, doing) {
                Ok(_) => Ok(Side::Device(place.address)),
                Err(fault) if device => invalid(fault.message),
                Err(_) if place.address == 0 => invalid(format!("{doing} a null pointer")),
                // No device address is a host address: this one was meant for the other side, or is stale.
                Err(fault) if place.address >= 1 << 47 => invalid(fault.message),
                Err(_) => Ok(Side::Host(place.address as usize)),
            }
        };
        Ok(Copy {
            to: side(transfer.to, to_pitch, transfer.to_device, "copying to")?,
            from: side(transfer.from, from_pitch, transfer.from_device, "copying from")?,
            extent,
            to_pitch,
            from_pitch,
        })
    }

    fn on_device(&self, side: &Side) -> bool {
        match side {
            Side::Device(address) => {
                self.shared.memory.find(*address).is_some_and(|allocation| allocation.place != Place::Pinned)
            }
            Side::Host(_) | Side::Staged(_) => false,
        }
    }

    /// Whether a copy comes from and goes to a device's own memory.
    pub(super) fn direction(&self, copy: &Copy) -> (bool, bool) {
        (self.on_device(&copy.from), self.on_device(&copy.to))
    }

    /// Whether a copy comes from one device's memory and goes to another's.
    pub(super) fn is_between_devices(&self, copy: &Copy) -> bool {
        let place = |side: &Side| match side {
            Side::Device(address) => self.shared.memory.find(*address).map(|allocation| allocation.place),
            Side::Host(_) | Side::Staged(_) => None,
        };
        matches!((place(&copy.from), place(&copy.to)), (Some(Place::Device(a)), Some(Place::Device(b))) if a != b)
    }

    fn within_device(&self, copy: &Copy) -> bool {
        self.direction(copy) == (true, true)
    }
}

/// What the program's memory holds now.
fn stage(copy: &Copy) -> Side {
    let Side::Host(address) = copy.from else { return copy.from.clone() };
    let width = copy.extent.width as usize;
    let mut bytes = vec![0u8; width];
    // SAFETY: whoever asked for the copy promised that these bytes are theirs to read.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), width) };
    Side::Staged(Arc::new(bytes))
}
