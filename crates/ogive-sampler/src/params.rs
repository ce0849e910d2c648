//! The usual settings in one struct, and the chain they make.
//!
//! A plain struct with public fields and not a builder: it prints, compares and is filled from a command
//! line or a request without a method per setting. Write `..SamplerParams::default()`, since fields will
//! be added. For other stages or another order, put a [`Chain`] together by hand.

use crate::chain::Chain;
use crate::error::SampleError;
use crate::stages::{Greedy, LogitBias, MinP, Penalties, Temperature, TopK, TopP};

/// The usual settings; the defaults are llama.cpp's (but for the seed, which is random there).
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerParams {
    /// Divides the logits: below 1 sharper, above 1 flatter, 0 greedy. Default 0.8.
    pub temperature: f32,
    /// Only the k best tokens; 0 is off. Default 40.
    pub top_k: usize,
    /// Only the best tokens that together hold this probability, in [0, 1]; 1 is off. Default 0.95.
    pub top_p: f32,
    /// Only tokens at least this fraction as likely as the best; 0 is off. Default 0.05.
    pub min_p: f32,
    /// Divides the positive and multiplies the negative logits of recent tokens; above 0, 1 is off.
    /// Default 1.
    pub repeat_penalty: f32,
    /// Taken from a recent token's logit for every time it occurred. Default 0.
    pub frequency_penalty: f32,
    /// Taken from a recent token's logit once. Default 0.
    pub presence_penalty: f32,
    /// How many of the last tokens count as recent; 0 turns the three penalties off, `usize::MAX` means
    /// the whole sequence. Default 64.
    pub penalty_last_n: usize,
    /// Added to the logits of single tokens; minus infinity bans one, plus infinity forces it. Default
    /// none.
    pub logit_bias: Vec<(u32, f32)>,
    /// Determines every draw. Default 0.
    pub seed: u64,
}

impl Default for SamplerParams {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_last_n: 64,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl SamplerParams {
    /// Always the best token, no penalties.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// The chain in llama.cpp's default order: logit bias, penalties, top-k, top-p, min-p, temperature.
    /// Stages that would do nothing are left out, but their settings are checked all the same.
    pub fn build(&self) -> Result<Chain, SampleError> {
        let bias = LogitBias::new(&self.logit_bias)?;
        let penalties = Penalties::new(
            self.penalty_last_n,
            self.repeat_penalty,
            self.frequency_penalty,
            self.presence_penalty,
        )?;
        let (top_k, top_p, min_p) = (TopK::new(self.top_k), TopP::new(self.top_p)?, MinP::new(self.min_p)?);
        let temperature = Temperature::new(self.temperature)?;

        let mut chain = Chain::new(self.seed);
        if !self.logit_bias.is_empty() {
            chain = chain.then(bias);
        }
        if !penalties.is_off() {
            chain = chain.then(penalties);
        }
        if self.temperature == 0.0 {
            // The truncations never drop the best token.
            return Ok(chain.then(Greedy));
        }
        if self.top_k > 0 {
            chain = chain.then(top_k);
        }
        if self.top_p < 1.0 {
            chain = chain.then(top_p);
        }
        if self.min_p > 0.0 {
            chain = chain.then(min_p);
        }
        if self.temperature != 1.0 {
            chain = chain.then(temperature);
        }
        Ok(chain)
    }
}
