//! Arguments that say how tokens are drawn, and when the answer ends.
//!
//! Names, meanings and default values are llama.cpp's, so that a command line can be carried over. Texts in which it reads
//! escapes are read so here.

use crate::args::Context;
use crate::constraint::Constraint;
use crate::error::{Error, Result};
use ogive::Generate;
use ogive::sampler::{Chain, SamplerParams, Samplers, Stage};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;

const SAMPLERS_HELP: &str = "\
Stages in order, with commas between them and values after colons: \"top_k:40,min_p:0.05,temp:0.8\"

A value that is left out is the one of its option. The stages and their values:
  penalties:REPEAT:FREQUENCY:PRESENCE:LAST_N, dry:MULTIPLIER:BASE:ALLOWED_LENGTH:LAST_N, top_n_sigma:N, top_k:K, typ_p:P,
  top_p:P, min_p:P, xtc:PROBABILITY:THRESHOLD, temperature:T:RANGE:EXPONENT, greedy, mirostat:TAU:ETA,
  mirostat_v2:TAU:ETA, adaptive_p:TARGET:DECAY
[default: penalties,dry,top_n_sigma,top_k,typ_p,top_p,min_p,xtc,temperature,adaptive_p]";

/// How tokens are drawn, and when the answer ends.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sampling", allow_negative_numbers = true)]
pub(crate) struct Sampling {
    /// Tokens to draw at most [default: as many as the context holds]
    #[arg(short = 'n', long, value_name = "N")]
    max_tokens: Option<NonZeroUsize>,
    /// Stages in order, as in "top_k:40,min_p:0.05,temp:0.8" [default: all]
    #[arg(long, value_name = "CHAIN", long_help = SAMPLERS_HELP)]
    samplers: Option<Samplers>,
    /// Below 1 sharper, above 1 flatter, 0 always the best token
    #[arg(long, visible_alias = "temp", value_name = "T", default_value_t = 0.8)]
    temperature: f32,
    /// How far the temperature goes to both sides, with how unsure the model is; 0 is off
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    dynatemp_range: f32,
    /// The power by which unsureness becomes temperature
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    dynatemp_exp: f32,
    /// Only the K best tokens; 0 is off
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: usize,
    /// Only the best tokens that together hold this probability; 1 is off
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    top_p: f32,
    /// Only tokens at least this fraction as likely as the best; 0 is off
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    min_p: f32,
    /// Only the tokens nearest to the expected surprise that together hold this probability; 1 is off
    #[arg(long, visible_alias = "typical-p", value_name = "P", default_value_t = 1.0)]
    typical: f32,
    /// Only tokens whose logit is within so many standard deviations of the best; 0 and below is off
    #[arg(long, visible_alias = "top-n-sigma", value_name = "N", default_value_t = -1.0)]
    top_nsigma: f32,
    /// How often the likely tokens are excluded, but for the least likely of them; 0 is off
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    xtc_probability: f32,
    /// From what probability on a token counts as likely there; above 0.5 is off
    #[arg(long, value_name = "P", default_value_t = 0.1)]
    xtc_threshold: f32,
    /// Makes recent tokens less likely; 1 is off
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// How many tokens are recent, for the three penalties; -1 is all
    #[arg(long, value_name = "N", default_value = "64", value_parser = window)]
    repeat_last_n: usize,
    /// Taken off a recent token's logit for each time it occurred
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    frequency_penalty: f32,
    /// Taken off a recent token's logit once
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    presence_penalty: f32,
    /// Makes tokens less likely that would go on with a repetition (DRY); 0 is off
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    dry_multiplier: f32,
    /// What that penalty is multiplied by for each further token of the repetition
    #[arg(long, value_name = "X", default_value_t = 1.75)]
    dry_base: f32,
    /// Repetitions of fewer tokens are free
    #[arg(long, value_name = "N", default_value_t = 2)]
    dry_allowed_length: usize,
    /// In how many tokens repetitions are looked for; -1 is all
    #[arg(long, value_name = "N", default_value = "64", value_parser = window)]
    dry_penalty_last_n: usize,
    /// A text that no repetition reaches over, or none; may be given more than once [default: \n : " *]
    #[arg(long, value_name = "TEXT", value_parser = unescaped)]
    dry_sequence_breaker: Vec<String>,
    /// Keeps the surprise of the tokens near a target: 0 off, 1, or 2; the chain is then temperature and mirostat
    #[arg(long, value_name = "VERSION", default_value_t = 0)]
    mirostat: u8,
    /// How fast mirostat learns
    #[arg(long, value_name = "ETA", default_value_t = 0.1)]
    mirostat_lr: f32,
    /// The surprise that mirostat aims at, in bits
    #[arg(long, value_name = "TAU", default_value_t = 5.0)]
    mirostat_ent: f32,
    /// Prefers tokens near this probability (adaptive-p); negative is off
    #[arg(long, value_name = "P", default_value_t = -1.0)]
    adaptive_target: f32,
    /// How much adaptive-p remembers of the tokens before, up to 0.99
    #[arg(long, value_name = "X", default_value_t = 0.9)]
    adaptive_decay: f32,
    /// Determines every draw [default: random, and shown]
    #[arg(long)]
    seed: Option<u64>,
    /// Ends the answer before this text, in which \n and the like are read; may be given more than once
    #[arg(long, value_name = "TEXT", value_parser = stop)]
    stop: Vec<String>,
    /// Goes on where the model would end: what ends a text is not drawn
    #[arg(long)]
    ignore_eos: bool,
    #[command(flatten)]
    constraint: Constraint,
}

impl Sampling {
    /// The library's settings, checked, so that wrong ones are told before a model is loaded.
    pub(crate) fn generate(&self) -> Result<Generate> {
        let sampler = self.params();
        sampler.check().map_err(Error::usage)?;
        let mut generate = Generate::new().sampler(sampler);
        generate.max_tokens = self.max_tokens.map(NonZeroUsize::get);
        generate.stop.clone_from(&self.stop);
        generate.ignore_end = self.ignore_eos;
        generate.grammar = self.constraint.grammar()?;
        Ok(generate)
    }

    /// Whether a seed was asked for.
    pub(crate) fn is_seeded(&self) -> bool {
        self.seed.is_some()
    }

    fn params(&self) -> SamplerParams {
        let default = SamplerParams::default();
        SamplerParams {
            samplers: self.samplers.clone().unwrap_or(default.samplers),
            temperature: self.temperature,
            dynatemp_range: self.dynatemp_range,
            dynatemp_exponent: self.dynatemp_exp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical,
            top_n_sigma: self.top_nsigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            repeat_penalty: self.repeat_penalty,
            penalty_last_n: self.repeat_last_n,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            dry_penalty_last_n: self.dry_penalty_last_n,
            dry_sequence_breakers: match &*self.dry_sequence_breaker {
                [] => default.dry_sequence_breakers,
                // As in llama.cpp, "none" takes away what was named before it.
                given => given.rsplit(|b| b == "none").next().unwrap_or_default().to_vec(),
            },
            mirostat: self.mirostat,
            mirostat_tau: self.mirostat_ent,
            mirostat_eta: self.mirostat_lr,
            adaptive_target: self.adaptive_target,
            adaptive_decay: self.adaptive_decay,
            logit_bias: default.logit_bias,
            seed: self.seed.unwrap_or_else(random),
        }
    }

    /// Shows a seed that was drawn here, so that the run can be repeated.
    pub(crate) fn show_seed(&self, how: &Generate, context: &Context) {
        let chain = plain(&how.sampler);
        let stages: Vec<&str> = chain.iter().flat_map(Chain::stages).map(Stage::name).collect();
        // The choice of the best has no use for it, but a coin may be tossed before.
        let draws = stages.last() != Some(&"greedy") || stages.contains(&"xtc");
        if self.seed.is_none() && draws {
            context.note(format_args!("seed {}", how.sampler.seed));
        }
    }
}

/// The chain as text.
pub(crate) fn plain_chain(params: &SamplerParams) -> String {
    plain(params).map(|chain| chain.to_string()).unwrap_or_default()
}

/// The chain without breakers, which so needs no vocabulary.
fn plain(params: &SamplerParams) -> Option<Chain> {
    let plain = SamplerParams { dry_sequence_breakers: Vec::new(), ..params.clone() };
    plain.build().ok()
}

/// A number that another run will not draw, of 32 bits: short enough to be typed again.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(()) >> 32
}

/// A text to stop at. An empty one is in every answer, before its first letter: what was meant, nobody knows.
fn stop(text: &str) -> Result<String, &'static str> {
    let text = unescaped(text)?;
    if text.is_empty() { Err("it is empty; give a text to stop at, or leave --stop out") } else { Ok(text) }
}

/// How many of the last tokens count.
fn window(text: &str) -> Result<usize, &'static str> {
    match text {
        "-1" => Ok(usize::MAX),
        n => n.parse().map_err(|_| "must be a whole number from 0, or -1 for all"),
    }
}

/// The text with its escapes read: `\n`, `\t`, `\r`, `\"`, `\'`, `\\` and `\xHH`. Any other backslash is one.
fn unescaped(text: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let mut after = rest.clone();
        let (read, hex) = match after.next() {
            Some('n') => ('\n', None),
            Some('t') => ('\t', None),
            Some('r') => ('\r', None),
            Some(c @ ('"' | '\'' | '\\')) => (c, None),
            Some('x') => ('x', after.as_str().get(..2)),
            _ => {
                out.push('\\');
                continue;
            }
        };
        if read == 'x' {
            let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(u8::is_ascii);
            let byte = byte.ok_or("\\x must be followed by two hexadecimal digits, of at most 7f")?;
            out.push(char::from(byte));
            after.nth(1);
        } else {
            out.push(read);
        }
        rest = after;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sampling: Sampling,
    }

    fn params(args: &[&str]) -> SamplerParams {
        let line = Line::try_parse_from(["ogive"].iter().chain(args)).unwrap_or_else(|e| panic!("{e}"));
        SamplerParams { seed: 0, ..line.sampling.params() }
    }

    #[test]
    fn no_options_are_the_librarys_defaults() {
        assert_eq!(params(&[]), SamplerParams::default());
        assert_eq!(plain_chain(&params(&[])), "top_k:40,top_p:0.95,min_p:0.05,temperature:0.8");
    }

    #[test]
    fn every_option_arrives_where_it_belongs() {
        let given = params(&[
            "--temp=1.5",
            "--dynatemp-range=0.5",
            "--dynatemp-exp=2",
            "--top-k=7",
            "--top-p=0.5",
            "--min-p=0.25",
            "--typical=0.75",
            "--top-nsigma=1.5",
            "--xtc-probability=0.5",
            "--xtc-threshold=0.2",
            "--repeat-penalty=1.25",
            "--repeat-last-n=-1",
            "--frequency-penalty=0.5",
            "--presence-penalty=-0.5",
            "--dry-multiplier=0.5",
            "--dry-base=2",
            "--dry-allowed-length=3",
            "--dry-penalty-last-n",
            "-1",
            "--mirostat=2",
            "--mirostat-lr=0.2",
            "--mirostat-ent=4",
            "--adaptive-target=0.5",
            "--adaptive-decay=0.8",
            "--samplers",
            "dry;temp",
        ]);
        let expected = SamplerParams {
            samplers: "dry,temperature".parse().unwrap(),
            temperature: 1.5,
            dynatemp_range: 0.5,
            dynatemp_exponent: 2.0,
            top_k: 7,
            top_p: 0.5,
            min_p: 0.25,
            typical_p: 0.75,
            top_n_sigma: 1.5,
            xtc_probability: 0.5,
            xtc_threshold: 0.2,
            repeat_penalty: 1.25,
            frequency_penalty: 0.5,
            presence_penalty: -0.5,
            penalty_last_n: usize::MAX,
            dry_multiplier: 0.5,
            dry_base: 2.0,
            dry_allowed_length: 3,
            dry_penalty_last_n: usize::MAX,
            mirostat: 2,
            mirostat_tau: 4.0,
            mirostat_eta: 0.2,
            adaptive_target: 0.5,
            adaptive_decay: 0.8,
            ..SamplerParams::default()
        };
        assert_eq!(given, expected);
    }

    #[test]
    fn breakers_replace_the_defaults_and_none_takes_them_away() {
        let breakers = |given: &[&str]| {
            let args: Vec<_> = given.iter().flat_map(|b| ["--dry-sequence-breaker", b]).collect();
            params(&args).dry_sequence_breakers
        };
        assert_eq!(breakers(&[]), ["\n", ":", "\"", "*"]);
        assert_eq!(breakers(&["\\n", "a\\tb\\x41"]), ["\n", "a\tbA"]);
        assert_eq!(breakers(&["none"]), [""; 0]);
        assert_eq!(breakers(&["x", "none", "y"]), ["y"]);
        assert_eq!(unescaped("\\\\ \\q \\\" \\"), Ok("\\ \\q \" \\".to_owned()));
        for bad in ["\\x", "\\x4", "\\xgg", "\\xff", "\\x4é"] {
            assert!(unescaped(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn stop_texts_have_escapes() {
        let line = Line::try_parse_from(["ogive", "--stop", "\\n\\n", "--stop", "END\\\\n"])
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(line.sampling.stop, ["\n\n", "END\\n"]);
        for bad in ["", "\\xff"] {
            assert!(Line::try_parse_from(["ogive", "--stop", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_help_names_every_stage() {
        for (sampler, _) in ogive::sampler::Sampler::all().filter(|(s, _)| s.name() != "logit_bias") {
            assert!(SAMPLERS_HELP.contains(sampler.name()), "{}", sampler.name());
        }
        assert!(SAMPLERS_HELP.contains(&Samplers::default().to_string()));
    }
}
