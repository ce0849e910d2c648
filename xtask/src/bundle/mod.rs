//! `cargo xtask bundle`: what a GPU machine without Rust and without a network needs, in a folder of at most 60 MB.
//!
//! Test programs are copied and not described: what runs there is what was tested here under the emulator. They are release builds
//! without debugging information; the golden models go along, as a few megabytes that find what operators one by one do not.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::{Message, TargetKind};

/// What `cargo xtask help` says.
pub(crate) const HELP: &str = "  bundle [OPTIONS]    a folder for a GPU machine without Rust: tests, CLI, GPU bench, and run.sh
      --features LIST     generations of NVRTC and cuBLAS to allow (cuda-11,cuda-12,cuda-13)
      --out FOLDER        where to (bundle in cargo's target folder); what is there is replaced
";

/// A folder that is larger does not travel.
const LIMIT: u64 = 60_000_000;
/// What runs everything.
const SCRIPT: &str = include_str!("run.sh");
/// Makes one report of what it left.
const REPORT: &str = include_str!("report.py");

/// A command line.
#[derive(Debug, PartialEq)]
struct Options {
    features: String,
    out: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self { features: "cuda-11,cuda-12,cuda-13".into(), out: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("bundle: {arg} wants a value"));
            match *arg {
                "--features" => options.features = value()?.to_string(),
                "--out" => options.out = Some(PathBuf::from(value()?)),
                other => return Err(format!("bundle: unknown argument {other}\n\n{HELP}")),
            }
        }
        if !options.features.split(',').all(|f| matches!(f, "cuda-11" | "cuda-12" | "cuda-13")) {
            return Err(format!("bundle: {} are no features of generations\n\n{HELP}", options.features));
        }
        Ok(options)
    }
}

/// A build: what cargo is told, and the programs that are taken of it with their names in the bundle.
struct Build {
    args: &'static [&'static str],
    takes: &'static [(&'static str, &'static str)],
}

/// Test programs of ogive-cuda that mean something on a device; `faults` is the emulator's.
const BUILDS: [Build; 4] = [
    Build { args: &["build", "-p", "ogive-cli", "--bin", "ogive"], takes: &[("ogive", "ogive")] },
    Build { args: &["build", "-p", "ogive-gpu-bench"], takes: &[("ogive-gpu-bench", "ogive-gpu-bench")] },
    Build {
        args: &[
            "test", "-p", "ogive-cuda", "--no-run", "--test", "conformance", "--test", "replay", "--test", "step",
            "--test", "memory", "--test", "measure",
        ],
        takes: &[
            ("conformance", "test-conformance"),
            ("replay", "test-replay"),
            ("step", "test-step"),
            ("memory", "test-memory"),
            ("measure", "test-measure"),
        ],
    },
    Build { args: &["test", "-p", "ogive-models", "--no-run", "--test", "cuda"], takes: &[("cuda", "test-models")] },
];

/// Builds and lays out the bundle.
pub(crate) fn run(root: &Path, target: &Path, args: &[&str]) -> Result<(), String> {
    let options = Options::parse(args)?;
    let out = options.out.clone().unwrap_or_else(|| target.join("bundle"));
    let failed = |doing: &str, path: &Path, e: std::io::Error| format!("bundle: {doing} {}: {e}", path.display());
    if out.exists() {
        // Nothing is removed that is no bundle.
        let ours = out.join("run.sh").is_file() || fs::read_dir(&out).is_ok_and(|mut d| d.next().is_none());
        if !ours {
            return Err(format!("bundle: {} is there and no bundle; name another folder", out.display()));
        }
        fs::remove_dir_all(&out).map_err(|e| failed("emptying", &out, e))?;
    }
    let bin = out.join("bin");
    fs::create_dir_all(&bin).map_err(|e| failed("making", &bin, e))?;
    for build in &BUILDS {
        for (name, program) in programs(root, build, &options.features)? {
            let to = bin.join(name);
            fs::copy(&program, &to).map_err(|e| failed("copying to", &to, e))?;
        }
    }
    copy(&root.join("crates/ogive-models/tests/golden"), &out.join("golden"))?;
    for (name, text) in [("run.sh", SCRIPT), ("report.py", REPORT)] {
        let path = out.join(name);
        fs::write(&path, text).map_err(|e| failed("writing", &path, e))?;
    }
    executable(&out.join("run.sh"))?;
    let commit = Command::new("git").current_dir(root).args(["rev-parse", "HEAD"]).output();
    let commit = commit.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    let glibc = newest_glibc(&bin)?;
    let about = format!("commit {commit}\nfeatures {}\nglibc {glibc} or newer\n", options.features);
    fs::write(out.join("about.txt"), about).map_err(|e| failed("writing", &out, e))?;
    let size = size(&out)?;
    eprintln!("bundle: {}, {:.1} MB; needs glibc {glibc}; there: ./run.sh", out.display(), size as f64 / 1e6);
    if size > LIMIT {
        return Err(format!("bundle: {size} bytes, but no more than {LIMIT} travel"));
    }
    Ok(())
}

/// Builds, and finds the programs in what cargo says of it.
fn programs(root: &Path, build: &Build, features: &str) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root).args(build.args).args(["--release", "--config", "profile.release.strip=true"]);
    if build.args.contains(&"ogive-models") {
        // Its tests have ogive-cuda with all generations; so has everything built with it.
    } else {
        command.args(["--no-default-features", "--features", features]);
    }
    command.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stdout(Stdio::piped());
    let wrong = |e: String| format!("bundle: cargo {}: {e}", build.args.join(" "));
    let mut child = command.spawn().map_err(|e| wrong(e.to_string()))?;
    let stdout = child.stdout.take().ok_or_else(|| wrong("it has no output".into()))?;
    let mut found = Vec::new();
    for message in Message::parse_stream(BufReader::new(stdout).take_lines()) {
        let Ok(Message::CompilerArtifact(artifact)) = message else { continue };
        let kind = &artifact.target.kind;
        let program = kind.contains(&TargetKind::Bin) || kind.contains(&TargetKind::Test);
        let Some(path) = artifact.executable.filter(|_| program) else { continue };
        found.extend(build.takes.iter().filter(|(name, _)| *name == artifact.target.name).map(|(_, as_name)| (*as_name, path.clone().into_std_path_buf())));
    }
    let status = child.wait().map_err(|e| wrong(e.to_string()))?;
    if !status.success() {
        return Err(wrong(status.to_string()));
    }
    match build.takes.iter().find(|(_, name)| !found.iter().any(|(f, _)| f == name)) {
        Some((name, _)) => Err(wrong(format!("it made no {name}"))),
        None => Ok(found),
    }
}
