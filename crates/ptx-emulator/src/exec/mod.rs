//! The machine: warps of 32 lanes, blocks, grids.
//!
//! A grid in progress is a value that can be put aside and taken up again, so that a dependent launch can run up to its wait and
//! spinning blocks can give way to those they wait for.

mod address;
pub(crate) mod copies;
mod cx;
mod grid;
mod launch;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod raw;
pub(crate) mod registers;
pub(crate) mod shuffle;
pub(crate) mod state;
pub(crate) mod vote;
pub(crate) mod windows;
mod words;

pub(crate) use cx::{Cx, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Target};
pub use grid::Grid;
pub use launch::{Environment, Launch, Progress, Until};
