//! Nemotron-H from GGUF: what each block is, and what llama.cpp's converter writes otherwise than other architectures.

mod common;

use common::{checkpoint, space};
use gguf_file::Value;
use serde_json::json;

/// A model of so many layers, of which some attend and some have MLPs.
fn keys(layers: u32, heads: Vec<u32>, hidden: Vec<u32>) -> Vec<(&'static str, Value)> {
    let keys = [
        ("block_count", layers.into()),
        ("embedding_length", 48_u32.into()),
        ("attention.head_count", 6_u32.into()),
        ("attention.key_length", 12_u32.into()),
        ("attention.head_count_kv", heads.into()),
        ("feed_forward_length", hidden.into()),
        ("attention.layer_norm_epsilon", 1e-4_f32.into()),
    ];
    keys.into_iter().chain(space(72)).collect()
}

#[test]
fn blocks_are_what_two_numbers_say() {
    let (heads, hidden) = (vec![0, 0, 2, 0], vec![0, 56, 0, 0]);
    let model = checkpoint("nemotron_h", &keys(4, heads, hidden), &[]).unwrap();
    assert_eq!(model.architecture, "NemotronHForCausalLM");
    let c = &model.config;
    assert_eq!(c.0["layer_types"], json!(["mamba", "mlp", "attention", "mamba"]));
    let sizes = [
        "num_key_value_heads",
        "head_dim",
        "mamba_num_heads",
        "mamba_head_dim",
        "n_groups",
        "ssm_state_size",
        "conv_kernel",
    ];
    assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [2, 12, 6, 12, 3, 10, 4]);
    assert_eq!((c.f32_or("rms_norm_eps", 0.0).unwrap(), c.has("n_routed_experts")), (1e-4, false));
    // A single number is that of all layers, and where nothing is said of MLPs there are none.
    let mut all = keys(3, vec![2, 2, 2], vec![0, 0, 0]);
    let types =
        |keys: &[(&str, Value)]| checkpoint("nemotron_h", keys, &[]).unwrap().config.0["layer_types"].clone();
    assert_eq!(types(&all), json!(["attention", "attention", "attention"]));
    all.retain(|(key, _)| *key != "feed_forward_length");
    assert_eq!(types(&all), json!(["attention", "attention", "attention"]));
    all.push(("feed_forward_length", 7_u32.into()));
    assert_eq!(types(&all), json!(["mlp", "mlp", "mlp"]));
    // The epsilon of other architectures counts where it is said.
    all.push(("attention.layer_norm_rms_epsilon", 1e-3_f32.into()));
    let eps = checkpoint("nemotron_h", &all, &[]).unwrap().config.f32_or("rms_norm_eps", 0.0).unwrap();
    assert_eq!(eps, 1e-3);
}

/// The layer behind the model's has numbers for itself as well.
#[test]
fn layers_that_foretell_are_not_counted() {
    let mut all = keys(4, vec![0, 2, 0, 2], vec![0, 0, 20, 20]);
    all.extend([("expert_count", 4_u32.into()), ("expert_used_count", 2_u32.into())]);
    all.push(("nextn_predict_layers", 1_u32.into()));
    let model = checkpoint("nemotron_h_moe", &all, &[("blk.3.nextn.eh_proj.weight", &[8, 4])]).unwrap();
    assert_eq!(model.config.usize("num_hidden_layers").unwrap(), 3);
    assert_eq!(model.config.0["layer_types"], json!(["mamba", "attention", "moe"]));
}

#[test]
fn mixtures_have_their_experts_under_nvidias_names() {
    let mut all = keys(2, vec![0, 0], vec![0, 20]);
    all.extend([
        ("expert_count", Value::from(4_u32)),
        ("expert_used_count", 2_u32.into()),
        ("expert_shared_count", 1_u32.into()),
        ("expert_group_count", 1_u32.into()),
        ("expert_weights_scale", 2.5_f32.into()),
        ("expert_weights_norm", true.into()),
    ]);
    let tensors: &[(&str, &[u64])] = &[
        ("blk.1.ffn_gate_inp.weight", &[8, 4]),
        ("blk.1.exp_probs_b.bias", &[4]),
        ("blk.1.ffn_up_exps.weight", &[8, 6, 4]),
        ("blk.1.ffn_down_exps.weight", &[6, 8, 4]),
        ("blk.1.ffn_up_shexp.weight", &[8, 6]),
        ("blk.1.ffn_down_shexp.weight", &[6, 8]),
    ];
    let model = checkpoint("nemotron_h_moe", &all, tensors).unwrap();
    let c = &model.config;
    let sizes = ["n_routed_experts", "num_experts_per_tok", "n_shared_experts", "n_group"];
    assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [4, 2, 1, 1]);
    let shares =
        (c.bool_or("norm_topk_prob", false).unwrap(), c.f32_or("routed_scaling_factor", 1.0).unwrap());
    assert_eq!(shares, (true, 2.5));
    for name in [
        "gate.weight",
        "gate.e_score_correction_bias",
        "experts.up_proj.weight",
        "experts.down_proj.weight",
        "shared_experts.up_proj.weight",
        "shared_experts.down_proj.weight",
    ] {
        assert!(model.source.get(&format!("backbone.layers.1.mixer.{name}")).is_ok(), "{name}");
    }
    // Silence and 0 are what llama.cpp takes them for.
    all.retain(|(key, _)| !key.starts_with("expert_weights"));
    all.push(("expert_weights_scale", 0_f32.into()));
    let c = checkpoint("nemotron_h_moe", &all, &[]).unwrap().config;
    assert_eq!((c.bool_or("norm_topk_prob", true).unwrap(), c.has("routed_scaling_factor")), (false, false));
}

#[test]
fn what_no_model_has_is_refused() {
    let mut uneven = keys(3, vec![2, 4, 0], vec![0, 0, 0]);
    let e = checkpoint("nemotron_h", &uneven, &[]).map(drop).unwrap_err().to_string();
    assert!(e.contains("some layers have 2 key heads and some 4"), "{e}");
    uneven.truncate(4);
    uneven.extend([("expert_count", Value::from(4_u32)), ("expert_gating_func", 1_u32.into())]);
    let e = checkpoint("nemotron_h_moe", &uneven, &[]).map(drop).unwrap_err().to_string();
    assert!(e.contains("the function of number 1"), "{e}");
    let odd = [("ssm.inner_size", Value::from(7_u32)), ("ssm.time_step_rank", 2_u32.into())];
    let e = checkpoint("nemotron_h", &odd, &[]).map(drop).unwrap_err().to_string();
    assert!(e.contains("7 elements are not 2 heads"), "{e}");
}
