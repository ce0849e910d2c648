//! Weights after the backend has taken them in.

use ogive_tensor::{Error, Format, HostWeight, Result, Unpacked};
use std::{any::Any, fmt, sync::Arc};

/// A weight a backend has taken in, still packed.
#[derive(Clone)]
pub struct Weight {
    about: Arc<About>,
    data: Arc<dyn Any + Send + Sync>,
}

/// What is known of a weight wherever it lies.
#[derive(Clone)]
struct About {
    name: String,
    shape: [usize; 3],
    format: &'static Format,
    unpacked: Option<Unpacked>,
}

impl Weight {
    /// Wraps a backend's buffer. Called by backends only.
    pub fn new(host: &HostWeight, data: impl Any + Send + Sync) -> Self {
        let (name, unpacked) = (host.name.clone(), host.unpacked.clone());
        let about = About { name, shape: host.shape, format: host.format, unpacked };
        Self { about: Arc::new(about), data: Arc::new(data) }
    }
    /// The same of a backend that says whether it had to decode it: called where that differs from what was known of the host's weight.
    #[must_use]
    pub fn with_unpacked(self, unpacked: Option<Unpacked>) -> Self {
        let about = Arc::new(About { unpacked, ..(*self.about).clone() });
        Self { about, ..self }
    }
    /// What the checkpoint calls it; of a stack that was made of several, what they have in common. Parts of one tensor have one name.
    pub fn name(&self) -> &str {
        &self.about.name
    }
    /// Whether both are the same, and not only alike.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.data, &other.data)
    }
    /// `[experts, out, in]`
    pub fn shape(&self) -> [usize; 3] {
        self.about.shape
    }
    /// How the file had it packed.
    pub fn format(&self) -> &'static Format {
        self.about.format
    }
    /// What the file has instead, where it is not kept as packed as there: decoded when it was read, or by the backend.
    pub fn unpacked(&self) -> Option<&Unpacked> {
        self.about.unpacked.as_ref()
    }
    /// The backend's buffer.
    ///
    /// # Errors
    /// If it is no `T`: the weight was taken in by another backend.
    pub fn data<T: Any>(&self) -> Result<&T> {
        self.data.downcast_ref().ok_or_else(|| Error::foreign("weight"))
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weight{:?}{:?}", self.shape(), self.format())
    }
}
