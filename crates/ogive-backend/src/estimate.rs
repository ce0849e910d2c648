//! A backend that holds nothing and computes nothing: it counts what loading a model and running its steps would take.
//!
//! Building a model on it runs the same code as loading it, so the estimate cannot drift from what loading does; and a
//! model built on it can tell its cache layout, which only a built model knows. A step that is run on it takes the tensors that a real
//! one takes, for as long.

use crate::ledger::{Attended, Ledger, Mixed, Multiplied, Piece, sum};
use crate::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts the bytes of weights and small tensors that a model uploads, and of the tensors that its steps need. Operators give tensors
/// of the right shape without elements; what needs values (`download`) is an error.
#[derive(Debug, Default)]
pub struct Estimate {
    /// What each is kept in, in the order they came.
    weights: Mutex<Vec<u64>>,
    tensors: AtomicU64,
    reserved: AtomicU64,
    /// Whether there was a weight of several.
    has_experts: AtomicBool,
    sizes: Sizes,
    ledger: Ledger,
}

/// What a weight of an estimate holds.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    factors: Option<usize>,
    ordered: bool,
}

impl Estimate {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }
    /// The same for a backend that rounds what it takes.
    pub fn of(sizes: Sizes) -> Self {
        Self { sizes, ..Self::default() }
    }
    /// Bytes of all caches so far.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }
    /// Bytes that a cache would take; `None` where they cannot be counted.
    pub fn cache_bytes(&self, spec: &CacheSpec) -> Option<u64> {
        (self.sizes.cache)(spec)
    }
    /// What the tensors of `step` take, its result included.
    ///
    /// # Errors
    /// Those of `step`.
    pub fn activations(&self, step: impl FnOnce() -> Result<Tensor>) -> Result<Activations> {
        Ok(Self::activations_of(&[self], step)?.pop().unwrap_or_default())
    }
    /// The same of a step over several parts: what the tensors of each take, whoever computes what.
    ///
    /// # Errors
    /// Those of `step`.
    pub fn activations_of(
        parts: &[&Self],
        step: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Vec<Activations>> {
        parts.iter().for_each(|part| part.ledger.begin());
        let result = step()?;
        let counted = parts.iter().map(|part| part.ledger.end()).collect();
        drop(result);
        Ok(counted)
    }
    /// Bytes taken for all packed weights so far; one that is uploaded twice counts twice.
    pub fn weight_bytes(&self) -> u64 {
        self.sizes.of_weights(&self.weights())
    }
    /// Bytes that they are kept in, each by itself: less, where they share what is taken.
    pub fn packed_bytes(&self) -> u64 {
        sum(&self.weights())
    }
    /// Bytes of all small tensors so far, as single precision.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.load(Ordering::Relaxed)
    }
}

impl Estimate {
    fn weights(&self) -> MutexGuard<'_, Vec<u64>> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hollow(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        Ok(self.ledger.take(shape, self.size(shape)))
    }

    fn size(&self, shape: Shape) -> u64 {
        (self.sizes.piece)(shape.dims().iter().fold(4u64, |n, d| n.saturating_mul(*d as u64)))
    }

    /// `x` itself where it may be overwritten.
    fn in_place(&self, mut x: Tensor) -> Result<Tensor> {
        match x.data_mut::<Piece>() {
            Some(piece) => {
                piece.beside = None;
                piece.kind = None;
                Ok(x)
            }
            None => self.hollow(x.shape()),
        }
    }

    fn attended(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let y = self.hollow([q.shape().first(), spec.heads * spec.v_dim])?;
        let (layer, element) = (cache.spec().owner(layer)?.1, cache.spec().element);
        match self.sizes.beside_attention(&Attended { spec, batch: plan.batch(), layer, element }) {
            0 => {}
            bytes => drop(self.ledger.take([1].into(), bytes)),
        }
        Ok(y)
    }

    /// The shape of the operand that has all elements already, else rows of the one and columns of the other.
    fn broadcast(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        let (a, b) = (x.shape(), y.shape());
        let (rows, cols) = (a.rows().max(b.rows()), a.cols().max(b.cols()));
        let whole = [a, b].into_iter().find(|s| (s.rows(), s.cols()) == (rows, cols));
        let shape = whole.unwrap_or([rows, cols].into());
        if shape == a { self.in_place(x) } else { self.hollow(shape) }
    }
}

/// Rows of `x` that meet `w`.
fn multiplied(x: &Tensor, w: &Weight) -> Multiplied {
    // A weight of another backend's is none of ours, and is not counted.
    let Held { factors, ordered } = w.data().copied().unwrap_or_default();
    let gated = x.data::<Piece>().ok().and_then(|x| x.kind);
    let normed = gated.is_none() && x.data::<Piece>().is_ok_and(|x| x.beside.is_some());
    Multiplied {
        rows: x.shape().rows(),
        shape: w.shape(),
        format: w.format(),
        factors,
        ordered,
        normed,
        gated,
    }
}

fn no_values<T>(at: &str) -> Result<T> {
    Err(Error::unsupported(at, "an estimate has no values"))
}

impl Backend for Estimate {
    fn facts(&self) -> Facts {
        Facts::new("estimate", "counts memory, computes nothing")
    }
    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor> {
        self.tensors.fetch_add((self.sizes.piece)(4 * values.len() as u64), Ordering::Relaxed);
        // Counted already, and there to stay.
        Ok(Tensor::new(shape, ()))
    }
    fn download(&self, _: &Tensor) -> Result<Vec<f32>> {
        no_values("download")
    }
    fn upload_weight(&self, w: &HostWeight) -> Result<Weight> {
        self.weights().push((self.sizes.weight)(w));
        if w.shape[0] > 1 {
            self.has_experts.store(true, Ordering::Relaxed);
        }
        let factors = w.scale.as_ref().map(|scale| scale.tile[1]);
        let held = Held { factors, ordered: w.input_perm.is_some() };
        Ok(Weight::new(w, held).with_unpacked(self.sizes.why_unpacked(w)))
    }
    fn new_cache(&self, spec: &CacheSpec) -> Result<Cache> {
        spec.check()?;
        let bytes = (self.sizes.cache)(spec)
            .ok_or_else(|| Error::invalid("cache", "more bytes than can be counted"))?;
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        Ok(Cache::new(spec.clone(), ()))
    }
    fn plan(&self, batch: Batch) -> Result<Plan> {
        Ok(Plan::new(batch, ()))
    }
    fn bucket(&self, batch: Batch) -> Batch {
        self.sizes.fill(batch, self.has_experts.load(Ordering::Relaxed))
    }
    fn embed(&self, table: &Weight, _: Ids, plan: &Plan) -> Result<Tensor> {
        self.hollow([plan.batch().tokens.len(), table.shape()[2]])
    }
    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor> {
        let y = self.hollow(x.shape().with_cols(w.shape()[1]))?;
        match self.sizes.beside(&multiplied(x, w)) {
            0 => {}
            bytes => drop(self.ledger.take([1].into(), bytes)),
        }
        Ok(y)
    }
    fn rms_norm(&self, x: &Tensor, _: &Tensor, _: f32) -> Result<Tensor> {
        let shape = x.shape();
        Ok(self.ledger.take_normed(shape, self.size(shape), self.sizes.beside_norm(shape)))
    }
    fn layer_norm(&self, x: &Tensor, _: &Tensor, _: Option<&Tensor>, _: f32) -> Result<Tensor> {
        self.hollow(x.shape())
    }
    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        self.broadcast(x, y)
    }
    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        self.broadcast(x, y)
    }
    fn sum(&self, x: &Tensor) -> Result<Tensor> {
        self.hollow(x.shape().with_cols(1))
    }
    fn activate(&self, x: Tensor, _: Activation) -> Result<Tensor> {
        self.in_place(x)
    }
    fn split(&self, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
        let part = |&n: &usize| match axis {
            Axis::Rows => self.hollow(x.shape().with_first(n)),
            Axis::Cols => self.hollow(x.shape().with_cols(n)),
        };
        sizes.iter().map(part).collect()
    }
    fn concat(&self, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
        let first = xs.first().ok_or_else(|| Error::invalid("concat", "nothing to lay end to end"))?.shape();
        match axis {
            Axis::Rows => self.hollow(first.with_first(xs.iter().map(|x| x.shape().first()).sum())),
            Axis::Cols => self.hollow(first.with_cols(xs.iter().map(|x| x.shape().cols()).sum())),
        }
    }
    fn rope(&self, x: Tensor, _: &Rope, _: &Plan) -> Result<Tensor> {
        self.in_place(x)
    }
    fn store_kv(&self, _: usize, _: &Tensor, _: Option<&Tensor>, _: &Cache, _: &Plan) -> Result<()> {
        Ok(())
    }
    fn gather_kv(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        match cache.spec().owner(layer)? {
            (_, LayerCache::Paged { k_dim, v_dim, .. }) => {
                let n = plan.batch().contexts();
                Ok((self.hollow([n, k_dim])?, if v_dim > 0 { Some(self.hollow([n, v_dim])?) } else { None }))
            }
            _ => Err(Error::invalid("gather_kv", format!("layer {layer} has no pages"))),
        }
    }
    fn attend(&self, q: &Tensor, _: &Tensor, _: &Tensor, spec: &AttnSpec, _: &Plan) -> Result<Tensor> {
        self.hollow([q.shape().first(), spec.heads * spec.v_dim])
    }
    fn copy_blocks(&self, _: &Cache, _: &Plan) -> Result<()> {
        Ok(())
    }
    fn read_state(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
        match cache.spec().owner(layer)? {
            (_, LayerCache::State { len }) => self.hollow([plan.batch().spans.len(), len]),
            _ => Err(Error::invalid("read_state", format!("layer {layer} has no state"))),
        }
    }
    fn write_state(&self, _: usize, _: &Tensor, _: &Cache, _: &Plan) -> Result<()> {
        Ok(())
    }
    fn route(&self, logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
        let shape = logits.shape().with_cols(spec.k);
        Ok(Routing { ids: self.hollow(shape)?, weights: self.hollow(shape)? })
    }
    fn experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
        let (up, down) = (multiplied(x, &experts.up), multiplied(x, &experts.down));
        let gate = experts.gate.as_ref().map(|gate| multiplied(x, gate));
        let mixed = Mixed { k: routing.ids.shape().cols(), gate, up, down };
        let _beside = match self.sizes.beside_mixture(&mixed) {
            Some(bytes) => self.ledger.take([1].into(), bytes),
            // What lies between the two halves.
            None => self.hollow([routing.ids.shape().len(), experts.up.shape()[1]])?,
        };
        self.hollow(x.shape())
    }
    fn outputs(&self, x: &Tensor, plan: &Plan) -> Result<Tensor> {
        self.hollow(x.shape().with_first(plan.batch().outputs.len()))
    }
    fn bring(&self, x: &Tensor, _: &dyn Backend, place: Option<Tensor>) -> Result<Tensor> {
        match place.filter(|there| there.shape() == x.shape()) {
            Some(there) => Ok(there),
            None => self.hollow(x.shape()),
        }
    }
    fn linear_gated(&self, x: &Tensor, gate: &Weight, up: &Weight, f: Activation) -> Result<Tensor> {
        let of = [gate, up].map(|w| multiplied(x, w));
        let (gate, up) = (self.linear(x, gate)?, self.linear(x, up)?);
        let y = self.gated(gate, &up, f)?;
        Ok(match self.sizes.beside_gated(of.each_ref()) {
            Some(left) => self.ledger.leave(y, left),
            None => y,
        })
    }
    // A backend that runs models attends over the pages where they lie; the definition would lay them end to end first.
    fn attend_cache(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        self.attended(layer, q, cache, spec, plan)
    }
    fn attend_latent(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        self.attended(layer, q, cache, spec, plan)
    }
    // Such a backend also goes over the states where they lie, in one pass.
    fn causal_conv(&self, _: usize, x: &Tensor, _: &Tensor, _: &Cache, _: &Plan) -> Result<Tensor> {
        self.hollow(x.shape())
    }
    fn selective_scan(
        &self,
        _: usize,
        x: &Tensor,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        _: &Cache,
        _: &Plan,
    ) -> Result<Tensor> {
        self.hollow(x.shape())
    }
    fn linear_attention(
        &self,
        _: usize,
        _: &Tensor,
        _: &Tensor,
        v: &Tensor,
        _: &Tensor,
        _: Option<&Tensor>,
        _: &Cache,
        _: &Plan,
    ) -> Result<Tensor> {
        self.hollow(v.shape())
    }
}
