//! Which layers have a sliding window, by the rule of each class.
//!
//! Rules of their own and not one for all: configurations keep keys of the models they were made of, and a class obeys no key that it
//! does not know.

use ogive_nn::Config;
use ogive_nn::backend::{AttnOption, AttnSpec};
use ogive_nn::tensor::{Error, Result};

/// The attention within a layer's window, if it has one.
pub(crate) fn within(spec: AttnSpec, window: Option<usize>) -> AttnSpec {
    window.into_iter().fold(spec, |spec, w| spec.with(AttnOption::Window(w)))
}

/// Mistral's rule, which Mixtral and Phi-3 share: all layers have `sliding_window`, and no other key counts.
pub(crate) fn same(c: &Config) -> Result<impl Fn(usize) -> Option<usize> + use<>> {
    let window = c.opt_usize("sliding_window")?.filter(|w| *w > 0);
    Ok(move |_: usize| window)
}

/// `c`, unless rotary positions are stretched in it, or said in a form that is not known: for a class that has bases and nothing else.
pub(crate) fn unstretched(c: &Config) -> Result<&Config> {
    let scaling = c.at("rope_scaling");
    let kind = scaling.opt_str("rope_type")?.or(scaling.opt_str("type")?).unwrap_or("default");
    let why = match kind {
        "default" if c.has("rope_parameters") => {
            "`rope_parameters` are in a form that is not known".to_owned()
        }
        "default" => return Ok(c),
        kind => format!("`rope_scaling` is `{kind}`; known is default"),
    };
    Err(Error::unsupported("config", why))
}

/// Qwen's rule: by `layer_types`, else from `max_window_layers` on where `use_sliding_window` is on; none where that is off.
pub(crate) fn qwen(c: &Config) -> Result<impl Fn(usize) -> Option<usize> + use<>> {
    let (said, used) = (c.has("use_sliding_window"), c.bool_or("use_sliding_window", false)?);
    let window = c.opt_usize("sliding_window")?.filter(|w| *w > 0 && (used || !said));
    let (types, first) = (listed(c)?, c.usize_or("max_window_layers", 28)?);
    Ok(move |i: usize| window.filter(|_| types.as_ref().map_or(used && i >= first, |slides| slides[i])))
}

/// The rule of Qwen2's mixtures: no window. Which layers have one where `use_sliding_window` is on hangs on the version of transformers and on
/// how it attends (all; those from `max_window_layers` on; each second one before), and no published model has it on.
pub(crate) fn qwen2_moe(c: &Config) -> Result<impl Fn(usize) -> Option<usize> + use<>> {
    if c.bool_or("use_sliding_window", false)? {
        let why = "`use_sliding_window` is on, and which layers of this class it is for is not settled";
        return Err(Error::unsupported("config", why));
    }
    Ok(|_: usize| None)
}

/// The rule of Qwen3's mixtures: all layers have `sliding_window` where `use_sliding_window` is on, and no other key counts.
pub(crate) fn qwen3_moe(c: &Config) -> Result<impl Fn(usize) -> Option<usize> + use<>> {
    let used = c.bool_or("use_sliding_window", false)?;
    let window = c.opt_usize("sliding_window")?.filter(|w| *w > 0 && used);
    Ok(move |_: usize| window)
}

/// The rule of Gemma 2 and gpt-oss: by `layer_types`, else each second layer from the first on; `usual` tokens where the settings have
/// nothing, none where they have 0.
pub(crate) fn every_second(c: &Config, usual: usize) -> Result<impl Fn(usize) -> Option<usize> + use<>> {
    let window = c.opt_usize("sliding_window")?.map_or(Some(usual), |w| (w > 0).then_some(w));
    let types = listed(c)?;
    Ok(move |i: usize| window.filter(|_| types.as_ref().map_or(i.is_multiple_of(2), |slides| slides[i])))
}

/// OLMo 3's rule, Cohere's and EXAONE's: by `layer_types`, else all layers but each `every`-th.
pub(crate) fn all_but(c: &Config, every: usize) -> Result<impl Fn(usize) -> Option<usize> + use<>> {
    let (window, types) = (c.opt_usize("sliding_window")?.filter(|w| *w > 0), listed(c)?);
    let some_slide = types.as_ref().map_or(every != 1, |slides| slides.contains(&true));
    if window.is_none() && some_slide {
        return Err(Error::missing("config `sliding_window`"));
    }
    Ok(move |i: usize| {
        window.filter(|_| types.as_ref().map_or(!(i + 1).is_multiple_of(every), |slides| slides[i]))
    })
}

/// Whether each layer slides, where `layer_types` says. Gemma's classes ask nothing else.
pub(crate) fn listed(c: &Config) -> Result<Option<Vec<bool>>> {
    let (types, n) = (c.opt_strs("layer_types")?, c.usize("num_hidden_layers")?);
    match types {
        Some(types) if types.len() != n => {
            Err(Error::invalid("config", format!("{} `layer_types` for {n} layers", types.len())))
        }
        types => Ok(types.map(|types| types.iter().map(|t| *t == "sliding_attention").collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &str = r#", "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]"#;
    const OFF: &str = r#", "use_sliding_window": false"#;
    const LATE: &str = r#", "use_sliding_window": true, "max_window_layers": 2"#;

    fn config(extra: &str) -> Config {
        let text = format!(r#"{{"num_hidden_layers": 3, "sliding_window": 8{extra}}}"#);
        Config(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn qwens_windows_are_where_the_settings_have_them() {
        let of = |extra: &str| {
            let windows = qwen(&config(extra)).unwrap();
            [0, 1, 2].map(|i| windows(i).is_some())
        };
        assert_eq!(of(""), [false; 3]);
        assert_eq!(of(LATE), [false, false, true]);
        assert_eq!(of(TYPES), [true, false, true]);
        assert_eq!((of(OFF), of(&format!("{TYPES}{OFF}"))), ([false; 3], [false; 3]));
        assert!(qwen(&config(r#", "layer_types": ["full_attention"]"#)).is_err());
    }

    #[test]
    fn mixtures_of_qwens_have_rules_of_their_own() {
        let of = |extra: &str| qwen3_moe(&config(extra)).map(|windows| [0, 1, 2].map(windows)).unwrap();
        assert_eq!((of(TYPES), of(OFF), of(LATE)), ([None; 3], [None; 3], [Some(8); 3]));
        assert!(qwen2_moe(&config(LATE)).is_err());
        assert_eq!(qwen2_moe(&config(TYPES)).unwrap()(0), None);
    }

    #[test]
    fn each_so_manyth_layer_has_none_unless_the_settings_say_which() {
        let of = |extra: &str, every: usize| {
            let c = Config(serde_json::from_str(&format!(r#"{{"num_hidden_layers": 3{extra}}}"#)).unwrap());
            let windows = all_but(&c, every)?;
            Ok::<_, Error>([0, 1, 2].map(|i| windows(i).is_some()))
        };
        let size = r#", "sliding_window": 8"#;
        assert_eq!((of(size, 4).unwrap(), of(size, 3).unwrap()), ([true; 3], [true, true, false]));
        assert_eq!((of(size, 2).unwrap(), of("", 1).unwrap()), ([true, false, true], [false; 3]));
        assert_eq!(of(&format!("{size}{TYPES}"), 4).unwrap(), [true, false, true]);
        let full = TYPES.replace("sliding", "full");
        assert_eq!(of(&full, 4).unwrap(), [false; 3]);
        assert!(of("", 4).is_err() && of(TYPES, 1).is_err());
    }

    #[test]
    fn other_classes_know_no_key_of_qwens() {
        for extra in ["", TYPES, OFF, LATE] {
            let windows = same(&config(extra)).unwrap();
            assert_eq!([0, 1, 2].map(&windows), [Some(8); 3], "{extra}");
        }
        assert_eq!(listed(&config(&format!("{TYPES}{OFF}"))).unwrap().unwrap(), [true, false, true]);
        assert!(listed(&config(OFF)).unwrap().is_none());
    }
}
