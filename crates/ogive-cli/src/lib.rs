//! The program ogive: run, chat, inspect, measure.
//!
//! Text goes to stdout and nothing else does; the device, progress and figures go to stderr. Exit codes are 0, 1 for an
//! error and 2 for a command line that is wrong whatever is in the files that it names. By Ctrl-C, SIGTERM and SIGHUP the program dies, for
//! which shells have the codes 130, 143 and 129. Everything is built on the crate `ogive`, as any other program would be: what this one needs
//! and the library does not offer is missing there, not here.

mod answer;
mod args;
mod calling;
mod commands;
mod constraint;
mod drafting;
mod error;
mod figures;
mod files;
mod interrupt;
mod log;
mod logprobs;
mod npy;
mod options;
mod output;
mod sampling;
mod seeing;
mod synth;
mod windows;

use clap::Parser;
use error::Error;
use interrupt::Interrupt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version count as no error.
            let code = u8::try_from(e.exit_code()).unwrap_or(2);
            // Help is clap's to print, in colour where that can be seen.
            let _ = if e.use_stderr() {
                writeln!(io::stderr(), "{}", plainly(&e.to_string()))
            } else {
                e.print()
            };
            return ExitCode::from(code);
        }
    };
    log::init(cli.verbose);
    let interrupt = match Interrupt::install() {
        Ok(interrupt) => interrupt,
        Err(e) => return code(Err(e)),
    };
    let ended = cli.run(&interrupt);
    if let Err(Error::Interrupted) = ended {
        interrupt.end();
    }
    code(ended)
}

fn code(ended: error::Result<()>) -> ExitCode {
    match ended {
        // Whoever read our output has had enough: that is no error.
        Ok(()) | Err(Error::ClosedPipe) => ExitCode::SUCCESS,
        Err(Error::Interrupted) => ExitCode::FAILURE,
        Err(Error::Usage(why)) => fail(&why, 2),
        Err(Error::Failed(why)) => fail(&why, 1),
    }
}

/// Rust's words for a number that is none, in those of somebody who has typed it.
fn plainly(message: &str) -> String {
    let words = [
        ("invalid digit found in string", "it should be a whole number from 0"),
        ("number too large to fit in target type", "it is too large"),
        ("number would be zero for non-zero type", "it should be at least 1"),
        ("invalid float literal", "it should be a number"),
    ];
    words.iter().fold(message.trim_end().to_owned(), |text, (rust, plain)| text.replace(rust, plain))
}

/// Writes the model of random weights that `ogive synth --shape SHAPE --format FORMAT --seed SEED OUT` writes, for benches that want one
/// without a second program.
///
/// # Errors
/// If a name is not known (the message lists those that are) or the file cannot be written.
pub fn write_synth(shape: &str, format: &str, seed: u64, out: &Path) -> Result<(), String> {
    let synth = synth::Synth::new(shape, format, seed).map_err(|e| e.to_string())?;
    synth.write(out, |_, _| true).map_err(|e| error::with_causes(&e))
}

fn fail(why: &str, code: u8) -> ExitCode {
    output::error(why);
    ExitCode::from(code)
}
