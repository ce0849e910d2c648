//! Settings that are left over from other models, and those that a class has of its own: it obeys the keys that it knows, and no others.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Loader;
use ogive_nn::tensor::Result;
use serde_json::{Value, json};

/// How far each of the model's cases is from what transformers computes, with these settings besides.
fn errors(name: &str, extra: &Value) -> Result<Vec<f32>> {
    let (_, folder) = own().into_iter().find(|(own, _)| own == name).unwrap();
    let mut file = ogive_weights::open(&folder).unwrap();
    file.config.0.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let error = |(_, ids, want): (String, Vec<u32>, _)| {
        let b = exact();
        let loader = Loader::new(&*file.source, &b).for_context(ids.len());
        let model = ogive_models::registry().build(&file.architecture, &file.config, &loader)?;
        Ok(worst(&evaluate(&b, &*model, &ids, &Evaluate::new()).unwrap(), &want))
    };
    cases(&folder).into_iter().map(error).collect()
}

/// Of a model that was opened for fewer tokens than it is given.
#[test]
fn llama_4s_queries_grow_however_short_the_context_is() {
    let (path, b) = (golden("llama4-chunks"), exact());
    let model = load_for(&path, &b, Some(3));
    for (case, ids, want) in cases(&path) {
        let error = worst(&evaluate(&b, &*model, &ids, &Evaluate::new()).unwrap(), &want);
        assert!(error < 2e-5, "{case}: {error:.1e}");
    }
    // Past the table nothing is known; it reaches as far as what was asked for.
    let (_, ids, _) = cases(&path).into_iter().find(|(case, ..)| case == "long").unwrap();
    let short = with_settings("llama4-chunks", &json!({"max_position_embeddings": 8})).unwrap();
    let e = evaluate(&b, &*short, &ids, &Evaluate::new()).unwrap_err().to_string();
    assert!(e.contains("position 8 is outside a table of 8 rows"), "{e}");
    assert!(evaluate(&b, &*short, &ids[..8], &Evaluate::new()).is_ok());
    let file = ogive_weights::open(&path).unwrap();
    let loader = Loader::new(&*file.source, &b).for_context(1 << 40);
    let e = ogive_models::registry().build(&file.architecture, &file.config, &loader).unwrap_err();
    assert!(e.to_string().contains("ask for fewer"), "{e}");
}

/// As transformers takes it, which has other defaults where nothing is said.
#[test]
fn null_turns_switches_of_llama_4_off() {
    for (name, switch) in [("llama4", "use_qk_norm"), ("llama4-chunks", "attn_temperature_tuning")] {
        let (off, null) = (json!({switch: false}), json!({switch: null}));
        let errors = [off, null].map(|settings| errors(name, &settings).unwrap());
        assert!(errors[0] == errors[1] && errors[0].iter().any(|error| *error > 1e-4), "{name}: {errors:?}");
    }
    unchanged("llama4-chunks", &[json!({"use_qk_norm": null})]);
}

/// That these settings change nothing of what the model `name` computes.
fn unchanged(name: &str, settings: &[Value]) {
    for extra in settings {
        let errors = errors(name, extra).unwrap();
        assert!(errors.iter().all(|error| *error < 2e-5), "{name} with {extra}: {errors:?}");
    }
}

#[test]
fn only_qwen_knows_the_keys_by_which_layers_have_windows() {
    let on = json!({"use_sliding_window": true});
    let off = json!({"use_sliding_window": false});
    let late = json!({"use_sliding_window": true, "max_window_layers": 1});
    for name in ["mistral", "mixtral", "phi3"] {
        let types = json!({"layer_types": ["sliding_attention", "full_attention"]});
        unchanged(name, &[on.clone(), off.clone(), late.clone(), types]);
    }
    for name in ["gemma2", "gemma3"] {
        unchanged(name, &[on.clone(), off.clone(), late.clone()]);
    }
}

#[test]
fn caps_and_scales_of_nothing_are_refused() {
    let keys = ["attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"];
    for (key, value) in keys.into_iter().flat_map(|key| [(key, 0.0), (key, -3.0)]) {
        let e = errors("gemma2", &json!({ key: value })).unwrap_err().to_string();
        assert!(e.contains(&format!("`{key}` should be above 0")), "{e}");
    }
}

#[test]
fn olmoe_knows_no_layers_without_experts_and_no_windows_and_bounds_are_refused() {
    let dense = json!({"decoder_sparse_step": 2, "mlp_only_layers": [0]});
    unchanged("olmoe", &[dense, json!({"sliding_window": 3, "use_sliding_window": true})]);
    let e = errors("olmoe", &json!({"clip_qkv": 8.0})).unwrap_err().to_string();
    assert!(e.contains("`clip_qkv`"), "{e}");
}

#[test]
fn lfm2_knows_no_windows_and_no_activation() {
    let window = json!({"sliding_window": 3, "use_sliding_window": true});
    unchanged("lfm2", &[window, json!({"hidden_act": "gelu"})]);
}

/// What GLM-4.5's files and MiniMax's keep of other models, and what both keep for training.
#[test]
fn what_mixtures_do_not_know_changes_nothing() {
    let deepseeks = json!({"moe_layer_freq": 2, "num_nextn_predict_layers": 1, "moe_intermediate_size": 3});
    unchanged("glm4-moe", &[deepseeks, json!({"attention_bias": false})]);
    let of_minimax_01 = json!({"n_group": 3, "topk_group": 1, "norm_topk_prob": false, "routed_scaling_factor": 2.0,
        "mlp_intermediate_size": 3, "num_mtp_modules": 3, "use_mtp": true, "shared_moe_mode": "sigmoid"});
    unchanged("minimax-m2", &[of_minimax_01]);
    let of_ernie = json!({"moe_capacity": [64, 64, 64], "moe_use_aux_free": true, "moe_gate": "topk", "norm_topk_prob": false,
        "num_nextn_predict_layers": 1, "moe_layer_end_index": 1, "use_bias": true});
    unchanged("ernie4-5-moe", &[of_ernie]);
    let of_training =
        json!({"output_router_logits": true, "router_jitter_noise": 0.5, "for_llm_compression": true});
    unchanged("llama4", &[of_training, json!({"attn_temperature_tuning": 4, "attention_bias": true})]);
    unchanged("llama4", &[json!({"no_rope_layers": [], "moe_layers": null, "layer_types": null})]);
    unchanged("seed-oss", &[json!({"attention_dropout": 0.5, "residual_dropout": 0.5, "pretraining_tp": 2})]);
    unchanged("exaone4", &[json!({"sliding_window_pattern": "LLLG"}), json!({"layer_types": null})]);
    let of_hunyuan = json!({"moe_intermediate_size": [3, 3], "num_shared_expert": [1, 1], "use_mixed_mlp_moe": true,
        "moe_topk": 3, "num_experts": [7, 7]});
    unchanged("hunyuan-moe", &[of_hunyuan]);
    let of_dots = json!({"scoring_func": "noaux_tc", "sliding_window": 3, "use_sliding_window": true, "moe_layer_freq": 2});
    unchanged("dots1", &[of_dots]);
    let of_phi = json!({"input_jitter_noise": 0.5, "output_router_logits": true, "attention_bias": false, "lm_head_bias": false,
        "layer_types": ["full_attention", "full_attention"]});
    unchanged("phimoe", &[of_phi]);
    let of_jamba = json!({"output_router_logits": true, "num_logits_to_keep": 3, "use_mamba_kernels": true, "mamba_proj_bias": true,
        "rope_theta": 7.0, "partial_rotary_factor": 0.5});
    unchanged("jamba", &[of_jamba, json!({"layers_num_experts": null, "layer_types": null})]);
}

/// What Granite 4 has besides, whose state spaces Bamba's are; and heads that GPT-NeoX has not.
#[test]
fn bamba_knows_no_factors_and_neox_no_other_heads() {
    let factors = json!({"embedding_multiplier": 3.0, "attention_multiplier": 0.5, "logits_scaling": 2.0,
        "residual_multiplier": 0.5, "position_embedding_type": "nope", "num_local_experts": 4});
    unchanged(
        "bamba",
        &[factors, json!({"mamba_chunk_size": 3, "time_step_limit": [0.1, 0.2], "sliding_window": 3})],
    );
    let heads = json!({"num_key_value_heads": 1, "head_dim": 5, "rms_norm_eps": 0.1, "sliding_window": 3});
    unchanged("gptneox", &[heads, json!({"attention_bias": false, "hidden_dropout": 0.5})]);
}

#[test]
fn gemma_3_caps_no_scores() {
    unchanged("gemma3", &[json!({"attn_logit_softcapping": 0.5})]);
}

#[test]
fn classes_without_windows_know_no_key_of_one() {
    let window = json!({"sliding_window": 5});
    let types = json!({"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]});
    let newer = ["glm4-moe", "minimax-m2", "seed-oss", "ernie4-5", "ernie4-5-moe"];
    for name in ["olmo2", "granite", "granite-moe", "glm", "glm4"].into_iter().chain(newer) {
        unchanged(name, &[window.clone(), types.clone()]);
    }
    for name in [
        "command-r",
        "command-r-norm",
        "phi2",
        "stablelm",
        "apertus",
        "arcee",
        "hunyuan-dense",
        "hunyuan-moe",
    ] {
        unchanged(name, std::slice::from_ref(&window));
    }
    unchanged("smollm3", &[window]);
}

/// Each by itself, so that none is passed over behind another.
#[test]
fn what_a_class_has_of_its_own_counts() {
    let factors = |name| {
        ["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"]
            .map(|key| (name, json!({key: 1.9})))
    };
    let full = |layers| json!({"layer_types": vec!["full_attention"; layers]});
    let others = [
        ("olmo3", json!({"sliding_window": 12})),
        ("olmo3", json!({"rope_scaling": null})),
        ("olmo3", json!({"rope_local_base_freq": 500.0})),
        ("olmo3", full(3)),
        ("smollm3", json!({"no_rope_layers": [1, 1, 1, 1, 1]})),
        ("smollm3-window", json!({"no_rope_layers": null})),
        ("smollm3-window", json!({"use_sliding_window": false, "layer_types": null})),
        ("glm", json!({"partial_rotary_factor": 1.0})),
        ("glm4", json!({"partial_rotary_factor": 1.0})),
        ("glm4-moe", json!({"partial_rotary_factor": 1.0})),
        ("glm4-moe", json!({"num_experts_per_tok": 4})),
        ("glm4-moe", json!({"n_group": 1, "topk_group": 1})),
        ("glm4-moe", json!({"topk_group": 4})),
        ("glm4-moe", json!({"norm_topk_prob": false})),
        ("glm4-moe", json!({"routed_scaling_factor": null})),
        ("glm4-moe", json!({"n_shared_experts": 0})),
        ("glm4-moe-norm", json!({"norm_topk_prob": null})),
        ("glm4-moe-norm", json!({"rms_norm_eps": 0.1})),
        ("llama4", json!({"use_qk_norm": false})),
        ("llama4", json!({"rope_scaling": null})),
        ("llama4", json!({"no_rope_layers": [1, 1, 1, 1, 1]})),
        ("llama4", json!({"attention_chunk_size": 16})),
        ("llama4-chunks", json!({"use_qk_norm": true})),
        ("llama4-chunks", json!({"attention_chunk_size": 12})),
        ("llama4-chunks", json!({"layer_types": null})),
        ("llama4-chunks", json!({"no_rope_layers": null})),
        ("llama4-chunks", json!({"floor_scale": 5})),
        ("llama4-chunks", json!({"attn_scale": null})),
        ("llama4-chunks", json!({"attn_temperature_tuning": false})),
        ("llama4-chunks", json!({"num_experts_per_tok": 1})),
        ("minimax-m2", json!({"partial_rotary_factor": 1.0})),
        ("minimax-m2", json!({"num_experts_per_tok": 2})),
        ("minimax-m2", json!({"rope_theta": 100.0})),
        ("minimax-m2", json!({"hidden_act": "gelu"})),
        ("seed-oss", json!({"hidden_act": "gelu"})),
        ("seed-oss", json!({"rope_scaling": {"rope_type": "linear", "factor": 4.0}})),
        ("ernie4-5", json!({"hidden_act": "gelu"})),
        ("ernie4-5-moe", json!({"moe_k": 2})),
        ("ernie4-5-moe", json!({"moe_num_shared_experts": 0})),
        ("ernie4-5-moe", json!({"hidden_act": "gelu"})),
        ("exaone4", json!({"sliding_window": 9})),
        ("exaone4", json!({"rope_scaling": {"rope_type": "linear", "factor": 4.0}})),
        ("exaone4-window", json!({"sliding_window": 12})),
        ("exaone4-window", json!({"sliding_window": null, "layer_types": null})),
        ("exaone4-window", json!({"layer_types": null, "sliding_window_pattern": "LG"})),
        ("exaone4-window", full(3)),
        ("cohere2", json!({"logit_scale": 0.25})),
        ("cohere2", json!({"sliding_window": 12})),
        ("cohere2", full(5)),
        ("command-r", json!({"logit_scale": 0.25})),
        ("command-r", json!({"layer_norm_eps": 0.1})),
        ("command-r-norm", json!({"rope_scaling": null})),
        ("starcoder2", json!({"sliding_window": 9})),
        ("starcoder2", json!({"norm_epsilon": 0.1})),
        ("starcoder2", json!({"hidden_act": "silu"})),
        ("starcoder2-window", json!({"sliding_window": 12})),
        ("phi2", json!({"partial_rotary_factor": 1.0})),
        ("phi2", json!({"hidden_act": "silu"})),
        ("stablelm", json!({"partial_rotary_factor": 1.0})),
        ("stablelm", json!({"use_parallel_residual": true})),
        ("stablelm", json!({"layer_norm_eps": 0.1})),
        ("apertus", json!({"hidden_act": "relu2"})),
        ("apertus", json!({"rope_scaling": null})),
        ("arcee", json!({"hidden_act": "silu"})),
        ("hunyuan-dense", json!({"rope_scaling": null})),
        ("hunyuan-dense", json!({"rms_norm_eps": 0.1})),
        ("hunyuan-moe", json!({"moe_topk": 2})),
        ("hunyuan-moe", json!({"hidden_act": "gelu"})),
        ("gptneox", json!({"use_parallel_residual": false})),
        ("gptneox", json!({"partial_rotary_factor": 1.0})),
        ("gptneox", json!({"layer_norm_eps": 0.1})),
        ("gptneox", json!({"hidden_act": "silu"})),
        ("gptneox-serial", json!({"use_parallel_residual": null})),
        ("gptneox-serial", json!({"rope_scaling": null})),
        ("gptneox-serial", json!({"rope_theta": 100.0})),
        ("phimoe", json!({"sliding_window": 30})),
        ("phimoe", json!({"rms_norm_eps": 0.1})),
        ("phimoe", json!({"hidden_act": "gelu"})),
        ("phimoe-near", json!({"router_jitter_noise": 0.01})),
        ("jamba", json!({"num_experts_per_tok": 1})),
        ("jamba", json!({"hidden_act": "gelu"})),
        ("jamba", json!({"rms_norm_eps": 0.1})),
        ("bamba", json!({"partial_rotary_factor": 1.0})),
        ("bamba", json!({"rope_theta": 100.0})),
        ("bamba", json!({"hidden_act": "gelu"})),
        ("bamba-groups", json!({"rope_scaling": null})),
        ("bamba-groups", json!({"rms_norm_eps": 0.1})),
        ("dots1", json!({"num_experts_per_tok": 2})),
        ("dots1", json!({"norm_topk_prob": false})),
        ("dots1", json!({"routed_scaling_factor": null})),
        ("dots1", json!({"n_shared_experts": 0})),
        ("dots1-window", json!({"sliding_window": 12})),
        ("dots1-window", json!({"layer_types": null, "max_window_layers": 2})),
        ("dots1-window", json!({"n_group": 1, "topk_group": 1})),
        ("dots1-window", json!({"norm_topk_prob": true})),
    ];
    for (name, extra) in factors("granite").into_iter().chain(factors("granite-moe")).chain(others) {
        let errors = errors(name, &extra).unwrap();
        assert!(errors[0] > 1e-3, "{name} with {extra}: {errors:?}");
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    for (name, extra, word) in [
        ("olmo3", json!({"sliding_window": null}), "sliding_window"),
        ("granite", json!({"logits_scaling": 0.0}), "logits_scaling"),
        ("granite-moe", json!({"num_local_experts": 4}), "4 experts"),
        ("granite-moe", json!({"intermediate_size": 23}), "outputs"),
        (
            "smollm3-window",
            json!({"use_sliding_window": false, "layer_types": ["sliding_attention", "sliding_attention"]}),
            "not settled",
        ),
        ("smollm3", json!({"no_rope_layers": [1]}), "no_rope_layers"),
        ("cohere2", json!({"sliding_window": null}), "sliding_window"),
        ("command-r", json!({"use_qk_norm": true}), "`use_qk_norm` is on"),
        ("command-r-norm", json!({"use_qk_norm": false}), "`use_qk_norm` is off"),
        ("command-r-norm", json!({"num_attention_heads": 4, "num_key_value_heads": 2}), "outputs"),
        ("phi2", json!({"qk_layernorm": true}), "`qk_layernorm` is on"),
        ("phi2-norm", json!({"qk_layernorm": false}), "`qk_layernorm` is off"),
        ("stablelm-parallel", json!({"qk_layernorm": false}), "`qk_layernorm` is off"),
        ("stablelm-parallel", json!({"use_parallel_residual": false}), "post_attention_layernorm"),
        ("apertus", json!({"hidden_act": "tent"}), "`hidden_act` is `tent`"),
        ("hunyuan-dense", json!({"rope_scaling": {"rope_type": "dynamic", "alpha": -2.0}}), "`alpha` -2"),
        ("hunyuan-moe", json!({"moe_topk": [3]}), "`moe_topk` has no number for layer 1"),
        ("hunyuan-moe", json!({"moe_topk": 8}), "8 experts of 7"),
        ("hunyuan-moe", json!({"num_experts": 8}), "experts.7.gate_proj"),
        ("gptneox", json!({"num_attention_heads": 5}), "cannot be cut into 5 heads"),
        ("gptneox", json!({"num_attention_heads": 0}), "cannot be cut into 0 heads"),
        ("gptneox", json!({"hidden_size": 24}), "[8, 8, 8] outputs"),
        ("phimoe", json!({"num_experts_per_tok": 3}), "`num_experts_per_tok` is 3"),
        ("phimoe", json!({"num_local_experts": 7}), "experts.6.w1"),
        ("phimoe", json!({"num_local_experts": 1}), "2 experts of 1"),
        ("phimoe", json!({"router_jitter_noise": -1.0}), "within -2 of each other"),
        (
            "phimoe",
            json!({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]}}),
            "rope_scaling.long_mscale",
        ),
        ("jamba", json!({"is_causal": false}), "`is_causal` is off"),
        ("jamba", json!({"sliding_window": 5}), "`sliding_window` is 5"),
        ("jamba", json!({"attn_layer_offset": 3}), "`attn_layer_offset` is 3"),
        ("jamba", json!({"attn_layer_offset": 0}), "layers.0.self_attn.q_proj"),
        ("jamba", json!({"expert_layer_period": 0}), "`expert_layer_period`, 0"),
        ("jamba", json!({"expert_layer_offset": 1}), "layers.0.feed_forward.gate_proj"),
        ("jamba", json!({"layer_types": ["mamba"]}), "for each of 3 layers"),
        ("jamba", json!({"layers_num_experts": [5]}), "1 `layers_num_experts` for 3 layers"),
        ("jamba", json!({"num_experts": 6}), "experts.5.gate_proj"),
        ("jamba", json!({"num_experts_per_tok": 6}), "6 experts of 5"),
        ("jamba", json!({"mamba_d_state": 9}), "x_proj"),
        ("jamba", json!({"mamba_dt_rank": 1_u64 << 40}), "x_proj"),
        ("jamba", json!({"mamba_expand": u64::MAX}), "beyond counting"),
        ("bamba", json!({"is_causal": false}), "`is_causal` is off"),
        ("bamba", json!({"layer_types": ["mamba", "attention"]}), "for each of 3 layers"),
        ("bamba", json!({"attn_layer_indices": [0]}), "layers.0.self_attn.q_proj"),
        ("bamba", json!({"attn_layer_indices": null}), "layers.1.mamba.in_proj"),
        ("bamba", json!({"mamba_d_head": 7}), "6 heads of 7 elements are not"),
        ("dots1", json!({"scoring_func": "softmax"}), "`scoring_func` is `softmax`"),
        ("dots1", json!({"first_k_dense_replace": 0}), "e_score_correction_bias"),
        ("dots1", json!({"n_group": 5}), "7 experts in 5 groups"),
        ("dots1", json!({"layer_types": ["full_attention"]}), "1 `layer_types` for 2 layers"),
        ("glm4", json!({"partial_rotary_factor": 1.5}), "should rotate"),
        ("glm4-moe", json!({"use_qk_norm": true}), "`use_qk_norm` is on"),
        ("glm4-moe-norm", json!({"use_qk_norm": false}), "`use_qk_norm` is off"),
        ("glm4-moe", json!({"n_group": 5}), "12 experts in 5 groups"),
        ("glm4-moe", json!({"n_routed_experts": 8}), "12 biases for 8 experts"),
        ("glm4-moe", json!({"first_k_dense_replace": 0}), "e_score_correction_bias"),
        ("glm4-moe", json!({"first_k_dense_replace": 2}), "mlp.gate_proj"),
        ("glm4-moe", json!({"scoring_func": "softmax"}), "`scoring_func` is `softmax`"),
        ("llama4", json!({"is_causal": false}), "`is_causal` is off"),
        ("llama4", json!({"no_rope_layers": [1]}), "no_rope_layers"),
        ("llama4", json!({"layer_types": ["full_attention"]}), "layer_types"),
        ("llama4", json!({"attention_chunk_size": null}), "`attention_chunk_size`"),
        ("llama4", json!({"floor_scale": 0}), "`floor_scale`"),
        ("llama4", json!({"attn_temperature_tuning": "often"}), "attn_temperature_tuning"),
        (
            "llama4",
            json!({"moe_layers": null, "interleave_moe_layer_step": 0}),
            "`interleave_moe_layer_step`",
        ),
        ("llama4", json!({"moe_layers": [0]}), "layers.0.feed_forward"),
        ("llama4", json!({"num_local_experts": 4}), "4 experts"),
        ("llama4", json!({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}), "`llama3`"),
        ("minimax-m2", json!({"scoring_func": "softmax"}), "`scoring_func`"),
        ("minimax-m2", json!({"qk_norm_type": "per_head"}), "`qk_norm_type`"),
        ("minimax-m2", json!({"use_qk_norm": false}), "`use_qk_norm` is off"),
        ("minimax-m2", json!({"use_routing_bias": false}), "`use_routing_bias` is off"),
        ("minimax-m2", json!({"attn_type_list": [1, 0]}), "`attn_type_list`"),
        ("minimax-m2", json!({"shared_intermediate_size": 3}), "`shared_intermediate_size`"),
        ("minimax-m2", json!({"layernorm_mlp_beta": 3.5}), "`layernorm_mlp_beta`"),
        ("minimax-m2", json!({"num_local_experts": 6}), "7 biases for 6 experts"),
        ("minimax-m2", json!({"num_experts_per_tok": 8}), "8 experts of 7"),
        ("ernie4-5-moe", json!({"moe_norm_min": 0.5}), "`moe_norm_min`"),
        ("ernie4-5-moe", json!({"moe_layer_interval": 0}), "`moe_layer_interval` is 0"),
        ("ernie4-5-moe", json!({"moe_num_experts": 8}), "7 biases for 8 experts"),
        ("ernie4-5-moe", json!({"moe_layer_start_index": 0}), "e_score_correction_bias"),
        ("exaone4-window", json!({"sliding_window": null}), "sliding_window"),
        (
            "exaone4-window",
            json!({"layer_types": null, "sliding_window_pattern": "LGL"}),
            "sliding_window_pattern",
        ),
    ] {
        let e = errors(name, &extra).unwrap_err().to_string();
        assert!(e.contains(word), "{name} with {extra}: {e}");
    }
}
