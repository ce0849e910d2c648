//! Nemotron-H as GGUF has it: what each block is, by the numbers of its key heads and of its MLP's hidden elements.
//!
//! Readers of GGUF take what the class may have otherwise than NVIDIA's models for what those have. Mixtures, another architecture there, are
//! not converted.

use super::settings::{set_vocab_size, whole};
use super::space::{self, Space};
use super::{Keys, Model, layer_types, refuse, tensors};
use crate::{Result, input::Tensor};
use ogive_tensor::Config;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "nemotron_h";

const CLASS: &str = "NemotronHForCausalLM";

/// What blocks are, as `ogive-weights` calls it.
const KINDS: [&str; 3] = ["mamba", "attention", "mlp"];

/// What stands in the settings of all, and counts for mixtures.
const OF_MIXTURES: [&str; 3] = ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"];

/// Whether it is one.
pub(super) fn is(model: &Model<'_>) -> bool {
    model.class == CLASS
}

/// The settings without those of mixtures, by which readers would take it for one.
pub(super) fn settled(class: &str, mut config: Config) -> Config {
    if class == CLASS
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

/// NVIDIA's name for a tensor that transformers 5 calls otherwise.
pub(super) fn own_name(model: &Model<'_>, name: &str) -> Option<String> {
    let rest = name.strip_prefix("model.").filter(|_| is(model))?;
    Some(format!("backbone.{rest}"))
}

/// Sets what this architecture has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    refuse_what_has_no_key(config)?;
    let heads = whole("num_key_value_heads", config.usize("num_key_value_heads")?)?;
    let width = whole("intermediate_size", config.usize("intermediate_size")?)?;
    // Their number was compared with that of the tensors.
    let kinds = kinds(model)?;
    let where_it_is = |wanted: &str, n: u32| -> Vec<u32> {
        kinds.iter().map(|kind| if *kind == wanted { n } else { 0 }).collect()
    };
    keys.set("attention.head_count_kv", where_it_is("attention", heads));
    keys.set("feed_forward_length", where_it_is("mlp", width));
    keys.set("rope.scaling.finetuned", false);
    set_vocab_size(keys, config)?;
    sizes(config)?.set(keys)
}

/// Settings that change what a model computes and that GGUF cannot say of this architecture.
fn refuse_what_has_no_key(config: &Config) -> Result<()> {
    for (setting, granted) in [("mlp_hidden_act", "relu2"), ("mamba_hidden_act", "silu")] {
        if config.opt_str(setting)?.is_some_and(|own| own != granted) {
            return refuse(setting, format!("readers of GGUF take `{granted}` for granted"));
        }
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
    space::biases(tensors, &["ssm_in.bias", "ssm_out.bias"])?;
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
    ];
    tensors::fit(tensors, &sizes)
}
