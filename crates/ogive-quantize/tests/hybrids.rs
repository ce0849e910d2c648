//! Hybrids of linear attention and of the other kind: what no GGUF file can say of them is refused by name, and what their classes do not
//! know is neither obeyed nor written.

mod common;

use common::{Tensor, format, packed, rewritten_own};
use ogive_quantize::Input;
use ogive_quantize::gguf_file::Gguf;
use serde_json::{Value, json};

const NAMES: [&str; 3] = ["qwen3-next", "qwen3-5", "qwen3-5-moe"];

/// Sets these settings, in those of the text where there are such; `null` is none.
fn set(more: Value) -> impl FnOnce(&mut Value) {
    move |config| {
        let text = if config["text_config"].is_object() { &mut config["text_config"] } else { config };
        let text = text.as_object_mut().unwrap();
        text.extend(more.as_object().unwrap().clone());
        text.retain(|_, value| !value.is_null());
    }
}

/// What opening a folder with these settings fails with.
fn refusal(name: &str, settings: Value, tensors: impl FnOnce(&mut Vec<Tensor>)) -> String {
    let folder = rewritten_own(name, set(settings), tensors);
    Input::open(folder.path()).map(|_| ()).unwrap_err().to_string()
}

fn none(_: &mut Vec<Tensor>) {}

#[test]
fn settings_that_a_file_cannot_say_are_refused_by_name() {
    for name in NAMES {
        for (settings, why) in [
            (json!({"attn_output_gate": false}), "attn_output_gate"),
            (json!({"attn_output_gate": 1}), "`attn_output_gate` should be true or false"),
            (json!({"output_gate_type": "sigmoid"}), "output_gate_type"),
            (json!({"is_causal": false}), "is_causal"),
            (json!({"hidden_act": "gelu"}), "hidden_act"),
            (json!({"full_attention_interval": 0, "layer_types": null}), "full_attention_interval"),
            (json!({"layer_types": vec!["sliding_attention"; 3]}), "layer_types"),
            (json!({"layer_types": vec!["linear_attention"; 2]}), "layer_types"),
            (json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}), "dynamic"),
        ] {
            let e = refusal(name, settings.clone(), none);
            assert!(e.contains(why) && !e.contains('\n'), "{name}, {settings}: {e}");
        }
    }
    for (name, settings, why) in [
        ("qwen3-next", json!({"norm_topk_prob": false}), "norm_topk_prob"),
        ("qwen3-next", json!({"mlp_only_layers": [1]}), "mlp_only_layers"),
        ("qwen3-next", json!({"decoder_sparse_step": 2}), "decoder_sparse_step"),
        ("qwen3-5", json!({"mrope_section": [1, 1, 1, 1, 1]}), "mrope_section"),
        ("qwen3-5", json!({"mrope_section": [0, 0, 0]}), "mrope_section"),
        ("qwen3-5-moe", json!({"mrope_section": [1u64 << 40, 1, 1]}), "mrope_section"),
    ] {
        let e = refusal(name, settings.clone(), none);
        assert!(e.contains(why), "{name}, {settings}: {e}");
    }
    let dense = |all: &mut Vec<Tensor>| all.retain(|t| !t.name.contains(".experts."));
    let e = refusal("qwen3-next", json!({"num_experts": 0}), dense);
    assert!(e.contains("the setting num_experts") && e.contains("have no experts"), "{e}");
}

#[test]
fn heads_that_do_not_fit_are_refused() {
    for name in NAMES {
        for (settings, why) in [
            (json!({"linear_num_value_heads": 5, "linear_num_key_heads": 2}), "cannot share 2 key heads"),
            (json!({"linear_num_key_heads": 0}), "cannot share 0 key heads"),
            (json!({"linear_num_value_heads": 0}), "0 heads of"),
            (json!({"linear_key_head_dim": 0}), "key heads of 0"),
            (json!({"linear_value_head_dim": 0}), "heads of 0 elements"),
            (json!({"linear_num_value_heads": 12}), "do weights and config"),
            (json!({"linear_key_head_dim": 7}), "do weights and config"),
            (json!({"linear_value_head_dim": u64::MAX}), "do weights and config"),
            (json!({"linear_conv_kernel_dim": 2}), "ssm_conv1d.weight: "),
            (json!({"linear_conv_kernel_dim": 0}), "in place of 1;"),
            (json!({"head_dim": 8}), "attn_q.weight: "),
            (json!({"num_attention_heads": 12}), "attn_q.weight: "),
            (json!({"num_key_value_heads": 1}), "attn_k.weight: "),
        ] {
            let e = refusal(name, settings.clone(), none);
            assert!(e.contains(why) && !e.contains('\n'), "{name}, {settings}: {e}");
        }
    }
    // Seven heads of two key heads have the rows of six where shares are rounded.
    let e = refusal("qwen3-next", json!({"linear_num_value_heads": 7}), none);
    assert!(e.contains("7 heads of 12 elements cannot share 2 key heads of 8"), "{e}");
    let e = refusal("qwen3-5-moe", json!({"num_experts": 6}), none);
    assert!(e.contains("_exps.weight: 7 in place of 6"), "{e}");
}

/// The tensors of layer 0 with this in their names, cut to so many rows.
fn cut(part: &'static str, rows: u64) -> impl Fn(&mut Vec<Tensor>) {
    move |all| {
        for t in all.iter_mut().filter(|t| t.name.contains(&format!("layers.0.{part}"))) {
            let old = std::mem::replace(&mut t.shape[0], rows);
            t.bytes.truncate(t.bytes.len() / old as usize * rows as usize);
        }
    }
}

#[test]
fn tensors_of_other_sizes_are_refused() {
    for (name, part, rows, to) in [
        ("qwen3-next", "linear_attn.in_proj_qkvz", 175, "in_proj_qkvz"),
        ("qwen3-next", "linear_attn.in_proj_qkvz", 0, "in_proj_qkvz"),
        ("qwen3-next", "linear_attn.in_proj_ba", 11, "blk.0.ssm_ba.weight: 11 in place of 12"),
        ("qwen3-next", "linear_attn.conv1d", 100, "blk.0.ssm_conv1d.weight: 100 in place of 104"),
        ("qwen3-next", "linear_attn.A_log", 5, "blk.0.ssm_a: 5 in place of 6"),
        ("qwen3-next", "linear_attn.dt_bias", 5, "blk.0.ssm_dt.bias: 5 in place of 6"),
        ("qwen3-next", "linear_attn.norm", 11, "blk.0.ssm_norm.weight: 11 in place of 12"),
        ("qwen3-5", "linear_attn.in_proj_qkv", 95, "blk.0.attn_qkv.weight: 95 in place of 96"),
        ("qwen3-5", "linear_attn.in_proj_z", 47, "blk.0.attn_gate.weight: 47 in place of 48"),
        ("qwen3-5", "linear_attn.in_proj_b", 5, "blk.0.ssm_beta.weight: 5 in place of 6"),
        ("qwen3-5", "linear_attn.in_proj_a", 3, "blk.0.ssm_alpha.weight: 3 in place of 6"),
        ("qwen3-5-moe", "mlp.experts.gate_up_proj", 6, "blk.0.ffn_gate_exps.weight: 6 in place of 7"),
    ] {
        let e = refusal(name, json!({}), cut(part, rows));
        assert!(e.contains(to) && !e.contains('\n'), "{name}, {part}: {e}");
    }
}

/// Matrices as another of the classes has them: their heads would come in another order.
#[test]
fn projections_of_another_class_are_refused() {
    let fused = |all: &mut Vec<Tensor>| {
        let z = all.iter().position(|t| t.name.contains("layers.0.linear_attn.in_proj_z")).unwrap();
        let z = all.remove(z);
        let qkv = all.iter_mut().find(|t| t.name.contains("layers.0.linear_attn.in_proj_qkv")).unwrap();
        qkv.name = qkv.name.replace("in_proj_qkv", "in_proj_qkvz");
        qkv.shape[0] += z.shape[0];
        qkv.bytes.extend(z.bytes);
    };
    let e = refusal("qwen3-5", json!({}), fused);
    assert!(e.contains("in_proj_qkvz.weight") && e.contains("GGUF has no name for it"), "{e}");
}

#[test]
fn what_a_class_does_not_know_is_neither_obeyed_nor_written() {
    let file = |name: &str, settings: Value| {
        packed(&format("f32"), rewritten_own(name, set(settings), none).path()).unwrap()
    };
    let windows = json!({"use_sliding_window": true, "sliding_window": 3, "output_gate_type": "swish",
        "attn_output_gate": true});
    let mixtures = json!({"norm_topk_prob": false, "decoder_sparse_step": 2, "mlp_only_layers": [0]});
    for (name, settings) in [("qwen3-next", &windows), ("qwen3-5", &windows), ("qwen3-5-moe", &windows)]
        .into_iter()
        .chain([("qwen3-5-moe", &mixtures)])
    {
        let (with, without) = (file(name, settings.clone()), file(name, json!({})));
        let keys = |file: &Gguf| {
            let metadata = file.metadata().iter().filter(|(key, _)| *key != "general.name");
            metadata.map(|(key, value)| format!("{key}: {value:?}")).collect::<Vec<_>>()
        };
        assert_eq!(keys(&with), keys(&without), "{name}, {settings}");
    }
}

#[test]
fn that_the_embedding_is_the_head_may_be_said_of_the_whole() {
    let whole = |tied: Value| move |config: &mut Value| config["tie_word_embeddings"] = tied;
    let without = |all: &mut Vec<Tensor>| all.retain(|t| t.name != "lm_head.weight");
    let folder = rewritten_own("qwen3-5-moe", whole(json!(true)), without);
    assert!(packed(&format("f32"), folder.path()).unwrap().tensor("output.weight").is_none());
    for tied in [json!(false), json!("yes")] {
        let folder = rewritten_own("qwen3-5-moe", whole(tied), without);
        let e = Input::open(folder.path()).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains("tie_word_embeddings"), "{e}");
    }
}

#[test]
fn what_a_file_cannot_say_of_granite_4_is_refused_by_name() {
    for (settings, why) in [
        (json!({"mamba_n_groups": 2, "mamba_d_state": 4}), "mamba_n_groups"),
        (json!({"mamba_proj_bias": true}), "mamba_proj_bias"),
        (json!({"mamba_conv_bias": false}), "mamba_conv_bias"),
        (json!({"layer_types": ["mamba", "attention"]}), "layer_types"),
        (json!({"layer_types": null}), "layer 1 of 3"),
        (json!({"mamba_n_heads": 5, "mamba_d_head": 16}), "ssm_in.weight: 214 in place of 181"),
        (json!({"mamba_d_head": 17}), "ssm_in.weight: 214 in place of"),
        (json!({"mamba_d_state": 9}), "ssm_in.weight: 214 in place of 216"),
        (json!({"mamba_d_conv": 5}), "ssm_conv1d.weight: 4 in place of 5"),
        (json!({"residual_multiplier": 0.0}), "residual_multiplier"),
    ] {
        let e = refusal("granite-hybrid", settings.clone(), none);
        assert!(e.contains(why) && !e.contains('\n'), "{settings}: {e}");
    }
    // A file of the older architecture cannot say that nothing is turned.
    let only_attention = |all: &mut Vec<Tensor>| all.retain(|t| !t.name.contains(".mamba."));
    let e = refusal(
        "granite-hybrid",
        json!({"layer_types": ["attention", "attention", "attention"]}),
        only_attention,
    );
    assert!(e.contains("layer 0 of 3") || e.contains("position_embedding_type"), "{e}");
}

#[test]
fn a_granite_4_that_only_attends_is_an_older_architecture() {
    let one = |all: &mut Vec<Tensor>| {
        all.retain(|t| !["layers.0.", "layers.2."].iter().any(|l| t.name.contains(l)))
    };
    let only = |all: &mut Vec<Tensor>| {
        one(all);
        all.iter_mut().for_each(|t| t.name = t.name.replace("layers.1.", "layers.0."));
    };
    for (name, architecture) in [("granite-hybrid", "granite"), ("granite-hybrid-moe", "granitemoe")] {
        let settings =
            json!({"num_hidden_layers": 1, "layer_types": ["attention"], "position_embedding_type": "rope"});
        let file = packed(&format("f32"), rewritten_own(name, set(settings), only).path()).unwrap();
        assert_eq!(file.metadata().str("general.architecture").unwrap(), architecture);
        let turned = json!({"num_hidden_layers": 1, "layer_types": ["attention"]});
        assert!(refusal(name, turned, only).contains("position_embedding_type"));
    }
}
