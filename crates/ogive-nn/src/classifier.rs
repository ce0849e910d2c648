//! Models that judge texts and not what comes next: what of a text is looked at, and the layers behind it.
//!
//! A wrapper around a model and not a part of one: an architecture is the same with such a head and without it, so its file need not know of
//! heads, and whoever has an encoder of their own has its classifiers too.

use crate::backend::Activation;
use crate::tensor::{Result, Tensor};
use crate::wrapped::as_wrapped;
use crate::{LayerNorm, Linear, Model, Step};

/// Which of a text's hidden states its vector is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooling {
    /// The mean of all.
    #[default]
    Mean,
    /// The first token's: BERT's `[CLS]`.
    Cls,
    /// The last token's, the only one that has seen the whole text in a model that looks back.
    Last,
}

/// A model with a head for classes of texts: a layer and an activation, where it has them, and a score for each class. Of one class, as rerankers have, the score says
/// how well a text answers another.
#[derive(Debug)]
pub struct Classifier {
    model: Box<dyn Model>,
    pooling: Pooling,
    padding: Option<u32>,
    dense: Option<(Linear, Activation)>,
    norm: Option<LayerNorm>,
    out: Linear,
}

impl Classifier {
    /// `model`, whose states are pooled so, with `dense` `[dim, dim]`, an activation and `out` `[classes, dim]` behind it.
    pub fn new(
        model: Box<dyn Model>,
        pooling: Pooling,
        dense: Linear,
        activation: Activation,
        out: Linear,
    ) -> Self {
        Self { model, pooling, padding: None, dense: Some((dense, activation)), norm: None, out }
    }

    /// `model` with `out` `[classes, dim]` behind its pooled states and nothing between, as transformers' decoders have it.
    pub fn bare(model: Box<dyn Model>, pooling: Pooling, out: Linear) -> Self {
        Self { model, pooling, padding: None, dense: None, norm: None, out }
    }

    /// The same where this token is [passed over](Model::padding) at the end of a text.
    #[must_use]
    pub fn padded(self, padding: Option<u32>) -> Self {
        Self { padding, ..self }
    }

    /// The same with a norm behind the activation.
    #[must_use]
    pub fn normed(self, norm: LayerNorm) -> Self {
        Self { norm: Some(norm), ..self }
    }
}

impl Model for Classifier {
    as_wrapped!(model);

    fn judges(&self) -> Option<Pooling> {
        Some(self.pooling)
    }

    fn padding(&self) -> Option<u32> {
        self.padding
    }

    fn classes(&self, s: &Step<'_>, pooled: Tensor) -> Result<Tensor> {
        let x = match &self.dense {
            Some((dense, f)) => s.backend.activate(dense.forward(s, &pooled)?, *f)?, // [texts, dim]
            None => pooled,
        };
        let x = self.norm.as_ref().map_or_else(|| Ok(x.clone()), |norm| norm.forward(s, &x))?;
        self.out.forward(s, &x) // [texts, classes]
    }
}
