//! What an estimate counts tensors in: bytes that are taken now, the most that ever were, and what a pool would keep.
//!
//! Tensors give their bytes back when they are dropped, as on a device. So the peak is that of the model's own code, whatever it keeps
//! and for how long, and no formula has to be kept in step with it.

use crate::{AttnSpec, Batch, CacheSpec, HostWeight, LayerCache};
use ogive_tensor::{Format, Shape, Tensor, Unpacked};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A product with a weight, for [`Sizes::product`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Multiplied {
    /// Rows of the input.
    pub rows: usize,
    /// The weight: `[experts, out, in]`
    pub shape: [usize; 3],
    /// How the file has it packed.
    pub format: &'static Format,
    /// Of how many columns each, if factors stand beside its elements.
    pub factors: Option<usize>,
    /// Whether its columns are in another order than the input's (act-order).
    pub ordered: bool,
    /// Whether the input is what an RMS norm gave, with what [`Sizes::norm`] says beside it.
    pub normed: bool,
    /// What gating left beside the input ([`Sizes::gated`]), if it is there: [`Left::kind`].
    pub gated: Option<&'static str>,
}

/// What an operator leaves beside its result for the products that come, until the result is dropped or overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Bytes that it takes.
    pub bytes: u64,
    /// By the backend's own names: which products it is for.
    pub kind: &'static str,
}

impl Left {
    /// So many bytes of this kind.
    pub fn new(bytes: u64, kind: &'static str) -> Self {
        Self { bytes, kind }
    }
}

/// A mixture of experts, for [`Sizes::mixture`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Mixed {
    /// Experts of a row.
    pub k: usize,
    /// What the rows of the input meet first; `None` for experts without a gate.
    pub gate: Option<Multiplied>,
    /// Beside it.
    pub up: Multiplied,
    /// What comes of both meets this.
    pub down: Multiplied,
}

impl Mixed {
    /// The gate, if there is one, up and down.
    pub fn weights(&self) -> Vec<Multiplied> {
        self.gate.into_iter().chain([self.up, self.down]).collect()
    }
}

/// Attention over the paged cache, for [`Sizes::attention`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Attended<'a> {
    /// Heads and options.
    pub spec: &'a AttnSpec,
    /// The step: its rows, and how long their contexts are.
    pub batch: &'a Batch,
    /// What the cache keeps of the layer.
    pub layer: LayerCache,
    /// In which elements.
    pub element: &'static Format,
}

/// Bytes that a product takes beside its result.
type Product = Arc<dyn Fn(&Multiplied) -> u64 + Send + Sync>;

/// Bytes that a norm leaves beside its result.
type Norm = Arc<dyn Fn(Shape) -> u64 + Send + Sync>;

/// What is left beside the gated product of two weights.
type Gated = Arc<dyn Fn([&Multiplied; 2]) -> Option<Left> + Send + Sync>;

/// Bytes that a mixture takes beside its result.
type Mixture = Arc<dyn Fn(&Mixed) -> u64 + Send + Sync>;

/// Bytes that attention takes beside its result.
type Attention = Arc<dyn Fn(&Attended<'_>) -> u64 + Send + Sync>;

/// A step with what it is filled up with.
type Filled = Arc<dyn Fn(Batch, bool) -> Batch + Send + Sync>;

/// How much a backend takes for what it is given. By default as much as there is.
#[derive(Clone)]
#[non_exhaustive]
pub struct Sizes {
    /// Bytes taken for so many bytes of values.
    pub piece: fn(u64) -> u64,
    /// Bytes a weight is kept in.
    pub weight: fn(&HostWeight) -> u64,
    /// Bytes a cache is kept in; `None` where that cannot be counted.
    pub cache: fn(&CacheSpec) -> Option<u64>,
    product: Option<Product>,
    mixture: Option<Mixture>,
    norm: Option<Norm>,
    gated: Option<Gated>,
    weights: Option<fn(&[u64]) -> u64>,
    attention: Option<Attention>,
    unpacked: Option<fn(&HostWeight) -> Option<Unpacked>>,
    filled: Option<Filled>,
}

impl fmt::Debug for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = [
            self.product.is_some(),
            self.mixture.is_some(),
            self.norm.is_some(),
            self.gated.is_some(),
            self.weights.is_some(),
            self.attention.is_some(),
            self.unpacked.is_some(),
            self.filled.is_some(),
        ];
        let mut all = f.debug_struct("Sizes");
        let names = ["product", "mixture", "norm", "gated", "weights", "attention", "unpacked", "filled"];
        for (name, asked) in names.into_iter().zip(asked) {
            all.field(name, &asked);
        }
        all.finish_non_exhaustive()
    }
}

impl Default for Sizes {
    fn default() -> Self {
        let bytes = |spec: &CacheSpec| spec.bytes().map(|n| n as u64);
        Self::new(|bytes| bytes, |w| w.bytes.len() as u64, bytes)
    }
}

impl Sizes {
    /// Those of a backend that rounds.
    pub fn new(
        piece: fn(u64) -> u64,
        weight: fn(&HostWeight) -> u64,
        cache: fn(&CacheSpec) -> Option<u64>,
    ) -> Self {
        Self {
            piece,
            weight,
            cache,
            product: None,
            mixture: None,
            norm: None,
            gated: None,
            weights: None,
            attention: None,
            unpacked: None,
            filled: None,
        }
    }

    /// The same, of a backend whose products take memory beside their results while they are computed: so many bytes.
    #[must_use]
    pub fn product(self, bytes: impl Fn(&Multiplied) -> u64 + Send + Sync + 'static) -> Self {
        Self { product: Some(Arc::new(bytes)), ..self }
    }

    /// The same, of a backend whose mixtures of experts take so many bytes beside their results while they are computed, and not what lies
    /// between the two halves in single precision.
    #[must_use]
    pub fn mixture(self, bytes: impl Fn(&Mixed) -> u64 + Send + Sync + 'static) -> Self {
        Self { mixture: Some(Arc::new(bytes)), ..self }
    }

    /// The same, of a backend whose RMS norms leave so many bytes beside a result of this shape, for the products that come: until the
    /// result is dropped or overwritten.
    #[must_use]
    pub fn norm(self, bytes: impl Fn(Shape) -> u64 + Send + Sync + 'static) -> Self {
        Self { norm: Some(Arc::new(bytes)), ..self }
    }

    /// The same, of a backend whose [`linear_gated`](crate::Backend::linear_gated) leaves this beside its result, by what meets the gate's and the
    /// other weight, for the products that come: until the result is dropped or overwritten.
    #[must_use]
    pub fn gated(self, left: impl Fn([&Multiplied; 2]) -> Option<Left> + Send + Sync + 'static) -> Self {
        Self { gated: Some(Arc::new(left)), ..self }
    }

    /// What gating leaves beside its result.
    pub(crate) fn beside_gated(&self, of: [&Multiplied; 2]) -> Option<Left> {
        self.gated.as_ref().and_then(|left| left(of))
    }

    /// The same, of a backend that lays weights in memory which they share: it takes so many bytes for weights kept in so many each, in the
    /// order in which they come.
    #[must_use]
    pub fn weights(self, bytes: fn(&[u64]) -> u64) -> Self {
        Self { weights: Some(bytes), ..self }
    }

    /// Bytes that are taken for weights.
    pub(crate) fn of_weights(&self, each: &[u64]) -> u64 {
        self.weights.map_or_else(|| sum(each), |bytes| bytes(each))
    }

    /// The same, of a backend whose attention over the cache takes so many bytes beside its result while it is computed.
    #[must_use]
    pub fn attention(self, bytes: impl Fn(&Attended<'_>) -> u64 + Send + Sync + 'static) -> Self {
        Self { attention: Some(Arc::new(bytes)), ..self }
    }

    /// The same, of a backend that says which weights it cannot keep as packed as they come ([`Weight::with_unpacked`](crate::Weight::with_unpacked)).
    #[must_use]
    pub fn unpacked(self, of: fn(&HostWeight) -> Option<Unpacked>) -> Self {
        Self { unpacked: Some(of), ..self }
    }

    /// The same, of a backend that fills steps up ([`Backend::bucket`](crate::Backend::bucket)): gets a step, and whether a weight that came
    /// had several experts.
    #[must_use]
    pub fn filled(self, fill: impl Fn(Batch, bool) -> Batch + Send + Sync + 'static) -> Self {
        Self { filled: Some(Arc::new(fill)), ..self }
    }

    /// The step as it is run.
    pub(crate) fn fill(&self, batch: Batch, has_experts: bool) -> Batch {
        match &self.filled {
            Some(fill) => fill(batch, has_experts),
            None => batch,
        }
    }

    /// What the file has instead, where a weight is not kept as packed as there.
    pub(crate) fn why_unpacked(&self, w: &HostWeight) -> Option<Unpacked> {
        self.unpacked.map_or_else(|| w.unpacked.clone(), |of| of(w))
    }

    /// Bytes that attention takes beside its result.
    pub(crate) fn beside_attention(&self, attended: &Attended<'_>) -> u64 {
        self.attention.as_ref().map_or(0, |bytes| bytes(attended))
    }

    /// Bytes that a norm leaves beside its result.
    pub(crate) fn beside_norm(&self, shape: Shape) -> u64 {
        self.norm.as_ref().map_or(0, |bytes| bytes(shape))
    }

    /// Bytes that a mixture takes beside its result, if the backend says so.
    pub(crate) fn beside_mixture(&self, mixed: &Mixed) -> Option<u64> {
        self.mixture.as_ref().map(|bytes| bytes(mixed))
    }

    /// Bytes that a product takes beside its result.
    pub(crate) fn beside(&self, product: &Multiplied) -> u64 {
        self.product.as_ref().map_or(0, |bytes| bytes(product))
    }
}

/// All of them, or more than can be counted.
pub(crate) fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// Bytes of a step's tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activations {
    /// The most that were taken at a time.
    pub peak: u64,
    /// What a pool then has in which each piece serves only tensors of its own size.
    pub kept: u64,
}

#[derive(Debug, Default)]
struct Counts {
    now: u64,
    peak: u64,
    /// Pieces of each size: now, and the most.
    pieces: BTreeMap<u64, [u64; 2]>,
}

/// Counts tensors.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Counts>>);

/// What a tensor of an estimate holds: nothing, but it is counted while it lives.
#[derive(Debug)]
pub(crate) struct Piece {
    size: u64,
    counts: Arc<Mutex<Counts>>,
    /// What a norm or gating left beside it.
    pub(crate) beside: Option<Box<Self>>,
    /// Of which kind, if it was gating.
    pub(crate) kind: Option<&'static str>,
}

impl Ledger {
    /// A tensor of so many bytes.
    pub(crate) fn take(&self, shape: Shape, size: u64) -> Tensor {
        Tensor::new(shape, self.piece(size))
    }

    /// The same with as much beside it as a norm leaves.
    pub(crate) fn take_normed(&self, shape: Shape, size: u64, beside: u64) -> Tensor {
        let mut piece = self.piece(size);
        piece.beside = (beside > 0).then(|| Box::new(self.piece(beside)));
        Tensor::new(shape, piece)
    }

    fn piece(&self, size: u64) -> Piece {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.now = counts.now.saturating_add(size);
        counts.peak = counts.peak.max(counts.now);
        let [now, most] = counts.pieces.entry(size).or_default();
        *now += 1;
        *most = (*most).max(*now);
        drop(counts);
        Piece { size, counts: Arc::clone(&self.0), beside: None, kind: None }
    }

    /// `x` with what gating left beside it, if no one else holds it.
    pub(crate) fn leave(&self, mut x: Tensor, left: Left) -> Tensor {
        if let Some(piece) = x.data_mut::<Piece>() {
            piece.beside = Some(Box::new(self.piece(left.bytes)));
            piece.kind = Some(left.kind);
        }
        x
    }

    /// Begins anew; what is taken stays taken.
    pub(crate) fn begin(&self) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.peak = counts.now;
        counts.pieces.retain(|_, [now, _]| *now > 0);
        counts.pieces.values_mut().for_each(|[now, most]| *most = *now);
    }

    /// What was counted since.
    pub(crate) fn end(&self) -> Activations {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = |(size, [_, most]): (&u64, &[u64; 2])| size.saturating_mul(*most);
        Activations { peak: counts.peak, kept: counts.pieces.iter().map(kept).sum() }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.now = counts.now.saturating_sub(self.size);
        if let Some([now, _]) = counts.pieces.get_mut(&self.size) {
            *now = now.saturating_sub(1);
        }
    }
}
