//! Min-p: only tokens at least a fraction as likely as the best (Nguyen et al. 2024, arXiv:2407.01082).
//!
//! The comparison is one of logits, `logit >= best + ln p`, as in llama.cpp: no exponential for any
//! candidate.

use crate::candidates::Candidates;
use crate::error::{SampleError, check};
use crate::math::ln;
use crate::stage::{Needs, Stage};

/// Keeps the candidates whose probability is at least p times the best one's. Two passes, no sort.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinP {
    p: f32,
    ln_p: f32,
}

impl MinP {
    /// `p` is at least 0 (off); above 1 only the best candidate is left, as in llama.cpp.
    ///
    /// # Errors
    /// If `p` is negative or not finite.
    pub fn new(p: f32) -> Result<Self, SampleError> {
        check(
            "min_p",
            p,
            p.is_finite() && p >= 0.0,
            "a number of at least 0 (off); above 1 only the best is left",
        )?;
        let ln_p = if p > 0.0 { ln(f64::from(p)) as f32 } else { f32::NEG_INFINITY };
        Ok(Self { p, ln_p })
    }
}

impl Stage for MinP {
    fn name(&self) -> &str {
        "min-p"
    }

    fn text(&self) -> String {
        format!("min_p:{}", self.p)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        if self.p > 1.0 {
            candidates.keep_best(1);
        } else if self.p > 0.0 {
            let bar = candidates.best().logit + self.ln_p;
            candidates.retain(|c| c.logit >= bar);
        }
    }

    fn needs(&self) -> Needs {
        if self.p > 1.0 { Needs::Best(1) } else { Needs::Next }
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(*self)
    }
}
