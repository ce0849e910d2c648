//! Rotary position embeddings and the ways of stretching them (Su et al. 2021, <https://arxiv.org/abs/2104.09864>).
//!
//! Every way is another list of inverse frequencies, chosen when the model is loaded; no operator knows of them. The
//! formulas are those of transformers' `modeling_rope_utils`. Frequencies are computed in double precision and rounded
//! once, so that they do not depend on a platform's single-precision `powf`.

use crate::Loader;
use crate::backend::Rope;
use crate::tensor::{Config, Error, Result};
use std::f64::consts::PI;

/// No model's heads come near it; it bounds what a false configuration can make us allocate.
const LARGEST: usize = 1 << 16;

/// A plain rotary embedding of all of a head of `dim` elements.
pub fn rope(dim: usize, theta: f32) -> Rope {
    Rope::new(rounded(&plain(dim, f64::from(theta))))
}

/// The rotary embedding that a configuration asks for, for heads of `head_dim` elements: `rope_theta`,
/// `partial_rotary_factor`, and `rope_scaling` of type `default`, `linear`, `dynamic`, `llama3`, `yarn`, `longrope`, `proportional` (Gemma 4's)
/// or `factors` (GGUF's list of divisors, the tensor `rope_freqs.weight`). With `mrope_section` pairs turn by places (Qwen2-VL's M-RoPE): so many by
/// time, down and across, or in turn where `mrope_interleaved` is on.
///
/// # Errors
/// If a setting is of a wrong type or out of range, if the type of scaling is not known or lacks one of its settings, or if a list of
/// divisors has not one above 0 for each pair that turns.
pub fn rope_of(c: &Config, root: &Loader<'_>, head_dim: usize) -> Result<Rope> {
    let scaling = scaling(c);
    let rope = by_position(c, &scaling, root, head_dim)?;
    match sections(&scaling)? {
        Some(sections) => rope_by_places(rope, &sections, scaling.bool_or("mrope_interleaved", false)?),
        None => Ok(rope),
    }
}

/// How many pairs turn by time, down and across.
fn sections(scaling: &Config) -> Result<Option<[usize; 3]>> {
    let Some(list) = scaling.0.get("mrope_section") else { return Ok(None) };
    let numbers =
        list.as_array().map(|list| list.iter().map(|n| n.as_u64().and_then(|n| usize::try_from(n).ok())));
    let sections = numbers.and_then(|numbers| numbers.collect::<Option<Vec<_>>>()?.try_into().ok());
    let why = || format!("`mrope_section` should be three whole numbers and is {list}");
    sections.map(Some).ok_or_else(|| Error::invalid("config", why()))
}

/// The same rotation by places: the first pairs by time, then those by what is down and across; or (Qwen3-VL) one of each in turn as long as
/// there are, and by time what is left.
fn rope_by_places(rope: Rope, sections: &[usize; 3], in_turn: bool) -> Result<Rope> {
    let pairs = rope.inv_freq.len();
    if sections.iter().try_fold(0usize, |sum, n| sum.checked_add(*n)) != Some(pairs) {
        let why = format!("`mrope_section` {sections:?} should add up to the {pairs} pairs that turn");
        return Err(Error::invalid("config", why));
    }
    let [time, down, _] = *sections;
    let axis = |i: usize| match i % 3 {
        turn @ 1..3 if in_turn => {
            if i < 3 * sections[turn] {
                turn as u8
            } else {
                0
            }
        }
        _ if in_turn => 0,
        _ => u8::from(i >= time) + u8::from(i >= time + down),
    };
    rope.axes(&(0..pairs).map(axis).collect::<Vec<_>>())
}

/// The rotation without a look at places.
fn by_position(c: &Config, scaling: &Config, root: &Loader<'_>, head_dim: usize) -> Result<Rope> {
    let theta = c.f32_or("rope_theta", scaling.f32_or("rope_theta", 10_000.0)?)?;
    if theta.is_nan() || theta <= 0.0 {
        return Err(Error::invalid("config", format!("`rope_theta` should be above 0 and is {theta}")));
    }
    let part = c.opt_f32("partial_rotary_factor")?.or(scaling.opt_f32("partial_rotary_factor")?);
    let dim = turned(head_dim, part.unwrap_or(1.0));
    if dim == 0 || dim > head_dim || head_dim > LARGEST {
        let why = format!("{dim} of {head_dim} elements of a head should rotate; 2 to {LARGEST} can");
        return Err(Error::invalid("config", why));
    }
    let freqs = plain(dim, f64::from(theta));
    let kind = match scaling.opt_str("rope_type")?.or(scaling.opt_str("type")?) {
        Some(kind) => kind,
        None => {
            one_set(scaling)?;
            "default"
        }
    };
    let stretch = Stretch { c, s: scaling, dim, theta: f64::from(theta) };
    match kind {
        "default" | "mrope" => Ok(Rope::new(rounded(&freqs))),
        "linear" => {
            let factor = stretch.factor()?;
            Ok(Rope::new(rounded(&freqs.iter().map(|f| f / factor).collect::<Vec<_>>())))
        }
        "dynamic" => stretch.dynamic(root),
        "llama3" => stretch.llama3(&freqs),
        // As early checkpoints of Phi-3 call theirs.
        "yarn" if !scaling.has("long_factor") => stretch.yarn(&freqs),
        "longrope" | "su" | "yarn" => stretch.long(&freqs, root),
        "proportional" => {
            // Pairs are as far apart as the head has them, and those that do not turn stand behind those that do.
            let factor = stretch.number("factor", Some(1.0))?;
            let all = plain(head_dim, f64::from(theta));
            let turning = |(i, f): (usize, &f64)| if i < dim / 2 { f / factor } else { 0.0 };
            Ok(Rope::new(rounded(&all.iter().enumerate().map(turning).collect::<Vec<_>>())))
        }
        "factors" => {
            let host = root.tensor("rope_freqs.weight")?;
            Ok(Rope::new(divided(&freqs, &host.to_vec(), "rope_freqs.weight")?))
        }
        other => {
            let known = "default, linear, dynamic, llama3, yarn, longrope, proportional, factors";
            Err(Error::unsupported("config", format!("rope scaling `{other}`; known are {known}")))
        }
    }
}

/// The settings of how rotary positions are stretched, under either name.
pub(crate) fn scaling(c: &Config) -> Config {
    c.at(if c.has("rope_scaling") { "rope_scaling" } else { "rope_parameters" })
}

/// How many elements of a head turn, an even number. The part may have been a count that was divided by the head's size and
/// rounded (GGUF counts), and comes back as that count and not as the one below: as a single, it is less than an epsilon off.
fn turned(head_dim: usize, part: f32) -> usize {
    (head_dim as f64 * (f64::from(part) + f64::from(f32::EPSILON))) as usize / 2 * 2
}

/// Refuses a set for each kind of layer, of which no single one would be meant here.
fn one_set(scaling: &Config) -> Result<()> {
    let sets = scaling.0.as_object().into_iter().flatten().filter(|(_, v)| v.is_object());
    let kinds: Vec<&str> = sets.map(|(kind, _)| kind.as_str()).collect();
    if kinds.is_empty() {
        return Ok(());
    }
    let why = format!(
        "`rope_parameters` for each kind of layer ({}) in a form that is not known",
        kinds.join(", ")
    );
    Err(Error::unsupported("config", why))
}

fn plain(dim: usize, theta: f64) -> Vec<f64> {
    (0..dim / 2).map(|i| theta.powf(-2.0 * i as f64 / dim as f64)).collect()
}

/// Each frequency divided by a factor of its own, from the list `what`.
fn divided(freqs: &[f64], divisors: &[f32], what: &str) -> Result<Vec<f32>> {
    if divisors.len() != freqs.len() || divisors.iter().any(|d| !d.is_finite() || *d <= 0.0) {
        let why = format!("{} divisors, all above 0, are needed; found {}", freqs.len(), divisors.len());
        return Err(Error::invalid(what, why));
    }
    Ok(rounded(&freqs.iter().zip(divisors).map(|(f, d)| f / f64::from(*d)).collect::<Vec<_>>()))
}

fn rounded(freqs: &[f64]) -> Vec<f32> {
    freqs.iter().map(|f| *f as f32).collect()
}

/// What the formulas read: all settings, those of the scaling, the rotating elements of a head, and theta.
struct Stretch<'a> {
    c: &'a Config,
    s: &'a Config,
    dim: usize,
    theta: f64,
}

impl Stretch<'_> {
    fn positive(&self, key: &str, value: Option<f32>) -> Result<f64> {
        let value = value.ok_or_else(|| Error::missing(&format!("config `rope_scaling.{key}`")))?;
        if value.is_finite() && value > 0.0 {
            return Ok(f64::from(value));
        }
        Err(Error::invalid("config", format!("`rope_scaling.{key}` should be above 0 and is {value}")))
    }

    fn number(&self, key: &str, default: Option<f32>) -> Result<f64> {
        self.positive(key, self.s.opt_f32(key)?.or(default))
    }

    fn factor(&self) -> Result<f64> {
        self.number("factor", None)
    }

    /// The context the model was trained for: what stands beside the model's own counts before what the scaling says.
    fn original(&self) -> Result<f64> {
        let key = "original_max_position_embeddings";
        let said = self.c.opt_f32(key)?.or(self.s.opt_f32(key)?);
        self.positive(key, said.or(self.c.opt_f32("max_position_embeddings")?))
    }

    /// A larger theta for a longer context (NTK-aware scaling), for the context that was asked for. It grows from the model's own
    /// context, whatever is said of an original one.
    fn dynamic(&self, root: &Loader<'_>) -> Result<Rope> {
        let own = "max_position_embeddings";
        let trained = match self.c.opt_f32(own)? {
            None => self.original()?,
            given => self.positive(own, given)?,
        };
        let (factor, dim) = (self.factor()?, self.dim as f64);
        let reach = |context: usize| (context as f64).max(trained);
        let context = root.context_as(|context| reach(context).to_bits()).map_or(trained, reach);
        let grown = (factor * context / trained - (factor - 1.0)).powf(dim / (dim - 2.0).max(1.0));
        Ok(Rope::new(rounded(&plain(self.dim, self.theta * grown))))
    }

    /// Llama 3.1: long waves are stretched, short ones are not, those between in part. Where both factors are the same (Llama 4) there are none between.
    fn llama3(&self, freqs: &[f64]) -> Result<Rope> {
        let (factor, old) = (self.factor()?, self.original()?);
        let (low, high) =
            (self.number("low_freq_factor", Some(1.0))?, self.number("high_freq_factor", Some(4.0))?);
        if high < low {
            return Err(Error::invalid(
                "config",
                "`rope_scaling.high_freq_factor` should not be below `low_freq_factor`",
            ));
        }
        let stretched = |f: &f64| {
            let wave = 2.0 * PI / f;
            if wave > old / low {
                f / factor
            } else if wave < old / high || high == low {
                *f
            } else {
                let smooth = (old / wave - low) / (high - low);
                (1.0 - smooth) * f / factor + smooth * f
            }
        };
        Ok(Rope::new(rounded(&freqs.iter().map(stretched).collect::<Vec<_>>())))
    }

    /// LongRoPE (Ding et al. 2024, <https://arxiv.org/abs/2402.13753>), as Phi-3 has it: one list of divisors for contexts
    /// up to the trained one and another for longer ones, and a factor on sine and cosine for both. transformers changes
    /// lists when a sequence grows past the trained context; here the context that was asked for decides once, as in
    /// llama.cpp, since keys that are in the cache were rotated by one list.
    fn long(&self, freqs: &[f64], root: &Loader<'_>) -> Result<Rope> {
        let old = self.original()?;
        let is_longer = |context: usize| context as f64 > old;
        let key = if root.context_as(|context| is_longer(context).into()).is_some_and(is_longer) {
            "long_factor"
        } else {
            "short_factor"
        };
        let list =
            self.s.opt_f32s(key)?.ok_or_else(|| Error::missing(&format!("config `rope_scaling.{key}`")))?;
        // A factor counts only where no trained context stands beside the model's.
        let grown = if self.s.has("factor") && !self.c.has("original_max_position_embeddings") {
            self.factor()?
        } else {
            self.c.opt_f32("max_position_embeddings")?.map_or(1.0, |max| f64::from(max) / old)
        };
        let attention = match self.s.opt_f32("attention_factor")? {
            Some(given) => f64::from(given),
            None if grown <= 1.0 || old <= 1.0 => 1.0,
            None => (1.0 + grown.ln() / old.ln()).sqrt(),
        };
        let rope = Rope::new(divided(freqs, &list, &format!("config `rope_scaling.{key}`"))?);
        Ok(rope.factor(attention as f32))
    }

    /// YaRN (Peng et al. 2023, <https://arxiv.org/abs/2309.00071>): a ramp between stretched and not, by the number of
    /// turns in the trained context, and a factor on sine and cosine.
    fn yarn(&self, freqs: &[f64]) -> Result<Rope> {
        let (factor, old, dim) = (self.factor()?, self.original()?, self.dim as f64);
        let (fast, slow) = (self.number("beta_fast", Some(32.0))?, self.number("beta_slow", Some(1.0))?);
        let at = |turns: f64| dim * (old / (turns * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
        let (mut low, mut high) = (at(fast), at(slow));
        if self.s.bool_or("truncate", true)? {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dim - 1.0));
        let width = if high == low { 0.001 } else { high - low };
        let mixed = |(i, f): (usize, &f64)| {
            let ramp = ((i as f64 - low) / width).clamp(0.0, 1.0);
            f / factor * ramp + f * (1.0 - ramp)
        };
        let freqs = rounded(&freqs.iter().enumerate().map(mixed).collect::<Vec<_>>());
        let m = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
        let attention = match (
            self.s.opt_f32("attention_factor")?,
            self.s.opt_f32("mscale")?,
            self.s.opt_f32("mscale_all_dim")?,
        ) {
            (Some(given), ..) => f64::from(given),
            (None, Some(a), Some(b)) if a != 0.0 && b != 0.0 => m(f64::from(a)) / m(f64::from(b)),
            _ => m(1.0),
        };
        Ok(Rope::new(freqs).factor(attention as f32))
    }
}
