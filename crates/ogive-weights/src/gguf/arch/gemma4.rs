//! `gemma4`: norms as the factors they are, two kinds of heads, and what only some of the models have: inputs of layers, layers that share keys,
//! experts.
//!
//! That keys are values where all tokens are seen is told by the values' matrices missing there. Which pairs do not turn is told by factors of
//! frequencies so large that they stand still.

use crate::gguf::settings::{copy, layer_types, of_each_layer};
use crate::gguf::{Header, Rule, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::{Value, json};

pub(super) fn gemma4() -> Translation {
    let alone = [
        ("blk.{}.layer_output_scale.weight", "model.layers.{}.layer_scalar"),
        ("blk.{}.ffn_gate_inp.scale", "model.layers.{}.router.scale"),
        ("blk.{}.ffn_down_exps.scale", "model.layers.{}.router.per_expert_scale"),
        ("blk.{}.ffn_gate_up_exps.weight", "model.layers.{}.experts.gate_up_proj"),
        ("blk.{}.ffn_gate_exps.weight", "model.layers.{}.experts.gate_proj"),
        ("blk.{}.ffn_up_exps.weight", "model.layers.{}.experts.up_proj"),
        ("blk.{}.ffn_down_exps.weight", "model.layers.{}.experts.down_proj"),
    ];
    let renamed = [
        ("per_layer_token_embd", "model.embed_tokens_per_layer"),
        ("per_layer_model_proj", "model.per_layer_model_projection"),
        ("per_layer_proj_norm", "model.per_layer_projection_norm"),
        ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
        ("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"),
        ("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
        ("blk.{}.pre_ffw_norm_2", "model.layers.{}.pre_feedforward_layernorm_2"),
        ("blk.{}.post_ffw_norm_1", "model.layers.{}.post_feedforward_layernorm_1"),
        ("blk.{}.post_ffw_norm_2", "model.layers.{}.post_feedforward_layernorm_2"),
        ("blk.{}.ffn_gate_inp", "model.layers.{}.router.proj"),
        ("blk.{}.inp_gate", "model.layers.{}.per_layer_input_gate"),
        ("blk.{}.proj", "model.layers.{}.per_layer_projection"),
        ("blk.{}.post_norm", "model.layers.{}.post_per_layer_input_norm"),
    ];
    let t = Translation::decoder("gemma4", "Gemma4ForCausalLM");
    let t = renamed.into_iter().fold(t, |t, (from, to)| t.rename(from, to));
    alone.into_iter().fold(t, |t, (from, to)| t.rule(Rule::new(from, to))).settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    // What the graph has, and no key says.
    settings.remove("hidden_act");
    settings.remove("attention_multiplier");
    settings.insert("hidden_activation".into(), json!("gelu_pytorch_tanh"));
    layer_types(header, settings, 512, 6)?;
    let slides: Vec<bool> = settings
        .get("layer_types")
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |types| types.iter().map(|kind| kind == "sliding_attention").collect());
    sizes_of_heads(header, settings)?;
    key_heads(settings, &slides)?;
    // MLPs of two widths; each is as wide as its matrices are.
    let widths = of_each_layer(settings, "intermediate_size");
    if let Some(first) = widths.first().cloned() {
        settings.insert("use_double_wide_mlp".into(), widths.iter().any(|width| *width != first).into());
        settings.insert("intermediate_size".into(), first);
    }
    let local = header.value("rope.freq_base_swa")?.unwrap_or_else(|| json!(10_000.0));
    settings.insert("rope_local_base_freq".into(), local);
    settings.insert("num_kv_shared_layers".into(), json!(0));
    settings.insert("hidden_size_per_layer_input".into(), json!(0));
    copy(
        header,
        settings,
        &[
            ("attention.shared_kv_layers", "num_kv_shared_layers"),
            ("embedding_length_per_layer_input", "hidden_size_per_layer_input"),
            ("expert_count", "num_experts"),
            ("expert_used_count", "top_k_experts"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
        ],
    )?;
    // Of layers that see all and store what they see.
    let has = |i: usize, leaf: &str| header.has_tensor(&format!("blk.{i}.attn_{leaf}.weight"));
    let full = (0..slides.len()).filter(|i| !slides[*i] && has(*i, "k"));
    let values: Vec<bool> = full.map(|i| has(i, "v")).collect();
    let lacking = values.iter().filter(|has| !**has).count();
    if lacking != 0 && lacking != values.len() {
        let why = "keys are values in some layers that see all, and not in others, which is not known";
        return Err(Error::unsupported("attn_v.weight", why));
    }
    settings.insert("attention_k_eq_v".into(), (lacking > 0).into());
    settings.insert("enable_moe_block".into(), header.has_tensor("blk.0.ffn_gate_inp.weight").into());
    Ok(())
}

/// How long heads are, with a window and without. All of a head turns, as far as factors of frequencies let it.
fn sizes_of_heads(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    for (kind, key) in [("", "global_head_dim"), ("_swa", "head_dim")] {
        let size = |name: &str| header.usize(&format!("{name}{kind}"));
        let (of_keys, of_values) = (size("attention.key_length")?, size("attention.value_length")?);
        if of_values.is_some_and(|values| Some(values) != of_keys) {
            let why = format!("values of {of_values:?} elements and keys of {of_keys:?}, which is not known");
            return Err(Error::unsupported(&format!("attention.value_length{kind}"), why));
        }
        if let (Some(turned), Some(all)) = (size("rope.dimension_count")?, of_keys)
            && turned != all
        {
            let why =
                format!("{turned} of {all} elements of a head turn, which is not known of this architecture");
            return Err(Error::unsupported(&format!("rope.dimension_count{kind}"), why));
        }
        if let Some(size) = of_keys {
            settings.insert(key.into(), size.into());
        }
    }
    settings.remove("partial_rotary_factor");
    Ok(())
}

/// How many heads keys have, with a window and without: the file has a number for each layer where it is not the same.
fn key_heads(settings: &mut Settings, slides: &[bool]) -> Result<()> {
    let counts = of_each_layer(settings, "num_key_value_heads");
    for (kind, key) in [(true, "num_key_value_heads"), (false, "num_global_key_value_heads")] {
        let mut own =
            counts.iter().zip(slides).filter(|(_, slides)| **slides == kind).map(|(count, _)| count);
        let Some(first) = own.next() else { continue };
        if let Some(other) = own.find(|count| *count != first) {
            let why =
                format!("some layers of a kind have {first} key heads and some {other}, which is not known");
            return Err(Error::unsupported("attention.head_count_kv", why));
        }
        settings.insert(key.into(), first.clone());
    }
    // Where no layer has a window, or all have one, the other number is not asked for.
    Ok(())
}
