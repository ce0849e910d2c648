//! Falcon-H1: its factors are in the weights of a file, and what no file can say is refused by name.

mod common;

use common::{Tensor, format, none, packed, refusal, rewritten_own, set, values};
use ogive_quantize::gguf_file::Gguf;
use ogive_tensor::{BF16, Format};
use serde_json::{Value, json};

/// The model as a file of singles, and its tensors as they were.
fn converted(name: &str, settings: Value) -> (Gguf, Vec<(String, Vec<f32>)>) {
    let mut all = Vec::new();
    let folder = rewritten_own(name, set(settings), |tensors| {
        all = tensors.iter().map(|t| (t.name.clone(), singles(&t.bytes, &BF16))).collect();
    });
    (packed(&format("f32"), folder.path()).unwrap(), all)
}

fn singles(bytes: &[u8], format: &Format) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / format.block_bytes];
    format.decode_row(bytes, &mut out);
    out
}

/// One factor after the other, as the converter multiplies: the order decides on last bits.
#[test]
fn factors_are_in_the_weights_to_the_bit() {
    let (file, all) = converted("falcon-h1", json!({}));
    let own = |name: &str| &all.iter().find(|(own, _)| own == name).unwrap().1;
    let same =
        |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits()) && a.len() == b.len();
    for (to, from, factors) in [
        ("token_embd.weight", "embed_tokens.weight", &[2.5_f32][..]),
        ("output_norm.weight", "final_layernorm.weight", &[]),
        ("blk.1.attn_q.weight", "layers.1.self_attn.q_proj.weight", &[1.3]),
        ("blk.1.attn_k.weight", "layers.1.self_attn.k_proj.weight", &[0.6, 1.3]),
        ("blk.1.attn_v.weight", "layers.1.self_attn.v_proj.weight", &[1.3]),
        ("blk.1.attn_output.weight", "layers.1.self_attn.o_proj.weight", &[0.8]),
        ("blk.1.ssm_out.weight", "layers.1.mamba.out_proj.weight", &[0.9]),
        ("blk.1.ffn_gate.weight", "layers.1.feed_forward.gate_proj.weight", &[1.15]),
        ("blk.1.ffn_up.weight", "layers.1.feed_forward.up_proj.weight", &[]),
        ("blk.1.ffn_down.weight", "layers.1.feed_forward.down_proj.weight", &[0.55]),
        ("blk.1.ffn_norm", "layers.1.pre_ff_layernorm.weight", &[]),
    ] {
        let want: Vec<f32> =
            own(&format!("model.{from}")).iter().map(|v| factors.iter().fold(*v, |v, f| v * f)).collect();
        assert!(same(&values(&file, to), &want), "{to}");
    }
    let head: Vec<f32> = own("lm_head.weight").iter().map(|v| v * 0.7).collect();
    assert!(same(&values(&file, "output.weight"), &head));
    // Rows of the gate, of inputs, of what states are written and read by, and of steps in time.
    let input = own("model.layers.0.mamba.in_proj.weight");
    let rows = [(72, 0.75_f32), (72, 1.4), (20, 0.85), (20, 1.25), (6, 0.65)];
    let of_rows = rows.into_iter().flat_map(|(n, factor)| std::iter::repeat_n(factor, 48 * n));
    let want: Vec<f32> = input.iter().zip(of_rows).map(|(v, factor)| v * 1.2 * factor).collect();
    assert!(same(&values(&file, "blk.0.ssm_in.weight"), &want));
}

/// Also biases of MLPs; and a table of tokens that is the head too is two tables, unless it has one factor as both.
#[test]
fn a_table_that_is_the_head_too_has_a_factor_as_either() {
    let (file, all) = converted("falcon-h1-norm", json!({}));
    let own = |name: &str| &all.iter().find(|(own, _)| own == name).unwrap().1;
    let times = |name: &str, factor: f32| own(name).iter().map(|v| v * factor).collect::<Vec<_>>();
    assert_eq!(values(&file, "token_embd.weight"), times("model.embed_tokens.weight", 2.5));
    assert_eq!(values(&file, "output.weight"), times("model.embed_tokens.weight", 0.7));
    for (to, from, factor) in
        [("ffn_gate", "gate_proj", 1.15), ("ffn_up", "up_proj", 1.0), ("ffn_down", "down_proj", 0.55)]
    {
        let from = format!("model.layers.0.feed_forward.{from}.bias");
        assert_eq!(values(&file, &format!("blk.0.{to}.bias")), times(&from, factor));
    }
    let (file, _) = converted("falcon-h1-norm", json!({"lm_head_multiplier": 2.5}));
    assert!(file.tensor("output.weight").is_none());
}

#[test]
fn a_file_says_the_sizes_that_its_readers_want() {
    let (file, _) = converted("falcon-h1-norm", json!({"mamba_d_head": "auto"}));
    let number = |key: &str| file.metadata().u32(&format!("falcon-h1.{key}")).unwrap();
    let keys = ["conv_kernel", "state_size", "group_count", "time_step_rank", "inner_size"];
    assert_eq!(keys.map(|key| number(&format!("ssm.{key}"))), [4, 10, 3, 6, 72]);
    let keys =
        ["attention.head_count", "attention.head_count_kv", "attention.key_length", "rope.dimension_count"];
    assert_eq!(keys.map(number), [6, 1, 12, 12]);
    assert_eq!(file.tensor("blk.0.ssm_norm.weight").unwrap().dims(), [24, 3]);
}

#[test]
fn settings_that_a_file_cannot_say_are_refused_by_name() {
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16});
    for (name, settings, why) in [
        ("falcon-h1-norm", json!({"mamba_norm_before_gate": true}), "mamba_norm_before_gate"),
        ("falcon-h1-norm", json!({"mamba_rms_norm": false}), "the model has norms"),
        ("falcon-h1", json!({"mamba_rms_norm": true}), "the model has no norms"),
        ("falcon-h1", json!({"hidden_act": "gelu"}), "hidden_act"),
        ("falcon-h1", json!({"time_step_limit": [0.0, 0.1]}), "time_step_limit"),
        ("falcon-h1", json!({"is_causal": false}), "is_causal"),
        ("falcon-h1", json!({"mamba_use_mlp": false}), "mamba_use_mlp"),
        ("falcon-h1", json!({"rope_scaling": llama3}), "rope_scaling"),
        ("falcon-h1", json!({"mlp_multipliers": [1.0]}), "mlp_multipliers: it has 1 factors in place of 2"),
        ("falcon-h1", json!({"ssm_multipliers": [1.0]}), "ssm_multipliers: it has 1 factors in place of 5"),
        ("falcon-h1", json!({"mamba_d_ssm": 70}), "6 heads of 12 elements are not 70"),
        ("falcon-h1", json!({"mamba_d_ssm": null}), "6 heads of 12 elements are not 96"),
        ("falcon-h1", json!({"mamba_d_state": 9}), "blk.0.ssm_in.weight: 190 in place of 186"),
        ("falcon-h1", json!({"mamba_d_conv": 3}), "blk.0.ssm_conv1d.weight: 4 in place of 3"),
        ("falcon-h1", json!({"head_dim": 8}), "blk.0.attn_q.weight: 72 in place of 48"),
        ("falcon-h1", json!({"num_key_value_heads": 1}), "blk.0.attn_k.weight: 24 in place of 12"),
        ("falcon-h1", json!({"intermediate_size": 55}), "blk.0.ffn_gate.weight: 56 in place of 55"),
    ] {
        let e = refusal(name, settings.clone(), none);
        assert!(e.contains(why), "{settings}: {e}");
    }
}

#[test]
fn tensors_that_readers_pass_over_or_miss_are_refused() {
    let bias = |all: &mut Vec<Tensor>, leaf: &str, n: u64| {
        let tensor = |layer: usize| Tensor {
            name: format!("model.layers.{layer}.{leaf}.bias"),
            dtype: "BF16".into(),
            shape: vec![n],
            bytes: vec![0; 2 * n as usize],
        };
        all.extend([0, 1].map(tensor));
    };
    for (leaf, n, named) in [
        ("mamba.in_proj", 190, "blk.0.ssm_in.bias"),
        ("mamba.out_proj", 48, "blk.0.ssm_out.bias"),
        ("self_attn.o_proj", 48, "blk.0.attn_output.bias"),
        ("self_attn.k_proj", 24, "blk.0.attn_k.bias"),
    ] {
        let e = refusal("falcon-h1", json!({}), |all| bias(all, leaf, n));
        assert!(e.contains(named), "{leaf}: {e}");
    }
    let without = |part: &'static str| move |all: &mut Vec<Tensor>| all.retain(|t| !t.name.contains(part));
    for (part, why) in [
        ("conv1d.bias", "want biases"),
        ("final_layernorm", "`model.final_layernorm.weight` does"),
        ("layers.1.mamba.D", "layer 1 of 2: some of its tensors are missing"),
        ("lm_head", "output.weight"),
    ] {
        let e = refusal("falcon-h1", json!({}), without(part));
        assert!(e.contains(why), "{part}: {e}");
    }
}
