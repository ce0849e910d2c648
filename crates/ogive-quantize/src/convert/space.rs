//! A selective state space as GGUF has it, whatever the class calls its sizes.

use super::settings::whole;
use super::{Keys, refuse, tensors};
use crate::{Error, Result, input::Tensor};
use ogive_tensor::Config;
use serde_json::json;

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
    /// As IBM's and Falcon's classes call them, with heads of so many elements.
    pub(super) fn read(config: &Config, head_dim: usize) -> Result<Self> {
        Ok(Self {
            heads: config.usize_or("mamba_n_heads", 128)?,
            head_dim,
            groups: config.usize_or("mamba_n_groups", 1)?,
            state: config.usize_or("mamba_d_state", 256)?,
            taps: config.usize_or("mamba_d_conv", 4)?,
        })
    }

    /// Elements of all heads together.
    pub(super) fn inner(self) -> usize {
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

/// Refuses another activation than that which readers of GGUF take for granted.
pub(super) fn only(config: &Config, setting: &str, granted: &str) -> Result<()> {
    match config.opt_str(setting)?.is_some_and(|own| own != granted) {
        true => refuse(setting, format!("readers of GGUF take `{granted}` for granted")),
        false => Ok(()),
    }
}

/// Refuses bounds of how long steps in time are, and attention that looks ahead beside a state space.
pub(super) fn refuse_what_has_no_key(config: &Config) -> Result<()> {
    let unbounded = json!([0.0, {"__float__": "Infinity"}]);
    if config.has("time_step_limit") && config.0.get("time_step_limit") != Some(&unbounded) {
        return refuse("time_step_limit", "GGUF has no bounds of steps in time");
    }
    if !config.bool_or("is_causal", true)? {
        return refuse("is_causal", "it is off, and a state space only looks back");
    }
    Ok(())
}

/// Refuses biases that readers of GGUF pass over, by what their names end with, and convolutions that have none.
pub(super) fn biases(tensors: &[Tensor], passed_over: &[&str]) -> Result<()> {
    if let Some(t) = tensors.iter().find(|t| passed_over.iter().any(|end| t.name.ends_with(end))) {
        let why = "readers of GGUF know no biases of these projections";
        return Err(Error::convert(format!("the tensor {}", t.name), why));
    }
    for kernel in tensors.iter().filter_map(|t| t.name.strip_suffix(".ssm_conv1d.weight")) {
        let bias = format!("{kernel}.ssm_conv1d.bias");
        if tensors.iter().all(|t| t.name != bias) {
            let why = "readers of GGUF want biases of this convolution, and the model has none";
            return Err(Error::convert(format!("the tensor {bias}"), why));
        }
    }
    Ok(())
}
