//! Device memory and pinned host memory: allocations by address.
//!
//! Device addresses are made up and translated, not host pointers: a host that follows a device pointer crashes as it would with
//! a GPU, addresses do not change from run to run, and an address is not used again while there are others, so that a stale one is
//! found. Pinned memory has the same address on both sides, as in CUDA's unified addressing.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Alignment of every device allocation, as the driver promises.
pub const ALIGNMENT: u64 = 256;
/// Unused addresses after every allocation: an access a little past the end meets nothing.
const GAP: u64 = 4096;
/// Fresh memory up to this size is filled with ones (NaN as a float), so that nothing seems to work because it was zero.
const POISON_LIMIT: usize = 64 << 20;

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
}

#[derive(Debug)]
struct Backing {
    map: memmap2::MmapMut,
}

/// All allocations of a process, living and freed.
#[derive(Debug, Default)]
pub struct Memory {
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    live: BTreeMap<u64, Arc<Allocation>>,
    freed: BTreeMap<u64, (u64, u64)>,
    next: BTreeMap<u32, u64>,
    serial: u64,
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
    /// Freeing what is not the start of a living allocation.
    #[error("freeing {address:#x}: {what}")]
    NotAllocated {
        /// The address given.
        address: u64,
        /// What is there instead.
        what: String,
    },
}

impl Allocation {
    /// One past the last address.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.len
    }

    /// The host's pointer to the first byte. Valid as long as this value lives; other threads may write there at any time, so
    /// access goes through atomics or under the rules of the stream.
    #[must_use]
    pub fn host(&self) -> *mut u8 {
        self.backing.map.as_ptr().cast_mut()
    }
}

impl Memory {
    /// No allocations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Reserves `len` bytes (at least one).
    ///
    /// # Errors
    /// [`Error::Exhausted`] if the host cannot give them.
    pub fn allocate(&self, place: Place, len: u64) -> Result<Arc<Allocation>, Error> {
        let exhausted = Error::Exhausted { bytes: len };
        let bytes = usize::try_from(len.max(1)).map_err(|_| exhausted.clone())?;
        let mut map = memmap2::MmapMut::map_anon(bytes).map_err(|_| exhausted.clone())?;
        if bytes <= POISON_LIMIT {
            map.fill(0xff);
        }
        let mut table = self.write();
        table.serial += 1;
        let start = match place {
            Place::Pinned => map.as_ptr() as u64,
            Place::Device(index) => {
                let first = (u64::from(index) + 1) << 44;
                let next = table.next.entry(index).or_insert(first);
                let start = *next;
                *next = (start + len.max(1) + GAP).next_multiple_of(ALIGNMENT);
                if *next >= first + (1 << 44) {
                    return Err(exhausted);
                }
                start
            }
        };
        let allocation =
            Arc::new(Allocation { start, len, place, serial: table.serial, backing: Backing { map } });
        table.freed.remove(&start);
        table.live.insert(start, Arc::clone(&allocation));
        Ok(allocation)
    }

    /// Gives back the allocation that begins at `address`.
    ///
    /// # Errors
    /// [`Error::NotAllocated`] if none does.
    pub fn free(&self, address: u64) -> Result<Arc<Allocation>, Error> {
        let mut table = self.write();
        match table.live.remove(&address) {
            Some(allocation) => {
                table.freed.insert(address, (allocation.len, allocation.serial));
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
