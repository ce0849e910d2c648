//! What the settings of a hybrid mean: which layers have another mixer than attention, and what is taken for granted.

use ogive_nn::Config;
use ogive_nn::tensor::{Error, Result, serde_json::json};

/// Refuses attention that looks ahead (`is_causal` is off) beside what cannot.
pub(crate) fn looks_back(c: &Config, what: &str) -> Result<()> {
    match c.bool_or("is_causal", true)? {
        true => Ok(()),
        false => Err(Error::unsupported("config", format!("`is_causal` is off, and {what} only looks back"))),
    }
}

/// The settings, with what Qwen3-Next's and Qwen3.5's classes take for those that are left out.
///
/// # Errors
/// If they ask for attention that looks ahead, or for other gates than the classes have. Those gate attention by a sigmoid and linear attention
/// by SiLU, and know no setting for either; where a file has one that says otherwise, programs do not agree on what it computes.
pub(crate) fn settled(c: &Config) -> Result<Config> {
    looks_back(c, "linear attention")?;
    let refuse = |why: String| Err(Error::unsupported("config", why));
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
    let (every, listed) =
        (c.usize_or("full_attention_interval", 4)?, listed(c, ["linear_attention", "full_attention"])?);
    if listed.is_none() && every == 0 {
        return Err(Error::invalid("config", "`full_attention_interval` is 0: no layer is each 0th"));
    }
    Ok(move |i: usize| match &listed {
        Some(listed) => listed.get(i) == Some(&true),
        None => !(i + 1).is_multiple_of(every),
    })
}

/// LFM2's rule, whether a layer convolves: by `layer_types`, else all but those of `full_attn_idxs`, as its first settings have it; none
/// where both are silent.
pub(crate) fn convolves(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let (listed, attend) = (listed(c, ["conv", "full_attention"])?, c.opt_usizes("full_attn_idxs")?);
    Ok(move |i: usize| match (&listed, &attend) {
        (Some(listed), _) => listed.get(i) == Some(&true),
        (None, Some(attend)) => !attend.contains(&i),
        (None, None) => false,
    })
}

/// Granite 4's rule, whether a layer has a state space: by `layer_types`, else all.
pub(crate) fn mamba(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let listed = listed(c, ["mamba", "attention"])?;
    Ok(move |i: usize| listed.as_ref().is_none_or(|listed| listed.get(i) == Some(&true)))
}

/// Whether each layer is of the first of two kinds, where `layer_types` says.
fn listed(c: &Config, kinds: [&str; 2]) -> Result<Option<Vec<bool>>> {
    Ok(numbered(c, &kinds)?.map(|layers| layers.into_iter().map(|kind| kind == 0).collect()))
}

/// Which of these kinds each layer is of, where `layer_types` says.
pub(crate) fn numbered(c: &Config, kinds: &[&str]) -> Result<Option<Vec<usize>>> {
    let (types, n) = (c.opt_strs("layer_types")?, c.usize("num_hidden_layers")?);
    let Some(types) = types else { return Ok(None) };
    let number = |kind: &String| kinds.iter().position(|known| known == kind);
    let numbers = types.iter().map(number).collect::<Option<Vec<_>>>().filter(|all| all.len() == n);
    let why = || format!("`layer_types` should name one of {kinds:?} for each of {n} layers");
    numbers.map(Some).ok_or_else(|| Error::invalid("config", why()))
}

/// Refuses bounds of how long a state space's steps in time are, where there are any (`time_step_limit`).
pub(crate) fn steps_in_time(c: &Config) -> Result<()> {
    let unbounded = json!([0.0, {"__float__": "Infinity"}]);
    match c.0.get("time_step_limit").filter(|limit| !limit.is_null() && **limit != unbounded) {
        Some(limit) => {
            let why =
                format!("`time_step_limit` is {limit}, and only steps between 0 and infinity are known");
            Err(Error::unsupported("config", why))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json::Value;

    fn types(types: Value) -> Value {
        json!({"num_hidden_layers": 2, "layer_types": types})
    }

    #[test]
    fn layers_are_linear_where_the_settings_have_them() {
        let of = |settings: Value| linear(&Config(settings)).map(|linear| [0, 1, 2, 3].map(linear));
        assert_eq!(of(json!({"num_hidden_layers": 4})).unwrap(), [true, true, true, false]);
        let every = json!({"num_hidden_layers": 4, "full_attention_interval": 2});
        assert_eq!(of(every).unwrap(), [true, false, true, false]);
        let listed = of(types(json!(["full_attention", "linear_attention"])));
        assert_eq!(listed.unwrap(), [false, true, false, false]);
        for odd in [types(json!(["full_attention"])), types(json!(["full_attention", "sliding_attention"]))] {
            assert!(of(odd).unwrap_err().to_string().contains("for each of 2 layers"));
        }
        assert!(of(json!({"num_hidden_layers": 4, "full_attention_interval": 0})).is_err());
    }

    #[test]
    fn layers_convolve_where_the_settings_have_them() {
        let of = |settings: Value| convolves(&Config(settings)).map(|convolves| [0, 1, 2].map(convolves));
        assert_eq!(of(json!({"num_hidden_layers": 3})).unwrap(), [false; 3]);
        let first = json!({"num_hidden_layers": 3, "full_attn_idxs": [1, 7]});
        assert_eq!(of(first.clone()).unwrap(), [true, false, true]);
        let mut both = types(json!(["full_attention", "conv"]));
        both["full_attn_idxs"] = first["full_attn_idxs"].clone();
        assert_eq!(of(both).unwrap(), [false, true, false]);
        for odd in [types(json!(["conv"])), types(json!(["conv", "linear_attention"]))] {
            assert!(of(odd).unwrap_err().to_string().contains("for each of 2 layers"));
        }
        assert!(of(json!({"num_hidden_layers": 3, "full_attn_idxs": ["1"]})).is_err());
    }
}
