//! How a CPU backend is asked for.

use crate::{CpuBackend, Path, Precision, held::Repacker, pool::Pool, room::Rooms};
use ogive_tensor::{Error, Result};
use std::sync::Arc;

/// More threads than any machine has are a mistake.
const MOST: usize = 4096;

/// Settings of a [`CpuBackend`]. Nothing is read from the environment but `OGIVE_CPU_FORCE`, which names a path for
/// tests.
#[derive(Clone, Debug)]
pub struct Builder {
    threads: Option<usize>,
    precision: Precision,
    path: Option<Path>,
    repack: bool,
    background: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self { threads: None, precision: Precision::Default, path: None, repack: true, background: false }
    }
}

impl Builder {
    /// Threads to compute with, the caller's among them. The default is one for each logical CPU that this process may use: two of a
    /// core, where it has two.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: Some(threads), ..self }
    }
    /// What products with weights are computed in.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }
    /// The instructions to compute with; by default the best the machine has. All give the same bits.
    #[must_use]
    pub fn path(self, path: Path) -> Self {
        Self { path: Some(path), ..self }
    }
    /// Whether weights may be laid in memory in the order that kernels read them, as is the default: much faster, for
    /// a copy of the weights made at loading (or after it: [`background`](Self::background)). Without, they are read where they are, in a
    /// mapped file; all but those of which [`Precision::Bf16`] makes a rounded copy.
    /// Either way the bits are the same. Weights stay where they are as well where this path has no use for another order,
    /// or memory for it is short.
    #[must_use]
    pub fn repack(self, repack: bool) -> Self {
        Self { repack, ..self }
    }
    /// Whether that copy is made by a thread of its own while the backend computes already, from its first result or half a second
    /// after the last weight: it starts as soon as without, and is slower than it will be until the copy is there. Off unless said
    /// otherwise. The bits are the same at any time. A weight that is dropped while it is laid is waited for.
    #[must_use]
    pub fn background(self, background: bool) -> Self {
        Self { background, ..self }
    }
    /// Starts the threads.
    ///
    /// # Errors
    /// If the number of threads is 0 or above 4096, or the machine cannot take the path; if none was chosen, as [`Path::choose`].
    pub fn build(self) -> Result<CpuBackend> {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from).min(MOST);
        let threads = self.threads.unwrap_or_else(cpus);
        if threads == 0 || threads > MOST {
            return Err(Error::invalid("cpu", format!("{threads} threads; ask for 1 to {MOST}")));
        }
        let path = self.path.map_or_else(Path::choose, Ok)?;
        if !path.is_supported() {
            return Err(Error::unsupported("cpu", format!("this machine cannot take the path {path}")));
        }
        Ok(CpuBackend {
            pool: Pool::new(threads),
            precision: self.precision,
            path,
            repack: self.repack,
            repacker: if self.repack && self.background { Repacker::new() } else { None },
            spare: Arc::default(),
            rooms: Rooms::default(),
        })
    }
}
