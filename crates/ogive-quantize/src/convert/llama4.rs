//! Llama 4 as GGUF has it: by the layers with experts, each so-manyth, and little else of what the class has settings for, as readers have the numbers of the models
//! that are published. Experts have rows for columns there, and gate and up apart.

use super::settings::whole;
use super::{Keys, Model, granite, refuse, tensors::Part, tensors::of_one};
use crate::{Result, input::Tensor};
use ogive_tensor::Config;
use ogive_weights::Change;
use serde_json::{Value, json};

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "llama4";

/// More layers than any model has; it bounds what a false configuration can make us list.
const MOST_LAYERS: usize = 10_000;

/// Whether it is one.
fn is(model: &Model<'_>) -> bool {
    model.architecture == ARCHITECTURE
}

/// Says in the settings what the class takes for granted, layer by layer.
pub(super) fn settled(class: &str, mut config: Config) -> Result<Config> {
    if !class.starts_with("Llama4") {
        return Ok(config);
    }
    let n = config.usize("num_hidden_layers")?;
    if n > MOST_LAYERS {
        return refuse("num_hidden_layers", format!("{n} layers are more than any model has"));
    }
    let (every, step) =
        (config.usize_or("no_rope_layer_interval", 4)?, config.usize_or("interleave_moe_layer_step", 1)?);
    let turns = config.opt_usizes("no_rope_layers")?.filter(|said| !said.is_empty());
    if turns.is_none() && every == 0 || !config.has("moe_layers") && step == 0 {
        return refuse(
            "no_rope_layer_interval",
            "it, or interleave_moe_layer_step, is 0: no layer is each 0th",
        );
    }
    let turns = turns.unwrap_or_else(|| (1..=n).map(|i| usize::from(!i.is_multiple_of(every))).collect());
    let Some(settings) = config.0.as_object_mut() else { return Ok(config) };
    for switch in ["attn_temperature_tuning", "use_qk_norm"] {
        // Of a number only counts whether it is one; `null` is no default, and off.
        let on = match settings.get(switch) {
            None => json!(true),
            Some(Value::Null) => json!(false),
            Some(said) => said.as_u64().map_or_else(|| said.clone(), |number| json!(number > 0)),
        };
        settings.insert(switch.into(), on);
    }
    let kind = |turns: &usize| if *turns == 0 { "full_attention" } else { "chunked_attention" };
    let sparse = || (1..=n).filter(|i| i.is_multiple_of(step.max(1))).map(|i| i - 1).collect::<Vec<_>>();
    // Said for each layer: the list counts.
    settings.insert("no_rope_layers".into(), json!(turns));
    settings.entry("attention_chunk_size").or_insert(json!(8192));
    config.fill([("layer_types", turns.iter().map(kind).collect()), ("moe_layers", json!(sparse()))]);
    Ok(config)
}

/// Whether a layer has experts; no layer of another architecture.
pub(super) fn sparse(model: &Model<'_>) -> Result<impl Fn(u64) -> bool> {
    let layers =
        if is(model) { model.config.opt_usizes("moe_layers")?.unwrap_or_default() } else { Vec::new() };
    Ok(move |layer: u64| layers.contains(&(layer as usize)))
}

/// Sets what this architecture has besides. What readers have numbers of their own for is compared when the file is read back.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>, head_dim: usize) -> Result<()> {
    let (config, n) = (model.config, model.config.usize("num_hidden_layers")?);
    let layers = config.opt_usizes("moe_layers")?.unwrap_or_default();
    let step = layers.first().map_or(0, |first| first.saturating_add(1));
    let each = |i: &usize| (i + 1).checked_rem(step) == Some(0);
    if step == 0 || layers != (0..n).filter(each).collect::<Vec<_>>() {
        return refuse(
            "moe_layers",
            "readers of GGUF want experts in each so-manyth layer of this architecture",
        );
    }
    if config.0.get("attention_chunk_size") == Some(&Value::Null) {
        return refuse("attention_chunk_size", "it is null, and readers of GGUF have chunks");
    }
    for (key, value) in [
        ("interleave_moe_layer_step", step),
        ("feed_forward_length", config.usize("intermediate_size_mlp")?),
        ("expert_feed_forward_length", config.usize("intermediate_size")?),
        ("rope.dimension_count", head_dim),
    ] {
        keys.set(key, whole(key, value)?);
    }
    super::settings::set_vocab_size(keys, config)
}

/// GGUF's names of what stacked experts become, and how.
pub(super) fn parts(model: &Model<'_>, name: &str) -> Option<Vec<Part>> {
    let own = is(model).then_some(name)?;
    let named = |at: &str, leaf: &str| Some(model.translation.gguf_name(&format!("{at}.{leaf}.weight"))?.0);
    if let Some(at) = own.strip_suffix(".gate_up_proj") {
        let halves = [("gate_proj", 0), ("up_proj", 1)];
        return halves
            .into_iter()
            .map(|(leaf, half)| Some((named(at, leaf)?, Some(turned_half(half)))))
            .collect();
    }
    let at = own.strip_suffix(".experts.down_proj")?;
    Some(vec![(named(&format!("{at}.experts"), "down_proj")?, Some(Change::transposed()))])
}

/// Of each expert's columns the first half as rows, or the second.
fn turned_half(which: usize) -> Change {
    let misfit = || ogive_tensor::Error::invalid("gate_up_proj", "its experts have no two halves");
    let shape =
        |[experts, rows, cols]: [usize; 3]| cols.is_multiple_of(2).then_some([experts, cols / 2, rows]);
    of_one(misfit, shape, move |w, _| granite::half_of(&w.transposed()?, which))
}

/// Refuses tensors of other sizes than the settings say, by which the file's readers go.
pub(super) fn check(model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    let (config, head_dim) = (model.config, model.config.usize_or("head_dim", 128)?);
    let queries = config.usize("num_attention_heads")?.saturating_mul(head_dim);
    let shared = config.usize("num_key_value_heads")?.saturating_mul(head_dim);
    let (wide, narrow) = (config.usize("intermediate_size_mlp")?, config.usize("intermediate_size")?);
    let sizes = [
        (".attn_q.weight", 1, queries),
        (".attn_k.weight", 1, shared),
        (".attn_v.weight", 1, shared),
        (".attn_output.weight", 0, queries),
        (".ffn_gate.weight", 1, wide),
        (".ffn_up.weight", 1, wide),
        (".ffn_down.weight", 0, wide),
        (".ffn_gate_exps.weight", 1, narrow),
        (".ffn_up_exps.weight", 1, narrow),
        (".ffn_down_exps.weight", 0, narrow),
        (".ffn_gate_shexp.weight", 1, narrow),
        (".ffn_up_shexp.weight", 1, narrow),
        (".ffn_down_shexp.weight", 0, narrow),
        ("_exps.weight", 2, config.usize("num_local_experts")?),
    ];
    super::tensors::fit(tensors, &sizes)
}
