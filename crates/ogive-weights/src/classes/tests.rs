//! What classes take for granted, by class.

use super::*;

fn filled(settings: Value) -> Value {
    let Value::Object(mut settings) = settings else { return Value::Null };
    fill(&mut settings);
    settings.into()
}

#[test]
fn silence_is_what_the_class_takes_it_for() {
    for (class, want) in [
        ("RobertaForMaskedLM", json!({"pad_token_id": 1})),
        ("MistralForCausalLM", json!({"sliding_window": 4096})),
        ("MistralModel", json!({"sliding_window": 4096})),
        ("MixtralForCausalLM", json!({"rope_theta": 1e6, "rms_norm_eps": 1e-5})),
        ("Phi3ForCausalLM", json!({"rms_norm_eps": 1e-5})),
        (
            "Gemma2Model",
            json!({"num_key_value_heads": 4, "query_pre_attn_scalar": 256,
                "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
        ),
        (
            "GemmaForCausalLM",
            json!({"num_key_value_heads": 16, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh"}),
        ),
        (
            "Qwen2MoeModel",
            json!({"num_key_value_heads": 16, "num_experts_per_tok": 4, "norm_topk_prob": false,
                "sliding_window": 4096}),
        ),
        (
            "Qwen3MoeForCausalLM",
            json!({"num_key_value_heads": 4, "num_experts_per_tok": 8, "norm_topk_prob": false,
                "sliding_window": 4096}),
        ),
        (
            "GptOssForCausalLM",
            json!({"num_key_value_heads": 8, "head_dim": 64, "num_experts_per_tok": 4, "rms_norm_eps": 1e-5,
                "sliding_window": 128, "rope_theta": 150_000.0, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
                "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096}}),
        ),
        (
            "Cohere2ForCausalLM",
            json!({"logit_scale": 0.0625, "layer_norm_eps": 1e-5, "sliding_window": 4096}),
        ),
        (
            "Glm4ForCausalLM",
            json!({"num_key_value_heads": 2, "head_dim": 128, "partial_rotary_factor": 0.5,
                "rms_norm_eps": 1.5625e-7}),
        ),
        (
            "Glm4MoeForCausalLM",
            json!({"num_key_value_heads": 8, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
                "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
                "first_k_dense_replace": 1, "use_qk_norm": false}),
        ),
        (
            "Qwen3_5MoeForConditionalGeneration",
            json!({"num_key_value_heads": 2, "head_dim": 256, "linear_conv_kernel_dim": 4,
                "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
                "linear_value_head_dim": 128, "num_experts": 256, "num_experts_per_tok": 8,
                "partial_rotary_factor": 0.25}),
        ),
        (
            "FalconH1ForCausalLM",
            json!({"num_key_value_heads": 8, "rope_theta": 1e5, "rms_norm_eps": 1e-5, "mamba_d_ssm": 1024,
                "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256}),
        ),
        (
            "FalconMambaModel",
            json!({"rms_norm_eps": 1e-5, "mixer_rms_eps": 1e-6, "tie_word_embeddings": true}),
        ),
        (
            "Mamba2ForCausalLM",
            json!({"num_heads": 128, "head_dim": 64, "n_groups": 8, "state_size": 128, "rms_norm_eps": 1e-5}),
        ),
        (
            "Ernie4_5ForCausalLM",
            json!({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
                "tie_word_embeddings": true}),
        ),
        (
            "Ernie4_5_MoeForCausalLM",
            json!({"num_key_value_heads": 4, "moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2,
                "moe_layer_start_index": 1, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": true}),
        ),
        ("Exaone4ForCausalLM", json!({"rms_norm_eps": 1e-5, "sliding_window": 4096})),
        (
            "PhiMoEForCausalLM",
            json!({"num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5,
                "rope_theta": 1e6}),
        ),
        (
            "BambaForCausalLM",
            json!({"num_key_value_heads": 8, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
                "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5}),
        ),
        ("Dots1ForCausalLM", json!({"norm_topk_prob": false, "sliding_window": 4096})),
        ("GPTNeoXForCausalLM", json!({"partial_rotary_factor": 0.25})),
        (
            "MiniMaxM2ForCausalLM",
            json!({"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5e6, "num_local_experts": 256,
                "num_experts_per_tok": 8}),
        ),
        (
            "Llama4ForConditionalGeneration",
            json!({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
                "num_local_experts": 16, "num_experts_per_tok": 1}),
        ),
        ("SeedOssForCausalLM", json!({"num_key_value_heads": 8, "head_dim": 128})),
        (
            "ApertusForCausalLM",
            json!({"rms_norm_eps": 1e-5, "rope_theta": 12e6, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}}),
        ),
        ("CohereForCausalLM", json!({"logit_scale": 0.0625, "layer_norm_eps": 1e-5, "use_qk_norm": false})),
        ("PhiForCausalLM", json!({"partial_rotary_factor": 0.5, "qk_layernorm": false})),
        (
            "StableLmForCausalLM",
            json!({"num_key_value_heads": 32, "partial_rotary_factor": 0.25, "qk_layernorm": false}),
        ),
        ("HunYuanMoEV1ForCausalLM", json!({"rms_norm_eps": 1e-5, "num_experts": 1, "moe_topk": 1})),
        ("GraniteForCausalLM", json!({"attention_multiplier": 1.0})),
        (
            "GraniteMoeForCausalLM",
            json!({"attention_multiplier": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2}),
        ),
        (
            "Lfm2MoeForCausalLM",
            json!({"num_key_value_heads": 8, "conv_L_cache": 3, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
                "tie_word_embeddings": true, "conv_bias": false, "num_experts": 32, "num_experts_per_tok": 4,
                "num_dense_layers": 2}),
        ),
        (
            "NemotronHForCausalLM",
            json!({"num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64,
                "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "rms_norm_eps": 1e-5}),
        ),
        ("Olmo2ForCausalLM", json!({"rms_norm_eps": 1e-5})),
        ("Olmo3ForCausalLM", json!({"rms_norm_eps": 1e-5, "sliding_window": 4096})),
        (
            "OlmoeForCausalLM",
            json!({"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false}),
        ),
        ("SmolLM3ForCausalLM", json!({"num_key_value_heads": 4, "rope_theta": 2e6})),
        (
            "DeepseekV2Model",
            json!({"n_routed_experts": 64, "n_shared_experts": 2, "q_lora_rank": 1536, "kv_lora_rank": 512,
                "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}),
        ),
        (
            "DeepseekV3ForCausalLM",
            json!({"n_routed_experts": 256, "n_shared_experts": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
                "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 8, "topk_group": 4,
                "num_experts_per_tok": 8, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5}),
        ),
        ("LlamaForCausalLM", json!({})),
        ("Gemma3ForCausalLM", json!({})),
        ("MistralForSomething", json!({})),
    ] {
        let mut want = want;
        want["architectures"] = json!([class]);
        assert_eq!(filled(json!({"architectures": [class]})), want, "{class}");
    }
    let seeing = filled(json!({"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": {}}));
    assert_eq!((&seeing["text_config"]["head_dim"], seeing.get("head_dim")), (&json!(256), None));
    assert_eq!(filled(json!({"architectures": 3})), json!({"architectures": 3}));
}

#[test]
fn what_is_said_stays_and_null_is_said() {
    for settings in [
        json!({"architectures": ["MistralForCausalLM"], "sliding_window": null}),
        json!({"architectures": ["DeepseekV2ForCausalLM"], "q_lora_rank": null, "n_routed_experts": null,
            "n_shared_experts": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128}),
        json!({"architectures": ["MixtralForCausalLM"], "rope_theta": 1e4, "rms_norm_eps": 1e-6}),
        json!({"architectures": ["MixtralForCausalLM"], "rope_scaling": {"rope_theta": 1e4}, "rms_norm_eps": 1e-6}),
        json!({"architectures": ["Gemma2ForCausalLM"], "num_key_value_heads": 2, "query_pre_attn_scalar": 144,
            "attn_logit_softcapping": null, "final_logit_softcapping": null}),
    ] {
        assert_eq!(filled(settings.clone()), settings);
    }
}

#[test]
fn positions_of_padding_and_bases_that_are_off_are_settled() {
    let table = |more: Value| {
        let mut settings = json!({"architectures": ["XLMRobertaModel"], "max_position_embeddings": 514});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        filled(settings)["max_position_embeddings"].clone()
    };
    assert_eq!([table(json!({})), table(json!({"pad_token_id": 3}))], [512, 510]);
    assert_eq!([table(json!({"pad_token_id": null})), table(json!({"pad_token_id": 600}))], [514, 0]);
    let bases =
        json!({"architectures": ["ModernBertModel"], "global_rope_theta": 8.0, "local_rope_theta": null});
    assert_eq!(filled(bases)["local_rope_theta"], 8.0);
}
