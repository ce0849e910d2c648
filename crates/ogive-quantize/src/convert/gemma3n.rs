//! Gemma 3n as GGUF has it: matrices between its streams stacked, and what MLPs cut off counted in standard deviations.
//!
//! A checkpoint that also sees and hears gives its text's part, and of the table of tokens, and of a head, those that layers have inputs for; what stands
//! behind are tokens of images and sounds. llama.cpp takes for granted what the keys say of streams, widths and cuts, as they are in the two released models.

use super::settings::whole;
use super::tensors::{Part, fit, of_one};
use super::{Keys, Model, layer_types, refuse};
use crate::{Error, Result, input::Tensor};
use ogive_tensor::{Config, F32, HostWeight, WeightInfo, normal};
use ogive_weights::Change;
use serde_json::{Value, json};

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "gemma3n";

const KINDS: [&str; 2] = ["sliding_attention", "full_attention"];

/// Where widths of MLPs are kept that are not all the same.
const WIDTHS: &str = "intermediate_sizes";

/// Whether it is one.
pub(super) fn is(model: &Model<'_>) -> bool {
    model.architecture == ARCHITECTURE
}

/// Says in the settings what the class takes for granted.
pub(super) fn settled(class: &str, mut config: Config) -> Result<Config> {
    if !class.starts_with("Gemma3n") {
        return Ok(config);
    }
    let n = config.usize("num_hidden_layers")?;
    let Some(settings) = config.0.as_object_mut() else { return Ok(config) };
    settings.entry("final_logit_softcapping").or_insert(json!(30.0));
    settings.entry("altup_coef_clip").or_insert(json!(120.0));
    let few = n.min(10_000);
    let kind = |i: usize| KINDS[usize::from((i + 1).is_multiple_of(5))];
    let sparse = |i: usize| if n > 10 && i < 10 { 0.95 } else { 0.0 };
    let usual = [
        ("num_attention_heads", json!(8)),
        ("num_key_value_heads", json!(2)),
        ("head_dim", json!(256)),
        ("num_kv_shared_layers", json!(15)),
        ("hidden_size_per_layer_input", json!(256)),
        ("vocab_size_per_layer_input", json!(262_144)),
        ("sliding_window", json!(512)),
        ("rope_theta", json!(1e6)),
        ("rope_local_base_freq", json!(1e4)),
        ("rms_norm_eps", json!(1e-6)),
        ("altup_num_inputs", json!(4)),
        ("altup_active_idx", json!(0)),
        ("layer_types", (0..few).map(kind).collect()),
        ("activation_sparsity_pattern", (0..few).map(sparse).collect()),
    ];
    config.fill(usual);
    let Some(settings) = config.0.as_object_mut() else { return Ok(config) };
    if let Some(Value::Array(widths)) = settings.get("intermediate_size").cloned() {
        settings.remove("intermediate_size");
        match widths.first() {
            Some(first) if widths.len() == n && widths.iter().all(|width| width == first) => {
                settings.insert("intermediate_size".into(), first.clone());
            }
            _ => _ = settings.insert(WIDTHS.into(), widths.into()),
        }
    }
    Ok(config)
}

/// What stays of the table of tokens and of a head, and of numbers that are clipped whenever the model runs; nothing of another architecture.
pub(super) fn parts(model: &Model<'_>, name: &str) -> Result<Option<Vec<Part>>> {
    if !is(model) {
        return Ok(None);
    }
    let change = if ["model.embed_tokens.weight", "lm_head.weight"].contains(&name) {
        first_rows(model.config.usize("vocab_size_per_layer_input")?)
    } else if name.ends_with(".altup.correction_coefs.weight") && model.config.has("altup_coef_clip") {
        let clip = model.config.f32_or("altup_coef_clip", 120.0)?;
        if clip.is_nan() || clip < 0.0 {
            return refuse("altup_coef_clip", format!("it is {clip}, so that nothing is within it"));
        }
        clipped(clip)
    } else {
        return Ok(None);
    };
    Ok(model.translation.gguf_name(name).map(|(to, _)| vec![(to, Some(change))]))
}

fn misfit() -> ogive_tensor::Error {
    ogive_tensor::Error::invalid("gemma3n", "it is no matrix with bytes")
}

fn first_rows(most: usize) -> Change {
    let shape =
        move |[matrices, rows, cols]: [usize; 3]| (matrices == 1).then_some([1, rows.min(most), cols]);
    of_one(misfit, shape, |w, shape| w.rows(0..shape[1]))
}

fn clipped(clip: f32) -> Change {
    Change::new(
        |of, _| of.first().map(|w| WeightInfo::new(&*w.name, w.shape, &F32)).ok_or_else(misfit),
        move |of, _| {
            let w = of.first().filter(|w| !w.bytes.is_empty()).ok_or_else(misfit)?;
            let values: Vec<f32> = w.to_vec().iter().map(|v| v.clamp(-clip, clip)).collect();
            HostWeight::from_f32(&*w.name, w.shape, &values)
        },
    )
}

/// GGUF's name of the stack that a matrix between streams belongs to, and which of them it is.
pub(super) fn stacked(model: &Model<'_>, name: &str) -> Option<(String, u64)> {
    let (place, leaf) = name.strip_suffix(".weight")?.rsplit_once('.')?;
    let number = leaf.parse().ok().filter(|_| is(model))?;
    let (stack, change) = model.translation.gguf_name(&format!("{place}.weight"))?;
    change.is_none().then_some((stack, number))
}

/// How many matrices a stack between streams has; nothing of another.
pub(super) fn in_stack(model: &Model<'_>, stack: &str) -> Result<Option<usize>> {
    if !is(model) || !stack.starts_with("altup_") {
        return Ok(None);
    }
    Ok(Some(model.config.usize("altup_num_inputs")?.saturating_sub(1)))
}

/// The class's name for a tensor, also of a text by itself as transformers 4.57 saves it: with `model.language_model` in place of each `model`.
pub(super) fn own_name(model: &Model<'_>, name: &str) -> Option<String> {
    let rest = name.strip_prefix("model.language_model.").filter(|_| is(model))?;
    Some(format!("model.{}", rest.replace("per_layer_model.language_model_", "per_layer_model_")))
}

/// Whether a tensor is of what sees and hears.
pub(super) fn is_beside(model: &Model<'_>, name: &str) -> bool {
    const SENSES: [&str; 4] = ["vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."];
    let bare = name.strip_prefix("model.").unwrap_or(name);
    is(model) && SENSES.iter().any(|part| bare.starts_with(part))
}

/// Sets what this architecture has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    if !config.bool_or("altup_correct_scale", true)? {
        return refuse("altup_correct_scale", "readers of GGUF want streams multiplied by it");
    }
    let (streams, active) = (config.usize("altup_num_inputs")?, config.usize("altup_active_idx")?);
    if active >= streams {
        return refuse("altup_active_idx", format!("it is {active}, of {streams} streams"));
    }
    let types = layer_types(config, &KINDS)?.unwrap_or_default();
    let slides: Vec<bool> = types.iter().map(|kind| *kind == KINDS[0]).collect();
    let shared = config.usize("num_kv_shared_layers")?;
    let Some(own) = slides.len().checked_sub(shared) else {
        return refuse("num_kv_shared_layers", format!("it is {shared}, of {} layers", slides.len()));
    };
    // By this readers of GGUF know whose keys are shared.
    if shared > 0 && !slides[..own].ends_with(&[true, false]) {
        let why = "the layers before those that share keys are not one with a window and one without, as readers of GGUF have it";
        return refuse("num_kv_shared_layers", why);
    }
    keys.set("attention.sliding_window_pattern", slides.clone());
    for (key, setting) in [
        ("attention.shared_kv_layers", "num_kv_shared_layers"),
        ("embedding_length_per_layer_input", "hidden_size_per_layer_input"),
        ("altup.num_inputs", "altup_num_inputs"),
        ("altup.active_idx", "altup_active_idx"),
    ] {
        keys.set(key, whole(setting, config.usize(setting)?)?);
    }
    if let Some(widths) = config.opt_usizes(WIDTHS)? {
        if widths.len() != slides.len() {
            return refuse(
                "intermediate_size",
                format!("{} widths for {} layers", widths.len(), slides.len()),
            );
        }
        let widths: Vec<u32> =
            widths.into_iter().map(|n| whole("intermediate_size", n)).collect::<Result<_>>()?;
        keys.set("feed_forward_length", widths);
    }
    let parts = config.opt_f32s("activation_sparsity_pattern")?.unwrap_or_default();
    if parts.len() != slides.len() || parts.iter().any(|part| !(0.0..1.0).contains(part)) {
        let why = format!("it should have a part below 1 for each of {} layers", slides.len());
        return refuse("activation_sparsity_pattern", why);
    }
    // Nothing is cut off infinitely far below the mean.
    let scales: Vec<f32> = parts.iter().map(|part| normal::quantile(f64::from(*part)) as f32).collect();
    keys.set("activation_sparsity_scale", scales);
    Ok(())
}

/// Refuses tensors of other sizes than the settings say, by which readers go.
pub(super) fn check(model: &Model<'_>, all: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    let config = model.config;
    let (heads, keys) = (config.usize("num_attention_heads")?, config.usize("num_key_value_heads")?);
    let (dim, own, count) = (
        config.usize("head_dim")?,
        config.usize("hidden_size_per_layer_input")?,
        config.usize("num_hidden_layers")?,
    );
    let (streams, size) = (config.usize("altup_num_inputs")?, config.usize("hidden_size")?);
    let (queries, shared, of_all) =
        (heads.saturating_mul(dim), keys.saturating_mul(dim), own.saturating_mul(count));
    fit(
        all,
        &[
            ("attn_q.weight", 1, queries),
            ("attn_k.weight", 1, shared),
            ("attn_v.weight", 1, shared),
            ("attn_output.weight", 0, queries),
            ("inp_gate.weight", 1, own),
            ("per_layer_token_embd.weight", 0, of_all),
            ("per_layer_model_proj.weight", 1, of_all),
            ("altup_router.weight", 1, streams),
            ("altup_correct_coef.weight", 1, streams),
            ("altup_predict_coef.weight", 1, streams.saturating_mul(streams)),
            ("altup_proj.weight", 1, size),
            ("altup_unembd_proj.weight", 1, size),
        ],
    )?;
    let rows = |name: &str| all.iter().find(|t| t.name == name).and_then(|t| t.dims.get(1).copied());
    let (table, tokens) = (rows("per_layer_token_embd.weight"), rows("token_embd.weight"));
    if table != tokens {
        let of = |rows: Option<u64>| rows.map_or("none".to_owned(), |rows| rows.to_string());
        let why = format!(
            "layers have inputs for {} tokens, of {}; readers of GGUF want as many",
            of(table),
            of(tokens)
        );
        return refuse("vocab_size_per_layer_input", why);
    }
    if let Some(head) = rows("output.weight").filter(|head| Some(*head) != tokens) {
        let why = format!(
            "it is for {head} tokens, and the text has others; do weights and config.json belong together?"
        );
        return Err(Error::convert("the tensor output.weight", why));
    }
    let missing = [
        "altup_proj.weight",
        "altup_unembd_proj.weight",
        "per_layer_model_proj.weight",
        "per_layer_proj_norm.weight",
    ];
    if let Some(name) = missing.into_iter().find(|name| all.iter().all(|t| t.name != *name)) {
        return Err(Error::convert(
            format!("the tensor {name}"),
            "the folder has none that becomes it; is the download complete?",
        ));
    }
    if let Some(t) = all.iter().find(|t| t.name.starts_with("blk.") && t.name.ends_with(".bias")) {
        let why =
            "it is one of the biases of attention, which readers of GGUF do not know of this architecture";
        return Err(Error::convert(format!("the tensor {}", t.name), why));
    }
    Ok(())
}
