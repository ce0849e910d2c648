//! The usual settings in one struct, and the chain they make.
//!
//! A plain struct with public fields and not a builder: it prints, compares and is filled from a command
//! line or a request without a method per setting. Write `..SamplerParams::default()`, since fields will
//! be added. For stages of one's own, put a [`Chain`] together by hand.

use crate::chain::Chain;
use crate::error::SampleError;
use crate::samplers::{Sampler, Samplers, Step};
use crate::stage::Stage;
use crate::stages::{
    AdaptiveP, Breakers, Dry, DynamicTemperature, Greedy, LogitBias, MinP, Mirostat, MirostatV2, Penalties,
    Temperature, TopK, TopNSigma, TopP, Typical, Vocabulary, Xtc,
};

/// The usual settings. Names, meanings and defaults are llama.cpp's (`common_params_sampling`), but for the seed,
/// which is random there.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerParams {
    /// Which stages there are and in what order. Default: llama.cpp's.
    pub samplers: Samplers,
    /// Divides the logits: below 1 sharper, above 1 flatter, 0 greedy. Default 0.8.
    pub temperature: f32,
    /// How far the temperature may go to both sides of `temperature`, colder where the model is sure and hotter
    /// where it is not; 0 is off. Default 0.
    pub dynatemp_range: f32,
    /// The power that takes the share of the largest possible entropy to the place in that range. Default 1.
    pub dynatemp_exponent: f32,
    /// Only the k best tokens; 0 is off. Default 40.
    pub top_k: usize,
    /// Only the best tokens that together hold this probability, in [0, 1]; 1 is off (Holtzman et al. 2019,
    /// arXiv:1904.09751). Default 0.95.
    pub top_p: f32,
    /// Only tokens at least this fraction as likely as the best; 0 is off (Nguyen et al. 2024,
    /// arXiv:2407.01082). Default 0.05.
    pub min_p: f32,
    /// Only the tokens whose surprise is nearest to the expected one, until they hold this probability, in [0, 1];
    /// 1 is off (Meister et al. 2022, arXiv:2202.00666). Default 1.
    pub typical_p: f32,
    /// Only tokens whose logit is within so many standard deviations of the best; 0 and below is off (Tang et al.
    /// 2024, arXiv:2411.07641). Default -1.
    pub top_n_sigma: f32,
    /// How often the best tokens are excluded, in [0, 1]; 0 is off (p-e-w 2024, text-generation-webui 6335).
    /// Default 0.
    pub xtc_probability: f32,
    /// Tokens at least this likely are excluded then, but for the least likely of them; in [0, 1], above 0.5 off.
    /// Default 0.1.
    pub xtc_threshold: f32,
    /// Divides the positive and multiplies the negative logits of recent tokens; above 0, 1 is off (Keskar et al.
    /// 2019, arXiv:1909.05858). Default 1.
    pub repeat_penalty: f32,
    /// Taken from a recent token's logit for every time it occurred. Default 0.
    pub frequency_penalty: f32,
    /// Taken from a recent token's logit once. Default 0.
    pub presence_penalty: f32,
    /// How many of the last tokens count as recent; 0 turns the three penalties off, `usize::MAX` means
    /// the whole sequence. Default 64.
    pub penalty_last_n: usize,
    /// How strongly a token is penalised that would go on with a repetition; 0 is off (p-e-w 2024,
    /// text-generation-webui 5677). Default 0.
    pub dry_multiplier: f32,
    /// What the penalty is multiplied by for each further token of the repetition; at least 1. Default 1.75.
    pub dry_base: f32,
    /// Repetitions of fewer tokens are free. Default 2.
    pub dry_allowed_length: usize,
    /// In how many of the last tokens repetitions are looked for; 0 turns DRY off, `usize::MAX` means the whole
    /// sequence. Default 64 (-1, the whole sequence, in llama.cpp before 2026).
    pub dry_penalty_last_n: usize,
    /// Texts that no repetition reaches over. They need a vocabulary: see [`build_for`](Self::build_for).
    /// Default `"\n"`, `":"`, `"\""` and `"*"`.
    pub dry_sequence_breakers: Vec<String>,
    /// Mirostat: 0 off, 1, or 2 (Basu et al. 2021, arXiv:2007.14966). The chain is then logit bias, temperature and
    /// mirostat, whatever `samplers` says. Default 0.
    pub mirostat: u8,
    /// The surprise that mirostat aims at, in bits. Default 5.
    pub mirostat_tau: f32,
    /// How fast mirostat learns. Default 0.1.
    pub mirostat_eta: f32,
    /// The probability near which adaptive-p prefers tokens, up to 1; negative is off (llama.cpp pull request
    /// 17927). Default -1.
    pub adaptive_target: f32,
    /// How much of its memory adaptive-p keeps at each token, from 0 to 0.99. Default 0.9.
    pub adaptive_decay: f32,
    /// Added to the logits of single tokens; minus infinity bans one, plus infinity forces it. Default
    /// none.
    pub logit_bias: Vec<(u32, f32)>,
    /// Determines every draw. Default 0.
    pub seed: u64,
}

impl Default for SamplerParams {
    fn default() -> Self {
        Self {
            samplers: Samplers::default(),
            temperature: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_last_n: 64,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: 64,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(String::from).to_vec(),
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// A stage of a known kind, on its way into a chain.
type Made = (Sampler, Box<dyn Stage>);

impl SamplerParams {
    /// Always the best token, no penalties.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// The chain: logit bias, then `samplers` in order. Stages that would do nothing are left out, but their
    /// settings are checked all the same.
    ///
    /// # Errors
    /// Names the setting that is wrong; and if DRY is on and has breakers: see [`build_for`](Self::build_for).
    pub fn build(&self) -> Result<Chain, SampleError> {
        self.chain(None)
    }

    /// The same, with the vocabulary that DRY's sequence breakers are cut by.
    ///
    /// # Errors
    /// Names the setting that is wrong, or the breaker that has no tokens.
    pub fn build_for(&self, vocabulary: &dyn Vocabulary) -> Result<Chain, SampleError> {
        self.chain(Some(vocabulary))
    }

    /// The same settings, those that stand in `samplers` moved to their fields, so that what is written there later counts. Where a stage stands
    /// there more than once, its values stay with it.
    #[must_use]
    pub fn settled(&self) -> Self {
        let mut params = self.clone();
        let steps = self.samplers.steps();
        let once = |step: &&Step| steps.iter().filter(|s| s.sampler() == step.sampler()).count() == 1;
        for step in steps.iter().filter(once) {
            params = step.applied(&params);
        }
        let bare = |step: &Step| if once(&step) { step.sampler().into() } else { step.clone() };
        params.samplers = steps.iter().map(bare).collect();
        params
    }

    /// Whether the settings are good, as far as that can be said without a vocabulary.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub fn check(&self) -> Result<(), SampleError> {
        Self { dry_sequence_breakers: Vec::new(), ..self.clone() }.build().map(drop)
    }

    fn chain(&self, vocabulary: Option<&dyn Vocabulary>) -> Result<Chain, SampleError> {
        // Before what is asked for: a setting that is wrong is so whether or not it is used.
        let quiet = Self { dry_sequence_breakers: Vec::new(), ..self.clone() };
        for (sampler, _) in Sampler::all() {
            quiet.make(sampler, None)?;
        }
        let mut stages = self.stages(vocabulary)?;
        simplify_greedy(&mut stages);
        let chain = Chain::new(self.seed);
        Ok(stages.into_iter().fold(chain, |chain, (_, stage)| chain.then_boxed(stage)))
    }

    /// The stages that do something, in order.
    fn stages(&self, vocabulary: Option<&dyn Vocabulary>) -> Result<Vec<Made>, SampleError> {
        let mirostat = match self.mirostat {
            0 => None,
            1 => Some(Sampler::Mirostat),
            2 => Some(Sampler::MirostatV2),
            value => return Err(SampleError::MirostatVersion { value }),
        };
        let samplers = match mirostat {
            Some(version) => Samplers::from_iter([Sampler::Temperature, version]),
            None => self.samplers.clone(),
        };
        // As in llama.cpp, mirostat's temperature is the plain one.
        let range = if mirostat.is_some() { 0.0 } else { self.dynatemp_range };
        let plain = Self { dynatemp_range: range, ..self.clone() };

        let mut stages: Vec<Made> = Vec::new();
        let mut last: Option<Made> = None;
        if samplers.steps().iter().all(|s| s.sampler() != Sampler::LogitBias) {
            stages.extend(plain.make(Sampler::LogitBias, None)?.map(|stage| (Sampler::LogitBias, stage)));
        }
        for step in samplers.steps() {
            let sampler = step.sampler();
            let Some(stage) = step.applied(&plain).make(sampler, vocabulary)? else { continue };
            if sampler == Sampler::AdaptiveP {
                last = Some((sampler, stage));
            } else {
                stages.push((sampler, stage));
            }
        }
        stages.extend(last);
        for pair in stages.windows(2) {
            if let [(first @ (Sampler::Mirostat | Sampler::MirostatV2), _), (next, _)] = pair {
                return Err(SampleError::NotLast { name: first.name(), after: next.name() });
            }
        }
        Ok(stages)
    }

    /// The stage of this kind; `None` if it would do nothing.
    fn make(
        &self,
        sampler: Sampler,
        vocabulary: Option<&dyn Vocabulary>,
    ) -> Result<Option<Box<dyn Stage>>, SampleError> {
        let (stage, is_on): (Box<dyn Stage>, bool) = match sampler {
            Sampler::LogitBias => (Box::new(LogitBias::new(&self.logit_bias)?), !self.logit_bias.is_empty()),
            Sampler::Penalties => {
                let (repeat, last_n) = (self.repeat_penalty, self.penalty_last_n);
                let stage = Penalties::new(last_n, repeat, self.frequency_penalty, self.presence_penalty)?;
                let is_on = !stage.is_off();
                (Box::new(stage), is_on)
            }
            Sampler::Dry => {
                let new = |breakers| {
                    let (multiplier, base) = (self.dry_multiplier, self.dry_base);
                    Dry::new(multiplier, base, self.dry_allowed_length, self.dry_penalty_last_n, breakers)
                };
                let stage = new(Breakers::none())?;
                // The vocabulary is read through for stages that are on alone.
                match (&*self.dry_sequence_breakers, vocabulary) {
                    _ if stage.is_off() => (Box::new(stage), false),
                    ([], _) => (Box::new(stage), true),
                    (texts, Some(v)) => (Box::new(new(Breakers::from_text(texts, v)?)?), true),
                    (_, None) => return Err(SampleError::NoVocabulary),
                }
            }
            Sampler::TopNSigma => {
                let stage = TopNSigma::new(self.top_n_sigma)?;
                (Box::new(stage), !stage.is_off())
            }
            Sampler::TopK => (Box::new(TopK::new(self.top_k)), self.top_k > 0),
            Sampler::Typical => (Box::new(Typical::new(self.typical_p)?), self.typical_p < 1.0),
            Sampler::TopP => (Box::new(TopP::new(self.top_p)?), self.top_p < 1.0),
            Sampler::MinP => (Box::new(MinP::new(self.min_p)?), self.min_p > 0.0),
            Sampler::Xtc => {
                let stage = Xtc::new(self.xtc_probability, self.xtc_threshold, self.seed)?;
                let is_on = !stage.is_off();
                (Box::new(stage), is_on)
            }
            Sampler::Temperature => {
                let plain = Temperature::new(self.temperature)?;
                let dynamic =
                    DynamicTemperature::new(self.temperature, self.dynatemp_range, self.dynatemp_exponent)?;
                if self.dynatemp_range > 0.0 {
                    (Box::new(dynamic), true)
                } else if self.temperature == 0.0 {
                    (Box::new(Greedy), true)
                } else {
                    (Box::new(plain), self.temperature != 1.0)
                }
            }
            Sampler::Greedy => (Box::new(Greedy), true),
            Sampler::Mirostat => (Box::new(Mirostat::new(self.mirostat_tau, self.mirostat_eta)?), true),
            Sampler::MirostatV2 => (Box::new(MirostatV2::new(self.mirostat_tau, self.mirostat_eta)?), true),
            Sampler::AdaptiveP => {
                let stage = AdaptiveP::new(self.adaptive_target, self.adaptive_decay)?;
                let is_on = !stage.is_off();
                (Box::new(stage), is_on)
            }
        };
        Ok(is_on.then_some(stage))
    }
}

/// Where only the best token is kept, drops what changes nothing: all that comes after it, and the truncations
/// right before it that never drop the best token. Biases are no such thing: after it they could only ban the one token that is left, so
/// they go before it.
fn simplify_greedy(stages: &mut Vec<Made>) {
    let is_greedy = |(_, stage): &Made| stage.name() == "greedy";
    let Some(mut at) = stages.iter().position(is_greedy) else { return };
    let behind = stages.split_off(at + 1);
    for made in behind.into_iter().filter(|(sampler, _)| *sampler == Sampler::LogitBias) {
        stages.insert(at, made);
        at += 1;
    }
    let keeps_best = |(sampler, _): &Made| {
        matches!(sampler, Sampler::TopK | Sampler::TopP | Sampler::MinP | Sampler::TopNSigma)
    };
    let needless = stages.iter().rev().skip(1).take_while(|made| keeps_best(made)).count();
    stages.drain(at - needless..at);
}
