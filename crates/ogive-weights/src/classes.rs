//! What transformers' classes take for granted where `config.json` is silent, and no model can.
//!
//! Most defaults are the models' own: they are the same for GGUF. These are not, as a key that is missing there means something
//! else (no window, no cap, llama.cpp's number); so they are filled in where a file is known to be Hugging Face's. A key that
//! is `null` is not silent: it turns a window or a cap off.

use serde_json::{Map, Value, json};

/// The defaults of `configuration_….py` for a class (`MixtralForCausalLM`, `MixtralModel`), by settings.
fn defaults(class: &str) -> Vec<(&'static str, Value)> {
    let family = ["ForCausalLM", "Model"].iter().find_map(|end| class.strip_suffix(end));
    match family.unwrap_or_default() {
        "Gemma2" => vec![
            ("num_key_value_heads", json!(4)),
            ("query_pre_attn_scalar", json!(256)),
            ("attn_logit_softcapping", json!(50.0)),
            ("final_logit_softcapping", json!(30.0)),
        ],
        "Mistral" => vec![("sliding_window", json!(4096))],
        "Mixtral" => vec![("rope_theta", json!(1e6)), ("rms_norm_eps", json!(1e-5))],
        "Phi3" => vec![("rms_norm_eps", json!(1e-5))],
        _ => Vec::new(),
    }
}

/// Fills in what the first of `architectures` takes for granted.
pub(crate) fn fill(settings: &mut Map<String, Value>) {
    let class = settings.get("architectures").and_then(|names| names.get(0)?.as_str());
    for (key, value) in defaults(class.unwrap_or_default()) {
        let within = |scaling| settings.get(scaling).is_some_and(|s: &Value| s.get(key).is_some());
        if !within("rope_scaling") && !within("rope_parameters") {
            settings.entry(key).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(settings: Value) -> Value {
        let Value::Object(mut settings) = settings else { return Value::Null };
        fill(&mut settings);
        settings.into()
    }

    #[test]
    fn silence_is_what_the_class_takes_it_for() {
        for (class, want) in [
            ("MistralForCausalLM", json!({"sliding_window": 4096})),
            ("MistralModel", json!({"sliding_window": 4096})),
            ("MixtralForCausalLM", json!({"rope_theta": 1e6, "rms_norm_eps": 1e-5})),
            ("Phi3ForCausalLM", json!({"rms_norm_eps": 1e-5})),
            (
                "Gemma2Model",
                json!({"num_key_value_heads": 4, "query_pre_attn_scalar": 256,
                    "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
            ),
            ("LlamaForCausalLM", json!({})),
            ("Gemma3ForCausalLM", json!({})),
            ("MistralForSomething", json!({})),
        ] {
            let mut want = want;
            want["architectures"] = json!([class]);
            assert_eq!(filled(json!({"architectures": [class]})), want, "{class}");
        }
        assert_eq!(filled(json!({"architectures": 3})), json!({"architectures": 3}));
    }

    #[test]
    fn what_is_said_stays_and_null_is_said() {
        for settings in [
            json!({"architectures": ["MistralForCausalLM"], "sliding_window": null}),
            json!({"architectures": ["MixtralForCausalLM"], "rope_theta": 1e4, "rms_norm_eps": 1e-6}),
            json!({"architectures": ["MixtralForCausalLM"], "rope_scaling": {"rope_theta": 1e4}, "rms_norm_eps": 1e-6}),
            json!({"architectures": ["Gemma2ForCausalLM"], "num_key_value_heads": 2, "query_pre_attn_scalar": 144,
                "attn_logit_softcapping": null, "final_logit_softcapping": null}),
        ] {
            assert_eq!(filled(settings.clone()), settings);
        }
    }
}
