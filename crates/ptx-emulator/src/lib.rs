//! A stand-in for an NVIDIA GPU: driver, cuBLAS and a checked PTX interpreter, to test CUDA programs on any machine.
#![cfg_attr(not(test), allow(dead_code))]

mod alu;
pub mod check;
mod cublas;
pub mod device;
mod driver;
pub mod exec;
pub mod fault;
pub mod lower;
pub mod memory;
mod program;
pub mod ptx;
pub mod runtime;
pub mod settings;

pub use driver::without_functions;
pub use program::{ParamSlot, Program};
