//! Falcon-H1 from GGUF: names and sizes as llama.cpp's converter writes them.

mod common;

use common::{checkpoint, space};
use gguf_file::Value;
use ogive_weights::Checkpoint;

fn open(keys: &[(&str, Value)], tensors: &[(&str, &[u64])]) -> ogive_tensor::Result<Checkpoint> {
    checkpoint("falcon-h1", keys, tensors)
}

fn keys() -> Vec<(&'static str, Value)> {
    let keys = [
        ("block_count", 1_u32.into()),
        ("embedding_length", 48_u32.into()),
        ("attention.head_count", 6_u32.into()),
        ("attention.head_count_kv", 2_u32.into()),
        ("attention.key_length", 12_u32.into()),
    ];
    keys.into_iter().chain(space(72)).collect()
}

#[test]
fn sizes_and_names_are_those_of_the_class() {
    let model = open(
        &keys(),
        &[
            ("output_norm.weight", &[48]),
            ("blk.0.attn_norm.weight", &[48]),
            ("blk.0.ffn_norm", &[48]),
            ("blk.0.ffn_gate.weight", &[56, 48]),
            ("blk.0.attn_q.weight", &[72, 48]),
            ("blk.0.ssm_in.weight", &[210, 48]),
            ("blk.0.ssm_conv1d.weight", &[132, 4]),
            ("blk.0.ssm_dt.bias", &[6]),
            ("blk.0.ssm_d", &[6, 1]),
        ],
    )
    .unwrap();
    assert_eq!(model.architecture, "FalconH1ForCausalLM");
    let c = &model.config;
    let sizes = ["num_key_value_heads", "head_dim", "mamba_n_heads", "mamba_d_head", "mamba_d_ssm"];
    assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [2, 12, 6, 12, 72]);
    let sizes = ["mamba_n_groups", "mamba_d_state", "mamba_d_conv"];
    assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [3, 10, 4]);
    // There is no norm of what states give, and no factor is left.
    assert!(["mamba_rms_norm", "mamba_norm_before_gate", "key_multiplier"].iter().all(|key| !c.has(key)));
    for (name, shape) in [
        ("final_layernorm.weight", [1, 1, 48]),
        ("layers.0.input_layernorm.weight", [1, 1, 48]),
        ("layers.0.pre_ff_layernorm.weight", [1, 1, 48]),
        ("layers.0.feed_forward.gate_proj.weight", [1, 56, 48]),
        // Its rows are as the class has them.
        ("layers.0.self_attn.q_proj.weight", [1, 72, 48]),
        ("layers.0.mamba.in_proj.weight", [1, 210, 48]),
        ("layers.0.mamba.dt_bias", [1, 1, 6]),
        ("layers.0.mamba.D", [1, 1, 6]),
    ] {
        assert_eq!(model.source.get(&format!("model.{name}")).unwrap().shape, shape, "{name}");
    }
}

/// A norm is one of groups apart, behind the gate.
#[test]
fn what_states_give_is_normed_where_there_is_a_norm() {
    let model = open(&keys(), &[("blk.0.ssm_norm.weight", &[3, 24])]).unwrap();
    let flag = |key| model.config.bool_or(key, key == "mamba_norm_before_gate").unwrap();
    assert_eq!((flag("mamba_rms_norm"), flag("mamba_norm_before_gate")), (true, false));
    assert_eq!(model.source.get("model.layers.0.mamba.norm.weight").unwrap().shape, [1, 1, 72]);
}
