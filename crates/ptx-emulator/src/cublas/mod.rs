//! cuBLAS: `libcublas.so`, as far as language models use it.
//!
//! In the same library as the driver, for both must see one memory; a product is an operation of its stream like a kernel, so it is captured, runs
//! late, and finds memory that was freed.
#![allow(non_snake_case)]

mod element;
mod gemm;
mod gemms;
mod handle;
mod multiply;
mod status;
#[cfg(test)]
mod tests;
mod vector;
mod vectors;
