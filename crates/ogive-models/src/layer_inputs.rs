//! Inputs of layers (per-layer embeddings, as Gemma 3n and Gemma 4's smaller models have them): beside its embedding each token has a short
//! vector for each layer, half of it from a table of its own and half from the embedding. After its MLP a layer gates it by the stream and
//! adds what comes of that.
//!
//! The table has a row of all layers for each token, several times what the embeddings take. It is read as those are, a row for each token of
//! the step, and stays as it is packed; so the rows of all layers are looked up at once and cut then.

use crate::class::Class;
use ogive_nn::backend::{Activation, Axis};
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Config, Embedding, Linear, Loader, RmsNorm, Step};

/// The inputs of all layers.
#[derive(Debug)]
pub(crate) struct LayerInputs {
    table: Embedding,
    table_scale: Tensor,
    projection: Linear,
    norm: RmsNorm,
    /// What makes the sum of both as large as each.
    half: Tensor,
    layers: usize,
    width: usize,
}

impl LayerInputs {
    /// Reads those of `width` elements for each layer.
    ///
    /// # Errors
    /// If the table or the projection are not as wide as all layers' inputs together.
    pub(crate) fn load(class: &Class, c: &Config, l: &Loader<'_>, width: usize, eps: f32) -> Result<Self> {
        let layers = c.usize("num_hidden_layers")?;
        let table = l.lookup("embed_tokens_per_layer")?;
        // transformers 4.57 saves a text by itself with `model.language_model` in place of each `model`, this one too.
        let projection = match l.optional(l.linear("per_layer_model.language_model_projection"))? {
            Some(projection) => projection,
            None => l.linear("per_layer_model_projection")?,
        };
        let found = [table.weight.shape()[2], projection.weight.shape()[1]];
        if found.iter().any(|found| Some(*found) != layers.checked_mul(width)) {
            let why = format!("inputs of {found:?} elements are not {layers} of {width}, one for each layer");
            return Err(Error::invalid(
                &table.name,
                format!("{why}; do weights and config belong together?"),
            ));
        }
        Ok(Self {
            table,
            table_scale: l.constant((width as f32).sqrt())?,
            projection: projection.scaled(l, (c.usize("hidden_size")? as f32).sqrt().recip(), &[1.0])?,
            norm: (class.norm)(l, "per_layer_projection_norm", eps)?,
            half: l.constant(0.5_f32.sqrt())?,
            layers,
            width,
        })
    }

    /// How many tokens there are inputs for.
    pub(crate) fn rows(&self) -> usize {
        self.table.rows()
    }

    /// An input for each layer, given the embeddings. `[n, dim] -> [n, width]` each
    pub(crate) fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Vec<Tensor>> {
        let (b, n) = (s.backend, x.shape().rows());
        let apart = |of_all: Tensor| of_all.reshape([n, self.layers, self.width]);
        let of_token = apart(b.mul(self.table.forward(s)?, &self.table_scale)?)?;
        let of_embedding = self.norm.forward(s, &apart(self.projection.forward(s, x)?)?)?;
        let both =
            b.mul(b.add(of_embedding, &of_token)?, &self.half)?.reshape([n, self.layers * self.width])?;
        b.split(&both, Axis::Cols, &vec![self.width; self.layers])
    }
}

/// What a layer makes of its input.
#[derive(Debug)]
pub(crate) struct OfLayer {
    gate: Linear,
    projection: Linear,
    norm: RmsNorm,
    activation: Activation,
}

impl OfLayer {
    pub(crate) fn load(class: &Class, l: &Loader<'_>, activation: Activation, eps: f32) -> Result<Self> {
        Ok(Self {
            gate: l.linear("per_layer_input_gate")?,
            projection: l.linear("per_layer_projection")?,
            norm: (class.norm)(l, "post_per_layer_input_norm", eps)?,
            activation,
        })
    }

    /// What is added to the stream. `[n, dim], [n, width] -> [n, dim]`
    pub(crate) fn forward(&self, s: &Step<'_>, x: &Tensor, input: &Tensor) -> Result<Tensor> {
        let gated = s.backend.gated(self.gate.forward(s, x)?, input, self.activation)?;
        self.norm.forward(s, &self.projection.forward(s, &gated)?)
    }
}
