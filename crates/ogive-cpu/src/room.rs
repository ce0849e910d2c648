//! Memory for weights, in large pages where the system has them.
//!
//! A large page is there only for what one mapping has of it in whole. With a mapping for each weight, those of a few megabytes got
//! none, nor did the ends of others; so smaller weights share mappings, one behind the other. A mapping is given back when
//! the last of its weights is dropped.
#![allow(unsafe_code)]

use memmap2::MmapMut;
use std::{
    fmt,
    ops::{Deref, DerefMut},
    slice,
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes of a large page on most systems.
const LARGE: usize = 2 << 20;
/// Mappings that are shared grow to so many bytes: what one small weight may keep of a model that is dropped.
const SHARED: usize = 64 << 20;
/// Weights begin at multiples of this.
const ALIGN: usize = 4096;

/// Where the next weights go.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<Option<Free>>);

/// A mapping and its first free byte.
#[derive(Debug)]
struct Free {
    map: Arc<Map>,
    next: usize,
}

impl Rooms {
    /// `len` bytes, all zero, that begin at a page of their own; `None` where the system has no memory.
    pub(crate) fn take(&self, len: usize) -> Option<Room> {
        if len >= SHARED / 2 {
            return Some(Room { start: 0, len, map: Map::new(len)? });
        }
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |free: &Free| free.map.len - free.next >= len;
        if !free.as_ref().is_some_and(fits) {
            let size = free.as_ref().map_or(LARGE, |free| (2 * free.map.len).min(SHARED));
            *free = Some(Free { map: Map::new(size.max(len.next_multiple_of(LARGE)))?, next: 0 });
        }
        let Free { map, next } = free.as_mut()?;
        let start = *next;
        *next = (start + len).next_multiple_of(ALIGN).min(map.len);
        Some(Room { map: Arc::clone(map), start, len })
    }
}

/// Zeroed memory that begins at a large page.
struct Map {
    base: *mut u8,
    len: usize,
    /// Owns what is behind `base`.
    _map: MmapMut,
}

impl Map {
    fn new(len: usize) -> Option<Arc<Self>> {
        // Only what is written takes real memory, so it costs nothing to have as much more as may be skipped.
        let mut map = MmapMut::map_anon(len.checked_add(LARGE)?).ok()?;
        // It is as right without.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let skip = map.as_ptr().addr().wrapping_neg() % LARGE;
        let base = map[skip..][..len].as_mut_ptr();
        Some(Arc::new(Self { base, len, _map: map }))
    }
}

// SAFETY: the memory behind `base` is `_map`'s and goes with it; it is read and written through `Room`s only, each of which has a
// part of its own.
unsafe impl Send for Map {}
// SAFETY: the same.
unsafe impl Sync for Map {}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map({})", self.len)
    }
}

/// Part of a mapping that nobody else has.
#[derive(Debug)]
pub(crate) struct Room {
    map: Arc<Map>,
    start: usize,
    len: usize,
}

impl Deref for Room {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start + len` is within the mapping, which is initialised and lives as long as `self`; `take` gives each byte to one
        // room, and whoever writes it has that borrowed mutably.
        unsafe { slice::from_raw_parts(self.map.base.add(self.start), self.len) }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the same.
        unsafe { slice::from_raw_parts_mut(self.map.base.add(self.start), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_zeroed_and_apart() {
        let rooms = Rooms::default();
        let sizes = [1, 0, ALIGN, ALIGN + 1, LARGE - 1, LARGE, 3 * LARGE + 5, SHARED / 2 - 1, SHARED / 2, 7];
        let mut taken: Vec<Room> = sizes.iter().map(|len| rooms.take(*len).unwrap()).collect();
        for (i, room) in taken.iter_mut().enumerate() {
            assert!(room.len() == sizes[i] && room.as_ptr().addr().is_multiple_of(ALIGN));
            assert!(room.iter().all(|b| *b == 0), "of {} bytes", room.len());
            room.fill(i as u8 + 1);
        }
        // The first to be dropped takes nothing from those that shared with it.
        let rest = taken.split_off(4);
        drop(taken);
        for (i, room) in rest.iter().enumerate() {
            assert!(room.iter().all(|b| usize::from(*b) == i + 5), "of {} bytes", room.len());
        }
    }

    #[test]
    fn small_ones_share_and_large_ones_do_not() {
        let rooms = Rooms::default();
        let [a, b, large, c] = [10, LARGE / 2, SHARED / 2, 10].map(|len| rooms.take(len).unwrap());
        assert!(Arc::ptr_eq(&a.map, &b.map) && Arc::ptr_eq(&a.map, &c.map));
        assert!(!Arc::ptr_eq(&a.map, &large.map));
        assert_eq!([a.map.len, large.map.len], [LARGE, SHARED / 2]);
        assert_eq!(rooms.take(LARGE).unwrap().map.len, 2 * LARGE, "mappings grow");
        assert!(rooms.take(usize::MAX).is_none());
    }
}
