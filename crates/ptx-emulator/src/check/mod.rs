//! The checker: what it looks for, and who is told.
//!
//! Shared memory is judged here, by the block that owns it. Global memory is judged by a [`Watch`] that another file supplies: it is told
//! of every access, atomic, fence and barrier of a grid, and nothing is called when there is none.

pub(crate) mod clocks;
pub(crate) mod shared;
mod watch;

pub use watch::{Access, BlockWatch, Order, Scope, Watch, Who};

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
