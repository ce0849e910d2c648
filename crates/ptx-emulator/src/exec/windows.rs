//! The allocations a worker used last: an address in one of them costs two comparisons.
//!
//! A window keeps its allocation alive, so that memory freed while a grid runs (a mistake of the host's) is still memory.

use std::sync::Arc;

use super::launch::Environment;
use crate::memory::Allocation;

// How many a worker keeps; a kernel with more buffers than this looks some of them up again.
const KEPT: usize = 8;

/// The windows of one worker, the one used last in front.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    start: u64,
    len: u64,
    host: usize,
    kept: Vec<Arc<Allocation>>,
    front: usize,
    whole: bool,
}

impl Windows {
    /// The host's pointer to `bytes` bytes at a device address, if they lie in the window in front.
    #[inline(always)]
    pub(crate) fn host(&self, address: u64, bytes: usize) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.start);
        (offset < self.len && self.len - offset >= bytes as u64)
            .then(|| (self.host + offset as usize) as *mut u8)
    }

    /// Brings the allocation that holds `address` to the front; false if there is none.
    pub(crate) fn enter(&mut self, environment: &Environment, address: u64) -> bool {
        let found = self.kept.iter().position(|a| address.wrapping_sub(a.start) < a.len);
        let index = match found {
            Some(index) => index,
            None => match environment.memory.find(address) {
                Some(allocation) => {
                    if self.kept.len() == KEPT {
                        self.kept.remove(0);
                    }
                    self.kept.push(allocation);
                    self.kept.len() - 1
                }
                None => return false,
            },
        };
        let allocation = &self.kept[index];
        (self.start, self.len, self.host) = (allocation.start, allocation.len, allocation.host() as usize);
        self.front = index;
        // Asked once for each visit: what is whole now stays so while the grid runs.
        self.whole = allocation.written().is_none_or(|written| written.is_whole());
        true
    }

    /// The first of `bytes` bytes at `address` that nothing wrote, by the map of the window in front.
    #[inline]
    pub(crate) fn unwritten(&self, address: u64, bytes: usize) -> Option<u64> {
        if self.whole {
            return None;
        }
        let allocation = self.kept.get(self.front)?;
        allocation
            .written()?
            .first_unwritten(address.wrapping_sub(allocation.start), bytes as u64)
            .map(|at| allocation.start + at)
    }

    /// Everything in the window in front was written.
    #[inline(always)]
    pub(crate) fn whole(&self) -> bool {
        self.whole
            || self.kept.get(self.front).is_none_or(|a| a.written().is_none_or(|written| written.is_whole()))
    }

    /// Marks bytes of the window in front as written.
    #[inline]
    pub(crate) fn mark(&self, address: u64, bytes: usize) {
        if !self.whole
            && let Some(allocation) = self.kept.get(self.front)
            && let Some(written) = allocation.written()
        {
            written.mark(address.wrapping_sub(allocation.start), bytes as u64);
        }
    }
}
