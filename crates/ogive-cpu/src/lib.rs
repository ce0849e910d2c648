//! Language models on the CPU: threads and SIMD.

// Until the backend uses all of it.
#![allow(dead_code)]

mod linear;
mod pool;
mod simd;
mod weight;

pub use simd::Path;
pub use weight::Precision;
