//! Nemotron-H as GGUF has it: what each block is, by the numbers of its key heads and of its MLP's hidden elements.
//!
//! A file's readers take one with experts for one whose MLPs all are mixtures, and what the class may have otherwise than NVIDIA's models for
//! what those have.

use super::settings::whole;
use super::{Keys, Model, tensors};
use crate::{Error, Result, input::Tensor};
use ogive_tensor::Config;
use serde_json::json;

/// GGUF's names of the architectures.
pub(super) const DENSE: &str = "nemotron_h";
pub(super) const MIXTURE: &str = "nemotron_h_moe";

/// The class, which is both.
const CLASS: &str = "NemotronHForCausalLM";

/// What blocks are, as `ogive-weights` calls it.
const KINDS: [&str; 4] = ["mamba", "attention", "mlp", "moe"];

/// What stands in the settings of all, and counts for mixtures.
const OF_MIXTURES: [&str; 3] = ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"];

/// Whether it is one of these.
pub(super) fn is(model: &Model<'_>) -> bool {
    model.class == CLASS
}

/// What a model becomes: one with mixtures is an architecture of its own.
pub(super) fn architecture(class: &str, config: &Config) -> Result<Option<&'static str>> {
    if class != CLASS {
        return Ok(None);
    }
    let types = config.opt_strs("layer_types")?.unwrap_or_default();
    Ok(Some(if types.iter().any(|kind| kind == "moe") { MIXTURE } else { DENSE }))
}

/// The settings without those of mixtures, where there is none.
pub(super) fn settled(class: &str, mut config: Config) -> Result<Config> {
    if architecture(class, &config)? == Some(DENSE)
        && let Some(settings) = config.0.as_object_mut()
    {
        settings.retain(|key, _| !OF_MIXTURES.contains(&&**key));
    }
    Ok(config)
}

/// What each block is; nothing in another architecture.
pub(super) fn kinds(model: &Model<'_>) -> Result<Vec<&'static str>> {
    if !is(model) {
        return Ok(Vec::new());
    }
    let (types, layers) = (model.config.opt_strs("layer_types")?, model.config.usize("num_hidden_layers")?);
    let known = |kind: &String| KINDS.into_iter().find(|known| known == kind);
    let kinds: Option<Vec<_>> = types.unwrap_or_default().iter().map(known).collect();
    kinds.filter(|all| all.len() == layers).ok_or_else(|| {
        let why = format!("it should name one of {KINDS:?} for each of {layers} layers");
        Error::convert("the setting layer_types", why)
    })
}

/// Whether a tensor is of no part that GGUF has from us: what foretells more than one token.
pub(super) fn is_beside(model: &Model<'_>, name: &str) -> bool {
    is(model) && name.starts_with("mtp.")
}

/// NVIDIA's name for a tensor that transformers 5 calls otherwise.
pub(super) fn own_name(model: &Model<'_>, name: &str) -> Option<String> {
    let name = match name.strip_prefix("model.").filter(|_| is(model)) {
        Some(rest) => format!("backbone.{rest}"),
        None if is(model) => name.to_owned(),
        None => return None,
    };
    let stack = [".experts.up_proj", ".experts.down_proj"].iter().any(|end| name.ends_with(end));
    Some(if stack { format!("{name}.weight") } else { name })
}

/// Sets what these architectures have besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    refuse_what_has_no_key(model)?;
    let heads = whole("num_key_value_heads", config.usize("num_key_value_heads")?)?;
    let width = if model.architecture == MIXTURE { "moe_intermediate_size" } else { "intermediate_size" };
    let width = whole(width, config.usize(width)?)?;
    // Their number was compared with that of the tensors.
    let kinds = kinds(model)?;
    let where_it_is = |wanted: &[&str], n: u32| -> Vec<u32> {
        kinds.iter().map(|kind| if wanted.contains(kind) { n } else { 0 }).collect()
    };
    keys.set("attention.head_count_kv", where_it_is(&["attention"], heads));
    keys.set("feed_forward_length", where_it_is(&["mlp", "moe"], width));
    keys.set("rope.scaling.finetuned", false);
    let Space { heads, head_dim, groups, state, taps } = Space::read(config)?;
    let mut sizes = vec![
        ("ssm.conv_kernel", taps),
        ("ssm.state_size", state),
        ("ssm.group_count", groups),
        ("ssm.time_step_rank", heads),
        ("ssm.inner_size", heads.saturating_mul(head_dim)),
    ];
    sizes.extend(config.opt_usize("vocab_size")?.map(|vocab| ("vocab_size", vocab)));
    if model.architecture == MIXTURE {
        sizes.extend([
            ("expert_count", config.usize("n_routed_experts")?),
            ("expert_shared_count", config.usize_or("n_shared_experts", 1)?),
            ("expert_shared_feed_forward_length", config.usize("moe_shared_expert_intermediate_size")?),
            ("expert_group_count", config.usize_or("n_group", 1)?),
            ("expert_group_used_count", config.usize_or("topk_group", 1)?),
        ]);
        keys.set("expert_weights_norm", config.bool_or("norm_topk_prob", true)?);
        keys.set("expert_weights_scale", config.f32_or("routed_scaling_factor", 1.0)?);
    }
    for (key, size) in sizes {
        keys.set(key, whole(key, size)?);
    }
    Ok(())
}

/// Settings that change what a model computes and that GGUF cannot say of this architecture.
fn refuse_what_has_no_key(model: &Model<'_>) -> Result<()> {
    let config = model.config;
    let refuse = |setting: &str, why: &str| Err(Error::convert(format!("the setting {setting}"), why));
    for (setting, granted) in [("mlp_hidden_act", "relu2"), ("mamba_hidden_act", "silu")] {
        if config.opt_str(setting)?.is_some_and(|own| own != granted) {
            return refuse(setting, &format!("readers of GGUF take `{granted}` for granted"));
        }
    }
    let unbounded = json!([0.0, {"__float__": "Infinity"}]);
    if config.has("time_step_limit") && config.0.get("time_step_limit") != Some(&unbounded) {
        return refuse("time_step_limit", "GGUF has no bounds of steps in time");
    }
    if config.has("sliding_window") {
        return refuse("sliding_window", "programs differ in whether this class obeys it");
    }
    if config.has("moe_latent_size") {
        return refuse("moe_latent_size", "mixtures of latents are not converted");
    }
    if !config.bool_or("is_causal", true)? {
        return refuse("is_causal", "it is off, and a state space only looks back");
    }
    if model.architecture == MIXTURE && kinds(model)?.contains(&"mlp") {
        return refuse("layer_types", "readers of GGUF take each MLP of a model with experts for a mixture");
    }
    if model.architecture == MIXTURE && config.f32_or("routed_scaling_factor", 1.0)? == 0.0 {
        return refuse("routed_scaling_factor", "GGUF takes 0 for none");
    }
    Ok(())
}

/// Sizes of a state space.
struct Space {
    heads: usize,
    head_dim: usize,
    groups: usize,
    state: usize,
    taps: usize,
}

impl Space {
    fn read(config: &Config) -> Result<Self> {
        Ok(Self {
            heads: config.usize("mamba_num_heads")?,
            head_dim: config.usize("mamba_head_dim")?,
            groups: config.usize("n_groups")?,
            state: config.usize("ssm_state_size")?,
            taps: config.usize("conv_kernel")?,
        })
    }
}

/// Refuses tensors that the file's readers pass over or miss, and those of other sizes than the settings say, by which they go.
pub(super) fn check(model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    let passed_over = ["ssm_in.bias", "ssm_out.bias", "_exps.bias", "_shexp.bias", "ffn_gate_inp.bias"];
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
    let config = model.config;
    let Space { heads, head_dim, groups, state, taps } = Space::read(config)?;
    let inner = heads.saturating_mul(head_dim);
    let channels = groups.saturating_mul(state).saturating_mul(2).saturating_add(inner);
    let size = |key: &str| config.usize_or(key, 0);
    let dim = size("head_dim")?;
    let (queries, shared) =
        (size("num_attention_heads")?.saturating_mul(dim), size("num_key_value_heads")?.saturating_mul(dim));
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
