//! Mixtures that attend as Llama does, some of whose first layers have no experts: what GGUF has of them besides all others' keys.

use super::settings::whole;
use super::{Keys, Model, latent, refuse};
use crate::Result;

/// GGUF's names of the architectures: GLM-4.5, dots.llm1, MiniMax-M2 and ERNIE 4.5.
pub(super) const GLM: &str = "glm4moe";
pub(super) const DOTS: &str = "dots1";
pub(super) const MINIMAX: &str = "minimax-m2";
pub(super) const ERNIE: &str = "ernie4_5-moe";

/// The largest bound below the sum of shares that no sum comes near.
const NEARLY_NOTHING: f32 = 1e-9;

/// Whole numbers of GLM-4.5 and dots.llm1: settings, and keys below the architecture.
const WHOLE: &[(&str, &str)] = &[
    ("first_k_dense_replace", "leading_dense_block_count"),
    ("n_routed_experts", "expert_count"),
    ("n_shared_experts", "expert_shared_count"),
    ("n_group", "expert_group_count"),
    ("topk_group", "expert_group_used_count"),
];

/// How many of the first layers have no experts: in what follows attention they are like each other and not like the rest.
pub(super) fn dense_layers(model: &Model<'_>) -> Result<u64> {
    Ok(match model.architecture {
        GLM | DOTS | latent::ARCHITECTURE => model.config.usize_or("first_k_dense_replace", 0)? as u64,
        ERNIE => model.config.usize_or("moe_layer_start_index", 1)? as u64,
        _ => 0,
    })
}

/// Whether a tensor foretells more than one token, in ERNIE's files.
pub(super) fn is_beside(model: &Model<'_>, name: &str) -> bool {
    model.architecture == ERNIE && name.starts_with("model.mtp_")
}

/// Sets what each has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    // 2 is for scores of each alone.
    keys.set("expert_gating_func", 2_u32);
    match model.architecture {
        GLM => set_glm(keys, model, true),
        DOTS => set_dots(keys, model),
        _ => set_minimax(keys, model),
    }
}

/// What MiniMax's files keep of other models is compared when the file is read back.
fn set_minimax(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let width = model.config.usize("intermediate_size")?;
    keys.set("expert_feed_forward_length", whole("intermediate_size", width)?);
    Ok(())
}

fn set_dots(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    let scored = config.opt_str("scoring_func")?;
    if let Some(other) = scored.filter(|said| !["noaux_tc", "sigmoid"].contains(said)) {
        return refuse(
            "scoring_func",
            format!("it is `{other}`, and GGUF has sigmoids for this architecture"),
        );
    }
    let heads = config.usize("num_attention_heads")?;
    if config.usize_or("num_key_value_heads", heads)? != heads {
        let why = "readers of GGUF want as many key heads as query heads in this architecture";
        return refuse("num_key_value_heads", why);
    }
    if config.usize_or("n_shared_experts", 0)? == 0 {
        let why = "readers of GGUF want an MLP that all tokens share in this architecture";
        return refuse("n_shared_experts", why);
    }
    let first = config.usize_or("max_window_layers", 62)?;
    let slides = match config.opt_strs("layer_types")? {
        Some(kinds) => kinds.iter().any(|kind| kind == "sliding_attention"),
        None => first < config.usize("num_hidden_layers")?,
    };
    if slides && config.opt_usize("sliding_window")?.is_some_and(|window| window > 0) {
        return refuse("sliding_window", "GGUF has no windows for this architecture");
    }
    set_glm(keys, model, false)
}

/// `normed` says whether silence means that shares of chosen experts sum to one.
fn set_glm(keys: &mut Keys<'_>, model: &Model<'_>, normed: bool) -> Result<()> {
    let config = model.config;
    if config.usize_or("n_routed_experts", 0)? == 0 {
        return refuse("n_routed_experts", "readers of GGUF want experts in this architecture");
    }
    for (setting, key) in WHOLE {
        if let Some(value) = config.opt_usize(setting)? {
            keys.set(key, whole(setting, value)?);
        }
    }
    keys.set("expert_weights_norm", config.bool_or("norm_topk_prob", normed)?);
    let scale = config.f32_or("routed_scaling_factor", 1.0)?;
    if scale == 0.0 {
        return refuse("routed_scaling_factor", "readers of GGUF take 0 for none");
    }
    keys.set("expert_weights_scale", scale);
    Ok(())
}

/// Sets what ERNIE's mixtures have besides. Their shares are those of a softmax, in every reader.
pub(super) fn set_ernie(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    let layers = config.usize("num_hidden_layers")?;
    let last = match config.0.get("moe_layer_end_index").and_then(|end| end.as_i64()) {
        Some(-1) => None,
        _ => config.opt_usize("moe_layer_end_index")?,
    };
    if last.is_some_and(|last| last.saturating_add(1) < layers) {
        return refuse("moe_layer_end_index", "GGUF cannot say that the last layers have no experts");
    }
    if config.usize_or("moe_layer_interval", 1)? != 1 {
        return refuse(
            "moe_layer_interval",
            "GGUF cannot say that layers among those with experts have none",
        );
    }
    if config.f32_or("moe_norm_min", 0.0)? > NEARLY_NOTHING {
        return refuse("moe_norm_min", "GGUF has no key for a bound below the sum of shares");
    }
    let shared = config.usize_or("moe_num_shared_experts", 0)?;
    let width = config.usize("moe_intermediate_size")?.saturating_mul(shared);
    for (key, value) in [
        ("expert_count", config.usize("moe_num_experts")?),
        ("expert_used_count", config.usize("moe_k")?),
        ("expert_shared_count", shared),
        ("expert_shared_feed_forward_length", width),
        ("leading_dense_block_count", config.usize_or("moe_layer_start_index", 1)?),
        ("interleave_moe_layer_step", 1),
    ] {
        keys.set(key, whole(key, value)?);
    }
    Ok(())
}
