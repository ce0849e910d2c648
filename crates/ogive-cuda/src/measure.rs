//! Measuring a device: times of what it does, and what it could do at best.
//!
//! Times are the device's own, between two marks in its queue, so the host's share is not in them; whoever wants that too takes
//! a clock. Ceilings are measured and not read from a table: what an operator is held against must have been possible here.
//!
//! ```
//! use ogive_cuda::{CudaBackend, measure::Mark};
//!
//! if let Ok(cuda) = CudaBackend::new() {
//!     let memory = cuda.stretch(1 << 20)?;
//!     let before = Mark::now(&cuda)?;
//!     memory.copy()?;
//!     println!("{:?} for a copy of {} bytes", Mark::now(&cuda)?.since(&before)?, memory.bytes());
//! }
//! # Ok::<(), ogive_cuda::Error>(())
//! ```

use crate::cuda::CudaBackend;
use crate::device::Device;
use crate::driver;
use crate::error::{Error, Result};
use crate::launch::Call;
use crate::library::Cublas;
use crate::memory::Buffer;
pub use crate::trace::{KernelTime, Launch, Timeline};
use ogive_kernels::PROBE;
use std::path::Path;
use std::time::Duration;

/// Bytes that the probes move at a time.
const WORD: usize = 16;

/// A place in a device's queue that remembers when it was reached.
#[derive(Debug)]
pub struct Mark(driver::Mark);

impl Mark {
    /// Behind all that was asked of `cuda` so far.
    ///
    /// # Errors
    /// If the driver fails, or a step is being recorded.
    pub fn now(cuda: &CudaBackend) -> Result<Self> {
        cuda.device.outside("marking a time")?;
        Ok(Self(cuda.device.stream().mark()?))
    }

    /// The device's time from `earlier` to here; waits until it is reached.
    ///
    /// # Errors
    /// If what was queued between them failed, or `earlier` is of another device.
    pub fn since(&self, earlier: &Self) -> Result<Duration> {
        self.0.wait()?;
        self.0.since(&earlier.0)
    }
}

/// Two stretches of device memory, to copy one to the other.
#[derive(Debug)]
pub struct Stretch<'a> {
    device: &'a Device,
    from: Buffer,
    to: Buffer,
    bytes: usize,
}

impl CudaBackend {
    /// Takes twice `bytes` of memory, rounded up to 16, filled with numbers. Only as much as is kept from every cache says what the
    /// memory gives: eight times the L2 or more.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn stretch(&self, bytes: usize) -> Result<Stretch<'_>> {
        let (device, at) = (&self.device, "measuring the memory");
        device.outside(at)?;
        let bytes = bytes.max(1).checked_next_multiple_of(WORD).unwrap_or(usize::MAX);
        let [from, to] = [device.take(at, bytes)?, device.take(at, bytes)?];
        scatter(device, &from, bytes)?;
        device.stream().clear(to.address(), bytes)?;
        Ok(Stretch { device, from, to, bytes })
    }

    /// cuBLAS on this device, for products that ours are held against.
    ///
    /// # Errors
    /// If there is none that this build may load; the message says where it was looked for.
    pub fn blas(&self) -> Result<Blas<'_>> {
        self.device.outside("starting cuBLAS")?;
        let device = &self.device;
        let cublas = Cublas::find(device.stream(), device.wanted(), &|| device.pool.make_room())?;
        Ok(Blas { device, cublas })
    }
}

fn scatter(device: &Device, to: &Buffer, bytes: usize) -> Result<()> {
    let words = bytes / 4;
    Call::new(device, "measuring", &PROBE, "scatter").at(to.address()).long(words).over(words)
}

impl Stretch<'_> {
    /// Bytes that a copy reads, and as many that it writes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a copy by the driver (`cuMemcpyDtoD`).
    ///
    /// # Errors
    /// If the driver refuses it.
    pub fn copy(&self) -> Result<()> {
        self.device.stream().copy_within(self.to.address(), self.from.address(), self.bytes)
    }

    fn call(&self, kernel: &'static str) -> Result<()> {
        let words = self.bytes / WORD;
        let call = Call::new(self.device, "measuring the memory", &PROBE, kernel).at(self.from.address());
        // Four words a thread and turn.
        call.at(self.to.address()).long(words).over(words.div_ceil(4))
    }

    /// Queues a copy by a kernel of ours.
    ///
    /// # Errors
    /// If the kernel cannot be compiled or launched.
    pub fn copy_by_kernel(&self) -> Result<()> {
        self.call("copy")
    }

    /// Queues reading all of it, and writing nothing: what decoding does with weights.
    ///
    /// # Errors
    /// As [`copy_by_kernel`](Self::copy_by_kernel).
    pub fn read(&self) -> Result<()> {
        self.call("read")
    }

    /// Whether both halves hold the same bytes; waits.
    ///
    /// # Errors
    /// If the device failed.
    pub fn is_copied(&self) -> Result<bool> {
        let fetch = |from: &Buffer| {
            let (stream, mut all) = (self.device.stream(), Vec::with_capacity(self.bytes));
            let take = &mut |part: &[u8]| all.extend_from_slice(part);
            self.device.transfer.fetch(stream, "measuring the memory", from.address(), self.bytes, take)?;
            Ok::<_, Error>(all)
        };
        Ok(fetch(&self.from)? == fetch(&self.to)?)
    }
}

/// cuBLAS on a device.
#[derive(Debug)]
pub struct Blas<'a> {
    device: &'a Device,
    cublas: Cublas,
}

impl Blas<'_> {
    /// Major, minor and patch.
    #[must_use]
    pub fn version(&self) -> [u32; 3] {
        self.cublas.version
    }

    /// Where it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.cublas.path
    }

    /// Matrices of bfloat16 numbers, for products `[rows, inner] · [cols, inner]ᵀ`.
    ///
    /// # Errors
    /// If a size is 0 or too large, or there is too little memory.
    pub fn product(&self, rows: usize, cols: usize, inner: usize) -> Result<Product<'_>> {
        let doing = "multiplying with cuBLAS";
        let size = |n: usize| crate::values::count(doing, "rows of a matrix", n);
        let sizes = [size(rows)?, size(cols)?, size(inner)?];
        let matrix = |a: usize, b: usize| {
            let too_large = Error::Limit {
                doing: doing.into(),
                what: "a matrix",
                size: u64::MAX,
                limit: isize::MAX as u64,
            };
            let bytes = a.checked_mul(b).and_then(|n| n.checked_mul(2)).ok_or(too_large)?.next_multiple_of(4);
            let buffer = self.device.take(doing, bytes)?;
            scatter(self.device, &buffer, bytes)?;
            Ok::<_, Error>(buffer)
        };
        let buffers = [matrix(rows, inner)?, matrix(cols, inner)?, matrix(rows, cols)?];
        Ok(Product { blas: self, sizes, buffers })
    }
}

/// A product of cuBLAS's, ready to be computed.
#[derive(Debug)]
pub struct Product<'a> {
    blas: &'a Blas<'a>,
    sizes: [i32; 3],
    buffers: [Buffer; 3],
}

impl Product<'_> {
    /// Additions and multiplications.
    #[must_use]
    pub fn operations(&self) -> f64 {
        self.sizes.iter().map(|n| f64::from(*n)).product::<f64>() * 2.0
    }

    /// Queues it.
    ///
    /// # Errors
    /// If cuBLAS refuses it.
    pub fn compute(&self) -> Result<()> {
        let [a, b, c] = &self.buffers;
        let at = [a.address(), b.address(), c.address()];
        self.blas.cublas.bf16(self.blas.device.stream(), self.sizes, at)
    }
}
