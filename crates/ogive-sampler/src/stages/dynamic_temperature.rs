//! Dynamic temperature: hotter where the model is unsure, colder where it is not (kalomaze 2023, "entropy
//! sampling"), with llama.cpp's arithmetic.
//!
//! A stage of its own beside [`Temperature`](super::Temperature): the plain one needs no entropy, and so no
//! exponentials.

use super::temperature::divide;
use crate::candidates::Candidates;
use crate::error::{SampleError, check};
use crate::math::{ln, power};
use crate::stage::{Needs, Stage};

/// Divides the logits by a temperature between t - range (at least 0) and t + range: the entropy as a share of
/// the largest that so many candidates can have, to the power of an exponent, says where in between.
///
/// One candidate stays as it is. Two passes with an exponential each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DynamicTemperature {
    t: f32,
    range: f32,
    exponent: f32,
}

impl DynamicTemperature {
    /// All three are finite and at least 0. A range of 0 is the plain temperature.
    ///
    /// # Errors
    /// If one of them is negative or not finite.
    pub fn new(t: f32, range: f32, exponent: f32) -> Result<Self, SampleError> {
        let good = |x: f32| x.is_finite() && x >= 0.0;
        let t = check("temperature", t, good(t), "a number of at least 0")?;
        let range = check("dynatemp_range", range, good(range), "a number of at least 0 (0 is off)")?;
        let exponent = check("dynatemp_exponent", exponent, good(exponent), "a number of at least 0")?;
        Ok(Self { t, range, exponent })
    }

    /// What the logits are divided by where the entropy is this share of the largest possible.
    fn at(&self, share: f64) -> f32 {
        let (t, range) = (f64::from(self.t), f64::from(self.range));
        let low = (t - range).max(0.0);
        let t = low + (t + range - low) * power(share.clamp(0.0, 1.0), f64::from(self.exponent));
        t.min(f64::from(f32::MAX)) as f32
    }
}

impl Stage for DynamicTemperature {
    fn name(&self) -> &str {
        "temp-ext"
    }

    fn text(&self) -> String {
        format!("temperature:{}:{}:{}", self.t, self.range, self.exponent)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        if self.range == 0.0 {
            divide(candidates, self.t);
        } else if candidates.len() > 1 && candidates.best().logit.is_finite() {
            let entropy = candidates.softmax().entropy(candidates.as_slice());
            divide(candidates, self.at(entropy / ln(candidates.len() as f64)));
        }
    }

    fn needs(&self) -> Needs {
        Needs::All
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(*self)
    }
}
