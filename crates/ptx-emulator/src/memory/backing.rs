//! The host memory behind an allocation.
//!
//! Small ones come from the heap and large ones are mapped: a map costs a page and two system calls, and programs allocate by the thousand; a
//! map of many megabytes on the other hand costs nothing until it is touched, so that a device of 24 GiB fits on a laptop.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

/// From here on memory is mapped.
const MAPPED: usize = 1 << 18;
/// Fresh memory up to this size is filled with ones (NaN as a float), so that nothing seems to work because it was zero.
const POISON_LIMIT: usize = 64 << 20;

/// Bytes of the host.
#[derive(Debug)]
pub(super) enum Backing {
    /// A mapping of its own.
    Map(memmap2::MmapMut),
    /// A piece of the heap.
    Heap { start: NonNull<u8>, layout: Layout },
    /// Memory of the program, registered with the driver; not ours to free.
    Foreign(*mut u8),
}

// SAFETY: the pointers are owned (or, for foreign memory, vouched for by whoever registered it) and carry no thread's state; who
// reads and writes behind them when is settled by the streams.
unsafe impl Send for Backing {}
// SAFETY: as above.
unsafe impl Sync for Backing {}

impl Backing {
    /// `bytes` of poisoned memory; `None` if the host has no more.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1);
        if bytes >= MAPPED {
            let mut map = memmap2::MmapMut::map_anon(bytes).ok()?;
            if bytes <= POISON_LIMIT {
                map.fill(0xff);
            }
            return Some(Self::Map(map));
        }
        let layout = Layout::from_size_align(bytes, super::ALIGNMENT as usize).ok()?;
        // SAFETY: the layout is not empty: `bytes` is at least one.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: `start` was just allocated with this size.
        unsafe { start.write_bytes(0xff, bytes) };
        Some(Self::Heap { start, layout })
    }

    /// The first byte.
    pub(super) fn start(&self) -> *mut u8 {
        match self {
            Self::Map(map) => map.as_ptr().cast_mut(),
            Self::Heap { start, .. } => start.as_ptr(),
            Self::Foreign(start) => *start,
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Self::Heap { start, layout } = self {
            // SAFETY: allocated in `new` with this layout and freed only here.
            unsafe { dealloc(start.as_ptr(), *layout) };
        }
    }
}
