//! The residual stream. A sum is held back until the norm that follows it, so that the two become one operator without
//! the model having to say so.

use crate::tensor::{Result, Tensor};
use crate::{RmsNorm, Step};

/// The running sum that blocks read from and add to. `[n, dim]`
#[derive(Debug)]
pub struct Residual {
    sum: Tensor,
    pending: Option<Tensor>,
}

impl Residual {
    /// Starts the stream.
    pub fn new(x: Tensor) -> Self {
        Self { sum: x, pending: None }
    }

    /// Adds a block's output.
    ///
    /// # Errors
    /// If the output before this one does not fit the sum; else as [all operators](crate::backend::Backend#errors).
    pub fn add(mut self, s: &Step<'_>, x: Tensor) -> Result<Self> {
        if let Some(earlier) = self.pending.replace(x) {
            self.sum = s.backend.add(self.sum, &earlier)?;
        }
        Ok(self)
    }

    /// The stream as a block wants to read it.
    ///
    /// # Errors
    /// If the last output or the norm does not fit the sum; else as [all operators](crate::backend::Backend#errors).
    pub fn normed(self, s: &Step<'_>, norm: &RmsNorm) -> Result<(Self, Tensor)> {
        let (sum, h) = match self.pending {
            Some(x) => s.backend.add_rms_norm(self.sum, &x, &norm.weight, norm.eps)?,
            None => {
                let h = norm.forward(s, &self.sum)?;
                (self.sum, h)
            }
        };
        Ok((Self::new(sum), h))
    }

    /// The stream as it is, for a block that reads it without a norm.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn plain(self, s: &Step<'_>) -> Result<(Self, Tensor)> {
        let sum = self.value(s)?;
        Ok((Self::new(sum.clone()), sum))
    }

    /// The stream itself, for blocks that norm it otherwise.
    ///
    /// # Errors
    /// If the last output does not fit the sum; else as [all operators](crate::backend::Backend#errors).
    pub fn value(self, s: &Step<'_>) -> Result<Tensor> {
        match self.pending {
            Some(x) => s.backend.add(self.sum, &x),
            None => Ok(self.sum),
        }
    }
}
