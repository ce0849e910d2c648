//! EXAONE 4.0: Llama with norms after attention and after the MLP in place of those before, and norms on heads. The larger model has windows
//! in three of four layers; there the others' positions are not turned.
//!
//! LG AI Research 2025, <https://arxiv.org/abs/2507.11407>; transformers' `modeling_exaone4`.

use crate::class::{Class, LLAMA};
use crate::{decoder, llama, windows};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Loader, Model};

const EXAONE: Class = Class {
    norms: [None, Some("post_attention_layernorm"), None, Some("post_feedforward_layernorm")],
    ..LLAMA
};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If there are no norms of queries, if `layer_types` are more or fewer than the layers, and where layers have a window and `sliding_window`
/// does not say of how many tokens.
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    if !decoder::norms_heads(root)? {
        return Err(Error::missing("model.layers.0.self_attn.q_norm.weight"));
    }
    let hybrid = c.opt_usize("sliding_window")?.is_some_and(|window| window > 0);
    // Without a window silence on the layers means that none slides.
    let every = if hybrid { every(c)? } else { 1 };
    let window = windows::all_but(c, every)?;
    let layer = |i, rope, spec| {
        let window = window(i);
        (Some(rope).filter(|_| window.is_some() || !hybrid), windows::within(spec, window))
    };
    decoder::load(&EXAONE, c, root, layer, &llama::dense(c)?)
}

/// Each how manyth layer has no window: a number, or a word of as many letters (`LLLG`) as in LG's own files. Where `layer_types` says which,
/// it is not asked.
fn every(c: &Config) -> Result<usize> {
    const KEY: &str = "sliding_window_pattern";
    if c.has("layer_types") {
        return Ok(1);
    }
    let every = match c.0.get(KEY).and_then(|pattern| pattern.as_str()) {
        Some(word) => {
            let local = word.trim_end_matches('G');
            let fits = word.len() == local.len() + 1 && local.bytes().all(|letter| letter == b'L');
            if fits { word.len() } else { 0 }
        }
        None => c.usize_or(KEY, 4)?,
    };
    if every > 0 {
        return Ok(every);
    }
    Err(Error::invalid("config", format!("`{KEY}` should be a number above 0 or a word as `LLLG`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json::{Value, json};

    #[test]
    fn layers_without_a_window_are_counted_or_spelt() {
        let of = |pattern: Value| every(&Config(json!({"sliding_window_pattern": pattern})));
        for (pattern, want) in [(json!(3), 3), (json!("LLLG"), 4), (json!("G"), 1), (Value::Null, 4)] {
            assert_eq!(of(pattern).unwrap(), want);
        }
        for odd in [json!(0), json!("LLL"), json!("LGLG"), json!(""), json!("LLGG")] {
            assert!(of(odd.clone()).unwrap_err().to_string().contains("sliding_window_pattern"), "{odd}");
        }
        let listed = json!({"layer_types": ["full_attention"], "sliding_window_pattern": "?"});
        assert_eq!(every(&Config(listed)).unwrap(), 1);
    }
}
