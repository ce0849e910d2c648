//! What Falcon-H1's class does under settings that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::backend::LayerCache;
use serde_json::json;

/// How far the shorter case of a model with these settings is from what transformers computes without them.
fn error(name: &str, more: &serde_json::Value) -> f32 {
    let model = with_settings(name, more).unwrap();
    let (_, ids, want) = cases(&golden(name)).remove(1);
    worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want)
}

#[test]
fn what_the_class_does_not_know_or_takes_for_granted_changes_nothing() {
    for (name, same) in [
        ("falcon-h1", json!({"mamba_d_head": "auto"})),
        ("falcon-h1", json!({"mamba_d_head": null})),
        ("falcon-h1", json!({"mamba_use_mlp": true, "mamba_norm_before_gate": true})),
        ("falcon-h1", json!({"time_step_limit": [0.0, {"__float__": "Infinity"}], "time_step_min": 1.0})),
        ("falcon-h1", json!({"mamba_expand": 7, "mamba_chunk_size": 3, "num_logits_to_keep": 3})),
        ("falcon-h1", json!({"attention_bias": true, "mlp_bias": true, "mamba_proj_bias": true})),
        ("falcon-h1", json!({"sliding_window": 3, "attention_multiplier": 3.0, "attention_dropout": 0.5})),
        ("falcon-h1-bias", json!({"mamba_d_ssm": 72, "mamba_expand": 7})),
        ("falcon-h1-bias", json!({"mamba_norm_before_gate": null})),
    ] {
        let error = error(name, &same);
        assert!(error < 2e-5, "{name}, {same}: {error:.1e}");
    }
}

/// Each by itself, so that none is passed over behind another.
#[test]
fn what_the_class_knows_counts() {
    let factors = [
        "embedding_multiplier",
        "lm_head_multiplier",
        "attention_in_multiplier",
        "attention_out_multiplier",
        "key_multiplier",
        "ssm_in_multiplier",
        "ssm_out_multiplier",
        "ssm_multipliers",
        "mlp_multipliers",
    ];
    let silent = factors.map(|key| json!({key: null})).into_iter();
    let parts = (0..5).map(|i| {
        let mut parts = [0.75, 1.4, 0.85, 1.25, 0.65];
        parts[i] = 1.0;
        json!({"ssm_multipliers": parts})
    });
    let others = [
        json!({"mlp_multipliers": [1.0, 0.55]}),
        json!({"mlp_multipliers": [1.15, 1.0]}),
        json!({"hidden_act": "gelu"}),
        json!({"rms_norm_eps": 0.1}),
        json!({"rope_theta": 3.0}),
    ];
    for name in ["falcon-h1", "falcon-h1-bias"] {
        for more in silent.clone().chain(parts.clone()).chain(others.clone()) {
            let error = error(name, &more);
            assert!(error > 1e-3, "{name}, {more}: {error:.1e}");
        }
    }
    for more in [json!({"mamba_rms_norm": false}), json!({"mamba_norm_before_gate": true})] {
        let error = error("falcon-h1-norm", &more);
        assert!(error > 1e-3, "{more}: {error:.1e}");
    }
}

/// Three cache layers for each block.
#[test]
fn what_is_kept_of_a_sequence_is_keys_and_values_and_two_states() {
    let state = |len| LayerCache::State { len };
    // Two heads of 12; three rows of 72 inputs and 2 · 2 · 10 of what states are written and read by, 6 matrices of 12 by 10.
    let block = [LayerCache::full(24, 24), state(3 * 112), state(6 * 12 * 10)];
    let layout = with_settings("falcon-h1", &json!({})).unwrap().cache_layout();
    assert_eq!(layout, [block; 2].concat());
}

#[test]
fn what_is_not_known_or_does_not_fit_is_refused_by_name() {
    for (settings, why) in [
        (json!({"is_causal": false}), "only looks back"),
        (json!({"time_step_limit": [0.0, 0.1]}), "`time_step_limit` is [0.0,0.1]"),
        (json!({"mamba_use_mlp": false}), "`mamba_use_mlp` is off"),
        (json!({"ssm_multipliers": [1.0, 1.0, 1.0, 1.0]}), "`ssm_multipliers` has 4 factors in place of 5"),
        (json!({"mlp_multipliers": [1.0, 1.0, 1.0]}), "`mlp_multipliers` has 3 factors in place of 2"),
        (json!({"mlp_multipliers": 1.0}), "mlp_multipliers"),
        (json!({"key_multiplier": "1"}), "key_multiplier"),
        (json!({"hidden_act": "relu3"}), "`hidden_act` is `relu3`"),
        (json!({"mamba_n_heads": 0}), "0 heads of 12 elements are not `mamba_d_ssm`, 72"),
        (json!({"mamba_n_heads": 7}), "7 heads of 12 elements are not `mamba_d_ssm`, 72"),
        (json!({"mamba_d_ssm": null}), "are not `mamba_expand` times `hidden_size`, 96"),
        (json!({"mamba_d_ssm": 60, "mamba_d_head": "auto"}), "mamba.in_proj"),
        (json!({"mamba_n_groups": 4}), "6 heads of 12 elements cannot share 4 groups of 10"),
        (json!({"mamba_n_groups": 0}), "cannot share 0 groups"),
        (json!({"mamba_n_groups": 3}), "mamba.in_proj"),
        (json!({"mamba_d_state": 9}), "mamba.in_proj"),
        (json!({"mamba_d_state": u64::MAX}), "more than can be counted"),
        (json!({"mamba_d_conv": 5}), "conv1d: 4 in place of 5"),
        (json!({"mamba_rms_norm": true}), "mamba.norm.weight"),
        (json!({"head_dim": 8}), "self_attn.q_proj"),
        (json!({"num_key_value_heads": 4}), "6 query heads cannot share 4"),
        (json!({"num_hidden_layers": 3}), "layers.2"),
    ] {
        let e = with_settings("falcon-h1", &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
}
