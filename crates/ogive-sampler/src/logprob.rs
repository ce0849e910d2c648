//! Log probabilities: what the model itself held of each token, whatever the sampler made of it.
//!
//! From the raw logits, before any stage, as the servers of OpenAI and llama.cpp give them by default: so they can be
//! compared between settings, and summed up to the probability of a text. The sum runs in the same integers as a draw's
//! does, and not in floats: it is the same in any order and on any machine. What that costs in precision, some 4e-7, is
//! less than the last bit of a logit above 4.

use std::cmp::Reverse;

use crate::candidates::{Candidate, best};
use crate::math::ln;
use crate::softmax::{LIMIT, ONE, weight};

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProb {
    /// The token.
    pub id: u32,
    /// At most 0; minus infinity for what cannot come.
    pub logprob: f64,
}

/// What a model held of a token, and of the ones it held the most of.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbs {
    /// The token that was drawn, or that stands in the text.
    pub chosen: LogProb,
    /// The most likely tokens, the best first; of equal ones the lower id. The chosen one may be among them.
    pub best: Vec<LogProb>,
}

impl LogProbs {
    /// Of token `chosen` and of the `n` best, from one row of raw logits.
    ///
    /// A logit that is no number counts as minus infinity. Where one is infinite, the best of them is certain.
    pub fn new(logits: &[f32], chosen: u32, n: usize) -> Self {
        let normal = Normal::of(logits);
        let logit = usize::try_from(chosen).ok().and_then(|i| logits.get(i)).copied();
        let of = |c: Candidate| LogProb { id: c.id, logprob: normal.logprob(c) };
        let chosen = Candidate { id: chosen, logit: logit.unwrap_or(f32::NEG_INFINITY) };
        Self { chosen: of(chosen), best: best(logits, n).into_iter().map(of).collect() }
    }
}

/// What turns logits into log probabilities.
struct Normal {
    best: Candidate,
    /// ln of the sum of `exp(logit - best)`
    ln_total: f64,
}

impl Normal {
    fn of(logits: &[f32]) -> Self {
        let none = Candidate { id: 0, logit: f32::NEG_INFINITY };
        let best = (0..).zip(logits).map(|(id, &logit)| Candidate { id, logit });
        let best = best.filter(|c| !c.logit.is_nan()).min_by_key(|c| Reverse(c.rank())).unwrap_or(none);
        if !best.logit.is_finite() {
            return Self { best, ln_total: 0.0 };
        }
        // So many weights fit one integer; a vocabulary beyond that is added up by parts.
        let part = |row: &[f32]| row.iter().map(|l| weight(l - best.logit)).sum::<u64>() as f64;
        let total: f64 = logits.chunks(LIMIT).map(part).sum();
        Self { best, ln_total: ln(total / ONE as f64) }
    }

    fn logprob(&self, c: Candidate) -> f64 {
        if c.logit.is_nan() || self.best.logit == f32::NEG_INFINITY {
            f64::NEG_INFINITY
        } else if self.best.logit == f32::INFINITY {
            if c.id == self.best.id { 0.0 } else { f64::NEG_INFINITY }
        } else {
            f64::from(c.logit) - f64::from(self.best.logit) - self.ln_total
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The definition: logit - ln(sum of exp(logit)), in double precision.
    fn naive(logits: &[f32], id: usize) -> f64 {
        let most = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        let sum: f64 = logits.iter().map(|l| f64::from(l - most).exp()).sum();
        f64::from(logits[id]) - f64::from(most) - sum.ln()
    }

    #[test]
    fn as_defined_in_any_order() {
        let mut rng = Rng::new(5);
        for (n, spread) in [(1, 1.0), (2, 0.0), (50, 3.0), (1000, 20.0), (150_000, 0.5), (150_000, 40.0)] {
            let mut logits: Vec<f32> = (0..n).map(|_| (rng.uniform() * spread - 7.0) as f32).collect();
            let ids: Vec<usize> = (0..20).map(|_| rng.below(n) as usize).collect();
            let all: Vec<LogProbs> = ids.iter().map(|&i| LogProbs::new(&logits, i as u32, 3)).collect();
            for (one, &i) in all.iter().zip(&ids) {
                let want = naive(&logits, i);
                assert!((one.chosen.logprob - want).abs() < 5e-7, "{n} {spread}: {one:?} {want}");
                assert!(one.chosen.logprob <= 0.0);
                assert!(one.best.windows(2).all(|w| w[0].logprob >= w[1].logprob));
                assert_eq!(one.best.len(), 3.min(n as usize));
            }
            logits.reverse();
            for (one, &i) in all.iter().zip(&ids) {
                let turned = LogProbs::new(&logits, (n as usize - 1 - i) as u32, 0);
                assert_eq!(turned.chosen.logprob.to_bits(), one.chosen.logprob.to_bits(), "order");
            }
        }
    }

    #[test]
    fn they_sum_to_one() {
        let logits: Vec<f32> = (0..300).map(|i| (i as f32 * 0.37).sin() * 4.0).collect();
        let all = LogProbs::new(&logits, 0, 300);
        let sum: f64 = all.best.iter().map(|p| p.logprob.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert_eq!(all.chosen, *all.best.iter().find(|p| p.id == 0).expect("all are there"));
    }

    #[test]
    fn what_is_no_number_or_infinite() {
        let (no, yes) = (f32::NEG_INFINITY, f32::INFINITY);
        let of = |logits: &[f32], id: u32| LogProbs::new(logits, id, 2).chosen.logprob;
        assert_eq!(of(&[1.0, f32::NAN], 1), f64::NEG_INFINITY);
        assert_eq!(of(&[1.0, f32::NAN], 0), 0.0);
        assert_eq!((of(&[0.0, yes, yes], 1), of(&[0.0, yes, yes], 2)), (0.0, f64::NEG_INFINITY));
        assert_eq!(
            (of(&[no, no], 0), of(&[], 0), of(&[1.0], 7)),
            (f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY)
        );
        assert_eq!(of(&[no, 0.0], 0), f64::NEG_INFINITY);
    }
}
