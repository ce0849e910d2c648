//! Device memory and pinned host memory: allocations by address.
//!
//! Device addresses are made up and translated, not host pointers: a host that follows a device pointer crashes as it would with
//! a GPU, addresses do not change from run to run, and an address is not used again while there are others, so that a stale one is
//! found. Pinned memory has the same address on both sides, as in CUDA's unified addressing.

mod backing;
mod written;

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use backing::Backing;
pub use written::Written;

/// Alignment of every device allocation, as the driver promises.
pub const ALIGNMENT: u64 = 256;
/// Unused addresses after every allocation: an access a little past the end meets nothing.
const GAP: u64 = 4096;
/// Addresses of a device: its index and this, times 2⁴⁴. Above 2⁴⁷, so that no pointer of the host is one.
const FIRST_DEVICE: u64 = 16;
/// Bytes of addresses for each device.
const DEVICE_SPAN: u64 = 1 << 44;
/// How many freed allocations are remembered; the oldest are forgotten first.
const FREED_LIMIT: usize = 1 << 18;

/// Where an allocation lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Memory of the device with this index.
    Device(u32),
    /// Page-locked host memory, which every device reaches.
    Pinned,
}

/// One allocation.
#[derive(Debug)]
pub struct Allocation {
    /// First address on the device.
    pub start: u64,
    /// Bytes asked for.
    pub len: u64,
    /// Where it lives.
    pub place: Place,
    /// Counts allocations from 1; reports name it.
    pub serial: u64,
    backing: Backing,
    written: Option<Written>,
}

/// All allocations of a process, living and freed.
#[derive(Debug, Default)]
pub struct Memory {
    track_written: bool,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    live: BTreeMap<u64, Arc<Allocation>>,
    freed: BTreeMap<u64, (u64, u64)>,
    devices: BTreeMap<u32, Space>,
    serial: u64,
}

/// One device's memory.
#[derive(Debug, Default)]
struct Space {
    next: u64,
    used: u64,
    capacity: Option<u64>,
}

/// Why memory could not be had or given back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host has no more memory, or the device no more addresses.
    #[error("allocating {bytes} bytes of emulated memory: the host refused; give the device less memory")]
    Exhausted {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The emulated device is full.
    #[error(
        "allocating {bytes} bytes on device {device}: {used} of its {capacity} bytes are in use; free some, or give it more (PTX_EMU_DEVICES)"
    )]
    Full {
        /// Bytes asked for.
        bytes: u64,
        /// The device.
        device: u32,
        /// Bytes in use.
        used: u64,
        /// Bytes it has.
        capacity: u64,
    },
    /// Freeing what is not the start of a living allocation.
    #[error("freeing {address:#x}: {what}")]
    NotAllocated {
        /// The address given.
        address: u64,
        /// What is there instead.
        what: String,
    },
    /// Registering memory that is registered, or freeing registered memory and the other way round.
    #[error(
        "registering {bytes} bytes of host memory at {address:#x}: a part of them is page-locked already"
    )]
    Registered {
        /// The address given.
        address: u64,
        /// Bytes asked for.
        bytes: u64,
    },
}

impl Allocation {
    /// One past the last address.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.len
    }

    /// The host's pointer to the first byte. Valid as long as this value lives (registered memory: as long as its owner keeps it);
    /// other threads may write there at any time, so access goes through atomics or under the rules of the stream.
    #[must_use]
    pub fn host(&self) -> *mut u8 {
        self.backing.start()
    }

    /// The record of written bytes; `None` for pinned memory, which the host writes without telling, and unless the memory tracks.
    #[must_use]
    pub fn written(&self) -> Option<&Written> {
        self.written.as_ref()
    }

    /// The program's own memory, registered and not allocated.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        matches!(self.backing, Backing::Foreign(_))
    }
}

impl Memory {
    /// No allocations; devices without a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Like [`Memory::new`]; each device allocation records which of its bytes were written.
    #[must_use]
    pub fn tracking() -> Self {
        Self { track_written: true, ..Self::default() }
    }

    /// Whether what was written is recorded: the memory is of a machine that checks.
    #[must_use]
    pub fn tracks(&self) -> bool {
        self.track_written
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Says how many bytes a device has.
    pub fn set_capacity(&self, device: u32, bytes: u64) {
        self.write().devices.entry(device).or_default().capacity = Some(bytes);
    }

    /// Bytes of a device that are in use, each allocation rounded up to the alignment.
    #[must_use]
    pub fn used(&self, device: u32) -> u64 {
        self.read().devices.get(&device).map_or(0, |space| space.used)
    }

    /// The same of all devices.
    #[must_use]
    pub fn used_in_all(&self) -> u64 {
        self.read().devices.values().map(|space| space.used).sum()
    }

    /// Reserves `len` bytes (at least one).
    ///
    /// # Errors
    /// [`Error::Full`] if the device has no more, [`Error::Exhausted`] if the host cannot give them.
    pub fn allocate(&self, place: Place, len: u64) -> Result<Arc<Allocation>, Error> {
        let exhausted = Error::Exhausted { bytes: len };
        if let Place::Device(device) = place {
            // Asked before memory is touched: a request far beyond the capacity must cost nothing.
            self.read().devices.get(&device).map_or(Ok(()), |space| space.room(device, len))?;
        }
        let bytes = usize::try_from(len).map_err(|_| exhausted.clone())?;
        let backing = Backing::new(bytes).ok_or(exhausted.clone())?;
        let mut table = self.write();
        let start = match place {
            Place::Pinned => backing.start() as u64,
            Place::Device(device) => {
                let first = (FIRST_DEVICE + u64::from(device)) * DEVICE_SPAN;
                let space = table.devices.entry(device).or_default();
                space.room(device, len)?;
                let start = first + space.next;
                let next = (space.next + len.max(1) + GAP).next_multiple_of(ALIGNMENT);
                if next >= DEVICE_SPAN {
                    return Err(exhausted);
                }
                space.next = next;
                space.used += rounded(len);
                start
            }
        };
        let written = (self.track_written && place != Place::Pinned).then(|| Written::new(len));
        Ok(table.insert(start, len, place, backing, written))
    }

    /// Registers the program's own memory as pinned.
    ///
    /// # Errors
    /// [`Error::Registered`] if a part of it is pinned already.
    pub fn register(&self, start: *mut u8, len: u64) -> Result<Arc<Allocation>, Error> {
        let address = start as u64;
        let mut table = self.write();
        let taken = |(_, a): (&u64, &Arc<Allocation>)| a.end() > address;
        let end = address.checked_add(len).ok_or(Error::Exhausted { bytes: len })?;
        if table.live.range(..end).next_back().is_some_and(taken) {
            return Err(Error::Registered { address, bytes: len });
        }
        Ok(table.insert(address, len, Place::Pinned, Backing::Foreign(start), None))
    }

    /// Gives back the allocation that begins at `address`.
    ///
    /// # Errors
    /// [`Error::NotAllocated`] if none does.
    pub fn free(&self, address: u64) -> Result<Arc<Allocation>, Error> {
        let mut table = self.write();
        match table.live.remove(&address) {
            Some(allocation) => {
                match allocation.place {
                    Place::Device(device) => {
                        let space = table.devices.entry(device).or_default();
                        space.used = space.used.saturating_sub(rounded(allocation.len));
                        table.freed.insert(address, (allocation.len, allocation.serial));
                        if table.freed.len() > FREED_LIMIT {
                            table.freed.pop_first();
                        }
                    }
                    // The host's allocator gives the address to whom it likes.
                    Place::Pinned => {}
                }
                Ok(allocation)
            }
            None => {
                drop(table);
                Err(Error::NotAllocated { address, what: self.describe(address) })
            }
        }
    }

    /// The living allocation that holds `address`.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<Arc<Allocation>> {
        let table = self.read();
        let (_, allocation) = table.live.range(..=address).next_back()?;
        (address < allocation.end()).then(|| Arc::clone(allocation))
    }

    /// Whether `address` lies in an allocation that was freed.
    #[must_use]
    pub fn was_freed(&self, address: u64) -> bool {
        let table = self.read();
        table.freed.range(..=address).next_back().is_some_and(|(start, (len, _))| address < start + len)
    }

    /// What is at or before `address`, in words for a report.
    #[must_use]
    pub fn describe(&self, address: u64) -> String {
        let table = self.read();
        if let Some((start, (len, serial))) = table.freed.range(..=address).next_back()
            && address < start + len
        {
            return format!("byte {} of the freed {len}-byte allocation #{serial}", address - start);
        }
        match table.live.range(..=address).next_back() {
            Some((_, a)) if address < a.end() => {
                format!("byte {} of the {}-byte allocation #{}", address - a.start, a.len, a.serial)
            }
            Some((_, a)) if address - a.end() < 1 << 30 => {
                format!(
                    "{} bytes past the end of the {}-byte allocation #{}",
                    address - a.end(),
                    a.len,
                    a.serial
                )
            }
            _ => "in no allocation".into(),
        }
    }

    /// The living allocations, by address.
    #[must_use]
    pub fn live(&self) -> Vec<Arc<Allocation>> {
        self.read().live.values().cloned().collect()
    }
}

impl Table {
    fn insert(
        &mut self,
        start: u64,
        len: u64,
        place: Place,
        backing: Backing,
        written: Option<Written>,
    ) -> Arc<Allocation> {
        self.serial += 1;
        let allocation = Arc::new(Allocation { start, len, place, serial: self.serial, backing, written });
        self.live.insert(start, Arc::clone(&allocation));
        allocation
    }
}

impl Space {
    fn room(&self, device: u32, bytes: u64) -> Result<(), Error> {
        match self.capacity {
            Some(capacity) if bytes > capacity - self.used.min(capacity) => {
                Err(Error::Full { bytes, device, used: self.used, capacity })
            }
            _ => Ok(()),
        }
    }
}

fn rounded(len: u64) -> u64 {
    len.max(1).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::{Error, Memory, Place};

    #[test]
    fn addresses_are_not_reused_and_freed_ones_are_known() {
        let memory = Memory::new();
        let first = memory.allocate(Place::Device(0), 100).expect("room");
        memory.free(first.start).expect("it lives");
        let second = memory.allocate(Place::Device(0), 100).expect("room");
        assert_ne!(first.start, second.start);
        assert!(memory.was_freed(first.start + 99));
        assert!(!memory.was_freed(first.start + 100));
        assert!(memory.find(first.start).is_none());
        assert!(memory.free(first.start).is_err(), "freed twice");
        assert!(memory.free(second.start + 8).is_err(), "not the start");
        assert_eq!(memory.find(second.start + 99).map(|a| a.serial), Some(second.serial));
        assert!(memory.find(second.start + 100).is_none());
        assert!(memory.describe(second.start + 104).contains("4 bytes past the end of the 100-byte"));
    }

    #[test]
    fn a_device_holds_what_it_holds() {
        let memory = Memory::new();
        memory.set_capacity(1, 4096);
        let whole = memory.allocate(Place::Device(1), 4096).expect("all of it");
        assert!(matches!(memory.allocate(Place::Device(1), 1), Err(Error::Full { used: 4096, .. })));
        assert!(matches!(memory.allocate(Place::Device(1), u64::MAX), Err(Error::Full { .. })));
        memory.free(whole.start).expect("it lives");
        assert_eq!(memory.used(1), 0);
        assert!(memory.allocate(Place::Device(0), 1 << 20).is_ok(), "the other device has no limit");
    }

    #[test]
    fn registered_memory_keeps_its_address_and_may_not_overlap() {
        let memory = Memory::new();
        let mut own = vec![0u8; 100];
        let start = own.as_mut_ptr();
        let a = memory.register(start, 100).expect("free");
        assert_eq!(a.host(), start);
        assert!(memory.register(start.wrapping_add(50), 100).is_err());
        memory.free(start as u64).expect("registered");
        assert!(memory.register(start, 100).is_ok());
    }

    #[test]
    fn fresh_memory_is_poison_and_unwritten() {
        let memory = Memory::tracking();
        for len in [16u64, 1 << 20] {
            let a = memory.allocate(Place::Device(0), len).expect("room");
            assert_eq!(a.written().expect("tracked").first_unwritten(0, len), Some(0));
            assert_eq!(a.start % 256, 0);
        }
        assert!(memory.allocate(Place::Pinned, 16).expect("room").written().is_none());
    }
}
