//! How layers attend that share keys, Gemma 3n's and Gemma 4's: of which of the two kinds each is, and whose keys it attends to.

use crate::windows;
use ogive_nn::backend::{AttnOption, AttnSpec, Rope};
use ogive_nn::tensor::{Error, Result, serde_json::json};
use ogive_nn::{Attention, Config, Loader, RmsNorm};

/// What layers may be called: with a window, and without.
const KINDS: [&str; 2] = ["sliding_attention", "full_attention"];

/// More layers than any model has; it bounds what a false count can make us list.
const MOST: usize = 10_000;

pub(crate) struct Layers {
    /// Whether each has a window.
    slides: Vec<bool>,
    /// Those from here on store nothing of their own.
    sharing_from: usize,
    /// How the kinds attend.
    kinds: [(Rope, AttnSpec); 2],
    /// Whether keys are values where there is no window.
    one: bool,
}

impl Layers {
    /// What the settings say of them; `root` is the file's.
    pub(crate) fn read(c: &Config, root: &Loader<'_>) -> Result<Self> {
        let heads = c.usize_or("num_attention_heads", 8)?;
        let (one, kv_heads) = (c.bool_or("attention_k_eq_v", false)?, c.usize_or("num_key_value_heads", 4)?);
        let of_full = if one { c.opt_usize("num_global_key_value_heads")? } else { None };
        let spec = |kv_heads, dim| AttnSpec::causal(heads, kv_heads, dim).scale(1.0);
        let local = spec(kv_heads, c.usize_or("head_dim", 256)?);
        let full = spec(of_full.unwrap_or(kv_heads), c.usize_or("global_head_dim", 512)?);
        let turning = Config(json!({"rope_theta": c.f32_or("rope_local_base_freq", 10_000.0)?}));
        // What the class takes silence for.
        let usual = json!({"rope_theta": 1e6, "rope_scaling": {"rope_type": "proportional", "partial_rotary_factor": 0.25}});
        let said = ["rope_theta", "rope_scaling", "rope_parameters"].iter().any(|key| c.has(key));
        let of_full = if said { c } else { &Config(usual) };
        let ropes =
            (ogive_nn::rope_of(&turning, root, local.k_dim)?, ogive_nn::rope_of(of_full, root, full.k_dim)?);
        let local = local.with(AttnOption::Window(window(c)?));
        let kinds = [(ropes.0, local), (ropes.1, full)];
        Self::new(slides(c)?, c.usize_or("num_kv_shared_layers", 0)?, kinds, one)
    }

    /// Layers with windows or without, the last `sharing` of which store nothing; the first of the two `kinds` is that with a window.
    pub(crate) fn new(
        slides: Vec<bool>,
        sharing: usize,
        kinds: [(Rope, AttnSpec); 2],
        one: bool,
    ) -> Result<Self> {
        let sharing_from = slides.len().checked_sub(sharing).ok_or_else(|| {
            let why = format!("{sharing} `num_kv_shared_layers` of {} layers", slides.len());
            Error::invalid("config", why)
        })?;
        Ok(Self { slides, sharing_from, kinds, one })
    }

    /// Reads layer `i` from its place.
    pub(crate) fn attention(&self, l: &Loader<'_>, c: &Config, i: usize) -> Result<Attention> {
        let slides = self.slides.get(i).copied().unwrap_or(false);
        let (rope, spec) = self.kinds[usize::from(!slides)].clone();
        if i >= self.sharing_from {
            let of = self.slides[..self.sharing_from].iter().rposition(|kind| *kind == slides);
            let none =
                || format!("no layer of its kind stores what layer {i} shares (`num_kv_shared_layers`)");
            let of = of.ok_or_else(|| Error::invalid("config", none()))?;
            return Attention::load_sharing(l, c, [i, of], rope, spec);
        }
        let ones = vec![1.0; spec.v_dim];
        let weight = l.backend().upload(&ones, [ones.len()].into())?;
        let read = if self.one && !slides { Attention::load_of_keys } else { Attention::load };
        let norm = RmsNorm { weight, eps: c.f32_or("rms_norm_eps", 1e-6)? };
        Ok(read(l, c, i, rope, spec)?.value_norm(norm))
    }
}

/// The window of layers that have one.
pub(crate) fn window(c: &Config) -> Result<usize> {
    match c.usize_or("sliding_window", 512)? {
        0 => Err(Error::invalid("config", "`sliding_window` is 0: layers with a window would see nothing")),
        window => Ok(window),
    }
}

/// Whether each layer has a window, by `layer_types` where those are said.
pub(crate) fn said(c: &Config) -> Result<Option<Vec<bool>>> {
    let kinds = c.opt_strs("layer_types")?.unwrap_or_default();
    if let Some(other) = kinds.iter().find(|kind| !KINDS.contains(&&***kind)) {
        let why = format!("a layer of `layer_types` is `{other}`; known are {}", KINDS.join(", "));
        return Err(Error::unsupported("config", why));
    }
    windows::listed(c)
}

/// Whether each layer has a window where nothing is said: all but those that `full` says.
pub(crate) fn usual(n: usize, full: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
    if n > MOST {
        let why = format!("{n} layers and no `layer_types`; {MOST} layers are known at most");
        return Err(Error::unsupported("config", why));
    }
    Ok((0..n).map(|i| !full(i)).collect())
}

/// Whether each layer has a window: by `layer_types`, else all but each sixth and the last. A list that has one for the last is refused, as
/// transformers does not obey it and llama.cpp does.
fn slides(c: &Config) -> Result<Vec<bool>> {
    let n = c.usize("num_hidden_layers")?;
    match said(c)? {
        Some(slides) if slides.last() == Some(&true) => {
            let why = "`layer_types` has a window for the last layer, which is not settled";
            Err(Error::unsupported("config", why))
        }
        Some(slides) => Ok(slides),
        None => usual(n, |i| (i + 1).is_multiple_of(6) || i + 1 == n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json::Value;

    #[test]
    fn all_but_each_sixth_layer_and_the_last_have_a_window() {
        let of =
            |types: Value, n: usize| slides(&Config(json!({"num_hidden_layers": n, "layer_types": types})));
        let sixth = [true, true, true, true, true, false, true, false];
        assert_eq!(of(Value::Null, 8).unwrap(), sixth);
        assert_eq!(of(Value::Null, 1).unwrap(), [false]);
        let [s, f] = KINDS;
        assert_eq!(of(json!([f, s, f]), 3).unwrap(), [false, true, false]);
        for (types, n, why) in [
            (json!([f, s]), 2, "window for the last layer"),
            (json!([f, "chunked_attention", f]), 3, "is `chunked_attention`"),
            (json!([f]), 2, "1 `layer_types` for 2 layers"),
            (Value::Null, 10_001, "10001 layers and no `layer_types`"),
        ] {
            let e = of(types, n).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        }
    }
}
