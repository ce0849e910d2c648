//! What Gemma 4's class does under settings that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Loader;
use ogive_nn::backend::{Estimate, LayerCache};
use serde_json::{Value, json};

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// How far the longer case of a model with these settings is from what transformers computes without them.
fn error(name: &str, more: &Value) -> f32 {
    let model = with_settings(name, more).unwrap();
    let (_, ids, want) = cases(&golden(name)).remove(0);
    worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want)
}

#[test]
fn what_the_class_does_not_know_or_takes_for_granted_changes_nothing() {
    for (name, same) in [
        ("gemma4", json!({"use_bidirectional_attention": "vision"})),
        ("gemma4", json!({"use_bidirectional_attention": false, "is_causal": true})),
        ("gemma4", json!({"num_experts": 3, "top_k_experts": 2, "moe_intermediate_size": 7})),
        (
            "gemma4",
            json!({"query_pre_attn_scalar": 3, "attn_logit_softcapping": 1.0, "attention_multiplier": 5.0}),
        ),
        (
            "gemma4",
            json!({"intermediate_size": 3, "use_double_wide_mlp": true, "vocab_size_per_layer_input": 3}),
        ),
        ("gemma4", json!({"hidden_act": "silu", "hidden_activation": null})),
        // As the class has them where nothing is said.
        ("gemma4", json!({"rope_theta": null, "rope_scaling": null, "rope_local_base_freq": null})),
        // The other number of key heads counts where keys are values.
        ("gemma4-shared", json!({"num_global_key_value_heads": 3})),
        (
            "gemma4-moe",
            json!({"sliding_window_pattern": 2, "norm_topk_prob": false, "num_experts_per_tok": 1}),
        ),
    ] {
        let error = error(name, &same);
        assert!(error < 2e-5, "{name}, {same}: {error:.1e}");
    }
}

/// Each by itself, so that none is passed over behind another.
#[test]
fn what_the_class_knows_counts() {
    for (name, more) in [
        ("gemma4", json!({"final_logit_softcapping": null})),
        ("gemma4", json!({"sliding_window": 5})),
        ("gemma4", json!({"rope_local_base_freq": 30.0})),
        ("gemma4", json!({"rope_theta": 30.0})),
        ("gemma4", json!({"partial_rotary_factor": 0.5})),
        ("gemma4", json!({"rms_norm_eps": 0.1})),
        ("gemma4", json!({"hidden_activation": "silu"})),
        ("gemma4-moe", json!({"top_k_experts": 2})),
        ("gemma4-all", json!({"rope_scaling": {"rope_type": "proportional", "factor": 1.0}})),
        ("gemma4-all", json!({"final_logit_softcapping": 2.0})),
    ] {
        let error = error(name, &more);
        assert!(error > 1e-3, "{name}, {more}: {error:.1e}");
    }
}

/// Of six layers the last three attend to what the second and the third store.
#[test]
fn layers_that_share_keep_nothing() {
    let layout = with_settings("gemma4-shared", &json!({})).unwrap().cache_layout();
    let local = LayerCache::windowed(12, 12, 9, 0);
    let shared = [LayerCache::Shares(1), LayerCache::Shares(1), LayerCache::Shares(2)];
    assert_eq!(layout[..3], [local, local, LayerCache::full(24, 24).in_group(1)]);
    assert_eq!(layout[3..], shared);
    // Keys that are values are kept as both: as keys they are normed and turned.
    let layout = with_settings("gemma4-moe", &json!({})).unwrap().cache_layout();
    let full = LayerCache::full(72, 72).in_group(1);
    assert_eq!(layout, [LayerCache::windowed(24, 24, 9, 0), LayerCache::windowed(24, 24, 9, 0), full]);
}

/// The table of layers' inputs is several times the embeddings; nothing of it is decoded on its way to a backend.
#[test]
fn tables_of_tokens_stay_as_they_are_packed() {
    let file = ogive_weights::open(golden("gemma4-shared")).unwrap();
    let b = Estimate::new();
    let loader = Loader::new(&*file.source, &b);
    ogive_models::registry().build(&file.architecture, &file.config, &loader).unwrap();
    let bytes = |part: &str| {
        let all = file.source.tensors();
        all.iter()
            .filter(|t| t.name.contains(part))
            .map(|t| 2 * t.shape.iter().product::<usize>())
            .sum::<usize>()
    };
    // What sees and hears, and keys of layers that have none, are not read; what is one number wide is kept in single precision.
    assert_eq!(bytes("embed_tokens_per_layer"), 2 * 131 * 48);
    assert!(b.weight_bytes() < bytes("language_model") as u64 + 9000, "{}", b.weight_bytes());
    assert!(loader.unpacked().is_empty());
}

#[test]
fn what_is_not_known_or_does_not_fit_is_refused_by_name() {
    let mut failed = Vec::new();
    let three = |kind: &str| json!({"layer_types": [SLIDING, kind, FULL]});
    for (name, settings, why) in [
        ("gemma4", json!({"use_bidirectional_attention": "all"}), "`use_bidirectional_attention`"),
        ("gemma4", json!({"use_bidirectional_attention": true}), "`use_bidirectional_attention`"),
        ("gemma4", json!({"is_causal": false}), "`is_causal`"),
        ("gemma4", json!({"per_layer_config": {"1": {"sliding_window": 3}}}), "`per_layer_config`"),
        ("gemma4", json!({"final_logit_softcapping": 0.0}), "`final_logit_softcapping` should be above 0"),
        ("gemma4", json!({"layer_types": [FULL]}), "1 `layer_types` for 4 layers"),
        ("gemma4", json!({"layer_types": [FULL, FULL, FULL, SLIDING]}), "window for the last layer"),
        ("gemma4-moe", three("linear_attention"), "is `linear_attention`"),
        ("gemma4", json!({"hidden_activation": "relu3"}), "`hidden_activation` is `relu3`"),
        ("gemma4", json!({"global_head_dim": 12}), "layers.1.self_attn.q_proj.weight: 144 in place of 72"),
        ("gemma4", json!({"head_dim": 24}), "layers.0.self_attn.q_proj"),
        (
            "gemma4",
            json!({"num_global_key_value_heads": 2}),
            "layers.1.self_attn.k_proj.weight: 24 in place of 48",
        ),
        ("gemma4", json!({"num_global_key_value_heads": 4}), "6 query heads cannot share 4"),
        ("gemma4", json!({"attention_k_eq_v": false}), "layers.1.self_attn.k_proj"),
        ("gemma4", json!({"sliding_window": 0}), "`sliding_window` is 0"),
        ("gemma4", json!({"num_kv_shared_layers": 5}), "5 `num_kv_shared_layers` of 4 layers"),
        ("gemma4", json!({"num_kv_shared_layers": 4}), "no layer of its kind stores what layer 0 shares"),
        ("gemma4", json!({"num_kv_shared_layers": 3}), "no layer of its kind stores what layer 1 shares"),
        ("gemma4", json!({"hidden_size_per_layer_input": 8}), "per_layer_input_gate"),
        (
            "gemma4-shared",
            json!({"hidden_size_per_layer_input": 7}),
            "inputs of [48, 48] elements are not 6 of 7",
        ),
        ("gemma4-shared", json!({"num_kv_shared_layers": 2}), "layers.3.self_attn.k_proj"),
        ("gemma4", json!({"enable_moe_block": true}), "num_experts"),
        ("gemma4-moe", json!({"num_experts": 6}), "is not 6 experts"),
        ("gemma4-moe", json!({"top_k_experts": 8}), "8 experts of 7 to choose from"),
        ("gemma4-moe", json!({"top_k_experts": null}), "top_k_experts"),
        ("gemma4", json!({"rope_scaling": {"rope_type": "proportional", "factor": 0.0}}), "factor"),
        ("gemma4", json!({"partial_rotary_factor": 0.0}), "0 of 24 elements of a head should rotate"),
        ("gemma4", json!({"rope_parameters": {FULL: {}}, "rope_scaling": null}), "rope_parameters"),
        ("gemma4", json!({"num_hidden_layers": 5, "layer_types": null}), "layers.1.self_attn.q_proj"),
    ] {
        let e = with_settings(name, &settings).map(drop).unwrap_err().to_string();
        if !e.contains(why) {
            failed.push(format!("{settings}: {e}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
