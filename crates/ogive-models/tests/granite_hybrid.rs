//! What Granite 4's class does under settings that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::backend::LayerCache;
use serde_json::json;

/// That these settings change nothing of what the model computes, or something.
fn computes_the_same(name: &str, more: &serde_json::Value) -> bool {
    let model = with_settings(name, more).unwrap();
    let (_, ids, want) = cases(&golden(name)).remove(1);
    worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want) < 2e-5
}

#[test]
fn what_is_left_out_is_what_the_class_takes_for_granted() {
    for silent in [
        json!({"mamba_d_head": null}),
        json!({"mamba_d_head": "auto"}),
        json!({"mamba_expand": null}),
        json!({"position_embedding_type": "nope"}),
    ] {
        assert!(computes_the_same("granite-hybrid", &silent), "{silent}");
    }
}

/// Each by itself, so that none is passed over behind another.
#[test]
fn what_the_class_knows_counts() {
    for more in [
        json!({"position_embedding_type": "rope"}),
        json!({"hidden_act": "gelu"}),
        json!({"rms_norm_eps": 0.1}),
        json!({"residual_multiplier": 1.0}),
        json!({"embedding_multiplier": 1.0}),
        json!({"logits_scaling": 1.0}),
        json!({"attention_multiplier": 1.0}),
    ] {
        assert!(!computes_the_same("granite-hybrid", &more), "{more}");
    }
}

/// Two cache layers for each layer, so that a split by layers cuts both alike.
#[test]
fn what_is_kept_of_a_sequence_is_two_states_or_keys_and_values() {
    let state = |len| LayerCache::State { len };
    // Three rows of 96 inputs and 2 · 8 of what states are written and read by, 6 matrices of 8 by 16; two heads of 8.
    let space = [state(3 * 112), state(6 * 8 * 16)];
    let full = [LayerCache::full(16, 16), LayerCache::Shares(2)];
    let layout = with_settings("granite-hybrid", &json!({})).unwrap().cache_layout();
    assert_eq!(layout, [space, full, space].concat());
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    for (name, settings, why) in [
        ("granite-hybrid", json!({"layer_types": ["mamba", "attention"]}), "for each of 3 layers"),
        ("granite-hybrid", json!({"layer_types": ["mamba", "full_attention", "mamba"]}), "`layer_types`"),
        ("granite-hybrid", json!({"layer_types": null}), "layers.1.mamba.in_proj"),
        ("granite-hybrid", json!({"position_embedding_type": "learned"}), "known are rope and nope"),
        ("granite-hybrid", json!({"is_causal": false}), "only looks back"),
        ("granite-hybrid", json!({"mamba_n_heads": 0}), "0 heads of"),
        ("granite-hybrid", json!({"mamba_n_heads": 7}), "7 heads of 16 elements are not"),
        ("granite-hybrid", json!({"mamba_expand": 3}), "`mamba_expand` times `hidden_size`"),
        ("granite-hybrid", json!({"mamba_n_groups": 4}), "cannot share 4 groups of 8"),
        ("granite-hybrid", json!({"mamba_n_groups": 0}), "cannot share 0 groups"),
        ("granite-hybrid", json!({"mamba_d_state": 0}), "groups of 0"),
        ("granite-hybrid", json!({"mamba_d_state": u64::MAX}), "more than can be counted"),
        ("granite-hybrid", json!({"mamba_d_state": 9}), "in_proj"),
        ("granite-hybrid", json!({"mamba_d_conv": 5}), "conv1d: 4 in place of 5"),
        ("granite-hybrid", json!({"logits_scaling": 0.0}), "`logits_scaling` is 0"),
        ("granite-hybrid-moe", json!({"num_local_experts": 6}), "experts"),
        ("granite-hybrid-moe", json!({"num_experts_per_tok": 6}), "6 experts of 5"),
        ("granite-moe-shared", json!({"num_local_experts": 6}), "experts"),
    ] {
        let e = with_settings(name, &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{name}, {settings}: {e}");
    }
}
