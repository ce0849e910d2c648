//! Logit bias: a number added to the logits of single tokens.
//!
//! An infinite bias replaces the logit instead of being added, so that a ban holds against plus infinity
//! and a forced token against NaN. Two biases for one token are an error, where llama.cpp would add them.

use crate::candidates::Candidates;
use crate::error::{SampleError, check};
use crate::stage::{Needs, Stage};
use crate::state::{same_settings, settings};

/// Adds a bias to the logits of single tokens. Tokens outside the vocabulary are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitBias {
    /// Ascending by token.
    biases: Vec<(u32, f32)>,
}

impl LogitBias {
    /// `biases` pairs tokens with what is added; minus infinity bans, plus infinity forces.
    ///
    /// # Errors
    /// If a bias is NaN, or a token has two.
    pub fn new(biases: &[(u32, f32)]) -> Result<Self, SampleError> {
        let mut biases = biases.to_vec();
        for &(_, bias) in &biases {
            check("logit_bias", bias, !bias.is_nan(), "a number or an infinity")?;
        }
        biases.sort_unstable_by_key(|&(token, _)| token);
        match biases.windows(2).find(|w| w[0].0 == w[1].0) {
            Some(twice) => Err(SampleError::DuplicateBias { token: twice[0].0 }),
            None => Ok(Self { biases }),
        }
    }
}

impl Stage for LogitBias {
    fn name(&self) -> &str {
        "logit-bias"
    }

    fn apply(&mut self, candidates: &mut Candidates, _: &[u32]) {
        candidates.map_tokens(&self.biases, |c, &bias| {
            if bias.is_infinite() {
                bias
            } else if c.logit.is_finite() {
                (c.logit + bias).clamp(f32::MIN, f32::MAX)
            } else {
                c.logit
            }
        });
    }

    fn needs(&self) -> Needs {
        // A raised token may come from anywhere in the vocabulary.
        if self.biases.iter().all(|&(_, bias)| bias <= 0.0) {
            Needs::NextAnd(self.biases.len())
        } else {
            Needs::All
        }
    }

    /// Which biases these are; it gathers nothing.
    fn state(&self) -> Vec<u8> {
        settings(self.biases.iter().flat_map(|(token, bias)| [*token, bias.to_bits()]))
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        same_settings(self.name(), state, &self.state())
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}
