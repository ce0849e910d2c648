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
        (json!({"hybrid_override_pattern": "ME*ME"}), "block 1 is `moe`, and its tensors are none of one"),
        (
            json!({"hybrid_override_pattern": "M*-M-"}),
            "block 1 is `attention`, and its tensors are none of one",
        ),
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

#[test]
fn a_file_of_mixtures_says_how_experts_are_chosen() {
    let gguf = packed(&format("f32"), rewritten_own("nemotron-h-moe", set(json!({})), none).path()).unwrap();
    let meta = gguf.metadata();
    assert_eq!(meta.str("general.architecture").unwrap(), "nemotron_h_moe");
    let key = |key: &str| meta.get(&format!("nemotron_h_moe.{key}")).unwrap();
    let list = |name: &str| key(name).as_array().unwrap().to_i64().unwrap().into_owned();
    assert_eq!(list("attention.head_count_kv"), [0, 0, 2, 0]);
    assert_eq!(list("feed_forward_length"), [0, 20, 0, 0]);
    for (name, value) in [
        ("expert_count", 7),
        ("expert_used_count", 3),
        ("expert_shared_count", 1),
        ("expert_feed_forward_length", 20),
        ("expert_shared_feed_forward_length", 40),
        ("expert_group_count", 1),
        ("expert_group_used_count", 1),
    ] {
        assert_eq!(key(name).as_int(), Some(value), "{name}");
    }
    assert_eq!(meta.f32("nemotron_h_moe.expert_weights_scale").unwrap(), 2.5);
    assert!(meta.bool("nemotron_h_moe.expert_weights_norm").unwrap());
    let dims = |name: &str| gguf.tensor(&format!("blk.1.{name}")).unwrap().dims().to_vec();
    assert_eq!(
        (dims("ffn_up_exps.weight"), dims("ffn_down_exps.weight")),
        (vec![48, 20, 7], vec![20, 48, 7])
    );
    assert_eq!((dims("ffn_up_shexp.weight"), dims("exp_probs_b.bias")), (vec![48, 40], vec![7]));
}

#[test]
fn what_a_file_cannot_say_of_mixtures_is_refused_by_name() {
    for (settings, why) in [
        (json!({"moe_latent_size": 16}), "moe_latent_size"),
        (json!({"routed_scaling_factor": 0.0}), "routed_scaling_factor"),
        (json!({"hybrid_override_pattern": "M-*M"}), "the experts of blk.1.ffn_down_exps.weight"),
        (json!({"hybrid_override_pattern": "EE*M"}), "layer 1 of 4: some of its tensors are missing"),
        (json!({"n_routed_experts": 8}), "number 7 of 8 is missing"),
        (json!({"n_routed_experts": 6}), "there are 7, and config.json says 6"),
        (json!({"moe_intermediate_size": 19}), "blk.1.ffn_up_exps.weight: 20 in place of 19"),
        (json!({"moe_shared_expert_intermediate_size": 39}), "blk.1.ffn_up_shexp.weight: 40 in place of 39"),
    ] {
        let e = refusal("nemotron-h-moe", settings.clone(), none);
        assert!(e.contains(why), "{settings}: {e}");
    }
    // An MLP among them.
    let e = refusal(
        "nemotron-h-moe",
        json!({"hybrid_override_pattern": "ME*M-", "num_hidden_layers": 5}),
        |all| {
            for (leaf, shape) in
                [("norm", &[48][..]), ("mixer.up_proj", &[56, 48]), ("mixer.down_proj", &[48, 56])]
            {
                let (name, bytes) =
                    (format!("backbone.layers.4.{leaf}.weight"), 2 * shape.iter().product::<u64>());
                let bytes = vec![0; bytes as usize];
                all.push(Tensor { name, dtype: "BF16".into(), shape: shape.to_vec(), bytes });
            }
        },
    );
    assert!(e.contains("layer_types") && e.contains("each MLP of a model with experts"), "{e}");
    for (leaf, n) in [("shared_experts.up_proj.bias", 40), ("gate.bias", 7)] {
        let e = refusal("nemotron-h-moe", json!({}), one_more(&[1], leaf, n));
        assert!(e.contains("blk.1.") && e.contains("no biases"), "{leaf}: {e}");
    }
    let e = refusal("nemotron-h-moe", json!({}), |all| {
        for leaf in (0..7).map(|e| format!("experts.{e}.down_proj.bias")) {
            one_more(&[1], &leaf, 48)(all);
        }
    });
    assert!(e.contains("blk.1.ffn_down_exps.bias") && e.contains("no biases"), "{e}");
}

/// Another tensor in each of these layers, with so many zeros.
fn one_more<'a>(layers: &'a [usize], leaf: &'a str, n: u64) -> impl Fn(&mut Vec<Tensor>) + 'a {
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

/// Stacks the experts under names that do not say they are weights.
fn stack(all: &mut Vec<Tensor>) {
    let (experts, mut rest): (Vec<_>, Vec<_>) = all.drain(..).partition(|t| t.name.contains(".experts."));
    for leaf in ["up_proj", "down_proj"] {
        let name = |e: usize| format!("backbone.layers.1.mixer.experts.{e}.{leaf}.weight");
        let one = |e: usize| experts.iter().find(|t| t.name == name(e)).unwrap();
        let (dtype, shape) = (one(0).dtype.clone(), [&[7], &*one(0).shape].concat());
        let bytes = (0..7).flat_map(|e| one(e).bytes.iter().copied()).collect();
        rest.push(Tensor { name: format!("backbone.layers.1.mixer.experts.{leaf}"), dtype, shape, bytes });
    }
    *all = rest;
}

/// As transformers 5 calls them.
#[test]
fn tensors_under_later_names_become_the_same() {
    let later =
        |all: &mut Vec<Tensor>| all.iter_mut().for_each(|t| t.name = t.name.replace("backbone.", "model."));
    let of = |model: &str, change: fn(&mut Vec<Tensor>)| {
        let folder = rewritten_own(model, set(json!({})), change);
        let gguf = packed(&format("q8_0"), folder.path()).unwrap();
        let name = |t: &ogive_quantize::gguf_file::TensorInfo| {
            (t.name().to_owned(), gguf.data(t).unwrap().bytes().to_vec())
        };
        gguf.tensors().iter().map(name).collect::<std::collections::BTreeMap<_, _>>()
    };
    assert!(of("nemotron-h", later) == of("nemotron-h", none));
    let stacked = |all: &mut Vec<Tensor>| {
        stack(all);
        all.iter_mut().for_each(|t| t.name = t.name.replace("backbone.", "model."));
    };
    assert!(of("nemotron-h-moe", stacked) == of("nemotron-h-moe", none));
}
