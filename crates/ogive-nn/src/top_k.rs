//! Activations of which only the largest are left, as if they were normally distributed: what is below a number of standard deviations from
//! their mean becomes nothing (Gemma 3n's `gaussian_topk`; Spark Transformer, You et al. 2025, <https://arxiv.org/abs/2506.06644>).
//!
//! Nothing is sorted and nothing left out of a product: it is what the model was trained with, not a way to be faster.

use crate::backend::Activation;
use crate::tensor::{Error, Result, Tensor, normal};
use crate::{Loader, Step};

/// How much of a row is cut off.
#[derive(Debug)]
pub struct GaussianTopK {
    /// How many deviations above the mean something begins to be left, below 0 where less than half is cut.
    minus: Tensor,
    /// One for each column.
    ones: Tensor,
    share: Tensor,
}

/// Below this a variance is none.
const TINY: f32 = 1e-30;

impl GaussianTopK {
    /// One that leaves nothing of the part `sparsity` of rows of `cols` elements, if they are normally distributed.
    ///
    /// # Errors
    /// If `sparsity` is not between 0 and 1; else if the backend cannot take some numbers ([`Backend::upload`](crate::backend::Backend::upload)).
    pub fn new(l: &Loader<'_>, sparsity: f32, cols: usize) -> Result<Self> {
        if !(sparsity > 0.0 && sparsity < 1.0) {
            let why =
                format!("{sparsity} of all activations cannot be cut off; it should be between 0 and 1");
            return Err(Error::invalid("config", why));
        }
        let ones = l.backend().upload(&vec![1.0; cols], [cols].into())?;
        let deviations = normal::quantile(f64::from(sparsity)) as f32;
        Ok(Self { minus: l.constant(-deviations)?, ones, share: l.constant((cols as f32).recip())? })
    }

    /// What is above the cut, less the cut. `[n, cols] -> [n, cols]`
    ///
    /// # Errors
    /// If `x` has other columns; else as [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: Tensor) -> Result<Tensor> {
        let b = s.backend;
        let normed = b.layer_norm(&x, &self.ones, None, TINY)?;
        // The mean of `x` times its norm is the norm's divisor.
        let deviation = b.mul(b.sum(&b.mul(x, &normed)?)?, &self.share)?; // [n, 1]
        let above = b.activate(b.add(normed, &self.minus)?, Activation::Relu)?;
        b.mul(above, &deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::testing::with_nothing;

    #[test]
    fn what_is_left_is_what_the_mean_and_the_deviation_say() {
        with_nothing(|b, s, l| {
            // The second row is the same number throughout, of which nothing is above the mean; the third is far from 0.
            let rows = [[0.3_f32, -1.2, 4.0, 0.9, -0.1], [0.7; 5], [101.0, 99.0, 100.0, 100.5, 103.0]];
            for (sparsity, deviations) in [(0.95_f32, 1.644_853_6), (0.5, 0.0), (0.3, -0.524_400_5)] {
                let cut = GaussianTopK::new(l, sparsity, 5).unwrap();
                let x = b.upload(&rows.concat(), [3, 5].into()).unwrap();
                let got = b.download(&cut.forward(s, x).unwrap()).unwrap();
                let want = rows.iter().flat_map(|row| {
                    let row = row.map(f64::from);
                    let mean = row.iter().sum::<f64>() / 5.0;
                    let deviation = (row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 5.0).sqrt();
                    row.map(|v| (v - mean - deviations * deviation).max(0.0))
                });
                for (i, (got, want)) in got.iter().zip(want).enumerate() {
                    assert!((f64::from(*got) - want).abs() < 2e-5, "{sparsity}, {i}: {got}, {want}");
                }
            }
            for bad in [0.0, 1.0, -0.5, f32::NAN] {
                assert!(GaussianTopK::new(l, bad, 5).unwrap_err().to_string().contains("cannot be cut off"));
            }
        });
    }
}
