//! A weight on the CPU: the bytes the file has, and how they are multiplied.
//!
//! Nothing is repacked or copied: a mapped file stays mapped, and memory holds the packed bytes once. The price is that
//! kernels read the file's own layouts.

use crate::simd::Path;
use ogive_tensor::{Error, HostWeight, Result};

/// What products are computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// F32 and F16 weights exactly in single precision; BF16 weights with activations rounded to bf16; packed weights
    /// with activations rounded to 8 bits, one scale for up to 256 of them.
    #[default]
    Default,
    /// Every weight is decoded on the fly and multiplied in single precision.
    Exact,
}

/// A weight taken in.
#[derive(Debug)]
pub(crate) struct CpuWeight {
    host: HostWeight,
    path: Path,
}

impl CpuWeight {
    /// Takes a weight in; its bytes stay where they are.
    pub(crate) fn new(w: &HostWeight, precision: Precision, path: Path) -> Result<Self> {
        let _ = precision;
        if !path.is_supported() {
            return Err(Error::unsupported(&w.name, format!("this machine cannot take the path {path}")));
        }
        Ok(Self { host: w.clone(), path })
    }

    /// `[experts, rows, cols]`
    pub(crate) fn shape(&self) -> [usize; 3] {
        self.host.shape
    }

    /// The weight as the file has it.
    pub(crate) fn host(&self) -> &HostWeight {
        &self.host
    }

    /// The kernels it is multiplied with.
    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// Row `row`, counted through all experts, in single precision.
    ///
    /// # Panics
    /// If there is no such row, or `out` is shorter than a row.
    pub(crate) fn decode_row(&self, row: usize, out: &mut [f32]) {
        self.host.decode_row(row, out);
    }
}
