//! What a warp, a block and a grid are made of, as far as instructions see it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::barrier::Barriers;
use super::launch::{Environment, Launch};
use super::registers::Mask;
use super::{copies, mbarrier};
use crate::check::BlockWatch;
use crate::check::clocks::Clocks;
use crate::check::shared::Shadow;

/// A warp, beside its registers and its program counters.
#[derive(Debug, Default)]
pub(crate) struct WarpState {
    /// Index within the block.
    pub(crate) index: u32,
    /// Lanes that are threads of the block.
    pub(crate) exist: Mask,
    /// Those that have not ended.
    pub(crate) alive: Mask,
    /// Local memory: one row for each four bytes, so that lanes at the same offset stand together.
    pub(crate) local: Vec<[u32; 32]>,
    /// Set by an instruction that waits for somebody else's progress (a poll that failed): the warp's turn ends after it.
    pub(crate) yielding: bool,
    /// Where the last poll was, what it saw, and how often it came to nothing; see [`super::Cx::polled`].
    pub(crate) poll: (u32, u64, u32),
    /// Instructions executed; `%clock`.
    pub(crate) clock: u64,
    /// Copies of `cp.async`.
    pub(crate) copies: copies::WarpCopies,
}

/// A block, beside its warps.
#[derive(Debug, Default)]
pub(crate) struct BlockState {
    /// The block's index.
    pub(crate) index: [u32; 3],
    /// Threads of the block.
    pub(crate) threads: u32,
    /// Shared memory, static and then dynamic.
    pub(crate) shared: Vec<u8>,
    /// Its shadow; only kept where memory is checked.
    pub(crate) shadow: Shadow,
    /// Which warp knows what; only kept where memory is checked.
    pub(crate) clocks: Clocks,
    /// Told of accesses to global memory.
    pub(crate) watch: Option<Box<dyn BlockWatch>>,
    /// Bulk copies under way.
    pub(crate) copies: copies::BlockCopies,
    /// Mbarriers of the block.
    pub(crate) mbarriers: mbarrier::Mbarriers,
    /// Clocks of addresses that strong accesses met at; only kept where memory is checked.
    pub(crate) meetings: std::collections::HashMap<u64, crate::check::clocks::Clock>,
    /// Threads that have not ended.
    pub(crate) alive: u32,
    /// Named barriers.
    pub(crate) barriers: Barriers,
    /// Some thread ran `griddepcontrol.launch_dependents`.
    pub(crate) dependents_released: bool,
}

/// A grid, as instructions see it: the same for all blocks and workers.
#[derive(Debug)]
pub(crate) struct GridState {
    /// The launch.
    pub(crate) launch: Launch,
    /// The device.
    pub(crate) environment: Environment,
    /// Identifies the grid (`%gridid`).
    pub(crate) id: u64,
    /// `environment.checks.memory`.
    pub(crate) checked: bool,
    /// Clocks of warps are kept: memory is checked, or global memory watched.
    pub(crate) clocked: bool,
    /// Warp instructions executed by all blocks, in turns.
    pub(crate) executed: AtomicU64,
    /// The grids before this one are done: `griddepcontrol.wait` lets through.
    pub(crate) dependencies: AtomicBool,
    /// The grid is to stop: something failed, or the budget is used up.
    pub(crate) stop: AtomicBool,
}

impl GridState {
    /// Whether `griddepcontrol.wait` lets through.
    pub(crate) fn dependencies_done(&self) -> bool {
        self.dependencies.load(Ordering::Relaxed)
    }
}
