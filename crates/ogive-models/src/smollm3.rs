//! SmolLM3: Llama with layers, each fourth one as a rule, whose positions are not turned.
//!
//! Hugging Face 2025, <https://huggingface.co/blog/smollm3>; of such layers Yang et al. 2025, <https://arxiv.org/abs/2501.18795>;
//! transformers' `modeling_smollm3`.

use crate::decoder::{self, Class, LLAMA};
use crate::{llama, windows};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Loader, Model};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// Where a setting or a tensor is missing or is not what was expected, or a setting asks for what is not known.
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let turns = turns(c)?;
    let window = windows::smollm3(c, &turns)?;
    let layer = |i, rope, spec| (Some(rope).filter(|_| turns(i)), windows::within(spec, window(i)));
    decoder::load(&Class { tied: true, ..LLAMA }, c, root, layer, &llama::dense(c)?)
}

/// Whether a layer's positions are turned: `no_rope_layers` has a 1 for those where they are.
fn turns(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let (said, n) = (c.opt_usizes("no_rope_layers")?, c.usize("num_hidden_layers")?);
    if let Some(said) = said.as_ref().filter(|said| said.len() != n) {
        return Err(Error::invalid("config", format!("{} `no_rope_layers` for {n} layers", said.len())));
    }
    let every = c.usize_or("no_rope_layer_interval", 4)?;
    if every == 0 && said.is_none() {
        return Err(Error::invalid("config", "`no_rope_layer_interval` is 0: no layer is each 0th"));
    }
    Ok(move |i: usize| said.as_ref().map_or_else(|| !(i + 1).is_multiple_of(every), |said| said[i] != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json;

    #[test]
    fn layers_turn_where_the_settings_have_them() {
        let of = |extra: &str| {
            let text = format!(r#"{{"num_hidden_layers": 5{extra}}}"#);
            let turns = turns(&Config(serde_json::from_str(&text).unwrap()))?;
            Ok::<_, Error>([0, 1, 2, 3, 4].map(turns))
        };
        assert_eq!(of("").unwrap(), [true, true, true, false, true]);
        assert_eq!(of(r#", "no_rope_layer_interval": 2"#).unwrap(), [true, false, true, false, true]);
        let said = r#", "no_rope_layer_interval": 0, "no_rope_layers": [0, 1, 1, 0, 1]"#;
        assert_eq!(of(said).unwrap(), [false, true, true, false, true]);
        assert!(of(r#", "no_rope_layer_interval": 0"#).is_err());
        assert!(of(r#", "no_rope_layers": [1]"#).is_err());
    }
}
