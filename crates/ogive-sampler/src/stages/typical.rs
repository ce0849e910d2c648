//! Locally typical sampling: the tokens whose surprise is nearest to the expected one (Meister et al. 2022,
//! arXiv:2202.00666), with llama.cpp's cut: the first sum *above* p ends it.
//!
//! The definition sorts a vocabulary by the distance of each surprise from the entropy. A surprise is the
//! logit and a constant, so that distance is one from a logit in the middle; this looks at ever wider rings
//! around the middle until they hold p, and finds the last token in the last of them by selection. What survives stays in the
//! order it came in, where llama.cpp sorts it. The best token may be among what goes.

use crate::candidates::{Candidate, Candidates};
use crate::error::{SampleError, check};
use crate::softmax::Softmax;
use crate::stage::{Needs, Stage};

/// Keeps the candidates nearest to the entropy that together hold more than p; at least one.
///
/// Of two equally near, the better one comes first. Linear in the number of candidates, with two exponentials
/// each and a few more for those in the last ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Typical {
    p: f32,
}

impl Typical {
    /// `p` from 0 (only the most typical one, which need not be the best) to 1 (off).
    ///
    /// # Errors
    /// If `p` is outside 0 to 1.
    pub fn new(p: f32) -> Result<Self, SampleError> {
        Ok(Self { p: check("typical_p", p, (0.0..=1.0).contains(&p), "a number from 0 to 1 (1 is off)")? })
    }
}

/// How far a candidate is from typical, as an integer that sorts the same; of two equal ones the better first.
type Distance = (u64, u64);

struct Middle {
    softmax: Softmax,
    best: f64,
    /// How far below the best logit the typical one is.
    below: f64,
}

impl Middle {
    fn of(candidates: &Candidates) -> Self {
        let softmax = candidates.softmax();
        let below = softmax.entropy(candidates.as_slice()) - softmax.ln_total();
        Self { softmax, best: f64::from(candidates.best().logit), below }
    }

    /// Not negative; of impossible candidates infinite.
    fn off(&self, c: Candidate) -> f64 {
        (self.best - f64::from(c.logit) - self.below).abs()
    }

    fn distance(&self, c: Candidate) -> Distance {
        // Floats of one sign sort as their bits do.
        (self.off(c).to_bits(), !c.rank())
    }

    /// The most distant candidate that is needed for the sum to exceed `p`.
    fn last_member(&self, candidates: &Candidates, p: f32) -> Distance {
        /// So few are sorted.
        const FEW: usize = 128;
        let target = f64::from(p) * self.softmax.total as f64;
        let exceeded = |sum: u64| sum as f64 > target;
        // Ring by ring outwards: each candidate is weighed once, and only the last ring is sorted.
        let mut ring: Vec<Candidate> = Vec::new();
        let (mut sum, mut inner) = (0, f64::NEG_INFINITY);
        // All that has any weight is within 30 of the best, and so is the middle.
        for outer in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 64.0] {
            ring.clear();
            ring.extend(candidates.as_slice().iter().filter(|&&c| {
                let off = self.off(c);
                (off > inner) & (off <= outer)
            }));
            let with = sum + self.softmax.sum(&ring);
            if exceeded(with) {
                break;
            }
            (sum, inner) = (with, outer);
        }
        let mut open = ring.as_mut_slice();
        while open.len() > FEW {
            let half = open.len() / 2;
            open.select_nth_unstable_by_key(half, |&c| self.distance(c));
            let (near, far) = open.split_at_mut(half);
            let with = sum + self.softmax.sum(near);
            (open, sum) = if exceeded(with) { (near, sum) } else { (far, with) };
        }
        open.sort_unstable_by_key(|&c| self.distance(c));
        let mut last = (0, 0);
        for &mut c in open {
            last = self.distance(c);
            sum += self.softmax.weight(c);
            if exceeded(sum) {
                break;
            }
        }
        last
    }
}

impl Stage for Typical {
    fn name(&self) -> &str {
        "typical"
    }

    fn text(&self) -> String {
        format!("typ_p:{}", self.p)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        // A certain token stays certain.
        if self.p < 1.0 && candidates.best().logit.is_finite() {
            let middle = Middle::of(candidates);
            let last = middle.last_member(candidates, self.p);
            candidates.retain(|c| middle.distance(c) <= last);
        }
    }

    fn needs(&self) -> Needs {
        if self.p == 1.0 { Needs::Next } else { Needs::All }
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(*self)
    }
}
