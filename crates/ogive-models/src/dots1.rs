//! dots.llm1: Qwen3's attention, and behind it in all but the first layers DeepSeek-V3's mixtures, with a gated MLP that all tokens share.
//!
//! rednote-hilab 2025, <https://arxiv.org/abs/2506.05767>; transformers' `modeling_dots1`. Windows are where its class has them: in layers from
//! `max_window_layers` on, if there is a `sliding_window` at all; no published model has one.

use crate::{class::LLAMA, decoder, deepseek, routers, windows};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Loader, Model};

/// What rednote's files call scores of each expert alone.
const SIGMOIDS: &str = "noaux_tc";

/// Reads a checkpoint with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// If there are no norms of queries, if groups of experts do not fit, if experts are scored otherwise than each by itself, and if `layer_types`
/// are more or fewer than the layers; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    if !decoder::norms_heads(root)? {
        return Err(Error::missing("model.layers.0.self_attn.q_norm.weight"));
    }
    let mut c = c.clone();
    if let Some(settings) = c.0.as_object_mut()
        && settings.get("scoring_func").is_some_and(|said| said == SIGMOIDS)
    {
        settings.remove("scoring_func");
    }
    let window = slides(&c)?;
    let router = |l: &Loader<'_>| routers::deepseek_v3(&c, l.numbers("gate.e_score_correction_bias")?);
    let feed_forward = deepseek::mixtures(&c, 1, &router)?;
    let layer = |i, rope, spec| (Some(rope), windows::within(spec, window(i)));
    decoder::load(&LLAMA, &c, root, layer, &feed_forward)
}

/// The window of each layer: by `layer_types`, else from `max_window_layers` on.
fn slides(c: &Config) -> Result<impl Fn(usize) -> Option<usize> + use<>> {
    let window = c.opt_usize("sliding_window")?.filter(|w| *w > 0);
    let (types, first) = (windows::listed(c)?, c.usize_or("max_window_layers", 62)?);
    Ok(move |i: usize| window.filter(|_| types.as_ref().map_or(i >= first, |slides| slides[i])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json::{Value, json};

    #[test]
    fn windows_are_in_the_last_layers_whatever_switches_say() {
        let of = |more: Value| {
            let mut c = Config(json!({"num_hidden_layers": 3, "sliding_window": 8}));
            c.0.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            slides(&c).map(|window| [0, 1, 2].map(|i| window(i).is_some()))
        };
        for off in [json!({}), json!({"use_sliding_window": true}), json!({"sliding_window": null})] {
            assert_eq!(of(off).unwrap(), [false; 3]);
        }
        assert_eq!(of(json!({"max_window_layers": 2})).unwrap(), [false, false, true]);
        let types = json!({"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]});
        assert_eq!(of(types).unwrap(), [true, false, true]);
        assert!(of(json!({"layer_types": ["full_attention"]})).is_err());
    }
}
