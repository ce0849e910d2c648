//! A block of `decoder.rs`: what mixes tokens and then what is done to each alone, both between the norms that the class has. Where blocks are
//! one thing each, nothing follows, and a block without attention or a state is what follows it elsewhere (`Mixer::Alone`).

use crate::{class::Class, layer_inputs::OfLayer, mixer::Mixer};
use ogive_nn::backend::LayerCache;
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{FeedForward, Loader, Residual, RmsNorm, Step};

/// Reads what mixes tokens, from a block's place and given its number.
pub(crate) type ReadsMixer<'a> = dyn Fn(&Loader<'_>, usize) -> Result<Mixer> + 'a;

/// Reads what follows, in the same way.
pub(crate) type ReadsFeedForward<'a> = dyn Fn(&Loader<'_>, usize) -> Result<FeedForward> + 'a;

#[derive(Debug)]
pub(crate) struct Block {
    number: usize,
    mixer: Mixer,
    mlp: Option<FeedForward>,
    /// Before and after the one, before and after the other.
    norms: [[Option<RmsNorm>; 2]; 2],
    /// What is made of the layer's own input.
    input: Option<OfLayer>,
    /// What the stream is multiplied by, last of all.
    scale: Option<Tensor>,
}

impl Block {
    /// Reads block `number` from its place.
    pub(crate) fn load(
        class: &Class,
        l: &Loader<'_>,
        (number, eps): (usize, f32),
        mixer: &ReadsMixer<'_>,
        mlp: Option<&ReadsFeedForward<'_>>,
    ) -> Result<Self> {
        let norm = |name: Option<&str>| name.map(|name| (class.norm)(l, name, eps)).transpose();
        let [a, b, c, d] = class.norms.map(norm);
        let norms = [[a?, b?], [c?, d?]];
        let mixer = mixer(l, number)?;
        let mlp = mlp.map(|mlp| mlp(l, number)).transpose()?;
        let input = class.layer_inputs.map(|(_, f)| OfLayer::load(class, l, f, eps)).transpose()?;
        // One that is missing is 1.
        let scale = class.block_scale.map(|name| l.optional(l.numbers(name))).transpose()?.flatten();
        Ok(Self { number, mixer, mlp, norms, input, scale })
    }

    /// Whether tokens see earlier ones only.
    pub(crate) fn causal(&self) -> bool {
        self.mixer.causal()
    }

    /// Its `n` cache layers, where each block of the model has as many.
    pub(crate) fn cache(&self, n: usize) -> Vec<LayerCache> {
        self.mixer.cache(self.number * n, n)
    }

    /// Adds what it makes of the stream, times `scale`, and of `input`, where layers have inputs of their own.
    pub(crate) fn forward(
        &self,
        s: &Step<'_>,
        x: Residual,
        scale: Option<&Tensor>,
        input: Option<&Tensor>,
    ) -> Result<Residual> {
        let [of_mixer, of_mlp] = &self.norms;
        let mut x =
            self.branch(s, x, scale, of_mixer, self.mixer.name(), &|h: &Tensor| self.mixer.forward(s, h))?;
        if let Some(mlp) = &self.mlp {
            x = self.branch(s, x, scale, of_mlp, "mlp", &|h: &Tensor| mlp.forward(s, h))?;
        }
        if let Some((own, input)) = self.input.as_ref().zip(input) {
            let (stream, h) = x.plain(s)?;
            x = stream.add(s, own.forward(s, &h, input)?)?;
        }
        match &self.scale {
            Some(scale) => Ok(Residual::new(s.backend.mul(x.value(s)?, scale)?)),
            None => Ok(x),
        }
    }

    /// The stream with what `f` makes of it, between the norms where there are any. What it gives is observed under `name`.
    fn branch(
        &self,
        s: &Step<'_>,
        x: Residual,
        scale: Option<&Tensor>,
        [before, after]: &[Option<RmsNorm>; 2],
        name: &str,
        f: &dyn Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Residual> {
        let (x, h) = match before {
            Some(norm) => x.normed(s, norm)?,
            None => x.plain(s)?,
        };
        let mut h = f(&h)?;
        s.observe(|| format!("model.layers.{}.{name}", self.number), &h);
        if let Some(norm) = after {
            h = norm.forward(s, &h)?;
        }
        x.add(s, scaled(s, h, scale)?)
    }
}

/// `x` times the factor, where there is one. `[n, d] -> [n, d]`
pub(crate) fn scaled(s: &Step<'_>, x: Tensor, scale: Option<&Tensor>) -> Result<Tensor> {
    match scale {
        Some(scale) => s.backend.mul(x, scale),
        None => Ok(x),
    }
}
