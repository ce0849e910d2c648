//! Top-n-sigma: only tokens whose logit is within n standard deviations of the best (Tang et al. 2024,
//! arXiv:2411.07641).
//!
//! Unlike the other truncations it forbids what it drops and leaves it in the list, as llama.cpp does: dynamic
//! temperature counts the candidates, and would run hotter without them.

use crate::candidates::{Candidate, Candidates};
use crate::error::{SampleError, check};
use crate::stage::{Needs, Stage};

/// Forbids the candidates whose logit is below the best one's by more than n standard deviations of all
/// logits that are not minus infinity. Three passes, no exponential and no sort.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopNSigma {
    n: f32,
}

impl TopNSigma {
    /// `n` is finite; 0 and below (llama.cpp's default is -1) is off.
    ///
    /// # Errors
    /// If `n` is not finite.
    pub fn new(n: f32) -> Result<Self, SampleError> {
        Ok(Self { n: check("top_n_sigma", n, n.is_finite(), "a finite number (0 and below is off)")? })
    }

    /// Whether it changes nothing.
    pub fn is_off(&self) -> bool {
        self.n <= 0.0
    }
}

impl Stage for TopNSigma {
    fn name(&self) -> &str {
        "top-n-sigma"
    }

    fn text(&self) -> String {
        format!("top_n_sigma:{}", self.n)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        let best = candidates.best().logit;
        // A certain token stays certain.
        if self.is_off() || !best.is_finite() {
            return;
        }
        let best = f64::from(best);
        let sigma = deviation(candidates.as_slice(), best);
        let bar = best - f64::from(self.n) * sigma;
        candidates.map(|c| if f64::from(c.logit) < bar { f32::NEG_INFINITY } else { c.logit });
    }

    fn needs(&self) -> Needs {
        if self.is_off() { Needs::Next } else { Needs::All }
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(*self)
    }
}

/// The standard deviation of the logits that are not minus infinity, one of which is `best`.
fn deviation(list: &[Candidate], best: f64) -> f64 {
    let possible = |c: &Candidate| c.logit > f32::NEG_INFINITY;
    let (count, sum) = sums(list, |c| if possible(c) { f64::from(c.logit) - best } else { 0.0 }, possible);
    let mean = sum / count;
    let square = |c: &Candidate| {
        let off = f64::from(c.logit) - best - mean;
        if possible(c) { off * off } else { 0.0 }
    };
    (sums(list, square, possible).1 / count).sqrt()
}

/// How many count, and the sum, in lanes: vectors fill, and the order of the sum stays the list's.
fn sums(
    list: &[Candidate],
    term: impl Fn(&Candidate) -> f64,
    counts: impl Fn(&Candidate) -> bool,
) -> (f64, f64) {
    let mut lanes = [0.0f64; 8];
    let mut count = 0usize;
    let (blocks, rest) = list.as_chunks::<8>();
    for block in blocks {
        for (lane, c) in lanes.iter_mut().zip(block) {
            *lane += term(c);
            count += usize::from(counts(c));
        }
    }
    for (lane, c) in lanes.iter_mut().zip(rest) {
        *lane += term(c);
        count += usize::from(counts(c));
    }
    (count as f64, lanes.iter().sum())
}
