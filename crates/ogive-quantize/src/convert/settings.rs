//! `config.json` as GGUF's keys.
//!
//! The keys are those llama.cpp's converter writes, with one more habit: what a class takes for granted where the file is
//! silent (Gemma's head size) is written down, because GGUF's readers take other things for granted.

use super::{
    Keys, Model, apertus, bamba, exaone4, falcon_h1, gemma_embedding, gemma3n, gemma4, gptneox, granite,
    hunyuan, hybrid, jamba, latent, lfm2, llama4, mamba, mamba2, mixtures, nemotron_h, phimoe, refuse,
    roberta, rope, seeing, stablelm,
};
use crate::{Error, Result};
use ogive_tensor::{Config, HostWeight};

/// Whole numbers: settings, and keys below the architecture.
const WHOLE: &[(&str, &str)] = &[
    ("num_hidden_layers", "block_count"),
    ("max_position_embeddings", "context_length"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("head_dim", "attention.value_length"),
    ("num_local_experts", "expert_count"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
];

/// Other numbers.
const REAL: &[(&str, &str)] = &[
    ("rope_theta", "rope.freq_base"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("layer_norm_epsilon", "attention.layer_norm_epsilon"),
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("norm_epsilon", "attention.layer_norm_epsilon"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
];

/// More layers than any model has; it bounds what a false configuration can make us write.
pub(super) const MOST_LAYERS: usize = 10_000;

/// From how many layers on a Command R has norms on heads.
const NORMED_FROM: usize = 64;

/// Sets the keys, and gives the factors of rotary frequencies, which GGUF keeps as tensors.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<Vec<HostWeight>> {
    let (config, architecture) = (model.config, model.architecture);
    for needed in ["num_hidden_layers", "hidden_size", "num_attention_heads"] {
        config.usize(needed)?;
    }
    refuse_what_has_no_key(model)?;
    for (setting, key) in WHOLE {
        if let Some(value) = config.opt_usize(setting)? {
            keys.set(key, whole(setting, value)?);
        }
    }
    for (setting, key) in REAL {
        if let Some(value) = config.opt_f32(setting)? {
            keys.set(key, value);
        }
    }
    let (size, heads) = (config.usize("hidden_size")?, config.usize("num_attention_heads")?);
    let gemma = architecture.starts_with("gemma");
    let usual = if gemma { 256 } else { size.checked_div(heads).unwrap_or(0) };
    let head_dim = config.usize_or("head_dim", usual)?;
    if gemma {
        keys.set("attention.key_length", whole("head_dim", head_dim)?);
        keys.set("attention.value_length", whole("head_dim", head_dim)?);
    }
    match architecture {
        "llama" => {
            set_vocab_size(keys, config)?;
            keys.set("rope.dimension_count", whole("head_dim", head_dim)?);
        }
        "phi3" | phimoe::ARCHITECTURE => {
            if architecture == phimoe::ARCHITECTURE {
                phimoe::refuse_what_has_no_key(model)?;
            }
            let part = config.f32_or("partial_rotary_factor", 1.0)?;
            keys.set("rope.dimension_count", whole("head_dim", turned(head_dim, part))?);
            let context = config.usize_or("max_position_embeddings", 4096)?;
            let original =
                rope::original(config, &config.at("rope_scaling"))?.map_or(context, |n| n as usize);
            keys.set(
                "rope.scaling.original_context_length",
                whole("original_max_position_embeddings", original)?,
            );
        }
        // Of the classes that have the setting, the one that obeys it.
        "gemma2" => {
            if let Some(cap) = config.opt_f32("attn_logit_softcapping")? {
                keys.set("attn_logit_softcapping", cap);
            }
        }
        "bert" | "nomic-bert" => encoder(keys, model, head_dim)?,
        roberta::MODERN => {
            encoder(keys, model, head_dim)?;
            roberta::set_modern(keys, model)?;
        }
        latent::ARCHITECTURE => latent::set(keys, model)?,
        hybrid::NEXT | hybrid::DENSE | hybrid::MIXTURE => {
            turning(keys, config, head_dim)?;
            hybrid::set(keys, model, head_dim)?;
        }
        seeing::QWEN2 | seeing::QWEN3 => seeing::set(keys, model)?,
        lfm2::DENSE | lfm2::MIXTURE => lfm2::set(keys, model)?,
        _ if bamba::is(model) => bamba::set(keys, model, head_dim)?,
        granite::DENSE | granite::MIXTURE | granite::HYBRID => granite::set(keys, model)?,
        nemotron_h::DENSE | nemotron_h::MIXTURE => nemotron_h::set(keys, model)?,
        llama4::ARCHITECTURE => llama4::set(keys, model, head_dim)?,
        mamba::ARCHITECTURE => mamba::set(keys, model)?,
        jamba::ARCHITECTURE => jamba::set(keys, model)?,
        gptneox::ARCHITECTURE => {
            turning(keys, config, head_dim)?;
            gptneox::set(keys, model)?;
        }
        mamba2::ARCHITECTURE => mamba2::set(keys, model)?,
        gemma3n::ARCHITECTURE => gemma3n::set(keys, model)?,
        gemma4::ARCHITECTURE => gemma4::set(keys, model)?,
        falcon_h1::ARCHITECTURE => {
            turning(keys, config, head_dim)?;
            falcon_h1::set(keys, model)?;
        }
        "glm4"
        | "chatglm"
        | "starcoder2"
        | "arcee"
        | "phi2"
        | stablelm::ARCHITECTURE
        | apertus::ARCHITECTURE
        | hunyuan::DENSE => {
            turning(keys, config, head_dim)?;
        }
        hunyuan::MIXTURE => {
            turning(keys, config, head_dim)?;
            hunyuan::set(keys, model)?;
        }
        mixtures::GLM | mixtures::DOTS | mixtures::MINIMAX => {
            turning(keys, config, head_dim)?;
            mixtures::set(keys, model)?;
        }
        mixtures::ERNIE => mixtures::set_ernie(keys, model)?,
        exaone4::ARCHITECTURE => exaone4::set(keys, model, whole("head_dim", head_dim)?)?,
        "cohere2" | "command-r" => {
            turning(keys, config, head_dim)?;
            keys.set("logit_scale", config.f32_or("logit_scale", 0.0625)?);
        }
        "gpt2" if !config.has("intermediate_size") => {
            keys.set("feed_forward_length", whole("n_embd", size.saturating_mul(4))?);
        }
        _ => {}
    }
    // Readers take silence for attention that looks back. Encoders have the key by their architecture.
    if !model.is_encoder() && !config.bool_or("is_causal", true)? {
        keys.set("attention.causal", false);
    }
    // Llama's class knows no window, and a GGUF file that names one is read as Mistral; so it is with OLMo 2 and 3. Of those that know one
    // only Qwen's can turn it off.
    let used = match model.class {
        "LlamaForCausalLM"
        | "Olmo2ForCausalLM"
        | "OlmoeForCausalLM"
        | "GraniteForCausalLM"
        | "GraniteMoeForCausalLM"
        | "GraniteMoeSharedForCausalLM"
        | "GraniteMoeHybridForCausalLM"
        | "SmolLM3ForCausalLM"
        | "GlmForCausalLM"
        | "Glm4ForCausalLM"
        | "Glm4MoeForCausalLM"
        | "MiniMaxM2ForCausalLM"
        | "SeedOssForCausalLM"
        | "Ernie4_5ForCausalLM"
        | "Ernie4_5_MoeForCausalLM"
        | "CohereForCausalLM"
        | "PhiForCausalLM"
        | "StableLmForCausalLM"
        | "ApertusForCausalLM"
        | "ArceeForCausalLM"
        | "HunYuanDenseV1ForCausalLM"
        | "HunYuanMoEV1ForCausalLM"
        | "FalconH1ForCausalLM"
        | "Lfm2ForCausalLM"
        | "Lfm2MoeForCausalLM"
        | "Llama4ForCausalLM"
        | "GPTNeoXForCausalLM"
        | "BambaForCausalLM"
        | "Dots1ForCausalLM"
        | "MambaForCausalLM"
        | "FalconMambaForCausalLM"
        | "Mamba2ForCausalLM" => false,
        _ if hybrid::is(model) => false,
        class => !class.starts_with("Qwen") || config.bool_or("use_sliding_window", true)?,
    };
    let window = config.opt_usize("sliding_window")?.filter(|_| used);
    match window {
        Some(window) => keys.set("attention.sliding_window", whole("sliding_window", window)?),
        // Silence would mean llama.cpp's own window.
        None if ["phi3", phimoe::ARCHITECTURE].contains(&architecture) => {
            keys.set("attention.sliding_window", 0_u32)
        }
        // And here none, where the class takes one for granted.
        None if ["gemma3", gemma_embedding::ARCHITECTURE].contains(&architecture) => {
            keys.set("attention.sliding_window", 4096_u32)
        }
        None => {}
    }
    if model.class == "Olmo3ForCausalLM" {
        let types = config.opt_strs("layer_types")?;
        let slides = |i: usize| {
            types
                .as_ref()
                .map_or(!(i + 1).is_multiple_of(4), |t| t.get(i).is_some_and(|t| t == "sliding_attention"))
        };
        let flags: Vec<bool> = (0..config.usize("num_hidden_layers")?.min(MOST_LAYERS)).map(slides).collect();
        keys.set("attention.sliding_window_pattern", flags);
    }
    // What layers are listed as comes before it, where a file is to say that.
    let listed = architecture == gemma_embedding::ARCHITECTURE && config.has("layer_types");
    if ["gemma3", gemma_embedding::ARCHITECTURE].contains(&architecture) && !listed {
        let every =
            config.opt_usize("sliding_window_pattern")?.or(config.opt_usize("_sliding_window_pattern")?);
        if let Some(every) = every.filter(|n| *n != gemma_embedding::EVERY) {
            keys.set("attention.sliding_window_pattern", whole("sliding_window_pattern", every)?);
        }
    }
    rope::set(keys, model, head_dim)
}

/// Sets how many tokens there are, where that is said.
pub(super) fn set_vocab_size(keys: &mut Keys<'_>, config: &Config) -> Result<()> {
    if let Some(vocab) = config.opt_usize("vocab_size")? {
        keys.set("vocab_size", whole("vocab_size", vocab)?);
    }
    Ok(())
}

/// How many elements of a head turn.
pub(super) fn turning(keys: &mut Keys<'_>, config: &Config, head_dim: usize) -> Result<()> {
    let part = config.f32_or("partial_rotary_factor", 1.0)?;
    keys.set("rope.dimension_count", whole("head_dim", turned(head_dim, part))?);
    Ok(())
}

/// What an encoder has besides.
fn encoder(keys: &mut Keys<'_>, model: &Model<'_>, head_dim: usize) -> Result<()> {
    let config = model.config;
    keys.set("attention.causal", false);
    let types = config.usize_or("type_vocab_size", 1)?;
    keys.metadata.set("tokenizer.ggml.token_type_count", whole("type_vocab_size", types)?);
    let part = config.f32_or("partial_rotary_factor", 1.0)?;
    if part != 1.0 {
        keys.set("rope.dimension_count", whole("head_dim", turned(head_dim, part))?);
    }
    let refuse = |setting: &str| refuse(setting, "GGUF has no key for it in this architecture");
    // What each architecture's graph takes for granted.
    let granted = [("position_embedding_type", "absolute"), ("activation_function", "swiglu")];
    for (setting, value) in granted {
        if config.opt_str(setting)?.is_some_and(|own| own != value) {
            return refuse(setting);
        }
    }
    let off = [
        "causal",
        "prenorm",
        "parallel_block",
        "parallel_block_tied_norm",
        "use_rms_norm",
        "rotary_emb_interleaved",
    ];
    for setting in off {
        if config.bool_or(setting, false)? {
            return refuse(setting);
        }
    }
    if config.has("rotary_emb_scale_base") {
        return refuse("rotary_emb_scale_base");
    }
    if config.usize_or("moe_every_n_layers", 0)? > 0 {
        return refuse("moe_every_n_layers");
    }
    Ok(())
}

/// How many elements of a head turn. A part that was a count once, divided and rounded to a single, is that count again.
pub(super) fn turned(head_dim: usize, part: f32) -> usize {
    (head_dim as f64 * (f64::from(part) + f64::from(f32::EPSILON))) as usize
}

pub(super) fn whole(setting: &str, value: usize) -> Result<u32> {
    let why = || Error::convert(format!("the setting {setting}"), format!("{value} has no place in 32 bits"));
    u32::try_from(value).map_err(|_| why())
}

/// Settings that change what a model computes and that GGUF cannot say.
fn refuse_what_has_no_key(model: &Model<'_>) -> Result<()> {
    let Model { config, architecture, .. } = model;
    if config.has("rope_parameters") {
        return refuse("rope_parameters", "it is in a form that is not known");
    }
    // Other classes do not know these settings, but for Gemma's, where what was written is compared.
    if architecture.starts_with("qwen") && !hybrid::is(model) || *architecture == "smollm3" {
        if config.bool_or("use_sliding_window", false)? {
            return refuse("use_sliding_window", "GGUF has no windows for this architecture");
        }
        let windows = config.opt_strs("layer_types")?.unwrap_or_default();
        if windows.iter().any(|t| t != "full_attention") {
            return refuse("layer_types", "GGUF cannot say which layers of this architecture have a window");
        }
    }
    if *architecture == "cohere2"
        && !config.has("layer_types")
        && config.usize_or("sliding_window_pattern", 4)? != 4
    {
        return refuse(
            "sliding_window_pattern",
            "GGUF has each fourth layer of this architecture without a window",
        );
    }
    // The class has these settings for its mixtures alone; of other models they are left over.
    if architecture.ends_with("moe") || *architecture == hybrid::NEXT {
        let why = "GGUF cannot say that layers of this architecture have no experts";
        if config.opt_usize("num_experts")? == Some(0) {
            return refuse("num_experts", why);
        }
        if config.usize_or("decoder_sparse_step", 1)? != 1 {
            return refuse("decoder_sparse_step", why);
        }
        if config.opt_usizes("mlp_only_layers")?.is_some_and(|dense| !dense.is_empty()) {
            return refuse("mlp_only_layers", why);
        }
    }
    // Readers pass them over, or do not read the file.
    for (class, flag) in [
        ("Seed", "attention_out_bias"),
        ("Seed", "mlp_bias"),
        ("Ernie", "use_bias"),
        ("CohereFor", "attention_bias"),
        ("Arcee", "attention_bias"),
        ("Arcee", "mlp_bias"),
        ("HunYuan", "attention_bias"),
    ] {
        if model.class.starts_with(class) && config.bool_or(flag, false)? {
            return refuse(flag, "GGUF has no such biases for this architecture");
        }
    }
    if *architecture == "starcoder2" && !config.bool_or("use_bias", true)? {
        return refuse("use_bias", "readers of GGUF want biases in this architecture");
    }
    // By the number of layers readers tell whether there are norms.
    if *architecture == "command-r" {
        let normed = config.bool_or("use_qk_norm", false)?;
        if normed != (config.usize("num_hidden_layers")? >= NORMED_FROM) {
            let why = format!(
                "readers of GGUF have norms on heads in models of {NORMED_FROM} layers and more alone"
            );
            return refuse("use_qk_norm", why);
        }
    }
    if *architecture == "olmoe" && config.has("clip_qkv") {
        return refuse("clip_qkv", "readers of GGUF pass it over for this architecture");
    }
    for (flag, usual) in [
        ("scale_attn_weights", true),
        ("scale_attn_by_inverse_layer_idx", false),
        ("reorder_and_upcast_attn", false),
        ("use_bidirectional_attention", gemma_embedding::is(model)),
    ] {
        if config.bool_or(flag, usual)? != usual {
            return refuse(flag, "GGUF has no key for it");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_count_comes_back_from_its_part_of_the_head() {
        for head_dim in 8..=256 {
            for count in 1..=head_dim {
                assert_eq!(super::turned(head_dim, count as f32 / head_dim as f32), count);
            }
        }
    }
}
