//! What Qwen3-Next's class does under settings that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::backend::LayerCache;
use ogive_nn::tensor::Result;
use ogive_nn::{Loader, Model};
use serde_json::{Value, json};

/// A golden model with other settings; those that are `null` are left out.
fn build(name: &str, more: &Value) -> Result<Box<dyn Model>> {
    let (_, folder) = own().into_iter().find(|(own, _)| own == name).unwrap();
    let mut file = ogive_weights::open(folder).unwrap();
    let settings = file.config.0.as_object_mut().unwrap();
    settings.extend(more.as_object().unwrap().clone());
    settings.retain(|_, value| !value.is_null());
    ogive_models::registry().build(&file.architecture, &file.config, &Loader::new(&*file.source, &exact()))
}

#[test]
fn layers_are_counted_where_they_are_not_listed_and_shares_are_normalised_where_nothing_is_said() {
    let silent = json!({"layer_types": null, "norm_topk_prob": null, "partial_rotary_factor": null});
    let (_, folder) = own().into_iter().find(|(own, _)| own == "qwen3-next").unwrap();
    let model = build("qwen3-next", &silent).unwrap();
    for (case, ids, want) in cases(&folder) {
        let error = worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want);
        assert!(error < 2e-5, "{case}: {error:.1e}");
    }
}

/// Two cache layers for each layer, so that a split by layers cuts both alike.
#[test]
fn what_is_kept_of_a_sequence_is_two_states_or_keys_and_values() {
    let state = |len| LayerCache::State { len };
    // Two rows of 2 · 2 · 8 queries and keys and 72 values, 6 matrices of 8 by 12; two heads of 16.
    let linear = [state(2 * 104), state(6 * 8 * 12)];
    let full = [LayerCache::full(32, 32), LayerCache::Shares(2)];
    assert_eq!(build("qwen3-next", &json!({})).unwrap().cache_layout(), [linear, full, linear].concat());
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
    ] {
        let e = build("qwen3-next", &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
    for (settings, why) in [
        (json!({"linear_num_value_heads": 3}), "in_proj_qkv"),
        (json!({"linear_key_head_dim": 16, "linear_value_head_dim": 4}), "in_proj_qkv"),
    ] {
        let e = build("qwen3-5", &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
}
