//! Which layers of a hybrid have linear attention.

use ogive_nn::Config;
use ogive_nn::tensor::{Error, Result};

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

/// Granite 4's rule, whether a layer has a state space: by `layer_types`, else all.
pub(crate) fn mamba(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let (types, n) = (c.opt_strs("layer_types")?, c.usize("num_hidden_layers")?);
    let kinds = ["mamba", "attention"];
    if types.as_ref().is_some_and(|t| t.len() != n || !t.iter().all(|kind| kinds.contains(&&**kind))) {
        let why = format!("`layer_types` should name one of {kinds:?} for each of {n} layers");
        return Err(Error::invalid("config", why));
    }
    Ok(move |i: usize| types.as_ref().is_none_or(|types| types.get(i).is_some_and(|kind| kind == kinds[0])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json::{Value, json};

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
