//! Language models on NVIDIA GPUs: built without CUDA, found at run time.
//!
//! Nothing of CUDA is needed to build or to start. [`CudaBackend::is_available`] says whether a GPU can be used, [`report`] what was
//! found and what is missing. The features `cuda-11`, `cuda-12` and `cuda-13` say which generations of NVRTC and cuBLAS may be
//! loaded; they add up.
//!
//! ```
//! use ogive_cuda::{CudaBackend, backend::Backend};
//!
//! match CudaBackend::new() {
//!     Ok(cuda) => {
//!         let x = cuda.upload(&[3.0, 4.0], [1, 2].into())?;
//!         assert_eq!(cuda.download(&cuda.sum(&x)?)?, [7.0]);
//!     }
//!     Err(why) => println!("CUDA not used: {why}"),
//! }
//! # Ok::<(), ogive_cuda::tensor::Error>(())
//! ```
//!
//! # How it is cut
//!
//! `driver` is all of the CUDA driver that is used, `library` finds libraries, `module` compiles kernels and keeps them, `memory` and
//! `transfer` hold and move bytes, `values` is what a tensor is, `peer` moves them from device to device, `measure` times what the device does, `trace` each kernel, `launch` calls kernels, `blas` is cuBLAS where it is used, `plan` is a step, `record` and `graph` turn one into a CUDA graph, `weight` and `cache` are what their names say, and
//! `ops` has the operators.
//!
//! # To add an operator
//!
//! 1. Write the kernel in `kernels/src/NAME.cu`; open with its algorithm and its cost. What the model fixes (sizes, formats) is a
//!    define; what varies from step to step is read from the step's buffer (`step.cu`), so that a recorded step stays right.
//!    Parameters open with `TRACED`, the body with `after_the_last();`. Sums have one order; no float atomics.
//! 2. List it in `kernels/src/lib.rs`: its files, its kernels, and sets of defines that between them cover its paths. The gate
//!    compiles those for every architecture.
//! 3. Write the operator in `src/ops/`: check shapes and handles as the oracle does (`Device::read` refuses strangers'), take the
//!    output with `Device::tensor`, and make the call: `Call::new(device, at, &SOURCE, "kernel").define(..).at(..).count(..)`, one
//!    argument for each parameter in order, then `run`, `over` or `by_rows`. Empty launches are left out by themselves.
//! 4. Name it in `cuda.rs`. An operator that takes `x` by value may work in place if `Device::is_free(&mut x)`.
//! 5. Run the suite's cases of it under the emulator: `OGIVE_CUDA_FILTER=NAME cargo test -p ogive-cuda --test conformance`.

mod blas;
mod bucket;
mod builder;
mod cache;
mod compiler;
mod cuda;
mod device;
mod driver;
mod error;
mod graph;
mod launch;
mod library;
pub mod measure;
mod memory;
mod module;
mod ops;
mod peer;
mod plan;
mod record;
mod trace;
mod transfer;
mod turn;
mod values;
mod weight;

pub use blas::CublasUse;
pub use builder::{Activations, Builder, Compute};
pub use compiler::{Compiled, Compiler, Resources};
pub use cuda::CudaBackend;
pub use driver::DeviceInfo;
pub use error::{Error, Result};
pub use graph::GraphCounts;
pub use library::{Finding, Report, report};
pub use ogive_backend::{self as backend, tensor};
