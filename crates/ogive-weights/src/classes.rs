//! What transformers' classes take for granted where `config.json` is silent, and no model can.
//!
//! Most defaults are the models' own: they are the same for GGUF. These are not, as a key that is missing there means something
//! else (no window, no cap, llama.cpp's number); so they are filled in where a file is known to be Hugging Face's. A key that
//! is `null` is not silent: it turns a window or a cap off.

mod names;

use serde_json::{Map, Value, json};

/// The defaults of `configuration_….py` for a class (`MixtralForCausalLM`, `MixtralModel`), by settings.
fn defaults(class: &str) -> Vec<(&'static str, Value)> {
    let family =
        ["ForCausalLM", "Model", "ForConditionalGeneration", "ForMaskedLM", "ForSequenceClassification"]
            .iter()
            .find_map(|end| class.strip_suffix(end));
    match family.unwrap_or_default() {
        "Gemma" => vec![("num_key_value_heads", json!(16)), ("head_dim", json!(256))],
        "Gemma2" => vec![
            ("num_key_value_heads", json!(4)),
            ("query_pre_attn_scalar", json!(256)),
            ("attn_logit_softcapping", json!(50.0)),
            ("final_logit_softcapping", json!(30.0)),
        ],
        "Apertus" => vec![
            ("rms_norm_eps", json!(1e-5)),
            ("rope_theta", json!(12e6)),
            (
                "rope_scaling",
                json!({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
                    "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
            ),
        ],
        "Bamba" => {
            let keys = ["num_key_value_heads", "mamba_n_heads", "mamba_n_groups", "mamba_d_state"];
            let all = spaces(keys, [8, 128, 1, 256]);
            all.into_iter().chain([("partial_rotary_factor", json!(0.5))]).collect()
        }
        "Arcee" | "HunYuanDenseV1" => vec![("rms_norm_eps", json!(1e-5))],
        "Camembert" | "Roberta" | "XLMRoberta" => vec![("pad_token_id", json!(1))],
        "Cohere" => vec![
            ("logit_scale", json!(0.0625)),
            ("layer_norm_eps", json!(1e-5)),
            ("use_qk_norm", json!(false)),
        ],
        "Cohere2" => vec![
            ("logit_scale", json!(0.0625)),
            ("layer_norm_eps", json!(1e-5)),
            ("sliding_window", json!(4096)),
        ],
        "DeepseekV2" => deepseek(64, 2),
        "DeepseekV3" => {
            let more = [
                ("n_group", json!(8)),
                ("topk_group", json!(4)),
                ("num_experts_per_tok", json!(8)),
                ("first_k_dense_replace", json!(3)),
                ("routed_scaling_factor", json!(2.5)),
            ];
            deepseek(256, 1).into_iter().chain(more).collect()
        }
        "Dots1" => vec![("norm_topk_prob", json!(false)), ("sliding_window", json!(4096))],
        "Ernie4_5" => ernie(&[("num_key_value_heads", 2), ("head_dim", 128)]),
        "Ernie4_5_Moe" => ernie(&[
            ("num_key_value_heads", 4),
            ("moe_num_experts", 64),
            ("moe_k", 6),
            ("moe_num_shared_experts", 2),
            ("moe_layer_start_index", 1),
        ]),
        "Exaone4" => vec![("rms_norm_eps", json!(1e-5)), ("sliding_window", json!(4096))],
        "FalconH1" => falcon_h1(),
        "Glm" | "Glm4" => vec![
            ("num_key_value_heads", json!(2)),
            ("head_dim", json!(128)),
            ("partial_rotary_factor", json!(0.5)),
            ("rms_norm_eps", json!(1.5625e-7)),
        ],
        "Glm4Moe" => glm4_moe(),
        "GPTNeoX" => vec![("partial_rotary_factor", json!(0.25))],
        "GptOss" => gpt_oss(),
        "Granite" => vec![("attention_multiplier", json!(1.0))],
        "GraniteMoe" | "GraniteMoeShared" => granite_moe(&[]),
        "GraniteMoeHybrid" => {
            granite_moe(&[("mamba_n_heads", 128), ("mamba_n_groups", 1), ("mamba_d_state", 256)])
        }
        "HunYuanMoEV1" => {
            vec![("rms_norm_eps", json!(1e-5)), ("num_experts", json!(1)), ("moe_topk", json!(1))]
        }
        "Jamba" => vec![
            ("num_key_value_heads", json!(8)),
            ("num_experts", json!(16)),
            ("num_experts_per_tok", json!(2)),
        ],
        "Lfm2" => lfm2(&[]),
        "Lfm2Moe" => lfm2(&[("num_experts", 32), ("num_experts_per_tok", 4), ("num_dense_layers", 2)]),
        "Llama4" => vec![
            ("num_key_value_heads", json!(8)),
            ("head_dim", json!(128)),
            ("rms_norm_eps", json!(1e-5)),
            ("rope_theta", json!(5e5)),
            ("num_local_experts", json!(16)),
            ("num_experts_per_tok", json!(1)),
        ],
        "Mamba" => vec![("rms_norm_eps", json!(1e-5)), ("tie_word_embeddings", json!(true))],
        "FalconMamba" => vec![
            ("rms_norm_eps", json!(1e-5)),
            ("mixer_rms_eps", json!(1e-6)),
            ("tie_word_embeddings", json!(true)),
        ],
        "Mamba2" => spaces(["num_heads", "head_dim", "n_groups", "state_size"], [128, 64, 8, 128]),
        "MiniMaxM2" => vec![
            ("num_key_value_heads", json!(8)),
            ("head_dim", json!(128)),
            ("rope_theta", json!(5e6)),
            ("num_local_experts", json!(256)),
            ("num_experts_per_tok", json!(8)),
        ],
        "Mistral" => vec![("sliding_window", json!(4096))],
        "Mixtral" => vec![("rope_theta", json!(1e6)), ("rms_norm_eps", json!(1e-5))],
        "NemotronH" => vec![
            ("num_key_value_heads", json!(8)),
            ("head_dim", json!(128)),
            ("mamba_num_heads", json!(128)),
            ("mamba_head_dim", json!(64)),
            ("n_groups", json!(8)),
            ("ssm_state_size", json!(128)),
            ("conv_kernel", json!(4)),
            ("rms_norm_eps", json!(1e-5)),
        ],
        "Olmo2" => vec![("rms_norm_eps", json!(1e-5))],
        "Olmo3" => vec![("rms_norm_eps", json!(1e-5)), ("sliding_window", json!(4096))],
        "Olmoe" => vec![
            ("rms_norm_eps", json!(1e-5)),
            ("num_experts", json!(64)),
            ("num_experts_per_tok", json!(8)),
            ("norm_topk_prob", json!(false)),
        ],
        "Phi" => vec![("partial_rotary_factor", json!(0.5)), ("qk_layernorm", json!(false))],
        "Phi3" => vec![("rms_norm_eps", json!(1e-5))],
        "Phimoe" | "PhiMoE" => vec![
            ("num_key_value_heads", json!(8)),
            ("num_local_experts", json!(16)),
            ("num_experts_per_tok", json!(2)),
            ("rms_norm_eps", json!(1e-5)),
            ("rope_theta", json!(1e6)),
        ],
        "Qwen2Moe" => mixture(16, 4),
        "Qwen3Moe" => mixture(4, 8),
        "Qwen3Next" => hybrid(2, &[("num_experts", 512), ("num_experts_per_tok", 10)]),
        "Qwen3_5" => hybrid(4, &[]),
        "Qwen3_5Moe" => hybrid(2, &[("num_experts", 256), ("num_experts_per_tok", 8)]),
        "SeedOss" => vec![("num_key_value_heads", json!(8)), ("head_dim", json!(128))],
        "SmolLM3" => vec![("num_key_value_heads", json!(4)), ("rope_theta", json!(2e6))],
        "StableLm" => vec![
            ("num_key_value_heads", json!(32)),
            ("partial_rotary_factor", json!(0.25)),
            ("qk_layernorm", json!(false)),
        ],
        "Starcoder2" => vec![("num_key_value_heads", json!(2))],
        _ => Vec::new(),
    }
}

/// Qwen's mixtures. Theirs are the shares as they are; in GGUF each architecture has it one way.
fn mixture(kv_heads: usize, chosen: usize) -> Vec<(&'static str, Value)> {
    vec![
        ("num_key_value_heads", json!(kv_heads)),
        ("num_experts_per_tok", json!(chosen)),
        ("norm_topk_prob", json!(false)),
        ("sliding_window", json!(4096)),
    ]
}

/// Granite's mixtures.
fn granite_moe(more: &[(&'static str, usize)]) -> Vec<(&'static str, Value)> {
    let whole = [("num_local_experts", 8), ("num_experts_per_tok", 2)];
    let whole = whole.iter().chain(more).map(|(key, value)| (*key, json!(value)));
    whole.chain([("attention_multiplier", json!(1.0))]).collect()
}

/// Those with state spaces in all layers.
fn spaces(keys: [&'static str; 4], sizes: [usize; 4]) -> Vec<(&'static str, Value)> {
    let sizes = keys.into_iter().zip(sizes.map(Value::from));
    sizes.chain([("rms_norm_eps", json!(1e-5))]).collect()
}

fn falcon_h1() -> Vec<(&'static str, Value)> {
    let keys = ["mamba_d_ssm", "mamba_n_heads", "mamba_n_groups", "mamba_d_state"];
    let of_attention = [("num_key_value_heads", json!(8)), ("rope_theta", json!(1e5))];
    spaces(keys, [1024, 128, 1, 256]).into_iter().chain(of_attention).collect()
}

/// Baidu's ERNIE 4.5.
fn ernie(whole: &[(&'static str, usize)]) -> Vec<(&'static str, Value)> {
    let whole = whole.iter().map(|(key, value)| (*key, json!(value)));
    let others =
        [("rms_norm_eps", json!(1e-5)), ("rope_theta", json!(5e5)), ("tie_word_embeddings", json!(true))];
    whole.chain(others).collect()
}

/// GLM-4.5.
fn glm4_moe() -> Vec<(&'static str, Value)> {
    let whole = [
        ("num_key_value_heads", 8),
        ("n_routed_experts", 128),
        ("n_shared_experts", 1),
        ("num_experts_per_tok", 8),
        ("first_k_dense_replace", 1),
    ];
    let whole = whole.map(|(key, value)| (key, json!(value))).into_iter();
    let others =
        [("partial_rotary_factor", json!(0.5)), ("rms_norm_eps", json!(1e-5)), ("use_qk_norm", json!(false))];
    whole.chain(others).collect()
}

/// Those with linear attention in most layers.
fn hybrid(kv_heads: usize, more: &[(&'static str, usize)]) -> Vec<(&'static str, Value)> {
    let whole = [
        ("num_key_value_heads", kv_heads),
        ("head_dim", 256),
        ("linear_conv_kernel_dim", 4),
        ("linear_num_key_heads", 16),
        ("linear_num_value_heads", 32),
        ("linear_key_head_dim", 128),
        ("linear_value_head_dim", 128),
    ];
    let whole = whole.iter().chain(more).map(|(key, value)| (*key, json!(value)));
    whole.chain([("partial_rotary_factor", json!(0.25))]).collect()
}

/// Liquid AI's, whose layers convolve for the most part.
fn lfm2(more: &[(&'static str, usize)]) -> Vec<(&'static str, Value)> {
    let whole = [("num_key_value_heads", 8), ("conv_L_cache", 3)];
    let whole = whole.iter().chain(more).map(|(key, value)| (*key, json!(value)));
    let others = [
        ("rms_norm_eps", json!(1e-5)),
        ("rope_theta", json!(1e6)),
        ("tie_word_embeddings", json!(true)),
        ("conv_bias", json!(false)),
    ];
    whole.chain(others).collect()
}

/// OpenAI's, whose file of settings has them all.
fn gpt_oss() -> Vec<(&'static str, Value)> {
    let yarn = json!({
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
        "original_max_position_embeddings": 4096,
    });
    vec![
        ("head_dim", json!(64)),
        ("num_experts_per_tok", json!(4)),
        ("num_key_value_heads", json!(8)),
        ("rms_norm_eps", json!(1e-5)),
        ("rope_scaling", yarn),
        ("rope_theta", json!(150_000.0)),
        ("sliding_window", json!(128)),
    ]
}

/// DeepSeek's, with so many experts, and so many that all rows share.
fn deepseek(experts: usize, shared: usize) -> Vec<(&'static str, Value)> {
    vec![
        ("n_routed_experts", json!(experts)),
        ("n_shared_experts", json!(shared)),
        ("q_lora_rank", json!(1536)),
        ("kv_lora_rank", json!(512)),
        ("qk_nope_head_dim", json!(128)),
        ("qk_rope_head_dim", json!(64)),
        ("v_head_dim", json!(128)),
    ]
}

/// Fills in what the first of `architectures` takes for granted; of a model that also sees, in the settings of its text.
pub(crate) fn fill(settings: &mut Map<String, Value>) {
    let class = settings.get("architectures").and_then(|names| names.get(0)?.as_str());
    let class = class.unwrap_or_default().to_owned();
    match settings.get_mut("text_config") {
        Some(Value::Object(text)) => fill_in(&class, text),
        _ => fill_in(&class, settings),
    }
}

fn fill_in(class: &str, settings: &mut Map<String, Value>) {
    let all = defaults(class);
    names::trained_context(class, settings);
    if matches!(class, "GemmaForCausalLM" | "GemmaModel") {
        names::gemma(settings);
    }
    match class {
        "BambaForCausalLM" | "BambaModel" | "JambaForCausalLM" | "JambaModel" => names::block_types(settings),
        "GPTNeoXForCausalLM" | "GPTNeoXModel" => names::neox(settings),
        "Lfm2ForCausalLM" | "Lfm2Model" => names::lfm2_names(settings, true),
        "Lfm2MoeForCausalLM" | "Lfm2MoeModel" => names::lfm2_names(settings, false),
        "NemotronHForCausalLM" => names::nemotron_names(settings),
        "MambaForCausalLM"
        | "MambaModel"
        | "FalconMambaForCausalLM"
        | "FalconMambaModel"
        | "Mamba2ForCausalLM"
        | "Mamba2Model" => names::epsilon(settings),
        "MiniMaxM2ForCausalLM" => names::minimax_names(settings),
        class if class.starts_with("ModernBert") => names::modern_bert(settings),
        _ => {}
    }
    for (key, value) in all {
        let within = |scaling| settings.get(scaling).is_some_and(|s: &Value| s.get(key).is_some());
        if !within("rope_scaling") && !within("rope_parameters") {
            settings.entry(key).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests;
