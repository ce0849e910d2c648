//! Small descriptions that operators take.
//!
//! Attention's options are a list and not a struct of optional fields: a backend that does not know one must fail, and
//! with a list the compiler makes it say what it does with those it does not know.

use crate::Batch;
use ogive_tensor::{Error, Result, Tensor};
use std::sync::Arc;

/// Elementwise nonlinearities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// The exact form, with the error function.
    Gelu,
    /// The tanh approximation.
    GeluTanh,
    /// `x * sigmoid(1.702 * x)`, the sigmoid approximation of GELU (Hendrycks and Gimpel 2016, <https://arxiv.org/abs/1606.08415>).
    QuickGelu,
    /// Hyperbolic tangent.
    Tanh,
    /// `e^x`
    Exp,
    /// `ln(1 + e^x)`
    Softplus,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `max(0, x)`. What is no number stays none.
    Relu,
    /// `max(0, x)^2` (So et al. 2021, <https://arxiv.org/abs/2109.08668>). What is no number stays none.
    ReluSquared,
    /// xIELU with these numbers (Huang and Schlag 2024, <https://arxiv.org/abs/2411.13010>).
    Xielu(Xielu),
}

/// The numbers of xIELU, which a model learns for each layer: above 0 it is `positive * x^2 + linear * x`, else
/// `negative * (e^min(x, bound) - 1 - x) + linear * x`. Two are the same if their bits are.
#[derive(Clone, Copy, Debug)]
pub struct Xielu {
    /// Of the square above 0.
    pub positive: f32,
    /// Of what the exponential is beside its tangent.
    pub negative: f32,
    /// Of the tangent at 0.
    pub linear: f32,
    /// What the exponent is no more than, a little below 0.
    pub bound: f32,
}

impl Xielu {
    fn bits(self) -> [u32; 4] {
        [self.positive, self.negative, self.linear, self.bound].map(f32::to_bits)
    }
}

impl PartialEq for Xielu {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Xielu {}

/// Which of a row's numbers looks a table up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ids {
    /// The row's token.
    Tokens,
    /// Its position.
    Positions,
    /// Its segment.
    Types,
}

/// Which extent `split` and `concat` work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The first.
    Rows,
    /// The last.
    Cols,
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeLayout {
    /// Element `i` with element `i + n / 2`.
    Halves,
    /// Element `2 i` with its neighbour.
    Pairs,
}

/// A rotary position embedding of the first `2 * inv_freq.len()` elements of a
/// head. Every way of stretching it is another list, not another operator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rope {
    /// Inverse frequency of each pair. On the host, as loaders compute it; a
    /// backend keeps its copy under the address of the `Arc`, holding a clone.
    pub inv_freq: Arc<[f32]>,
    /// Multiplies sine and cosine (YaRN's attention factor).
    pub factor: f32,
    /// Which elements are a pair.
    pub layout: RopeLayout,
    /// What each pair turns by time, down and across: its angle is the sum of a row's three [places](crate::Batch::places), each times its
    /// frequency here (M-RoPE; Wang et al. 2024, <https://arxiv.org/abs/2409.12191>). Where no row's places differ, and where this is
    /// `None`, it is position times `inv_freq`, which is the sum of the three. Kept as `inv_freq` is.
    pub axes: Option<[Arc<[f32]>; 3]>,
}

impl Rope {
    /// Halves, factor 1.
    pub fn new(inv_freq: impl Into<Arc<[f32]>>) -> Self {
        Self { inv_freq: inv_freq.into(), factor: 1.0, layout: RopeLayout::Halves, axes: None }
    }
    /// By several places: the axis of each pair, 0 time, 1 down, 2 across.
    ///
    /// # Errors
    /// If there is not one for each pair, or one is none of these.
    pub fn axes(self, axes: &[u8]) -> Result<Self> {
        if axes.len() != self.inv_freq.len() || axes.iter().any(|axis| *axis > 2) {
            let (n, pairs) = (axes.len(), self.inv_freq.len());
            let why = format!(
                "{n} axes, of which there are 0 to 2, for {pairs} pairs; there should be one for each"
            );
            return Err(Error::invalid("rope", why));
        }
        let of = |axis: u8| {
            let own = self.inv_freq.iter().zip(axes).map(|(f, of)| if *of == axis { *f } else { 0.0 });
            own.collect()
        };
        Ok(Self { axes: Some([of(0), of(1), of(2)]), ..self })
    }
    /// Another layout.
    #[must_use]
    pub fn layout(self, layout: RopeLayout) -> Self {
        Self { layout, ..self }
    }
    /// Another factor.
    #[must_use]
    pub fn factor(self, factor: f32) -> Self {
        Self { factor, ..self }
    }
    /// The frequencies by place, where rows of the step have places that differ.
    ///
    /// # Errors
    /// If there is not one by each for each pair.
    pub fn axes_in(&self, batch: &Batch) -> Result<Option<&[Arc<[f32]>; 3]>> {
        let Some(axes) = self.axes.as_ref().filter(|_| !batch.places.is_empty()) else { return Ok(None) };
        if axes.iter().any(|of| of.len() != self.inv_freq.len()) {
            let (n, pairs) = (axes.each_ref().map(|of| of.len()), self.inv_freq.len());
            return Err(Error::invalid(
                "rope",
                format!("frequencies of {n:?} pairs by place, and {pairs} by position"),
            ));
        }
        Ok(Some(axes))
    }
}

/// What attention may do besides scale, softmax and sum. A backend that does
/// not know one must fail.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AttnOption {
    /// A query sees no later token.
    Causal,
    /// Beside [`Causal`](Self::Causal): rows that came in together and see each other to both sides ([`Vectors::mutual`](crate::Vectors::mutual))
    /// see all of these. [`Batch::mutual`](crate::Batch::mutual) counts them.
    Mutual,
    /// A query sees this many tokens back, itself included.
    Window(usize),
    /// A query sees no more than this many tokens behind its own place: with a [`Window`](Self::Window), and without [`Causal`](Self::Causal), what is
    /// around it ([`AttnSpec::around`]).
    Ahead(usize),
    /// Sequences are cut into chunks of this many tokens, and a query sees none before its own (as Llama 4 has it). A chunk of 0 is one of 1.
    Chunk(usize),
    /// `cap * tanh(score / cap)`
    SoftCap(f32),
    /// One score for each head that takes part in the softmax only.
    Sinks(Tensor),
    /// A slope for each head; slope times distance is subtracted (Press et al. 2021, <https://arxiv.org/abs/2108.12409>).
    Alibi(Arc<[f32]>),
    /// Added to the scores: a row for each row of the step, a column for each token of the longest context.
    /// `[n, longest context]`
    Mask(Tensor),
    /// One a stranger's backend knows by name.
    Other(&'static str),
}

/// The shape and options of one attention layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttnSpec {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a query or key head.
    pub k_dim: usize,
    /// Elements of a value head.
    pub v_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Everything else, in the order it is applied.
    pub options: Vec<AttnOption>,
}

impl AttnSpec {
    /// Causal attention with the usual scale.
    pub fn causal(heads: usize, kv_heads: usize, dim: usize) -> Self {
        Self::new(heads, kv_heads, dim, dim).with(AttnOption::Causal)
    }
    /// Every query sees every key.
    pub fn new(heads: usize, kv_heads: usize, k_dim: usize, v_dim: usize) -> Self {
        Self { heads, kv_heads, k_dim, v_dim, scale: (k_dim as f32).powf(-0.5), options: Vec::new() }
    }
    /// One option more.
    #[must_use]
    pub fn with(mut self, option: AttnOption) -> Self {
        self.options.push(option);
        self
    }
    /// Another scale.
    #[must_use]
    pub fn scale(self, scale: f32) -> Self {
        Self { scale, ..self }
    }
    /// The window, if there is one.
    pub fn window(&self) -> Option<usize> {
        self.options.iter().find_map(|o| if let AttnOption::Window(w) = o { Some(*w) } else { None })
    }
    /// A query sees so many tokens before and so many behind it, and itself.
    #[must_use]
    pub fn around(self, reach: usize) -> Self {
        self.with(AttnOption::Window(reach.saturating_add(1))).with(AttnOption::Ahead(reach))
    }
    /// How many tokens behind its own place a query sees at most, if that is bounded by an option.
    pub fn ahead(&self) -> Option<usize> {
        self.options.iter().find_map(|o| if let AttnOption::Ahead(n) = o { Some(*n) } else { None })
    }
    /// Whether a query sees no later token, but for those that it came in with.
    pub fn looks_back(&self) -> bool {
        self.options.iter().any(|o| matches!(o, AttnOption::Causal))
    }
    /// What is seen beyond the query's own place in a step with these rows, where options say so.
    pub fn mutual(&self, batch: &Batch) -> Option<Vec<usize>> {
        self.options.iter().any(|o| matches!(o, AttnOption::Mutual)).then(|| batch.mutual()).flatten()
    }
    /// The length of the chunks that sequences are cut into, if they are.
    pub fn chunk(&self) -> Option<usize> {
        self.options.iter().find_map(|o| if let AttnOption::Chunk(n) = o { Some((*n).max(1)) } else { None })
    }
    /// How many tokens back a query sees at most, itself included, if that is bounded: by a window, or by a chunk that is all behind it.
    pub fn reach(&self) -> Option<usize> {
        self.window().into_iter().chain(self.chunk()).min()
    }
    /// The tokens that a query at position `here` of a context of `context` sees, by the options that say so.
    pub fn visible(&self, here: usize, context: usize) -> std::ops::Range<usize> {
        self.visible_until(here, here + 1, context)
    }
    /// The same of a query that sees tokens before `until`, where it looks back: its own place or, of those that came in together, the last one's.
    pub fn visible_until(&self, here: usize, until: usize, context: usize) -> std::ops::Range<usize> {
        let end = if self.looks_back() { context.min(until) } else { context };
        let end = self.ahead().map_or(end, |n| end.min((here + 1).saturating_add(n)));
        let begin = self.window().map_or(0, |w| (here + 1).saturating_sub(w));
        let begin = begin.max(self.chunk().map_or(0, |n| here - here % n));
        begin.min(end)..end
    }
}
