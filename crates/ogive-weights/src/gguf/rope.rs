//! Rotary positions: GGUF's scaling keys and tensors as `rope_scaling`.
//!
//! Llama 3's scaling reaches a GGUF file as finished factors in the tensor `rope_freqs.weight`, and what they were made of
//! is not kept. So the setting becomes `{"rope_type": "factors"}`, a type that Hugging Face does not have: each inverse
//! frequency is divided by its factor, and the tensor is there under its GGUF name. Forgetting it goes unnoticed until
//! the context gets long, hence no quiet default.

use super::settings::{Settings, whole};
use super::{Header, header::number};
use ogive_tensor::{Error, Result};
use serde_json::{Value, json};

/// The tensor with Llama 3's factors, one for each inverse frequency.
const FACTORS: &str = "rope_freqs.weight";

/// Fills in `rope_scaling` and `partial_rotary_factor`.
pub(super) fn fill(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    if let Some((turned, all)) = header.usize("rope.dimension_count")?.zip(whole(settings, "head_dim"))
        && turned as u64 != all
        && all > 0
    {
        let part = number("partial_rotary_factor", turned as f32 / all as f32)?;
        settings.insert("partial_rotary_factor".into(), part);
    }
    let scaling = scaling(header)?;
    match (header.has_tensor(FACTORS), scaling) {
        (true, None) => settings.insert("rope_scaling".into(), json!({"rope_type": "factors"})),
        (true, Some(_)) => {
            let why = "the file has factors of rotary frequencies and another scaling too; which comes first is not known";
            return Err(Error::unsupported(FACTORS, why));
        }
        (false, Some(scaling)) => settings.insert("rope_scaling".into(), scaling),
        (false, None) => None,
    };
    Ok(())
}

/// The scaling that the keys tell of; `None` where there is none.
fn scaling(header: &Header<'_>) -> Result<Option<Value>> {
    // Older files have a factor alone, which means the linear kind.
    let factor = header.f32("rope.scaling.factor")?.or(header.f32("rope.scale_linear")?);
    let factor = factor.filter(|f| *f != 0.0 && *f != 1.0);
    let kind = header.str("rope.scaling.type")?.unwrap_or("linear");
    let mut out = Settings::new();
    out.insert("rope_type".into(), kind.into());
    match (kind, factor) {
        ("none", _) | ("linear" | "yarn", None) => return Ok(None),
        (_, Some(factor)) => _ = out.insert("factor".into(), number("rope.scaling.factor", factor)?),
        (_, None) => {}
    }
    for (from, to) in [
        ("rope.scaling.original_context_length", "original_max_position_embeddings"),
        ("rope.scaling.yarn_beta_fast", "beta_fast"),
        ("rope.scaling.yarn_beta_slow", "beta_slow"),
    ] {
        if let Some(value) = header.value(from)? {
            out.insert(to.into(), value);
        }
    }
    if let (Some(factor), "yarn") = (factor, kind) {
        // llama.cpp multiplies YaRN's own magnitude by this; Hugging Face replaces it. `yarn_attn_factor`, which the converter
        // makes of a setting `attn_factor`, neither of them reads for these architectures.
        let times = header.f32("rope.scaling.attn_factor")?;
        if let Some(times) = times.filter(|t| *t != 1.0) {
            let magnitude = times * (1.0 + 0.1 * factor.ln());
            out.insert("attention_factor".into(), number("rope.scaling.attn_factor", magnitude)?);
        }
        // `mscale_all_dim`, beside an `mscale` of 1; of DeepSeek's, whose models set both to the same number, a tenth.
        let key = "rope.scaling.yarn_log_multiplier";
        if let Some(value) = header.f32(key)?.filter(|v| *v != 0.0) {
            let is_tenth = header.architecture() == "deepseek2";
            let all_dim = number(key, if is_tenth { value * 10.0 } else { value })?;
            out.insert("mscale".into(), if is_tenth { all_dim.clone() } else { json!(1.0) });
            out.insert("mscale_all_dim".into(), all_dim);
        }
    }
    Ok(Some(Value::Object(out)))
}
