//! cuBLAS for a device's products: started when the first of them wants it, given up for good when it fails.
//!
//! It is never a condition: where it is missing, does not start or refuses a product, own kernels compute the same product within the same
//! bounds. What was found out stays, so that a step keeps its bits while a backend lives. Too little device memory for a product is not
//! cuBLAS failing, and an error as with any operator: whether it is had must not decide on bits.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::library::{self, Cublas};
use crate::ops::slabs::Least;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What has become of cuBLAS on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CublasUse {
    /// No product is for it: [`Builder::cublas`](crate::Builder::cublas) says so, or products are in single precision.
    Off,
    /// No product has wanted it yet: it is loaded when one does.
    Unasked,
    /// Products of many rows are computed by it.
    Started {
        /// Major, minor and patch.
        version: [u32; 3],
        /// Where it was found.
        path: PathBuf,
    },
    /// It is missing or failed, for this reason, and own kernels compute all products.
    Failed(String),
}

impl fmt::Display for CublasUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("cuBLAS is off"),
            Self::Unasked => f.write_str("cuBLAS not yet wanted"),
            Self::Started { version: [major, minor, patch], path } => {
                write!(f, "cuBLAS {major}.{minor}.{patch} ({})", path.display())
            }
            Self::Failed(why) => write!(f, "cuBLAS not used: {why}"),
        }
    }
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unasked,
    Started(Cublas),
    /// Why, and what had been started: giving it back waits for the device, which spoils a step that is being recorded, so it stays.
    Failed {
        why: String,
        _kept: Option<Cublas>,
    },
}

/// An error without the library's name.
fn why(e: Error) -> String {
    match e {
        Error::Library { why, .. } => why,
        e => e.to_string(),
    }
}

/// cuBLAS on one device, or what stands for it.
#[derive(Debug, Default)]
pub(crate) struct Blas {
    /// Products of so many rows and more want it; `None`: none does.
    pub(crate) from: Option<Least>,
    state: Mutex<State>,
}

impl Blas {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From how many rows on products are for it, as far as is known; before it was wanted, as far as there is a file of its name.
    pub(crate) fn wanted_from(&self) -> Option<Least> {
        self.from.filter(|_| match *self.state() {
            State::Unasked => library::has_cublas(),
            State::Started(_) => true,
            State::Failed { .. } => false,
        })
    }

    /// What has become of it.
    pub(crate) fn found(&self) -> CublasUse {
        match &*self.state() {
            _ if self.from.is_none() => CublasUse::Off,
            State::Unasked => CublasUse::Unasked,
            State::Started(blas) => CublasUse::Started { version: blas.version, path: blas.path.clone() },
            State::Failed { why, .. } => CublasUse::Failed(why.clone()),
        }
    }

    /// Whether it can compute a product that wants it. The first such product starts it.
    pub(crate) fn is_there(&self, device: &Device) -> Result<bool> {
        let mut state = self.state();
        if matches!(*state, State::Unasked) {
            // The step is run without a record this time, and recorded when it comes again.
            device.pool.recorder.outside("starting cuBLAS", false)?;
            *state = match Cublas::find(device.stream(), device.wanted(), &|| device.pool.make_room()) {
                Ok(blas) => {
                    let ([major, minor, patch], path) = (blas.version, blas.path.display());
                    tracing::info!(target: "ogive::cuda", %path, "cuBLAS {major}.{minor}.{patch} for products of many rows");
                    State::Started(blas)
                }
                Err(e) => {
                    let why = why(e);
                    tracing::info!(target: "ogive::cuda", why, "cuBLAS is not used, own kernels instead");
                    State::Failed { why, _kept: None }
                }
            };
        }
        Ok(matches!(*state, State::Started(_)))
    }

    /// Runs `f` on cuBLAS, which no other thread uses meanwhile. `false` if cuBLAS failed: then own kernels compute what `f` should
    /// have, now and from now on.
    pub(crate) fn run(&self, f: impl FnOnce(&Cublas) -> Result<()>) -> Result<bool> {
        let mut state = self.state();
        let State::Started(blas) = &*state else { return Ok(false) };
        match f(blas) {
            Err(e @ Error::Library { library: "cuBLAS", .. }) => {
                let why = why(e);
                tracing::warn!(target: "ogive::cuda", why, "cuBLAS is given up, own kernels instead");
                if let State::Started(blas) = std::mem::take(&mut *state) {
                    *state = State::Failed { why, _kept: Some(blas) };
                }
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }
}
