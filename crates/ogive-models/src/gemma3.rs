//! Gemma 3, the part that reads and writes text: Gemma 2 without soft caps, with norms on the query and key heads, and
//! five windowed layers to each full one. Windowed layers have rotary positions of their own, with a smaller base and
//! never stretched.
//!
//! EmbeddingGemma (Vera et al. 2025, <https://arxiv.org/abs/2509.20354>) is the same with tokens that see to both sides, in windowed layers half a window far.
//!
//! Gemma Team 2025, <https://arxiv.org/abs/2503.19786>; transformers' `modeling_gemma3`. Checkpoints that also see keep
//! their settings under `text_config`, sparsely: what is left out there has the defaults of `Gemma3TextConfig`, so they
//! are filled in here and not asked of the file. What the text's weights are called there depends on the version that saved them,
//! and a checkpoint of the text alone may have kept those names; so they are looked for, whatever the class.

use crate::{gemma2, head::places};
use ogive_nn::backend::AttnOption;
use ogive_nn::tensor::{Result, serde_json::json};
use ogive_nn::{Attention, Config, Loader, Model};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If `layer_types` are more or fewer than the layers; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let c = &with_defaults(c)?;
    let (spec, eps) = (gemma2::scores(c)?, c.f32_or("rms_norm_eps", 1e-6)?);
    let full = ogive_nn::rope_of(c, root, spec.k_dim)?;
    let local = Config(json!({"rope_theta": c.f32_or("rope_local_base_freq", 10_000.0)?}));
    let local = ogive_nn::rope_of(&local, root, spec.k_dim)?;
    let window = c.usize_or("sliding_window", 4096)?;
    // Of a model that was made to see ahead in another way nobody says how far.
    let around = c.bool_or("use_bidirectional_attention", false)?;
    let every = c.usize_or("sliding_window_pattern", c.usize_or("_sliding_window_pattern", 6)?)?;
    let listed = crate::windows::listed(c)?;
    let (head, model) = places(root)?;
    gemma2::load_with(c, [&head, &model], &|l, i| {
        let slides = window > 0 && listed.as_ref().map_or(!(i + 1).is_multiple_of(every), |slides| slides[i]);
        let (rope, spec) = match slides {
            true if around => (&local, spec.clone().around(window / 2)),
            true => (&local, spec.clone().with(AttnOption::Window(window))),
            false => (&full, spec.clone()),
        };
        let norm = |name| l.rms_norm_less_one(name, eps);
        Ok(Attention::load(l, c, i, rope.clone(), spec)?.head_norms(norm("q_norm")?, norm("k_norm")?))
    })
}

/// Reads the text's part of a checkpoint that also sees.
///
/// # Errors
/// As [`load`], of what is below `text_config`.
pub fn load_nested(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load(&c.at("text_config"), root)
}

/// The settings, with what `Gemma3TextConfig` takes for those that are left out.
fn with_defaults(c: &Config) -> Result<Config> {
    let mut c = c.clone();
    let defaults = [
        ("num_attention_heads", json!(8)),
        ("num_key_value_heads", json!(4)),
        ("head_dim", json!(256)),
        ("query_pre_attn_scalar", json!(256)),
        ("rope_theta", json!(1_000_000.0)),
        ("sliding_window", json!(4096)),
    ];
    c.fill(defaults);
    if c.bool_or("use_bidirectional_attention", false)? {
        c.0["is_causal"] = json!(false);
    }
    Ok(c)
}
