//! Adaptive-p: prefers tokens whose probability is near a target, which moves against what was drawn lately
//! (MrJackSpade and ddh0 2025, llama.cpp pull request 17927), with llama.cpp's arithmetic.
//!
//! There it draws the token itself; here it bends the distribution, the chain draws, and `accept` tells what came
//! of it. It belongs at the chain's end, after a mild truncation: without one a vocabulary's unlikely tokens are
//! each improbable and together are not.

use super::offered::Offered;
use crate::candidates::Candidates;
use crate::error::{SampleError, check};
use crate::stage::{Needs, Stage};
use crate::state::finite;

/// The logit of a candidate that has just the probability aimed at.
const PEAK: f64 = 5.0;
/// How steeply logits fall on both sides.
const SHARPNESS: f64 = 10.0;
/// So far from the target, in probability, the fall has turned from a parabola to a line.
const WIDTH: f64 = 0.3;

/// Gives every possible candidate a logit by how near its probability is to the target.
///
/// The target of a step is twice the one set, less the mean of the drawn tokens' probabilities, which weighs
/// each by `decay` less for every token since. One exponential for each candidate.
#[derive(Clone, Debug)]
pub struct AdaptiveP {
    target: f32,
    decay: f32,
    /// Of the drawn tokens' probabilities, the latest first: the sum of p·decay^i and that of decay^i.
    sum: f64,
    weight: f64,
    offered: Offered,
}

impl AdaptiveP {
    /// `target` is at most 1, negative being off; `decay` is from 0 (only the last token counts) to 0.99, about
    /// 1 / (1 - decay) tokens being remembered (llama.cpp: 0.9).
    ///
    /// # Errors
    /// If one of them is outside its range.
    pub fn new(target: f32, decay: f32) -> Result<Self, SampleError> {
        let good = target.is_finite() && target <= 1.0;
        let target = check("adaptive_target", target, good, "a number up to 1 (negative is off)")?;
        let good = (0.0..=0.99).contains(&decay);
        let decay = check("adaptive_decay", decay, good, "a number from 0 to 0.99")?;
        let mut new = Self { target, decay, sum: 0.0, weight: 0.0, offered: Offered::default() };
        new.reset();
        Ok(new)
    }

    /// Whether it changes nothing.
    pub fn is_off(&self) -> bool {
        self.target < 0.0
    }
}

impl Stage for AdaptiveP {
    fn name(&self) -> &str {
        "adaptive-p"
    }

    fn text(&self) -> String {
        format!("adaptive_p:{}:{}", self.target, self.decay)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        if self.is_off() {
            return;
        }
        let softmax = candidates.softmax();
        self.offered.note(candidates, softmax);
        // A certain token stays certain.
        if !candidates.best().logit.is_finite() {
            return;
        }
        let target = (2.0 * f64::from(self.target) - self.sum / self.weight).clamp(0.0, 1.0);
        let total = softmax.total.max(1) as f64;
        candidates.map(|c| {
            if c.logit == f32::NEG_INFINITY {
                return c.logit;
            }
            let off = (softmax.weight(c) as f64 / total - target).abs() / WIDTH;
            (PEAK - SHARPNESS * off * off / (1.0 + off)) as f32
        });
    }

    fn accept(&mut self, token: u32) {
        if let Some(p) = self.offered.take(token) {
            let decay = f64::from(self.decay);
            self.sum = p + decay * self.sum;
            self.weight = 1.0 + decay * self.weight;
        }
    }

    fn reset(&mut self) {
        // As if the target had been met since ever.
        self.weight = 1.0 / (1.0 - f64::from(self.decay));
        self.sum = f64::from(self.target) * self.weight;
        self.offered.forget();
    }

    fn state(&self) -> Vec<u8> {
        [self.sum, self.weight].map(f64::to_le_bytes).concat()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        let good = finite(state).filter(|[_, weight]| *weight >= 1.0);
        [self.sum, self.weight] = good.ok_or_else(|| SampleError::bad_state(self.name()))?;
        self.offered.forget();
        Ok(())
    }

    fn needs(&self) -> Needs {
        if self.is_off() { Needs::Next } else { Needs::All }
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}
