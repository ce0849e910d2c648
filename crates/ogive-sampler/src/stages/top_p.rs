//! Top-p, or nucleus sampling: only the best tokens that together hold a probability of p (Holtzman et
//! al. 2019, arXiv:1904.09751).
//!
//! The definition sorts the candidates and adds up weights until p is reached. This does the same without
//! sorting a vocabulary, and because weights are integers the result is the same to the last token: it looks
//! at the candidates near the best, and further down only while those do not hold p; among them it
//! finds the last member of the nucleus by selection. The survivors stay in the order they came in.

use std::cmp::Reverse;

use crate::candidates::{Candidate, Candidates};
use crate::error::{SampleError, check};
use crate::softmax::Softmax;
use crate::stage::{Needs, Stage};

/// Keeps the shortest run of best candidates whose probabilities sum to at least p; at least one.
///
/// Linear in the number of candidates, with one exponential each and a few more for those near the nucleus.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopP {
    p: f32,
}

impl TopP {
    /// `p` from 0 (only the best) to 1 (off).
    ///
    /// # Errors
    /// If `p` is outside 0 to 1.
    pub fn new(p: f32) -> Result<Self, SampleError> {
        Ok(Self { p: check("top_p", p, (0.0..=1.0).contains(&p), "a number from 0 to 1 (1 is off)")? })
    }
}

impl Stage for TopP {
    fn name(&self) -> &str {
        "top-p"
    }

    fn text(&self) -> String {
        format!("top_p:{}", self.p)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        if self.p == 0.0 {
            candidates.keep_best(1);
        } else if self.p < 1.0 {
            let last = last_member(candidates, self.p);
            let last = Candidate::from_rank(last);
            // As comparing ranks, but cheaper.
            candidates.retain(|c| (c.logit > last.logit) | ((c.logit == last.logit) & (c.id <= last.id)));
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

/// The rank of the last candidate that is needed to reach p.
fn last_member(candidates: &Candidates, p: f32) -> u64 {
    /// So few are sorted.
    const FEW: usize = 128;
    let softmax = candidates.softmax();
    let target = f64::from(p) * softmax.total as f64;
    let reached = |sum: u64| sum as f64 >= target;

    // Ranks hold all there is to know of a candidate, and single integers select and sort faster.
    let mut ranks: Vec<u64> = if candidates.is_best_first() {
        candidates.as_slice().iter().map(|c| c.rank()).collect()
    } else {
        top_ranks(candidates, &softmax, reached)
    };
    let mut open = ranks.as_mut_slice();
    let mut sum = 0;
    if !candidates.is_best_first() {
        while open.len() > FEW {
            // First the better quarter: nuclei are small.
            let cut = open.len() - open.len() / 4;
            open.select_nth_unstable(cut);
            let (worse, better) = open.split_at_mut(cut);
            let with = better.iter().fold(sum, |sum, &rank| sum + softmax.weight(Candidate::from_rank(rank)));
            if reached(with) {
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
        if reached(sum) {
            break;
        }
    }
    last
}

/// The ranks of all candidates from the best down to some logit, so far that their sum is `reached`.
fn top_ranks(candidates: &Candidates, softmax: &Softmax, reached: impl Fn(u64) -> bool) -> Vec<u64> {
    let best = candidates.best().logit;
    let mut top = Vec::new();
    // 32 below the best all weights are zero.
    for depth in [2.0, 4.0, 8.0, 16.0, 32.0] {
        top.clear();
        top.extend(candidates.as_slice().iter().filter(|c| c.logit >= best - depth));
        if reached(softmax.sum(&top)) {
            break;
        }
    }
    top.iter().map(|c| c.rank()).collect()
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
