//! Settings under names of one class's own, and the same under those that other classes have for them.
//!
//! Done where defaults are filled in and not where names of the format are brought up to date: a name means this to its class alone.

use serde_json::{Map, Value, json};

/// The activation of the first Gemma under the key that counts. Where only the older has one, `gelu` is the name that the first checkpoints
/// have for the approximation which they were trained with (transformers' issue 29402).
pub(super) fn gemma(settings: &mut Map<String, Value>) {
    let tanh = || json!("gelu_pytorch_tanh");
    let older = settings.get("hidden_act").filter(|v| !v.is_null() && **v != "gelu").cloned();
    let counts = settings.entry("hidden_activation").or_insert(Value::Null);
    if counts.is_null() {
        *counts = older.unwrap_or_else(tanh);
    }
}

/// The context that a model was trained for, where `max_position_embeddings` is a smaller one: Command R has it as `model_max_length`, and the
/// HunYuan that turn by an `alpha` say 32 Ki for 256 Ki tokens. So llama.cpp's converter has it. Where positions of Command R are stretched, it is
/// by the other number. RoBERTa and its kin say how many positions their tables have, of which those up to that of padding are no token's.
pub(super) fn trained_context(class: &str, settings: &mut Map<String, Value>) {
    const KEY: &str = "max_position_embeddings";
    let scaling = settings.get("rope_scaling").filter(|v| !v.is_null());
    let by_alpha = |s: &Value| s["rope_type"] == "dynamic" && s["alpha"].as_f64().is_some_and(|n| n != 0.0);
    let context = match class {
        "CohereForCausalLM" if scaling.is_none() => {
            settings.get("model_max_length").filter(|n| n.is_u64()).cloned()
        }
        "HunYuanDenseV1ForCausalLM" | "HunYuanMoEV1ForCausalLM" => {
            let short = settings.get(KEY).is_some_and(|n| *n == 32 << 10) && scaling.is_some_and(by_alpha);
            short.then(|| json!(256 << 10))
        }
        _ if ["Camembert", "Roberta", "XLMRoberta"].iter().any(|kin| class.starts_with(kin)) => {
            let padding = settings.get("pad_token_id").map_or(Some(1), Value::as_u64);
            let table = settings.get(KEY).and_then(Value::as_u64);
            table.zip(padding).map(|(table, padding)| json!(table.saturating_sub(padding.saturating_add(1))))
        }
        _ => None,
    };
    if let Some(context) = context {
        settings.insert(KEY.into(), context);
    }
}

/// A base of ModernBERT's local layers that is turned off is that of the others.
pub(super) fn modern_bert(settings: &mut Map<String, Value>) {
    let off = settings.get("local_rope_theta").is_some_and(Value::is_null);
    if let (true, Some(theta)) = (off, settings.get("global_rope_theta").cloned()) {
        settings.insert("local_rope_theta".into(), theta);
    }
}

/// LFM2's keys under the names that other classes have for them; where both are there, its own count. And how wide a dense MLP is, which the
/// class makes of `intermediate_size` and three settings more: here it is `intermediate_size`, as it is in GGUF.
pub(super) fn lfm2_names(settings: &mut Map<String, Value>, dense: bool) {
    let own = [
        ("norm_eps", "rms_norm_eps"),
        ("tie_embedding", "tie_word_embeddings"),
        ("theta", "rope_theta"),
        ("block_ff_dim", "intermediate_size"),
    ];
    // The mixtures' class knows the first two.
    for (own, name) in own.into_iter().take(if dense { own.len() } else { 2 }) {
        if let Some(value) = settings.remove(own).filter(|v| !v.is_null()) {
            settings.insert(name.into(), value);
        }
    }
    if let Some(width) = lfm2_width(settings).filter(|_| dense) {
        settings.insert("intermediate_size".into(), width.into());
        settings.insert("block_auto_adjust_ff_dim".into(), false.into());
    }
}

/// Nemotron-H's keys under the names that other classes have for them. What each block is stands in a list, whose words have changed, or in a
/// string with a sign for each; where both are there, the list counts. Experts are taken for granted where there are mixtures.
pub(super) fn nemotron_names(settings: &mut Map<String, Value>) {
    let said = |settings: &Map<String, Value>, key: &str| settings.get(key).filter(|v| !v.is_null()).cloned();
    epsilon(settings);
    if let (Some(dim), None) = (said(settings, "attention_head_dim"), said(settings, "head_dim")) {
        settings.insert("head_dim".into(), dim);
    }
    let listed = said(settings, "layers_block_type").or(said(settings, "layer_types"));
    let kinds: Vec<Value> = match (listed, said(settings, "hybrid_override_pattern")) {
        (Some(Value::Array(kinds)), _) => {
            kinds.iter().map(|kind| kind.as_str().map_or(kind.clone(), block_type)).collect()
        }
        (None, Some(Value::String(signs))) => {
            signs.chars().map(|sign| block_type(&sign.to_string())).collect()
        }
        _ => return,
    };
    let experts = [("n_routed_experts", json!(8)), ("num_experts_per_tok", json!(2))];
    for (key, value) in experts.into_iter().filter(|_| kinds.contains(&json!("moe"))) {
        settings.entry(key).or_insert(value);
    }
    if said(settings, "num_hidden_layers").is_none() {
        settings.insert("num_hidden_layers".into(), kinds.len().into());
    }
    settings.insert("layer_types".into(), kinds.into());
}

/// What a block is called, by any word or sign for it.
fn block_type(kind: &str) -> Value {
    json!(match kind {
        "M" | "linear_attention" => "mamba",
        "*" | "full_attention" => "attention",
        "-" => "mlp",
        "E" => "moe",
        other => other,
    })
}

/// What blocks of Jamba and Bamba are, where a list says so and not a period: under the name that other hybrids have for it.
pub(super) fn block_types(settings: &mut Map<String, Value>) {
    let listed = |key| settings.get(key).and_then(Value::as_array);
    if let Some(kinds) = listed("layers_block_type").or(listed("layer_types")) {
        let kinds: Value = kinds.iter().map(|kind| kind.as_str().map_or(kind.clone(), block_type)).collect();
        settings.insert("layer_types".into(), kinds);
    }
}

/// The part of GPT-NeoX's heads that turns and by which base, under the names that other classes have for them. Of either the own one counts.
pub(super) fn neox(settings: &mut Map<String, Value>) {
    for (own, name) in [("rotary_pct", "partial_rotary_factor"), ("rotary_emb_base", "rope_theta")] {
        if let Some(value) = settings.get(own).filter(|value| !value.is_null()).cloned() {
            settings.insert(name.into(), value);
        }
    }
}

/// The part of MiniMax-M2's heads that turns, of which its files have the elements.
pub(super) fn minimax_names(settings: &mut Map<String, Value>) {
    let head = settings.get("head_dim").and_then(Value::as_f64).unwrap_or(128.0);
    let said = settings.get("partial_rotary_factor").is_some_and(|part| !part.is_null());
    if let Some(turned) = settings.get("rotary_dim").and_then(Value::as_f64).filter(|_| !said && head > 0.0) {
        settings.insert("partial_rotary_factor".into(), json!(turned / head));
    }
}

/// The epsilon of norms under the name that most classes have for it.
pub(super) fn epsilon(settings: &mut Map<String, Value>) {
    if let Some(eps) = settings.get("layer_norm_epsilon").filter(|v| !v.is_null()).cloned() {
        settings.insert("rms_norm_eps".into(), eps);
    }
}

/// How wide the class makes an MLP; `None` where it is as wide as is said, or nothing that could be counted.
fn lfm2_width(settings: &Map<String, Value>) -> Option<u64> {
    let setting = |key: &str, usual: Value| settings.get(key).cloned().unwrap_or(usual);
    setting("block_auto_adjust_ff_dim", json!(true)).as_bool().filter(|adjusts| *adjusts)?;
    let two_thirds = setting("intermediate_size", json!(12288)).as_u64()?.checked_mul(2)? / 3;
    let factor = setting("block_ffn_dim_multiplier", json!(1.0));
    if factor.is_null() {
        return Some(two_thirds);
    }
    let width = (factor.as_f64()? * two_thirds as f64) as u64;
    width.checked_next_multiple_of(setting("block_multiple_of", json!(256)).as_u64()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(settings: Value) -> Value {
        let Value::Object(mut settings) = settings else { return Value::Null };
        crate::classes::fill(&mut settings);
        settings.into()
    }

    #[test]
    fn nemotrons_blocks_are_what_either_spelling_says() {
        let of = |more: Value| {
            let mut settings = json!({"architectures": ["NemotronHForCausalLM"]});
            settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            filled(settings)
        };
        let kinds = json!(["mamba", "mlp", "attention", "moe", "X"]);
        let signs =
            of(json!({"hybrid_override_pattern": "M-*EX", "layer_norm_epsilon": 1e-3, "rms_norm_eps": 1e-6}));
        let both = json!({"hybrid_override_pattern": "M", "head_dim": null, "attention_head_dim": 12,
            "num_hidden_layers": 7, "n_routed_experts": 128,
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "moe", "X"]});
        let both = of(both);
        for (settings, layers, experts) in [(&signs, 5, 8), (&both, 7, 128)] {
            assert_eq!((&settings["layer_types"], &settings["num_hidden_layers"]), (&kinds, &json!(layers)));
            let told = [&settings["n_routed_experts"], &settings["num_experts_per_tok"]];
            assert_eq!(told, [&json!(experts), &json!(2)]);
        }
        assert_eq!((&signs["rms_norm_eps"], &both["head_dim"]), (&json!(1e-3), &json!(12)));
        assert_eq!(of(json!({"layer_types": ["mamba", 3]}))["layer_types"], json!(["mamba", 3]));
        let silent = of(json!({"hybrid_override_pattern": "M-"}));
        assert_eq!((silent.get("n_routed_experts"), &silent["num_hidden_layers"]), (None, &json!(2)));
        for odd in [
            json!({"hybrid_override_pattern": 3}),
            json!({"layer_types": "M", "hybrid_override_pattern": "M"}),
        ] {
            assert_eq!(of(odd.clone()).get("layer_types"), odd.get("layer_types"));
        }
    }

    #[test]
    fn neoxs_heads_turn_as_its_own_settings_say() {
        let of = |more: Value| {
            let mut settings = json!({"architectures": ["GPTNeoXForCausalLM"]});
            settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let filled = filled(settings);
            ["partial_rotary_factor", "rope_theta"].map(|key| filled.get(key).cloned())
        };
        let both =
            json!({"rotary_pct": 0.5, "partial_rotary_factor": 1.0, "rotary_emb_base": 7, "rope_theta": 8});
        assert_eq!(of(both), [Some(json!(0.5)), Some(json!(7))]);
        assert_eq!(of(json!({"partial_rotary_factor": 1.0})), [Some(json!(1.0)), None]);
        assert_eq!(of(json!({"rotary_pct": null})), [Some(json!(0.25)), None]);
        let later = json!({"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 9}});
        assert_eq!(of(later), [None, None]);
    }

    #[test]
    fn blocks_of_hybrids_are_listed_under_one_name() {
        let of = |more: Value| {
            let mut settings = json!({"architectures": ["BambaForCausalLM"]});
            settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            filled(settings).get("layer_types").cloned()
        };
        let listed = json!(["mamba", "full_attention", 3]);
        let want = json!(["mamba", "attention", 3]);
        assert_eq!(of(json!({"layers_block_type": listed})), Some(want.clone()));
        assert_eq!(of(json!({"layer_types": listed})), Some(want));
        assert_eq!((of(json!({})), of(json!({"layers_block_type": null}))), (None, None));
        let jamba = filled(json!({"architectures": ["JambaForCausalLM"]}));
        let silent = json!({"num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2,
            "architectures": ["JambaForCausalLM"]});
        assert_eq!(jamba, silent);
    }

    #[test]
    fn the_first_gemmas_activation_is_what_they_were_trained_with() {
        let of = |old: Value, new: Value| {
            let settings =
                json!({"architectures": ["GemmaModel"], "hidden_act": old, "hidden_activation": new});
            filled(settings)["hidden_activation"].clone()
        };
        let tanh = json!("gelu_pytorch_tanh");
        assert_eq!(
            [json!(null), json!("gelu"), tanh.clone()].map(|old| of(old, json!(null))),
            [(); 3].map(|()| tanh.clone())
        );
        assert_eq!(of(json!("silu"), json!(null)), "silu");
        assert_eq!((of(tanh.clone(), json!("gelu")), of(json!("silu"), tanh.clone())), (json!("gelu"), tanh));
    }

    /// Widths of models that are published, and what transformers 4.57 makes of others.
    #[test]
    fn lfm2s_mlps_are_as_wide_as_its_class_makes_them() {
        let of = |settings: Value| {
            let mut settings = settings;
            settings["architectures"] = json!(["Lfm2ForCausalLM"]);
            let once = filled(settings);
            assert_eq!(filled(once.clone()), once);
            once["intermediate_size"].clone()
        };
        for (said, width) in [(6656, 4608), (10240, 6912), (12288, 8192)] {
            assert_eq!(of(json!({"block_ff_dim": said, "intermediate_size": 1})), width);
        }
        assert_eq!(of(json!({"intermediate_size": 10752, "block_auto_adjust_ff_dim": false})), 10752);
        let odd = json!({"intermediate_size": 71, "block_multiple_of": 12, "block_ffn_dim_multiplier": 1.3});
        assert_eq!(of(odd), 72);
        assert_eq!(of(json!({"intermediate_size": 71, "block_ffn_dim_multiplier": null})), 47);
        assert_eq!(of(json!({})), 8192);
        // What the class itself cannot count stays, for whoever reads it.
        for odd in [json!({"block_multiple_of": 0}), json!({"block_ffn_dim_multiplier": "x"})] {
            let mut odd = odd;
            odd["intermediate_size"] = json!(71);
            assert_eq!(of(odd), 71);
        }
        assert_eq!(of(json!({"intermediate_size": u64::MAX})), json!(u64::MAX));
        let mixture =
            json!({"architectures": ["Lfm2MoeForCausalLM"], "intermediate_size": 71, "norm_eps": 0.5});
        let mixture = filled(mixture);
        assert_eq!((&mixture["intermediate_size"], &mixture["rms_norm_eps"]), (&json!(71), &json!(0.5)));
    }

    #[test]
    fn minimaxs_heads_turn_in_so_many_elements_as_its_files_say() {
        let of = |more: Value| {
            let mut settings = json!({"architectures": ["MiniMaxM2ForCausalLM"]});
            settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            filled(settings).get("partial_rotary_factor").cloned()
        };
        assert_eq!(of(json!({"rotary_dim": 64})), Some(json!(0.5)));
        assert_eq!(of(json!({"rotary_dim": 14, "head_dim": 20})), Some(json!(0.7)));
        assert_eq!(of(json!({"rotary_dim": 14, "partial_rotary_factor": 0.25})), Some(json!(0.25)));
        let odd = [json!({}), json!({"rotary_dim": "x"}), json!({"rotary_dim": 8, "head_dim": 0})];
        assert_eq!(odd.map(of), [None, None, None]);
    }
}
