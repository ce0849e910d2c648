//! What was written, read back: that GGUF's settings mean what `config.json` said.
//!
//! The metadata go through a file in memory and the same translation that will read the model later. So a setting that
//! GGUF derives (Gemma's scale of scores, which layers have windows) and that this model has otherwise is found here.

use super::Model;
use crate::{Error, Result};
use gguf_file::{GgmlType, Gguf, GgufWriter, Metadata};
use ogive_tensor::{Config, HostWeight};
use serde_json::Value;

/// Settings that differ by nature: by what they are called, where they come from, or because tensors say them.
const OTHERWISE: &[&str] = &[
    "architectures",
    "tie_word_embeddings",
    "vocab_size",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "rope_scaling",
    "sliding_window",
    // Phi-3 has it beside the scaling, and not every reader looks for it.
    "original_max_position_embeddings",
    // StableLM's, which was compared with the weights.
    "use_parallel_residual",
    // Jamba's, which has it by periods.
    "layers_num_experts",
    // Gemma 4's.
    "attention_k_eq_v",
    "enable_moe_block",
];

/// Settings that `null` turns off; to others it means what silence means.
const TURNED_OFF: &[&str] = &["attn_logit_softcapping", "final_logit_softcapping"];

pub(super) fn settings(model: &Model<'_>, metadata: &Metadata, factors: &[HostWeight]) -> Result<()> {
    let mut writer = GgufWriter::with_metadata(metadata.clone());
    for f in factors {
        writer.tensor(&f.name, &[f.shape[2] as u64], GgmlType::F32)?;
    }
    let mut file = Vec::new();
    let mut data = writer.write_to(&mut file)?;
    for f in factors {
        data.write_data(&f.name, &f.bytes)?;
    }
    data.finish()?;
    let back = model.translation.config(&Gguf::from_bytes(file)?)?;
    let (wanted, found) = (scaling(model.config)?, scaling(&back)?);
    if wanted != found {
        let why = format!("its type is {wanted}, and a GGUF file of {} means {found}", model.architecture);
        return Err(Error::convert("the setting rope_scaling", why));
    }
    let Some(back) = back.0.as_object() else { return Ok(()) };
    for (key, value) in back.iter().filter(|(key, _)| !OTHERWISE.contains(&key.as_str())) {
        let counts = |v: &&Value| !v.is_null() || TURNED_OFF.contains(&key.as_str());
        let Some(wanted) = model.config.0.get(key).filter(counts) else { continue };
        if !alike(value, wanted) {
            let why = format!("it is {wanted}, and a GGUF file of {} means {value}", model.architecture);
            return Err(Error::convert(format!("the setting {key}"), why));
        }
    }
    Ok(())
}

/// How rotary positions are stretched, by the name that reading a GGUF file gives it.
fn scaling(config: &Config) -> Result<&'static str> {
    let scaling = config.at("rope_scaling");
    let stretches = scaling.f32_or("factor", 0.0)? != 1.0;
    Ok(match scaling.opt_str("rope_type")? {
        Some("linear") if stretches => "linear",
        Some("yarn") if scaling.has("long_factor") => "longrope",
        Some("yarn") if stretches => "yarn",
        // Its factors are a tensor.
        Some("llama3" | "factors" | "proportional") => "llama3",
        Some("longrope" | "su") => "longrope",
        Some("default" | "mrope" | "linear" | "yarn") | None => "none",
        Some(_) => "another",
    })
}

/// Equal but for the rounding to single precision.
pub(super) fn alike(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * a.abs().max(b.abs()),
        _ => match (a.as_array(), b.as_array()) {
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
            _ => a == b,
        },
    }
}
