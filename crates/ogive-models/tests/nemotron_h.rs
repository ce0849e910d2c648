//! What Nemotron-H's class does under settings and names that no golden model has, and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Model;
use ogive_nn::backend::LayerCache;
use ogive_nn::tensor::{Error, HostWeight, Result, Source, WeightInfo};
use serde_json::json;

const DENSE: &str = "nemotron-h";
/// A mixture, and one whose experts are in groups.
const MIXTURES: [&str; 2] = ["nemotron-h-moe", "nemotron-h-moe-bias"];

/// How far the cases of the model `name` are from what transformers computes.
fn errors(name: &str, model: &dyn Model) -> Vec<f32> {
    let of = |(_, ids, want): (String, Vec<u32>, _)| {
        worst(&evaluate(&exact(), model, &ids, &Evaluate::new()).unwrap(), &want)
    };
    cases(&golden(name)).into_iter().map(of).collect()
}

#[test]
fn what_the_class_does_not_know_changes_nothing() {
    let left_over = json!({"expand": 7, "chunk_size": 3, "time_step_min": 1.0, "time_step_max": 2.0, "time_step_floor": 1.0,
        "rescale_prenorm_residual": false, "residual_in_fp32": true, "use_mamba_kernels": false, "hidden_act": "gelu",
        "intermediate_size": 3, "rope_theta": 3.0, "partial_rotary_factor": 0.5, "attention_bias": true,
        "num_nextn_predict_layers": 1, "num_logits_to_keep": 3, "attention_dropout": 0.5, "time_step_limit": null});
    let of_mixtures = json!({"moe_intermediate_size": 3, "moe_shared_expert_intermediate_size": 3, "n_shared_experts": 0,
        "moe_shared_expert_overlap": false, "output_router_logits": true, "moe_latent_size": null});
    let all =
        [(DENSE, &left_over), (MIXTURES[0], &left_over), (MIXTURES[0], &of_mixtures), (DENSE, &of_mixtures)];
    for (name, settings) in all {
        let errors = errors(name, &*with_settings(name, settings).unwrap());
        assert!(errors.iter().all(|error| *error < 2e-5), "{name}: {errors:?}");
    }
}

/// Each by itself, so that none is passed over behind another.
#[test]
fn what_the_class_knows_counts() {
    for (name, more) in [
        (DENSE, json!({"mlp_hidden_act": "gelu"})),
        (DENSE, json!({"mamba_hidden_act": "gelu"})),
        (DENSE, json!({"rms_norm_eps": 0.1})),
        (MIXTURES[0], json!({"mlp_hidden_act": "gelu"})),
        (MIXTURES[0], json!({"num_experts_per_tok": 2})),
        (MIXTURES[0], json!({"norm_topk_prob": false})),
        (MIXTURES[0], json!({"routed_scaling_factor": null})),
        (MIXTURES[1], json!({"norm_topk_prob": null})),
        (MIXTURES[1], json!({"n_group": 1, "topk_group": 1})),
        (MIXTURES[1], json!({"topk_group": 3})),
    ] {
        let errors = errors(name, &*with_settings(name, &more).unwrap());
        assert!(errors.iter().any(|error| *error > 1e-3), "{name}, {more}: {errors:?}");
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
        for name in [DENSE, MIXTURES[0]] {
            let model = with_weights(name, &json!({}), |source| Box::new(Renamed(source, renamed)));
            let errors = errors(name, &*model.unwrap());
            assert!(errors.iter().all(|error| *error < 2e-5), "{name}, names {i}: {errors:?}");
        }
    }
}

/// Experts stacked, under names that do not say they are weights.
#[derive(Debug)]
struct Stacked(Box<dyn Source>, usize);

impl Source for Stacked {
    fn get(&self, name: &str) -> Result<HostWeight> {
        match name.split_once(".experts.") {
            Some((place, leaf @ ("up_proj" | "down_proj"))) => {
                let one = |e: usize| self.0.get(&format!("{place}.experts.{e}.{leaf}.weight"));
                HostWeight::stack(name, &(0..self.1).map(one).collect::<Result<Vec<_>>>()?)
            }
            Some(_) => Err(Error::missing(name)),
            None => self.0.get(name),
        }
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        Vec::new()
    }
}

/// As transformers 5 saves them.
#[test]
fn experts_may_be_stacked() {
    for (name, n) in MIXTURES.into_iter().zip([7, 6]) {
        let with = |n| with_weights(name, &json!({}), move |source| Box::new(Stacked(source, n)));
        let errors = errors(name, &*with(n).unwrap());
        assert!(errors.iter().all(|error| *error < 2e-5), "{name}: {errors:?}");
        let e = with(n - 1).map(drop).unwrap_err().to_string();
        assert!(e.contains(&format!("{} experts, where {n} are configured", n - 1)), "{e}");
    }
}

/// NVIDIA's class gives them to experts with `mlp_bias`; transformers' does not.
#[test]
fn biases_of_experts_are_refused_and_not_passed_over() {
    #[derive(Debug)]
    struct Biased(Box<dyn Source>);
    impl Source for Biased {
        fn get(&self, name: &str) -> Result<HostWeight> {
            match name.ends_with("experts.0.down_proj.bias") {
                true => HostWeight::from_f32(name, [1, 1, 48], &[0.5; 48]),
                false => self.0.get(name),
            }
        }
        fn tensors(&self) -> Vec<WeightInfo> {
            self.0.tensors()
        }
    }
    let model = with_weights(MIXTURES[0], &json!({}), |source| Box::new(Biased(source)));
    let e = model.map(drop).unwrap_err().to_string();
    assert!(
        e.contains("layers.1.mixer.experts.0.down_proj.bias") && e.contains("experts have biases"),
        "{e}"
    );
}

/// Two cache layers for each block, so that a split by blocks cuts all alike.
#[test]
fn what_is_kept_of_a_sequence_is_two_states_keys_and_values_or_nothing() {
    let state = |len| LayerCache::State { len };
    // Three rows of 72 inputs and 2 · 3 · 10 of what states are written and read by, 6 matrices of 12 by 10; two heads of 12.
    let space = [state(3 * 132), state(6 * 12 * 10)];
    let nothing = |first| [state(0), LayerCache::Shares(first)];
    let full = [LayerCache::full(24, 24), LayerCache::Shares(4)];
    let layout = with_settings(DENSE, &json!({})).unwrap().cache_layout();
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
        let e = with_settings(DENSE, &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{settings}: {e}");
    }
    let [alone, grouped] = MIXTURES;
    for (name, settings, why) in [
        (alone, json!({"moe_latent_size": 16}), "`moe_latent_size` is 16"),
        (alone, json!({"n_group": 4}), "7 experts in 4 groups"),
        (alone, json!({"n_group": 0}), "experts in 0 groups"),
        (grouped, json!({"topk_group": 4}), "of which 4 are chosen"),
        (alone, json!({"num_experts_per_tok": 8}), "8 experts of 7"),
        (alone, json!({"num_experts_per_tok": 0}), "0 experts of 7"),
        (alone, json!({"num_experts_per_tok": null}), "num_experts_per_tok"),
        (alone, json!({"n_routed_experts": 8}), "8 experts"),
        (alone, json!({"n_routed_experts": 6}), "for 6 experts"),
        (alone, json!({"n_routed_experts": null}), "n_routed_experts"),
        (alone, json!({"layer_types": ["mamba", "mlp", "attention", "mamba"]}), "layers.1.mixer.up_proj"),
        (alone, json!({"layer_types": ["mamba", "moe", "moe", "mamba"]}), "layers.2.mixer.gate"),
    ] {
        let e = with_settings(name, &settings).map(drop).unwrap_err().to_string();
        assert!(e.contains(why), "{name}, {settings}: {e}");
    }
}
