//! The driver's C interface: `libcuda.so.1`.
//!
//! Thin: each function looks up what its handles mean, calls the machine ([`crate::runtime`]), and hands the number of the error back. Handles
//! are numbers that are looked up, so a stale one is an error.
#![allow(non_snake_case)]

mod context;
mod device;
pub(crate) mod entry;
mod error;
mod event;
mod extra;
mod function;
mod graph;
mod graph_node;
mod init;
mod launch;
mod memory;
mod memory_copy;
mod memory_host;
mod memory_set;
mod module;
mod occupancy;
mod pointer;
mod pool;
mod refused;
mod stream;
#[cfg(test)]
mod tests;
mod types;
mod without;

pub use without::without_functions;

/// Every function, for `cuGetProcAddress`.
fn symbols() -> impl Iterator<Item = &'static entry::Symbol> {
    [
        context::SYMBOLS,
        device::SYMBOLS,
        error::SYMBOLS,
        event::SYMBOLS,
        extra::SYMBOLS,
        function::SYMBOLS,
        graph::SYMBOLS,
        graph_node::SYMBOLS,
        init::SYMBOLS,
        launch::SYMBOLS,
        memory::SYMBOLS,
        memory_copy::SYMBOLS,
        memory_host::SYMBOLS,
        memory_set::SYMBOLS,
        module::SYMBOLS,
        occupancy::SYMBOLS,
        pointer::SYMBOLS,
        pool::SYMBOLS,
        refused::SYMBOLS,
        stream::SYMBOLS,
    ]
    .into_iter()
    .flatten()
}
