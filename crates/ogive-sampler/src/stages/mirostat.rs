//! Mirostat and mirostat 2: truncation that keeps the surprise of the drawn tokens near a target (Basu et al.
//! 2021, arXiv:2007.14966), with llama.cpp's arithmetic.
//!
//! There the two draw the token themselves. Here they cut, the chain draws, and `accept` tells what came of it: so a
//! draw that is only asked about, or fails, moves nothing. They belong at the chain's end: what a stage after them
//! changed would not be the surprise they reckon with.

use std::cmp::Reverse;
use std::f64::consts::LN_2;

use super::offered::Offered;
use crate::candidates::{Candidate, Candidates};
use crate::error::{SampleError, check};
use crate::math::{exp, ln, log2};
use crate::stage::{Needs, Stage};
use crate::state::finite;

/// The surprise allowed, which follows the surprise met.
#[derive(Clone, Debug)]
struct Control {
    tau: f32,
    eta: f32,
    /// In bits; twice the target at first.
    mu: f64,
    offered: Offered,
}

impl Control {
    fn new(tau: f32, eta: f32) -> Result<Self, SampleError> {
        let good = |x: f32| x.is_finite() && x >= 0.0;
        let tau = check("mirostat_tau", tau, good(tau), "a number of at least 0, in bits")?;
        let eta = check("mirostat_eta", eta, good(eta), "a number of at least 0")?;
        Ok(Self { tau, eta, mu: 2.0 * f64::from(tau), offered: Offered::default() })
    }

    fn offer(&mut self, candidates: &Candidates) {
        self.offered.note(candidates, candidates.softmax());
    }

    fn accept(&mut self, token: u32) {
        if let Some(p) = self.offered.take(token) {
            // What a later stage let through against all odds surprises no more than anything can.
            let surprise = -log2(p.max(f64::EPSILON));
            self.mu -= f64::from(self.eta) * (surprise - f64::from(self.tau));
        }
    }

    fn restore(&mut self, name: &str, state: &[u8]) -> Result<(), SampleError> {
        let [mu] = finite(state).ok_or_else(|| SampleError::bad_state(name))?;
        self.mu = mu;
        self.offered.forget();
        Ok(())
    }

    fn reset(&mut self) {
        self.mu = 2.0 * f64::from(self.tau);
        self.offered.forget();
    }
}

/// Mirostat 1: keeps the k best, where k is reckoned from a fit of Zipf's law to the 100 best and the surprise
/// allowed.
///
/// The list that comes in stands for the vocabulary, so nothing that drops candidates belongs before it. Selection
/// of the 100 best, then of the k best: linear, plus k log k.
#[derive(Clone, Debug)]
pub struct Mirostat {
    control: Control,
}

impl Mirostat {
    /// `tau` is the surprise aimed at in bits (llama.cpp: 5), `eta` how fast it learns (0.1); both at least 0.
    ///
    /// # Errors
    /// If one of them is negative or not finite.
    pub fn new(tau: f32, eta: f32) -> Result<Self, SampleError> {
        Ok(Self { control: Control::new(tau, eta)? })
    }

    /// How many of `candidates` to keep; at least 1.
    fn k(&self, candidates: &Candidates) -> usize {
        /// So many decide the fit; llama.cpp's m.
        const FITTED: usize = 100;
        let mut top: Vec<Candidate> = candidates.as_slice().to_vec();
        if FITTED < top.len() && !candidates.is_best_first() {
            top.select_nth_unstable_by_key(FITTED, |c| Reverse(c.rank()));
        }
        top.truncate(FITTED);
        top.retain(|c| c.logit.is_finite());
        top.sort_unstable_by_key(|c| Reverse(c.rank()));
        let (mut tb, mut tt) = (0.0, 0.0);
        for (i, (a, b)) in (1u32..).zip(top.iter().zip(top.iter().skip(1))) {
            let t = ln(f64::from(i + 1) / f64::from(i));
            tb += t * (f64::from(a.logit) - f64::from(b.logit));
            tt += t * t;
        }
        if tt == 0.0 {
            return 1;
        }
        let s = tb / tt;
        let (epsilon, ln_n) = (s - 1.0, ln(candidates.len() as f64));
        // k^s = epsilon * 2^mu / (1 - n^-epsilon), as logarithms: none of the factors can overflow so.
        let ln_ratio = if epsilon.abs() < 1e-9 {
            -ln(ln_n)
        } else {
            let ratio = epsilon / (1.0 - exp(-epsilon * ln_n));
            if ratio > 0.0 && ratio.is_normal() { ln(ratio) } else { ln(epsilon.abs()) + epsilon * ln_n }
        };
        let ln_k = (ln_ratio + self.control.mu * LN_2) / s;
        // Truncates, and takes not a number for 0.
        (exp(ln_k) as usize).clamp(1, candidates.len())
    }
}

impl Stage for Mirostat {
    fn name(&self) -> &str {
        "mirostat"
    }

    fn text(&self) -> String {
        format!("mirostat:{}:{}", self.control.tau, self.control.eta)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        // A certain token stays certain.
        if candidates.best().logit.is_finite() {
            let k = self.k(candidates);
            candidates.keep_best(k);
        }
        self.control.offer(candidates);
    }

    fn accept(&mut self, token: u32) {
        self.control.accept(token);
    }

    fn reset(&mut self) {
        self.control.reset();
    }

    fn state(&self) -> Vec<u8> {
        self.control.mu.to_le_bytes().into()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        self.control.restore("mirostat", state)
    }

    fn needs(&self) -> Needs {
        Needs::All
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

/// Mirostat 2: keeps the candidates whose surprise is at most the one allowed; at least the best.
///
/// Linear in the number of candidates, with two exponentials each.
#[derive(Clone, Debug)]
pub struct MirostatV2 {
    control: Control,
}

impl MirostatV2 {
    /// `tau` is the surprise aimed at in bits (llama.cpp: 5), `eta` how fast it learns (0.1); both at least 0.
    ///
    /// # Errors
    /// If one of them is negative or not finite.
    pub fn new(tau: f32, eta: f32) -> Result<Self, SampleError> {
        Ok(Self { control: Control::new(tau, eta)? })
    }
}

impl Stage for MirostatV2 {
    fn name(&self) -> &str {
        "mirostat-v2"
    }

    fn text(&self) -> String {
        format!("mirostat_v2:{}:{}", self.control.tau, self.control.eta)
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        let best = candidates.best().logit;
        // A certain token stays certain.
        if best.is_finite() {
            // surprise <= mu, as a comparison of logits
            let bar = f64::from(best) + candidates.softmax().ln_total() - self.control.mu * LN_2;
            candidates.retain(|c| f64::from(c.logit) >= bar);
        }
        self.control.offer(candidates);
    }

    fn accept(&mut self, token: u32) {
        self.control.accept(token);
    }

    fn reset(&mut self) {
        self.control.reset();
    }

    fn state(&self) -> Vec<u8> {
        self.control.mu.to_le_bytes().into()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        self.control.restore("mirostat-v2", state)
    }

    fn needs(&self) -> Needs {
        Needs::All
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}
