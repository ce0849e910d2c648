//! `gemma3n`: norms as the factors they are, inputs of layers, streams beside each other, and what MLPs cut off.
//!
//! The file counts a cut in standard deviations, and the class in the part that is cut; one is made the other here. What a file does not say has
//! the number of the two released models, as in llama.cpp; but for RoPE's base, which is 10,000 there where the key is missing, and for the window, which it
//! requires. Its converter writes both.

use crate::gguf::settings::{copy, layer_types, of_each_layer, whole};
use crate::gguf::{Header, Rule, Settings, Translation};
use ogive_tensor::{Error, Result, normal};
use serde_json::json;

/// How many layers store keys where the file does not say how many share them.
const STORING: u64 = 20;

pub(super) fn gemma3n() -> Translation {
    let renamed = [
        ("per_layer_token_embd", "model.embed_tokens_per_layer"),
        ("per_layer_model_proj", "model.per_layer_model_projection"),
        ("per_layer_proj_norm", "model.per_layer_projection_norm"),
        ("altup_proj", "model.altup_projections"),
        ("altup_unembd_proj", "model.altup_unembed_projections"),
        ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
        ("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"),
        ("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
        ("blk.{}.inp_gate", "model.layers.{}.per_layer_input_gate"),
        ("blk.{}.proj", "model.layers.{}.per_layer_projection"),
        ("blk.{}.post_norm", "model.layers.{}.post_per_layer_input_norm"),
        ("blk.{}.altup_router", "model.layers.{}.altup.modality_router"),
        ("blk.{}.altup_router_norm", "model.layers.{}.altup.router_norm"),
        ("blk.{}.altup_predict_coef", "model.layers.{}.altup.prediction_coefs"),
        ("blk.{}.altup_correct_coef", "model.layers.{}.altup.correction_coefs"),
        ("blk.{}.laurel_l", "model.layers.{}.laurel.linear_left"),
        ("blk.{}.laurel_r", "model.layers.{}.laurel.linear_right"),
        ("blk.{}.laurel_post_norm", "model.layers.{}.laurel.post_laurel_norm"),
    ];
    let scale = ("blk.{}.altup_correct_scale.weight", "model.layers.{}.altup.correct_output_scale");
    let t = Translation::decoder("gemma3n", "Gemma3nForCausalLM");
    let t = renamed.into_iter().fold(t, |t, (from, to)| t.rename(from, to));
    t.rule(Rule::new(scale.0, scale.1)).settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    // What the graph has, and no key says.
    settings.remove("hidden_act");
    settings.remove("attention_multiplier");
    settings.insert("hidden_activation".into(), json!("gelu_pytorch_tanh"));
    settings.entry("final_logit_softcapping").or_insert(json!(30.0));
    let layers = whole(settings, "num_hidden_layers").unwrap_or(0);
    let usual = [
        ("rope_local_base_freq", json!(10_000.0)),
        ("num_kv_shared_layers", layers.saturating_sub(STORING).into()),
        ("hidden_size_per_layer_input", json!(256)),
        ("altup_num_inputs", json!(4)),
        ("altup_active_idx", json!(0)),
    ];
    settings.extend(usual.map(|(key, value)| (key.to_owned(), value)));
    copy(
        header,
        settings,
        &[
            ("rope.freq_base_swa", "rope_local_base_freq"),
            ("attention.shared_kv_layers", "num_kv_shared_layers"),
            ("embedding_length_per_layer_input", "hidden_size_per_layer_input"),
            ("altup.num_inputs", "altup_num_inputs"),
            ("altup.active_idx", "altup_active_idx"),
        ],
    )?;
    if header.f32("rope.freq_base")?.is_none() {
        settings.insert("rope_theta".into(), json!(1_000_000.0));
    }
    layer_types(header, settings, 512, 5)?;
    // MLPs of several widths are as wide as their matrices are.
    if settings.get("intermediate_size").is_some_and(|widths| widths.is_array()) {
        of_each_layer(settings, "intermediate_size");
    }
    sparsity(header, settings)
}

/// Which part of activations is cut off, where the file says how many deviations above the mean: in layers without a cut, infinitely many below it.
fn sparsity(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    let key = format!("{}.activation_sparsity_scale", header.architecture());
    let Some(value) = header.gguf().metadata().get(&key) else { return Ok(()) };
    let scales = value.as_array().and_then(|array| array.to_f32());
    let wrong =
        || Error::invalid(&key, format!("its value {value} should be a list of numbers, one for each layer"));
    let scales = scales.filter(|scales| scales.iter().all(|scale| !scale.is_nan())).ok_or_else(wrong)?;
    let parts = scales.iter().map(|scale| json!(normal::cdf(f64::from(*scale)) as f32));
    settings.insert("activation_sparsity_pattern".into(), parts.collect());
    Ok(())
}
