//! DRY, "don't repeat yourself": penalises the tokens that would go on with a repetition (p-e-w 2024,
//! text-generation-webui pull request 5677), with llama.cpp's details.
//!
//! The window is read from the history and not collected in `accept`, as the other penalties do it: so the prompt
//! counts, and a rewound sequence needs no care.

mod breakers;
mod repeats;

pub use breakers::{Breakers, Vocabulary};

use crate::candidates::Candidates;
use crate::error::{SampleError, check};
use crate::math::ln;
use crate::stage::{Needs, Stage};
use crate::state::{same_settings, settings};

/// The logarithm of the largest float: no penalty's power is above it.
const LARGEST_LN: f64 = 88.722_839;

/// Takes `multiplier * base^(length - allowed)` from the logit of a token that would go on with a repetition of
/// `length` tokens, where that is at least `allowed`.
///
/// A repetition is an end of the sequence that stands in the window a second time, earlier; nothing reaches
/// over a sequence breaker, and a token that is one is never penalised. Linear in the window, whatever is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    multiplier: f32,
    base: f32,
    allowed: usize,
    last_n: usize,
    breakers: Breakers,
}

impl Dry {
    /// `multiplier` is finite, 0 being off and negative ones rewarding; `base` is at least 1; repetitions shorter
    /// than `allowed_length` are free; the window is the last `last_n` tokens (0: off; `usize::MAX`: all).
    ///
    /// # Errors
    /// If `multiplier` is not finite, or `base` is below 1 or not finite.
    pub fn new(
        multiplier: f32,
        base: f32,
        allowed_length: usize,
        last_n: usize,
        breakers: Breakers,
    ) -> Result<Self, SampleError> {
        check("dry_multiplier", multiplier, multiplier.is_finite(), "a finite number (0 is off)")?;
        check("dry_base", base, base.is_finite() && base >= 1.0, "a number of at least 1")?;
        Ok(Self { multiplier, base, allowed: allowed_length, last_n, breakers })
    }

    /// Whether it changes nothing.
    pub fn is_off(&self) -> bool {
        self.multiplier == 0.0 || self.last_n == 0
    }

    /// What a token loses that would go on with a repetition of so many tokens.
    fn penalty(&self, length: usize) -> f32 {
        let base = f64::from(self.base);
        let most = if base > 1.000_001 { (LARGEST_LN / ln(base)) as usize } else { usize::MAX };
        let mut exponent = (length - self.allowed.min(length)).min(most);
        let (mut power, mut square) = (1.0f64, base);
        while exponent > 0 {
            if exponent % 2 == 1 {
                power *= square;
            }
            square *= square;
            exponent /= 2;
        }
        let penalty = f64::from(self.multiplier) * power;
        penalty.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
    }
}

impl Stage for Dry {
    fn name(&self) -> &str {
        "dry"
    }

    /// The breakers are not part of it.
    fn text(&self) -> String {
        let last_n = match self.last_n {
            usize::MAX => "-1".to_owned(),
            n => n.to_string(),
        };
        format!("dry:{}:{}:{}:{last_n}", self.multiplier, self.base, self.allowed)
    }

    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        if self.is_off() {
            return;
        }
        let (_, window) = history.split_at(history.len().saturating_sub(self.last_n));
        if window.len() <= self.allowed {
            return;
        }
        let limit = self.breakers.reach(window);
        if limit < self.allowed {
            return;
        }
        let mut repeats = repeats::continued(window, limit, self.allowed);
        repeats.retain(|&(token, _)| !self.breakers.is_breaker(token));
        candidates.map_tokens(&repeats, |c, &length| {
            if c.logit.is_finite() {
                // However strong, a penalty is no ban, and a reward does not force.
                (c.logit - self.penalty(length)).clamp(f32::MIN, f32::MAX)
            } else {
                c.logit
            }
        });
    }

    fn needs(&self) -> Needs {
        if self.is_off() {
            Needs::Next
        } else if self.multiplier > 0.0 {
            Needs::NextAnd(self.last_n)
        } else {
            // A rewarded token may come from anywhere in the vocabulary.
            Needs::All
        }
    }

    /// Which breakers these are; it gathers nothing.
    fn state(&self) -> Vec<u8> {
        settings(self.breakers.numbers())
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        same_settings(self.name(), state, &self.state())
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}
