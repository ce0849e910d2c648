//! `cargo xtask emu`: any program, with the CUDA emulator in place of the driver.
//!
//! The work is in `ptx-emulator-launcher`, which tests use without this program; here are the command line and the build.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::MetadataCommand;
use ptx_emulator_launcher::{Launcher, Nvrtc};

/// What `cargo xtask help` says.
pub(crate) const HELP: &str = "  emu [OPTIONS] -- COMMAND…
                      runs COMMAND with the CUDA emulator in place of the driver, cuBLAS and NVRTC
      --nvrtc 11|12|13|all  the compiler (12); all: one run with each
      --device sm_80        what the device is; sm_80,sm_90: several
      --check               bounds, unwritten memory, races in shared memory, barriers, leaks
      --races               that, and races in global memory
      --seed N              draws the order of blocks and streams
      --release             build the emulator with the release profile
      --verbose             say what is done
      --fetch               only fetch and build; no COMMAND
";

/// A command line.
#[derive(Debug, Default, PartialEq)]
struct Options {
    nvrtc: Vec<Nvrtc>,
    settings: Vec<(&'static str, String)>,
    release: bool,
    verbose: bool,
    fetch: bool,
    command: Vec<String>,
}

impl Options {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().map(|v| v.to_string()).ok_or(format!("emu: {arg} wants a value"));
            match *arg {
                "--nvrtc" => match value()?.as_str() {
                    "all" => options.nvrtc = Nvrtc::ALL.to_vec(),
                    one => options.nvrtc.push(one.parse().map_err(|e| format!("emu: --nvrtc: {e}"))?),
                },
                "--device" => options.settings.push(("PTX_EMU_DEVICES", value()?)),
                "--seed" => options.settings.push(("PTX_EMU_SEED", value()?)),
                "--check" => options.settings.push(("PTX_EMU_CHECK", "1".into())),
                "--races" => options.settings.push(("PTX_EMU_CHECK", "races".into())),
                "--release" => options.release = true,
                "--verbose" => options.verbose = true,
                "--fetch" => options.fetch = true,
                "--" => {
                    options.command = args.map(ToString::to_string).collect();
                    break;
                }
                other => {
                    return Err(format!(
                        "emu: unknown argument {other}; the command stands after --\n\n{HELP}"
                    ));
                }
            }
        }
        if options.command.is_empty() != options.fetch {
            return Err(format!("emu: a command after --, or --fetch without one\n\n{HELP}"));
        }
        if options.nvrtc.is_empty() {
            options.nvrtc = if options.fetch { Nvrtc::ALL.to_vec() } else { vec![Nvrtc::V12] };
        }
        Ok(options)
    }
}

/// Runs the command; its exit code is ours, the first that is not zero of several.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<u8, String> {
    let options = Options::parse(args)?;
    build(root, &options)?;
    let mut launcher = launcher(root)?;
    if std::env::var_os(ptx_emulator_launcher::LIBRARY).is_none() {
        let profile = if options.release { "release" } else { "debug" };
        launcher = launcher.library(target_folder(root)?.join(profile).join("libptx_emulator.so"));
    }
    for (name, value) in &options.settings {
        launcher = launcher.set(name, value);
    }
    for nvrtc in &options.nvrtc {
        let environment =
            launcher.clone().nvrtc(*nvrtc).environment(&say).map_err(|e| format!("emu: {e}"))?;
        if options.verbose {
            for (name, value) in &environment {
                say(&format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
            }
        }
        let Some((program, args)) = options.command.split_first() else { continue };
        if options.verbose || options.nvrtc.len() > 1 {
            say(&format!("NVRTC {nvrtc}: {}", options.command.join(" ")));
        }
        let status = Command::new(program).args(args).envs(environment).status();
        let status = status.map_err(|e| format!("emu: {program} cannot be started: {e}"))?;
        if !status.success() {
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
    }
    Ok(0)
}

/// A launcher that keeps what it fetches in cargo's target folder.
pub(crate) fn launcher(root: &Path) -> Result<Launcher, String> {
    let launcher = Launcher::new();
    if std::env::var_os(ptx_emulator_launcher::CACHE).is_some() {
        return Ok(launcher);
    }
    Ok(launcher.cache(target_folder(root)?.join("emu")))
}

fn say(text: &str) {
    eprintln!("emu: {text}");
}

/// Cargo's target folder.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf, String> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec();
    Ok(metadata.map_err(|e| format!("cargo metadata failed: {e}"))?.target_directory.into_std_path_buf())
}

fn build(root: &Path, options: &Options) -> Result<(), String> {
    if std::env::var_os(ptx_emulator_launcher::LIBRARY).is_some() {
        return Ok(());
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["build", "--package", "ptx-emulator", "--lib"]).stdin(Stdio::null());
    if options.release {
        cargo.arg("--release");
    }
    if !options.verbose {
        cargo.arg("--quiet");
    }
    let status = cargo.status().map_err(|e| format!("emu: cargo cannot be started: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("emu: the emulator does not build ({status})")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let options =
            Options::parse(&["--nvrtc", "13", "--races", "--seed", "7", "--", "a", "--seed"]).unwrap();
        assert_eq!(options.nvrtc, [Nvrtc::V13]);
        assert_eq!(options.settings, [("PTX_EMU_CHECK", "races".into()), ("PTX_EMU_SEED", "7".into())]);
        assert_eq!(options.command, ["a", "--seed"]);
        assert_eq!(Options::parse(&["--", "a"]).unwrap().nvrtc, [Nvrtc::V12]);
        assert_eq!(Options::parse(&["--nvrtc", "all", "--", "a"]).unwrap().nvrtc, Nvrtc::ALL);
        assert_eq!(Options::parse(&["--fetch"]).unwrap().nvrtc, Nvrtc::ALL);
    }

    #[test]
    fn wrong_options_are_explained() {
        let error = |args: &[&str]| Options::parse(args).unwrap_err();
        assert!(error(&["a"]).contains("after --"));
        assert!(error(&[]).contains("--fetch"));
        assert!(error(&["--nvrtc", "10", "--", "a"]).contains("11, 12 and 13"));
        assert!(error(&["--seed"]).contains("wants a value"));
    }
}
