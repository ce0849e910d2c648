//! The hooks for races in global memory.
//!
//! A trait, though one type implements it, so that the machine can be read without knowing what a race is. A watch of a block is a
//! value of that block, moved between workers with it, and needs no lock; what blocks share is behind the [`Watch`].

use std::fmt;

use super::clocks::Clocks;
use crate::exec::registers::{Mask, lanes};
use crate::fault::Fault;

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A plain read.
    Read,
    /// A plain write.
    Write,
    /// An atomic read-modify-write, or a read or write that is strong (`.relaxed`, `.acquire`, `.release`, `.volatile`).
    Strong {
        /// It reads.
        reads: bool,
        /// It writes.
        writes: bool,
        /// Its own ordering.
        order: Order,
        /// Who can rely on it.
        scope: Scope,
    },
}

/// Memory ordering of a strong access or a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// None.
    Relaxed,
    /// What comes after stays after.
    Acquire,
    /// What comes before stays before.
    Release,
    /// Both.
    AcquireRelease,
    /// Both, and one order for all (`fence.sc`, `membar`).
    Sequential,
}

/// Who can rely on an ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The block.
    Block,
    /// The cluster.
    Cluster,
    /// The device.
    Device,
    /// Every device and the host.
    System,
}

/// One thread at one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// Warp within the block.
    pub(crate) warp: u32,
    /// Lane within the warp.
    pub(crate) lane: u32,
    /// Index into the program's places, which turns it into a line.
    pub(crate) place: u32,
}

/// Told of a grid.
pub(crate) trait Watch: Send + Sync + fmt::Debug {
    /// The block at `index` of the grid begins, with `warps` warps.
    fn block(&self, index: [u32; 3], warps: u32) -> Box<dyn BlockWatch>;
}

/// Told of a block. The clocks are the block's own: the machine keeps them wherever there is a watch.
pub(crate) trait BlockWatch: Send + fmt::Debug {
    /// A thread accesses `bytes` bytes of global memory at `address`. Called before the access.
    ///
    /// # Errors
    /// The race that was found.
    fn access(
        &mut self,
        clocks: &mut Clocks,
        who: Who,
        address: u64,
        bytes: u32,
        access: Access,
    ) -> Result<(), Box<Fault>>;

    /// The lanes of a mask do plain reads of `bytes` bytes, `who` being lane 0 of their warp: as so many accesses, lowest lane first.
    ///
    /// # Errors
    /// The first race that was found.
    fn reads(
        &mut self,
        clocks: &mut Clocks,
        who: Who,
        mask: Mask,
        addresses: &[u64; 32],
        bytes: u32,
    ) -> Result<(), Box<Fault>> {
        for lane in lanes(mask) {
            let who = Who { lane: lane as u32, ..who };
            self.access(clocks, who, addresses[lane], bytes, Access::Read)?;
        }
        Ok(())
    }

    /// A strong access was done. Called after it, and before any other of this block: whose write it saw is known only now.
    fn strong_done(&mut self, who: Who, address: u64, access: Access);

    /// The lanes of a warp execute a fence.
    fn fence(&mut self, clocks: &mut Clocks, warp: u32, order: Order, scope: Scope);

    /// A barrier of the block is complete: what `arrived` did (with `bar.arrive` too) comes before all that `released` do next.
    fn barrier(&mut self, arrived: &[(u32, Mask)], released: &[(u32, Mask)]);

    /// Lanes of a warp arrive at the mbarrier at an offset in shared memory (or issue a copy that will): what they did comes before what
    /// those do whose wait for it succeeds.
    fn mbarrier_arrive(&mut self, warp: u32, lanes: Mask, mbarrier: u32);

    /// A wait of some lanes for an mbarrier succeeded.
    fn mbarrier_wait(&mut self, warp: u32, lanes: Mask, mbarrier: u32);

    /// The block went past `griddepcontrol.wait`: what the grids before did is visible.
    fn dependency_wait(&mut self);
}
