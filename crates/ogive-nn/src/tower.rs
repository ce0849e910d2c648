//! What lets a decoder see: a tower, that turns an image into vectors which stand in a prompt in place of tokens.

use crate::backend::{Backend, Batch, Cache, CacheSpec, Plan, Vectors};
use crate::tensor::{Error, Result, Tensor};
use crate::{Linear, Loader};
use std::fmt::Debug;

/// A vision encoder and what fits its output to a decoder: weights and the order to use them in, as [`Model`](crate::Model) is for text.
pub trait Tower: Debug + Send + Sync {
    /// Elements of a row: what the decoder it is for [takes](crate::Model::takes_vectors).
    fn dim(&self) -> usize;

    /// What stands in a prompt for an image, or one part of it, that was cut into patches: `[patches, patch_len]`, row by row, each flattened as
    /// the first convolution's weight is, in a `grid` of so many rows and columns.
    ///
    /// # Errors
    /// If `patches` are not as many as the grid has, if the tower was not made for such a grid; else as
    /// [all operators](Backend#errors).
    fn see(&self, b: &dyn Backend, patches: &[f32], grid: [usize; 2]) -> Result<Vectors>;
}

/// What patches are computed in: as a text's tokens are in a step, all of them at once.
#[derive(Debug)]
pub struct Patches {
    /// The patches, `[n, patch_len]`.
    pub values: Tensor,
    cache: Cache,
}

impl Patches {
    /// Sends patches up, `[grid, patch_len]`, where there is a whole number of numbers for each.
    ///
    /// # Errors
    /// If there is not, or none; else as [all operators](Backend#errors).
    pub fn new(b: &dyn Backend, values: &[f32], grid: [usize; 2]) -> Result<Self> {
        let n = grid[0]
            .checked_mul(grid[1])
            .filter(|n| *n > 0 && values.len().is_multiple_of(*n) && !values.is_empty());
        let Some(n) = n else {
            let why = format!("{} numbers are no patches in {} rows of {}", values.len(), grid[0], grid[1]);
            return Err(Error::invalid("patches of an image", why));
        };
        let values = b.upload(values, [n, values.len() / n].into())?;
        // Patches attend to each other as they are: nothing is kept.
        let cache = b.new_cache(&CacheSpec::new(Vec::new(), 16, 0, 0))?;
        Ok(Self { values, cache })
    }

    /// A plan of all patches, which stand at `places` and attend to each other within runs of `lengths`, one after the other.
    ///
    /// # Errors
    /// If runs or places are for another number of patches; else as [all operators](Backend#errors).
    pub fn plan(&self, b: &dyn Backend, lengths: &[usize], places: &[[u32; 3]]) -> Result<Plan> {
        let n = self.values.shape().rows();
        if lengths.iter().sum::<usize>() != n || (!places.is_empty() && places.len() != n) {
            let why = format!("{} runs and {} places do not fit {n} patches", lengths.len(), places.len());
            return Err(Error::invalid("patches of an image", why));
        }
        let mut batch = Batch::default();
        for length in lengths {
            batch.push(&vec![0; *length], 0, Vec::new(), [0, 0]);
        }
        if !places.is_empty() {
            batch.place(0, places);
        }
        b.plan(batch)
    }

    /// What was kept of earlier steps: nothing.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}

impl Loader<'_> {
    /// A convolution whose windows stand side by side, as the product of patches that it is: `name.weight` `[outputs, ...]` with all behind its
    /// outputs in one row, and `name.bias`. `[patches, patch_len] -> [patches, outputs]`
    ///
    /// # Errors
    /// If `outputs` do not cut it evenly; else as [all that read](Self#errors).
    pub fn patch_projection(&self, name: &str, outputs: usize) -> Result<Linear> {
        let host = self.host(name)?;
        let all = host.shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n));
        let Some(inputs) =
            all.filter(|all| outputs > 0 && all.is_multiple_of(outputs)).map(|all| all / outputs)
        else {
            let why = format!("{:?} is no convolution of {outputs} outputs", host.shape);
            return Err(Error::invalid(&host.name, format!("{why}; do weights and config belong together?")));
        };
        let flat = host.reshaped([1, outputs, inputs])?;
        self.with_bias(name, flat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Step, inputs, tensor::HostWeight};
    use ogive_backend::{AttnSpec, Vectors, Weight};
    use ogive_conformance::Oracle;

    #[test]
    fn patches_see_their_own_run() {
        let b = &Oracle as &dyn Backend;
        let patches = Patches::new(b, &[1.0, 2.0, 3.0, 5.0, 7.0, 9.0], [2, 3]).unwrap();
        let plan = patches.plan(b, &[4, 2], &[]).unwrap();
        let zeros = b.upload(&[0.0; 6], [6, 1].into()).unwrap();
        let mean = b.attend(&zeros, &zeros, &patches.values, &AttnSpec::new(1, 1, 1, 1), &plan).unwrap();
        assert_eq!(b.download(&mean).unwrap(), [2.75, 2.75, 2.75, 2.75, 8.0, 8.0]);
        let wrong = |lengths: &[usize], places: &[[u32; 3]]| patches.plan(b, lengths, places).is_err();
        assert!(wrong(&[4, 3], &[]) && wrong(&[6], &[[0; 3]; 5]) && !wrong(&[6], &[[0, 1, 1]; 6]));
        for (n, grid) in [(6, [0, 3]), (7, [2, 3]), (0, [2, 3]), (6, [usize::MAX, 2])] {
            assert!(Patches::new(b, &vec![0.0; n], grid).is_err(), "{n} in {grid:?}");
        }
    }

    /// A step of five rows of one sequence, of which a sixth and seventh were there before, with these inputs.
    fn step(inputs: Vec<crate::backend::Input>) -> (Plan, Cache) {
        let mut batch = Batch::default();
        batch.push(&[0; 5], 2, Vec::new(), [0, 0]);
        batch.inputs = inputs;
        (Oracle.plan(batch).unwrap(), Oracle.new_cache(&CacheSpec::new(Vec::new(), 16, 0, 0)).unwrap())
    }

    fn two(mutual: bool) -> Vectors {
        let vectors = Vectors::new(vec![10.0, 11.0, 20.0, 21.0], 2).unwrap();
        let vectors = vectors.deeper(vec![vec![1.0, 2.0, 3.0, 4.0].into()]).unwrap();
        if mutual { vectors.mutual() } else { vectors }
    }

    #[test]
    fn vectors_take_the_place_of_their_rows() {
        let of = std::sync::Arc::new(two(false));
        let input = |start, part| crate::backend::Input::new(start, part, of.clone());
        let x: Vec<f32> = (0..10).map(|i| i as f32).collect();
        let run = |inputs: Vec<_>| {
            let (plan, cache) = step(inputs);
            let s = Step::new(&Oracle, &plan, &cache);
            let x = || Oracle.upload(&x, [5, 2].into());
            let placed = Oracle.download(&inputs::placed(&s, x()?)?)?;
            Ok::<_, Error>((placed, Oracle.download(&inputs::deepened(&s, x()?, 0)?)?, inputs::depth(&s)))
        };
        let (placed, deepened, depth) = run(vec![input(0, 0..2), input(3, 1..2)]).unwrap();
        assert_eq!(placed, [10., 11., 20., 21., 4., 5., 20., 21., 8., 9.]);
        assert_eq!(deepened, [1., 3., 5., 7., 4., 5., 9., 11., 8., 9.]);
        assert_eq!(depth, 1);
        assert_eq!(run(vec![]).unwrap(), (x.clone(), x.clone(), 0));
        assert_eq!(run(vec![input(3, 0..2)]).unwrap().0, [0., 1., 2., 3., 4., 5., 10., 11., 20., 21.]);
        // Beyond the step, over each other, out of order.
        for wrong in
            [vec![input(4, 0..2)], vec![input(0, 0..2), input(1, 0..2)], vec![input(3, 0..1), input(0, 0..1)]]
        {
            assert!(run(wrong).is_err());
        }
    }

    #[test]
    fn rows_of_an_image_see_each_other() {
        let of = |mutual: bool, part: std::ops::Range<usize>| {
            let mut batch = Batch::default();
            batch.push(&[0; 5], 2, Vec::new(), [0, 0]);
            batch.inputs = vec![crate::backend::Input::new(1, part, std::sync::Arc::new(two(mutual)))];
            let plan = Oracle.plan(batch)?;
            let cache = Oracle.new_cache(&CacheSpec::new(Vec::new(), 16, 0, 0))?;
            let (step, spec) = (Step::new(&Oracle, &plan, &cache), AttnSpec::causal(1, 1, 1));
            Ok::<_, Error>(step.attention(&spec).mutual(plan.batch()))
        };
        assert_eq!(of(false, 0..2).unwrap(), None);
        assert_eq!(of(true, 0..2).unwrap(), Some(vec![3, 5, 5, 6, 7]));
        assert!(of(true, 1..2).unwrap_err().to_string().contains("must be in one"));
    }

    #[test]
    fn a_convolution_is_a_product() {
        #[derive(Debug)]
        struct File;
        impl crate::Source for File {
            fn get(&self, name: &str) -> Result<HostWeight> {
                match name {
                    "conv.weight" => {
                        HostWeight::from_f32(name, [4, 1, 3], &(0..12).map(|i| i as f32).collect::<Vec<_>>())
                    }
                    _ => Err(Error::missing(name)),
                }
            }
            fn tensors(&self) -> Vec<crate::tensor::WeightInfo> {
                Vec::new()
            }
        }
        let l = Loader::new(&File, &Oracle);
        let of: Weight = l.patch_projection("conv", 2).unwrap().weight;
        assert_eq!(of.shape(), [1, 2, 6]);
        assert!(l.patch_projection("conv", 5).is_err() && l.patch_projection("conv", 0).is_err());
    }
}
