//! Top-p, or nucleus sampling: only the best tokens that together hold a probability of p (Holtzman et
//! al. 2019, arXiv:1904.09751).
//!
//! The definition sorts the candidates and adds up weights until p is reached. This does the same without
//! sorting a vocabulary, and because weights are integers the result is the same to the last token: first
//! it drops what cannot belong to the nucleus, then it finds the last member by halving. The survivors
//! stay in the order they came in.

use std::cmp::Reverse;

use crate::candidates::{Candidate, Candidates};
use crate::error::{SampleError, check};
use crate::softmax::{ONE, Softmax, ln};
use crate::stage::{Needs, Stage};

/// Keeps the shortest run of best candidates whose probabilities sum to at least p; at least one.
///
/// Linear in the number of candidates, with one exponential each (two for those that come near the
/// nucleus).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopP {
    p: f32,
}

impl TopP {
    /// `p` from 0 (only the best) to 1 (off).
    pub fn new(p: f32) -> Result<Self, SampleError> {
        Ok(Self { p: check("top_p", p, (0.0..=1.0).contains(&p), "a number from 0 to 1 (1 is off)")? })
    }
}

impl Stage for TopP {
    fn name(&self) -> &str {
        "top-p"
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        if self.p == 0.0 {
            candidates.keep_best(1);
        } else if self.p < 1.0 {
            let softmax = candidates.softmax();
            let target = f64::from(self.p) * softmax.total as f64;
            if !candidates.is_best_first() {
                drop_hopeless(candidates, f64::from(self.p), softmax.total);
            }
            let last = last_member(candidates, &softmax, target);
            candidates.retain(|c| c.rank() >= last);
        }
    }

    fn needs(&self) -> Needs {
        if self.p == 0.0 {
            Needs::Best(1)
        } else if self.p == 1.0 {
            Needs::Next
        } else {
            Needs::All
        }
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(*self)
    }
}

/// Drops candidates so unlikely that, were all as unlikely, they would still hold less than 1 - p
/// together. Then the others hold at least p, and the nucleus lies among them.
fn drop_hopeless(candidates: &mut Candidates, p: f64, total: u64) {
    let best = candidates.best().logit;
    // One less for the rounding of weights, and below a margin of a thousandth for that of exp, ln and
    // the f32 sum.
    let share = (1.0 - p) * total as f64 / candidates.len() as f64 - 1.0;
    if share >= 1.0 && best.is_finite() {
        let bar = f64::from(best) + ln(share / ONE as f64) - 1e-3;
        // Far from zero an f32 is too coarse for the margin, so the comparison is in f64.
        candidates.retain(|c| f64::from(c.logit) >= bar);
    }
}

/// The rank of the last candidate that is needed for the sum of weights to reach `target`.
fn last_member(candidates: &Candidates, softmax: &Softmax, target: f64) -> u64 {
    /// So few are sorted.
    const FEW: usize = 128;
    // Ranks hold all there is to know of a candidate, and single integers select and sort faster.
    let mut ranks: Vec<u64> = candidates.as_slice().iter().map(|c| c.rank()).collect();
    let mut open = ranks.as_mut_slice();
    let mut sum = 0;
    if !candidates.is_best_first() {
        while open.len() > FEW {
            // Of the rest, the better quarter: nuclei are small.
            let cut = open.len() - open.len() / 4;
            open.select_nth_unstable(cut);
            let (worse, better) = open.split_at_mut(cut);
            let with = better.iter().fold(sum, |sum, &rank| sum + softmax.weight(Candidate::from_rank(rank)));
            if with as f64 >= target {
                open = better;
            } else {
                (open, sum) = (worse, with);
            }
        }
        open.sort_unstable_by_key(|&rank| Reverse(rank));
    }
    let mut last = u64::MAX;
    for &mut rank in open {
        last = rank;
        sum += softmax.weight(Candidate::from_rank(rank));
        if sum as f64 >= target {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The definition: sort, add up, cut.
    fn by_sorting(logits: &[f32], p: f32) -> Vec<u32> {
        let mut candidates = Candidates::from_logits(logits).expect("some logits");
        candidates.keep_best(logits.len());
        let softmax = candidates.softmax();
        let mut sum = 0;
        let mut kept = Vec::new();
        for &c in candidates.as_slice() {
            kept.push(c.id);
            sum += softmax.weight(c);
            if sum as f64 >= f64::from(p) * softmax.total as f64 {
                break;
            }
        }
        kept.sort_unstable();
        kept
    }

    #[test]
    fn equals_its_definition() {
        let mut rng = Rng::new(5);
        for round in 0..400u32 {
            let n = 1 + rng.below(3000) as usize;
            // From uniform over many ties to one peak, and far from zero.
            let spread = [0.0, 0.01, 1.0, 5.0, 30.0, 1e4, 1e30][round as usize % 7];
            let levels = [3, 50, 1 << 20][round as usize % 3];
            let logits: Vec<f32> = (0..n)
                .map(|_| {
                    spread * (rng.below(levels) as f32 / levels as f32 - 0.5)
                        + if round % 2 == 0 { 300.0 } else { 0.0 }
                })
                .collect();
            for p in [1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 0.999_999_9] {
                let mut candidates = Candidates::from_logits(&logits).expect("some logits");
                TopP::new(p).expect("in range").apply(&mut candidates, &[]);
                let kept: Vec<_> = candidates.as_slice().iter().map(|c| c.id).collect();
                assert_eq!(kept, by_sorting(&logits, p), "round {round}, p {p}");
            }
        }
    }
}
