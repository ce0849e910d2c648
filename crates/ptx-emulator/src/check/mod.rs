//! The checker: what it looks for, and who is told.
//!
//! Shared memory is judged by the block that owns it (`shared`). Global memory is judged by a `Watch`, told of every access, fence
//! and barrier of a grid ([`races`]); nothing is called when there is none.

pub(crate) mod clocks;
pub mod races;
pub(crate) mod shared;
mod watch;

pub(crate) use watch::{Access, BlockWatch, Order, Scope, Watch, Who};

/// What is looked for beyond what a GPU notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Reads of memory nothing wrote, races in shared memory, divergent barriers, wrong masks.
    pub memory: bool,
    /// Races in global memory.
    pub races: bool,
    /// Allocations nobody freed.
    pub leaks: bool,
}
