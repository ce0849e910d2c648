//! What a tensor of a split backend is: a tensor of one part, copied to another when an operator there wants it.
//!
//! A copy is kept beside the original as long as that lives, so queries, keys and values of one input cross once. What a model uploads
//! (norms, biases) has no part: it stays on the host too, and goes to each part that uses it.

use super::Split;
use super::pieces::{Made, Turn};
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
    /// Whether a step begins with it: it goes to where the first layer is, wherever the table of tokens lies.
    first: bool,
    /// Of each part, once it is there.
    copies: Vec<OnceLock<Tensor>>,
    /// By what it was made, if in a step that is learned or run in pieces.
    pub(super) made: Option<Made>,
    /// Where choices of experts come from: their numbers cannot be moved, so another part chooses again.
    routed: Option<(Tensor, RouterSpec)>,
}

impl Split {
    fn empty(&self) -> Held {
        let copies = self.parts.iter().map(|_| OnceLock::new()).collect();
        Held { id: self.id, home: None, host: None, first: false, copies, made: None, routed: None }
    }

    /// Numbers that every part may want.
    pub(super) fn everywhere(&self, values: &[f32], shape: Shape) -> Tensor {
        Tensor::new(shape, Held { host: Some(values.into()), ..self.empty() })
    }

    /// What `part` computed.
    pub(super) fn hold(&self, part: usize, x: Tensor) -> Tensor {
        self.holding(part, x, None)
    }

    fn holding(&self, part: usize, x: Tensor, made: Option<Made>) -> Tensor {
        let (shape, held) = (x.shape(), Held { home: Some(part), made, ..self.empty() });
        if let Some(place) = held.copies.get(part) {
            let _ = place.set(x);
        }
        Tensor::new(shape, held)
    }

    /// Has `part` compute an operator, unless it is another piece's than the one that is run.
    pub(super) fn list(
        &self,
        part: usize,
        name: &'static str,
        f: impl FnOnce(&dyn Backend) -> Result<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>> {
        match self.run.next(part, name)? {
            Turn::Compute(number) => {
                let ys = f(self.backend(part)?).inspect_err(|_| self.run.failed(name))?;
                let Some(number) = number else {
                    return Ok(ys.into_iter().map(|y| self.hold(part, y)).collect());
                };
                self.run.made(number.1, &ys)?;
                let made = |(i, y)| self.holding(part, y, Some(Made::of(number, i)));
                Ok(ys.into_iter().enumerate().map(made).collect())
            }
            Turn::Leave(number, shapes) => {
                let left = |(i, shape): (usize, Shape)| {
                    let made = Some(Made::of(number, i));
                    Tensor::new(shape, Held { home: Some(part), made, ..self.empty() })
                };
                Ok(shapes.into_iter().enumerate().map(left).collect())
            }
        }
    }

    /// The same of an operator with one result.
    pub(super) fn one(
        &self,
        part: usize,
        name: &'static str,
        f: impl FnOnce(&dyn Backend) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mut ys = self.list(part, name, |b| Ok(vec![f(b)?]))?;
        ys.pop().ok_or_else(|| Error::invalid(name, "there is no result"))
    }

    /// With two.
    pub(super) fn two(
        &self,
        part: usize,
        name: &'static str,
        f: impl FnOnce(&dyn Backend) -> Result<(Tensor, Tensor)>,
    ) -> Result<(Tensor, Tensor)> {
        let mut ys = self.list(part, name, |b| f(b).map(|(a, b)| vec![a, b]))?.into_iter();
        ys.next().zip(ys.next()).ok_or_else(|| Error::invalid(name, "a result is missing"))
    }

    /// With none.
    pub(super) fn none(
        &self,
        part: usize,
        name: &'static str,
        f: impl FnOnce(&dyn Backend) -> Result<()>,
    ) -> Result<()> {
        self.list(part, name, |b| f(b).map(|()| Vec::new())).map(drop)
    }

    /// Notes that a step begins with `x`.
    pub(super) fn begins(mut x: Tensor) -> Tensor {
        if let Some(held) = x.data_mut::<Held>() {
            held.first = true;
        }
        x
    }

    /// Notes by which logits the choice `x` was made.
    pub(super) fn chosen_by(&self, x: &mut Tensor, logits: &Tensor, spec: &RouterSpec) {
        if let Some(held) = x.data_mut::<Held>() {
            held.routed = Some((logits.clone(), spec.clone()));
        }
    }

    pub(super) fn held<'a>(&self, x: &'a Tensor) -> Result<&'a Held> {
        x.data::<Held>().ok().filter(|held| held.id == self.id).ok_or_else(|| Error::foreign("tensor"))
    }

    /// The part whose operators should take these: the last that one of them is of, as work moves forward through the parts.
    pub(super) fn part_of(&self, xs: &[&Tensor]) -> Result<usize> {
        let start = self.homes.first().copied();
        let part = |held: &Held| if held.first { start.or(held.home) } else { held.home };
        xs.iter().try_fold(0, |most, x| Ok(most.max(part(self.held(x)?).unwrap_or(0))))
    }

    /// The logits that `x` was chosen by, if it is a choice.
    pub(super) fn routed<'a>(&self, x: &'a Tensor) -> Result<Option<&'a (Tensor, RouterSpec)>> {
        Ok(self.held(x)?.routed.as_ref())
    }

    /// `x` as `part` has it, brought there if need be.
    pub(super) fn at(&self, part: usize, x: &Tensor) -> Result<Tensor> {
        let held = self.held(x)?;
        if let Some(made) = held.made
            && let Some(given) = self.run.wants(made, held.routed.is_some())?
        {
            return given.reshape(x.shape());
        }
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
                to.bring(from, self.backend(home)?, None)?
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
