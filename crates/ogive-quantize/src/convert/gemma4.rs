//! Gemma 4 as GGUF has it: two kinds of heads, the layers that share keys by their number, and the pairs that do not turn by factors of
//! frequencies so large that they stand still.
//!
//! A checkpoint that also sees and hears gives its text's part. What layers have that share another's keys, and the class passes over, is left
//! out.

use super::settings::whole;
use super::{Keys, Model, layer_types, refuse, tensors::layer};
use crate::{Error, Result, input::Tensor};
use ogive_tensor::{Config, HostWeight};
use serde_json::json;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "gemma4";

const KINDS: [&str; 2] = ["sliding_attention", "full_attention"];

/// What stands still is divided by this, as llama.cpp's converter has it.
const STILL: f32 = 1e30;

/// Whether it is one.
pub(super) fn is(model: &Model<'_>) -> bool {
    model.architecture == ARCHITECTURE
}

/// Says in the settings what the class takes for granted, and no more than counts of what they say.
pub(super) fn settled(class: &str, mut config: Config) -> Result<Config> {
    if !class.starts_with("Gemma4") {
        return Ok(config);
    }
    if config.has("per_layer_config") {
        return refuse(
            "per_layer_config",
            "it has more than the sizes of heads of all layers without a window",
        );
    }
    let n = config.usize("num_hidden_layers")?;
    let one = config.bool_or("attention_k_eq_v", false)?;
    let wide =
        config.bool_or("use_double_wide_mlp", false)? && config.usize_or("num_kv_shared_layers", 0)? > 0;
    let Some(settings) = config.0.as_object_mut() else { return Ok(config) };
    // Of images, which a text has none of.
    if settings.get("use_bidirectional_attention").is_some_and(|of| *of == "vision") {
        settings.remove("use_bidirectional_attention");
    }
    if !one {
        settings.remove("num_global_key_value_heads");
    }
    settings.insert("use_double_wide_mlp".into(), wide.into());
    if settings.get("layer_types").is_none_or(|types| types.is_null()) && n <= 10_000 {
        let kind = |i: usize| KINDS[usize::from((i + 1).is_multiple_of(6) || i + 1 == n)];
        settings.insert("layer_types".into(), (0..n).map(kind).collect());
    }
    let turns =
        ["rope_theta", "rope_scaling"].iter().any(|key| settings.get(*key).is_some_and(|v| !v.is_null()));
    let rope = [
        ("rope_theta", json!(1e6)),
        ("rope_local_base_freq", json!(1e4)),
        ("rope_scaling", json!({"rope_type": "proportional", "partial_rotary_factor": 0.25})),
    ];
    let usual = [
        ("num_attention_heads", json!(8)),
        ("num_key_value_heads", json!(4)),
        ("head_dim", json!(256)),
        ("global_head_dim", json!(512)),
        ("hidden_size_per_layer_input", json!(256)),
        ("num_kv_shared_layers", json!(0)),
        ("sliding_window", json!(512)),
    ];
    config.fill(usual.into_iter().chain(rope.into_iter().filter(|_| !turns)));
    Ok(config)
}

/// What settings say of layers.
struct Layers {
    /// Whether each has a window.
    slides: Vec<bool>,
    /// The first that shares another's keys.
    sharing_from: usize,
    /// Whether keys are values where there is no window.
    one: bool,
    /// Elements of a head, with a window and without, and heads of keys.
    dims: [usize; 2],
    key_heads: [usize; 2],
}

impl Layers {
    fn read(config: &Config) -> Result<Self> {
        let types = layer_types(config, &KINDS)?.unwrap_or_default();
        let slides: Vec<bool> = types.iter().map(|kind| *kind == KINDS[0]).collect();
        if slides.last() == Some(&true) {
            return refuse(
                "layer_types",
                "the last layer has a window, which transformers does not obey and llama.cpp does",
            );
        }
        let shared = config.usize("num_kv_shared_layers")?;
        let Some(sharing_from) = slides.len().checked_sub(shared) else {
            return refuse("num_kv_shared_layers", format!("it is {shared}, of {} layers", slides.len()));
        };
        // By this readers of GGUF know whose keys are shared.
        if shared > 0 && !slides[..sharing_from].ends_with(&[true, false]) {
            let why = "the layers before those that share keys are not one with a window and one without, as readers of GGUF have it";
            return refuse("num_kv_shared_layers", why);
        }
        let one = config.bool_or("attention_k_eq_v", false)?;
        let keys = config.usize("num_key_value_heads")?;
        let of_full = config.usize_or("num_global_key_value_heads", keys)?;
        let dims = [config.usize("head_dim")?, config.usize("global_head_dim")?];
        Ok(Self { slides, sharing_from, one, dims, key_heads: [keys, of_full] })
    }

    fn kind(&self, layer: usize) -> usize {
        usize::from(!self.slides.get(layer).copied().unwrap_or(false))
    }
}

/// What a layer has that others have not; nothing of another architecture.
pub(super) fn kinds(model: &Model<'_>) -> Result<impl Fn(u64) -> Option<&'static str>> {
    let layers = if is(model) { Some(Layers::read(model.config)?) } else { None };
    Ok(move |layer: u64| {
        let (layers, layer) = (layers.as_ref()?, layer as usize);
        Some(match (layer >= layers.sharing_from, layers.one && layers.kind(layer) == 1) {
            (true, _) => "sharing",
            (false, true) => "of keys",
            (false, false) => "of its own",
        })
    })
}

/// Whether a tensor is of no part that GGUF has, or of none that the class has.
pub(super) fn is_beside(model: &Model<'_>, name: &str) -> Result<bool> {
    const SENSES: [&str; 3] = ["audio_tower.", "embed_vision.", "embed_audio."];
    const KEYS: [&str; 4] = ["k_proj.", "v_proj.", "k_norm.", "v_norm."];
    if !is(model) {
        return Ok(false);
    }
    let bare = name.strip_prefix("model.").unwrap_or(name);
    let of_layer = bare.strip_prefix("layers.").and_then(|rest| rest.split_once(".self_attn."));
    let unread = match of_layer.and_then(|(layer, leaf)| Some((layer.parse::<usize>().ok()?, leaf))) {
        Some((layer, leaf)) if KEYS.iter().any(|part| leaf.starts_with(part)) => {
            let layers = Layers::read(model.config)?;
            let of_keys = layers.one && layers.kind(layer) == 1 && leaf.starts_with("v_proj.");
            layer >= layers.sharing_from || of_keys
        }
        _ => false,
    };
    Ok(unread || SENSES.iter().any(|part| bare.starts_with(part)))
}

/// Sets what this architecture has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    let layers = Layers::read(config)?;
    if config.at("rope_scaling").opt_str("rope_type")? != Some("proportional") {
        let why = "readers of GGUF want factors of frequencies for layers without a window, as `proportional` has them";
        return refuse("rope_scaling", why);
    }
    let of_each = |of: &dyn Fn(usize) -> u32| (0..layers.slides.len()).map(of).collect::<Vec<u32>>();
    for (key, setting, dim) in [("", "global_head_dim", layers.dims[1]), ("_swa", "head_dim", layers.dims[0])]
    {
        for name in ["attention.key_length", "attention.value_length", "rope.dimension_count"] {
            keys.set(&format!("{name}{key}"), whole(setting, dim)?);
        }
    }
    let [local, full] = layers.key_heads.map(|heads| whole("num_key_value_heads", heads));
    let key_heads = [local?, full?];
    if key_heads[0] != key_heads[1] {
        keys.set("attention.head_count_kv", of_each(&|i| key_heads[layers.kind(i)]));
    }
    let width = whole("intermediate_size", config.usize("intermediate_size")?)?;
    if config.bool_or("use_double_wide_mlp", false)? {
        let twice = whole("intermediate_size", config.usize("intermediate_size")?.saturating_mul(2))?;
        keys.set("feed_forward_length", of_each(&|i| if i < layers.sharing_from { width } else { twice }));
    }
    for (key, setting) in [
        ("attention.shared_kv_layers", "num_kv_shared_layers"),
        ("embedding_length_per_layer_input", "hidden_size_per_layer_input"),
    ] {
        keys.set(key, whole(setting, config.usize(setting)?)?);
    }
    if config.bool_or("enable_moe_block", false)? {
        keys.set("expert_used_count", whole("top_k_experts", config.usize("top_k_experts")?)?);
    }
    keys.set("attention.sliding_window_pattern", layers.slides);
    Ok(())
}

/// Factors of the frequencies of heads that see all: those of pairs that do not turn are so large that nothing does.
pub(super) fn factors(config: &Config) -> Result<Vec<HostWeight>> {
    let (dim, scaling) = (config.usize("global_head_dim")?, config.at("rope_scaling"));
    let part = config.opt_f32("partial_rotary_factor")?.or(scaling.opt_f32("partial_rotary_factor")?);
    let (part, factor) = (part.unwrap_or(1.0), scaling.f32_or("factor", 1.0)?);
    if dim > 1 << 16 || !(factor > 0.0 && factor.is_finite()) || !(0.0..=1.0).contains(&part) {
        return refuse("rope_scaling", "its numbers make no sense");
    }
    let turning = super::settings::turned(dim, part) / 2;
    let factors: Vec<f32> = (0..dim / 2).map(|pair| if pair < turning { factor } else { STILL }).collect();
    Ok(vec![HostWeight::from_f32("rope_freqs.weight", [1, 1, factors.len()], &factors)?])
}

/// Refuses tensors that the file's readers do not know, and those of other sizes than the settings say, by which they go.
pub(super) fn check(model: &Model<'_>, all: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    let (config, layers) = (model.config, Layers::read(model.config)?);
    let heads = config.usize("num_attention_heads")?;
    let (width, experts) = (config.usize("intermediate_size")?, config.usize_or("num_experts", 0)?);
    let wide = if config.bool_or("use_double_wide_mlp", false)? { 2 } else { 1 };
    let (own, count) = (config.usize("hidden_size_per_layer_input")?, layers.slides.len());
    let rows = |name: &str| all.iter().find(|t| t.name == name).and_then(|t| t.dims.get(1).copied());
    if let Some(table) =
        rows("per_layer_token_embd.weight").filter(|table| Some(*table) != rows("token_embd.weight"))
    {
        let why = format!("it is {table}, and readers of GGUF want a row for each token");
        return refuse("vocab_size_per_layer_input", why);
    }
    for t in all {
        if t.name.starts_with("blk.") && t.name.ends_with(".bias") {
            let why = "it is one of the biases of attention, which readers of GGUF do not know of this architecture";
            return Err(Error::convert(format!("the tensor {}", t.name), why));
        }
        let (at, leaf) = match layer(&t.name) {
            Some(at) => (at as usize, t.name.splitn(3, '.').nth(2).unwrap_or_default()),
            None => (0, &*t.name),
        };
        let dim = layers.dims[layers.kind(at)];
        let (queries, shared) =
            (heads.saturating_mul(dim), layers.key_heads[layers.kind(at)].saturating_mul(dim));
        let width = if at >= layers.sharing_from { width.saturating_mul(wide) } else { width };
        let (dimension, wanted) = match leaf {
            "attn_q.weight" => (1, queries),
            "attn_k.weight" | "attn_v.weight" => (1, shared),
            "attn_output.weight" => (0, queries),
            "ffn_gate.weight" | "ffn_up.weight" => (1, width),
            "ffn_down.weight" => (0, width),
            "inp_gate.weight" => (1, own),
            "per_layer_token_embd.weight" => (0, own.saturating_mul(count)),
            "per_layer_model_proj.weight" => (1, own.saturating_mul(count)),
            "ffn_gate_up_exps.weight" | "ffn_down_exps.weight" => (2, experts),
            _ => continue,
        };
        let found = t.dims.get(dimension).copied().unwrap_or(1);
        if found != wanted as u64 {
            let why = format!("{found} in place of {wanted}; do weights and config.json belong together?");
            return Err(Error::convert(format!("the tensor {}", t.name), why));
        }
    }
    Ok(())
}
