//! A factor for each expert of a mixture, which its shares are multiplied by (Gemma 4's).
//!
//! Which experts were chosen only the backend can read, and no operator looks a number up for each. A mixture does: of experts that have one
//! input and one output, and give their factor whatever they are given. So the factors need no operator of their own, and run on every
//! backend; they are `[experts]` in single precision, and what is packed stays as it is.

use crate::backend::{Activation, Experts, Routing};
use crate::tensor::{Error, F32, HostWeight, Result};
use crate::{Loader, Step};

/// Such factors.
#[derive(Debug)]
pub(crate) struct ExpertFactors(Experts);

impl ExpertFactors {
    /// Those of `n` experts, whatever their shape.
    ///
    /// # Errors
    /// If there are fewer or more; else as [`Loader::weight`].
    pub(crate) fn new(l: &Loader<'_>, factors: &HostWeight, n: usize) -> Result<Self> {
        if factors.shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n)) != Some(n) {
            let why = format!("{:?} is not a factor for each of {n} experts", factors.shape);
            return Err(Error::invalid(&factors.name, why));
        }
        let b = l.backend();
        let same = |value: f32| {
            let bytes: Vec<u8> = (0..n).flat_map(|_| value.to_le_bytes()).collect();
            l.weight(&HostWeight::new(&*factors.name, [n, 1, 1], &F32, bytes.into())?)
        };
        let column = |values: &[f32]| b.upload(values, [n, 1].into());
        // Of a gate that is 1, which that activation leaves as it is, and of what is gated, the factor.
        let bias = [column(&vec![1.0; n])?, column(&factors.to_vec())?, column(&vec![0.0; n])?];
        let still = same(0.0)?;
        let weights = [still.clone(), still, same(1.0)?];
        Ok(Self(Experts::new(weights, Activation::ReluSquared).biased(bias)))
    }

    /// The same choice with weights that are multiplied by the factors.
    pub(crate) fn weigh(&self, s: &Step<'_>, routing: Routing) -> Result<Routing> {
        let chosen = routing.ids.shape(); // [n, k]
        let each = [chosen.len(), 1];
        let (ids, weights) = (routing.ids.clone().reshape(each)?, routing.weights.reshape(each)?);
        let one_by_one = Routing { ids, weights: weights.clone() };
        let weights = s.backend.experts(&weights, &one_by_one, &self.0)?; // [n * k, 1]
        Ok(Routing { ids: routing.ids, weights: weights.reshape(chosen)? })
    }
}
