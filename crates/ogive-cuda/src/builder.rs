//! Settings of a backend.

use crate::cuda::{self, CudaBackend, Products};
use crate::device::Device;
use crate::driver::DeviceInfo;
use crate::error::Result;
use crate::library;
use crate::ops::slabs::{self, Least};
use crate::ops::{grouped, matrix};
use crate::trace::Slots;
use ogive_backend::Sizes;

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
    /// As the weight is kept: F32 in single precision, F16 in half precision, which loses nothing of it, BF16 and packed formats in
    /// bfloat16, or in half precision on a device that is too old for that. Attention over a cache goes by the cache: half precision for
    /// F16 and Q8_0. That of towers and encoders, whose rows see all others, is in half precision.
    Auto,
}

impl Compute {
    /// Its name in the kernels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Auto => "auto",
        }
    }

    /// What products with weights that are kept in these formats, by their names in the kernels, are computed in on such a device.
    pub(crate) fn with(self, info: &DeviceInfo, formats: &[&str]) -> Self {
        match self {
            Self::Auto if formats.contains(&"f32") => Self::F32,
            Self::Auto if formats.iter().all(|f| *f == "f16") => Self::F16,
            Self::Auto if info.capability >= matrix::oldest(Self::Bf16) => Self::Bf16,
            Self::Auto => Self::F16,
            other => other,
        }
    }

    /// What attention over a cache of such elements is computed in.
    pub(crate) fn over(self, info: &DeviceInfo, element: &str) -> Self {
        self.with(info, &[if element == "q8_0" { "f16" } else { element }])
    }
}

/// What few rows of activations are rounded to before they meet packed weights, those of every format but F32, F16, BF16 and FP8: up to 64 rows from
/// compute capability 8.0, eight before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activations {
    /// Nothing: they stay as they are, or are rounded as [`Compute`] says.
    #[default]
    Float,
    /// Codes of 8 bits with a scale for each 32 elements. An element's error is at most 1/253 of the largest magnitude of its 32, so a
    /// product's is at most that times the sizes of the 32 weights that meet them, summed over the row. Sums over 32 are exact, and a
    /// row's product has the same bits among any number of others, of two to 64; one alone has a kernel of its own from 8.0 on, and before that the
    /// same bits as among others. Goes before [`Compute`] for those rows. From compute capability 6.1; as they are on older devices.
    Int8,
}

/// Which device, and how much of its memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Builder {
    device: usize,
    memory: Option<u64>,
    graphs: bool,
    compute: Compute,
    activations: Activations,
    overlap: bool,
    trace: bool,
    peer_copies: bool,
    cublas: bool,
    cublas_from: Option<usize>,
    grouped_from: usize,
    persistent: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            device: 0,
            memory: None,
            graphs: true,
            compute: Compute::F32,
            activations: Activations::Float,
            overlap: true,
            trace: false,
            peer_copies: true,
            cublas: true,
            cublas_from: None,
            grouped_from: grouped::CHOICES,
            persistent: false,
        }
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

    /// What few rows of activations are rounded to before they meet packed weights: nothing, unless said otherwise.
    #[must_use]
    pub fn activations(self, activations: Activations) -> Self {
        Self { activations, ..self }
    }

    /// Whether a kernel may take its places on the device while the one before still runs (programmatic dependent launch): where the
    /// device has it, from compute capability 9.0, and the driver, from CUDA 12.3. They do, unless said otherwise, but for those whose blocks
    /// take much shared memory. Results are the same bits.
    #[must_use]
    pub fn overlap(self, on: bool) -> Self {
        Self { overlap: on, ..self }
    }

    /// Whether kernels note when they ran, for [`CudaBackend::trace`]. Off unless said otherwise, as noting takes time and a megabyte of
    /// memory, which estimates do not count. Results are the same bits.
    #[must_use]
    pub fn trace(self, on: bool) -> Self {
        Self { trace: on, ..self }
    }

    /// Whether the driver copies what another [`CudaBackend`] computed from its device to this one
    /// ([`bring`](ogive_backend::Backend::bring)); it does where it can, unless said otherwise. Without it such values go through the host,
    /// which waits for them. Results are the same bits.
    #[must_use]
    pub fn peer_copies(self, on: bool) -> Self {
        Self { peer_copies: on, ..self }
    }

    /// Whether products of many rows in a half go to cuBLAS, if there is one: they do, unless said otherwise. Without it own kernels
    /// compute them, within the same bounds.
    #[must_use]
    pub fn cublas(self, on: bool) -> Self {
        Self { cublas: on, ..self }
    }

    /// From how many rows on they do, in place of a table by the device's generation: for measuring, and for tests.
    #[must_use]
    pub fn cublas_from(self, rows: usize) -> Self {
        Self { cublas_from: Some(rows), ..self }
    }

    /// From how many choices an expert on average on a mixture's rows are grouped by expert, in place of 2: for measuring, and for tests. With
    /// `usize::MAX` every choice is computed by itself.
    #[must_use]
    pub fn grouped_from(self, choices: usize) -> Self {
        Self { grouped_from: choices, ..self }
    }

    /// Whether one row meets weights in blocks that stay, one a multiprocessor, which norm it themselves, and round it where weights are packed, so that a
    /// token takes fewer kernels: from compute capability 8.0, halves (F16, BF16) in rows of whole eights, packed weights with [`Activations::Int8`]. Within the
    /// same bounds, but not the same bits. They do not, unless said otherwise: how fast they are has not been measured yet.
    #[must_use]
    pub fn persistent(self, on: bool) -> Self {
        Self { persistent: on, ..self }
    }

    /// From how many rows on products are for cuBLAS on this kind of device.
    fn for_cublas(&self, info: &DeviceInfo) -> Option<Least> {
        let on = self.cublas && self.compute != Compute::F32;
        let asked = self.cublas_from.map(|rows| Least { decoded: rows, ready: rows });
        if on { asked.or_else(|| slabs::from(info.capability)) } else { None }
    }

    /// How the backend that these settings build would take memory. Takes no device, but asks what it is; where there is none, and where
    /// there is no cuBLAS, what those would take is left out.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let info = CudaBackend::devices().ok().and_then(|all| all.into_iter().nth(self.device));
        let Some(info) = info else { return cuda::sizes(None) };
        let cublas_from = self.for_cublas(&info).filter(|_| library::has_cublas());
        let Self { compute, activations, grouped_from, .. } = *self;
        cuda::sizes(Some(Products { info, compute, activations, cublas_from, grouped_from }))
    }

    /// Takes the device.
    ///
    /// # Errors
    /// If there is no driver, no NVRTC for it, no such device, or the device fails.
    pub fn build(self) -> Result<CudaBackend> {
        let mut device = Device::new(self.device, self.memory, self.graphs)?;
        device.overlap = self.overlap && device.can_overlap();
        device.trace = if self.trace { Some(Slots::new(&device)?) } else { None };
        device.peers.on = self.peer_copies;
        device.blas.from = self.for_cublas(&device.info);
        device.activations = self.activations;
        device.grouped_from = self.grouped_from;
        device.persistent = self.persistent;
        if self.persistent {
            device.modules.prefer_shared();
        }
        Ok(CudaBackend { device, compute: self.compute })
    }
}
