//! `cargo xtask ci`: every check, in the order in which they fail fastest.
//!
//! The tests come last, so that the closing lines of the output are the test runner's own summary. A step is a plain
//! child process with our own output streams: what it prints is what is seen.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cargo_metadata::{Metadata, MetadataCommand, Package};
use ptx_emulator_launcher::{Error, Nvrtc, test::REQUIRED};

/// One check: its name, and what to run.
struct Step<'a> {
    name: String,
    run: Box<dyn Fn() -> Result<(), String> + 'a>,
}

/// Workspaces of their own: what trains the demo model, what measures other engines (but for llama.cpp, which wants a C++ compiler), and
/// what fuzzes.
const OUTSIDE: [&str; 3] =
    ["crates/ogive-demo-model/train/Cargo.toml", "benches/peers/Cargo.toml", "fuzz/Cargo.toml"];

/// The generations of NVRTC and cuBLAS that a build may load.
const GENERATIONS: [&str; 3] = ["cuda-11", "cuda-12", "cuda-13"];

/// What leaves a command of cargo's with `generation` alone.
fn alone(generation: &str) -> [&str; 5] {
    ["--package", "ogive-cuda", "--no-default-features", "--features", generation]
}

/// What leaves a command of cargo's with a workspace in which `ogive-cuda` has `generation` alone, and all else the features that it has in
/// all of the workspace: so only `ogive-cuda` is compiled again.
fn alone_among_all(metadata: &Metadata, generation: &str) -> Vec<String> {
    let mut args = vec!["--workspace".to_owned()];
    for package in metadata.workspace_packages().into_iter().filter(|package| takes_generations(package)) {
        args.extend(["--exclude".to_owned(), package.name.to_string()]);
    }
    args.extend(["--no-default-features".to_owned(), "--features".to_owned()]);
    args.push(format!("ogive-cuda/{generation}"));
    args
}

/// Whether a package depends on generations whatever its own features are.
fn takes_generations(package: &Package) -> bool {
    package.dependencies.iter().any(|dependency| {
        let named = dependency.features.iter().any(|name| GENERATIONS.contains(&name.as_str()));
        named || dependency.name == "ogive-cuda" && dependency.uses_default_features
    })
}

/// Runs all steps; stops at the first failure unless `keep_going`.
pub(crate) fn run(root: &Path, keep_going: bool) -> Result<(), String> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .map_err(|e| format!("cargo metadata failed: {e}"))?;
    let steps = steps(root, &metadata);
    let start = Instant::now();
    let mut times: Vec<(String, Duration, bool)> = Vec::new();
    let mut failures = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        // Times so far stand before the last step: its own summary closes the output.
        if i + 1 == steps.len() {
            report(&times);
        }
        eprintln!("\n=== {}/{} {}", i + 1, steps.len(), step.name);
        let began = Instant::now();
        let outcome = (step.run)();
        times.push((step.name.clone(), began.elapsed(), outcome.is_ok()));
        if let Err(message) = outcome {
            eprintln!("=== {} failed after {:.1} s: {message}", step.name, began.elapsed().as_secs_f64());
            failures.push(step.name.clone());
            if !keep_going {
                break;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    if failures.is_empty() {
        eprintln!("=== ci passed: {} steps in {seconds:.1} s", times.len());
        return Ok(());
    }
    report(&times);
    // A linker that finds the disk full says no more than "bus error".
    if let Ok(target) = crate::emu::target_folder(root) {
        let _ = Command::new("df").arg("-h").arg(target).stdin(Stdio::null()).status();
    }
    let rest = if keep_going { "" } else { " (later steps did not run; --keep-going runs them)" };
    Err(format!("ci failed after {seconds:.1} s: {}{rest}", failures.join(", ")))
}

fn report(times: &[(String, Duration, bool)]) {
    eprintln!();
    for (name, time, passed) in times {
        eprintln!("=== {} {:>7.1} s  {name}", if *passed { "passed" } else { "FAILED" }, time.as_secs_f64());
    }
}

fn steps<'a>(root: &'a Path, metadata: &Metadata) -> Vec<Step<'a>> {
    let cargo = |args: &[&str], env: &[(&'static str, &'static str)]| -> Step<'a> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let env = env.to_vec();
        let name = format!("cargo {}", args.join(" "));
        Step { name, run: Box::new(move || cargo(root, &args, &env)) }
    };
    let mut steps = vec![
        cargo(&["fmt", "--all", "--", "--check"], &[]),
        Step { name: "tidy".into(), run: Box::new(move || crate::tidy::run(root)) },
    ];
    let mut packages: Vec<String> =
        metadata.workspace_packages().iter().map(|p| p.name.to_string()).collect();
    packages.sort();
    for package in &packages {
        steps.push(cargo(&["clippy", "--package", package, "--all-targets", "--", "-D", "warnings"], &[]));
    }
    // What a program has that takes only what it needs.
    for features in ["demo-model", "cuda-12"] {
        let only = ["--no-default-features", "--features", features];
        let clippy = [&["clippy", "--package", "ogive"], &only[..], &["--", "-D", "warnings"]].concat();
        steps.push(cargo(&clippy, &[]));
    }
    // The program with its server, and a server without grammars and images.
    steps.push(cargo(
        &[
            "clippy",
            "--package",
            "ogive-cli",
            "--features",
            "server",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        &[],
    ));
    steps.push(cargo(
        &["clippy", "--package", "ogive-server", "--no-default-features", "--", "-D", "warnings"],
        &[],
    ));
    // Each generation of CUDA alone: elsewhere all three are on.
    for generation in GENERATIONS {
        let clippy =
            [&["clippy"], &alone(generation)[..], &["--all-targets", "--", "-D", "warnings"]].concat();
        steps.push(cargo(&clippy, &[]));
    }
    steps.push(Step { name: "platforms".into(), run: Box::new(move || crate::platforms::run(root)) });
    steps.push(Step {
        name: "minimal-versions".into(),
        run: Box::new(move || crate::versions::minimal(root)),
    });
    // What the emulator's tests need; those who cannot have it say so (CONTRIBUTING.md).
    let required = if emulator_required() { "1" } else { "0" };
    steps.push(Step { name: "emu --fetch".into(), run: Box::new(move || optional(fetch(root))) });
    steps.push(Step { name: "emu-corpus".into(), run: Box::new(move || optional(corpus(root))) });
    // As the workspace compiles, and where it does: most of what they depend on is there.
    let target = metadata.target_directory.as_str();
    for manifest in OUTSIDE {
        steps.push(cargo(&["fmt", "--manifest-path", manifest, "--", "--check"], &[]));
        let clippy = ["clippy", "--locked", "--all-targets", "--manifest-path", manifest];
        let clippy = [&clippy[..], &["--target-dir", target, "--", "-D", "warnings"]].concat();
        steps.push(cargo(&clippy, &[("CARGO_PROFILE_DEV_OPT_LEVEL", "1")]));
    }
    // All at once, so that dependencies are built with the features that the tests use too, and only once.
    steps.push(cargo(&["build", "--workspace", "--lib", "--examples"], &[]));
    // What is told of the generations that a build leaves out: these two builds leave out each of them. They find the emulator that was built just now.
    for generation in [GENERATIONS[0], GENERATIONS[2]] {
        let args = alone_among_all(metadata, generation);
        let mut test = vec!["test"];
        test.extend(args.iter().map(String::as_str));
        test.extend(["--test", "missing"]);
        steps.push(cargo(&test, &[(REQUIRED, required)]));
    }
    steps.push(cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")]));
    steps.push(cargo(&["test", "--workspace", "--doc"], &[]));
    steps.push(if has_nextest(root) {
        cargo(&["nextest", "run", "--workspace", "--no-fail-fast"], &[(REQUIRED, required)])
    } else {
        let tests = ["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"];
        cargo(&tests, &[(REQUIRED, required)])
    });
    steps
}

/// Whether tests that cannot run under the emulator fail: unless somebody says otherwise.
fn emulator_required() -> bool {
    std::env::var(REQUIRED).map_or(true, |value| value != "0")
}

fn fetch(root: &Path) -> Result<(), String> {
    let launcher = crate::emu::launcher(root)?;
    Nvrtc::ALL.into_iter().try_for_each(|nvrtc| {
        match launcher.nvrtc_folder(nvrtc, &|text| eprintln!("{text}")) {
            Ok(_) => Ok(()),
            Err(error @ Error::Platform { .. }) => {
                eprintln!("skipped: {error}");
                Ok(())
            }
            Err(error) => Err(format!("{error}\n{REQUIRED}=0 lets ci pass without")),
        }
    })
}

fn corpus(root: &Path) -> Result<(), String> {
    crate::corpus::run(&crate::emu::launcher(root)?)
}

/// A failure that counts only where the emulator is required.
fn optional(outcome: Result<(), String>) -> Result<(), String> {
    match outcome {
        Err(message) if !emulator_required() => {
            eprintln!("skipped: {message}");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Cargo, the one that runs us, in a folder, and sparing with the disk: without what would make a second build quicker and without
/// line tables, which are four fifths of each of a hundred tests. A panic says where it was all the same.
pub(crate) fn command(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root).stdin(Stdio::null());
    command.envs([("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "false")]);
    command
}

fn has_nextest(root: &Path) -> bool {
    let probe =
        command(root).args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

fn cargo(root: &Path, args: &[String], env: &[(&str, &str)]) -> Result<(), String> {
    let status = command(root).args(args).envs(env.iter().copied()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{status}")),
        Err(error) => Err(format!("cargo cannot be started: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_come_last_and_every_crate_is_linted() {
        let root = crate::root();
        let metadata =
            MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec().unwrap();
        let names: Vec<String> = steps(&root, &metadata).into_iter().map(|step| step.name).collect();
        let last = names.last().unwrap();
        assert!(
            last.contains("nextest run --workspace") || last.contains("test --workspace --lib"),
            "{last}"
        );
        for package in metadata.workspace_packages() {
            let wanted = format!("cargo clippy --package {} --all-targets -- -D warnings", package.name);
            assert!(names.contains(&wanted), "{wanted}");
        }
        for manifest in OUTSIDE {
            for wanted in ["cargo fmt", "cargo clippy --locked --all-targets"] {
                assert!(
                    names.iter().any(|n| n.starts_with(wanted) && n.contains(manifest)),
                    "{wanted} {manifest}"
                );
            }
        }
        for wanted in ["cargo fmt --all -- --check", "tidy", "cargo doc --workspace --no-deps"] {
            assert!(names.iter().any(|name| name == wanted), "{wanted}");
        }
    }

    #[test]
    fn a_generation_alone_is_alone() {
        let root = crate::root();
        let metadata =
            MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec().unwrap();
        for generation in GENERATIONS {
            let mut tree = command(&root);
            tree.args([
                "tree",
                "--locked",
                "--edges",
                "normal,dev",
                "--invert",
                "ogive-cuda",
                "--depth",
                "0",
            ]);
            tree.args(["--format", "{p} [{f}]"]).args(alone_among_all(&metadata, generation));
            let output = tree.stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let wanted = format!("[{generation}]");
            assert!(said.contains(&wanted), "{said}{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn a_failing_command_is_an_error() {
        let error = cargo(&crate::root(), &["no-such-command".to_string()], &[]).unwrap_err();
        assert!(error.contains("exit"), "{error}");
    }
}
