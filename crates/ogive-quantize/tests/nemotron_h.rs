//! Nemotron-H: what no GGUF file can say of it is refused by name, and its files say what each block is.

mod common;

use common::{Tensor, format, packed, rewritten_own};
use ogive_quantize::Input;
use serde_json::{Value, json};

/// Sets these settings; `null` is none.
fn set(more: Value) -> impl FnOnce(&mut Value) {
    move |config| {
        let settings = config.as_object_mut().unwrap();
        settings.extend(more.as_object().unwrap().clone());
        settings.retain(|_, value| !value.is_null());
    }
}

/// What opening a folder with these settings and tensors fails with.
fn refusal(name: &str, settings: Value, tensors: impl FnOnce(&mut Vec<Tensor>)) -> String {
    let folder = rewritten_own(name, set(settings), tensors);
    let e = Input::open(folder.path()).map(|_| ()).unwrap_err().to_string();
    assert!(!e.contains('\n'), "{e}");
    e
}

fn none(_: &mut Vec<Tensor>) {}

#[test]
fn a_file_says_what_each_block_is() {
    // Left over from mixtures.
    let settings = json!({"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 9});
    let gguf = packed(&format("f32"), rewritten_own("nemotron-h", set(settings), none).path()).unwrap();
    let list = |key: &str| {
        let array = gguf.metadata().get(&format!("nemotron_h.{key}")).unwrap().as_array().unwrap();
        array.to_i64().unwrap().into_owned()
    };
    let (key_heads, hidden) = (list("attention.head_count_kv"), list("feed_forward_length"));
    assert_eq!((&*key_heads, &*hidden), (&[0, 0, 2, 0, 0][..], &[0, 56, 0, 0, 56][..]));
    // A reader takes any of these for a mixture.
    assert!(gguf.metadata().iter().all(|(key, _)| !key.contains(".expert_")));
}

#[test]
fn settings_that_a_file_cannot_say_are_refused_by_name() {
    let limit = json!([0.0, 0.1]);
    for (settings, why) in [
        (json!({"mlp_hidden_act": "silu"}), "mlp_hidden_act"),
        (json!({"mamba_hidden_act": "gelu"}), "mamba_hidden_act"),
        (json!({"time_step_limit": limit}), "time_step_limit"),
        (json!({"sliding_window": 7}), "sliding_window"),
        (json!({"hybrid_override_pattern": "ME*M-"}), "layer_types"),
        (json!({"is_causal": false}), "is_causal"),
        (json!({"hybrid_override_pattern": "M-*M"}), "layer_types"),
        (json!({"hybrid_override_pattern": "M-*MX"}), "layer_types"),
        (json!({"hybrid_override_pattern": null}), "layer_types"),
        (json!({"mamba_num_heads": 5}), "blk.0.ssm_in.weight: 210 in place of"),
        (json!({"n_groups": 2}), "blk.0.ssm_in.weight: 210 in place of"),
        (json!({"n_groups": 5}), "72 elements are not 5 rows of one size"),
        (json!({"conv_kernel": 3}), "blk.0.ssm_conv1d.weight: 4 in place of 3"),
        (json!({"head_dim": 8}), "blk.2.attn_q.weight: 72 in place of 48"),
        (json!({"num_key_value_heads": 1}), "blk.2.attn_k.weight: 24 in place of 12"),
        (json!({"intermediate_size": 55}), "blk.1.ffn_up.weight: 56 in place of 55"),
    ] {
        let e = refusal("nemotron-h", settings.clone(), none);
        assert!(e.contains(why), "{settings}: {e}");
    }
}

/// Another tensor in each of these layers, with so many zeros.
fn one_more(layers: &'static [usize], leaf: &'static str, n: u64) -> impl Fn(&mut Vec<Tensor>) {
    move |all| {
        let name = |layer: &usize| format!("backbone.layers.{layer}.mixer.{leaf}");
        let zeros = || vec![0; 2 * n as usize];
        let tensor = |name| Tensor { name, dtype: "BF16".into(), shape: vec![n], bytes: zeros() };
        all.extend(layers.iter().map(name).map(tensor));
    }
}

#[test]
fn tensors_that_readers_pass_over_or_miss_are_refused() {
    let e = refusal("nemotron-h", json!({}), one_more(&[0, 3], "in_proj.bias", 210));
    assert!(e.contains("blk.0.ssm_in.bias") && e.contains("no biases"), "{e}");
    let e = refusal("nemotron-h", json!({}), |all| {
        all.retain(|t| t.name != "backbone.layers.3.mixer.conv1d.bias")
    });
    assert!(e.contains("layer 3 of 5: some of its tensors are missing"), "{e}");
    let e = refusal("nemotron-h", json!({}), |all| all.retain(|t| !t.name.ends_with("conv1d.bias")));
    assert!(e.contains("blk.0.ssm_conv1d.bias") && e.contains("want biases"), "{e}");
    let e = refusal("nemotron-h", json!({}), |all| all.retain(|t| !t.name.contains("norm_f")));
    assert!(e.contains("`backbone.norm_f.weight` does"), "{e}");
    // What foretells more than one token is left out.
    let foretelling = |all: &mut Vec<Tensor>| {
        one_more(&[0], "norm", 48)(all);
        all.iter_mut()
            .filter(|t| t.name.ends_with("mixer.norm"))
            .for_each(|t| t.name = "mtp.layers.0.enorm.weight".into());
    };
    let folder = rewritten_own("nemotron-h", set(json!({})), foretelling);
    let gguf = packed(&format("bf16"), folder.path()).unwrap();
    let beside: Vec<&str> =
        gguf.tensors().iter().map(|t| t.name()).filter(|n| !n.starts_with("blk.")).collect();
    assert_eq!(beside, ["token_embd.weight", "output_norm.weight", "output.weight"]);
}

/// As transformers 5 calls them.
#[test]
fn tensors_under_later_names_become_the_same() {
    let later =
        |all: &mut Vec<Tensor>| all.iter_mut().for_each(|t| t.name = t.name.replace("backbone.", "model."));
    let of = |change: fn(&mut Vec<Tensor>)| {
        let folder = rewritten_own("nemotron-h", set(json!({})), change);
        let gguf = packed(&format("q8_0"), folder.path()).unwrap();
        let name = |t: &ogive_quantize::gguf_file::TensorInfo| {
            (t.name().to_owned(), gguf.data(t).unwrap().bytes().to_vec())
        };
        gguf.tensors().iter().map(name).collect::<Vec<_>>()
    };
    assert!(of(later) == of(none));
}
