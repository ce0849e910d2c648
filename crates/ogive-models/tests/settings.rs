//! Settings that are left over from other models: a class obeys the keys that it knows, and no others.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Loader;
use serde_json::{Value, json};

/// That these settings change nothing of what the model `name` computes.
fn unchanged(name: &str, settings: &[Value]) {
    let (_, folder) = own().into_iter().find(|(own, _)| own == name).unwrap();
    for extra in settings {
        let mut file = ogive_weights::open(&folder).unwrap();
        file.config.0.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        for (case, ids, want) in cases(&folder) {
            let b = exact();
            let loader = Loader::new(&*file.source, &b).for_context(ids.len());
            let model = ogive_models::registry().build(&file.architecture, &file.config, &loader).unwrap();
            let error = worst(&evaluate(&b, &*model, &ids, &Evaluate::new()).unwrap(), &want);
            assert!(error < 2e-5, "{name} with {extra}, {case}: {error:.1e}");
        }
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
fn gemma_3_caps_no_scores() {
    unchanged("gemma3", &[json!({"attn_logit_softcapping": 0.5})]);
}
