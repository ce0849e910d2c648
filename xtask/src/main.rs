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

const USAGE: &str = "usage: cargo xtask COMMAND\n\n";

/// What `help` says of the commands that have no file with their own words.
const COMMANDS: &str =
    "  ci [--keep-going]   everything that must pass: fmt, tidy, clippy, examples, docs, tests
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
    if let Some(help) = help_of(&args) {
        eprint!("{USAGE}{help}");
        return ExitCode::SUCCESS;
    }
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
        "{USAGE}{COMMANDS}{}{}{}{}{}{}{}",
        bundle::HELP,
        arm::HELP,
        platforms::HELP,
        golden::HELP,
        versions::HELP,
        emu::HELP,
        corpus::HELP
    )
}

/// What `help` says of the command that `--help` stands behind.
fn help_of(args: &[&str]) -> Option<&'static str> {
    let (command, rest) = args.split_first()?;
    // What follows `--` is another program's.
    let mut own = rest.iter().take_while(|arg| **arg != "--");
    own.find(|arg| matches!(**arg, "--help" | "-h"))?;
    Some(match *command {
        "arm" => arm::HELP,
        "bundle" => bundle::HELP,
        "ci" | "tidy" => COMMANDS,
        "emu" => emu::HELP,
        "emu-corpus" => corpus::HELP,
        "golden" => golden::HELP,
        "minimal-versions" | "semver" => versions::HELP,
        "platforms" => platforms::HELP,
        _ => return None,
    })
}

fn fail(message: &str) -> ExitCode {
    eprintln!("xtask: {message}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_of_the_command_before_it() {
        assert!(help_of(&["bundle", "--help"]).unwrap().contains("--features LIST"));
        assert!(help_of(&["emu", "--races", "-h"]).unwrap().contains("--nvrtc"));
        // Each command that the whole help has.
        for line in help().lines().filter_map(|line| line.strip_prefix("  ")) {
            let Some(command) = line.split(' ').next().filter(|word| !word.is_empty()) else { continue };
            let own = help_of(&[command, "--help"]).unwrap_or_else(|| panic!("{command}"));
            assert!(own.contains(line), "{command}");
        }
        for args in [&["emu", "--", "a", "--help"][..], &["nothing", "--help"], &["--help"], &["emu"], &[]] {
            assert_eq!(help_of(args), None, "{args:?}");
        }
    }
}
