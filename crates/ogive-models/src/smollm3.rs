//! SmolLM3: Llama with layers, each fourth one as a rule, whose positions are not turned.
//!
//! Hugging Face 2025, <https://huggingface.co/blog/smollm3>; of such layers Yang et al. 2025, <https://arxiv.org/abs/2501.18795>;
//! transformers' `modeling_smollm3`.

use crate::class::{Class, LLAMA};
use crate::{decoder, llama, windows};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Loader, Model};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let turns = turns(c)?;
    let window = window(c, &turns)?;
    let layer = |i, rope, spec| (Some(rope).filter(|_| turns(i)), windows::within(spec, window(i)));
    decoder::load(&Class { tied: true, ..LLAMA }, c, root, layer, &llama::dense(c)?)
}

/// Whether a layer's positions are turned: `no_rope_layers` has a 1 for those where they are. An empty list says nothing.
pub(crate) fn turns(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let (said, n) = (c.opt_usizes("no_rope_layers")?, c.usize("num_hidden_layers")?);
    let said = said.filter(|said| !said.is_empty());
    if let Some(said) = said.as_ref().filter(|said| said.len() != n) {
        return Err(Error::invalid("config", format!("{} `no_rope_layers` for {n} layers", said.len())));
    }
    let every = c.usize_or("no_rope_layer_interval", 4)?;
    if every == 0 && said.is_none() {
        return Err(Error::invalid("config", "`no_rope_layer_interval` is 0: no layer is each 0th"));
    }
    Ok(move |i: usize| said.as_ref().map_or_else(|| !(i + 1).is_multiple_of(every), |said| said[i] != 0))
}

/// A layer's window, where `use_sliding_window` is on: by `layer_types`, else the layers that do not turn. What it means that layers of
/// the list slide and the switch is off hangs on how transformers attends.
fn window<T: Fn(usize) -> bool>(c: &Config, turns: T) -> Result<impl Fn(usize) -> Option<usize> + use<T>> {
    let (used, types) = (c.bool_or("use_sliding_window", false)?, windows::listed(c)?);
    let window = c.opt_usize("sliding_window")?.filter(|w| *w > 0);
    if !used && window.is_some() && types.iter().flatten().any(|slides| *slides) {
        let why =
            "`layer_types` has layers with a window and `use_sliding_window` is off, which is not settled";
        return Err(Error::unsupported("config", why));
    }
    Ok(move |i: usize| {
        window.filter(|_| used && types.as_ref().map_or_else(|| !turns(i), |slides| slides[i]))
    })
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

    #[test]
    fn windows_are_where_nothing_turns() {
        const ON: &str = r#", "use_sliding_window": true"#;
        const TYPES: &str =
            r#", "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]"#;
        let of = |extra: &str| {
            let text = format!(r#"{{"num_hidden_layers": 3, "sliding_window": 8{extra}}}"#);
            let window = window(&Config(serde_json::from_str(&text).unwrap()), |i| i != 1)?;
            Ok::<_, Error>([0, 1, 2].map(|i| window(i).is_some()))
        };
        assert_eq!((of("").unwrap(), of(ON).unwrap()), ([false; 3], [false, true, false]));
        assert_eq!(of(&format!("{ON}{TYPES}")).unwrap(), [true, false, true]);
        assert!(of(TYPES).is_err());
    }
}
