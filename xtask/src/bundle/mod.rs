//! `cargo xtask bundle`: what a GPU machine without Rust and without a network needs, in a folder of at most 50 MB.
//!
//! Test programs are copied and not described: what runs there is what was tested here under the emulator. They are release builds
//! without debugging information; the golden models go along, as a few megabytes that find what operators one by one do not.

use std::ffi::OsString;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::{Message, TargetKind};

/// What `cargo xtask help` says.
pub(crate) const HELP: &str =
    "  bundle [OPTIONS]    a folder for a GPU machine without Rust: tests, CLI, GPU bench, and run.sh
      --features LIST     generations of NVRTC and cuBLAS to allow (cuda-11,cuda-12,cuda-13)
      --out FOLDER        where to (bundle in cargo's target folder); what is there is replaced
";

/// A folder that is larger does not travel: the source tree goes along, and together they may have 64 MiB.
const LIMIT: u64 = 50_000_000;
/// The folders of programs, which travel as an archive.
const FOLDERS: [&str; 2] = ["bin", "tests"];
/// And its name.
const PROGRAMS_PACKED: &str = "programs.tar.xz";
/// What runs everything.
const SCRIPT: &str = include_str!("run.sh");

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

/// Programs that are taken, by cargo's name and by the bundle's. Of ogive-cuda's tests those that mean something on a device: `faults` and
/// `step` are about the emulator, `missing` about libraries that are not there. What of the others only the emulator can show is skipped
/// there, and some of `peers` where there is one GPU. `ogive_cuda` are the library's own tests: each tile and product against loops on the host.
const PROGRAMS: [(&str, &str); 19] = [
    ("ogive", "ogive"),
    ("ogive-gpu-bench", "ogive-gpu-bench"),
    ("conformance", "test-conformance"),
    ("replay", "test-replay"),
    ("memory", "test-memory"),
    ("measure", "test-measure"),
    ("compute", "test-compute"),
    ("int8", "test-int8"),
    ("prompts", "test-prompts"),
    ("split", "test-split"),
    ("moe", "test-moe"),
    ("order", "test-order"),
    ("overlap", "test-overlap"),
    ("trace", "test-trace"),
    ("pieces", "test-pieces"),
    ("peers", "test-peers"),
    ("cublas", "test-cublas"),
    ("cuda", "test-models"),
    ("ogive_cuda", UNITS),
];
/// The library's own tests, in the bundle.
const UNITS: &str = "test-units";

/// The package of the golden models' tests. They ask ogive-cuda for every generation, with NVRTCs of which they are tested.
const MODELS: &str = "ogive-models";
/// What has the other programs.
const PACKAGES: [&str; 3] = ["ogive-cli", "ogive-gpu-bench", "ogive-cuda"];

/// Builds and lays out the bundle.
pub(crate) fn run(root: &Path, target: &Path, args: &[&str]) -> Result<(), String> {
    let options = Options::parse(args)?;
    let out = options.out.clone().unwrap_or_else(|| target.join("bundle"));
    let failed =
        |doing: &str, path: &Path, e: std::io::Error| format!("bundle: {doing} {}: {e}", path.display());
    if out.exists() {
        // Nothing is removed that is no bundle.
        let ours = out.join("run.sh").is_file() || fs::read_dir(&out).is_ok_and(|mut d| d.next().is_none());
        if !ours {
            return Err(format!("bundle: {} is there and no bundle; name another folder", out.display()));
        }
        fs::remove_dir_all(&out).map_err(|e| failed("emptying", &out, e))?;
    }
    fs::create_dir_all(&out).map_err(|e| failed("making", &out, e))?;
    // First: it is what tells a bundle, also one whose build failed, from what must not be removed.
    let script = out.join("run.sh");
    fs::write(&script, SCRIPT).map_err(|e| failed("writing", &script, e))?;
    executable(&script)?;
    let [bin, tests] = FOLDERS.map(|folder| out.join(folder));
    for folder in [&bin, &tests] {
        fs::create_dir_all(folder).map_err(|e| failed("making", folder, e))?;
    }
    for (name, program) in programs(root, &options.features)? {
        let to = if name.starts_with("test-") { &tests } else { &bin }.join(name);
        fs::copy(&program, &to).map_err(|e| failed("copying to", &to, e))?;
    }
    for folder in ["golden", "vision"] {
        copy(&root.join("crates/ogive-models/tests").join(folder), &out.join(folder))?;
    }
    // With `-dirty` where the tree is not what was committed.
    let describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"];
    let commit = Command::new("git").current_dir(root).args(describe).output();
    let commit = commit.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    let glibc = newest_glibc(&[&bin, &tests])?;
    pack(&out)?;
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
fn programs(root: &Path, features: &str) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let mut found = Vec::new();
    for call in calls(features) {
        found.extend(built(root, &call)?);
    }
    match PROGRAMS.iter().find(|(_, name)| !found.iter().any(|(f, _)| f == name)) {
        Some((target, _)) => Err(format!("bundle: building: cargo made no {target}")),
        None => Ok(found),
    }
}

/// Cargo's calls. One for all programs that hold to `features`, so that what they share is built once. Cargo unifies the features of a
/// call, so those that ask for more are apart.
fn calls(features: &str) -> [Vec<String>; 3] {
    let (mut main, mut models) = (vec!["build".to_owned()], vec!["build".to_owned()]);
    main.extend(PACKAGES.iter().flat_map(|package| ["--package".into(), (*package).into()]));
    models.extend(["--package".into(), MODELS.into()]);
    for (target, name) in PROGRAMS.iter().filter(|(_, name)| *name != UNITS) {
        let call = if *name == "test-models" { &mut models } else { &mut main };
        call.extend([if name.starts_with("test-") { "--test" } else { "--bin" }.into(), (*target).into()]);
    }
    let with = |packages: &[&str]| {
        let one = |package: &&str| features.split(',').map(|f| format!("{package}/{f}")).collect::<Vec<_>>();
        ["--features".to_owned(), packages.iter().flat_map(one).collect::<Vec<_>>().join(",")]
    };
    main.extend(with(&PACKAGES));
    let mut units = ["test", "--no-run", "--lib", "--package", "ogive-cuda"].map(String::from).to_vec();
    units.extend(with(&["ogive-cuda"]));
    [main, units, models]
}

/// What one command of cargo's makes of them.
fn built(root: &Path, args: &[String]) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    // Optimising across crates would take the longer part of the build, for the host's share of what is measured.
    let settings = ["profile.release.strip=true", "profile.release.lto=false"];
    command.current_dir(root).args(args).args(["--release", "--message-format=json-render-diagnostics"]);
    command.args(settings.iter().flat_map(|setting| ["--config", setting]));
    command.arg("--no-default-features");
    let wrong = |e: String| format!("bundle: building: {e}");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|e| wrong(e.to_string()))?;
    let stdout = child.stdout.take().ok_or_else(|| wrong("cargo has no output".into()))?;
    let mut found = Vec::new();
    for message in Message::parse_stream(BufReader::new(stdout)) {
        let Ok(Message::CompilerArtifact(artifact)) = message else { continue };
        let Some(path) = artifact.executable else { continue };
        let is_test = !artifact.target.kind.contains(&TargetKind::Bin);
        let taken = |(target, name): &&(&str, &str)| {
            *target == artifact.target.name && name.starts_with("test-") == is_test
        };
        found.extend(PROGRAMS.iter().find(taken).map(|(_, name)| (*name, path.into_std_path_buf())));
    }
    let status = child.wait().map_err(|e| wrong(e.to_string()))?;
    if status.success() { Ok(found) } else { Err(wrong(status.to_string())) }
}

/// Puts the programs in one file, a fifth of their size: they hold much the same, so the dictionary is larger than two of them.
fn pack(out: &Path) -> Result<(), String> {
    let failed = |why: String| format!("bundle: packing programs with tar and xz: {why}");
    let mut tar = Command::new("tar");
    tar.current_dir(out).env("XZ_OPT", "--lzma2=preset=6,dict=128MiB").args(["-cJf", PROGRAMS_PACKED]);
    match tar.args(FOLDERS).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => FOLDERS
            .iter()
            .try_for_each(|folder| fs::remove_dir_all(out.join(folder)))
            .map_err(|e| failed(e.to_string())),
        Ok(status) => Err(failed(status.to_string())),
        Err(e) => Err(failed(e.to_string())),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("bundle: copying {}: {e}", from.display());
    if from.is_file() {
        return fs::copy(from, to).map(drop).map_err(failed);
    }
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Calls `f` with every file below `folder`.
fn files(folder: &Path, f: &mut dyn FnMut(&Path)) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("bundle: reading {}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() { files(&path, f)? } else { f(&path) }
    }
    Ok(())
}

fn size(folder: &Path) -> Result<u64, String> {
    let mut sum = 0;
    files(folder, &mut |path| sum += fs::metadata(path).map_or(0, |m| m.len()))?;
    Ok(sum)
}

/// The newest version of the C library that a program of these folders names: one that is older there starts none of them.
fn newest_glibc(folders: &[&Path]) -> Result<String, String> {
    const NAME: &[u8] = b"GLIBC_2.";
    let mut newest = 0;
    let mut look = |path: &Path| {
        let bytes = fs::read(path).unwrap_or_default();
        for at in
            bytes.windows(NAME.len()).enumerate().filter(|(_, w)| *w == NAME).map(|(i, _)| i + NAME.len())
        {
            let digits = bytes[at..].iter().take(3).take_while(|b| b.is_ascii_digit());
            newest = newest.max(digits.fold(0, |n, b| 10 * n + u32::from(b - b'0')));
        }
    };
    folders.iter().try_for_each(|folder| files(folder, &mut look))?;
    Ok(format!("2.{newest}"))
}

#[cfg(unix)]
fn executable(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|e| format!("bundle: {}: {e}", path.display()))
}

#[cfg(not(unix))]
fn executable(_: &Path) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read() {
        let options = Options::parse(&["--features", "cuda-12", "--out", "there"]).unwrap();
        assert_eq!(options, Options { features: "cuda-12".into(), out: Some("there".into()) });
        for wrong in [&["--features", "cuda-10"][..], &["--features"], &["--speed"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    /// What cargo makes of each call's features. One that asks for more would give it to all programs of the call.
    #[test]
    fn programs_hold_to_the_features_that_are_asked_for() {
        for call in calls("cuda-12") {
            let of_models = call.iter().any(|arg| arg == MODELS);
            assert!(!of_models || !PACKAGES.iter().any(|p| call.iter().any(|arg| arg == p)), "{call:?}");
            let mut tree = crate::ci::command(&crate::root());
            tree.args([
                "tree",
                "--locked",
                "--no-default-features",
                "--edges",
                "features",
                "--invert",
                "ogive-cuda",
            ]);
            for pair in call.windows(2).filter(|pair| ["--package", "--features"].contains(&&*pair[0])) {
                tree.args(pair);
            }
            let out = tree.output().unwrap();
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            let on = ["cuda-11", "cuda-12", "cuda-13"]
                .map(|feature| text.contains(&format!("ogive-cuda feature \"{feature}\"")));
            assert_eq!(on, [of_models, true, of_models], "{call:?}: {text}");
        }
    }

    /// A bundle whose programs are shell scripts: what each prints, by its name; other test programs have one test, which passes.
    #[cfg(unix)]
    fn stand_ins(texts: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        FOLDERS.iter().for_each(|f| fs::create_dir_all(at.join(f)).unwrap());
        fs::write(at.join("run.sh"), SCRIPT).unwrap();
        fs::write(at.join("about.txt"), "commit x\n").unwrap();
        for (_, name) in PROGRAMS {
            let is_test = name.starts_with("test-");
            let text = texts.iter().find(|(program, _)| *program == name).map_or(
                if is_test { "case $* in *--list*) echo 'a::b: test' ;; esac" } else { "echo \"$0 $*\"" },
                |(_, text)| text,
            );
            let file = at.join(FOLDERS[usize::from(is_test)]).join(name);
            fs::write(&file, format!("#!/bin/sh\ncase $* in *--list*--ignored*) exit ;; esac\n{text}\n"))
                .unwrap();
            executable(&file).unwrap();
        }
        pack(at).unwrap();
        assert!(FOLDERS.iter().all(|f| !at.join(f).exists()));
        folder
    }

    /// Runs the script with these arguments; whether it succeeded.
    #[cfg(unix)]
    fn script(folder: &Path, args: &[&str]) -> bool {
        script_with(folder, args, "")
    }

    /// The same with arguments for the bench.
    #[cfg(unix)]
    fn script_with(folder: &Path, args: &[&str], bench: &str) -> bool {
        let mut command = Command::new("sh");
        command.arg(folder.join("run.sh")).arg("--out").arg(folder.join("out")).args(args);
        command.env("BENCH_ARGS", bench).stdout(Stdio::null()).status().unwrap().success()
    }

    #[cfg(unix)]
    fn read(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join("out").join(name)).unwrap()
    }

    /// Each part once, a failure that stops nothing, a report that holds both.
    #[cfg(unix)]
    #[test]
    fn the_script_runs_all_and_reports_what_failed() {
        let suite = "case $* in
            *--list*) for name in nvrtc_11::part_0 nvrtc_12::part_0 nvrtc_12::part_1 as_opened::sm_80 as_opened::sm_120 every_device; do
                echo \"$name: test\"; done ;;
            *nvrtc_12::part_1*) case $OGIVE_CUDA_SHARD$OGIVE_CUDA_AFTER in
                # A device that is lost: the case behind it is run by another process.
                2/4) echo 'cuda: lost after linear/f32'; echo 'cuda: part 1: 2 cases passed'; exit 101 ;;
                2/4linear/f32) echo 'cuda: part 1: 5 cases passed' ;;
                # One that ends in the middle of a case.
                3/4) printf 'case embed: '; kill -9 $$ ;;
                3/4embed) echo 'cuda: part 1: 7 cases passed' ;;
            esac ;;
            *) echo 'cuda: part 0: 10 cases passed' ;;
        esac";
        let bench =
            "mkdir -p \"$2\"; echo '{\"a\": 1}' >\"$2/report.json\"; echo \"## bench $*\" >\"$2/report.md\"";
        let folder = stand_ins(&[
            ("test-conformance", suite),
            (
                "test-memory",
                "case $* in *--list*) echo 'm: test' ;; *) echo 'a \"bad\" | one'; exit 101 ;; esac",
            ),
            // A name that no test has: that is no success.
            (
                "test-moe",
                "case $* in *--list*) echo 'm: test' ;; *) echo 'test result: ok. 0 passed; 0 failed' ;; esac",
            ),
            // One that says so where there is one GPU, one that the harness begins the line of, and one that had something to do.
            ("test-peers", "case $* in *--list*) echo 'p: test' ;; *) echo 'skipped: p: one GPU' ;; esac"),
            ("test-cublas", "case $* in *--list*) echo 'c: test' ;; *) echo 'test c ... skipped: c' ;; esac"),
            (
                "test-pieces",
                "case $* in *--list*) echo 'p: test' ;; *) printf 'skipped: p\\ncuda: the same bits\\n' ;; esac",
            ),
            ("ogive-gpu-bench", bench),
            ("ogive", "echo 'Once upon a time'"),
        ]);
        let at = folder.path();
        assert!(script(
            at,
            &["--jobs", "1", "cli", "conformance", "quick", "models", "tests", "again", "bench"]
        ));
        let (text, json, log) = (read(at, "report.md"), read(at, "report.json"), read(at, "log.txt"));
        for row in [
            "| the same text as the CPU | 0 |",
            // Two tests in four parts each, two of which are run twice.
            "| conformance | 2 |",
            "| conformance as opened | 0 |",
            "| golden models | 0 |",
            "| tests | 1 |",
            "| tests of memory | 1 |",
            "| conformance nvrtc_12::part_1 2/4 again, CUDA_LAUNCH_BLOCKING=1 | 101 |",
            "| memory m 0/1 again, OGIVE_CUDA_CODE=ptx | 101 |",
            "| bench quick | 0 |",
            "| bench operators | 0 |",
            "| bench peers | 0 |",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
        // Four parts of ten cases, the two of the other test that end well and say nothing, and what is behind a case.
        assert!(
            text.contains("6 tests passed, 54 cases passed; failed: conformance nvrtc_12::part_1"),
            "{text}"
        );
        assert!(text.contains("3 tests passed, 30 cases passed") && text.contains("failed: moe m"), "{text}");
        assert!(text.contains("; skipped: peers p,cublas c,;") && !text.contains("pieces"), "{text}");
        assert!(text.contains("- commit x") && text.contains("--budget 220 --quick --only models"), "{text}");
        for missing in ["nvrtc_11::part_0", "sm_120", "every_device"] {
            assert!(!log.contains(missing), "{missing}: {log}");
        }
        assert!(log.contains("== conformance nvrtc_12::part_1 3/4, behind embed: begins"), "{log}");
        let failures = read(at, "failures.txt");
        assert!(failures.contains("== conformance nvrtc_12::part_1 3/4: status 137"), "{failures}");
        assert!(failures.contains("a \"bad\" | one"), "{failures}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["parts"][0]["name"], "text");
        assert_eq!(json["bench"].as_array().unwrap().len(), 5, "{json:#}");
        assert!(!script(at, &["nonsense"]));
    }

    /// A folder that was tried can still travel, and models are made where the bench is told of no others.
    #[cfg(unix)]
    #[test]
    fn the_script_writes_no_more_than_is_wanted() {
        let folder = stand_ins(&[(
            "ogive",
            "[ \"$1\" != synth ] || touch \"$RUN_OUT/made\"; echo 'Once upon a time'",
        )]);
        let at = folder.path();
        for (bench, made) in [("--models tiny:q4_k_m", false), ("", true)] {
            assert!(script_with(at, &["--apart", "cli", "quick"], bench));
            let text = read(at, "report.md");
            assert!(
                text.contains("| the same text as the CPU | 0 |") && text.contains("| bench quick | 0 |"),
                "{text}"
            );
            assert_eq!(at.join("out/made").exists(), made);
            assert!(FOLDERS.iter().all(|f| !at.join(f).exists()));
        }
    }

    /// What never ends is ended, and what there is no time for is not begun and is in the report.
    #[cfg(unix)]
    #[test]
    fn the_script_ends_in_time() {
        // By `exec`, so that who ends the program leaves nothing behind.
        let hangs = "case $* in *--list*) echo 'm: test' ;; *) echo waiting; exec sleep 1000 ;; esac";
        let folder = stand_ins(&[("test-int8", hangs), ("ogive-gpu-bench", "exec sleep 1000")]);
        assert!(script(folder.path(), &["--jobs", "40", "--seconds", "12", "tests", "bench"]));
        let text = read(folder.path(), "report.md");
        assert!(text.contains("failed: int8 m"), "{text}");
        assert!(text.contains("| bench operators | not run | 0 | no time was left |"), "{text}");
        assert!(text.contains("no time was left for: memory a::b"), "{text}");
        assert!(read(folder.path(), "failures.txt").contains("waiting"));
    }

    /// Where no GPU can be used nothing is run, and the report says why.
    #[cfg(unix)]
    #[test]
    fn the_script_says_why_there_is_no_gpu() {
        let lines = "cat <<'END'\ncpu      a \"CPU\"\ncuda:0   not available: libcuda.so.1 not found\nCUDA driver: x; install y\nEND";
        let folder = stand_ins(&[("ogive", lines)]);
        assert!(!script(folder.path(), &["devices", "conformance", "bench"]));
        let at = folder.path();
        let (text, json, log) = (read(at, "report.md"), read(at, "report.json"), read(at, "log.txt"));
        assert!(text.contains("**No GPU can be used here: libcuda.so.1 not found**"), "{text}");
        assert!(text.contains("CUDA driver: x; install y"), "{text}");
        assert!(text.contains("| ogive devices | 0 |") && text.contains("| bench | not run | 0 |"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let bench = json["parts"].as_array().unwrap().iter().find(|part| part["name"] == "bench").unwrap();
        assert!(bench["status"].is_null(), "{json:#}");
        assert!(log.contains("install y") && !log.contains("test-conformance"), "{log}");
    }
}
