//! Models whose texts' vectors go through layers behind the pooling, as sentence-transformers' `Dense` (EmbeddingGemma).
//!
//! A wrapper, as [`Classifier`](crate::Classifier) is one, and put around by the registry: any encoder may have such layers, so no architecture has to know.

use crate::backend::Activation;
use crate::tensor::{Config, Error, Result, Tensor};
use crate::wrapped::as_wrapped;
use crate::{Linear, Loader, Model, Pooling, Step, activation};

/// The setting that lists the layers: of each, what its weights are called before `.linear`, and an activation or none.
const SETTING: &str = "sentence_dense";

/// More layers than any model has; it bounds what false settings can make us read.
const MOST: usize = 16;

/// A model and the layers that its texts' pooled states go through.
#[derive(Debug)]
pub struct Projected {
    model: Box<dyn Model>,
    layers: Vec<(Linear, Option<Activation>)>,
}

impl Projected {
    /// `model` with these behind it, in their order.
    ///
    /// # Errors
    /// If a layer does not take what the one before gives.
    pub fn new(model: Box<dyn Model>, layers: Vec<(Linear, Option<Activation>)>) -> Result<Self> {
        let sizes = |(linear, _): &(Linear, _)| (linear.weight.shape()[2], linear.weight.shape()[1]);
        for (i, pair) in layers.windows(2).enumerate() {
            let ((_, given), (taken, _)) = (sizes(&pair[0]), sizes(&pair[1]));
            if given != taken {
                let why =
                    format!("layer {} behind the model takes {taken} numbers and is given {given}", i + 1);
                return Err(Error::invalid(SETTING, why));
            }
        }
        Ok(Self { model, layers })
    }

    /// `model` with the layers that the settings list, read from the root of its file; `model` itself where they list none.
    ///
    /// # Errors
    /// If what is listed is no such list, or a layer does not take what the one before gives; else as [all that read](Loader#errors).
    pub fn load(model: Box<dyn Model>, c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
        let Some(listed) = c.0.get(SETTING).filter(|v| !v.is_null()) else { return Ok(model) };
        let listed = listed.as_array().filter(|all| (1..=MOST).contains(&all.len()));
        let listed = listed.ok_or_else(|| {
            Error::invalid("config", format!("`{SETTING}` should list 1 to {MOST} layers, and does not"))
        })?;
        let layer = |own: &_| {
            let own = Config(Clone::clone(own));
            let activation = match own.has("activation") {
                true => Some(activation(&own, "activation", Activation::Tanh)?),
                false => None,
            };
            let name =
                own.opt_str("name")?.ok_or_else(|| Error::missing("`name` of a layer behind the model"))?;
            Ok((file.at(name).linear("linear")?, activation))
        };
        let layers: Vec<_> = listed.iter().map(layer).collect::<Result<_>>()?;
        if let (Some(dim), Some((first, _))) = (c.opt_usize("hidden_size")?, layers.first()) {
            file.fits(SETTING, first.weight.shape()[2], dim)?;
        }
        Ok(Box::new(Self::new(model, layers)?))
    }
}

impl Model for Projected {
    as_wrapped!(model);

    fn judges(&self) -> Option<Pooling> {
        self.model.judges()
    }

    fn padding(&self) -> Option<u32> {
        self.model.padding()
    }

    fn classes(&self, s: &Step<'_>, pooled: Tensor) -> Result<Tensor> {
        self.model.classes(s, pooled)
    }

    fn projects(&self) -> bool {
        true
    }

    fn project(&self, s: &Step<'_>, pooled: Tensor) -> Result<Tensor> {
        self.layers.iter().try_fold(pooled, |x, (linear, activation)| {
            let x = linear.forward(s, &x)?; // [texts, out]
            match activation {
                Some(f) => s.backend.activate(x, *f),
                None => Ok(x),
            }
        })
    }
}
