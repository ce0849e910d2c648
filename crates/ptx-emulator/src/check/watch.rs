//! The hooks for races in global memory.
//!
//! A watch of a block is a value of that block, moved between workers with it, so that clocks of its warps need no lock; what blocks
//! share is behind the [`Watch`]. The methods return what they found: the machine stops there as at any other fault.

use std::fmt;

use crate::exec::registers::Mask;
use crate::fault::Fault;

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
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
pub enum Order {
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
pub enum Scope {
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
pub struct Who {
    /// Warp within the block.
    pub warp: u32,
    /// Lane within the warp.
    pub lane: u32,
    /// Index into the program's places: [`crate::program::Program`] turns it into a line.
    pub place: u32,
}

/// Told of a grid.
pub trait Watch: Send + Sync + fmt::Debug {
    /// A block begins. `index` counts blocks as `x + y * width + …`; `warps` have up to 32 threads each.
    fn block(&self, kernel: &crate::Program, index: [u32; 3], warps: u32) -> Box<dyn BlockWatch>;
}

/// Told of a block. Dropped when the block has ended (or the grid was given up).
pub trait BlockWatch: Send + fmt::Debug {
    /// A thread accesses `bytes` bytes of global memory at `address`. Called before the access.
    ///
    /// # Errors
    /// The race that was found.
    fn access(&mut self, who: Who, address: u64, bytes: u32, access: Access) -> Result<(), Box<Fault>>;

    /// An atomic access was done. Called after the access and before any other of this block, so that the one that saw a value knows who
    /// wrote it; `changed` tells whether memory holds another value now.
    fn atomic_done(&mut self, _who: Who, _address: u64, _changed: bool) {}

    /// The lanes of a warp execute a fence.
    fn fence(&mut self, warp: u32, lanes: Mask, order: Order, scope: Scope);

    /// The lanes of a warp are at `bar.warp.sync` together.
    fn warp_sync(&mut self, warp: u32, lanes: Mask);

    /// A barrier of the block is complete: `arrived` (with [`crate::exec`]'s `bar.arrive`) come before all that `released` do next.
    fn barrier(&mut self, arrived: &[(u32, Mask)], released: &[(u32, Mask)]);

    /// Lanes of a warp arrive at the mbarrier at an offset in shared memory (or issue a copy that will): what they did comes before what
    /// those do whose wait for it succeeds.
    fn mbarrier_arrive(&mut self, _warp: u32, _lanes: Mask, _mbarrier: u32) {}

    /// A wait of some lanes for an mbarrier succeeded.
    fn mbarrier_wait(&mut self, _warp: u32, _lanes: Mask, _mbarrier: u32) {}

    /// The block went past `griddepcontrol.wait`: what the grids before did is visible.
    fn dependency_wait(&mut self) {}

    /// The block ended in order.
    fn end(&mut self) {}
}
