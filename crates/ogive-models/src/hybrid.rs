//! Which layers of a hybrid have another mixer than attention, by the rule of each class.

use ogive_nn::Config;
use ogive_nn::tensor::{Error, Result};

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

/// Whether each layer is of the first of two kinds, where `layer_types` says.
fn listed(c: &Config, kinds: [&str; 2]) -> Result<Option<Vec<bool>>> {
    let (types, n) = (c.opt_strs("layer_types")?, c.usize("num_hidden_layers")?);
    let Some(types) = types else { return Ok(None) };
    if types.len() != n || !types.iter().all(|kind| kinds.contains(&&**kind)) {
        let why = format!("`layer_types` should name one of {kinds:?} for each of {n} layers");
        return Err(Error::invalid("config", why));
    }
    Ok(Some(types.iter().map(|kind| kind == kinds[0]).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json::{Value, json};

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
