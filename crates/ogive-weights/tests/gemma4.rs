//! Gemma 4 from GGUF: names and sizes as llama.cpp's converter writes them.

mod common;

use common::checkpoint;
use gguf_file::Value;
use ogive_weights::Checkpoint;
use serde_json::json;

fn open(more: &[(&str, Value)], tensors: &[(&str, &[u64])]) -> ogive_tensor::Result<Checkpoint> {
    let keys: Vec<(&str, Value)> = [
        ("block_count", 3_u32.into()),
        ("embedding_length", 48_u32.into()),
        ("embedding_length_per_layer_input", 0_u32.into()),
        ("feed_forward_length", 40_u32.into()),
        ("attention.head_count", 6_u32.into()),
        ("attention.head_count_kv", 2_u32.into()),
        ("attention.key_length", 24_u32.into()),
        ("attention.value_length", 24_u32.into()),
        ("attention.key_length_swa", 12_u32.into()),
        ("attention.value_length_swa", 12_u32.into()),
        ("attention.sliding_window", 9_u32.into()),
        ("attention.sliding_window_pattern", vec![true, true, false].into()),
        ("attention.shared_kv_layers", 0_u32.into()),
        ("rope.dimension_count", 24_u32.into()),
        ("rope.dimension_count_swa", 12_u32.into()),
        ("rope.freq_base", 1e6_f32.into()),
    ]
    .into();
    let keys: Vec<_> =
        keys.into_iter().filter(|(key, _)| more.iter().all(|(other, _)| other != key)).collect();
    checkpoint("gemma4", &[&keys[..], more].concat(), tensors)
}

#[test]
fn sizes_and_names_are_those_of_the_class() {
    let model = open(
        &[
            ("attention.head_count_kv", vec![2_u32, 2, 1].into()),
            ("final_logit_softcapping", 30_f32.into()),
            ("expert_count", 7_u32.into()),
            ("expert_used_count", 3_u32.into()),
            ("expert_feed_forward_length", 20_u32.into()),
        ],
        &[
            ("rope_freqs.weight", &[12]),
            ("blk.0.attn_v.weight", &[24, 48]),
            ("blk.2.attn_k.weight", &[24, 48]),
            ("blk.0.post_attention_norm.weight", &[48]),
            ("blk.0.ffn_norm.weight", &[48]),
            ("blk.0.post_ffw_norm.weight", &[48]),
            ("blk.0.layer_output_scale.weight", &[1]),
            ("blk.0.ffn_gate_inp.weight", &[7, 48]),
            ("blk.0.ffn_gate_inp.scale", &[48]),
            ("blk.0.ffn_down_exps.scale", &[7]),
            ("blk.0.ffn_gate_up_exps.weight", &[7, 40, 48]),
            ("blk.0.ffn_down_exps.weight", &[7, 48, 20]),
            ("blk.0.pre_ffw_norm_2.weight", &[48]),
            ("blk.0.post_ffw_norm_1.weight", &[48]),
            ("blk.0.post_ffw_norm_2.weight", &[48]),
        ],
    )
    .unwrap();
    assert_eq!(model.architecture, "Gemma4ForCausalLM");
    let c = &model.config;
    let sizes = ["num_key_value_heads", "num_global_key_value_heads", "head_dim", "global_head_dim"];
    assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [2, 1, 12, 24]);
    let sizes = [
        "num_experts",
        "top_k_experts",
        "sliding_window",
        "num_kv_shared_layers",
        "hidden_size_per_layer_input",
    ];
    assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [7, 3, 9, 0, 0]);
    let flags = ["attention_k_eq_v", "enable_moe_block", "use_double_wide_mlp", "tie_word_embeddings"];
    assert_eq!(flags.map(|key| c.bool_or(key, false).unwrap()), [true, true, false, true]);
    assert_eq!(c.0["layer_types"], json!(["sliding_attention", "sliding_attention", "full_attention"]));
    assert_eq!((c.0["rope_local_base_freq"].as_f64(), c.0["rope_theta"].as_f64()), (Some(1e4), Some(1e6)));
    assert_eq!(c.0["rope_scaling"]["rope_type"], "factors");
    assert!(!c.has("partial_rotary_factor") && !c.has("hidden_act"));
    for (name, shape) in [
        ("post_attention_layernorm.weight", [1, 1, 48]),
        ("pre_feedforward_layernorm.weight", [1, 1, 48]),
        ("post_feedforward_layernorm.weight", [1, 1, 48]),
        ("layer_scalar", [1, 1, 1]),
        ("router.proj.weight", [1, 7, 48]),
        ("router.scale", [1, 1, 48]),
        ("router.per_expert_scale", [1, 1, 7]),
        ("experts.gate_up_proj", [7, 40, 48]),
        ("experts.down_proj", [7, 48, 20]),
        ("pre_feedforward_layernorm_2.weight", [1, 1, 48]),
        ("post_feedforward_layernorm_1.weight", [1, 1, 48]),
        ("post_feedforward_layernorm_2.weight", [1, 1, 48]),
    ] {
        assert_eq!(model.source.get(&format!("model.layers.0.{name}")).unwrap().shape, shape, "{name}");
    }
    // Norms are kept as the factors they are: the first of the file's numbers is 0.
    assert_eq!(model.source.get("model.layers.0.post_attention_layernorm.weight").unwrap().to_vec()[0], 0.0);
}

#[test]
fn inputs_of_layers_and_shared_keys_are_those_of_the_class() {
    let model = open(
        &[
            ("embedding_length_per_layer_input", 8_u32.into()),
            ("attention.shared_kv_layers", 1_u32.into()),
            ("feed_forward_length", vec![24_u32, 24, 48].into()),
        ],
        &[
            ("per_layer_token_embd.weight", &[5, 24]),
            ("per_layer_model_proj.weight", &[24, 48]),
            ("per_layer_proj_norm.weight", &[8]),
            ("blk.2.inp_gate.weight", &[8, 48]),
            ("blk.2.proj.weight", &[48, 8]),
            ("blk.2.post_norm.weight", &[48]),
        ],
    )
    .unwrap();
    let c = &model.config;
    let sizes = ["hidden_size_per_layer_input", "num_kv_shared_layers", "intermediate_size"];
    assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [8, 1, 24]);
    let flags = ["use_double_wide_mlp", "attention_k_eq_v", "enable_moe_block"];
    assert_eq!(flags.map(|key| c.bool_or(key, true).unwrap()), [true, false, false]);
    for (name, shape) in [
        ("embed_tokens_per_layer.weight", [1, 5, 24]),
        ("per_layer_model_projection.weight", [1, 24, 48]),
        ("per_layer_projection_norm.weight", [1, 1, 8]),
        ("layers.2.per_layer_input_gate.weight", [1, 8, 48]),
        ("layers.2.per_layer_projection.weight", [1, 48, 8]),
        ("layers.2.post_per_layer_input_norm.weight", [1, 1, 48]),
    ] {
        assert_eq!(model.source.get(&format!("model.{name}")).unwrap().shape, shape, "{name}");
    }
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let refused = |more: &[(&str, Value)], tensors: &[(&str, &[u64])], why: &str| {
        let e = open(more, tensors).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains(why), "{e}");
    };
    refused(&[("rope.dimension_count", 12_u32.into())], &[], "rope.dimension_count: 12 of 24");
    refused(&[("rope.dimension_count_swa", 6_u32.into())], &[], "rope.dimension_count_swa: 6 of 12");
    refused(&[("attention.value_length_swa", 6_u32.into())], &[], "attention.value_length_swa");
    refused(
        &[("attention.head_count_kv", vec![2_u32, 1, 1].into())],
        &[],
        "some layers of a kind have 2 key heads",
    );
    let pattern = ("attention.sliding_window_pattern", vec![true, false, false].into());
    let mixed: &[(&str, &[u64])] = &[
        ("blk.1.attn_k.weight", &[2, 2]),
        ("blk.1.attn_v.weight", &[2, 2]),
        ("blk.2.attn_k.weight", &[2, 2]),
    ];
    refused(&[pattern], mixed, "keys are values in some layers");
}
