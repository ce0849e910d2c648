//! Language models on the CPU: threads and SIMD.
//!
//! ```
//! use ogive_cpu::{CpuBackend, Precision, backend::Backend};
//!
//! let cpu = CpuBackend::builder().threads(2).precision(Precision::Exact).build()?;
//! let x = cpu.upload(&[3.0, 4.0], [1, 2].into())?;
//! assert_eq!(cpu.download(&cpu.sum(&x)?)?, [7.0]);
//! # Ok::<(), ogive_cpu::tensor::Error>(())
//! ```
//!
//! Determinism is a promise: a token's results are the same bits whatever else is in the step, however its prompt was
//! cut, on any number of threads and on every path, but for BF16 weights on `amx`: there they are the same whatever the step, and differ
//! from other paths' in the order of a sum. Each file with a sum says how it keeps that.
//!
//! | [`Path`] | machines | tested |
//! |---|---|---|
//! | `amx` | x86-64 servers since Sapphire Rapids, on Linux: packed products of many tokens, and all of BF16 weights, in tiles; the rest as `avx512` | on a machine, with measurements |
//! | `avx512`, `avx2` | x86-64 | on machines, with measurements (docs/BENCHMARKS.md in the repository) |
//! | `avx-vnni` | x86-64 without AVX-512 that has VNNI on 256 bits: Intel's Core since the 12th generation | in the encoding of AVX-512, with measurements |
//! | `neon-i8mm`, `neon-dotprod`, `neon` | 64-bit ARM, little-endian | under qemu as a processor with each (`cargo xtask arm`); speed was not measured |
//! | `scalar` | all | everywhere: it defines the others |

mod attend;
mod builder;
mod cache;
pub mod ceilings;
mod cpu;
mod held;
mod linear;
mod memory;
mod ops;
mod plan;
mod pool;
mod room;
mod simd;
mod spare;
mod weight;

pub use builder::Builder;
pub use cpu::CpuBackend;
pub use ogive_backend::{self as backend, tensor};
pub use simd::Path;
pub use weight::Precision;

use weight::CpuWeight;
