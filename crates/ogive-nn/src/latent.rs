//! Multi-head latent attention, which DeepSeek's models have since V2: the cache keeps one short row for each token, from which all heads'
//! keys and values could be computed (DeepSeek-AI 2024, <https://arxiv.org/abs/2405.04434>).
//!
//! They never are. The projection that makes keys of rows moves to the queries, and that which makes values to what comes out (the
//! *absorbed* form), so that heads attend to the rows as they are: `rank + rope` elements a token, however many heads there are. What it
//! costs: each head's part of the two projections is a weight of its own, for
//! [`linear_each`](crate::backend::Backend::linear_each), which by its definition is `2 * heads` small products a layer and step (the CPU
//! does them in two forks and joins); and a
//! query meets a token with `2 * rank + rope` products a head, where computed keys and values would take `nope + rope + value`. That counts
//! where prompts are read. Tokens that are drawn wait for memory, of which the rows are little.

use crate::backend::{AttnOption, AttnSpec, Axis, LayerCache, Rope, Weight};
use crate::tensor::{Config, Error, HostWeight, Result, Tensor};
use crate::{Linear, Loader, RmsNorm, Step, rope};
use std::ops::Range;

/// Of the norms within, whatever `rms_norm_eps` says: the classes give them none, and this is what a norm then has.
const EPS: f32 = 1e-6;

/// Columns that a factor has to be for, at least, if kernels are to read it among elements: whole registers, and blocks of 32. With fewer, rows would be
/// decoded each time that they are used.
const NARROW: usize = 32;

/// How many heads, and how many elements of what.
#[derive(Clone, Copy, Debug)]
struct Dims {
    heads: usize,
    /// What keys and values are computed from.
    rank: usize,
    /// Of a head's key: what has no position, and what rotates and is the same for all heads.
    nope: usize,
    rope: usize,
    /// A head's value.
    value: usize,
}

/// Projections around an attention to latents.
#[derive(Debug)]
pub struct LatentAttention {
    layer: usize,
    dims: Dims,
    /// To queries, or to what those are computed from.
    q: Linear,
    q_up: Option<(RmsNorm, Linear)>,
    kv: Linear,
    kv_norm: RmsNorm,
    /// `[rank, nope]` of each head.
    keys: Vec<Weight>,
    /// `[value, rank]` of each head.
    values: Vec<Weight>,
    o: Linear,
    rope: Rope,
    spec: AttnSpec,
}

impl LatentAttention {
    /// Reads `q_proj`, or where `q_lora_rank` is set `q_a_proj`, `q_a_layernorm` and `q_b_proj`; then `kv_a_proj_with_mqa`,
    /// `kv_a_layernorm`, `kv_b_proj` and `o_proj`. Of `kv_b_proj` the keys' half is transposed, for which it is decoded if it is packed in blocks, or
    /// has factors for few of its rows. Files that have the halves apart, as GGUF's newer ones do, keep it packed: `k_b_proj` `[heads, rank, nope]` and `v_b_proj`
    /// `[heads, value, rank]`. `layer` is the cache layer it owns, and `rope` rotates `qk_rope_head_dim` elements.
    ///
    /// # Errors
    /// Where sizes are 0, or not those of the weights, and where `is_causal` is off.
    pub fn load(l: &Loader<'_>, c: &Config, layer: usize, rope: Rope) -> Result<Self> {
        let dims = Dims::read(c)?;
        if !c.bool_or("is_causal", true)? {
            let why = "`is_causal` is off: a latent attention that looks ahead is not known";
            return Err(Error::unsupported("config", why));
        }
        let Dims { heads, rank, nope, value, .. } = dims;
        let (dim, k_dim, queries) = (c.usize("hidden_size")?, rank + dims.rope, heads * (nope + dims.rope));
        let (q, q_up) = match c.opt_usize("q_lora_rank")? {
            None => (sized(l, "q_proj", [queries, dim])?, None),
            Some(rank) => {
                let up = (norm(l, "q_a_layernorm", rank)?, sized(l, "q_b_proj", [queries, rank])?);
                (sized(l, "q_a_proj", [rank, dim])?, Some(up))
            }
        };
        let [keys, values] = match l.optional(l.host("k_b_proj"))? {
            Some(keys) => {
                let keys = flat(&keys, [heads * rank, nope])?;
                let values = flat(&l.host("v_b_proj")?, [heads * value, rank])?;
                [by_head(l, &keys, heads, 0..rank)?, by_head(l, &values, heads, 0..value)?]
            }
            None => {
                let both = flat(&l.host("kv_b_proj")?, [heads * (nope + value), rank])?;
                let keys = turned(&parts(&both, heads, 0..nope)?)?;
                let keys = keys.iter().map(|w| l.weight(w)).collect::<Result<_>>()?;
                [keys, by_head(l, &both, heads, nope..nope + value)?]
            }
        };
        let spec = AttnSpec::new(heads, 1, k_dim, rank).with(AttnOption::Causal);
        Ok(Self {
            layer,
            dims,
            q,
            q_up,
            kv: sized(l, "kv_a_proj_with_mqa", [k_dim, dim])?,
            kv_norm: norm(l, "kv_a_layernorm", rank)?,
            keys,
            values,
            o: sized(l, "o_proj", [dim, heads * value])?,
            rope,
            spec: spec.scale(scale(c, nope + dims.rope)?),
        })
    }

    /// What this layer keeps: a row for each token, keys and values in one.
    pub fn cache(&self) -> LayerCache {
        LayerCache::full(self.spec.k_dim, 0)
    }

    /// Attends over each sequence's past and this step. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// If `x` has not as many columns as the projections have inputs; else as [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let (b, n, Dims { heads, rank, nope, rope, value }) = (s.backend, x.shape().rows(), self.dims);
        let [mut q, kv] = Linear::forward_many(s, x, [&self.q, &self.kv])?;
        if let Some((norm, up)) = &self.q_up {
            q = up.forward(s, &norm.forward(s, &q)?)?;
        }
        let [q, q_turned] = two(s, &q.reshape([n, heads, nope + rope])?, [nope, rope])?;
        let [kv, k_turned] = two(s, &kv, [rank, rope])?;
        let q_turned = b.rope(q_turned, &self.rope, s.plan)?; // [n, heads, rope]
        let k_turned = b.rope(k_turned.reshape([n, 1, rope])?, &self.rope, s.plan)?.reshape([n, rope])?;
        let row = b.concat(&[&self.kv_norm.forward(s, &kv)?, &k_turned], Axis::Cols)?; // [n, rank + rope]
        b.store_kv(self.layer, &row, None, s.cache, s.plan)?;
        let q = b.concat(&[&b.linear_each(&q, &self.keys)?, &q_turned], Axis::Cols)?; // [n, heads, rank + rope]
        let o = b.attend_latent(self.layer, &q, s.cache, &s.attention(&self.spec), s.plan)?; // [n, heads * rank]
        let o = b.linear_each(&o.reshape([n, heads, rank])?, &self.values)?;
        self.o.forward(s, &o.reshape([n, heads * value])?)
    }
}

impl Dims {
    fn read(c: &Config) -> Result<Self> {
        let size = |key| match c.usize(key)? {
            0 => Err(Error::invalid("config", format!("`{key}` is 0"))),
            n => Ok(n),
        };
        let dims = Self {
            heads: size("num_attention_heads")?,
            rank: size("kv_lora_rank")?,
            nope: size("qk_nope_head_dim")?,
            rope: size("qk_rope_head_dim")?,
            value: size("v_head_dim")?,
        };
        let Self { heads, rank, nope, rope, value } = dims;
        // The largest size that is computed from them.
        let sum = [rank, nope, rope, value].into_iter().try_fold(0usize, usize::checked_add);
        if sum.and_then(|sum| sum.checked_mul(heads)).is_none() {
            let why =
                format!("{heads} heads of {nope} + {rope} and {value} elements are more than can be counted");
            return Err(Error::invalid("config", why));
        }
        if !rope.is_multiple_of(2) {
            return Err(Error::invalid(
                "config",
                format!("`qk_rope_head_dim` is {rope}: pairs of elements rotate"),
            ));
        }
        Ok(dims)
    }
}

/// The factor on the scores. YaRN's on sine and cosine is `rope_of`'s affair, and reaches only what rotates; where `mscale_all_dim` is set,
/// all of a score is multiplied besides. transformers' class for V2 forgot that until July 2026; DeepSeek's own has it.
fn scale(c: &Config, dim: usize) -> Result<f32> {
    let scaling = rope::scaling(c);
    let (all, factor) = (scaling.f32_or("mscale_all_dim", 0.0)?, scaling.f32_or("factor", 1.0)?);
    let magnitude = if factor > 1.0 { 0.1 * f64::from(all) * f64::from(factor).ln() + 1.0 } else { 1.0 };
    Ok(((dim as f64).powf(-0.5) * magnitude * magnitude) as f32)
}

/// The linear `name`, if it has these outputs and inputs.
fn sized(l: &Loader<'_>, name: &str, [outputs, inputs]: [usize; 2]) -> Result<Linear> {
    let linear = l.linear(name)?;
    match linear.weight.shape() {
        [1, out, of] if [out, of] == [outputs, inputs] => Ok(linear),
        found => Err(misfit(&l.name(name), found, [outputs, inputs])),
    }
}

/// The norm `name` of so many elements.
fn norm(l: &Loader<'_>, name: &str, len: usize) -> Result<RmsNorm> {
    let norm = l.rms_norm(name, EPS)?;
    match norm.weight.shape().len() {
        found if found == len => Ok(norm),
        found => Err(misfit(&l.name(name), [1, 1, found], [1, len])),
    }
}

fn misfit(name: &str, found: [usize; 3], [rows, cols]: [usize; 2]) -> Error {
    let why = format!("its shape is {found:?}, where the settings need [{rows}, {cols}]");
    Error::invalid(name, format!("{why}; do weights and config belong together?"))
}

/// A matrix of so many rows and columns, which the file may have in parts, one below the other.
fn flat(w: &HostWeight, [rows, cols]: [usize; 2]) -> Result<HostWeight> {
    let [parts, of, found] = w.shape;
    if parts.checked_mul(of) != Some(rows) || found != cols {
        return Err(misfit(&w.name, w.shape, [rows, cols]));
    }
    w.regrouped(1)
}

/// Of each head's rows those in `range`.
fn parts(w: &HostWeight, heads: usize, range: Range<usize>) -> Result<Vec<HostWeight>> {
    let rows = w.shape[1] / heads;
    (0..heads).map(|head| w.rows(head * rows + range.start..head * rows + range.end)).collect()
}

/// The same, each as a weight.
fn by_head(l: &Loader<'_>, w: &HostWeight, heads: usize, range: Range<usize>) -> Result<Vec<Weight>> {
    parts(w, heads, range)?.iter().map(|part| l.weight(part)).collect()
}

/// Rows of all heads as columns: of a format without blocks in that format, else decoded. Decoded they are, too, if one's factors would be for
/// fewer of the new columns than [`NARROW`]: heads whose products are made in one go are of one kind.
fn turned(parts: &[HostWeight]) -> Result<Vec<HostWeight>> {
    let is_narrow = |w: &HostWeight| w.scale.as_ref().is_some_and(|s| s.tile[0] < NARROW.min(w.shape[1]));
    let narrow = parts.iter().any(is_narrow);
    let why = "keys of latent attention are computed the other way round";
    let turned = |w: &HostWeight| {
        let turned = w.transposed()?;
        let turned = if narrow { turned.decoded()? } else { turned };
        match turned.format == w.format {
            true => Ok(turned),
            false => Ok(turned.with_unpacked(w.unpacked_for(why))),
        }
    };
    parts.iter().map(turned).collect()
}

/// Two parts of the last dimension.
fn two(s: &Step<'_>, x: &Tensor, sizes: [usize; 2]) -> Result<[Tensor; 2]> {
    let parts = s.backend.split(x, Axis::Cols, &sizes)?;
    parts.try_into().map_err(|_| Error::invalid("split", "the backend gave another number of parts"))
}
