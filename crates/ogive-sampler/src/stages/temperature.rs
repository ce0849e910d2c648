//! Temperature: divides the logits.
//!
//! Unlike llama.cpp, zero drops the other candidates instead of forbidding them: the draw is the same,
//! and what follows has one candidate to look at. A negative temperature is refused.
//!
//! Division rounds: two different logits can become equal, and then the lower token is the better. So a
//! chain with temperature *before* top-k needs the whole vocabulary; put it last, where it belongs by
//! default.

use crate::candidates::Candidates;
use crate::error::{SampleError, check};
use crate::stage::{Needs, Stage};

/// Divides the logits by t; 0 keeps only the best candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    t: f32,
}

impl Temperature {
    /// `t` is finite and at least 0; 1 changes nothing.
    ///
    /// # Errors
    /// If `t` is negative or not finite.
    pub fn new(t: f32) -> Result<Self, SampleError> {
        let t = check("temperature", t, t.is_finite() && t >= 0.0, "a number of at least 0 (0 is greedy)")?;
        Ok(Self { t })
    }
}

impl Stage for Temperature {
    fn name(&self) -> &str {
        "temperature"
    }

    fn text(&self) -> String {
        format!("temperature:{}", self.t)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        divide(candidates, self.t);
    }

    fn needs(&self) -> Needs {
        if self.t == 0.0 {
            Needs::Best(1)
        } else if self.t == 1.0 {
            Needs::Next
        } else {
            Needs::All
        }
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(*self)
    }
}

/// Divides the logits by `t`, which is finite and at least 0; 0 keeps the best candidate alone.
pub(super) fn divide(candidates: &mut Candidates, t: f32) {
    if t == 0.0 {
        candidates.keep_best(1);
    } else if t != 1.0 {
        // Overflow must neither force nor forbid a token that was merely likely or unlikely.
        let best = candidates.best().logit;
        if (best / t).is_finite() {
            candidates.map(|c| if c.logit.is_finite() { (c.logit / t).max(f32::MIN) } else { c.logit });
        } else {
            // Softmax does not see a shift; relative to the best, nothing overflows upwards.
            candidates.map(
                |c| {
                    if c.logit.is_finite() { ((c.logit - best) / t).max(f32::MIN) } else { c.logit }
                },
            );
        }
    }
}
