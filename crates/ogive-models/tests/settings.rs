//! Settings that are left over from other models, and those that a class has of its own: it obeys the keys that it knows, and no others.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Loader;
use ogive_nn::tensor::Result;
use serde_json::{Value, json};

/// How far each of the model's cases is from what transformers computes, with these settings besides.
fn errors(name: &str, extra: &Value) -> Result<Vec<f32>> {
    let (_, folder) = own().into_iter().find(|(own, _)| own == name).unwrap();
    let mut file = ogive_weights::open(&folder).unwrap();
    file.config.0.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let error = |(_, ids, want): (String, Vec<u32>, _)| {
        let b = exact();
        let loader = Loader::new(&*file.source, &b).for_context(ids.len());
        let model = ogive_models::registry().build(&file.architecture, &file.config, &loader)?;
        Ok(worst(&evaluate(&b, &*model, &ids, &Evaluate::new()).unwrap(), &want))
    };
    cases(&folder).into_iter().map(error).collect()
}

/// That these settings change nothing of what the model `name` computes.
fn unchanged(name: &str, settings: &[Value]) {
    for extra in settings {
        let errors = errors(name, extra).unwrap();
        assert!(errors.iter().all(|error| *error < 2e-5), "{name} with {extra}: {errors:?}");
    }
}

#[test]
fn only_qwen_knows_the_keys_by_which_layers_have_windows() {
    let on = json!({"use_sliding_window": true});
    let off = json!({"use_sliding_window": false});
    let late = json!({"use_sliding_window": true, "max_window_layers": 1});
    for name in ["mistral", "mixtral", "phi3"] {
        let types = json!({"layer_types": ["sliding_attention", "full_attention"]});
        unchanged(name, &[on.clone(), off.clone(), late.clone(), types]);
    }
    for name in ["gemma2", "gemma3"] {
        unchanged(name, &[on.clone(), off.clone(), late.clone()]);
    }
}

#[test]
fn caps_and_scales_of_nothing_are_refused() {
    let keys = ["attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"];
    for (key, value) in keys.into_iter().flat_map(|key| [(key, 0.0), (key, -3.0)]) {
        let e = errors("gemma2", &json!({ key: value })).unwrap_err().to_string();
        assert!(e.contains(&format!("`{key}` should be above 0")), "{e}");
    }
}

#[test]
fn olmoe_knows_no_layers_without_experts_and_no_windows_and_bounds_are_refused() {
    let dense = json!({"decoder_sparse_step": 2, "mlp_only_layers": [0]});
    unchanged("olmoe", &[dense, json!({"sliding_window": 3, "use_sliding_window": true})]);
    let e = errors("olmoe", &json!({"clip_qkv": 8.0})).unwrap_err().to_string();
    assert!(e.contains("`clip_qkv`"), "{e}");
}

#[test]
fn lfm2_knows_no_windows_and_no_activation() {
    let window = json!({"sliding_window": 3, "use_sliding_window": true});
    unchanged("lfm2", &[window, json!({"hidden_act": "gelu"})]);
}

#[test]
fn gemma_3_caps_no_scores() {
    unchanged("gemma3", &[json!({"attn_logit_softcapping": 0.5})]);
}

#[test]
fn classes_without_windows_know_no_key_of_one() {
    let window = json!({"sliding_window": 5});
    let types = json!({"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]});
    for name in ["olmo2", "granite", "granite-moe", "glm", "glm4"] {
        unchanged(name, &[window.clone(), types.clone()]);
    }
    unchanged("smollm3", &[window]);
}

/// Each by itself, so that none is passed over behind another.
#[test]
fn what_a_class_has_of_its_own_counts() {
    let factors = |name| {
        ["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"]
            .map(|key| (name, json!({key: 1.9})))
    };
    let full = |layers| json!({"layer_types": vec!["full_attention"; layers]});
    let others = [
        ("olmo3", json!({"sliding_window": 12})),
        ("olmo3", json!({"rope_scaling": null})),
        ("olmo3", json!({"rope_local_base_freq": 500.0})),
        ("olmo3", full(3)),
        ("smollm3", json!({"no_rope_layers": [1, 1, 1, 1, 1]})),
        ("smollm3-window", json!({"no_rope_layers": null})),
        ("smollm3-window", json!({"use_sliding_window": false, "layer_types": null})),
        ("glm", json!({"partial_rotary_factor": 1.0})),
        ("glm4", json!({"partial_rotary_factor": 1.0})),
        ("cohere2", json!({"logit_scale": 0.25})),
        ("cohere2", json!({"sliding_window": 12})),
        ("cohere2", full(5)),
    ];
    for (name, extra) in factors("granite").into_iter().chain(factors("granite-moe")).chain(others) {
        let errors = errors(name, &extra).unwrap();
        assert!(errors[0] > 1e-3, "{name} with {extra}: {errors:?}");
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    for (name, extra, word) in [
        ("olmo3", json!({"sliding_window": null}), "sliding_window"),
        ("granite", json!({"logits_scaling": 0.0}), "logits_scaling"),
        ("granite-moe", json!({"num_local_experts": 4}), "4 experts"),
        ("granite-moe", json!({"intermediate_size": 23}), "outputs"),
        (
            "smollm3-window",
            json!({"use_sliding_window": false, "layer_types": ["sliding_attention", "sliding_attention"]}),
            "not settled",
        ),
        ("smollm3", json!({"no_rope_layers": [1]}), "no_rope_layers"),
        ("cohere2", json!({"sliding_window": null}), "sliding_window"),
        ("glm4", json!({"partial_rotary_factor": 1.5}), "should rotate"),
    ] {
        let e = errors(name, &extra).unwrap_err().to_string();
        assert!(e.contains(word), "{name} with {extra}: {e}");
    }
}
