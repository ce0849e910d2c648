//! Probabilities as integers, and the exponential behind them.
//!
//! A candidate's weight is `exp(logit - best)` as a whole number of 2^-40ths. Integers, because their sum
//! is the same in any order: a list that was cut, sorted or permuted on the way, or summed in vector
//! lanes, cannot change a draw. The price: what is less than 2^-41 as likely as the best token counts as
//! impossible; all of a vocabulary of 2^18 tokens at that edge would hold a mass of about 1e-7, below
//! what the f32 logits themselves resolve.
//!
//! `exp` uses additions, multiplications and bit operations only, which IEEE 754 fixes to the last bit (and
//! Rust never fuses), unlike the C library's. It is apart from the one in [`math`](crate::math) because a
//! vocabulary's worth of them must fill vectors.

use crate::candidates::Candidate;
use crate::math::ln;

/// Weights are multiples of 2^-40 of the best candidate's.
const BITS: u32 = 40;

/// The weight of the best candidate.
pub(crate) const ONE: u64 = 1 << BITS;

/// How many candidates can be added up without overflow: 2^23 of at most 2^40 each stay below 2^64.
pub(crate) const LIMIT: usize = 1 << 23;

/// Below this, `exp` is less than half of 2^-40, so the weight is zero.
const FLOOR: f32 = -30.0;

/// `e^x` for x in [-30, 0], within 2^-22 of the true value, relatively (tested).
///
/// x = n·ln 2 + r with |r| <= 0.35 (Cody and Waite's split of ln 2), Taylor's polynomial of degree 7 for
/// e^r (its rest is below 6e-9), and n goes straight into the exponent.
fn exp(x: f32) -> f32 {
    // Adding 1.5·2^23 leaves the nearest integer in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    // Nine bits, so that its product with |n| <= 44 is exact.
    const LN2_HIGH: f32 = 355.0 / 512.0;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * r + c;
    }
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127);
    p * f32::from_bits(exponent << 23)
}

/// `exp(x)` in 2^-40ths, rounded; x <= 0. NaN and minus infinity weigh nothing.
pub(crate) fn weight(x: f32) -> u64 {
    let x = if x > FLOOR { x } else { FLOOR };
    // Adding 2^12 leaves the multiples of 2^-40 in the low bits of a double's mantissa: a rounding
    // conversion that vectorises.
    const SHIFT: f64 = (1u64 << (52 - BITS)) as f64;
    (f64::from(exp(x)) + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits())
}

/// `x` times the weight of `exp(-x)`, in 2^-40ths, rounded; x >= 0, and 0 where the weight is.
///
/// Never above 0.37 times [`ONE`], so that as many can be added up as weights.
fn surprise(x: f32) -> u64 {
    let x = if x < -FLOOR { x } else { -FLOOR };
    const SHIFT: f64 = (1u64 << (52 - BITS)) as f64;
    let weight = (f64::from(exp(-x)) + SHIFT) - SHIFT;
    (weight * f64::from(x) + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits())
}

/// How many weights are computed together, so that the loop vectorises.
const BLOCK: usize = 64;

/// The weights of a list of candidates, computed as they are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Softmax {
    best: Candidate,
    /// The sum of all weights; 0 if nothing is possible.
    pub(crate) total: u64,
}

impl Softmax {
    /// Of `list`, whose best candidate is `best`.
    pub(crate) fn new(list: &[Candidate], best: Candidate) -> Self {
        let this = Self { best, total: 0 };
        Self { total: this.sum(list), ..this }
    }

    /// A candidate's share of [`total`](Self::total). Of infinite logits only the best one's has any.
    pub(crate) fn weight(&self, c: Candidate) -> u64 {
        if self.best.logit.is_finite() {
            weight(c.logit - self.best.logit)
        } else if self.best.logit > 0.0 && c.id == self.best.id {
            ONE
        } else {
            0
        }
    }

    /// The weights of some candidates together.
    pub(crate) fn sum(&self, list: &[Candidate]) -> u64 {
        if !self.best.logit.is_finite() {
            return list.iter().map(|&c| self.weight(c)).sum();
        }
        let mut sum = 0;
        let (blocks, rest) = list.as_chunks::<BLOCK>();
        for block in blocks {
            // Candidates interleave tokens and logits; apart, the logits fill vectors.
            let logits = block.map(|c| c.logit);
            sum += logits.iter().map(|l| weight(l - self.best.logit)).sum::<u64>();
        }
        sum + rest.iter().map(|&c| self.weight(c)).sum::<u64>()
    }

    /// The logarithm of the sum of `exp(logit - best)`: what takes a distance from the best candidate's logit
    /// to a surprise. 0 where nothing is possible.
    pub(crate) fn ln_total(&self) -> f64 {
        if self.total == 0 { 0.0 } else { ln(self.total as f64 / ONE as f64) }
    }

    /// The entropy in nats of the list that this was made of. Within 1e-6 for 2^18 candidates, and the same
    /// in any order. 0 where nothing is possible or one candidate is certain.
    pub(crate) fn entropy(&self, list: &[Candidate]) -> f64 {
        if self.total == 0 || !self.best.logit.is_finite() {
            return 0.0;
        }
        let mut sum = 0u64;
        let (blocks, rest) = list.as_chunks::<BLOCK>();
        for block in blocks {
            let logits = block.map(|c| c.logit);
            sum += logits.iter().map(|l| surprise(self.best.logit - l)).sum::<u64>();
        }
        sum += rest.iter().map(|c| surprise(self.best.logit - c.logit)).sum::<u64>();
        self.ln_total() + sum as f64 / self.total as f64
    }

    /// The candidate whose interval of the running sum holds `at`, which is below [`total`](Self::total).
    pub(crate) fn find(&self, list: &[Candidate], mut at: u64) -> Option<Candidate> {
        for block in list.chunks(BLOCK) {
            let sum = self.sum(block);
            if at < sum {
                return block.iter().copied().find(|&c| {
                    let weight = self.weight(c);
                    let here = at < weight;
                    at = at.wrapping_sub(weight);
                    here
                });
            }
            at -= sum;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_its_bound() {
        let mut worst = 0.0f64;
        // Every 97th float of [-30, 0].
        for bits in (0..=30.0f32.to_bits()).step_by(97) {
            let x = -f32::from_bits(bits);
            let truth = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - truth).abs() / truth);
        }
        assert!(worst < 0.5f64.powi(22), "{worst:e}");
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn weights_at_the_edges() {
        assert_eq!(weight(0.0), ONE);
        assert_eq!(weight(-0.0), ONE);
        assert_eq!(weight(FLOOR), 0);
        assert_eq!(weight(f32::NEG_INFINITY), 0);
        assert_eq!(weight(f32::NAN), 0);
        assert!(weight(-27.0) > 0);
        assert!(LIMIT as u64 <= u64::MAX / ONE);
    }

    #[test]
    fn entropy_is_within_its_bound() {
        let mut rng = crate::rng::Rng::new(3);
        for (n, spread) in [(1, 1.0), (2, 0.0), (100, 0.0), (1000, 4.0), (1 << 18, 0.1), (1 << 18, 60.0)] {
            let logit = |u: f64| 7.0 - (u * spread) as f32;
            let mut list: Vec<_> = (0..n).map(|id| Candidate { id, logit: logit(rng.uniform()) }).collect();
            list.push(Candidate { id: n, logit: f32::NEG_INFINITY });
            let best = list.iter().copied().max_by(|a, b| a.logit.total_cmp(&b.logit)).expect("some");
            let softmax = Softmax::new(&list, best);
            let terms = || list.iter().map(|c| f64::from(c.logit - best.logit)).filter(|x| x.is_finite());
            let total: f64 = terms().map(f64::exp).sum();
            let truth = total.ln() - terms().map(|x| x * x.exp()).sum::<f64>() / total;
            let got = softmax.entropy(&list);
            assert!((got - truth).abs() < 1e-6, "{n} {spread}: {got} {truth}");
            list.reverse();
            assert_eq!(softmax.entropy(&list), got);
        }
        let none = [Candidate { id: 0, logit: f32::NEG_INFINITY }];
        assert_eq!(Softmax::new(&none, none[0]).entropy(&none), 0.0);
        let forced = [1.0, f32::INFINITY].map(|logit| Candidate { id: u32::from(logit > 1.0), logit });
        assert_eq!(Softmax::new(&forced, forced[1]).entropy(&forced), 0.0);
    }

    #[test]
    fn find_gives_each_candidate_its_interval() {
        // More than one block, with a rest; every fifth is impossible.
        let logit = |id: u32| if id.is_multiple_of(5) { f32::NEG_INFINITY } else { -(id as f32) * 0.01 };
        let list: Vec<_> = (0..150).map(|id| Candidate { id, logit: logit(id) }).collect();
        let softmax = Softmax::new(&list, list[1]);
        let mut start = 0;
        for &c in &list {
            let weight = softmax.weight(c);
            assert_eq!(weight == 0, c.id.is_multiple_of(5));
            if weight > 0 {
                assert_eq!(softmax.find(&list, start), Some(c));
                assert_eq!(softmax.find(&list, start + weight - 1), Some(c));
            }
            start += weight;
        }
        assert_eq!(start, softmax.total);
        assert_eq!(softmax.find(&list, start), None);
    }
}
