//! Nemotron-H as GGUF has it: what each block is, by the numbers of its key heads and of its MLP's hidden elements.
//!
//! A model with mixtures is another architecture there, all of whose MLPs are mixtures. Readers of GGUF take what the class may have otherwise
//! than NVIDIA's models for what those have.

use super::settings::{set_vocab_size, whole};
use super::space::{self, Space};
use super::{Keys, Model, layer_types, refuse, tensors};
use crate::{Result, input::Tensor};
use ogive_tensor::Config;
use std::collections::BTreeSet;

/// GGUF's names of the architectures.
pub(super) const DENSE: &str = "nemotron_h";
pub(super) const MIXTURE: &str = "nemotron_h_moe";

/// The class, which is both.
const CLASS: &str = "NemotronHForCausalLM";

/// What blocks are, as `ogive-weights` calls it.
const KINDS: [&str; 4] = ["mamba", "attention", "mlp", "moe"];

/// What stands in the settings of all, and counts for mixtures.
const OF_MIXTURES: [&str; 3] = ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"];

/// Whole numbers of mixtures: settings, and keys below the architecture.
const WHOLE: [(&str, &str); 5] = [
    ("n_routed_experts", "expert_count"),
    ("n_shared_experts", "expert_shared_count"),
    ("moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    ("n_group", "expert_group_count"),
    ("topk_group", "expert_group_used_count"),
];

/// Whether it is one of these.
pub(super) fn is(model: &Model<'_>) -> bool {
    model.class == CLASS
}

/// What a model becomes, of this class: one with a mixture is an architecture of its own.
pub(super) fn architecture(class: &str, config: &Config) -> Result<Option<&'static str>> {
    if class != CLASS {
        return Ok(None);
    }
    let types = config.opt_strs("layer_types")?.unwrap_or_default();
    Ok(Some(if types.iter().any(|kind| kind == "moe") { MIXTURE } else { DENSE }))
}

/// The settings, of a dense model without those of mixtures, by which readers would take it for one.
pub(super) fn settled(architecture: &str, mut config: Config) -> Config {
    if architecture == DENSE
        && let Some(settings) = config.0.as_object_mut()
    {
        settings.retain(|key, _| !OF_MIXTURES.contains(&&**key));
    }
    config
}

/// What each block is; nothing in another architecture.
pub(super) fn kinds(model: &Model<'_>) -> Result<Vec<&'static str>> {
    if !is(model) {
        return Ok(Vec::new());
    }
    layer_types(model.config, &KINDS)?.map_or_else(|| refuse("layer_types", "it is missing"), Ok)
}

/// Whether a tensor is of no part that GGUF has from us: what foretells more than one token.
pub(super) fn is_beside(model: &Model<'_>, name: &str) -> bool {
    is(model) && name.starts_with("mtp.")
}

/// NVIDIA's name for a tensor that transformers 5 calls otherwise, or stacks under one that does not say it is a weight.
pub(super) fn own_name(model: &Model<'_>, name: &str) -> Option<String> {
    if !is(model) {
        return None;
    }
    let name = name.strip_prefix("model.").map_or_else(|| name.to_owned(), |rest| format!("backbone.{rest}"));
    let is_stack = [".experts.up_proj", ".experts.down_proj"].iter().any(|end| name.ends_with(end));
    Some(if is_stack { format!("{name}.weight") } else { name })
}

/// Sets what these architectures have besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let (config, mixes) = (model.config, model.architecture == MIXTURE);
    // Their number was compared with that of the tensors.
    let kinds = kinds(model)?;
    refuse_what_has_no_key(config)?;
    if mixes {
        set_mixtures(keys, config, &kinds)?;
    }
    let heads = whole("num_key_value_heads", config.usize("num_key_value_heads")?)?;
    let (kind, width) = if mixes { ("moe", "moe_intermediate_size") } else { ("mlp", "intermediate_size") };
    let width = whole(width, config.usize(width)?)?;
    let where_it_is = |wanted: &str, n: u32| -> Vec<u32> {
        kinds.iter().map(|kind| if *kind == wanted { n } else { 0 }).collect()
    };
    keys.set("attention.head_count_kv", where_it_is("attention", heads));
    keys.set("feed_forward_length", where_it_is(kind, width));
    keys.set("rope.scaling.finetuned", false);
    set_vocab_size(keys, config)?;
    sizes(config)?.set(keys)
}

/// Sets what mixtures have.
fn set_mixtures(keys: &mut Keys<'_>, config: &Config, kinds: &[&str]) -> Result<()> {
    if kinds.contains(&"mlp") {
        return refuse("layer_types", "readers of GGUF take each MLP of a model with experts for a mixture");
    }
    if config.has("moe_latent_size") {
        return refuse("moe_latent_size", "experts that see latents of their input are not converted");
    }
    let scale = config.f32_or("routed_scaling_factor", 1.0)?;
    if scale == 0.0 {
        return refuse("routed_scaling_factor", "GGUF takes 0 for none");
    }
    keys.set("expert_weights_scale", scale);
    keys.set("expert_weights_norm", config.bool_or("norm_topk_prob", true)?);
    for (setting, key) in WHOLE {
        if let Some(value) = config.opt_usize(setting)? {
            keys.set(key, whole(setting, value)?);
        }
    }
    Ok(())
}

/// Settings that change what a model computes and that GGUF cannot say of this architecture.
fn refuse_what_has_no_key(config: &Config) -> Result<()> {
    for (setting, granted) in [("mlp_hidden_act", "relu2"), ("mamba_hidden_act", "silu")] {
        space::only(config, setting, granted)?;
    }
    if config.has("sliding_window") {
        return refuse("sliding_window", "programs differ in whether this class obeys it");
    }
    space::refuse_what_has_no_key(config)
}

/// The sizes of a state space.
fn sizes(config: &Config) -> Result<Space> {
    Ok(Space {
        heads: config.usize("mamba_num_heads")?,
        head_dim: config.usize("mamba_head_dim")?,
        groups: config.usize("n_groups")?,
        state: config.usize("ssm_state_size")?,
        taps: config.usize("conv_kernel")?,
    })
}

/// Refuses tensors that the file's readers pass over or miss, and those of other sizes than the settings say, by which they go.
pub(super) fn check(model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    let names: BTreeSet<&str> = tensors.iter().map(|t| &*t.name).collect();
    for (i, kind) in kinds(model)?.into_iter().enumerate() {
        // What each kind has and no other.
        let own = match kind {
            "mamba" => "ssm_in",
            "attention" => "attn_q",
            "mlp" => "ffn_up",
            _ => "ffn_up_exps",
        };
        if !names.contains(&*format!("blk.{i}.{own}.weight")) {
            return refuse("layer_types", format!("block {i} is `{kind}`, and its tensors are none of one"));
        }
    }
    let passed_over = ["ssm_in.bias", "ssm_out.bias", "_exps.bias", "_shexp.bias", "ffn_gate_inp.bias"];
    space::biases(tensors, &passed_over)?;
    let config = model.config;
    sizes(config)?.check(tensors)?;
    let size = |key: &str| config.usize_or(key, 0);
    let dim = size("head_dim")?;
    let (queries, shared) =
        (size("num_attention_heads")?.saturating_mul(dim), size("num_key_value_heads")?.saturating_mul(dim));
    let sizes = [
        (".attn_q.weight", 1, queries),
        (".attn_k.weight", 1, shared),
        (".attn_v.weight", 1, shared),
        (".attn_output.weight", 0, queries),
        (".ffn_up.weight", 1, size("intermediate_size")?),
        (".ffn_gate_inp.weight", 1, size("n_routed_experts")?),
        (".ffn_up_exps.weight", 2, size("n_routed_experts")?),
        (".ffn_up_exps.weight", 1, size("moe_intermediate_size")?),
        (".ffn_up_shexp.weight", 1, size("moe_shared_expert_intermediate_size")?),
    ];
    tensors::fit(tensors, &sizes)
}
