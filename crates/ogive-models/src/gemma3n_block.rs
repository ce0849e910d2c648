//! A block of Gemma 3n: what is predicted of all streams, what attention, the learned residual (Laurel) and the MLP make of the active one, what
//! the others are corrected by, and the layer's own input, which goes to all streams but the first.

use crate::{class::LLAMA, layer_inputs::OfLayer};
use ogive_nn::backend::{Activation, LayerCache};
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{AltUp, Attention, Config, GatedMlp, Linear, Loader, RmsNorm, Step};

#[derive(Debug)]
pub(crate) struct Block {
    number: usize,
    streams: AltUp,
    laurel: Laurel,
    attention: Attention,
    mlp: GatedMlp,
    /// Before and after attention, before and after the MLP.
    norms: [RmsNorm; 4],
    /// What makes the sum of two as large as each.
    half: Tensor,
    /// What the layer's input meets the stream multiplied by.
    scale: Option<Tensor>,
    input: OfLayer,
}

/// A residual that was learned: what a narrow matrix and a wide one make of the input, normed, and the input (Menghani et al. 2024,
/// <https://arxiv.org/abs/2411.07501>).
#[derive(Debug)]
struct Laurel {
    left: Linear,
    right: Linear,
    norm: RmsNorm,
}

impl Laurel {
    /// `[n, dim] -> [n, dim]`
    fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let h = self.right.forward(s, &self.left.forward(s, x)?)?;
        s.backend.add(self.norm.forward(s, &h)?, x)
    }
}

impl Block {
    /// Reads block `number` from its place, all but its attention. What its MLP gates is activated by a function, and a part of it cut off before.
    pub(crate) fn load(
        l: &Loader<'_>,
        c: &Config,
        number: usize,
        attention: Attention,
        (activation, sparsity): (Activation, f32),
    ) -> Result<Self> {
        let eps = c.f32_or("rms_norm_eps", 1e-6)?;
        let [a, b, before, after] = [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ]
        .map(|name| l.rms_norm(name, eps));
        let mlp = GatedMlp::load(&l.at("mlp"), activation)?;
        let laurel = l.at("laurel");
        let scaled = c.bool_or("altup_correct_scale", true)?;
        Ok(Self {
            number,
            streams: AltUp::load(&l.at("altup"), c)?,
            laurel: Laurel {
                left: laurel.linear("linear_left")?,
                right: laurel.linear("linear_right")?,
                norm: laurel.rms_norm("post_laurel_norm", eps)?,
            },
            attention,
            mlp: if sparsity > 0.0 { mlp.sparse(l, sparsity)? } else { mlp },
            norms: [a?, b?, before?, after?],
            half: l.constant(0.5_f32.sqrt())?,
            scale: scaled.then(|| l.at("altup").numbers("correct_output_scale")).transpose()?,
            input: OfLayer::load(&LLAMA, l, activation, eps)?,
        })
    }

    /// Its cache layer.
    pub(crate) fn cache(&self) -> LayerCache {
        self.attention.cache()
    }

    /// `[n, dim] -> [n, dim]` of each stream; `input` is `[n, width]`.
    pub(crate) fn forward(&self, s: &Step<'_>, streams: &[Tensor], input: &Tensor) -> Result<Vec<Tensor>> {
        let (b, [before, after, before_mlp, after_mlp]) = (s.backend, &self.norms);
        let predicted = self.streams.predict(s, streams)?;
        let active = self.streams.active(&predicted)?; // [n, dim]
        let x = before.forward(s, active)?;
        let attended = self.attention.forward(s, &x)?;
        s.observe(|| format!("model.layers.{}.self_attn", self.number), &attended);
        let attended = b.add(after.forward(s, &attended)?, active)?;
        let x = b.mul(b.add(attended, &self.laurel.forward(s, &x)?)?, &self.half)?;
        let made = self.mlp.forward(s, &before_mlp.forward(s, &x)?)?;
        s.observe(|| format!("model.layers.{}.mlp", self.number), &made);
        let x = b.add(after_mlp.forward(s, &made)?, &x)?;
        let streams = self.streams.correct(s, &predicted, &x)?;
        let mut first = self.streams.active(&streams)?.clone();
        if let Some(scale) = &self.scale {
            first = b.mul(first, scale)?;
        }
        let more = self.input.forward(s, &first, input)?;
        // The first goes on without it, whichever is the active one.
        let all = streams.into_iter().enumerate();
        all.map(|(i, stream)| if i == 0 { Ok(stream) } else { b.add(stream, &more) }).collect()
    }
}
