//! Arguments that several commands share: which model, on what, and how tokens are drawn.
//!
//! The sampler's names are llama.cpp's, so that a command line can be carried over.

use crate::args::Context;
use crate::error::{Error, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use ogive::sampler::SamplerParams;
use ogive::tensor::{BF16, F16, F32, Format, Q8_0};
use ogive::weights::OpenOptions;
use ogive::{Device, Generate, Model, Options};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NO_MODEL: &str = "no model given: use --model FILE.gguf (or a Hugging Face folder), or set OGIVE_MODEL; \
    a model of random weights, to try things with, comes from `ogive synth --shape qwen2.5-0.5b --format q8_0 model.gguf`";

/// Where the model is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ModelPath {
    /// A GGUF file (of a split, the first part) or a Hugging Face folder
    #[arg(short, long, value_name = "MODEL", env = "OGIVE_MODEL")]
    model: Option<PathBuf>,
}

impl ModelPath {
    /// The path, or what to do about there being none.
    pub(crate) fn get(&self) -> Result<&Path> {
        self.model.as_deref().ok_or_else(|| Error::Usage(NO_MODEL.into()))
    }
}

/// What a model is run on.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Machine {
    /// Where to compute: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
    /// Threads to compute with [default: one for each core]
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    /// What keys and values are kept in [default: f16, with --exact f32]
    #[arg(long, value_name = "FORMAT", value_parser = cache_type())]
    cache_type: Option<&'static Format>,
    /// Reads the file into memory instead of mapping it
    #[arg(long)]
    no_mmap: bool,
    /// Computes with decoded weights in single precision, and keeps keys and values so: slower
    #[arg(long)]
    exact: bool,
}

fn cache_type() -> impl TypedValueParser<Value = &'static Format> {
    const FORMATS: [&Format; 4] = [&F32, &F16, &BF16, &Q8_0];
    let find = |name: String| FORMATS.into_iter().find(|f| f.name == name).ok_or("no such format");
    PossibleValuesParser::new(FORMATS.map(|f| f.name)).try_map(find)
}

impl Machine {
    /// The library's options.
    pub(crate) fn options(&self) -> Options {
        let files = OpenOptions::new().mmap(!self.no_mmap);
        let mut options = Options::new().device(self.device).exact(self.exact).files(files);
        if let Some(threads) = self.threads {
            options = options.threads(threads);
        }
        if let Some(element) = self.cache_type {
            options = options.cache_element(element);
        }
        options
    }

    /// What keys and values are kept in.
    pub(crate) fn element(&self) -> &'static Format {
        self.cache_type.unwrap_or(if self.exact { &F32 } else { &F16 })
    }

    /// Opens the model, and says on what.
    pub(crate) fn open(&self, path: &Path, tokens: Option<usize>, context: &Context) -> Result<Model> {
        let options = tokens.into_iter().fold(self.options(), Options::context);
        let progress = spinner(context, format!("opening {}", path.display()));
        let model = options.open(path);
        progress.finish_and_clear();
        let model = model?;
        context.note(model.device());
        Ok(model)
    }
}

/// Shows that something goes on, if stderr is a terminal.
pub(crate) fn spinner(context: &Context, what: String) -> ProgressBar {
    if context.quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Shows how far something has come, if stderr is a terminal. `unit` follows the numbers.
pub(crate) fn progress(context: &Context, what: &'static str, len: u64, unit: &str) -> ProgressBar {
    if context.quiet {
        return ProgressBar::hidden();
    }
    let template = format!("{{msg}} {{bar:32}} {{pos}}/{{len}}{unit}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style).with_message(what)
}

/// How tokens are drawn, and when the answer ends.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sampling", allow_negative_numbers = true)]
pub(crate) struct Sampling {
    /// Tokens to draw at most [default: as many as the context holds]
    #[arg(short = 'n', long, value_name = "N")]
    max_tokens: Option<NonZeroUsize>,
    /// Below 1 sharper, above 1 flatter, 0 always the best token
    #[arg(long, visible_alias = "temp", value_name = "T", default_value_t = 0.8)]
    temperature: f32,
    /// Only the K best tokens; 0 is off
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: usize,
    /// Only the best tokens that together hold this probability; 1 is off
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    top_p: f32,
    /// Only tokens at least this fraction as likely as the best; 0 is off
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    min_p: f32,
    /// Makes recent tokens less likely; 1 is off
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// How many tokens are recent, for the three penalties
    #[arg(long, value_name = "N", default_value_t = 64)]
    repeat_last_n: usize,
    /// Taken off a recent token's logit for each time it occurred
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    frequency_penalty: f32,
    /// Taken off a recent token's logit once
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    presence_penalty: f32,
    /// Determines every draw [default: random, and shown]
    #[arg(long)]
    seed: Option<u64>,
    /// Ends the answer before this text; may be given more than once
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Goes on where the model would end
    #[arg(long)]
    ignore_eos: bool,
}

impl Sampling {
    /// The library's settings, checked, so that wrong ones are told before a model is loaded.
    pub(crate) fn generate(&self) -> Result<Generate> {
        let sampler = SamplerParams {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            penalty_last_n: self.repeat_last_n,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            seed: self.seed.unwrap_or_else(random),
            ..SamplerParams::default()
        };
        sampler.build()?;
        let mut generate = Generate::new().sampler(sampler);
        generate.max_tokens = self.max_tokens.map(NonZeroUsize::get);
        generate.stop.clone_from(&self.stop);
        generate.ignore_end = self.ignore_eos;
        Ok(generate)
    }

    /// Shows a seed that was drawn here, so that the run can be repeated.
    pub(crate) fn show_seed(&self, how: &Generate, context: &Context) {
        if self.seed.is_none() && self.temperature > 0.0 {
            context.note(format_args!("seed {}", how.sampler.seed));
        }
    }
}

/// A number that another run will not draw, of 32 bits: short enough to be typed again.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(()) >> 32
}
