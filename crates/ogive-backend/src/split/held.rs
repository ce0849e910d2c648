//! What a tensor of a split backend is: a tensor of one part, copied to another when an operator there wants it.
//!
//! A copy is kept beside the original as long as that lives, so queries, keys and values of one input cross once. What a model uploads
//! (norms, biases) has no part: it stays on the host too, and goes to each part that uses it.

use super::Split;
use crate::{Backend, RouterSpec, Weight};
use ogive_tensor::{Error, Result, Shape, Tensor};
use std::sync::{Arc, OnceLock};

/// Behind [`Tensor::data`].
#[derive(Debug)]
pub(super) struct Held {
    id: u64,
    /// The part it was made by; none for what was uploaded.
    home: Option<usize>,
    host: Option<Arc<[f32]>>,
    /// Of each part, once it is there.
    copies: Vec<OnceLock<Tensor>>,
    /// Where choices of experts come from: their numbers cannot be moved, so another part chooses again.
    routed: Option<(Tensor, RouterSpec)>,
}

impl Split {
    fn empty(&self) -> Held {
        let copies = self.parts.iter().map(|_| OnceLock::new()).collect();
        Held { id: self.id, home: None, host: None, copies, routed: None }
    }

    /// Numbers that every part may want.
    pub(super) fn everywhere(&self, values: &[f32], shape: Shape) -> Tensor {
        Tensor::new(shape, Held { host: Some(values.into()), ..self.empty() })
    }

    /// What `part` computed.
    pub(super) fn hold(&self, part: usize, x: Tensor) -> Tensor {
        self.holding(part, x, None)
    }

    /// The same, of choices made by these logits.
    pub(super) fn holding(&self, part: usize, x: Tensor, routed: Option<(Tensor, RouterSpec)>) -> Tensor {
        let (shape, held) = (x.shape(), Held { home: Some(part), routed, ..self.empty() });
        if let Some(place) = held.copies.get(part) {
            let _ = place.set(x);
        }
        Tensor::new(shape, held)
    }

    pub(super) fn held<'a>(&self, x: &'a Tensor) -> Result<&'a Held> {
        x.data::<Held>().ok().filter(|held| held.id == self.id).ok_or_else(|| Error::foreign("tensor"))
    }

    /// The part whose operators should take these: the last that one of them is of, as work moves forward through the parts.
    pub(super) fn part_of(&self, xs: &[&Tensor]) -> Result<usize> {
        xs.iter().try_fold(0, |part, x| Ok(part.max(self.held(x)?.home.unwrap_or(0))))
    }

    /// The logits that `x` was chosen by, if it is a choice.
    pub(super) fn routed<'a>(&self, x: &'a Tensor) -> Result<Option<&'a (Tensor, RouterSpec)>> {
        Ok(self.held(x)?.routed.as_ref())
    }

    /// `x` as `part` has it, brought there if need be.
    pub(super) fn at(&self, part: usize, x: &Tensor) -> Result<Tensor> {
        let held = self.held(x)?;
        let place = held.copies.get(part).ok_or_else(|| Error::foreign("tensor"))?;
        if let Some(there) = place.get() {
            return there.clone().reshape(x.shape());
        }
        let to = self.backend(part)?;
        let moved = match (&held.host, held.home) {
            (Some(values), _) => to.upload(values, x.shape())?,
            (None, Some(home)) => {
                let from = held.copies.get(home).and_then(OnceLock::get);
                let from = from.ok_or_else(|| Error::foreign("tensor"))?;
                to.upload(&self.backend(home)?.download(from)?, x.shape())?
            }
            (None, None) => return Err(Error::foreign("tensor")),
        };
        place.get_or_init(|| moved).clone().reshape(x.shape())
    }

    /// The same for an operator that may overwrite it: nobody else holds the result if nobody else held `x`.
    pub(super) fn into(&self, part: usize, mut x: Tensor) -> Result<Tensor> {
        let (there, shape) = (self.at(part, &x)?, x.shape());
        let own = x.data_mut::<Held>().filter(|held| held.host.is_none());
        match own.and_then(|held| held.copies.get_mut(part)?.take()) {
            Some(own) => {
                drop(there);
                own.reshape(shape)
            }
            None => Ok(there),
        }
    }

    /// The values of `x`, from wherever they are.
    pub(super) fn values(&self, x: &Tensor) -> Result<Vec<f32>> {
        let held = self.held(x)?;
        match (&held.host, held.home) {
            (Some(values), _) => Ok(values.to_vec()),
            (None, home) => {
                let home = home.unwrap_or(0);
                self.backend(home)?.download(&self.at(home, x)?)
            }
        }
    }

    pub(super) fn backend(&self, part: usize) -> Result<&dyn Backend> {
        self.parts.get(part).map(|b| &**b).ok_or_else(|| Error::foreign("split"))
    }

    /// The weight as its part has it, and the part.
    pub(super) fn weight<'a>(&self, w: &'a Weight) -> Result<(usize, &'a Weight)> {
        let own = w.data::<Placed>().ok().filter(|placed| placed.id == self.id);
        own.map(|placed| (placed.part, &placed.weight)).ok_or_else(|| Error::foreign("weight"))
    }
}

/// Behind [`Weight::data`].
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) id: u64,
    pub(super) part: usize,
    pub(super) weight: Weight,
}
