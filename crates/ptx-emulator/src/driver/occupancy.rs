//! Occupancy.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};

use super::entry::{Out, api};
use crate::runtime::{Code, Function, Machine, Result};

type Dynamic = Option<extern "C" fn(c_int) -> usize>;

fn best(
    m: &Machine,
    grid: Out<c_int>,
    block: Out<c_int>,
    function: u64,
    dynamic: Dynamic,
    shared: usize,
    limit: c_int,
) -> Result<()> {
    let of = |threads: c_int| dynamic.map_or(shared, |dynamic| dynamic(threads)) as u64;
    let (blocks, threads) = m.best_block(Function(function), limit, of)?;
    grid.set(blocks)?;
    block.set(threads)
}

api! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(m, blocks: Out<c_int>, function: u64, threads: c_int, shared: usize) {
        blocks.set(m.occupancy(Function(function), threads, shared as u64)?)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        m, blocks: Out<c_int>, function: u64, threads: c_int, shared: usize, _flags: c_uint,
    ) {
        blocks.set(m.occupancy(Function(function), threads, shared as u64)?)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        m, grid: Out<c_int>, block: Out<c_int>, function: u64, dynamic: Dynamic, shared: usize, limit: c_int,
    ) {
        best(m, grid, block, function, dynamic, shared, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        m, grid: Out<c_int>, block: Out<c_int>, function: u64, dynamic: Dynamic, shared: usize, limit: c_int, _flags: c_uint,
    ) {
        best(m, grid, block, function, dynamic, shared, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(m, bytes: Out<usize>, function: u64, blocks: c_int, threads: c_int) {
        bytes.set(m.available_shared(Function(function), blocks, threads)? as usize)
    }

    fn cuOccupancyMaxPotentialClusterSize(m, size: Out<c_int>, function: u64, _config: *const std::ffi::c_void) {
        m.function_attribute(Function(function), 0)?;
        size.offer(1);
        Code::NOT_SUPPORTED.error("clusters are not emulated")
    }
}
