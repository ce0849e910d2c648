//! The machine: warps of 32 lanes, blocks, grids.
//!
//! A grid in progress is a value that can be put aside and taken up again, so that a dependent launch can run up to its wait and
//! spinning blocks can give way to those they wait for.

pub(crate) mod access;
mod address;
pub(crate) mod atomic;
mod barrier;
mod block;
pub(crate) mod cluster;
pub(crate) mod columns;
pub(crate) mod copies;
mod cx;
pub(crate) mod fence;
mod fragments;
mod grid;
mod launch;
pub(crate) mod load;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub mod occupancy;
mod order;
pub(crate) mod raw;
pub(crate) mod registers;
pub(crate) mod shuffle;
pub(crate) mod spaces;
pub(crate) mod specials;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod system;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trials;
pub(crate) mod vote;
mod warp;
pub(crate) mod windows;
mod words;

pub(crate) use barrier::CLUSTER_BARRIER;
pub(crate) use cx::{Cx, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Target};
pub use grid::Grid;
pub use launch::{Environment, Launch, Progress, Until};
