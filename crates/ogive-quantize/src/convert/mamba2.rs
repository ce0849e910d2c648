//! Mamba-2 as GGUF has it: a model without attention and MLPs, whose numbers are 0 there.

use super::mamba::CONTEXT;
use super::space::{self, Space};
use super::{Keys, Model, settings::set_vocab_size};
use crate::{Result, input::Tensor};
use ogive_tensor::Config;
use serde_json::json;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "mamba2";

/// Elements of a head, which are no attention's.
const HEAD_DIM: &str = "mamba_head_dim";

/// Whether it is one.
pub(super) fn is(model: &Model<'_>) -> bool {
    model.architecture == ARCHITECTURE
}

/// Says in the settings what this class has nothing of and readers of GGUF ask for, and what a head is by another name than attention's.
pub(super) fn settled(class: &str, mut config: Config) -> Config {
    if class == "Mamba2ForCausalLM"
        && let Some(settings) = config.0.as_object_mut()
    {
        let head_dim = settings.remove("head_dim");
        settings.extend(head_dim.map(|dim| (HEAD_DIM.to_owned(), dim)));
        for (key, n) in
            [("num_attention_heads", 0), ("intermediate_size", 0), ("max_position_embeddings", CONTEXT)]
        {
            settings.insert(key.into(), json!(n));
        }
    }
    config
}

/// Sets what this architecture has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    space::refuse_what_has_no_key(config)?;
    space::only(config, "hidden_act", "silu")?;
    set_vocab_size(keys, config)?;
    sizes(config)?.set(keys)
}

/// The sizes of a state space.
fn sizes(config: &Config) -> Result<Space> {
    Ok(Space {
        heads: config.usize("num_heads")?,
        head_dim: config.usize(HEAD_DIM)?,
        groups: config.usize("n_groups")?,
        state: config.usize("state_size")?,
        taps: config.usize_or("conv_kernel", 4)?,
    })
}

/// Refuses tensors that the file's readers pass over or miss, and those of other sizes than the settings say, by which they go.
pub(super) fn check(model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    space::biases(tensors, &["ssm_in.bias", "ssm_out.bias"])?;
    sizes(model.config)?.check(tensors)
}
