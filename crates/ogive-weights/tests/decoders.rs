//! Decoders from GGUF that are Llama but for a part: names, and what llama.cpp's graphs take for granted.

mod common;

use common::checkpoint;
use gguf_file::Value;
use ogive_tensor::{Config, Result};
use ogive_weights::Checkpoint;

/// A file of two layers, with further keys and these tensors.
fn open(arch: &str, more: &[(&str, Value)], tensors: &[(&str, &[u64])]) -> Result<Checkpoint> {
    checkpoint(arch, &[&[("block_count", 2_u32.into())], more].concat(), tensors)
}

fn config(arch: &str, more: &[(&str, Value)]) -> Result<Config> {
    Ok(open(arch, more, &[])?.config)
}

#[test]
fn a_window_makes_an_olmo_3() {
    let model = open("olmo2", &[], &[("blk.1.post_ffw_norm.weight", &[8])]).unwrap();
    assert_eq!(model.architecture, "Olmo2ForCausalLM");
    assert!(model.source.get("model.layers.1.post_feedforward_layernorm.weight").is_ok());
    let window = ("attention.sliding_window", Value::from(64u32));
    let flags = ("attention.sliding_window_pattern", Value::from(vec![true, false]));
    for (keys, types) in [
        (vec![window.clone()], ["sliding_attention", "sliding_attention"]),
        (vec![window, flags], ["sliding_attention", "full_attention"]),
    ] {
        let model = open("olmo2", &keys, &[]).unwrap();
        assert_eq!(model.architecture, "Olmo3ForCausalLM");
        assert_eq!(model.config.opt_strs("layer_types").unwrap().unwrap(), types);
    }
}

/// The converters of 2025 wrote OLMo 3's own magnitude where llama.cpp looks for a factor on YaRN's.
#[test]
fn olmo_3s_magnitude_is_the_models_own() {
    let yarn = [
        ("rope.scaling.type", Value::from("yarn")),
        ("rope.scaling.factor", Value::from(8f32)),
        ("rope.scaling.attn_factor", Value::from(1.207_944_2_f32)),
    ];
    let c = config("olmo2", &yarn).unwrap();
    let magnitude = c.at("rope_scaling").f32_or("attention_factor", 0.0).unwrap();
    assert!((magnitude - 1.207_944_2).abs() < 1e-6, "{magnitude}");
    let c = config("olmo2", &yarn[..2]).unwrap();
    assert!(!c.at("rope_scaling").has("attention_factor"));
}

#[test]
fn olmoes_shares_are_as_they_are_and_bounds_are_told() {
    let keys = [("expert_count", Value::from(4u32)), ("expert_used_count", Value::from(2u32))];
    let tensors: &[(&str, &[u64])] =
        &[("blk.0.attn_q_norm.weight", &[8]), ("blk.0.ffn_up_exps.weight", &[4, 6, 8])];
    let model = open("olmoe", &keys, tensors).unwrap();
    assert_eq!(model.architecture, "OlmoeForCausalLM");
    assert!(!model.config.bool_or("norm_topk_prob", true).unwrap() && !model.config.has("clip_qkv"));
    for name in ["self_attn.q_norm", "mlp.experts.up_proj"] {
        assert!(model.source.get(&format!("model.layers.0.{name}.weight")).is_ok(), "{name}");
    }
    for (bound, want) in [(0.0, None), (8.0, Some(8.0))] {
        let c = config("olmoe", &[("attention.clamp_kqv", Value::from(bound))]).unwrap();
        assert_eq!(c.opt_f32("clip_qkv").unwrap(), want);
    }
}

#[test]
fn granites_factors_have_their_names_and_0_is_none() {
    let keys = ["embedding_scale", "residual_scale", "logit_scale", "attention.scale"];
    let names = ["embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier"];
    for arch in ["granite", "granitemoe"] {
        for factor in [0.5f32, 0.0] {
            let c = config(arch, &keys.map(|key| (key, factor.into()))).unwrap();
            let want = (factor != 0.0).then_some(factor);
            assert_eq!(names.map(|name| c.opt_f32(name).unwrap()), [want; 4], "{arch}");
        }
        let e = config(arch, &[("rope.scaling.finetuned", false.into())]).unwrap_err().to_string();
        assert!(e.contains("no positions are turned"), "{arch}: {e}");
    }
}

#[test]
fn granites_mixtures_have_experts_under_their_names() {
    let tensors: &[(&str, &[u64])] = &[
        ("blk.0.ffn_gate_inp.weight", &[8, 4]),
        ("blk.0.ffn_up_exps.weight", &[8, 6, 4]),
        ("blk.0.ffn_down_exps.weight", &[6, 8, 4]),
    ];
    let keys = [("expert_count", Value::from(4u32)), ("expert_used_count", Value::from(2u32))];
    let model = open("granitemoe", &keys, tensors).unwrap();
    assert_eq!(model.architecture, "GraniteMoeForCausalLM");
    assert_eq!(
        ["num_local_experts", "num_experts_per_tok"].map(|key| model.config.usize(key).unwrap()),
        [4, 2]
    );
    let names = ["router.layer", "experts.up_proj", "output_linear"];
    for name in names.map(|name| format!("model.layers.0.block_sparse_moe.{name}.weight")) {
        assert!(model.source.get(&name).is_ok(), "{name}");
    }
    // One that all tokens share makes it another class.
    let shared = [("expert_shared_feed_forward_length", Value::from(6u32))];
    assert_eq!(open("granitemoe", &shared, &[]).unwrap().architecture, "GraniteMoeSharedForCausalLM");
}

#[test]
fn smollm3_turns_nothing_in_each_fourth_layer() {
    let c = config("smollm3", &[("block_count", Value::from(5u32))]).unwrap();
    assert_eq!(c.opt_usizes("no_rope_layers").unwrap().unwrap(), [1, 1, 1, 0, 1]);
}

#[test]
fn glms_matrices_may_be_fused_and_several_dimensions_are_refused() {
    let tensors: &[(&str, &[u64])] = &[
        ("blk.0.attn_qkv.weight", &[8, 12]),
        ("blk.0.attn_qkv.bias", &[12]),
        ("blk.0.ffn_up.weight", &[8, 20]),
    ];
    let half = [("attention.key_length", Value::from(8u32)), ("rope.dimension_count", Value::from(4u32))];
    for (arch, class) in [("chatglm", "GlmForCausalLM"), ("glm4", "Glm4ForCausalLM")] {
        let model = open(arch, &half, tensors).unwrap();
        assert_eq!(model.architecture, class);
        assert_eq!(model.config.f32_or("partial_rotary_factor", 1.0).unwrap(), 0.5);
        let names = ["self_attn.qkv_proj.weight", "self_attn.qkv_proj.bias", "mlp.gate_up_proj.weight"];
        for name in names.map(|name| format!("model.layers.0.{name}")) {
            assert!(model.source.get(&name).is_ok(), "{arch}: {name}");
        }
    }
    let sections = [("rope.dimension_sections", Value::from(vec![8i32, 12, 12, 0]))];
    let e = config("glm4", &sections).unwrap_err().to_string();
    assert!(e.contains("positions of several dimensions"), "{e}");
}

#[test]
fn cohere_has_windows_in_three_of_four_layers() {
    let keys = [
        ("block_count", Value::from(5u32)),
        ("attention.sliding_window", Value::from(64u32)),
        ("logit_scale", Value::from(0.25f32)),
        ("attention.layer_norm_epsilon", Value::from(1e-4f32)),
    ];
    let c = config("cohere2", &keys).unwrap();
    let types = c.opt_strs("layer_types").unwrap().unwrap();
    assert_eq!(types.iter().map(|t| &t[..1]).collect::<String>(), "sssfs");
    assert_eq!((c.f32_or("logit_scale", 0.0).unwrap(), c.usize("sliding_window").unwrap()), (0.25, 64));
    assert!((c.f32_or("layer_norm_eps", 0.0).unwrap() - 1e-4).abs() < 1e-9);
}

#[test]
fn command_r_is_told_by_its_own_name() {
    let keys =
        [("logit_scale", Value::from(0.25f32)), ("attention.layer_norm_epsilon", Value::from(1e-4f32))];
    let model = open("command-r", &keys, &[("blk.0.attn_q_norm.weight", &[2, 4])]).unwrap();
    assert_eq!(model.architecture, "CohereForCausalLM");
    assert_eq!(model.config.f32_or("logit_scale", 0.0).unwrap(), 0.25);
    assert_eq!(model.source.get("model.layers.0.self_attn.q_norm.weight").unwrap().shape, [1, 2, 4]);
}

/// A norm that is not there says that the MLP stands beside attention.
#[test]
fn stablelms_blocks_are_told_by_their_norms() {
    let norms: &[(&str, &[u64])] = &[("blk.0.ffn_norm.weight", &[8])];
    let heads: &[(&str, &[u64])] = &[("blk.0.attn_q_norm.weight", &[2, 4])];
    for (tensors, beside) in [(norms, false), (heads, true)] {
        let model = open("stablelm", &[], tensors).unwrap();
        assert_eq!(model.config.bool_or("use_parallel_residual", !beside).unwrap(), beside);
    }
    let model = open("stablelm", &[], heads).unwrap();
    assert_eq!(model.source.get("model.layers.0.self_attn.q_layernorm.weight").unwrap().shape, [1, 2, 4]);
}

/// Of two layers.
#[test]
fn lfm2s_layers_attend_where_they_have_key_heads() {
    let heads = |counts: Value| {
        config("lfm2", &[("attention.head_count", 4u32.into()), ("attention.head_count_kv", counts)])
    };
    for (counts, types) in [
        (Value::from(vec![0i32, 2]), ["conv", "full_attention"]),
        (Value::from(vec![2u32, 2]), ["full_attention"; 2]),
        (Value::from(2u32), ["full_attention"; 2]),
        (Value::from(vec![0i32, 0]), ["conv"; 2]),
    ] {
        let c = heads(counts).unwrap();
        assert_eq!(c.opt_strs("layer_types").unwrap().unwrap(), types);
        assert_eq!(c.opt_usize("num_key_value_heads").unwrap(), Some(2).filter(|_| types != ["conv"; 2]));
    }
    let e = heads(Value::from(vec![1i32, 2])).unwrap_err().to_string();
    assert!(e.contains("attention.head_count_kv") && e.contains("some layers have 1 key heads"), "{e}");
    // As many as a file likes to claim are no list.
    let many = [("block_count", Value::from(1u64 << 60)), ("attention.head_count", 4u32.into())];
    assert!(config("lfm2", &many).unwrap().opt_strs("layer_types").unwrap().unwrap().len() <= 10_000);
    let window = [("attention.sliding_window", Value::from(64u32))];
    assert!(config("lfm2", &window).unwrap_err().to_string().contains("a window"));
}

#[test]
fn lfm2s_tensors_have_their_names_and_its_mixtures_what_llama_cpp_takes_for_granted() {
    let tensors: &[(&str, &[u64])] = &[
        ("token_embd_norm.weight", &[8]),
        ("blk.0.shortconv.conv.weight", &[8, 3]),
        ("blk.0.ffn_gate.weight", &[12, 8]),
        ("blk.1.exp_probs_b.bias", &[4]),
        ("blk.1.ffn_up_exps.weight", &[4, 6, 8]),
    ];
    let keys = [
        ("shortconv.l_cache", 3),
        ("leading_dense_block_count", 1),
        ("expert_count", 4),
        ("expert_used_count", 2),
        ("expert_gating_func", 2),
    ];
    let mut keys = keys.map(|(key, n)| (key, Value::from(n as u32))).to_vec();
    let model = open("lfm2moe", &keys, tensors).unwrap();
    assert_eq!(model.architecture, "Lfm2MoeForCausalLM");
    let names = ["conv_L_cache", "num_dense_layers", "num_experts", "num_experts_per_tok"];
    assert_eq!(names.map(|name| model.config.usize(name).unwrap()), [3, 1, 4, 2]);
    assert!(model.config.bool_or("norm_topk_prob", false).unwrap());
    for name in [
        "embedding_norm.weight",
        "layers.0.conv.conv.weight",
        "layers.0.feed_forward.w1.weight",
        "layers.1.feed_forward.expert_bias",
        "layers.1.feed_forward.experts.w3.weight",
    ] {
        assert!(model.source.get(&format!("model.{name}")).is_ok(), "{name}");
    }
    keys.push(("expert_weights_scale", Value::from(2.5f32)));
    let c = open("lfm2moe", &keys, &[]).unwrap().config;
    assert_eq!(c.f32_or("routed_scaling_factor", 1.0).unwrap(), 2.5);
    *keys.last_mut().unwrap() = ("expert_weights_scale", Value::from(0f32));
    assert!(!open("lfm2moe", &keys, &[]).unwrap().config.has("routed_scaling_factor"));
    let c = config("lfm2moe", &[]).unwrap();
    assert_eq!(c.usize("num_dense_layers").unwrap(), 0);
    let e = config("lfm2moe", &[("expert_gating_func", Value::from(1u32))]).unwrap_err().to_string();
    assert!(e.contains("expert_gating_func") && e.contains("the sigmoid"), "{e}");
}

#[test]
fn deepseeks_heads_are_those_that_latents_stand_for() {
    let keys = |more: &[(&'static str, u32)]| -> Vec<(&'static str, Value)> {
        let common = [
            ("attention.head_count", 4),
            ("attention.kv_lora_rank", 32),
            ("rope.dimension_count", 16),
            ("expert_count", 8),
            ("expert_group_count", 4),
            ("expert_group_used_count", 2),
        ];
        common.iter().chain(more).map(|(key, n)| (*key, Value::from(*n))).collect()
    };
    let latent = [
        ("attention.head_count_kv", 1),
        ("attention.key_length", 48),
        ("attention.value_length", 32),
        ("attention.key_length_mla", 40),
        ("attention.value_length_mla", 24),
    ];
    let before =
        [("attention.head_count_kv", 4), ("attention.key_length", 40), ("attention.value_length", 24)];
    for (sizes, gating, class, method) in [
        (&latent[..], 1, "DeepseekV2ForCausalLM", "group_limited_greedy"),
        (&before, 1, "DeepseekV2ForCausalLM", "group_limited_greedy"),
        (&latent, 2, "DeepseekV3ForCausalLM", "noaux_tc"),
    ] {
        let more = [sizes, &[("expert_gating_func", gating)]].concat();
        let model = open("deepseek2", &keys(&more), &[]).unwrap();
        let c = &model.config;
        assert_eq!((&*model.architecture, c.opt_str("topk_method").unwrap()), (class, Some(method)));
        let sizes =
            ["kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "num_key_value_heads"];
        assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [32, 24, 16, 24, 4]);
        assert!(!c.has("q_lora_rank") && !c.has("partial_rotary_factor"));
    }
}

#[test]
fn deepseeks_layers_end_where_those_that_foretell_more_begin() {
    let said = [("nextn_predict_layers", Value::from(1u32))];
    let layers = |keys: &[(&str, Value)], tensors: &[(&str, &[u64])]| {
        open("deepseek2", keys, tensors).unwrap().config.usize("num_hidden_layers").unwrap()
    };
    let there: &[(&str, &[u64])] = &[("blk.1.nextn.eh_proj.weight", &[8, 4])];
    // A file may say how many its model was trained with, and have none of them.
    assert_eq!((layers(&[], &[]), layers(&said, &[]), layers(&said, there)), (2, 2, 1));
}

#[test]
fn halves_of_deepseeks_projection_stay_as_they_are() {
    let tensors: &[(&str, &[u64])] =
        &[("blk.1.attn_k_b.weight", &[4, 32, 24]), ("blk.1.attn_v_b.weight", &[4, 20, 32])];
    let source = open("deepseek2", &[], tensors).unwrap().source;
    let shape = |name: &str| source.get(&format!("model.layers.1.self_attn.{name}.weight")).unwrap().shape;
    assert_eq!((shape("k_b_proj"), shape("v_b_proj")), ([4, 32, 24], [4, 20, 32]));
}

fn numbers(keys: &[(&'static str, u32)]) -> Vec<(&'static str, Value)> {
    keys.iter().map(|(key, n)| (*key, Value::from(*n))).collect()
}

/// Their names are those of DeepSeek's, but for the second norm's.
#[test]
fn glm_4_5s_mixtures_have_deepseeks_names_and_end_where_layers_foretell() {
    let tensors: &[(&str, &[u64])] = &[
        ("blk.0.attn_norm.weight", &[8]),
        ("blk.0.post_attention_norm.weight", &[8]),
        ("blk.0.attn_q_norm.weight", &[4]),
        ("blk.0.exp_probs_b.bias", &[4]),
        ("blk.0.ffn_up_exps.weight", &[4, 6, 8]),
        ("blk.0.ffn_up_shexp.weight", &[6, 8]),
    ];
    let mut keys = numbers(&[
        ("attention.key_length", 8),
        ("rope.dimension_count", 4),
        ("leading_dense_block_count", 1),
        ("expert_count", 4),
        ("expert_used_count", 2),
        ("expert_shared_count", 1),
        ("expert_gating_func", 2),
        ("nextn_predict_layers", 1),
    ]);
    keys.push(("expert_weights_scale", 2.5f32.into()));
    let model = open("glm4moe", &keys, tensors).unwrap();
    assert_eq!(model.architecture, "Glm4MoeForCausalLM");
    let c = &model.config;
    let names = ["num_hidden_layers", "first_k_dense_replace", "n_routed_experts", "n_shared_experts"];
    // The second layer is counted, and is not there.
    assert_eq!(names.map(|name| c.usize(name).unwrap()), [1, 1, 4, 1]);
    let numbers_of = ["partial_rotary_factor", "routed_scaling_factor"];
    assert_eq!(numbers_of.map(|name| c.f32_or(name, 0.0).unwrap()), [0.5, 2.5]);
    assert!(!c.bool_or("norm_topk_prob", true).unwrap());
    for name in [
        "post_attention_layernorm.weight",
        "self_attn.q_norm.weight",
        "mlp.gate.e_score_correction_bias",
        "mlp.experts.up_proj.weight",
        "mlp.shared_experts.up_proj.weight",
    ] {
        assert!(model.source.get(&format!("model.layers.0.{name}")).is_ok(), "{name}");
    }
    let layers = |last: &[(&str, &[u64])]| {
        let more = [tensors, &[("blk.1.attn_norm.weight", &[8])], last].concat();
        open("glm4moe", &keys, &more).unwrap().config.usize("num_hidden_layers").unwrap()
    };
    assert_eq!((layers(&[]), layers(&[("blk.1.nextn.eh_proj.weight", &[8, 4])])), (2, 1));
    let none = [("expert_weights_scale", Value::from(0f32))];
    assert!(!config("glm4moe", &none).unwrap().has("routed_scaling_factor"));
}

#[test]
fn what_newer_architectures_do_not_know_is_refused_by_name() {
    for (arch, key, value, why) in [
        ("glm4moe", "expert_gating_func", Value::from(1u32), "the sigmoid"),
        ("glm4moe", "rope.dimension_sections", vec![8i32, 12, 12, 0].into(), "several dimensions"),
        ("llama4", "expert_gating_func", 1u32.into(), "the sigmoid"),
        ("llama4", "expert_weights_scale", 2.5f32.into(), "shares of experts are scaled"),
        ("llama4", "attention.sliding_window", 0u32.into(), "MobileLLM"),
        ("llama4", "attention.sliding_window_pattern", 3u32.into(), "other layers than each fourth"),
        ("minimax-m2", "expert_gating_func", 1u32.into(), "the sigmoid"),
        ("minimax-m2", "expert_weights_scale", 2.5f32.into(), "shares of experts are scaled"),
        ("ernie4_5", "rope.dimension_sections", vec![8i32, 12, 12, 0].into(), "several dimensions"),
        ("ernie4_5-moe", "rope.dimension_sections", vec![8i32, 12, 12, 0].into(), "several dimensions"),
        ("exaone4", "rope.freq_base_swa", 500f32.into(), "a base of their own"),
    ] {
        let e = config(arch, &[(key, value)]).unwrap_err().to_string();
        assert!(e.contains(key) && e.contains(why), "{arch}: {e}");
    }
}

/// What llama.cpp has in its program.
#[test]
fn llama_4_has_its_numbers_from_its_readers() {
    let tensors: &[(&str, &[u64])] = &[
        ("blk.0.ffn_gate.weight", &[8, 8]),
        ("blk.1.ffn_gate_inp.weight", &[8, 4]),
        ("blk.1.ffn_gate_exps.weight", &[8, 6, 4]),
        ("blk.1.ffn_down_shexp.weight", &[6, 8]),
    ];
    let of = |experts: u32| {
        let keys = numbers(&[
            ("block_count", 5),
            ("expert_count", experts),
            ("expert_used_count", 1),
            ("interleave_moe_layer_step", 2),
            ("attention.sliding_window", 77),
            ("feed_forward_length", 20),
            ("expert_feed_forward_length", 6),
        ]);
        open("llama4", &keys, tensors).unwrap()
    };
    let model = of(4);
    assert_eq!(model.architecture, "Llama4ForCausalLM");
    let c = &model.config;
    let names = [
        "num_local_experts",
        "intermediate_size_mlp",
        "intermediate_size",
        "attention_chunk_size",
        "floor_scale",
    ];
    assert_eq!(names.map(|name| c.usize(name).unwrap()), [4, 20, 6, 8192, 8192]);
    assert_eq!(c.opt_usizes("moe_layers").unwrap().unwrap(), [1, 3]);
    assert_eq!(c.opt_usizes("no_rope_layers").unwrap().unwrap(), [1, 1, 1, 0, 1]);
    assert_eq!(c.opt_strs("layer_types").unwrap().unwrap()[2..4], ["chunked_attention", "full_attention"]);
    assert!(c.bool_or("use_qk_norm", false).unwrap() && !c.has("sliding_window"));
    assert!(!of(128).config.bool_or("use_qk_norm", true).unwrap());
    let dense = ["0.feed_forward.gate_proj", "1.feed_forward.router"];
    let experts = ["experts.gate_proj", "shared_expert.down_proj"].map(|e| format!("1.feed_forward.{e}"));
    for name in dense.map(str::to_owned).into_iter().chain(experts) {
        assert!(model.source.get(&format!("model.layers.{name}.weight")).is_ok(), "{name}");
    }
}

#[test]
fn minimaxs_experts_have_mixtrals_names() {
    let tensors: &[(&str, &[u64])] = &[
        ("blk.0.attn_k_norm.weight", &[16]),
        ("blk.0.exp_probs_b.bias", &[4]),
        ("blk.0.ffn_gate_exps.weight", &[4, 6, 8]),
        ("blk.0.ffn_down_exps.weight", &[4, 8, 6]),
    ];
    let keys = numbers(&[("expert_count", 4), ("expert_used_count", 2), ("expert_gating_func", 2)]);
    let model = open("minimax-m2", &keys, tensors).unwrap();
    assert_eq!(model.architecture, "MiniMaxM2ForCausalLM");
    let names = ["num_local_experts", "num_experts_per_tok"];
    assert_eq!(names.map(|name| model.config.usize(name).unwrap()), [4, 2]);
    let moe = "block_sparse_moe";
    for name in [
        "self_attn.k_norm.weight",
        &format!("{moe}.e_score_correction_bias"),
        &format!("{moe}.experts.w1.weight"),
        &format!("{moe}.experts.w2.weight"),
    ] {
        assert!(model.source.get(&format!("model.layers.0.{name}")).is_ok(), "{name}");
    }
}

/// Whether there is an MLP that all rows share is asked of its width.
#[test]
fn ernies_mixtures_say_where_they_begin_and_what_is_shared() {
    let tensors: &[(&str, &[u64])] = &[
        ("blk.1.exp_probs_b.bias", &[4]),
        ("blk.1.ffn_up_exps.weight", &[4, 6, 8]),
        ("blk.1.ffn_up_shexp.weight", &[6, 8]),
    ];
    let keys = [
        ("expert_count", 4),
        ("expert_used_count", 2),
        ("leading_dense_block_count", 1),
        ("interleave_moe_layer_step", 1),
    ];
    let model = open("ernie4_5-moe", &numbers(&keys), tensors).unwrap();
    assert_eq!(model.architecture, "Ernie4_5_MoeForCausalLM");
    let names = ["moe_num_experts", "moe_k", "moe_layer_start_index", "moe_layer_interval"];
    assert_eq!(names.map(|name| model.config.usize(name).unwrap()), [4, 2, 1, 1]);
    for name in
        ["moe_statics.e_score_correction_bias", "experts.up_proj.weight", "shared_experts.up_proj.weight"]
    {
        assert!(model.source.get(&format!("model.layers.1.mlp.{name}")).is_ok(), "{name}");
    }
    for (count, width, want) in [(2, 0, 0), (2, 12, 2), (0, 12, 1)] {
        let shared = [("expert_shared_count", count), ("expert_shared_feed_forward_length", width)];
        let c = config("ernie4_5-moe", &numbers(&shared)).unwrap();
        assert_eq!(c.usize("moe_num_shared_experts").unwrap(), want);
    }
    assert_eq!(config("ernie4_5-moe", &[]).unwrap().usize("moe_layer_start_index").unwrap(), 0);
    assert_eq!(open("ernie4_5", &[], &[]).unwrap().architecture, "Ernie4_5ForCausalLM");
}

#[test]
fn exaone_has_windows_in_models_of_64_layers_and_in_no_others() {
    let of = |keys: &[(&'static str, u32)]| config("exaone4", &numbers(keys)).unwrap();
    let c = of(&[("block_count", 64), ("attention.sliding_window", 32)]);
    let types = c.opt_strs("layer_types").unwrap().unwrap();
    assert_eq!(types[..5].iter().map(|t| &t[..1]).collect::<String>(), "sssfs");
    assert_eq!((types.len(), c.usize("sliding_window").unwrap()), (64, 32));
    assert_eq!(of(&[("block_count", 64)]).usize("sliding_window").unwrap(), 4096);
    let c = of(&[("block_count", 30), ("attention.sliding_window", 32)]);
    assert!(!c.has("sliding_window") && !c.has("layer_types"));
    let tensors: &[(&str, &[u64])] =
        &[("blk.0.post_attention_norm.weight", &[8]), ("blk.0.post_ffw_norm.weight", &[8])];
    let source = open("exaone4", &[], tensors).unwrap().source;
    for name in ["post_attention_layernorm", "post_feedforward_layernorm"] {
        assert!(source.get(&format!("model.layers.0.{name}.weight")).is_ok(), "{name}");
    }
}

#[test]
fn seed_oss_has_its_second_norm_and_its_biases_under_their_names() {
    let tensors: &[(&str, &[u64])] = &[
        ("blk.0.post_attention_norm.weight", &[8]),
        ("blk.0.attn_q.bias", &[8]),
        ("blk.0.attn_output.bias", &[8]),
    ];
    let model = open("seed_oss", &[], tensors).unwrap();
    assert_eq!(model.architecture, "SeedOssForCausalLM");
    for name in ["post_attention_layernorm.weight", "self_attn.q_proj.bias", "self_attn.o_proj.bias"] {
        assert!(model.source.get(&format!("model.layers.0.{name}")).is_ok(), "{name}");
    }
}
