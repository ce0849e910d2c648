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
    let window = windows::dots(&c)?;
    let router = |l: &Loader<'_>| routers::deepseek_v3(&c, l.numbers("gate.e_score_correction_bias")?);
    let feed_forward = deepseek::mixtures(&c, 1, &router)?;
    let layer = |i, rope, spec| (Some(rope), windows::within(spec, window(i)));
    decoder::load(&LLAMA, &c, root, layer, &feed_forward)
}
