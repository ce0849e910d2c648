//! What Nemotron-H's class does under settings and names that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Model;
use ogive_nn::backend::LayerCache;
use serde_json::json;

const NAME: &str = "nemotron-h";

/// How far the model's cases are from what transformers computes.
fn errors(model: &dyn Model) -> Vec<f32> {
    let of = |(_, ids, want): (String, Vec<u32>, _)| {
        worst(&evaluate(&exact(), model, &ids, &Evaluate::new()).unwrap(), &want)
    };
    cases(&golden(NAME)).into_iter().map(of).collect()
}

#[test]
fn what_the_class_does_not_know_changes_nothing() {
    let left_over = json!({"expand": 7, "chunk_size": 3, "time_step_min": 1.0, "time_step_max": 2.0, "time_step_floor": 1.0,
        "rescale_prenorm_residual": false, "residual_in_fp32": true, "use_mamba_kernels": false, "hidden_act": "gelu",
        "intermediate_size": 3, "rope_theta": 3.0, "partial_rotary_factor": 0.5, "attention_bias": true,
        "num_nextn_predict_layers": 1, "num_logits_to_keep": 3, "attention_dropout": 0.5, "time_step_limit": null});
    let errors = errors(&*with_settings(NAME, &left_over).unwrap());
    assert!(errors.iter().all(|error| *error < 2e-5), "{errors:?}");
}

/// Each by itself, so that none is passed over behind another.
#[test]
fn what_the_class_knows_counts() {
    for more in
        [json!({"mlp_hidden_act": "gelu"}), json!({"mamba_hidden_act": "gelu"}), json!({"rms_norm_eps": 0.1})]
    {
        let errors = errors(&*with_settings(NAME, &more).unwrap());
        assert!(errors[1] > 1e-3, "{more}: {errors:?}");
    }
}

/// transformers 5 calls the whole otherwise, and a part of a checkpoint may be called nothing.
#[test]
fn weights_are_found_under_every_name_that_programs_give_them() {
    let later = |name: &str| match name.strip_prefix("model.") {
        Some(rest) => Some(format!("backbone.{rest}")),
        None => (!name.starts_with("backbone.")).then(|| name.to_owned()),
    };
    let bare = |name: &str| match name.split('.').next() {
        Some("lm_head") => Some(name.to_owned()),
        Some("backbone" | "model") => None,
        _ => Some(format!("backbone.{name}")),
    };
    let names: [fn(&str) -> Option<String>; 2] = [later, bare];
    for (i, renamed) in names.into_iter().enumerate() {
        let model = with_weights(NAME, &json!({}), |source| Box::new(Renamed(source, renamed)));
        let errors = errors(&*model.unwrap());
        assert!(errors.iter().all(|error| *error < 2e-5), "names {i}: {errors:?}");
    }
}

/// Two cache layers for each block, so that a split by blocks cuts all alike.
#[test]
fn what_is_kept_of_a_sequence_is_two_states_keys_and_values_or_nothing() {
    let state = |len| LayerCache::State { len };
    // Three rows of 72 inputs and 2 · 3 · 10 of what states are written and read by, 6 matrices of 12 by 10; two heads of 12.
    let space = [state(3 * 132), state(6 * 12 * 10)];
    let nothing = |first| [state(0), LayerCache::Shares(first)];
    let full = [LayerCache::full(24, 24), LayerCache::Shares(4)];
    let layout = with_settings(NAME, &json!({})).unwrap().cache_layout();
    assert_eq!(layout, [space, nothing(2), full, space, nothing(8)].concat());
}

#[test]
fn what_is_not_known_or_does_not_fit_is_refused_by_name() {
    let infinity = json!({"__float__": "Infinity"});
    for (settings, why) in [
        (json!({"sliding_window": 8}), "`sliding_window` is 8"),
        (json!({"is_causal": false}), "only looks back"),
        (json!({"time_step_limit": [0.001, infinity]}), "`time_step_limit` is [0.001,"),
        (json!({"time_step_limit": [0.0, 0.1]}), "`time_step_limit` is [0.0,0.1]"),
        (json!({"time_step_limit": 3}), "`time_step_limit` is 3"),
        (json!({"layer_types": null}), "`layer_types`"),
        (json!({"layer_types": ["mamba", "mlp"]}), "for each of 5 layers"),
        (json!({"layer_types": ["mamba", "mlp", "attention", "mamba", "X"]}), "for each of 5 layers"),
        (json!({"layer_types": ["mlp", "mlp", "attention", "mamba", "mlp"]}), "layers.0.mixer.up_proj"),
        (json!({"layer_types": ["attention", "mlp", "attention", "mamba", "mlp"]}), "layers.0.mixer.q_proj"),
        (json!({"layer_types": ["mamba", "mlp", "mamba", "mamba", "mlp"]}), "layers.2.mixer.in_proj"),
        (json!({"num_hidden_layers": 6}), "for each of 6 layers"),
        (json!({"n_groups": 4}), "6 heads of 12 elements cannot share 4 groups of 10"),
        (json!({"n_groups": 0}), "cannot share 0 groups"),
        (json!({"n_groups": 2}), "mixer.in_proj"),
        (json!({"mamba_num_heads": 12}), "mixer.in_proj"),
        (json!({"mamba_head_dim": 0}), "6 heads of 0 elements"),
        (json!({"mamba_head_dim": 1usize << 61}), "more than can be counted"),
        (json!({"ssm_state_size": 9}), "mixer.in_proj"),
        (json!({"conv_kernel": 5}), "conv1d: 4 in place of 5"),
        (json!({"head_dim": 8}), "mixer.q_proj"),
        (json!({"num_key_value_heads": 4}), "6 query heads cannot share 4"),
        (json!({"mlp_hidden_act": "relu3"}), "`mlp_hidden_act` is `relu3`"),
        (json!({"mamba_hidden_act": 3}), "mamba_hidden_act"),
    ] {
        let e = with_settings(NAME, &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
}
