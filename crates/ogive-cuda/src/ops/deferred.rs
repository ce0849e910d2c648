//! RMS norms of one row that are left to who reads their results: products by blocks that stay compute them in their own blocks (`one`), which saves a
//! kernel and the wait for it. Whoever else reads the result, or the sum that it is of, has it computed before, by the kernel that would have.

use crate::device::Device;
use crate::ops::norm;
use ogive_tensor::{Result, Tensor};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A norm that may not have been computed.
#[derive(Debug)]
pub(crate) struct Deferred(Mutex<Option<Norm>>);

/// What is still to be computed.
#[derive(Debug)]
pub(crate) struct Norm {
    pub(super) x: Tensor,
    /// What is added to it, and where the sum goes.
    pub(super) added: Option<[Tensor; 2]>,
    pub(super) factors: Tensor,
    pub(super) eps: f32,
    /// Where the result goes.
    pub(super) out: Tensor,
}

/// What of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The sum that it is of.
    Sum,
    Result,
}

impl Deferred {
    /// Leaves `norm` to who reads `out`, and the sum if there is one; these come back. No one else holds them.
    pub(super) fn leave(device: &Device, at: &str, mut norm: Norm) -> Result<(Option<Tensor>, Tensor)> {
        let out = device.alias(at, &norm.out)?;
        let out = std::mem::replace(&mut norm.out, out);
        let mut sum = None;
        if let Some([_, to]) = &mut norm.added {
            let alias = device.alias(at, to)?;
            sum = Some(std::mem::replace(to, alias));
        }
        let deferred = Arc::new(Self(Mutex::new(Some(norm))));
        let sum = sum.map(|sum| Device::left_to(sum, &deferred, Part::Sum));
        Ok((sum, Device::left_to(out, &deferred, Part::Result)))
    }

    /// What is still to be computed, if anything is.
    pub(super) fn state(&self) -> MutexGuard<'_, Option<Norm>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes what is still to be, if this part is.
    pub(crate) fn settle(&self, device: &Device, part: Part) -> Result<()> {
        let mut state = self.state();
        if let Some(norm) = state.as_ref().filter(|norm| part == Part::Result || norm.added.is_some()) {
            norm::compute(device, norm)?;
            *state = None;
        }
        Ok(())
    }
}

impl Norm {
    /// The sum was computed: what is left is its norm.
    pub(super) fn summed(&mut self) {
        if let Some([_, sum]) = self.added.take() {
            self.x = sum;
        }
    }
}
