//! What Gemma 3n's settings mean that are left out, and what each layer's MLP cuts off.
//!
//! Filled in once and not asked for with a default at each place, as several places ask for them.

use ogive_nn::Config;
use ogive_nn::tensor::{Error, Result, serde_json::json};

/// How much each layer's MLP cuts off: what `activation_sparsity_pattern` says, else 95 of 100 in the first ten of more than ten layers.
pub(crate) fn sparsity(c: &Config) -> Result<impl Fn(usize) -> f32 + use<>> {
    let (said, n) = (c.opt_f32s("activation_sparsity_pattern")?, c.usize("num_hidden_layers")?);
    if let Some(other) = said.as_ref().map(Vec::len).filter(|len| *len != n) {
        let why = format!("{other} numbers in `activation_sparsity_pattern` for {n} layers");
        return Err(Error::invalid("config", why));
    }
    let usual = move |i: usize| if n > 10 && i < 10 { 0.95 } else { 0.0 };
    Ok(move |i: usize| said.as_ref().map_or(usual(i), |said| said[i]))
}

/// The settings, with what `Gemma3nTextConfig` takes for those that are left out.
pub(crate) fn with_defaults(c: &Config) -> Config {
    let mut c = c.clone();
    let Some(settings) = c.0.as_object_mut() else { return c };
    // `null` turns either off.
    settings.entry("final_logit_softcapping").or_insert(json!(30.0));
    settings.entry("altup_coef_clip").or_insert(json!(120.0));
    let usual = [
        ("num_attention_heads", json!(8)),
        ("num_key_value_heads", json!(2)),
        ("head_dim", json!(256)),
        ("num_kv_shared_layers", json!(15)),
        ("hidden_size_per_layer_input", json!(256)),
        ("rope_theta", json!(1e6)),
    ];
    c.fill(usual);
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_is_said_the_first_ten_of_more_layers_are_sparse() {
        let of = |n: usize| sparsity(&Config(json!({"num_hidden_layers": n}))).unwrap();
        let (few, more) = (of(10), of(11));
        assert_eq!([few(0), few(9), more(0), more(9), more(10)], [0.0, 0.0, 0.95, 0.95, 0.0]);
        let said = json!({"num_hidden_layers": 2, "activation_sparsity_pattern": [0.0, 0.5]});
        assert_eq!([0, 1].map(sparsity(&Config(said)).unwrap()), [0.0, 0.5]);
    }
}
