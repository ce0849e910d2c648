//! The command line: which commands there are, and the switches that hold for all of them.

use crate::commands::{
    bench, chat, classify, detokenize, devices, embed, imatrix, inspect, logits, perplexity, quantize,
    rerank, run, serve, synth, template, tokenize,
};
use crate::error::Result;
use crate::interrupt::Interrupt;
use clap::{Parser, Subcommand};

/// What the program reads of its environment. README.md and docs/CUDA.md tell more.
const ENVIRONMENT: &str = "\
Environment:
  OGIVE_MODEL       The model where --model names none
  OGIVE_LOG         What is told on stderr, as target=level,...: finer than -v. Targets are the libraries' names, as in
                    ogive_engine=trace, and ogive::cuda, ogive::split and ogive::backend; ogive=debug is all of these
  OGIVE_HISTORY     The file with what was typed in `ogive chat`; empty for none
  OGIVE_API_KEY     The key that `ogive serve` wants of requests, where --api-key names none
  OGIVE_FORCE_CPU   1: looks for no GPU
  OGIVE_CPU_FORCE   What the CPU computes with, for tests and measurements, instead of the best it has:
                    amx, avx512, avx-vnni, avx2, neon-i8mm, neon-dotprod, neon or scalar
  OGIVE_CUDA_PATH   Folders to look for libcuda, NVRTC and cuBLAS in before all others
  OGIVE_CUDA_CACHE  The folder for compiled kernels of GPUs; off for none
  OGIVE_CUDA_CODE   ptx: has the driver compile kernels, to see whether a fault is of NVRTC or of it";

/// Runs language models: GGUF or safetensors in, tokens out.
#[derive(Debug, Parser)]
#[command(name = "ogive", version, propagate_version = true, args_override_self = true)]
#[command(after_help = ENVIRONMENT)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Says more on stderr: -v what happens, -vv details, -vvv every step. OGIVE_LOG=target=level says it finer
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// No device, seed, progress, thoughts or figures on stderr
    #[arg(short, long, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Goes on from a prompt
    Run(run::Args),
    /// Talks with a model
    Chat(chat::Args),
    /// Shows what is in a model: settings, tensors, formats, and the memory it would take
    Inspect(inspect::Args),
    /// Cuts stdin into tokens and prints their ids as a JSON array
    Tokenize(tokenize::Args),
    /// Prints the text that token ids stand for: those given, or a JSON array or a list on stdin
    Detokenize(detokenize::Args),
    /// Renders a conversation by a chat template: a model's, or the Jinja file given as MODEL
    Template(template::Args),
    /// Writes the logits of every position as a NumPy file, f32 [tokens, vocab]
    Logits(logits::Args),
    /// Turns texts into vectors, a JSON array a line
    Embed(embed::Args),
    /// Orders texts by how well they answer a question, a JSON object a line
    Rerank(rerank::Args),
    /// Tells which of the model's classes texts belong to, a JSON object a line
    Classify(classify::Args),
    /// Serves a model over HTTP, as OpenAI's clients ask for it (builds with the feature `server`)
    Serve(serve::Args),
    /// Measures how well the model foretells a text file
    Perplexity(perplexity::Args),
    /// Collects what columns of the model's matrices count on a text, for quantize --imatrix
    Imatrix(imatrix::Args),
    /// Packs a model: a GGUF file or a Hugging Face folder in, a GGUF file out
    Quantize(quantize::Args),
    /// Measures tokens per second
    Bench(bench::Args),
    /// Makes a model of random weights in the sizes of a real one
    Synth(synth::Args),
    /// Lists the devices there are, and why one cannot be used
    Devices(devices::Args),
}

/// What every command is given besides its own arguments.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Whether stderr is for errors alone.
    pub(crate) quiet: bool,
    /// What Ctrl-C does.
    pub(crate) interrupt: Interrupt,
}

impl Context {
    /// A line for people on stderr.
    pub(crate) fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            crate::output::note(text);
        }
    }
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self, interrupt: &Interrupt) -> Result<()> {
        let context = Context { quiet: self.quiet, interrupt: interrupt.clone() };
        match self.command {
            Command::Run(args) => run::run(&args, &context),
            Command::Chat(args) => chat::run(&args, &context),
            Command::Inspect(args) => inspect::run(&args, &context),
            Command::Tokenize(args) => tokenize::run(&args, &context),
            Command::Detokenize(args) => detokenize::run(&args, &context),
            Command::Perplexity(args) => perplexity::run(&args, &context),
            Command::Imatrix(args) => imatrix::run(&args, &context),
            Command::Quantize(args) => quantize::run(&args, &context),
            Command::Template(args) => template::run(&args, &context),
            Command::Logits(args) => logits::run(&args, &context),
            Command::Embed(args) => embed::run(&args, &context),
            Command::Rerank(args) => rerank::run(&args, &context),
            Command::Classify(args) => classify::run(&args, &context),
            Command::Serve(args) => serve::run(&args, &context),
            Command::Bench(args) => bench::run(&args, &context),
            Command::Synth(args) => synth::run(&args, &context),
            Command::Devices(args) => devices::run(&args, &context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_and_readme_name_the_environment() {
        let help = Cli::command().render_help().to_string();
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        let names = help.split_whitespace().filter(|word| word.starts_with("OGIVE_") && !word.contains('='));
        let names: Vec<&str> = names.collect();
        assert!(names.len() >= 8, "{names:?}");
        for name in names {
            assert!(readme.contains(&format!("| `{name}` |")), "{name}");
        }
        for path in ogive::cpu::Path::ALL {
            assert!(help.contains(path.name()), "{path}");
        }
    }
}
