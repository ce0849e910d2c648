//! A selective state space as GGUF has it, whatever the class calls its sizes.

use super::settings::whole;
use super::{Keys, tensors};
use crate::{Result, input::Tensor};

/// Its sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) heads: usize,
    /// Elements of a head.
    pub(super) head_dim: usize,
    /// Heads that share what states are written and read by.
    pub(super) groups: usize,
    /// Elements of each of those.
    pub(super) state: usize,
    /// Inputs that the convolution sees.
    pub(super) taps: usize,
}

impl Space {
    /// Elements of all heads together.
    fn inner(self) -> usize {
        self.heads.saturating_mul(self.head_dim)
    }

    /// Sets the keys.
    pub(super) fn set(self, keys: &mut Keys<'_>) -> Result<()> {
        for (key, size) in [
            ("ssm.conv_kernel", self.taps),
            ("ssm.state_size", self.state),
            ("ssm.group_count", self.groups),
            ("ssm.time_step_rank", self.heads),
            ("ssm.inner_size", self.inner()),
        ] {
            keys.set(key, whole(key, size)?);
        }
        Ok(())
    }

    /// Refuses tensors of other sizes: the file's readers go by the settings.
    pub(super) fn check(self, tensors: &[Tensor]) -> Result<()> {
        let Self { heads, groups, state, taps, .. } = self;
        let inner = self.inner();
        let channels = groups.saturating_mul(state).saturating_mul(2).saturating_add(inner);
        let sizes = [
            (".ssm_in.weight", 1, inner.saturating_add(channels).saturating_add(heads)),
            (".ssm_conv1d.weight", 1, channels),
            (".ssm_conv1d.weight", 0, taps.max(1)),
            (".ssm_conv1d.bias", 0, channels),
            (".ssm_dt.bias", 0, heads),
            (".ssm_a", 1, heads),
            (".ssm_d", 1, heads),
            (".ssm_norm.weight", 0, inner.checked_div(groups).unwrap_or(0)),
            (".ssm_out.weight", 0, inner),
        ];
        tensors::fit(tensors, &sizes)
    }
}
