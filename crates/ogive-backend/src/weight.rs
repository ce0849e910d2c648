//! Weights after the backend has taken them in.

use ogive_tensor::{Error, Format, HostWeight, Result};
use std::{any::Any, fmt, sync::Arc};

/// A weight a backend has taken in, still packed.
#[derive(Clone)]
pub struct Weight {
    shape: [usize; 3],
    format: &'static Format,
    data: Arc<dyn Any + Send + Sync>,
}

impl Weight {
    /// Wraps a backend's buffer. Called by backends only.
    pub fn new(host: &HostWeight, data: impl Any + Send + Sync) -> Self {
        Self { shape: host.shape, format: host.format, data: Arc::new(data) }
    }
    /// `[experts, out, in]`
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }
    /// How the file had it packed.
    pub fn format(&self) -> &'static Format {
        self.format
    }
    /// The backend's buffer.
    pub fn data<T: Any>(&self) -> Result<&T> {
        self.data.downcast_ref().ok_or_else(|| Error::foreign("weight"))
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weight{:?}{:?}", self.shape, self.format)
    }
}
