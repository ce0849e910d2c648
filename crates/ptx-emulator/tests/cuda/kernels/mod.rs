//! Kernels as they are written in earnest, each compared with plain Rust.

mod attention;
mod gemm;
mod gemv;
mod hash;
mod math;
mod norms;
mod pipeline;
mod reduce;
mod scan;
mod select;
mod splitk;
mod transpose;
mod warp;
