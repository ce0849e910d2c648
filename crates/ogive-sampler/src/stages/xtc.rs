//! XTC, "exclude top choices": with some probability, of the tokens above a threshold only the least likely
//! stays (p-e-w 2024, text-generation-webui pull request 6335), with llama.cpp's details.
//!
//! Its chance comes from a generator of its own, seeded by the chain's seed and a constant: with the chain's own
//! numbers, the toss that removes the best tokens would be the one that also picks among the rest. The
//! generator moves on by one for every accepted token, whether or not there was a choice to exclude, so the
//! n-th token's toss depends on the seed and n alone.

use crate::candidates::{Candidate, Candidates};
use crate::error::{SampleError, check};
use crate::math::ln;
use crate::rng::Rng;
use crate::stage::{Needs, Stage};
use crate::state::{read_rng, write_rng};

/// Drops, with some probability, all candidates at least as likely as a threshold but the least likely of
/// them; nothing where fewer than two are.
///
/// Linear in the number of candidates where the toss says so, with one exponential each; else it costs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Xtc {
    probability: f32,
    threshold: f32,
    seed: u64,
    rng: Rng,
}

impl Xtc {
    /// `probability` from 0 (off) to 1 (always); `threshold` from 0 to 1, above 0.5 off, since two tokens cannot
    /// both be as likely. `seed` as the chain's.
    ///
    /// # Errors
    /// If one of the first two is outside 0 to 1.
    pub fn new(probability: f32, threshold: f32, seed: u64) -> Result<Self, SampleError> {
        let unit = 0.0..=1.0;
        let (name, is) = ("xtc_probability", "a number from 0 (off) to 1");
        let probability = check(name, probability, unit.contains(&probability), is)?;
        let (name, is) = ("xtc_threshold", "a number from 0 to 1 (above 0.5 is off)");
        let threshold = check(name, threshold, unit.contains(&threshold), is)?;
        Ok(Self { probability, threshold, seed, rng: tosses(seed) })
    }

    /// Whether it changes nothing.
    pub fn is_off(&self) -> bool {
        self.probability == 0.0 || self.threshold > 0.5
    }
}

/// The generator for a chain's seed.
fn tosses(seed: u64) -> Rng {
    Rng::new(seed ^ 0x7874_6320_746f_7373)
}

impl Stage for Xtc {
    fn name(&self) -> &str {
        "xtc"
    }

    fn text(&self) -> String {
        format!("xtc:{}:{}", self.probability, self.threshold)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        if self.is_off() || self.rng.clone().uniform() >= f64::from(self.probability) {
            return;
        }
        // A certain token stays certain.
        if !candidates.best().logit.is_finite() {
            return;
        }
        let softmax = candidates.softmax();
        // What is impossible is no choice, even at a threshold of 0.
        let bar = (f64::from(self.threshold) * softmax.total as f64).max(1.0);
        let top = |c: Candidate| softmax.weight(c) as f64 >= bar;
        // No logit this far below can reach the bar, weights being rounded: spares a vocabulary's exponentials.
        let floor = f64::from(candidates.best().logit) + ln(bar - 0.5) - BITS_LN - 1e-3;
        let near = candidates.as_slice().iter().copied().filter(|c| f64::from(c.logit) >= floor);
        let worst = near.filter(|&c| top(c)).min_by_key(|c| c.rank());
        if let Some(worst) = worst {
            candidates.retain(|c| c.id == worst.id || f64::from(c.logit) < floor || !top(c));
        }
    }

    fn accept(&mut self, _: u32) {
        self.rng.uniform();
    }

    fn reset(&mut self) {
        self.rng = tosses(self.seed);
    }

    fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.reset();
    }

    fn state(&self) -> Vec<u8> {
        write_rng(&self.rng)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        self.rng = read_rng(state).ok_or_else(|| SampleError::bad_state(self.name()))?;
        Ok(())
    }

    fn needs(&self) -> Needs {
        if self.is_off() { Needs::Next } else { Needs::All }
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

/// The logarithm of the best candidate's weight, 2^40.
const BITS_LN: f64 = 40.0 * std::f64::consts::LN_2;
