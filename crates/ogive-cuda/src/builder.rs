//! Settings of a backend.

use crate::backend::CudaBackend;
use crate::device::Device;
use crate::error::Result;

/// Which device, and how much of its memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Builder {
    device: usize,
    memory: Option<u64>,
    graphs: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self { device: 0, memory: None, graphs: true }
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

    /// Takes the device.
    ///
    /// # Errors
    /// If there is no driver, no NVRTC for it, no such device, or the device fails.
    pub fn build(self) -> Result<CudaBackend> {
        Ok(CudaBackend { device: Device::new(self.device, self.memory, self.graphs)? })
    }
}
