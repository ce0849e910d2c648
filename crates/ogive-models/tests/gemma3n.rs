//! What Gemma 3n's class does under settings that the golden model has not, what its weights may be called, and what is refused.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::backend::{Estimate, LayerCache};
use ogive_nn::tensor::{HostWeight, Result, WeightInfo};
use ogive_nn::{Loader, Source};
use serde_json::{Value, json};

const FULL: &str = "full_attention";

/// How far the longer case with these settings is from what transformers computes without them.
fn error(more: &Value) -> f32 {
    let model = with_settings("gemma3n", more).unwrap();
    let (_, ids, want) = cases(&golden("gemma3n")).remove(0);
    worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want)
}

#[test]
fn what_the_class_does_not_know_or_takes_for_granted_changes_nothing() {
    for same in [
        json!({"query_pre_attn_scalar": 3, "attn_logit_softcapping": 1.0, "hidden_act": "silu"}),
        json!({"intermediate_size": 3, "laurel_rank": 3, "vocab_size_per_layer_input": 3, "vocab_size": 3}),
        json!({"rope_theta": null, "rope_local_base_freq": null, "hidden_activation": null}),
        // No number is as large.
        json!({"altup_coef_clip": null, "altup_correct_scale": null, "is_causal": true}),
        json!({"altup_coef_clip": 0.3}),
    ] {
        let error = error(&same);
        assert!(error < 2e-5, "{same}: {error:.1e}");
    }
}

/// Each by itself, so that none is passed over behind another.
#[test]
fn what_the_class_knows_counts() {
    for more in [
        json!({"final_logit_softcapping": 2.0}),
        // 30 where nothing is said.
        json!({"final_logit_softcapping": null}),
        json!({"sliding_window": 5}),
        json!({"rope_local_base_freq": 30.0}),
        json!({"rope_theta": 30.0}),
        json!({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        json!({"rms_norm_eps": 0.1}),
        json!({"hidden_activation": "silu"}),
        json!({"altup_active_idx": 0}),
        json!({"altup_coef_clip": 0.1}),
        json!({"altup_correct_scale": false}),
        // Five layers are too few for a cut that nobody asked for.
        json!({"activation_sparsity_pattern": null}),
        json!({"activation_sparsity_pattern": [0.9, 0.6, 0.0, 0.3, 0.1]}),
        json!({"activation_sparsity_pattern": [0.9, 0.6, 0.0, 0.35, 0.0]}),
    ] {
        let error = error(&more);
        assert!(error > 1e-3, "{more}: {error:.1e}");
    }
}

/// The last two of five layers attend to what the second and the third store.
#[test]
fn layers_that_share_keep_nothing() {
    let layout = with_settings("gemma3n", &json!({})).unwrap().cache_layout();
    let local = LayerCache::windowed(24, 24, 9, 0);
    let full = LayerCache::full(24, 24).in_group(1);
    assert_eq!(layout, [local, local, full, LayerCache::Shares(1), LayerCache::Shares(2)]);
}

#[test]
fn a_text_by_itself_may_be_saved_with_its_class_or_with_none() {
    let below = |name: &str| name.strip_prefix("model.").map(|rest| format!("model.language_model.{rest}"));
    let bare =
        |name: &str| Some(format!("model.language_model.{name}")).filter(|_| !name.starts_with("model."));
    // As transformers 4.57 saves it: `model.language_model` is in place of each `model`.
    let each = |name: &str| match name.strip_prefix("model.language_model.per_layer_model") {
        Some("_projection.weight") => None,
        Some(".language_model_projection.weight") => {
            Some("model.language_model.per_layer_model_projection.weight".to_owned())
        }
        _ => Some(name.to_owned()),
    };
    let b = exact();
    for (class, renamed) in [
        ("Gemma3nForCausalLM", below as fn(&str) -> Option<String>),
        ("Gemma3nForCausalLM", each),
        ("Gemma3nTextModel", bare),
    ] {
        let file = ogive_weights::open(golden("gemma3n")).unwrap();
        let (text, source) = (file.config.at("text_config"), Renamed(file.source, renamed));
        let model = ogive_models::registry().build(class, &text, &Loader::new(&source, &b)).unwrap();
        assert!(error_of("gemma3n", &*model) < 2e-5, "{class}");
    }
}

/// Tokens of images and sounds stand behind the text's, and layers have no inputs for them.
#[test]
fn the_vocabulary_is_what_layers_have_inputs_for() {
    let (b, model) = (exact(), with_settings("gemma3n", &json!({})).unwrap());
    assert_eq!(model.vocab(), Some(123));
    let logits = evaluate(&b, &*model, &[122, 1], &Evaluate::new()).unwrap();
    assert_eq!(logits.dim(), (2, 123));
    let e = evaluate(&b, &*model, &[123], &Evaluate::new()).unwrap_err().to_string();
    assert!(e.contains("123"), "{e}");
}

/// As llama.cpp's converter writes them: a row for each token, and nothing but zeros in those of images and sounds.
#[test]
fn inputs_of_zeros_at_the_end_are_none() {
    let padded = |w: HostWeight| {
        if !w.name.ends_with("embed_tokens_per_layer.weight") {
            return w;
        }
        let values = [w.to_vec(), vec![0.0; 8 * 40]].concat();
        HostWeight::from_f32(w.name, [1, 131, 40], &values).unwrap()
    };
    let model = with_weights("gemma3n", &json!({}), |source| Box::new(Changed(source, padded))).unwrap();
    assert_eq!(model.vocab(), Some(123));
    assert!(error_of("gemma3n", &*model) < 2e-5);
    let e = evaluate(&exact(), &*model, &[123], &Evaluate::new()).unwrap_err().to_string();
    assert!(e.contains("123"), "{e}");
}

/// Weights and a head, which is what this makes of the table of tokens.
#[derive(Debug)]
struct Headed(Box<dyn Source>, fn(HostWeight) -> HostWeight);

impl Source for Headed {
    fn get(&self, name: &str) -> Result<HostWeight> {
        match name {
            "lm_head.weight" => {
                let table = self.0.get("model.language_model.embed_tokens.weight")?;
                Ok((self.1)(table).named(name))
            }
            _ => self.0.get(name),
        }
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        self.0.tensors()
    }
}

/// Rows from the last to the first.
fn turned(table: HostWeight) -> HostWeight {
    table.reordered(&(0..131).rev().collect::<Vec<_>>()).unwrap()
}

/// One of all tokens ends where the text does, as the table of tokens does.
#[test]
fn a_head_of_its_own_is_cut_as_the_table_is() {
    let with = |head, tied: bool| {
        with_weights("gemma3n", &json!({"tie_word_embeddings": tied}), |source| {
            Box::new(Headed(source, head))
        })
    };
    for tied in [false, true] {
        let copy = with(|table| table, tied).unwrap();
        assert_eq!(copy.vocab(), Some(123));
        assert!(error_of("gemma3n", &*copy) < 2e-5, "tied: {tied}");
        // The text's part of another, by itself, is the same.
        let models = [with(turned, tied), with(|table| turned(table).rows(0..123).unwrap(), tied)];
        let [whole, cut] =
            models.map(|m| evaluate(&exact(), &*m.unwrap(), &[3, 1], &Evaluate::new()).unwrap());
        assert_eq!(whole.dim(), (2, 123));
        assert_eq!(whole, cut, "tied: {tied}");
        let own = evaluate(&exact(), &*copy, &[3, 1], &Evaluate::new()).unwrap();
        assert!(worst(&whole, &own) > 1e-2, "tied: {tied}");
        let e = with(|table| table.rows(0..122).unwrap(), tied).map(drop).unwrap_err().to_string();
        assert!(e.contains("lm_head.weight") && e.contains("for 122 tokens, where the text has 123"), "{e}");
    }
}

/// Nothing of the table of layers' inputs is decoded, and what the table of tokens has besides is not read.
#[test]
fn tables_of_tokens_stay_as_they_are_packed() {
    let file = ogive_weights::open(golden("gemma3n")).unwrap();
    let b = Estimate::new();
    let loader = Loader::new(&*file.source, &b);
    ogive_models::registry().build(&file.architecture, &file.config, &loader).unwrap();
    let tensors = file.source.tensors();
    let text = tensors.iter().filter(|t| t.name.contains("language_model"));
    let bytes: usize = text.map(|t| 2 * t.shape.iter().product::<usize>()).sum();
    // What is one number wide, and what weighs streams, is kept in single precision.
    assert!(b.weight_bytes() < bytes as u64 - 2 * 8 * 48 + 12_000, "{} of {bytes}", b.weight_bytes());
    assert!(loader.unpacked().is_empty());
}

#[test]
fn what_is_not_known_or_does_not_fit_is_refused_by_name() {
    let mut failed = Vec::new();
    for (settings, why) in [
        (json!({"is_causal": false}), "`is_causal`"),
        (json!({"final_logit_softcapping": 0.0}), "`final_logit_softcapping` should be above 0"),
        (json!({"layer_types": [FULL]}), "1 `layer_types` for 5 layers"),
        (json!({"layer_types": [FULL, FULL, FULL, FULL, "linear_attention"]}), "is `linear_attention`"),
        (json!({"hidden_activation": "relu3"}), "`hidden_activation` is `relu3`"),
        (json!({"head_dim": 24}), "layers.0.self_attn.q_proj"),
        (json!({"num_key_value_heads": 3}), "layers.0.self_attn.k_proj"),
        (json!({"sliding_window": 0}), "`sliding_window` is 0"),
        (json!({"num_kv_shared_layers": 6}), "6 `num_kv_shared_layers` of 5 layers"),
        (json!({"num_kv_shared_layers": null}), "15 `num_kv_shared_layers` of 5 layers"),
        (json!({"num_kv_shared_layers": 3}), "no layer of its kind stores what layer 2 shares"),
        (json!({"hidden_size_per_layer_input": 7}), "inputs of [40, 40] elements are not 5 of 7"),
        (json!({"altup_num_inputs": 4}), "prediction_coefs.weight: [1, 9, 3] in place of [1, 16, 4]"),
        (json!({"altup_num_inputs": 0}), "`altup_active_idx` is 1, and `altup_num_inputs` says 0"),
        (json!({"altup_active_idx": 3}), "`altup_active_idx` is 3, and `altup_num_inputs` says 3"),
        (json!({"altup_coef_clip": -1.0}), "`altup_coef_clip` is below 0"),
        (json!({"altup_coef_clip": "much"}), "altup_coef_clip"),
        (
            json!({"activation_sparsity_pattern": [0.5]}),
            "1 numbers in `activation_sparsity_pattern` for 5 layers",
        ),
        (
            json!({"activation_sparsity_pattern": [1.0, 0.0, 0.0, 0.0, 0.0]}),
            "1 of all activations cannot be cut off",
        ),
        (json!({"rope_scaling": {"rope_type": "linear", "factor": 0.0}}), "factor"),
        (
            json!({"num_hidden_layers": 6, "layer_types": null, "activation_sparsity_pattern": null, "num_kv_shared_layers": 0}),
            "layers.5.self_attn.q_proj",
        ),
    ] {
        let e = with_settings("gemma3n", &settings).map(drop).unwrap_err().to_string();
        if !e.contains(why) {
            failed.push(format!("{settings}: {e}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
