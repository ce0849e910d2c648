//! Settings of a backend.

use crate::backend::CudaBackend;
use crate::device::Device;
use crate::error::Result;

/// What products with weights are computed in, where there is more than one row. Sums are in single precision in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compute {
    /// Single precision: weights and activations as they are.
    #[default]
    F32,
    /// By tensor cores, with weights and activations rounded to bfloat16 (relative error 2^-8 each). From compute capability 8.0;
    /// single precision on older devices.
    Bf16,
    /// By tensor cores, with weights and activations rounded to half precision (relative error 2^-11 each, in its range, to which
    /// activations are cut). From compute capability 7.5; single precision on older devices.
    F16,
}

impl Compute {
    /// Its name in the kernels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

/// Which device, and how much of its memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Builder {
    device: usize,
    memory: Option<u64>,
    graphs: bool,
    compute: Compute,
    overlap: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self { device: 0, memory: None, graphs: true, compute: Compute::F32, overlap: false }
    }
}

impl Builder {
    /// Another device than the first.
    #[must_use]
    pub fn device(self, number: usize) -> Self {
        Self { device: number, ..self }
    }

    /// No more bytes of device memory than this; all that is free, less a margin, unless said otherwise.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Whether steps that come again are recorded and replayed as graphs; they are, unless said otherwise. For comparisons, and for
    /// drivers that do it wrong.
    #[must_use]
    pub fn graphs(self, on: bool) -> Self {
        Self { graphs: on, ..self }
    }

    /// What products of more than one row are computed in: single precision, unless said otherwise.
    #[must_use]
    pub fn compute(self, compute: Compute) -> Self {
        Self { compute, ..self }
    }

    /// Whether a kernel may take its places on the device while the one before still runs (programmatic dependent launch): where the
    /// device has it, from compute capability 9.0, and the driver, from CUDA 12.3. Off unless said otherwise, as it has not been
    /// measured. Results are the same bits.
    #[must_use]
    pub fn overlap(self, on: bool) -> Self {
        Self { overlap: on, ..self }
    }

    /// Takes the device.
    ///
    /// # Errors
    /// If there is no driver, no NVRTC for it, no such device, or the device fails.
    pub fn build(self) -> Result<CudaBackend> {
        let mut device = Device::new(self.device, self.memory, self.graphs)?;
        device.overlap = self.overlap && device.can_overlap();
        Ok(CudaBackend { device, compute: self.compute })
    }
}
