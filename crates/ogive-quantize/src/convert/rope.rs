//! `rope_scaling` as GGUF has it: keys, or a tensor of factors.
//!
//! A scaling that llama.cpp does not read for an architecture is refused, though Ogive would read it: a file is for all readers.

use super::settings::turned;
use super::{Keys, Model, apertus, exaone4, falcon_h1, gemma4, granite, latent, llama4, phimoe, refuse};
use crate::{Error, Result};
use ogive_tensor::{Config, HostWeight};
use std::f64::consts::TAU;

/// Architectures in which llama.cpp reads factors of rotary frequencies; of others it refuses files with a tensor more than it knows.
const FACTORED: &[&str] = &[
    "llama",
    "arcee",
    apertus::ARCHITECTURE,
    exaone4::ARCHITECTURE,
    falcon_h1::ARCHITECTURE,
    granite::DENSE,
    granite::MIXTURE,
    granite::HYBRID,
    llama4::ARCHITECTURE,
];

/// The scaling of rotary positions, by keys or by factors.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>, head_dim: usize) -> Result<Vec<HostWeight>> {
    let scaling = model.config.at("rope_scaling");
    let Some(kind) = scaling.opt_str("rope_type")? else { return Ok(Vec::new()) };
    let need = |key: &str| {
        let missing = || Error::convert("the setting rope_scaling", format!("it has no `{key}`"));
        scaling.opt_f32(key)?.ok_or_else(missing)
    };
    match kind {
        // The second is the first checkpoints' name of positions that are places.
        "default" | "mrope" => {}
        "linear" => {
            keys.set("rope.scaling.type", "linear");
            keys.set("rope.scaling.factor", need("factor")?);
        }
        // As early checkpoints of Phi-3 call theirs.
        "yarn" if scaling.has("long_factor") => return long_rope(keys, model, &scaling),
        "yarn" => {
            keys.set("rope.scaling.type", "yarn");
            keys.set("rope.scaling.factor", need("factor")?);
            let original = original(model.config, &scaling)?;
            let original = original.map_or_else(|| need("original_max_position_embeddings"), Ok)?;
            keys.set("rope.scaling.original_context_length", original as u32);
            for (setting, key) in [("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")] {
                if let Some(value) = scaling.opt_f32(setting)? {
                    keys.set(&format!("rope.scaling.{key}"), value);
                }
            }
            let stretch = need("factor")?.max(1.0).ln();
            let of = |scale: f32| 0.1 * scale * stretch + 1.0;
            let latent = model.architecture == latent::ARCHITECTURE;
            // One of the two alone is passed over, as when a folder is run.
            let both = scaling.opt_f32("mscale")?.zip(scaling.opt_f32("mscale_all_dim")?);
            let both = both.filter(|(one, all)| !latent && *one != 0.0 && *all != 0.0);
            let own = scaling.opt_f32("attention_factor")?.or(both.map(|(one, all)| of(one) / of(all)));
            let own = own.is_some_and(|own| !own.is_finite() || (own - of(1.0)).abs() > 1e-6 * of(1.0));
            let magnitude = if latent { latent::log_multiplier(model.config)? } else { None };
            if let Some(value) = magnitude {
                keys.set("rope.scaling.yarn_log_multiplier", value);
            }
            let scaled = scaling.has("mscale") || scaling.has("mscale_all_dim");
            if own || latent && scaled && (magnitude.is_none() || scaling.has("attention_factor")) {
                return refuse("rope_scaling", "a YaRN of its own magnitude is not converted");
            }
            if !scaling.bool_or("truncate", true)? {
                let why = "a YaRN whose ramp begins and ends between dimensions (`truncate` is false) is none that GGUF can say";
                return refuse("rope_scaling", why);
            }
        }
        "llama3" if FACTORED.contains(&model.architecture) => {
            let part = model.config.f32_or("partial_rotary_factor", 1.0)?;
            return llama3(model.config, &scaling, turned(head_dim, part));
        }
        "llama3" => {
            let why = format!(
                "it is Llama 3's, which a file has as factors, and readers of GGUF have no place for them in {}",
                model.architecture
            );
            return refuse("rope_scaling", why);
        }
        "proportional" if gemma4::is(model) => return gemma4::factors(model.config),
        "longrope" | "su" => return long_rope(keys, model, &scaling),
        other => {
            let why =
                format!("GGUF has no scaling of type `{other}`; known are linear, yarn, llama3, longrope");
            return refuse("rope_scaling", why);
        }
    }
    Ok(Vec::new())
}

/// The context that the model was trained for, as when a folder is run: what stands beside the model's own counts before what the
/// scaling says, and silence means the model's own.
pub(super) fn original(config: &Config, scaling: &Config) -> Result<Option<f32>> {
    let key = "original_max_position_embeddings";
    let said = config.opt_f32(key)?.or(scaling.opt_f32(key)?);
    Ok(said.or(config.opt_f32("max_position_embeddings")?))
}

/// Llama 3's scaling as finished factors, for `dim` elements that turn: 1 for fast turns, the whole factor for slow ones, between them smoothly,
/// if anything is between.
fn llama3(config: &Config, scaling: &Config, dim: usize) -> Result<Vec<HostWeight>> {
    let number = |key: &str, usual: f32| Ok::<_, Error>(f64::from(scaling.f32_or(key, usual)?));
    let theta = config.f32_or("rope_theta", 10_000.0)?;
    let (factor, original) =
        (number("factor", 8.0)?, f64::from(original(config, scaling)?.unwrap_or(8192.0)));
    let (low, high) = (number("low_freq_factor", 1.0)?, number("high_freq_factor", 4.0)?);
    if dim > 1 << 16 || factor <= 0.0 || low > high {
        return refuse("rope_scaling", "its numbers make no sense");
    }
    let of = |pair: usize| {
        let turns = original * f64::from(theta).powf(-(2.0 * pair as f64) / dim as f64) / TAU;
        let smooth = match low == high {
            true => f64::from(turns >= low),
            false => ((turns - low) / (high - low)).clamp(0.0, 1.0),
        };
        (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
    };
    let factors: Vec<f32> = (0..dim / 2).map(of).collect();
    if factors.iter().any(|f| !f.is_finite() || *f <= 0.0) {
        return refuse("rope_scaling", "its numbers make no sense");
    }
    Ok(vec![HostWeight::from_f32("rope_freqs.weight", [1, 1, factors.len()], &factors)?])
}

/// Phi-3's two lists, for texts within the original context and for longer ones.
fn long_rope(keys: &mut Keys<'_>, model: &Model<'_>, scaling: &Config) -> Result<Vec<HostWeight>> {
    if !["phi3", phimoe::ARCHITECTURE].contains(&model.architecture) {
        let why = format!(
            "GGUF has no scaling by two lists of factors (LongRoPE) for {}; only Phi-3's and Phi-3.5-MoE's have",
            model.architecture
        );
        return refuse("rope_scaling", why);
    }
    let list = |key: &str, name: &str| {
        let missing = || Error::convert("the setting rope_scaling", format!("it has no `{key}`"));
        let factors = scaling.opt_f32s(key)?.ok_or_else(missing)?;
        Ok::<_, Error>(HostWeight::from_f32(name, [1, 1, factors.len()], &factors)?)
    };
    let (long, short) = (
        list("long_factor", "rope_factors_long.weight")?,
        list("short_factor", "rope_factors_short.weight")?,
    );
    let context = model.config.usize("max_position_embeddings")? as f64;
    let original = original(model.config, scaling)?.map_or(context, f64::from);
    // A factor counts only where no trained context stands beside the model's.
    let stretch = match scaling.opt_f32("factor")? {
        Some(factor) if !model.config.has("original_max_position_embeddings") => f64::from(factor),
        _ => context / original,
    };
    let usual = if stretch <= 1.0 { 1.0 } else { (1.0 + stretch.ln() / original.ln()).sqrt() as f32 };
    keys.set("rope.scaling.attn_factor", scaling.f32_or("attention_factor", usual)?);
    Ok(vec![long, short])
}
