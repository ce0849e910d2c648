//! `llama4`: Llama 4, whose q and k rows are in Hugging Face's order. That each fourth layer sees all and turns nothing, how long chunks are, how queries grow and
//! which models norm them stands in no file: llama.cpp has the numbers of those that are published.

use crate::gguf::settings::{MOST_LAYERS, copy, only_sigmoids, whole};
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::json;

/// By so many experts llama.cpp tells the larger model (Maverick), which norms no queries and keys.
const OF_THE_LARGER: u64 = 128;

pub(super) fn llama4() -> Translation {
    let parts = ["gate", "up", "down"];
    let names = parts.iter().flat_map(|part| {
        let place = "model.layers.{}.feed_forward";
        [("", ""), ("_exps", ".experts"), ("_shexp", ".shared_expert")]
            .map(|(end, inner)| (format!("blk.{{}}.ffn_{part}{end}"), format!("{place}{inner}.{part}_proj")))
    });
    names
        .fold(Translation::decoder("llama4", "Llama4ForCausalLM"), |t, (from, to)| t.rename(&from, &to))
        .rename("blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.router")
        .settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    only_sigmoids(header)?;
    const SCALE: &str = "expert_weights_scale";
    if header.f32(SCALE)?.is_some_and(|scale| scale != 0.0 && scale != 1.0) {
        let why = "shares of experts are scaled, which is not known of this architecture";
        return Err(Error::unsupported(SCALE, why));
    }
    const WINDOW: &str = "attention.sliding_window";
    if header.usize(WINDOW)? == Some(0) {
        let why = "it is 0, by which layers see all and positions turn (MobileLLM), and readers differ in what that is";
        return Err(Error::unsupported(WINDOW, why));
    }
    const PATTERN: &str = "attention.sliding_window_pattern";
    if header.value(PATTERN)?.is_some_and(|every| every != 4) {
        let why = "other layers than each fourth see all, which is not known of this architecture";
        return Err(Error::unsupported(PATTERN, why));
    }
    settings.remove("sliding_window");
    copy(
        header,
        settings,
        &[
            ("expert_count", "num_local_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("feed_forward_length", "intermediate_size_mlp"),
            ("expert_feed_forward_length", "intermediate_size"),
        ],
    )?;
    let layers = whole(settings, "num_hidden_layers").unwrap_or(0).min(MOST_LAYERS);
    let step = header.usize("interleave_moe_layer_step")?.unwrap_or(0) as u64;
    let experts = whole(settings, "num_local_experts").unwrap_or(0);
    let turns = || (1..=layers).map(|i: u64| u64::from(!i.is_multiple_of(4)));
    let kind = |turns: u64| if turns == 1 { "chunked_attention" } else { "full_attention" };
    for (key, value) in [
        ("moe_layers", (1..=layers).filter(|i| step > 0 && i.is_multiple_of(step)).map(|i| i - 1).collect()),
        ("no_rope_layers", turns().collect()),
        ("layer_types", turns().map(kind).collect()),
        ("attention_chunk_size", json!(8192)),
        ("attn_temperature_tuning", json!(true)),
        ("floor_scale", json!(8192)),
        ("attn_scale", json!(0.1)),
        ("use_qk_norm", json!(experts != OF_THE_LARGER)),
    ] {
        settings.insert(key.into(), value);
    }
    Ok(())
}
