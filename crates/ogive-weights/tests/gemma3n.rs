//! Gemma 3n from GGUF: names and settings as llama.cpp's converter writes them, and what silence means.

mod common;

use common::checkpoint;
use gguf_file::Value;
use serde_json::json;

const SIZES: [(&str, u32); 6] = [
    ("embedding_length", 48),
    ("feed_forward_length", 40),
    ("attention.head_count", 6),
    ("attention.head_count_kv", 2),
    ("attention.key_length", 12),
    ("attention.value_length", 12),
];

fn open(
    layers: u32,
    more: &[(&str, Value)],
    tensors: &[(&str, &[u64])],
) -> ogive_tensor::Result<ogive_weights::Checkpoint> {
    let sizes = SIZES.into_iter().map(|(key, value)| (key, value.into()));
    let keys: Vec<_> = sizes.chain([("block_count", layers.into())]).chain(more.iter().cloned()).collect();
    checkpoint("gemma3n", &keys, tensors)
}

#[test]
fn names_and_settings_are_those_of_the_class() {
    let more: &[(&str, Value)] = &[
        ("attention.sliding_window", 9_u32.into()),
        ("attention.sliding_window_pattern", vec![true, false, true].into()),
        ("attention.shared_kv_layers", 1_u32.into()),
        ("embedding_length_per_layer_input", 8_u32.into()),
        ("altup.num_inputs", 3_u32.into()),
        ("altup.active_idx", 1_u32.into()),
        ("activation_sparsity_scale", vec![1.644_853_4_f32, -0.524_400_5, f32::NEG_INFINITY].into()),
        ("rope.freq_base", 1e5_f32.into()),
        ("rope.freq_base_swa", 5e3_f32.into()),
        ("final_logit_softcapping", 5_f32.into()),
    ];
    let tensors: &[(&str, &[u64])] = &[
        ("altup_proj.weight", &[2, 48, 48]),
        ("altup_unembd_proj.weight", &[2, 48, 48]),
        ("per_layer_token_embd.weight", &[5, 24]),
        ("per_layer_model_proj.weight", &[24, 48]),
        ("per_layer_proj_norm.weight", &[8]),
        ("blk.1.altup_correct_scale.weight", &[48]),
        ("blk.1.altup_correct_coef.weight", &[3, 3]),
        ("blk.1.altup_predict_coef.weight", &[9, 3]),
        ("blk.1.altup_router.weight", &[3, 48]),
        ("blk.1.altup_router_norm.weight", &[48]),
        ("blk.1.laurel_l.weight", &[10, 48]),
        ("blk.1.laurel_r.weight", &[48, 10]),
        ("blk.1.laurel_post_norm.weight", &[48]),
        ("blk.1.post_ffw_norm.weight", &[48]),
        ("blk.1.inp_gate.weight", &[8, 48]),
        ("blk.1.proj.weight", &[48, 8]),
        ("blk.1.post_norm.weight", &[48]),
    ];
    let model = open(3, more, tensors).unwrap();
    assert_eq!(model.architecture, "Gemma3nForCausalLM");
    let c = &model.config;
    for (key, value) in [
        ("sliding_window", 9),
        ("num_kv_shared_layers", 1),
        ("hidden_size_per_layer_input", 8),
        ("altup_num_inputs", 3),
        ("altup_active_idx", 1),
        ("head_dim", 12),
    ] {
        assert_eq!(c.usize(key).unwrap(), value, "{key}");
    }
    assert_eq!(c.opt_f32s("activation_sparsity_pattern").unwrap().unwrap(), [0.95, 0.3, 0.0]);
    assert_eq!(c.0["layer_types"], json!(["sliding_attention", "full_attention", "sliding_attention"]));
    let real = ["rope_theta", "rope_local_base_freq", "final_logit_softcapping"];
    assert_eq!(real.map(|key| c.opt_f32(key).unwrap().unwrap()), [1e5, 5e3, 5.0]);
    assert!(c.bool_or("tie_word_embeddings", false).unwrap() && !c.has("hidden_act"));
    for (name, shape) in [
        ("altup_projections.weight", [2, 48, 48]),
        ("altup_unembed_projections.weight", [2, 48, 48]),
        ("embed_tokens_per_layer.weight", [1, 5, 24]),
        ("per_layer_model_projection.weight", [1, 24, 48]),
        ("per_layer_projection_norm.weight", [1, 1, 8]),
        ("layers.1.altup.correct_output_scale", [1, 1, 48]),
        ("layers.1.altup.correction_coefs.weight", [1, 3, 3]),
        ("layers.1.altup.prediction_coefs.weight", [1, 9, 3]),
        ("layers.1.altup.modality_router.weight", [1, 3, 48]),
        ("layers.1.altup.router_norm.weight", [1, 1, 48]),
        ("layers.1.laurel.linear_left.weight", [1, 10, 48]),
        ("layers.1.laurel.linear_right.weight", [1, 48, 10]),
        ("layers.1.laurel.post_laurel_norm.weight", [1, 1, 48]),
        ("layers.1.post_feedforward_layernorm.weight", [1, 1, 48]),
        ("layers.1.per_layer_input_gate.weight", [1, 8, 48]),
        ("layers.1.per_layer_projection.weight", [1, 48, 8]),
        ("layers.1.post_per_layer_input_norm.weight", [1, 1, 48]),
    ] {
        let found = model.source.get(&format!("model.{name}"));
        assert_eq!(found.unwrap().shape, shape, "{name}");
    }
}

/// llama.cpp has other numbers for two of them: it takes 10,000 for RoPE's base where the key is missing, and requires the window.
#[test]
fn silence_means_what_the_released_models_have() {
    let c = open(35, &[], &[]).unwrap().config;
    for (key, value) in [
        ("sliding_window", 512),
        ("num_kv_shared_layers", 15),
        ("hidden_size_per_layer_input", 256),
        ("altup_num_inputs", 4),
        ("altup_active_idx", 0),
    ] {
        assert_eq!(c.usize(key).unwrap(), value, "{key}");
    }
    let types = c.opt_strs("layer_types").unwrap().unwrap();
    let full: Vec<usize> = (0..types.len()).filter(|i| types[*i] == "full_attention").collect();
    assert_eq!((types.len(), full), (35, vec![4, 9, 14, 19, 24, 29, 34]));
    let real = ["rope_theta", "rope_local_base_freq", "final_logit_softcapping"];
    assert_eq!(real.map(|key| c.opt_f32(key).unwrap().unwrap()), [1e6, 1e4, 30.0]);
    assert!(!c.has("activation_sparsity_pattern"));
}

#[test]
fn cuts_that_are_no_numbers_are_refused() {
    for bad in [vec![0.5_f32, f32::NAN].into(), Value::from(3_u32), vec![3_u32].into()] {
        let e = open(2, &[("activation_sparsity_scale", bad)], &[]).map(drop).unwrap_err().to_string();
        assert!(e.contains("activation_sparsity_scale") && e.contains("list of numbers"), "{e}");
    }
}
