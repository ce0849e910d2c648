//! Grouped-query attention (Ainslie et al. 2023, <https://arxiv.org/abs/2305.13245>), with rotary positions or without and, where
//! the file has them, biases and norms on queries and keys.

use crate::backend::{Activation, AttnSpec, Axis, Ids, LayerCache, Rope};
use crate::head_norm::{HeadNorm, in_heads};
use crate::tensor::{Config, Error, HostWeight, Result, Tensor};
use crate::{Embedding, Linear, Loader, RmsNorm, Step, mlp::fixed};

/// How many heads `num_attention_heads` says there are, and how many elements each has of `hidden_size`: for architectures that
/// cut it evenly and say no `head_dim`.
///
/// # Errors
/// If `hidden_size` or `num_attention_heads` is missing or no whole number, or if so many heads do not cut it evenly.
pub fn heads_of(c: &Config) -> Result<(usize, usize)> {
    let (dim, heads) = (c.usize("hidden_size")?, c.usize("num_attention_heads")?);
    if heads == 0 || !dim.is_multiple_of(heads) {
        let why = format!("`hidden_size` {dim} cannot be cut into {heads} heads");
        return Err(Error::invalid("config", why));
    }
    Ok((heads, dim / heads))
}

/// The attention of so many heads of `dim` elements, with the usual scale. It looks back only, unless the setting `is_causal` is off:
/// so say decoders that were made into encoders of texts (gte-Qwen2), whose tokens see all others.
///
/// # Errors
/// If `is_causal` is neither true nor false.
pub fn spec_of(c: &Config, heads: usize, kv_heads: usize, dim: usize) -> Result<AttnSpec> {
    let causal = c.bool_or("is_causal", true)?;
    Ok(if causal { AttnSpec::causal(heads, kv_heads, dim) } else { AttnSpec::new(heads, kv_heads, dim, dim) })
}

/// Query, key, value and output projections around one attention operator.
#[derive(Debug)]
pub struct Attention {
    layer: usize,
    q: Linear,
    keys: Keys,
    o: Linear,
    q_norm: Option<HeadNorm>,
    /// Whether queries and keys are normed behind their rotation and not before.
    late: bool,
    rope: Option<Rope>,
    spec: AttnSpec,
    /// Whether a head's queries come with as many numbers that gate its output.
    gated: bool,
    /// What queries are multiplied by, a number for each position.
    growth: Option<Embedding>,
}

/// Where keys and values are from.
#[derive(Debug)]
enum Keys {
    /// Of the layer's own projections; without one of values, these are the keys before they are normed and turned.
    Own { k: Box<Linear>, v: Option<Box<Linear>>, k_norm: Option<HeadNorm>, v_norm: Option<HeadNorm> },
    /// What an earlier cache layer stored.
    Of(usize),
}

/// How a layer is read.
#[derive(Clone, Copy)]
struct How<'a> {
    gated: bool,
    output: &'a str,
    /// Whether values are keys.
    one: bool,
    /// The matrix that has queries, keys and values in turns, a group for each key head.
    grouped: Option<&'a str>,
}

/// The most positions that queries grow by: 64 MiB a layer.
const MOST_GROWTH: usize = 1 << 24;

/// The most of them that nobody asked for: 4 MiB a layer. Llama 4 Scout says ten times as many.
const UNASKED: usize = 1 << 20;

const USUAL: How<'static> = How { gated: false, output: "o_proj", one: false, grouped: None };

impl Attention {
    /// Reads `q_proj`, `k_proj`, `v_proj` (the three may be one matrix, `qkv_proj`) and `o_proj`, and `q_norm` and
    /// `k_norm` if they are there: each for every head by itself, or for all heads of a token at once, as it has factors for. `layer` is
    /// the cache layer it owns. With `None` for `rope` nothing turns, and queries and keys do not know where they stand.
    ///
    /// # Errors
    /// If key heads do not share the query heads evenly, if there is a window that looks back alone though the attention looks to both sides, or if a projection
    /// has another number of outputs than its heads have elements; else as [all that read](Loader#errors).
    pub fn load(
        l: &Loader<'_>,
        c: &Config,
        layer: usize,
        rope: impl Into<Option<Rope>>,
        spec: AttnSpec,
    ) -> Result<Self> {
        Self::load_as(l, c, layer, rope.into(), spec, USUAL)
    }

    /// The same where keys are values, too: there is no `v_proj`, and what `k_proj` gives is both, as a value neither normed as keys are nor
    /// turned.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if values are not as long as keys.
    pub fn load_of_keys(
        l: &Loader<'_>,
        c: &Config,
        layer: usize,
        rope: impl Into<Option<Rope>>,
        spec: AttnSpec,
    ) -> Result<Self> {
        Self::load_as(l, c, layer, rope.into(), spec, How { one: true, ..USUAL })
    }

    /// Reads `q_proj`, `o_proj` and, if it is there, `q_norm`, for a layer that attends to what the cache layer `of` has stored, which is an
    /// earlier one (Brandon et al. 2024, <https://arxiv.org/abs/2405.12981>). `layer` is the cache layer that it would own. What an adapter does to
    /// `k_proj` and `v_proj`, which files have all the same and nobody reads, is [passed over](Loader::pass_over).
    ///
    /// # Errors
    /// If `of` is not before `layer`, or the attention looks to both sides, so that nothing is stored; else as [`load`](Self::load).
    pub fn load_sharing(
        l: &Loader<'_>,
        c: &Config,
        [layer, of]: [usize; 2],
        rope: impl Into<Option<Rope>>,
        spec: AttnSpec,
    ) -> Result<Self> {
        if of >= layer {
            let why = format!("layer {layer} cannot attend to keys of layer {of}, which is not before it");
            return Err(Error::invalid("config", why));
        }
        let [q, ..] = widths(&spec, false)?;
        if !spec.looks_back() {
            let why = "layers that share keys look to both sides, which is not known";
            return Err(Error::unsupported("config", why));
        }
        ["k_proj", "v_proj"].into_iter().try_for_each(|name| l.pass_over(name))?;
        Ok(Self {
            layer,
            q: alone(l, "q_proj", q)?,
            keys: Keys::Of(of),
            o: l.linear(USUAL.output)?,
            q_norm: l.optional(l.rms_norm("q_norm", c.f32_or("rms_norm_eps", 1e-6)?))?.map(HeadNorm::Rms),
            late: false,
            rope: rope.into(),
            spec,
            gated: false,
            growth: None,
        })
    }

    /// The same where the file calls the output projection `output`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_named(
        l: &Loader<'_>,
        c: &Config,
        layer: usize,
        rope: impl Into<Option<Rope>>,
        spec: AttnSpec,
        output: &str,
    ) -> Result<Self> {
        Self::load_as(l, c, layer, rope.into(), spec, How { output, ..USUAL })
    }

    /// The same where q, k and v are one matrix `grouped`, which has for each key head its queries, then its key and its value (GPT-NeoX), and the
    /// output projection is called `output`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_grouped(
        l: &Loader<'_>,
        c: &Config,
        layer: usize,
        rope: impl Into<Option<Rope>>,
        spec: AttnSpec,
        [grouped, output]: [&str; 2],
    ) -> Result<Self> {
        Self::load_as(l, c, layer, rope.into(), spec, How { output, grouped: Some(grouped), ..USUAL })
    }

    /// The same where `q_proj` gives for each head a query and then a gate, the sigmoid of which its output is multiplied by
    /// (Qiu et al. 2025, <https://arxiv.org/abs/2505.06708>).
    ///
    /// # Errors
    /// As [`load`](Self::load), and if values are not as long as keys.
    pub fn load_gated(
        l: &Loader<'_>,
        c: &Config,
        layer: usize,
        rope: impl Into<Option<Rope>>,
        spec: AttnSpec,
    ) -> Result<Self> {
        Self::load_as(l, c, layer, rope.into(), spec, How { gated: true, ..USUAL })
    }

    fn load_as(
        l: &Loader<'_>,
        c: &Config,
        layer: usize,
        rope: Option<Rope>,
        spec: AttnSpec,
        how: How<'_>,
    ) -> Result<Self> {
        if (how.one || how.gated) && spec.k_dim != spec.v_dim {
            let how = if how.one { "cannot be keys" } else { "have gates" };
            let why = format!("values of {} elements {how} of {}", spec.v_dim, spec.k_dim);
            return Err(Error::invalid("config", why));
        }
        let eps = c.f32_or("rms_norm_eps", 1e-6)?;
        let sizes = widths(&spec, how.gated)?;
        let (q, k, v) = if how.one {
            (alone(l, "q_proj", sizes[0])?, alone(l, "k_proj", sizes[1])?, None)
        } else {
            let [q, k, v] = match how.grouped {
                Some(name) => {
                    let parts = [spec.heads / spec.kv_heads * spec.k_dim, spec.k_dim, spec.v_dim];
                    fixed(name, l.grouped_parts(name, spec.kv_heads, &parts, &sizes)?)?
                }
                None => l.linears("qkv_proj", ["q_proj", "k_proj", "v_proj"], sizes)?,
            };
            (q, k, Some(v.into()))
        };
        let norm = |name| Ok::<_, Error>(l.optional(l.rms_norm(name, eps))?.map(HeadNorm::Rms));
        let (q_norm, k_norm) = (norm("q_norm")?, norm("k_norm")?);
        Ok(Self {
            layer,
            q,
            keys: Keys::Own { k: k.into(), v, k_norm, v_norm: None },
            o: l.linear(how.output)?,
            q_norm,
            late: false,
            rope,
            spec,
            gated: how.gated,
            growth: None,
        })
    }

    /// The same with other norms on queries and keys, for models that keep them otherwise.
    #[must_use]
    pub fn head_norms(self, q: RmsNorm, k: RmsNorm) -> Self {
        self.with_norms(HeadNorm::Rms(q), HeadNorm::Rms(k))
    }

    /// The same with layer norms on each head's queries and keys, called so: of factors that all heads share, or of some for each head by
    /// itself (Command R+).
    ///
    /// # Errors
    /// If there are factors neither for one head nor for all, or summands where each head has factors of its own; else as
    /// [all that read](Loader#errors).
    pub fn head_layer_norms(self, l: &Loader<'_>, [q, k]: [&str; 2], eps: f32) -> Result<Self> {
        let AttnSpec { heads, kv_heads, k_dim, .. } = self.spec;
        let q = HeadNorm::layer(l, q, [heads, k_dim], eps)?;
        let k = HeadNorm::layer(l, k, [kv_heads, k_dim], eps)?;
        Ok(self.with_norms(q, k))
    }

    fn with_norms(mut self, q: HeadNorm, k: HeadNorm) -> Self {
        self.q_norm = Some(q);
        if let Keys::Own { k_norm, .. } = &mut self.keys {
            *k_norm = Some(k);
        }
        self
    }

    /// The same with queries and keys normed behind their rotation (HunYuan).
    #[must_use]
    pub fn normed_late(self) -> Self {
        Self { late: true, ..self }
    }

    /// The same with a norm on each head's values. A layer that shares another's has them as they were stored.
    #[must_use]
    pub fn value_norm(mut self, norm: RmsNorm) -> Self {
        if let Keys::Own { v_norm, .. } = &mut self.keys {
            *v_norm = Some(HeadNorm::Rms(norm));
        }
        self
    }

    /// The same with each query multiplied by what `growth` says of its position, behind its norm wherever that stands: what is seen of long contexts stays sharp
    /// so (Nakanishi 2025, <https://arxiv.org/abs/2501.19399>). It is looked up in a table of this layer, of the context that was asked for and no less than
    /// `positions`, of which the first 2²⁰ count; where a text is longer than that its step fails.
    ///
    /// # Errors
    /// If a context of more than 2²⁴ positions was asked for; else as [all that read](Loader#errors).
    pub fn growing(self, l: &Loader<'_>, positions: usize, growth: impl Fn(usize) -> f32) -> Result<Self> {
        let own = positions.clamp(1, UNASKED);
        let rows = l.context_as(|_| 0).map_or(own, |asked| asked.max(own));
        if rows > MOST_GROWTH {
            let why =
                format!("queries grow by at most {MOST_GROWTH} positions, and it has {rows}; ask for fewer");
            return Err(Error::unsupported("the context", why));
        }
        // The name is of this layer, so that the table is where the layer is.
        let (name, table) = (l.name("growth"), (0..rows).map(growth).collect::<Vec<_>>());
        let weight = l.weight(&HostWeight::from_f32(&*name, [1, rows, 1], &table)?)?;
        Ok(Self { growth: Some(Embedding { weight, name }), ..self })
    }

    /// The same of inputs multiplied by `input`, with what comes out multiplied by `output`.
    ///
    /// # Errors
    /// As [`Linear::scaled`].
    pub fn scaled(self, l: &Loader<'_>, input: f32, output: f32) -> Result<Self> {
        let of_inputs = |linear: Linear| linear.scaled(l, input, &[1.0]);
        let keys = match self.keys {
            Keys::Own { k, v, k_norm, v_norm } => {
                let v = v.map(|v| of_inputs(*v)).transpose()?.map(Box::new);
                Keys::Own { k: of_inputs(*k)?.into(), v, k_norm, v_norm }
            }
            shared => shared,
        };
        Ok(Self { q: of_inputs(self.q)?, keys, o: self.o.scaled(l, 1.0, &[output])?, ..self })
    }

    /// Whether tokens see earlier ones only; see [`spec_of`].
    pub fn causal(&self) -> bool {
        self.spec.looks_back()
    }

    /// What this layer keeps, in group 0; see [`group_by_window`](crate::group_by_window). One that is not [`causal`](Self::causal) keeps nothing, and has no
    /// place in a model's layout.
    pub fn cache(&self) -> LayerCache {
        if let Keys::Of(layer) = self.keys {
            return LayerCache::Shares(layer);
        }
        let (k, v) = (self.spec.kv_heads * self.spec.k_dim, self.spec.kv_heads * self.spec.v_dim);
        match self.spec.reach() {
            Some(window) => LayerCache::windowed(k, v, window, 0),
            None => LayerCache::full(k, v),
        }
    }

    /// Attends over each sequence's past and this step. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// Where tokens see later ones, if a text is not whole in the step; else as [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let (b, spec) = (s.backend, &self.spec);
        let (q, kv) = match &self.keys {
            Keys::Own { k, v: Some(v), .. } => {
                let [q, k, v] = Linear::forward_many(s, x, [&self.q, k, v])?;
                (q, Some((k, v)))
            }
            Keys::Own { k, v: None, .. } => {
                let [q, k] = Linear::forward_many(s, x, [&self.q, k])?;
                (q, Some((k.clone(), k)))
            }
            Keys::Of(_) => (self.q.forward(s, x)?, None),
        };
        let (q, gate) = if self.gated { self.apart(s, q)? } else { (q, None) };
        let q = in_heads(s, q, self.early(self.q_norm.as_ref()), spec.heads, spec.k_dim)?;
        // A norm behind the rotation would undo what is before it; the rotation itself undoes nothing.
        let q = match self.late {
            true => self.turned(s, q, self.q_norm.as_ref(), spec.heads)?,
            false => q,
        };
        let q = self.grown(s, q)?;
        let o = match (kv, &self.keys) {
            (Some((k, v)), Keys::Own { k_norm, v_norm, .. }) => {
                let k = in_heads(s, k, self.early(k_norm.as_ref()), spec.kv_heads, spec.k_dim)?;
                let v = match v_norm {
                    None => v,
                    norm => {
                        let (rows, all) = (v.shape().rows(), spec.kv_heads * spec.v_dim);
                        in_heads(s, v, norm.as_ref(), spec.kv_heads, spec.v_dim)?.reshape([rows, all])?
                    }
                };
                match self.late {
                    true => {
                        let k = self.turned(s, k, k_norm.as_ref(), spec.kv_heads)?;
                        self.attend(s, q, k, &v, None)?
                    }
                    false => self.attend(s, q, k, &v, self.rope.as_ref())?,
                }
            }
            _ => {
                let q = match self.late {
                    true => q,
                    false => self.turned(s, q, None, spec.heads)?,
                };
                b.attend_cache(self.layer, &q, s.cache, &s.attention(spec), s.plan)?
            }
        };
        let o = match gate {
            Some(gate) => b.gated(gate, &o, Activation::Sigmoid)?,
            None => o,
        };
        self.o.forward(s, &o) // [n, heads * v_dim] -> [n, dim]
    }

    /// The norm where it stands before the rotation.
    fn early<'a>(&self, norm: Option<&'a HeadNorm>) -> Option<&'a HeadNorm> {
        norm.filter(|_| !self.late)
    }

    /// Heads that are turned, where any are, and then normed. `[n, heads, dim] -> [n, heads, dim]`
    fn turned(&self, s: &Step<'_>, x: Tensor, norm: Option<&HeadNorm>, heads: usize) -> Result<Tensor> {
        let cut = [x.shape().first(), heads, self.spec.k_dim];
        let x = match &self.rope {
            Some(rope) => s.backend.rope(x, rope, s.plan)?,
            None => x,
        };
        match norm {
            Some(norm) => norm.forward(s, x, cut),
            None => Ok(x),
        }
    }

    /// Attention to what is stored, now and before, of heads that `rope` turns first. `[n, heads, dim], [n, kv_heads, dim], [n, kv_heads * dim]`
    fn attend(&self, s: &Step<'_>, q: Tensor, k: Tensor, v: &Tensor, rope: Option<&Rope>) -> Result<Tensor> {
        let (b, spec) = (s.backend, &*s.attention(&self.spec));
        match (rope, self.causal()) {
            (Some(rope), true) => b.rope_attend(self.layer, q, k, v, rope, s.cache, spec, s.plan),
            (None, true) => {
                b.store_kv(self.layer, &k, Some(v), s.cache, s.plan)?;
                b.attend_cache(self.layer, &q, s.cache, spec, s.plan)
            }
            (rope, false) => {
                // As encoders do it: what was just computed is all there is to see, unrounded.
                s.whole_texts()?;
                let (q, k) = match rope {
                    Some(rope) => (b.rope(q, rope, s.plan)?, b.rope(k, rope, s.plan)?),
                    None => (q, k),
                };
                b.attend(&q, &k, v, spec, s.plan)
            }
        }
    }

    /// Queries times what their positions have for them. `[n, heads, dim] -> [n, heads, dim]`
    fn grown(&self, s: &Step<'_>, q: Tensor) -> Result<Tensor> {
        let Some(growth) = &self.growth else { return Ok(q) };
        let (shape, n) = (q.shape(), q.shape().first());
        let flat = q.reshape([n, self.spec.heads * self.spec.k_dim])?;
        s.backend.mul(flat, &growth.of(s, Ids::Positions)?)?.reshape(shape)
    }

    /// Queries, and what gates each head's output. `[n, heads * 2 * dim] -> [n, heads * dim], [n, heads * dim]`
    fn apart(&self, s: &Step<'_>, both: Tensor) -> Result<(Tensor, Option<Tensor>)> {
        let (n, heads, dim) = (both.shape().rows(), self.spec.heads, self.spec.k_dim);
        let both = both.reshape([n, heads, 2 * dim])?;
        let mut parts = s.backend.split(&both, Axis::Cols, &[dim, dim])?.into_iter();
        match (parts.next(), parts.next()) {
            (Some(q), Some(gate)) => {
                Ok((q.reshape([n, heads * dim])?, Some(gate.reshape([n, heads * dim])?)))
            }
            _ => Err(Error::invalid("split", "the backend gave another number of parts")),
        }
    }
}

/// A projection that no other is in one matrix with.
fn alone(l: &Loader<'_>, name: &str, outputs: usize) -> Result<Linear> {
    let linear = l.linear(name)?;
    l.fits(&format!("{name}.weight"), linear.weight.shape()[1], outputs)?;
    Ok(linear)
}

/// How many elements queries, keys and values of a token have, all heads; with gates, of as many queries again.
fn widths(spec: &AttnSpec, gated: bool) -> Result<[usize; 3]> {
    if spec.kv_heads == 0 || !spec.heads.is_multiple_of(spec.kv_heads) {
        let why = format!("{} query heads cannot share {} key and value heads", spec.heads, spec.kv_heads);
        return Err(Error::invalid("config", why));
    }
    if !spec.looks_back() && spec.reach().is_some() && spec.ahead().is_none() {
        let why = "`is_causal` is off and layers have a window, which is not said to be one to both sides";
        return Err(Error::unsupported("config", why));
    }
    let width = |heads: usize, dim: usize| {
        let why = || format!("{heads} heads of {dim} elements are more than can be counted");
        heads.checked_mul(dim).ok_or_else(|| Error::invalid("config", why()))
    };
    Ok([
        width(spec.heads, spec.k_dim.saturating_mul(if gated { 2 } else { 1 }))?,
        width(spec.kv_heads, spec.k_dim)?,
        width(spec.kv_heads, spec.v_dim)?,
    ])
}
