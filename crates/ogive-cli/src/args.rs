//! The command line: which commands there are, and the switches that hold for all of them.

use crate::commands::{
    bench, chat, detokenize, devices, embed, inspect, logits, perplexity, quantize, run, synth, template,
    tokenize,
};
use crate::error::Result;
use crate::interrupt::Interrupt;
use clap::{Parser, Subcommand};

/// Runs language models: GGUF or safetensors in, tokens out.
#[derive(Debug, Parser)]
#[command(name = "ogive", version, propagate_version = true, args_override_self = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Says more on stderr: -v what happens, -vv details, -vvv every step. OGIVE_LOG=crate=level says it finer
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// No device, seed, progress or figures on stderr
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
    /// Measures how well the model foretells a text file
    Perplexity(perplexity::Args),
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
    pub(crate) fn run(self) -> Result<()> {
        let context = Context { quiet: self.quiet, interrupt: Interrupt::install()? };
        match self.command {
            Command::Run(args) => run::run(&args, &context),
            Command::Chat(args) => chat::run(&args, &context),
            Command::Inspect(args) => inspect::run(&args, &context),
            Command::Tokenize(args) => tokenize::run(&args, &context),
            Command::Detokenize(args) => detokenize::run(&args, &context),
            Command::Perplexity(args) => perplexity::run(&args, &context),
            Command::Quantize(args) => quantize::run(&args, &context),
            Command::Template(args) => template::run(&args, &context),
            Command::Logits(args) => logits::run(&args, &context),
            Command::Embed(args) => embed::run(&args, &context),
            Command::Bench(args) => bench::run(&args, &context),
            Command::Synth(args) => synth::run(&args, &context),
            Command::Devices(args) => devices::run(&args),
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
}
