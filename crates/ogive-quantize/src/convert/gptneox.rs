//! GPT-NeoX as GGUF has it: with biases on all matrices, and whether the MLP stands beside attention.
//!
//! Which GELU is meant has no key that others read, so it gets one of our own where it is not the exact one.

use super::{Keys, Model, refuse};
use crate::Result;
use ogive_tensor::Config;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "gptneox";

/// What its files call the head.
pub(super) const HEAD: &str = "embed_out.weight";

/// Takes away what the class does not know and readers of GGUF would obey.
pub(super) fn settled(class: &str, mut config: Config) -> Config {
    if let Some(settings) = config.0.as_object_mut().filter(|_| class == "GPTNeoXForCausalLM") {
        settings.retain(|key, _| !["num_key_value_heads", "head_dim"].contains(&&**key));
    }
    config
}

/// Sets what this architecture has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    const BIAS: &str = "attention_bias";
    const ACTIVATION: &str = "hidden_act";
    if !model.config.bool_or(BIAS, true)? {
        return refuse(BIAS, "readers of GGUF want biases in this architecture");
    }
    match model.config.opt_str(ACTIVATION)? {
        None | Some("gelu") => {}
        Some(tanh @ ("gelu_new" | "gelu_fast" | "gelu_pytorch_tanh")) => {
            keys.metadata.set("ogive.hidden_act", tanh);
        }
        Some(_) => return refuse(ACTIVATION, "readers of GGUF have a GELU in this architecture"),
    }
    keys.set("use_parallel_residual", model.config.bool_or("use_parallel_residual", true)?);
    // Readers of GGUF take another number for granted than the class.
    keys.set("attention.layer_norm_epsilon", model.config.f32_or("layer_norm_eps", 1e-5)?);
    Ok(())
}
