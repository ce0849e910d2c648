//! What DeepSeek's classes do under settings that no golden model has, each against the golden one with other weights; and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Model;
use ogive_nn::backend::LayerCache;
use ogive_nn::tensor::{HostWeight, Result};
use serde_json::{Value, json};

/// The golden model with these settings besides, and changed weights.
fn build(name: &str, more: &Value, change: fn(HostWeight) -> HostWeight) -> Result<Box<dyn Model>> {
    with_weights(name, more, |source| Box::new(Changed(source, change)))
}

fn logits_of(name: &str, more: &Value, change: fn(HostWeight) -> HostWeight) -> ndarray::Array2<f32> {
    let (_, ids, _) = cases(&golden(name)).remove(0);
    evaluate(&exact(), &*build(name, more, change).unwrap(), &ids, &Evaluate::new()).unwrap()
}

/// YaRN's magnitude for a factor of 4 and 0.8, squared.
fn magnitude() -> f32 {
    (0.08 * 4f32.ln() + 1.0).powi(2)
}

/// transformers' class for V2 has it since July 2026 only, and the golden models are of an earlier one.
#[test]
fn v2_scales_its_scores_by_mscale_all_dim() {
    let longer = |w: HostWeight| {
        let by = if w.name.contains("q_b_proj") { magnitude() } else { 1.0 };
        let values: Vec<f32> = w.to_vec().iter().map(|v| v * by).collect();
        HostWeight::from_f32(&*w.name, w.shape, &values).unwrap()
    };
    let scaling = json!({"rope_scaling": {"rope_type": "default", "factor": 4.0, "mscale_all_dim": 0.8}});
    let (got, plain) =
        (logits_of("deepseek-v2", &scaling, |w| w), logits_of("deepseek-v2", &json!({}), |w| w));
    let want = logits_of("deepseek-v2", &json!({}), longer);
    assert!(worst(&got, &want) < 2e-5 && worst(&got, &plain) > 1e-3);
}

/// Of each head's queries and of keys, what rotates has its neighbours in two halves. Queries are 5 heads of 12 and 16 elements, and 16
/// stand behind a latent of 24.
fn in_halves(w: HostWeight) -> HostWeight {
    let (head, plain) = match w.name.split("self_attn.").nth(1).and_then(|part| part.split('.').next()) {
        Some("q_proj") => (28, 12),
        Some("kv_a_proj_with_mqa") => (40, 24),
        _ => return w,
    };
    let vector = w.shape[1] == 1;
    let rows = w.shape[1].max(if vector { w.shape[2] } else { 1 });
    let from = |row: usize| match row % head {
        i if i < plain => row,
        i => row - i + plain + 2 * ((i - plain) % 8) + (i - plain) / 8,
    };
    let (values, cols) = (w.to_vec(), if vector { 1 } else { w.shape[2] });
    let moved: Vec<f32> = (0..rows).map(from).flat_map(|row| values[row * cols..][..cols].to_vec()).collect();
    HostWeight::from_f32(&*w.name, w.shape, &moved).unwrap()
}

#[test]
fn halves_rotate_where_v3_does_not_interleave() {
    let (got, want) = (
        logits_of("deepseek-v3", &json!({"rope_interleave": false}), in_halves),
        logits_of("deepseek-v3", &json!({}), |w| w),
    );
    assert!(worst(&got, &want) < 2e-5);
    let pairs = logits_of("deepseek-v3", &json!({}), in_halves);
    assert!(worst(&pairs, &want) > 1e-3);
    // Of V2 the setting is not.
    let left_over = logits_of("deepseek-v2", &json!({"rope_interleave": false}), |w| w);
    assert!(worst(&left_over, &logits_of("deepseek-v2", &json!({}), |w| w)) < 1e-6);
}

#[test]
fn the_cache_keeps_latents_of_the_models_own_layers() {
    let layers = |more: Value| build("deepseek-v3", &more, |w| w).unwrap().cache_layout();
    assert_eq!(layers(json!({})), vec![LayerCache::full(24 + 16, 0); 2]);
    // What is behind them foretells more than one token.
    assert_eq!(layers(json!({"num_hidden_layers": 1, "num_nextn_predict_layers": 1})).len(), 1);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (name, more, why) in [
        ("deepseek-v2", json!({"moe_layer_freq": 0}), "no layer is each 0th"),
        // The second layer would be a dense one.
        ("deepseek-v2", json!({"moe_layer_freq": 2}), "layers.1.mlp.gate_proj"),
        ("deepseek-v2", json!({"first_k_dense_replace": 0}), "layers.0.mlp.experts.0"),
        ("deepseek-v2", json!({"norm_topk_prob": true}), "`norm_topk_prob`"),
        ("deepseek-v2", json!({"n_group": 5}), "12 experts in 5 groups"),
        ("deepseek-v2", json!({"n_routed_experts": 16}), "experts.12.gate_proj"),
        ("deepseek-v2", json!({"n_routed_experts": 8}), "mlp: router: 12 outputs"),
        ("deepseek-v2", json!({"num_experts_per_tok": 7}), "7 experts of 6 to choose from"),
        ("deepseek-v2", json!({"q_lora_rank": null}), "q_proj"),
        ("deepseek-v2", json!({"kv_lora_rank": 21}), "do weights and config belong together?"),
        ("deepseek-v2", json!({"num_hidden_layers": 1_u64 << 40}), "layers.2."),
        ("deepseek-v2", json!({"n_routed_experts": 1_u64 << 60}), "experts.12.gate_proj"),
        ("deepseek-v3", json!({"qk_rope_head_dim": 1_u64 << 40}), "rotate"),
        ("deepseek-v3", json!({"v_head_dim": 0}), "`v_head_dim` is 0"),
        ("deepseek-v3", json!({"topk_method": "greedy"}), "`topk_method` is `greedy`"),
        ("deepseek-v3", json!({"n_routed_experts": 6}), "9 biases for 6 experts"),
        ("deepseek-v3", json!({"is_causal": false}), "looks ahead"),
        ("deepseek-v3", json!({"hidden_act": "relu3"}), "`hidden_act` is `relu3`"),
    ] {
        let e = build(name, &more, |w| w).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains(why), "{name}, {more}: {e}");
    }
}
