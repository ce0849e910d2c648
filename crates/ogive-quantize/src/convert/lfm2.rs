//! LFM2 as GGUF has it: the layers that attend by their number of key heads, which is 0 for the others, and of mixtures what llama.cpp's
//! graph takes for granted.

use super::settings::{set_vocab_size, whole};
use super::{Keys, Model, layer_types, refuse};
use crate::Result;

/// GGUF's names of the architectures.
pub(super) const DENSE: &str = "lfm2";
pub(super) const MIXTURE: &str = "lfm2moe";

/// Whether it is one of these.
pub(super) fn is(model: &Model<'_>) -> bool {
    [DENSE, MIXTURE].contains(&model.architecture)
}

/// How many of the first layers have no experts: in what follows convolution or attention they are like each other and not like the rest.
pub(super) fn dense_layers(model: &Model<'_>) -> Result<u64> {
    Ok(match model.architecture {
        MIXTURE => model.config.usize_or("num_dense_layers", 2)? as u64,
        _ => 0,
    })
}

/// Whether a layer convolves; no layer of another architecture.
pub(super) fn convolves(model: &Model<'_>) -> Result<impl Fn(u64) -> bool> {
    let own = is(model);
    let types = if own { layer_types(model.config, &["conv", "full_attention"])? } else { None };
    let attend = model.config.opt_usizes("full_attn_idxs")?;
    Ok(move |layer: u64| {
        own && match (&types, &attend) {
            (Some(types), _) => types.get(layer as usize) == Some(&"conv"),
            (None, Some(attend)) => !attend.contains(&(layer as usize)),
            (None, None) => false,
        }
    })
}

/// Sets what these architectures have besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    if config.bool_or("conv_bias", false)? {
        return refuse("conv_bias", "GGUF has no biases for this architecture");
    }
    let layers = config.usize("num_hidden_layers")?;
    let heads = whole("num_key_value_heads", config.usize_or("num_key_value_heads", 8)?)?;
    let convolves = convolves(model)?;
    // Their number was compared with that of the tensors.
    let of_each: Vec<u32> =
        (0..layers as u64).map(|layer| if convolves(layer) { 0 } else { heads }).collect();
    keys.set("attention.head_count_kv", of_each);
    keys.set("shortconv.l_cache", whole("conv_L_cache", config.usize_or("conv_L_cache", 3)?)?);
    set_vocab_size(keys, config)?;
    if model.architecture == MIXTURE {
        if !config.bool_or("use_expert_bias", true)? {
            return refuse("use_expert_bias", "experts of this architecture have biases in GGUF");
        }
        if config.f32_or("routed_scaling_factor", 1.0)? != 1.0 {
            return refuse("routed_scaling_factor", "readers of GGUF pass it over for this architecture");
        }
        let dense = config.usize_or("num_dense_layers", 2)?;
        keys.set("leading_dense_block_count", whole("num_dense_layers", dense)?);
        // 2 is for scores of each alone.
        keys.set("expert_gating_func", 2_u32);
    }
    Ok(())
}
