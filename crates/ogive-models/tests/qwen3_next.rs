//! What Qwen3-Next's class does under settings that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Loader;
use ogive_nn::backend::LayerCache;
use ogive_nn::tensor::HostWeight;
use serde_json::{Value, json};

const NAMES: [&str; 3] = ["qwen3-next", "qwen3-5", "qwen3-5-moe"];

/// That these settings change nothing of what the model computes.
fn unchanged(name: &str, more: &Value) {
    let model = with_settings(name, more).unwrap();
    for (case, ids, want) in cases(&golden(name)) {
        let error = worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want);
        assert!(error < 2e-5, "{name}, {more}, {case}: {error:.1e}");
    }
}

#[test]
fn layers_are_counted_where_they_are_not_listed_and_shares_are_normalised_where_nothing_is_said() {
    let silent = json!({"layer_types": null, "norm_topk_prob": null, "partial_rotary_factor": null});
    unchanged("qwen3-next", &silent);
}

/// What Qwen3.5's classes do not know, what a text does not show, and what is said of all of them in the words of some.
#[test]
fn what_a_class_does_not_know_changes_nothing() {
    let left_over = json!({"norm_topk_prob": false, "decoder_sparse_step": 2, "mlp_only_layers": [0],
        "use_sliding_window": true, "sliding_window": 3, "mrope_section": [2, 0, 0]});
    unchanged("qwen3-5-moe", &left_over);
    for name in NAMES {
        unchanged(name, &json!({"attn_output_gate": true, "output_gate_type": "swish"}));
    }
}

/// Each by itself, so that none is passed over behind another.
#[test]
fn what_a_class_knows_counts() {
    for (name, more) in [
        ("qwen3-next", json!({"norm_topk_prob": false})),
        ("qwen3-next", json!({"num_experts_per_tok": 3})),
        ("qwen3-next", json!({"hidden_act": "gelu"})),
        ("qwen3-next", json!({"rms_norm_eps": 0.1})),
        ("qwen3-next", json!({"rope_theta": 50.0})),
        ("qwen3-next", json!({"partial_rotary_factor": 1.0})),
        ("qwen3-5", json!({"rope_scaling": {"rope_type": "linear", "factor": 8.0}})),
    ] {
        let model = with_settings(name, &more).unwrap();
        let (_, ids, want) = cases(&golden(name)).remove(1);
        let error = worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want);
        assert!(error > 1e-3, "{name} with {more}: {error:.1e}");
    }
}

/// Two cache layers for each layer, so that a split by layers cuts both alike.
#[test]
fn what_is_kept_of_a_sequence_is_two_states_or_keys_and_values() {
    let state = |len| LayerCache::State { len };
    // Two rows of 2 · 2 · 8 queries and keys and 72 values, 6 matrices of 8 by 12; two heads of 16.
    let linear = [state(2 * 104), state(6 * 8 * 12)];
    let full = [LayerCache::full(32, 32), LayerCache::Shares(2)];
    assert_eq!(
        with_settings("qwen3-next", &json!({})).unwrap().cache_layout(),
        [linear, full, linear].concat()
    );
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    for (settings, why) in [
        (json!({"linear_num_value_heads": 5}), "5 heads of 12 elements cannot share 2 key heads of 8"),
        (json!({"linear_num_key_heads": 0}), "cannot share 0 key heads"),
        (json!({"linear_num_value_heads": 4}), "in_proj_qkvz"),
        (json!({"linear_key_head_dim": 7}), "in_proj_qkvz"),
        (json!({"linear_value_head_dim": 1usize << 62}), "more than can be counted"),
        (json!({"layer_types": ["full_attention"]}), "for each of 3 layers"),
        (json!({"layer_types": null, "full_attention_interval": 0}), "`full_attention_interval` is 0"),
        (json!({"layer_types": null, "full_attention_interval": 3}), "linear_attn"),
        (json!({"is_causal": false}), "only looks back"),
        (json!({"head_dim": 8}), "q_proj"),
        (json!({"num_experts": 10}), "experts"),
        (json!({"linear_conv_kernel_dim": 4}), "linear_attn.conv1d: 3 in place of 4"),
        (
            json!({"linear_num_key_heads": 1, "linear_num_value_heads": 1, "linear_key_head_dim": 1,
            "linear_value_head_dim": 1usize << 63}),
            "more than can be counted",
        ),
    ] {
        let e = with_settings("qwen3-next", &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
    for (settings, why) in [
        (json!({"linear_num_value_heads": 3}), "in_proj_qkv"),
        (json!({"linear_key_head_dim": 16, "linear_value_head_dim": 4}), "in_proj_qkv"),
    ] {
        let e = with_settings("qwen3-5", &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
}

/// transformers' classes gate attention by a sigmoid and linear attention by SiLU whatever is said; other programs go by the settings.
#[test]
fn gates_that_the_classes_do_not_have_are_refused_by_name() {
    for name in NAMES {
        for (settings, why) in [
            (json!({"attn_output_gate": false}), "`attn_output_gate` is off"),
            (json!({"attn_output_gate": "no"}), "`attn_output_gate` should be true or false"),
            (json!({"output_gate_type": "sigmoid"}), "`output_gate_type` is `sigmoid`"),
        ] {
            let e = with_settings(name, &settings).map(drop).unwrap_err().to_string();
            assert!(e.contains(why), "{name}, {settings}: {e}");
        }
    }
}

/// A file may claim a convolution over no token, which takes no bytes.
#[test]
fn a_convolution_of_nothing_is_refused() {
    let emptied = |w: HostWeight| match w.name.ends_with("conv1d.weight") {
        true => HostWeight::new(&*w.name, [w.shape[0], w.shape[1], 0], w.format, Vec::new().into()).unwrap(),
        false => w,
    };
    for width in [0, 3] {
        let said = json!({"linear_conv_kernel_dim": width});
        let e = with_weights("qwen3-next", &said, |source| Box::new(Changed(source, emptied)))
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(e.contains("linear_attn.conv1d.weight: [104, 1, 0] is not taps of"), "{width}: {e}");
    }
}

/// The head is the whole's: transformers goes by what is said of that.
#[test]
fn that_the_embedding_is_the_head_may_be_said_of_the_whole() {
    let file = ogive_weights::open(golden("qwen3-5-moe")).unwrap();
    let headless = Renamed(file.source, |name| (name != "lm_head.weight").then(|| name.to_owned()));
    let b = exact();
    let logits = |tied: bool| {
        let mut config = file.config.clone();
        config.0["tie_word_embeddings"] = json!(tied);
        let model = ogive_models::registry().build(&file.architecture, &config, &Loader::new(&headless, &b));
        evaluate(&b, &*model.unwrap(), &[1, 2, 3], &Evaluate::new())
    };
    logits(true).unwrap();
    assert!(logits(false).unwrap_err().to_string().contains("`tie_word_embeddings` is off"));
}
