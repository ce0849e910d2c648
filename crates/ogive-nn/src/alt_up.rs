//! Alternating updates (AltUp; Baykal et al. 2023, <https://arxiv.org/abs/2301.13310>), as Gemma 3n has them: several streams beside each other, of
//! which a block computes with one. What the block will do to the others is predicted before it, and corrected by what it did to the one.
//!
//! A token's streams are mixed by a small matrix that its router makes. There is no product of a matrix for each row among the operators, so it is
//! made of sums: turned against each other by one place after the other, all streams are multiplied by a number each at once. That is as many
//! operators as there are streams, and not as many as the matrix has numbers.

use crate::backend::{Activation, Axis};
use crate::tensor::{Config, Error, HostWeight, Result, Tensor};
use crate::{Linear, Loader, RmsNorm, Step};

/// The streams' router of a block, and what its outputs are made matrices by.
#[derive(Debug)]
pub struct AltUp {
    /// The stream that the block computes with.
    active: usize,
    streams: usize,
    norm: RmsNorm,
    router: Linear,
    /// `[streams * streams, streams]`: of the first `streams` outputs each weighs its own stream, of the next each the stream behind its own, and so on.
    predict: Linear,
    /// `[streams, streams]`
    correct: Linear,
    minus: Tensor,
}

impl AltUp {
    /// Reads `router_norm`, `modality_router`, `prediction_coefs` and `correction_coefs`, the last of them clipped as `altup_coef_clip` says.
    ///
    /// # Errors
    /// If `altup_active_idx` is none of the `altup_num_inputs` streams, if those are fewer than two, if a matrix is for another number of them, or if
    /// `altup_coef_clip` is below 0; else as [all that read](Loader#errors).
    pub fn load(l: &Loader<'_>, c: &Config) -> Result<Self> {
        let (streams, active) = streams_of(c)?;
        let all = streams.saturating_mul(streams);
        let clip = c.opt_f32("altup_coef_clip")?;
        if clip.is_some_and(|clip| clip.is_nan() || clip < 0.0) {
            return Err(Error::invalid(
                "config",
                "`altup_coef_clip` is below 0, so that nothing is within it",
            ));
        }
        let host = |name: &str, rows: usize| {
            let host = l.host(name)?;
            is_of(&host, [1, rows, streams])?;
            Ok(host)
        };
        // So few numbers that they are kept in single precision, whatever they were.
        let weight = |host: &HostWeight, values: &[f32]| {
            l.weight(&HostWeight::from_f32(&*host.name, host.shape, values)?)
        };
        let ones = |of: usize, n: usize| {
            let ones: Vec<f32> = (0..n).map(|i| if i < of { 1.0 } else { 0.0 }).collect();
            l.backend().upload(&ones, [n].into())
        };
        let predict = host("prediction_coefs", all)?;
        let values = predict.to_vec();
        // The file has them row by row of the matrix, and here they are diagonal by diagonal.
        let turned = (0..streams).flat_map(|by| (0..streams).map(move |i| i * streams + (i + by) % streams));
        let turned: Vec<f32> =
            turned.flat_map(|row| values[row * streams..(row + 1) * streams].iter().copied()).collect();
        let correct = host("correction_coefs", streams)?;
        let mut values = correct.to_vec();
        if let Some(clip) = clip {
            values.iter_mut().for_each(|v| *v = v.clamp(-clip, clip));
        }
        let router = l.linear("modality_router")?;
        l.fits("modality_router.weight", router.weight.shape()[1], streams)?;
        let dim = router.weight.shape()[2];
        Ok(Self {
            active,
            streams,
            norm: l.rms_norm("router_norm", c.f32_or("rms_norm_eps", 1e-6)?)?,
            router: router.scaled(l, (dim as f32).recip(), &[1.0])?,
            // A stream and what is predicted of it are added, and so are what a block did and the rest of it.
            predict: Linear::new(weight(&predict, &turned)?, Some(ones(streams, all)?)),
            correct: Linear::new(weight(&correct, &values)?, Some(ones(streams, streams)?)),
            minus: l.constant(-1.0)?,
        })
    }

    /// What the block will find and leave, as far as can be told. `[n, dim] -> [n, dim]` of each stream
    ///
    /// # Errors
    /// If there are not as many streams as it has; else as [all operators](crate::backend::Backend#errors).
    pub fn predict(&self, s: &Step<'_>, streams: &[Tensor]) -> Result<Vec<Tensor>> {
        let (b, k) = (s.backend, self.streams);
        let all = self.predict.forward(s, &self.routed(s, self.active(streams)?)?)?; // [n, k * k]
        let weights = b.split(&all, Axis::Cols, &vec![k; k])?; // [n, k] each
        let (n, dim) = (all.shape().rows(), streams[0].shape().cols());
        let mut sum = None;
        for (by, weights) in weights.into_iter().enumerate() {
            let turned: Vec<&Tensor> = (0..k).map(|i| &streams[(i + by) % k]).collect();
            let turned = b.concat(&turned, Axis::Cols)?.reshape([n * k, dim])?;
            let part = b.mul(turned, &weights.reshape([n * k, 1])?)?;
            sum = Some(match sum {
                Some(sum) => b.add(sum, &part)?,
                None => part,
            });
        }
        let sum = sum.ok_or_else(|| Error::invalid("altup", "there are no streams"))?;
        b.split(&sum.reshape([n, k * dim])?, Axis::Cols, &vec![dim; k])
    }

    /// The streams behind a block that made `activated` of the active one of `predicted`. `[n, dim] -> [n, dim]` of each stream
    ///
    /// # Errors
    /// As [`predict`](Self::predict).
    pub fn correct(&self, s: &Step<'_>, predicted: &[Tensor], activated: &Tensor) -> Result<Vec<Tensor>> {
        let (b, k, dim) = (s.backend, self.streams, activated.shape().cols());
        let before = b.mul(self.active(predicted)?.clone(), &self.minus)?;
        let done = b.add(before, activated)?; // [n, dim]
        let weights = self.correct.forward(s, &self.routed(s, activated)?)?; // [n, k]
        let n = weights.shape().rows();
        let done = b.concat(&vec![&done; k], Axis::Cols)?.reshape([n * k, dim])?;
        let done = b.mul(done, &weights.reshape([n * k, 1])?)?;
        let all = b.concat(&predicted.iter().collect::<Vec<_>>(), Axis::Cols)?;
        b.split(&b.add(done.reshape([n, k * dim])?, &all)?, Axis::Cols, &vec![dim; k])
    }

    /// The stream that the block computes with.
    ///
    /// # Errors
    /// If there are not as many streams as it has.
    pub fn active<'a>(&self, streams: &'a [Tensor]) -> Result<&'a Tensor> {
        let fits = streams.get(self.active).filter(|_| streams.len() == self.streams);
        fits.ok_or_else(|| {
            Error::invalid("altup", format!("{} streams in place of {}", streams.len(), self.streams))
        })
    }

    /// `[n, dim] -> [n, streams]`
    fn routed(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        s.backend.activate(self.router.forward(s, &self.norm.forward(s, x)?)?, Activation::Tanh)
    }
}

/// That there are so many matrices of so many rows and columns.
fn is_of(host: &HostWeight, shape: [usize; 3]) -> Result<()> {
    let fits = host.shape == shape && !host.bytes.is_empty();
    let why = format!("{:?} in place of {shape:?}; do weights and config belong together?", host.shape);
    if fits { Ok(()) } else { Err(Error::invalid(&host.name, why)) }
}

/// How many streams the settings have, and which of them blocks compute with.
fn streams_of(c: &Config) -> Result<(usize, usize)> {
    let (streams, active) = (c.usize_or("altup_num_inputs", 4)?, c.usize_or("altup_active_idx", 0)?);
    if active >= streams {
        let why = format!("`altup_active_idx` is {active}, and `altup_num_inputs` says {streams} streams");
        return Err(Error::invalid("config", why));
    }
    if streams < 2 {
        let why = "`altup_num_inputs` is 1: no stream is beside the one that blocks compute with";
        return Err(Error::invalid("config", why));
    }
    Ok((streams, active))
}

/// Streams made of embeddings, and one made of streams: matrices whose outputs are as large as what stands beside them.
#[derive(Debug)]
pub struct AltUpEnds {
    projections: Vec<Linear>,
    unembed: Vec<Linear>,
    size: Size,
    share: Tensor,
}

impl AltUpEnds {
    /// Reads `altup_projections` and `altup_unembed_projections`, of each a matrix `[dim, dim]` for all streams but the first: one by one, or
    /// stacked, as GGUF has them.
    ///
    /// # Errors
    /// As [`AltUp::load`], and if a matrix is not square.
    pub fn load(l: &Loader<'_>, c: &Config) -> Result<Self> {
        let (dim, (streams, _)) = (c.usize("hidden_size")?, streams_of(c)?);
        let all = |name: &str| {
            if let Some(stack) = l.optional(l.host(name))? {
                is_of(&stack, [stack.shape[0], dim, dim])?;
                l.fits(&format!("{name}.weight"), stack.shape[0], streams - 1)?;
                let flat = stack.regrouped(1)?;
                let matrix = |i: usize| Ok(Linear::new(l.weight(&flat.rows(i * dim..(i + 1) * dim)?)?, None));
                return (0..streams - 1).map(matrix).collect::<Result<Vec<_>>>();
            }
            // One by one: a false number of streams ends at the first that is missing.
            let matrix = |i: usize| {
                is_of(&l.at(name).host(&i.to_string())?, [1, dim, dim])?;
                l.at(name).linear(&i.to_string())
            };
            (0..streams - 1).map(matrix).collect()
        };
        let (projections, unembed) = (all("altup_projections")?, all("altup_unembed_projections")?);
        Ok(Self {
            projections,
            unembed,
            size: Size::new(l, dim)?,
            share: l.constant((streams as f32).recip())?,
        })
    }

    /// Streams of embeddings. `[n, dim] -> [n, dim]` of each stream
    ///
    /// # Errors
    /// If `x` has not as many columns as the matrices have inputs; else as [all operators](crate::backend::Backend#errors).
    pub fn begin(&self, s: &Step<'_>, x: Tensor) -> Result<Vec<Tensor>> {
        let made = self.projections.iter().map(|w| w.forward(s, &x)).collect::<Result<Vec<_>>>()?;
        self.as_large(s, x, made)
    }

    /// The mean of all streams. `[n, dim]` of each stream `-> [n, dim]`
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn end(&self, s: &Step<'_>, streams: Vec<Tensor>) -> Result<Tensor> {
        let mut streams = streams.into_iter();
        let first = streams.next().ok_or_else(|| Error::invalid("altup", "there are no streams"))?;
        let made =
            self.unembed.iter().zip(streams).map(|(w, x)| w.forward(s, &x)).collect::<Result<Vec<_>>>()?;
        let mut all = self.as_large(s, first, made)?.into_iter();
        let first = all.next().ok_or_else(|| Error::invalid("altup", "there are no streams"))?;
        let sum = all.try_fold(first, |sum, x| s.backend.add(sum, &x))?;
        s.backend.mul(sum, &self.share)
    }

    /// `first`, and the others made as large as that, row by row.
    fn as_large(&self, s: &Step<'_>, first: Tensor, others: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let (_, size) = self.size.of(s, &first)?;
        let fit = |x: Tensor| {
            let (unit, own) = self.size.of(s, &x)?;
            let within = self.size.within(s, own)?;
            s.backend.mul(unit, &s.backend.mul(within, &size)?)
        };
        let others = others.into_iter().map(fit).collect::<Result<Vec<_>>>()?;
        Ok([first].into_iter().chain(others).collect())
    }
}

/// How large rows are, by the root of their mean square.
#[derive(Debug)]
struct Size {
    unit: RmsNorm,
    /// One for each column.
    part: Tensor,
    /// What makes a size a part of the smallest that rows are made large from, less than nothing; one; and one less than nothing.
    floor: [Tensor; 3],
}

/// Rows are not made larger than this makes them, as transformers has it: of their mean squares.
const FLOOR: f32 = 1e-5;

impl Size {
    fn new(l: &Loader<'_>, dim: usize) -> Result<Self> {
        let b = l.backend();
        let ones = b.upload(&vec![1.0; dim], [dim].into())?;
        // Nothing but a row of zeros is as small.
        let unit = RmsNorm { weight: ones, eps: 1e-30 };
        let floor = [l.constant(-FLOOR.sqrt().recip())?, l.constant(1.0)?, l.constant(-1.0)?];
        Ok(Self { unit, part: l.constant((dim as f32).recip())?, floor })
    }

    /// Rows of size 1, and their sizes before. `[n, dim] -> [n, dim], [n, 1]`
    fn of(&self, s: &Step<'_>, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let unit = self.unit.forward(s, x)?;
        let size = s.backend.mul(s.backend.sum(&s.backend.mul(x.clone(), &unit)?)?, &self.part)?;
        Ok((unit, size))
    }

    /// The size, counted in the smallest that rows are made large from, and no more than 1. `[n, 1] -> [n, 1]`
    fn within(&self, s: &Step<'_>, size: Tensor) -> Result<Tensor> {
        let (b, [minus, one, less]) = (s.backend, &self.floor);
        let lacking = b.activate(b.add(b.mul(size, minus)?, one)?, Activation::Relu)?;
        b.add(b.mul(lacking, less)?, one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::testing::with_nothing;

    /// Rows far smaller than any model's are not blown up, as transformers has it; rows of zeros stay, and are no NaN.
    #[test]
    fn what_is_next_to_nothing_stays_small() {
        with_nothing(|b, s, l| {
            let size = Size::new(l, 4).unwrap();
            let ends = AltUpEnds {
                projections: Vec::new(),
                unembed: Vec::new(),
                size,
                share: b.upload(&[1.0], [1].into()).unwrap(),
            };
            let first = [3.0_f32, -1.0, 0.5, 2.0];
            for scale in [0.0, 1e-20, 1e-6, 1e-4, 3e-3, 4e-3, 1.0, 1e6] {
                let row = [0.2_f32, -0.9, 1.4, 0.1].map(|v| v * scale);
                let rms = |row: &[f32]| (row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / 4.0).sqrt();
                let factor = rms(&first) / rms(&row).powi(2).max(1e-5).sqrt();
                let up = |row: &[f32]| b.upload(row, [1, 4].into()).unwrap();
                let got = ends.as_large(s, up(&first), vec![up(&row)]).unwrap();
                for (got, v) in b.download(&got[1]).unwrap().iter().zip(row) {
                    let want = f64::from(v) * factor;
                    assert!(
                        (f64::from(*got) - want).abs() <= 2e-6 * want.abs() + 1e-6,
                        "{scale}: {got}, {want}"
                    );
                }
            }
        });
    }
}
