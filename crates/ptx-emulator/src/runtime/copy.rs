//! Copies and fills: boxes of rows between device memory, pinned memory and the program's own.
//!
//! A copy keeps addresses and looks them up when it runs: memory freed in the meantime is found then, as a copy engine would.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::fault::{Fault, Kind};
use crate::memory::{Allocation, Memory};

/// One side of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// Memory that the device knows: its own or pinned.
    Device(u64),
    /// The program's own memory, as an address: read or written when the copy runs.
    Host(usize),
    /// What the program's memory held when the copy was queued.
    Staged(Arc<Vec<u8>>),
}

/// Rows of `width` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// From row to row, and from layer to layer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pitch {
    pub(crate) row: u64,
    pub(crate) layer: u64,
}

/// A copy.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) to: Side,
    pub(crate) from: Side,
    pub(crate) extent: Extent,
    pub(crate) to_pitch: Pitch,
    pub(crate) from_pitch: Pitch,
}

/// A fill with a repeated value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) address: u64,
    pub(crate) value: u32,
    /// Bytes of the value: 1, 2 or 4.
    pub(crate) size: u32,
    /// Values of a row.
    pub(crate) columns: u64,
    pub(crate) rows: u64,
    pub(crate) pitch: u64,
}

impl Extent {
    /// One row.
    pub(crate) fn line(bytes: u64) -> Self {
        Self { width: bytes, height: 1, depth: 1 }
    }

    /// Bytes moved.
    pub(crate) fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }

    /// Bytes from the first to behind the last; `None` if that overflows.
    pub(crate) fn span(&self, pitch: Pitch) -> Option<u64> {
        if self.bytes() == 0 {
            return Some(0);
        }
        let rows = pitch.row.checked_mul(self.height - 1)?;
        let layers = pitch.layer.checked_mul(self.depth - 1)?;
        rows.checked_add(layers)?.checked_add(self.width)
    }
}

impl Pitch {
    pub(crate) const LINE: Self = Self { row: 0, layer: 0 };
}

impl Copy {
    /// A copy of one row.
    pub(crate) fn line(to: Side, from: Side, bytes: u64) -> Self {
        Self { to, from, extent: Extent::line(bytes), to_pitch: Pitch::LINE, from_pitch: Pitch::LINE }
    }

    /// Whether a side is memory of the host's that the driver does not know.
    pub(crate) fn is_pageable(&self) -> bool {
        [&self.to, &self.from].iter().any(|side| !matches!(side, Side::Device(_)))
    }
}

/// A side found: where it begins, and its allocation if it has one.
struct Found {
    start: *mut u8,
    at: Option<(Arc<Allocation>, u64)>,
    // Keeps staged bytes alive while they are read.
    _staged: Option<Arc<Vec<u8>>>,
}

/// The living allocation that holds `bytes` bytes at `address`.
pub(crate) fn locate(
    memory: &Memory,
    address: u64,
    bytes: u64,
    doing: &str,
) -> Result<(Arc<Allocation>, u64), Fault> {
    let fault = |kind, what: String| {
        let message = format!("{doing}: {bytes} bytes at {address:#x}: {what}");
        Err(Fault { kind, message, site: None, other: None })
    };
    match memory.find(address) {
        Some(allocation) if bytes <= allocation.end() - address => {
            let offset = address - allocation.start;
            Ok((allocation, offset))
        }
        Some(allocation) => {
            let over = bytes - (allocation.end() - address);
            fault(
                Kind::OutOfBounds,
                format!("{} and {over} bytes further than it goes", memory.describe(address)),
            )
        }
        None if memory.was_freed(address) => fault(Kind::UseAfterFree, memory.describe(address)),
        None => fault(Kind::OutOfBounds, memory.describe(address)),
    }
}

fn find(memory: &Memory, side: &Side, span: u64, doing: &str) -> Result<Found, Fault> {
    match side {
        Side::Host(address) => Ok(Found { start: *address as *mut u8, at: None, _staged: None }),
        Side::Staged(bytes) => {
            Ok(Found { start: bytes.as_ptr().cast_mut(), at: None, _staged: Some(Arc::clone(bytes)) })
        }
        Side::Device(address) => {
            let (allocation, offset) = locate(memory, *address, span, doing)?;
            let start = allocation.host().wrapping_add(offset as usize);
            Ok(Found { start, at: Some((allocation, offset)), _staged: None })
        }
    }
}

/// The first address that a copy both reads and writes. The order in which it moves its bytes is not known, so that what is there afterwards
/// is anything.
fn overlap(copy: &Copy) -> Option<u64> {
    let (Side::Device(from), Side::Device(to)) = (&copy.from, &copy.to) else { return None };
    let width = copy.extent.width;
    // Rows come in the order of their addresses, on both sides: one walk along both is enough.
    let mut sources = rows(*from, copy.extent, copy.from_pitch).peekable();
    let mut targets = rows(*to, copy.extent, copy.to_pitch).peekable();
    while let (Some(&source), Some(&target)) = (sources.peek(), targets.peek()) {
        if source + width <= target {
            sources.next();
        } else if target + width <= source {
            targets.next();
        } else {
            return Some(source.max(target));
        }
    }
    None
}

/// Where the rows of a box begin.
fn rows(first: u64, extent: Extent, pitch: Pitch) -> impl Iterator<Item = u64> {
    (0..extent.depth).flat_map(move |layer| {
        (0..extent.height).map(move |row| first + layer * pitch.layer + row * pitch.row)
    })
}

/// Runs a copy.
pub(crate) fn copy(memory: &Memory, copy: &Copy) -> Result<(), Fault> {
    let extent = copy.extent;
    if extent.bytes() == 0 {
        return Ok(());
    }
    let overflow = || Fault {
        kind: Kind::OutOfBounds,
        message: format!("copying {extent:?}: its end is beyond all addresses"),
        site: None,
        other: None,
    };
    let from_span = extent.span(copy.from_pitch).ok_or_else(overflow)?;
    let to_span = extent.span(copy.to_pitch).ok_or_else(overflow)?;
    let from = find(memory, &copy.from, from_span, "copying from")?;
    let to = find(memory, &copy.to, to_span, "copying to")?;
    if memory.tracks()
        && let Some(at) = overlap(copy)
    {
        let message =
            format!("copying {extent:?} onto itself: {at:#x} is read and written, {}", memory.describe(at));
        return Err(Fault { kind: Kind::Misuse, message, site: None, other: None });
    }
    for layer in 0..extent.depth {
        for row in 0..extent.height {
            let source = layer * copy.from_pitch.layer + row * copy.from_pitch.row;
            let target = layer * copy.to_pitch.layer + row * copy.to_pitch.row;
            // SAFETY: both rows lie within the spans that were checked against their allocations, which `from` and `to` keep
            // alive; memory of the program itself is there because the caller of the C interface promised it.
            unsafe {
                std::ptr::copy(
                    from.start.wrapping_add(source as usize).cast_const(),
                    to.start.wrapping_add(target as usize),
                    extent.width as usize,
                );
            }
            if let Some((allocation, offset)) = &to.at
                && let Some(written) = allocation.written()
            {
                match &from.at {
                    Some((a, o)) if a.written().is_some() => {
                        if let Some(holes) = a.written() {
                            written.copy_from(offset + target, holes, o + source, extent.width);
                        }
                    }
                    _ => written.mark(offset + target, extent.width),
                }
            }
        }
    }
    Ok(())
}

/// Runs a fill.
pub(crate) fn fill(memory: &Memory, fill: &Fill) -> Result<(), Fault> {
    let width = fill.columns * u64::from(fill.size);
    let extent = Extent { width, height: fill.rows, depth: 1 };
    if extent.bytes() == 0 {
        return Ok(());
    }
    let span = extent.span(Pitch { row: fill.pitch, layer: 0 }).unwrap_or(u64::MAX);
    let (allocation, offset) = locate(memory, fill.address, span, "filling")?;
    let value = fill.value.to_le_bytes();
    let size = fill.size as usize;
    for row in 0..fill.rows {
        let begin = offset + row * fill.pitch;
        let start = allocation.host().wrapping_add(begin as usize);
        if value.iter().take(size).all(|byte| *byte == value[0]) {
            // SAFETY: the row lies within the span that was checked against the allocation, which is alive.
            unsafe { start.write_bytes(value[0], width as usize) };
        } else {
            for column in 0..fill.columns as usize {
                // SAFETY: as above, and the value has `size` bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(value.as_ptr(), start.wrapping_add(column * size), size)
                };
            }
        }
        if let Some(written) = allocation.written() {
            written.mark(begin, width);
        }
    }
    Ok(())
}

/// Reads 4 or 8 bytes that somebody else may be writing.
pub(crate) fn read_word(memory: &Memory, address: u64, wide: bool) -> Result<u64, Fault> {
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire};
    let bytes = if wide { 8 } else { 4 };
    let (allocation, offset) = locate(memory, address, bytes, "waiting for a value")?;
    if !address.is_multiple_of(bytes) {
        let message = format!("waiting for a value of {bytes} bytes at {address:#x}: misaligned");
        return Err(Fault { kind: Kind::Misaligned, message, site: None, other: None });
    }
    let start = allocation.host().wrapping_add(offset as usize);
    // SAFETY: in bounds and aligned: allocations are aligned to more than 8 bytes, or are the program's own at their own address.
    Ok(unsafe {
        if wide {
            AtomicU64::from_ptr(start.cast()).load(Acquire)
        } else {
            u64::from(AtomicU32::from_ptr(start.cast()).load(Acquire))
        }
    })
}
