//! Arguments that several commands share: which model, and on what.

use crate::args::Context;
use crate::error::{Error, Result, one_line};
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use ogive::tensor::{BF16, F16, F32, Format, Q8_0};
use ogive::weights::OpenOptions;
use ogive::{Device, GpuLayers, Model, Options};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// In bytes.
pub(crate) const MEGABYTE: u64 = 1_000_000;

/// What is said where nobody named a model.
const DEMO_NOTE: &str = "no --model given (nor OGIVE_MODEL): this is Ogive's own small model, which tells stories and knows capitals";

/// Where the model is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ModelPath {
    /// A GGUF file (of a split, the first part) or a Hugging Face folder [env: OGIVE_MODEL] [default: ogive:demo, Ogive's own small model]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// What the environment names. Not by clap's own means, for which an empty variable is a `--model` without a value.
    #[arg(skip = model_of_environment())]
    environment: Option<PathBuf>,
}

/// The model that the environment names, if it names one.
pub(crate) fn model_of_environment() -> Option<PathBuf> {
    std::env::var_os("OGIVE_MODEL").filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// Refuses a model out of a pipe where one reading does not do; `what` is done with it in several.
pub(crate) fn check_plain(path: &Path, what: &str) -> Result<()> {
    if !ogive::weights::is_piped(path) {
        return Ok(());
    }
    let why =
        format_args!("this is no plain file, and a model is {what} in several readings; write it to a file");
    Err(Error::failed(format_args!("{}: {why}", path.display())))
}

impl ModelPath {
    /// The path, or the name of the model that needs none; that it is this one is said on stderr.
    pub(crate) fn get(&self, context: &Context) -> &Path {
        self.model.as_deref().or(self.environment.as_deref()).unwrap_or_else(|| {
            context.note(DEMO_NOTE);
            Path::new(ogive::DEMO)
        })
    }
}

/// What a model is run on.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Machine {
    /// Where to compute: auto (as few GPUs as hold the model, else the CPU too), cpu, cuda, cuda:N, or several as cuda:0,cuda:1
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
    /// How many of the last layers GPUs get: a number, all, or auto for as many as fit [default: auto, or all with --device cuda]
    #[arg(long, value_name = "N")]
    gpu_layers: Option<GpuLayers>,
    /// Threads to compute with [default: one for each logical CPU that this process may use]
    #[arg(short, long, value_name = "N", value_parser = threads())]
    threads: Option<usize>,
    /// What keys and values are kept in [default: f16, with --exact f32]
    #[arg(long, value_name = "FORMAT", value_parser = cache_type())]
    cache_type: Option<&'static Format>,
    /// An adapter (LoRA) over the model: a folder that PEFT saved or an adapter's GGUF file. May be given several times
    #[arg(long, value_name = "ADAPTER")]
    lora: Vec<PathBuf>,
    /// The same, whose updates count STRENGTH times
    #[arg(long, num_args = 2, value_names = ["ADAPTER", "STRENGTH"], allow_negative_numbers = true)]
    lora_scaled: Vec<String>,
    /// Reads the file into memory instead of mapping it
    #[arg(long)]
    no_mmap: bool,
    /// When weights on the CPU are copied into the order that its kernels read; answers are the same [default: background, for bench load]
    #[arg(long, value_name = "WHEN")]
    repack: Option<Repack>,
    /// Short for --repack never
    #[arg(long, conflicts_with = "repack")]
    no_repack: bool,
    /// Computes with decoded weights in single precision, and keeps keys and values so: slower
    #[arg(long)]
    exact: bool,
    /// Rounds F16 and F32 weights, and the activations that meet them, to bf16: faster on AMD's processors since Zen 4, with AMX and on
    /// GPUs. The CPU copies such weights for it while the model is opened, whatever --repack says
    #[arg(long, conflicts_with = "exact")]
    bf16: bool,
    /// On a GPU, does not round the activations of up to 64 tokens to 8 bits where they meet packed weights
    #[arg(long)]
    no_int8: bool,
}

/// When the CPU's weights are laid in the order that its kernels read, for which a copy of them is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Repack {
    /// While the model is opened, on all threads, as the progress bar shows: the first token comes later, at full speed
    Load,
    /// By one thread while the model is in use: the first token comes soon, and full speed after some seconds
    Background,
    /// Not at all: weights are read where they are in the file, for the fastest start and the least memory, but slower for good
    Never,
}

impl Repack {
    /// The library's options for it.
    fn apply(self, options: Options) -> Options {
        options.repack(self != Self::Never).background(self == Self::Background)
    }
}

/// As many as the CPU backend takes.
const MOST_THREADS: u64 = 4096;

/// A number of threads; more are a mistake.
pub(crate) fn threads() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::new().range(1..=MOST_THREADS)
}

fn cache_type() -> impl TypedValueParser<Value = &'static Format> {
    const FORMATS: [&Format; 4] = [&F32, &F16, &BF16, &Q8_0];
    let find = |name: String| FORMATS.into_iter().find(|f| f.name == name).ok_or("no such format");
    PossibleValuesParser::new(FORMATS.map(|f| f.name)).try_map(find)
}

impl Machine {
    /// When weights are repacked, if that is said.
    fn repack(&self) -> Option<Repack> {
        if self.no_repack { Some(Repack::Never) } else { self.repack }
    }

    /// The library's options.
    pub(crate) fn options(&self) -> Options {
        let files = OpenOptions::new().mmap(!self.no_mmap);
        let mut options = Options::new()
            .device(self.device)
            .exact(self.exact)
            .bf16(self.bf16)
            .int8(!self.no_int8)
            .files(files);
        if let Some(when) = self.repack() {
            options = when.apply(options);
        }
        if let Some(layers) = self.gpu_layers {
            options = options.gpu_layers(layers);
        }
        if let Some(threads) = self.threads {
            options = options.threads(threads);
        }
        if let Some(element) = self.cache_type {
            options = options.cache_element(element);
        }
        options
    }

    /// The same for a context of so many tokens, where that is said.
    pub(crate) fn options_for(&self, tokens: Option<usize>) -> Result<Options> {
        let options = self.options_without_adapters(tokens)?;
        Ok(self.adapters()?.into_iter().fold(options, |options, (path, by)| options.adapter(path, by)))
    }

    /// The same for another model than that which the adapters are for.
    pub(crate) fn options_without_adapters(&self, tokens: Option<usize>) -> Result<Options> {
        if tokens == Some(0) {
            return Err(Error::Usage("--context 0: ask for at least one token".into()));
        }
        self.agree()?;
        Ok(tokens.into_iter().fold(self.options(), Options::context))
    }

    /// Adapters, and how often each counts.
    fn adapters(&self) -> Result<Vec<(PathBuf, f32)>> {
        let scaled = self.lora_scaled.as_chunks().0.iter().map(|[path, strength]| {
            let number = strength.parse().ok().filter(|number: &f32| number.is_finite());
            let wrong =
                || Error::Usage(format!("--lora-scaled {path} {strength}: the second is to be a number"));
            Ok((path.into(), number.ok_or_else(wrong)?))
        });
        self.lora.iter().map(|path| Ok((path.clone(), 1.0))).chain(scaled).collect()
    }

    /// That layers on a GPU are not asked for where no GPU is to be used: by the library's rule, in the words of the command line.
    fn agree(&self) -> Result<()> {
        let Some(GpuLayers::Count(1..)) = self.gpu_layers else { return Ok(()) };
        let other = match self.device {
            Device::Cpu => "--device cpu",
            // Who names a GPU is told by the library.
            Device::Auto if ogive::cpu_is_forced() => "OGIVE_FORCE_CPU=1",
            _ => return Ok(()),
        };
        let why =
            format!("--gpu-layers asks for layers on a GPU, and {other} for none: leave one of them out");
        Err(Error::Usage(why))
    }

    /// The device that is named, if one is.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// The same for a measurement: weights are repacked before it begins, unless something else is asked for.
    pub(crate) fn options_to_measure(&self, tokens: usize) -> Result<Options> {
        let options = self.options_for(Some(tokens))?;
        Ok(if self.repack().is_none() { Repack::Load.apply(options) } else { options })
    }

    /// How many layers GPUs shall have, where that is said.
    pub(crate) fn gpu_layers(&self) -> Option<GpuLayers> {
        self.gpu_layers
    }

    /// What keys and values are kept in.
    pub(crate) fn element(&self) -> &'static Format {
        self.cache_type.unwrap_or(if self.exact { &F32 } else { &F16 })
    }

    /// Opens the model, and says on what.
    pub(crate) fn open(&self, path: &Path, tokens: Option<usize>, context: &Context) -> Result<Model> {
        Self::open_with(&self.options_for(tokens)?, path, context)
    }

    /// The same with these options.
    pub(crate) fn open_with(options: &Options, path: &Path, context: &Context) -> Result<Model> {
        let model = Self::open_quietly(options, path, context)?;
        context.note(model.device());
        model.notes().iter().for_each(|note| context.note(note));
        Ok(model)
    }

    /// The same without a word on what it computes.
    pub(crate) fn open_quietly(options: &Options, path: &Path, context: &Context) -> Result<Model> {
        let opening = one_line(&format!("opening {}", path.display()));
        let bar = progress(context, opening, 0, " MB");
        let shown = bar.clone();
        let model = options.clone().progress(move |done, total| megabytes(&shown, done, total)).open(path);
        bar.finish_and_clear();
        Ok(model?)
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
pub(crate) fn progress(
    context: &Context,
    what: impl Into<Cow<'static, str>>,
    len: u64,
    unit: &str,
) -> ProgressBar {
    if context.quiet {
        return ProgressBar::hidden();
    }
    let template = format!("{{msg}} {{bar:32}} {{pos}}/{{len}}{unit}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style).with_message(what)
}

/// Shows so many bytes of so many on a bar of megabytes.
pub(crate) fn megabytes(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total / MEGABYTE);
    bar.set_position(done / MEGABYTE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn machine(args: &[&str]) -> Result<Machine, clap::Error> {
        let command = Machine::augment_args(clap::Command::new("ogive"));
        Machine::from_arg_matches(&command.try_get_matches_from([&["ogive"], args].concat())?)
    }

    #[test]
    fn weights_are_repacked_when_it_is_said() {
        let is = |options: Options, repack: bool, background: bool| {
            let text = format!("{options:?}");
            text.contains(&format!("repack: {repack}, background: {background},"))
        };
        for (args, repack, background, measured) in [
            (&[][..], true, true, false),
            (&["--repack", "background"], true, true, true),
            (&["--repack", "load"], true, false, false),
            (&["--repack", "never"], false, false, false),
            (&["--no-repack"], false, false, false),
        ] {
            let machine = machine(args).unwrap();
            assert!(is(machine.options(), repack, background), "{args:?}");
            assert!(is(machine.options_to_measure(8).unwrap(), repack, measured), "{args:?}, measured");
        }
        assert!(machine(&["--no-repack", "--repack", "load"]).is_err());
        assert!(machine(&["--repack", "later"]).is_err());
    }
}
