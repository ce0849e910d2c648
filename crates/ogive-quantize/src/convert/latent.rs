//! DeepSeek's latent attention and mixtures as GGUF has them: settings by its keys, `kv_b_proj` in two halves, and without the layers that
//! foretell more than one token, which llama.cpp's converter leaves out as well.

use super::settings::whole;
use super::{Keys, Model, refuse};
use crate::Result;
use ogive_tensor::{Config, F32, HostWeight, WeightInfo};
use ogive_weights::Change;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "deepseek2";

/// Whole numbers: settings, and keys below the architecture.
const WHOLE: &[(&str, &str)] = &[
    ("vocab_size", "vocab_size"),
    ("first_k_dense_replace", "leading_dense_block_count"),
    ("n_routed_experts", "expert_count"),
    ("n_shared_experts", "expert_shared_count"),
    ("n_group", "expert_group_count"),
    ("topk_group", "expert_group_used_count"),
    ("q_lora_rank", "attention.q_lora_rank"),
    ("kv_lora_rank", "attention.kv_lora_rank"),
];

/// Sets the keys that this architecture has besides or otherwise.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    if config.usize_or("moe_layer_freq", 1)? != 1 {
        return refuse("moe_layer_freq", "GGUF cannot say that layers among those with experts have none");
    }
    if !config.bool_or("rope_interleave", true)? {
        return refuse("rope_interleave", "pairs of neighbours rotate in GGUF's models of this architecture");
    }
    let third = model.class.starts_with("DeepseekV3");
    if !third && config.bool_or("norm_topk_prob", false)? {
        return refuse("norm_topk_prob", "for DeepSeek-V2 it has no meaning that is agreed on");
    }
    // Readers take several groups for those of which the best are chosen.
    let ignored = config.opt_str("topk_method")? == Some("greedy") && config.usize_or("n_group", 1)? > 1;
    for (setting, key) in WHOLE.iter().filter(|(_, key)| !(ignored && key.contains("group"))) {
        if let Some(value) = config.opt_usize(setting)? {
            keys.set(key, whole(setting, value)?);
        }
    }
    let Dims { rank, nope, rope, value, .. } = Dims::read(config)?;
    // One key head for all, of which the first elements are the value, and what heads' keys and values would be.
    keys.set("attention.head_count_kv", 1_u32);
    for (key, size) in [
        ("attention.key_length", rank.saturating_add(rope)),
        ("attention.value_length", rank),
        ("attention.key_length_mla", nope.saturating_add(rope)),
        ("attention.value_length_mla", value),
        ("rope.dimension_count", rope),
    ] {
        keys.set(key, whole(key, size)?);
    }
    // 1 is for shares of all, 2 for scores of each alone.
    keys.set("expert_gating_func", if third { 2_u32 } else { 1 });
    if let Some(scale) = config.opt_f32("routed_scaling_factor")? {
        keys.set("expert_weights_scale", scale);
    }
    if config.bool_or("norm_topk_prob", false)? {
        keys.set("expert_weights_norm", true);
    }
    Ok(())
}

/// YaRN's magnitude, a tenth of what both settings are set to: so the converter writes it. `None` where it is not of that kind.
pub(super) fn log_multiplier(config: &Config) -> Result<Option<f32>> {
    let scaling = config.at("rope_scaling");
    let both = scaling.opt_f32("mscale")?.zip(scaling.opt_f32("mscale_all_dim")?);
    Ok(both.filter(|(one, all)| one == all && *all != 0.0).map(|(one, _)| 0.1 * one))
}

/// Whether a tensor is of a layer behind the model's own.
pub(super) fn is_behind(config: &Config, name: &str) -> Result<bool> {
    let layer = || name.strip_prefix("model.layers.")?.split_once('.')?.0.parse::<usize>().ok();
    let layers = config.usize("num_hidden_layers")?;
    Ok(config.usize_or("num_nextn_predict_layers", 0)? > 0 && layer().is_some_and(|layer| layer >= layers))
}

/// GGUF's names of what the weight `kv_b_proj` becomes, and how.
pub(super) fn halves(model: &Model<'_>, name: &str) -> Option<[(String, Change); 2]> {
    let at = name.strip_suffix(".kv_b_proj.weight").filter(|_| model.architecture == ARCHITECTURE)?;
    let name = |half: &str| Some(model.translation.gguf_name(&format!("{at}.{half}_proj.weight"))?.0);
    Some([(name("k_b")?, half(true)), (name("v_b")?, half(false))])
}

/// Of each head's rows in `kv_b_proj` those of keys, as columns, or those of values.
fn half(keys: bool) -> Change {
    let shape = move |d: Dims| if keys { [d.heads, d.rank, d.nope] } else { [d.heads, d.value, d.rank] };
    let misfit =
        || ogive_tensor::Error::invalid("kv_b_proj", "its shape is not that of the configured heads");
    let dims = move |shape: [usize; 3], config: &Config| {
        let dims = Dims::read(config)?;
        let each = dims.nope.checked_add(dims.value).filter(|each| *each > 0).ok_or_else(misfit)?;
        let fits = dims.heads.checked_mul(each) == Some(shape[1]) && shape[0] == 1 && shape[2] == dims.rank;
        if fits { Ok((dims, each)) } else { Err(misfit()) }
    };
    Change::new(
        move |of, config| {
            let w = of.first().ok_or_else(misfit)?;
            Ok(WeightInfo::new(&*w.name, shape(dims(w.shape, config)?.0), &F32))
        },
        move |of, config| {
            let w = of.first().ok_or_else(misfit)?;
            let (d, each) = dims(w.shape, config)?;
            let mut all = Vec::new();
            for head in (0..d.heads).map(|head| head * each) {
                let part = if keys { head..head + d.nope } else { head + d.nope..head + each };
                let part = w.rows(part)?;
                all.extend(if keys { part.transposed()?.to_vec() } else { part.to_vec() });
            }
            HostWeight::from_f32(&*w.name, shape(d), &all)
        },
    )
}

/// Heads, and elements of what.
#[derive(Clone, Copy)]
struct Dims {
    heads: usize,
    rank: usize,
    nope: usize,
    rope: usize,
    value: usize,
}

impl Dims {
    fn read(config: &Config) -> ogive_tensor::Result<Self> {
        Ok(Self {
            heads: config.usize("num_attention_heads")?,
            rank: config.usize("kv_lora_rank")?,
            nope: config.usize("qk_nope_head_dim")?,
            rope: config.usize("qk_rope_head_dim")?,
            value: config.usize("v_head_dim")?,
        })
    }
}
