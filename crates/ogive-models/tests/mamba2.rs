//! What Mamba-2's class does under settings and names that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_nn::backend::LayerCache;
use serde_json::json;

const NAME: &str = "mamba2";

#[test]
fn what_the_class_does_not_know_changes_nothing() {
    let left_over = json!({"expand": 7, "chunk_size": 3, "time_step_min": 1.0, "time_step_max": 2.0, "time_step_rank": 3,
        "residual_in_fp32": false, "use_bias": true, "use_conv_bias": false, "num_attention_heads": 5,
        "sliding_window": 3, "rope_theta": 3.0, "time_step_limit": null});
    let error = error_of(NAME, &*with_settings(NAME, &left_over).unwrap());
    assert!(error < 2e-5, "{error:.1e}");
}

#[test]
fn what_the_class_knows_counts() {
    for more in [json!({"hidden_act": "gelu"}), json!({"rms_norm_eps": 0.1})] {
        let error = error_of(NAME, &*with_settings(NAME, &more).unwrap());
        assert!(error > 1e-3, "{more}: {error:.1e}");
    }
}

#[test]
fn what_is_kept_of_a_sequence_is_states_alone() {
    let state = |len| LayerCache::State { len };
    // Three rows of 96 inputs and 2 · 3 · 10 of what states are written and read by, 6 matrices of 16 by 10.
    let block = [state(3 * 156), state(6 * 16 * 10)];
    assert_eq!(with_settings(NAME, &json!({})).unwrap().cache_layout(), [block; 2].concat());
}

#[test]
fn what_is_not_known_or_does_not_fit_is_refused_by_name() {
    for (settings, why) in [
        (json!({"is_causal": false}), "only looks back"),
        (json!({"time_step_limit": [0.0, 0.1]}), "`time_step_limit` is [0.0,0.1]"),
        (json!({"hidden_act": "relu3"}), "`hidden_act` is `relu3`"),
        (json!({"num_heads": 12}), "mixer.in_proj"),
        (json!({"num_heads": 0}), "0 heads of 16 elements"),
        (json!({"head_dim": 1usize << 61}), "more than can be counted"),
        (json!({"n_groups": 4}), "6 heads of 16 elements cannot share 4 groups of 10"),
        (json!({"n_groups": 2}), "mixer.in_proj"),
        (json!({"state_size": 9}), "mixer.in_proj"),
        (json!({"conv_kernel": 5}), "conv1d: 4 in place of 5"),
        (json!({"num_hidden_layers": 3}), "layers.2"),
    ] {
        let e = with_settings(NAME, &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
}
