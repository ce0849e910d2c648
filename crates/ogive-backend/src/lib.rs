//! The seam between models and machines.
//!
//! [`Backend`] lists the operators a language model is made of. A backend writes the *required* ones; the *provided* ones are
//! compositions of those, and a backend overrides one when it can do better. The provided body is the definition: an override must
//! compute the same thing.
//!
//! So a machine that does one operator its own way, here by counting, runs whatever is made of it:
//!
//! ```
//! # use std::sync::atomic::{AtomicUsize, Ordering};
//! use ogive_backend::tensor::{Result, Tensor};
//! use ogive_backend::{Activation, Backend, HostWeight, Weight};
//! # use ogive_conformance::Oracle;
//!
//! /// Another backend, and how many operators it was asked for.
//! #[derive(Debug)]
//! struct Counting(Oracle, AtomicUsize);
//!
//! impl Counting {
//!     /// Every forwarded call goes through here.
//!     fn around<T>(&self, _name: &'static str, call: impl FnOnce(&Oracle) -> Result<T>) -> Result<T> {
//!         self.1.fetch_add(1, Ordering::Relaxed);
//!         call(&self.0)
//!     }
//! }
//!
//! impl Backend for Counting {
//!     ogive_backend::forward_required!();
//! }
//!
//! # fn main() -> Result<()> {
//! let machine = Counting(Oracle, AtomicUsize::new(0));
//! let x = machine.upload(&[0.0, 2.0], [1, 2].into())?; // [n, in]
//! let row = |name, values| machine.upload_weight(&HostWeight::from_f32(name, [1, 1, 2], values)?);
//! let (gate, up) = (row("gate", &[1.0, 0.0])?, row("up", &[0.0, 1.0])?); // [1, out, in]
//!
//! // `exp(x · gateᵀ) * (x · upᵀ)` is provided: two products, a nonlinearity and a multiplication, all required.
//! let before = machine.1.load(Ordering::Relaxed);
//! let y = machine.linear_gated(&x, &gate, &up, Activation::Exp)?; // [n, out]
//! assert_eq!(machine.1.load(Ordering::Relaxed) - before, 4);
//! assert_eq!(machine.download(&y)?, [2.0]);
//! # Ok(())
//! # }
//! ```

mod batch;
mod best;
mod cache;
mod collect;
mod composed;
mod estimate;
mod facts;
mod forward;
mod inputs;
mod ledger;
mod moe;
mod plain;
pub mod recurrent;
mod spec;
mod split;
mod trace;
mod weight;

pub use batch::{Batch, BlockCopy, BlockTable, Plan, Span, StepKey};
pub use best::best_of;
pub use cache::{Cache, CacheSpec, LayerCache, group_windows};
pub use collect::{Collect, Collected};
pub use estimate::Estimate;
pub use facts::Facts;
pub use inputs::{Input, Vectors};
pub use ledger::{Activations, Attended, Left, Mixed, Multiplied, Sizes};
pub use moe::{Experts, Gating, RouterSpec, Routing, Scoring, is_near};
pub use ogive_tensor::{self as tensor, HostWeight};
pub use plain::Plain;
pub use spec::{Activation, AttnOption, AttnSpec, Axis, Ids, Rope, RopeLayout, Xielu};
pub use split::{Place, Split, is_of_tower, layer_of};
pub use trace::{Trace, TraceEntry, Work};
pub use weight::Weight;

use ogive_tensor::{Error, Result, Shape, Tensor};
use std::{any::Any, fmt::Debug};

/// A machine that can run language models.
///
/// Object-safe on purpose: models are not generic over their backend, and a backend may live in any crate. A tensor taken by value may be
/// overwritten. No operator takes host numbers that vary from step to step: those are in the [`Plan`], so a recorded step can be replayed.
///
/// `n` is the step's rows. The *contexts* are, for each span in turn, a row for
/// each token it can see: those before the step and those in it.
///
/// # Errors
/// Every method fails on shapes that do not fit, on an index that is out of range, on a tensor, weight, cache or plan of another backend,
/// on an option it does not know, and where memory is short; while a step is recorded ([`replay`](Self::replay)), also those that carry
/// values between host and device. A device that failed may say so only in the method that waits for it.
pub trait Backend: Any + Debug + Send + Sync {
    // ---- memory ----------------------------------------------------------

    /// What this backend is and what it computes with.
    fn facts(&self) -> Facts;
    /// Copies host values in, row by row; as many as `shape` has elements.
    ///
    /// # Errors
    /// If `values` are more or fewer than `shape` has elements; else as [all](Self#errors).
    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor>;
    /// Copies values out, row by row, waiting for whatever computes them.
    ///
    /// # Errors
    /// If what computes them fails; else as [all](Self#errors).
    fn download(&self, x: &Tensor) -> Result<Vec<f32>>;
    /// Takes a weight in, packed as it is; lays it out as `linear` likes it. Who has a copy then calls `w.bytes.release()`, so that the
    /// pages of a mapped file need not stay in memory beside it.
    ///
    /// # Errors
    /// If its bytes, factors or order of columns do not fit its shape; else as [all](Self#errors).
    fn upload_weight(&self, w: &HostWeight) -> Result<Weight>;
    /// Reserves the cache all sequences share.
    ///
    /// # Errors
    /// If `spec` contradicts itself ([`CacheSpec::check`]), or its element can only be read; else as [all](Self#errors).
    fn new_cache(&self, spec: &CacheSpec) -> Result<Cache>;
    /// Sends a step's ids, positions, tables and slots to the device, once.
    ///
    /// # Errors
    /// If spans leave gaps or do not fit the rows, if a list of something for each row is longer or shorter, or if an output is none of the
    /// rows; else as [all](Self#errors).
    fn plan(&self, batch: Batch) -> Result<Plan>;

    // ---- required operators ----------------------------------------------

    /// Rows of `table`, one for each row of the step. `[n, dim]`
    ///
    /// # Errors
    /// If the table has no row for an id, or has several matrices; else as [all](Self#errors).
    fn embed(&self, table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor>;
    /// `x · wᵀ`. `[n, in] -> [n, out]`
    ///
    /// # Errors
    /// If `w` has several matrices, or another number of inputs than `x` has columns; else as [all](Self#errors).
    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor>;
    /// `x / rms(x) * w` over the last dimension, with `eps` added to the mean square. `x` `[.., d]`, `w` `[d]` `-> [.., d]`
    ///
    /// # Errors
    /// If `w` is not as long as a row of `x`; else as [all](Self#errors).
    fn rms_norm(&self, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor>;
    /// `(x - mean(x)) / std(x) * w + b` over the last dimension, with `eps` added to the variance. `x` `[.., d]`, `w`, `b` `[d]` `-> [.., d]`
    ///
    /// # Errors
    /// If `w` or `b` is not as long as a row of `x`; else as [all](Self#errors).
    fn layer_norm(&self, x: &Tensor, w: &Tensor, b: Option<&Tensor>, eps: f32) -> Result<Tensor>;
    /// Elementwise sum; broadcasts as `mul` does.
    ///
    /// # Errors
    /// As [`mul`](Self::mul).
    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor>;
    /// Elementwise product. Rows and columns (the last extent) of either side
    /// may be 1: `[n, d] · [n, 1]`, `[n, d] · [1, d]`, `[n, 1] · [1, d] -> [n, d]`.
    ///
    /// # Errors
    /// If rows or columns differ, and neither side has just 1; else as [all](Self#errors).
    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor>;
    /// The sum over the last dimension. `[n, d] -> [n, 1]`
    ///
    /// # Errors
    /// None of its own; those of [all](Self#errors).
    fn sum(&self, x: &Tensor) -> Result<Tensor>;
    /// Elementwise nonlinearity; the shape stays.
    ///
    /// # Errors
    /// If it does not know `f`; else as [all](Self#errors).
    fn activate(&self, x: Tensor, f: Activation) -> Result<Tensor>;
    /// Consecutive parts of one extent; `sizes` add up to it. `[n, a + b] -> [n, a], [n, b]` along [`Axis::Cols`].
    ///
    /// # Errors
    /// Unless `sizes` add up to the extent; else as [all](Self#errors).
    fn split(&self, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>>;
    /// The reverse of `split`.
    ///
    /// # Errors
    /// If there are none, or they differ in another extent than that; else as [all](Self#errors).
    fn concat(&self, xs: &[&Tensor], axis: Axis) -> Result<Tensor>;
    /// Rotates each head by its row's position (RoPE; Su et al. 2021, <https://arxiv.org/abs/2104.09864>), or by its row's
    /// [places](Batch::places) where those and the rotation tell axes apart. `[n, heads, dim] -> [n, heads, dim]`
    ///
    /// # Errors
    /// If `x` is of another shape or has other rows than the step, if heads have fewer elements than turn, or if it has not
    /// a frequency by each place for each pair; else as [all](Self#errors).
    fn rope(&self, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor>;
    /// Appends this step's keys, and values if the layer keeps any: `k` `[n, k_dim]`, `v` `[n, v_dim]`, all heads of a token in one row.
    ///
    /// # Errors
    /// If the layer has no pages or uses those of another, if `v` is there and it keeps no values (or the other way round), or if a token
    /// has no block in the tables of its span; else as [all](Self#errors).
    fn store_kv(
        &self,
        layer: usize,
        k: &Tensor,
        v: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<()>;
    /// What the layer holds of the contexts. `[contexts, k_dim]`, `[contexts, v_dim]`;
    /// rows that a window has left behind are zeros.
    ///
    /// # Errors
    /// If the layer has no pages, or a token that is still seen has no block in its tables; else as [all](Self#errors).
    fn gather_kv(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)>;
    /// Softmax attention of each row over its own context. `q` `[n, heads * k_dim]`, `k`, `v` `[contexts, kv_heads * k_dim]` and
    /// `[contexts, kv_heads * v_dim]` `-> [n, heads * v_dim]`
    ///
    /// # Errors
    /// On an option that it does not know, and if `heads` are no multiple of `kv_heads`; else as [all](Self#errors).
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, spec: &AttnSpec, plan: &Plan) -> Result<Tensor>;
    /// Copies the blocks that the step's [`Batch::copies`] name, in order, in every layer of their group.
    ///
    /// # Errors
    /// If a block is none of its group; else as [all](Self#errors).
    fn copy_blocks(&self, cache: &Cache, plan: &Plan) -> Result<()>;
    /// The state of each span; zeros where nothing has gone before. `[spans, len]`
    ///
    /// # Errors
    /// If the layer has no state, or a slot is none of the cache; else as [all](Self#errors).
    fn read_state(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor>;
    /// Replaces the state of each span. `[spans, len]`
    ///
    /// # Errors
    /// As [`read_state`](Self::read_state), and if the layer uses the state of another.
    fn write_state(&self, layer: usize, state: &Tensor, cache: &Cache, plan: &Plan) -> Result<()>;
    /// Chooses experts for each row. `[n, experts] -> [n, k]`
    ///
    /// # Errors
    /// If `k` is 0 or more than the groups that count have experts, if groups do not cut them evenly, or if there is not a bias for each;
    /// else as [all](Self#errors).
    fn route(&self, logits: &Tensor, spec: &RouterSpec) -> Result<Routing>;
    /// Each row through its experts, weighted. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// If projections and biases do not fit each other and `x`, if a row was sent to an expert that there is not, on a gating that it
    /// does not know, and on a gating or biases where nothing is gated; else as [all](Self#errors).
    fn experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor>;
    /// The rows of `x` whose logits the step wants. `[n, d] -> [outputs, d]`
    ///
    /// # Errors
    /// If `x` has not as many rows as the step; else as [all](Self#errors).
    fn outputs(&self, x: &Tensor, plan: &Plan) -> Result<Tensor>;

    // ---- provided operators: override to fuse ----------------------------

    /// Several products of one input. `[n, in] -> [n, out]` each
    ///
    /// # Errors
    /// As [`linear`](Self::linear), for each weight.
    fn linear_many(&self, x: &Tensor, ws: &[&Weight]) -> Result<Vec<Tensor>> {
        ws.iter().map(|w| self.linear(x, w)).collect()
    }

    /// A product of its own for each head; all weights have as many outputs. `[n, heads, in] -> [n, heads, out]`
    ///
    /// # Errors
    /// If the weights are not one for each head, or have several numbers of outputs; else as [`linear`](Self::linear).
    fn linear_each(&self, x: &Tensor, ws: &[Weight]) -> Result<Tensor> {
        let outs: Vec<usize> = ws.iter().map(|w| w.shape()[1]).collect();
        if outs.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(Error::invalid(
                "linear_each",
                format!("heads have weights of {outs:?} outputs; all must have as many"),
            ));
        }
        let (n, dim) = (x.shape().dims()[0], x.shape().cols());
        let heads = self.split(&x.clone().reshape([n, ws.len() * dim])?, Axis::Cols, &vec![dim; ws.len()])?;
        let ys = heads.iter().zip(ws).map(|(x, w)| self.linear(x, w)).collect::<Result<Vec<_>>>()?;
        let y = self.concat(&ys.iter().collect::<Vec<_>>(), Axis::Cols)?;
        let out = y.shape().cols() / ws.len();
        y.reshape([n, ws.len(), out])
    }

    /// The sum of `residual` and `x`, and the norm of that sum. `[n, d] -> [n, d], [n, d]`
    ///
    /// # Errors
    /// As [`add`](Self::add) and [`rms_norm`](Self::rms_norm).
    fn add_rms_norm(&self, residual: Tensor, x: &Tensor, w: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
        let sum = self.add(residual, x)?;
        let normed = self.rms_norm(&sum, w, eps)?;
        Ok((sum, normed))
    }

    /// `f(gate) * up`. `[n, d] -> [n, d]`
    ///
    /// # Errors
    /// As [`activate`](Self::activate) and [`mul`](Self::mul).
    fn gated(&self, gate: Tensor, up: &Tensor, f: Activation) -> Result<Tensor> {
        self.mul(self.activate(gate, f)?, up)
    }

    /// `f(x · gateᵀ) * (x · upᵀ)`: the first half of a gated MLP. `[n, in] -> [n, out]`
    ///
    /// # Errors
    /// As [`linear`](Self::linear), for each weight, and [`gated`](Self::gated).
    fn linear_gated(&self, x: &Tensor, gate: &Weight, up: &Weight, f: Activation) -> Result<Tensor> {
        let mut ys = self.linear_many(x, &[gate, up])?.into_iter();
        match (ys.next(), ys.next()) {
            (Some(gate), Some(up)) => self.gated(gate, &up, f),
            _ => Err(Error::invalid("linear_many", "the backend gave fewer products than weights")),
        }
    }

    /// Attention over what the layer holds. `q` `[n, heads * k_dim] -> [n, heads * v_dim]`
    ///
    /// # Errors
    /// If the layer keeps no values; else as [`gather_kv`](Self::gather_kv) and [`attend`](Self::attend).
    fn attend_cache(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (k, v) = self.gather_kv(layer, cache, plan)?;
        let v = v.ok_or_else(|| Error::unsupported("attend_cache", "the layer keeps no values"))?;
        self.attend(q, &k, &v, spec, plan)
    }

    /// Attention where a token's value is the first `v_dim` elements of its one
    /// key: multi-head latent attention with the projections absorbed.
    ///
    /// # Errors
    /// If a key has fewer than `v_dim` elements; else as [`gather_kv`](Self::gather_kv) and [`attend`](Self::attend).
    fn attend_latent(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (k, _) = self.gather_kv(layer, cache, plan)?;
        let too_wide = || {
            Error::invalid(
                "attend_latent",
                format!("values of {} in rows of {}", spec.v_dim, k.shape().cols()),
            )
        };
        let rest = k.shape().cols().checked_sub(spec.v_dim).ok_or_else(too_wide)?;
        let v = self.split(&k, Axis::Cols, &[spec.v_dim, rest])?.swap_remove(0);
        self.attend(q, &k, &v, spec, plan)
    }

    /// Rotates `q` `[n, heads, k_dim]` and `k` `[n, kv_heads, k_dim]`, stores `k` and `v` `[n, kv_heads * v_dim]`, and attends.
    /// `-> [n, heads * v_dim]`
    ///
    /// # Errors
    /// As [`rope`](Self::rope), [`store_kv`](Self::store_kv) and [`attend_cache`](Self::attend_cache).
    fn rope_attend(
        &self,
        layer: usize,
        q: Tensor,
        k: Tensor,
        v: &Tensor,
        rope: &Rope,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        composed::rope_attend(self, layer, q, k, v, rope, cache, spec, plan)
    }

    /// Depthwise convolution along each sequence with `w` `[width, dim]`; the
    /// layer's state is the last `width - 1` rows. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// If `w` has no rows, or the state is of another size; else as [`write_state`](Self::write_state).
    fn causal_conv(
        &self,
        layer: usize,
        x: &Tensor,
        w: &Tensor,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        recurrent::causal_conv(self, layer, x, w, cache, plan)
    }

    /// `h = exp(dt a) h + (dt x) b`, `y = h c` along each sequence; the layer's
    /// state is `h`. `x`, `dt` `[n, dim]`; `a` `[dim, m]`; `b`, `c` `[n, m]`.
    ///
    /// # Errors
    /// If the state is not of `dim * m` elements; else as [`write_state`](Self::write_state).
    fn selective_scan(
        &self,
        layer: usize,
        x: &Tensor,
        dt: &Tensor,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        recurrent::selective_scan(self, layer, x, dt, a, b, c, cache, plan)
    }

    /// Linear attention that forgets, along each sequence and head: `S = exp(g) S`, `S += k vᵀ`, `y = Sᵀ q` (the duality of Dao and Gu
    /// 2024, <https://arxiv.org/abs/2405.21060>: Mamba-2 with `dt x` for `v`, `B` for `k` and `C` for `q`). With `beta` by the gated
    /// delta rule (Yang et al. 2024, <https://arxiv.org/abs/2412.06464>), which adds what the state lacks: `S += k (beta (v - Sᵀ k))ᵀ`.
    /// The layer's state is `S` `[heads, k_dim, v_dim]`. `q`, `k` `[n, key_heads, k_dim]`, `v` `[n, heads, v_dim]`, `g`, `beta`
    /// `[n, heads]` `-> [n, heads, v_dim]`; head `h` reads key head `h / (heads / key_heads)`.
    ///
    /// # Errors
    /// If `heads` are no multiple of `key_heads`, or the state is not of `heads * k_dim * v_dim` elements; else as
    /// [`write_state`](Self::write_state).
    fn linear_attention(
        &self,
        layer: usize,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        g: &Tensor,
        beta: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        recurrent::linear_attention(self, layer, q, k, v, g, beta, cache, plan)
    }

    /// Each row through the experts its router logits favour. `x` `[n, dim]`, `logits` `[n, experts]` `-> [n, dim]`
    ///
    /// # Errors
    /// As [`route`](Self::route) and [`experts`](Self::experts).
    fn moe(&self, x: &Tensor, logits: &Tensor, spec: &RouterSpec, experts: &Experts) -> Result<Tensor> {
        composed::moe(self, x, logits, spec, experts)
    }

    /// The index of the largest element of each row; the lower of equals. NaN counts as the least.
    ///
    /// # Errors
    /// As [`download`](Self::download).
    fn argmax(&self, x: &Tensor) -> Result<Vec<u32>> {
        Ok(self.best(x, 1)?.into_iter().map(|row| row.first().map_or(0, |b| b.0)).collect())
    }

    /// The `k` largest elements of each row with their indices, best first; of equals the lower index. NaN counts as
    /// the least. A sampler that needs few candidates can thus leave the vocabulary on the device.
    ///
    /// # Errors
    /// As [`download`](Self::download).
    fn best(&self, x: &Tensor, k: usize) -> Result<Vec<Vec<(u32, f32)>>> {
        let (values, cols) = (self.download(x)?, x.shape().cols().max(1));
        Ok(values.chunks(cols).map(|row| best_of(row, k)).collect())
    }

    /// `x` with no more left of it than [`best`](Self::best) wants to give `k` of each row, or fewer: `best(&top_k(x, k)?, k)` is `best(&x, k)`.
    /// Nothing is waited for, so a step that is recorded can end with it. Only `best` and `argmax` take the result, whose shape is the
    /// backend's own. By definition all of `x`.
    ///
    /// # Errors
    /// None of its own; those of [all](Self#errors).
    fn top_k(&self, x: Tensor, k: usize) -> Result<Tensor> {
        let _ = k;
        Ok(x)
    }

    /// A copy of `x`, a tensor of `from`. It may be put in the place of `place`, an earlier copy of the same shape, if no one else holds that:
    /// a recorded step that read the one then reads the other.
    ///
    /// # Errors
    /// If `x` is none of `from`, and as [`download`](Self::download) there and [`upload`](Self::upload) here.
    fn bring(&self, x: &Tensor, from: &dyn Backend, place: Option<Tensor>) -> Result<Tensor> {
        drop(place);
        self.upload(&from.download(x)?, x.shape())
    }

    /// Runs `f`, or replays an earlier run recorded under an equal `key` on the
    /// numbers of `plan`. May run it more than once, and give up in its middle: a step reads and writes different slots.
    ///
    /// # Errors
    /// Those of `f`, and of the device that records or replays it.
    fn replay(
        &self,
        key: &StepKey,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let _ = key;
        f(plan)
    }

    /// The step as it should be padded so that `replay` hits: with rows of nobody's, and with outputs behind those that are wanted.
    fn bucket(&self, batch: Batch) -> Batch {
        batch
    }
}

impl dyn Backend {
    /// This backend as a `T`, for an operator of one's own that has a special
    /// case for it.
    pub fn downcast_ref<T: Backend>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}
