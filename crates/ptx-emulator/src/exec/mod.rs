//! The machine: warps of 32 lanes, blocks, grids.
//!
//! A grid in progress is a value that can be put aside and taken up again, so that a dependent launch can run up to its wait and
//! spinning blocks can give way to those they wait for.

pub(crate) mod registers;

use registers::Registers;

/// What an instruction sees: its warp's registers, its block and its grid.
#[derive(Debug)]
pub(crate) struct Cx<'a> {
    /// The registers of the warp.
    pub(crate) registers: &'a mut Registers,
}
