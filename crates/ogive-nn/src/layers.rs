//! Layers of one operator: a weight or two and what uses them.

use crate::backend::{Ids, Weight};
use crate::tensor::{Error, Result, Tensor};
use crate::{Loader, LowRank, Step};

/// Of a backend whose [`linear_many`](crate::backend::Backend::linear_many) does not do what it says.
pub(crate) fn another_number() -> Error {
    Error::invalid("linear_many", "the backend gave another number of products")
}

/// A matrix, perhaps an update of it, factors, and a bias.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Linear {
    /// `[out, in]`
    pub weight: Weight,
    /// What an adapter adds to it.
    pub update: Option<Box<LowRank>>,
    /// `[1]` or `[out]`: what products are multiplied by. The weight may be packed, and factors in it would round it anew.
    pub scale: Option<Tensor>,
    /// `[out]`
    pub bias: Option<Tensor>,
}

impl Linear {
    /// A matrix `[out, in]` and perhaps a bias `[out]`, as they are.
    pub fn new(weight: Weight, bias: Option<Tensor>) -> Self {
        Self { weight, update: None, scale: None, bias }
    }

    /// The same of inputs multiplied by `input`, with each output, its bias and all, multiplied by its factor of `outputs`, or by the only
    /// one.
    ///
    /// # Errors
    /// If there are neither as many factors as outputs nor one; else as [all operators](crate::backend::Backend#errors).
    pub fn scaled(self, l: &Loader<'_>, input: f32, outputs: &[f32]) -> Result<Self> {
        let (b, [_, out, _]) = (l.backend(), self.weight.shape());
        if ![1, out].contains(&outputs.len()) {
            let why = format!("{} factors for {out} outputs", outputs.len());
            return Err(Error::invalid(l.name("").trim_end_matches('.'), why));
        }
        if input == 1.0 && outputs.iter().all(|factor| *factor == 1.0) {
            return Ok(self);
        }
        let of_products: Vec<f32> = outputs.iter().map(|factor| input * factor).collect();
        let upload = |factors: &[f32]| b.upload(factors, [factors.len()].into());
        let scale = upload(&of_products)?;
        let scale = match self.scale {
            Some(earlier) => b.mul(scale, &earlier)?,
            None => scale,
        };
        let bias = self.bias.map(|bias| b.mul(bias, &upload(outputs)?)).transpose()?;
        Ok(Self { scale: Some(scale), bias, ..self })
    }

    /// Whether it is its matrix alone.
    pub fn is_bare(&self) -> bool {
        self.update.is_none() && self.scale.is_none() && self.bias.is_none()
    }

    /// `s · (x · wᵀ) + b`, where `w` is the matrix with its update. `[n, in] -> [n, out]`
    ///
    /// # Errors
    /// If `x` has not as many columns as the weight has inputs; else as [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let [y] = Self::of_products(s, x, vec![s.backend.linear(x, &self.weight)?], [self])?;
        Ok(y)
    }

    fn of_products<const N: usize>(
        s: &Step<'_>,
        x: &Tensor,
        ys: Vec<Tensor>,
        layers: [&Self; N],
    ) -> Result<[Tensor; N]> {
        let ys = LowRank::add(s, x, ys, &layers.map(|l| l.update.as_deref()))?;
        let ys = ys.into_iter().zip(layers).map(|(y, l)| l.of_product(s, y)).collect::<Result<Vec<_>>>()?;
        ys.try_into().map_err(|_| another_number())
    }

    fn of_product(&self, s: &Step<'_>, y: Tensor) -> Result<Tensor> {
        let y = match &self.scale {
            Some(scale) => s.backend.mul(y, scale)?,
            None => y,
        };
        match &self.bias {
            Some(bias) => s.backend.add(y, bias),
            None => Ok(y),
        }
    }

    /// Several layers on one input. `[n, in] -> [n, out]` each
    ///
    /// # Errors
    /// As [`forward`](Self::forward), for each layer.
    pub fn forward_many<const N: usize>(s: &Step<'_>, x: &Tensor, layers: [&Self; N]) -> Result<[Tensor; N]> {
        let ys = s.backend.linear_many(x, &layers.map(|l| &l.weight))?;
        Self::of_products(s, x, ys, layers)
    }
}

/// Root-mean-square normalisation (Zhang and Sennrich 2019, <https://arxiv.org/abs/1910.07467>).
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// One factor for each column.
    pub weight: Tensor,
    /// Added to the mean square.
    pub eps: f32,
}

impl RmsNorm {
    /// Normalises the last dimension. `[.., d] -> [.., d]`
    ///
    /// # Errors
    /// If `x` has not as many columns as there are factors; else as [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        s.backend.rms_norm(x, &self.weight, self.eps)
    }
}

/// Normalisation to mean 0 and variance 1 (Ba et al. 2016, <https://arxiv.org/abs/1607.06450>).
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// One factor for each column.
    pub weight: Tensor,
    /// One summand for each column.
    pub bias: Option<Tensor>,
    /// Added to the variance.
    pub eps: f32,
}

impl LayerNorm {
    /// Normalises the last dimension. `[.., d] -> [.., d]`
    ///
    /// # Errors
    /// If `x` has not as many columns as there are factors; else as [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        s.backend.layer_norm(x, &self.weight, self.bias.as_ref(), self.eps)
    }
}

/// A table of vectors.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// `[vocab, dim]`
    pub weight: Weight,
    /// What it is called from the root of the file.
    pub name: String,
}

impl Embedding {
    /// The vectors of the step's tokens. `[n, dim]`
    ///
    /// # Errors
    /// If there is no vector for a token; else as [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>) -> Result<Tensor> {
        self.of(s, Ids::Tokens)
    }

    /// The vectors of the step's tokens, positions or types. `[n, dim]`
    ///
    /// # Errors
    /// If there is no vector for one of them; else as [all operators](crate::backend::Backend#errors).
    pub fn of(&self, s: &Step<'_>, ids: Ids) -> Result<Tensor> {
        s.backend.embed(&self.weight, ids, s.plan)
    }

    /// How many ids it has vectors for.
    pub fn rows(&self) -> usize {
        self.weight.shape()[1]
    }

    /// The table as an output head.
    pub fn tied(&self) -> Linear {
        Linear::new(self.weight.clone(), None)
    }
}
