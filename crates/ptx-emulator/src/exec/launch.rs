//! What is launched, where, and how far it is to run.

use std::sync::Arc;

use crate::check::{Checks, Watch};
use crate::memory::Memory;
use crate::program::Program;

/// A kernel with its arguments.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub program: Arc<Program>,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameter block, laid out as the program lists its parameters.
    pub arguments: Vec<u8>,
    /// All blocks are resident at once and may wait for one another.
    pub cooperative: bool,
}

/// The device a kernel runs on.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Every allocation.
    pub memory: Arc<Memory>,
    /// Index of the device.
    pub device: u32,
    /// Compute capability: 80 for `sm_80`.
    pub arch: u32,
    /// Multiprocessors.
    pub sms: u32,
    /// What is looked for.
    pub checks: Checks,
    /// Who is told of accesses to global memory; `None` costs nothing.
    pub(crate) watch: Option<Arc<dyn Watch>>,
    /// The order of blocks is drawn from it.
    pub seed: u64,
    /// Threads of the host that run blocks; at least 1 is taken.
    pub workers: usize,
    /// Warp instructions after which the launch is given up.
    pub limit: Option<u64>,
}

impl Environment {
    /// A device of compute capability 8.0 with 8 multiprocessors, run by one thread, unchecked, without a limit.
    #[must_use]
    pub fn new(memory: Arc<Memory>) -> Self {
        Self {
            memory,
            device: 0,
            arch: 80,
            sms: 8,
            checks: Checks::default(),
            watch: None,
            seed: 0,
            workers: 1,
            limit: None,
        }
    }
}

/// How far a grid is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Every resident block has reached `griddepcontrol.wait` or its end.
    Wait,
    /// The end. What waits at `griddepcontrol.wait` goes on: the grids before are done.
    End,
    /// Every block has released its dependents or ended, and as little beyond that as can be had.
    Released,
    /// About this many warp instructions more; waits stay closed until [`Until::End`] was asked for once.
    Budget(u64),
}

/// How far a grid came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Every block has ended.
    Finished,
    /// Nothing can go on until the grids before are done.
    Waiting,
    /// The budget was used up.
    Running,
}
