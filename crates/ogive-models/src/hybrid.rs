//! What the settings of a hybrid mean: which layers have linear attention, and what is taken for granted.

use ogive_nn::Config;
use ogive_nn::tensor::{Error, Result, serde_json::json};

/// The settings, with what Qwen3-Next's and Qwen3.5's classes take for those that are left out.
///
/// # Errors
/// If they ask for attention that looks ahead, or for other gates than the classes have. Those gate attention by a sigmoid and linear attention
/// by SiLU, and know no setting for either; where a file has one that says otherwise, programs do not agree on what it computes.
pub(crate) fn settled(c: &Config) -> Result<Config> {
    let refuse = |why: String| Err(Error::unsupported("config", why));
    if !c.bool_or("is_causal", true)? {
        return refuse("`is_causal` is off, and linear attention only looks back".into());
    }
    if !c.bool_or("attn_output_gate", true)? {
        return refuse("`attn_output_gate` is off, and attention of this class has a gate".into());
    }
    if let Some(other) = c.opt_str("output_gate_type")?.filter(|gate| !["silu", "swish"].contains(gate)) {
        return refuse(format!(
            "`output_gate_type` is `{other}`, and linear attention of this class is gated by `swish`"
        ));
    }
    let mut c = c.clone();
    let defaults =
        [("head_dim", json!(256)), ("norm_topk_prob", json!(true)), ("partial_rotary_factor", json!(0.25))];
    for (key, value) in defaults {
        if let (false, Some(settings)) = (c.has(key), c.0.as_object_mut()) {
            settings.insert(key.into(), value);
        }
    }
    Ok(c)
}

/// The settings that Qwen3.5's classes know: all its layers have experts, or none, and shares are of those chosen.
pub(crate) fn of_qwen3_5(c: &Config) -> Config {
    let unknown = ["norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"];
    let mut c = c.clone();
    if let Some(settings) = c.0.as_object_mut() {
        settings.retain(|key, _| !unknown.contains(&&**key));
    }
    c
}

/// Qwen3-Next's rule, whether a layer's attention is linear: by `layer_types`, else all but each `full_attention_interval`-th.
pub(crate) fn linear(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let (every, n) = (c.usize_or("full_attention_interval", 4)?, c.usize("num_hidden_layers")?);
    let types = c.opt_strs("layer_types")?;
    let kinds = ["linear_attention", "full_attention"];
    if types.as_ref().is_some_and(|t| t.len() != n || !t.iter().all(|kind| kinds.contains(&&**kind))) {
        let why = format!("`layer_types` should name one of {kinds:?} for each of {n} layers");
        return Err(Error::invalid("config", why));
    }
    if types.is_none() && every == 0 {
        return Err(Error::invalid("config", "`full_attention_interval` is 0: no layer is each 0th"));
    }
    Ok(move |i: usize| match &types {
        Some(types) => types.get(i).is_some_and(|kind| kind == kinds[0]),
        None => !(i + 1).is_multiple_of(every),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json::Value;

    #[test]
    fn layers_are_linear_where_the_settings_have_them() {
        let of = |settings: Value| linear(&Config(settings)).map(|linear| [0, 1, 2, 3].map(linear));
        assert_eq!(of(json!({"num_hidden_layers": 4})).unwrap(), [true, true, true, false]);
        let every = json!({"num_hidden_layers": 4, "full_attention_interval": 2});
        assert_eq!(of(every).unwrap(), [true, false, true, false]);
        let types = |types: Value| json!({"num_hidden_layers": 2, "layer_types": types});
        let listed = of(types(json!(["full_attention", "linear_attention"])));
        assert_eq!(listed.unwrap(), [false, true, false, false]);
        for odd in [types(json!(["full_attention"])), types(json!(["full_attention", "sliding_attention"]))] {
            assert!(of(odd).unwrap_err().to_string().contains("for each of 2 layers"));
        }
        assert!(of(json!({"num_hidden_layers": 4, "full_attention_interval": 0})).is_err());
    }
}
