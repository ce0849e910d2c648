//! The project's automation: `cargo xtask ci` runs everything that must pass, `cargo xtask tidy` checks the tree.
//!
//! A Rust program and not a set of scripts, so that it runs wherever the project builds and is itself tested. Arguments
//! are read by hand: three commands and their flags do not need a parser.

// A program talks to its user.
#![allow(clippy::print_stderr)]

mod arm;
mod bundle;
mod ci;
mod corpus;
mod emu;
mod golden;
mod platforms;
mod source;
mod tidy;
mod versions;

use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "usage: cargo xtask COMMAND

  ci [--keep-going]   everything that must pass: fmt, tidy, clippy, examples, docs, tests
  tidy                the tree against the house rules: arrows, files, unsafe, docs, links
";

/// The workspace's root: the folder above this package.
fn root() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map(PathBuf::from).unwrap_or(package)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let Some(("emu", rest)) = args.split_first().map(|(first, rest)| (*first, rest)) {
        return match emu::run(&root(), rest) {
            Ok(code) => ExitCode::from(code),
            Err(message) => fail(&message),
        };
    }
    let outcome = match args[..] {
        ["bundle", ref args @ ..] => {
            emu::target_folder(&root()).and_then(|target| bundle::run(&root(), &target, args))
        }
        ["arm"] => arm::run(&root()),
        ["ci"] => ci::run(&root(), false),
        ["ci", "--keep-going"] => ci::run(&root(), true),
        ["emu-corpus"] => emu::launcher(&root()).and_then(|launcher| corpus::run(&launcher)),
        ["golden", ref names @ ..] => golden::run(&root(), names),
        ["minimal-versions"] => versions::minimal(&root()),
        ["platforms"] => platforms::run(&root()),
        ["semver"] => versions::semver(&root(), None),
        ["semver", revision] => versions::semver(&root(), Some(revision)),
        ["tidy"] => tidy::run(&root()),
        ["help" | "--help" | "-h"] | [] => {
            eprint!("{}", help());
            return if args.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
        _ => Err(format!("unknown arguments: {}\n\n{}", args.join(" "), help())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message),
    }
}

fn help() -> String {
    format!(
        "{HELP}{}{}{}{}{}{}{}",
        bundle::HELP,
        arm::HELP,
        platforms::HELP,
        golden::HELP,
        versions::HELP,
        emu::HELP,
        corpus::HELP
    )
}

fn fail(message: &str) -> ExitCode {
    eprintln!("xtask: {message}");
    ExitCode::FAILURE
}
