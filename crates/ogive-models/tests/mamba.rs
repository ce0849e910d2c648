//! What the classes of the first Mamba and of Falcon-Mamba do under settings and names that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_nn::backend::LayerCache;
use serde_json::json;

#[test]
fn what_the_classes_do_not_know_changes_nothing() {
    let left_over = json!({"d_inner": 7, "d_model": 3, "ssm_cfg": {}, "rms_norm": true, "time_step_min": 1.0, "time_step_max": 2.0, "time_step_scale": 3.0,
        "residual_in_fp32": false, "use_bias": true, "use_conv_bias": false, "num_attention_heads": 5, "sliding_window": 3, "rope_theta": 3.0});
    let before = json!({"intermediate_size": null, "expand": 2});
    for (name, more) in [
        ("mamba", &left_over),
        ("falcon-mamba", &left_over),
        ("mamba", &before),
        ("mamba", &json!({"mixer_rms_eps": 9.0})),
    ] {
        let error = error_of(name, &*with_settings(name, more).unwrap());
        assert!(error < 2e-5, "{name} with {more}: {error:.1e}");
    }
    let silent = json!({"time_step_rank": "auto", "intermediate_size": null});
    assert!(error_of("mamba-bias", &*with_settings("mamba-bias", &silent).unwrap()) < 2e-5);
}

#[test]
fn what_the_classes_know_counts() {
    for (name, more) in [
        ("mamba", json!({"hidden_act": "gelu"})),
        ("mamba", json!({"rms_norm_eps": 0.1})),
        ("falcon-mamba", json!({"mixer_rms_eps": 0.1})),
        ("falcon-mamba", json!({"mixer_rms_eps": null, "rms_norm_eps": 0.1})),
    ] {
        let error = error_of(name, &*with_settings(name, &more).unwrap());
        assert!(error > 1e-3, "{name} with {more}: {error:.1e}");
    }
}

/// state-spaces calls the table of tokens of both Mambas otherwise, and a part of a checkpoint may be called nothing.
#[test]
fn weights_are_found_under_every_name_that_programs_give_them() {
    let first = |name: &str| Some(name.replace("embedding.", "embeddings."));
    let bare = |name: &str| match name.split('.').next() {
        Some("lm_head") => Some(name.to_owned()),
        Some("backbone") => None,
        _ => Some(format!("backbone.{name}")),
    };
    let names: [fn(&str) -> Option<String>; 2] = [first, bare];
    for name in ["mamba", "mamba2"] {
        for (i, renamed) in names.into_iter().enumerate() {
            let model = with_weights(name, &json!({}), |source| Box::new(Renamed(source, renamed)));
            let error = error_of(name, &*model.unwrap());
            assert!(error < 2e-5, "{name}, names {i}: {error:.1e}");
        }
    }
}

#[test]
fn what_is_kept_of_a_sequence_is_states_alone() {
    let state = |len| LayerCache::State { len };
    // Three rows of 96 inputs, and a state of 10 for each of 96 channels.
    let block = [state(3 * 96), state(96 * 10)];
    assert_eq!(with_settings("mamba", &json!({})).unwrap().cache_layout(), [block; 2].concat());
}

#[test]
fn what_is_not_known_or_does_not_fit_is_refused_by_name() {
    for (settings, why) in [
        (json!({"is_causal": false}), "only looks back"),
        (json!({"hidden_act": "relu3"}), "`hidden_act` is `relu3`"),
        (json!({"intermediate_size": 95}), "mixer.in_proj"),
        (json!({"intermediate_size": 0}), "0 channels"),
        (json!({"state_size": 1usize << 61}), "beyond counting"),
        (json!({"state_size": 9}), "mixer.x_proj"),
        (json!({"time_step_rank": 4}), "mixer.x_proj"),
        (json!({"time_step_rank": "some"}), "time_step_rank"),
        (json!({"conv_kernel": 5}), "conv1d: 4 in place of 5"),
        (json!({"num_hidden_layers": 3}), "layers.2"),
    ] {
        let e = with_settings("mamba", &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
}
