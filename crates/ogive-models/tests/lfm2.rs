//! What LFM2's classes do under settings that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Model;
use ogive_nn::backend::LayerCache;
use serde_json::json;

/// As the first files have them.
#[test]
fn layers_that_attend_may_be_listed_by_their_numbers() {
    let model = with_settings("lfm2", &json!({"layer_types": null, "full_attn_idxs": [2]})).unwrap();
    for (case, ids, want) in cases(&golden("lfm2")) {
        let error = worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want);
        assert!(error < 2e-5, "{case}: {error:.1e}");
    }
}

/// What the classes take for granted, and a bias that is there.
#[test]
fn experts_are_chosen_by_scores_and_biases_where_nothing_is_said() {
    let silent = json!({"norm_topk_prob": null, "use_expert_bias": null, "routed_scaling_factor": null});
    let model = with_settings("lfm2-moe", &silent).unwrap();
    for (case, ids, want) in cases(&golden("lfm2-moe")) {
        let of = |model: &dyn Model| evaluate(&exact(), model, &ids, &Evaluate::new()).unwrap();
        let error = worst(&of(&*model), &want);
        assert!(error < 2e-5, "{case}: {error:.1e}");
        let unbiased = with_settings("lfm2-moe", &json!({"use_expert_bias": false})).unwrap();
        assert!(worst(&of(&*unbiased), &want) > 1e-2, "{case}: the bias counts for nothing");
    }
}

/// One cache layer for each layer, so that a split by layers cuts both alike.
#[test]
fn what_is_kept_of_a_sequence_is_a_state_or_keys_and_values() {
    let layout = |name| with_settings(name, &json!({})).unwrap().cache_layout();
    let state = |inputs: usize| LayerCache::State { len: inputs * 48 };
    assert_eq!(layout("lfm2"), [state(2), state(2), LayerCache::full(16, 16), state(2)]);
    assert_eq!(layout("lfm2-moe"), [state(3), LayerCache::full(16, 16), state(3)]);
    assert_eq!(layout("lfm2-moe-bias"), [LayerCache::full(24, 24), state(1), LayerCache::full(24, 24)]);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    for (name, settings, why) in [
        ("lfm2", json!({"conv_L_cache": 4}), "3 taps, and `conv_L_cache` says 4"),
        ("lfm2", json!({"conv_bias": true}), "it has no biases, and `conv_bias`"),
        ("lfm2-moe-bias", json!({"conv_bias": false}), "it has biases, and `conv_bias`"),
        ("lfm2", json!({"hidden_size": 40}), "in_proj"),
        ("lfm2", json!({"hidden_size": 1u64 << 62, "head_dim": 8}), "in_proj"),
        ("lfm2", json!({"layer_types": ["conv", "full_attention"]}), "for each of 4 layers"),
        ("lfm2", json!({"layer_types": ["conv", "conv", "sliding_attention", "conv"]}), "`layer_types`"),
        ("lfm2", json!({"layer_types": null, "full_attn_idxs": [1]}), "self_attn"),
        ("lfm2", json!({"layer_types": null, "full_attn_idxs": null}), "self_attn"),
        ("lfm2", json!({"num_hidden_layers": 5, "layer_types": null, "full_attn_idxs": [2]}), "layers.4"),
        ("lfm2", json!({"is_causal": false}), "only looks back"),
        ("lfm2", json!({"num_key_value_heads": 3}), "self_attn.k_proj"),
        ("lfm2", json!({"num_key_value_heads": 0}), "cannot share 0 key"),
        ("lfm2", json!({"head_dim": 12}), "q_proj"),
        ("lfm2-moe", json!({"num_experts": 8}), "experts"),
        ("lfm2-moe", json!({"num_experts_per_tok": 8}), "8 experts of 7"),
        ("lfm2-moe", json!({"num_dense_layers": 0}), "layers.0.feed_forward.expert_bias"),
        ("lfm2-moe", json!({"num_dense_layers": 2}), "layers.1.feed_forward.w1"),
        ("lfm2-moe-bias", json!({"use_expert_bias": true}), "expert_bias"),
    ] {
        let e = with_settings(name, &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
}
