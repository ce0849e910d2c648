//! Tests under the emulator: a test runs itself again, alone, in a process with the emulator in place of the driver.
//!
//! A process of its own for each case, and not one for the whole test program: settings are read once, a device that failed stays
//! failed, and what leaks is found when a process ends. It needs nothing of the harness but `--exact`, so `cargo test` and
//! nextest both work, with or without `cargo xtask emu` around them.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Error, Launcher};

pub mod faults;

/// Set to anything but `0`, or `CI` set: a test that cannot run under the emulator fails and does not just say so.
pub const REQUIRED: &str = "PTX_EMU_REQUIRED";
/// Tells the process that runs one case which one.
const CASE: &str = "PTX_EMU_TEST_CASE";
/// How the emulator begins a line about memory that was never freed.
const LEAK: &str = "ptx-emulator: leak";
/// How it begins the line of its counts.
const COUNTS: &str = "ptx-emulator: Counts {";

/// What became of one case.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether the test passed and its process ended well.
    pub passed: bool,
    /// How the process ended.
    pub ending: String,
    /// What it printed to standard output.
    pub stdout: String,
    /// What it and the emulator printed to standard error.
    pub stderr: String,
}

impl Report {
    /// The report if the case passed and the emulator found no memory that was never freed.
    ///
    /// # Panics
    /// If it did not, or memory leaked, with everything it printed.
    #[track_caller]
    pub fn ok(self) -> Self {
        let report = self.ok_but_for_leaks();
        let leaks: Vec<&str> = report.leaks().collect();
        assert!(
            leaks.is_empty(),
            "{}\n{}\n--- stdout\n{}\n--- stderr\n{}",
            report.ending,
            leaks.join("\n"),
            report.stdout,
            report.stderr
        );
        report
    }

    /// The report if the case passed, whatever memory it left behind: for a case whose device is lost, as no call frees anything then.
    ///
    /// # Panics
    /// If it did not, with everything it printed.
    #[track_caller]
    pub fn ok_but_for_leaks(self) -> Self {
        assert!(self.passed, "{}\n--- stdout\n{}\n--- stderr\n{}", self.ending, self.stdout, self.stderr);
        self
    }

    /// What the emulator says of memory that was never freed, a line for each allocation. Nothing without `PTX_EMU_CHECK`, which finds it.
    pub fn leaks(&self) -> impl Iterator<Item = &str> {
        self.stderr.lines().filter(|line| line.contains(LEAK))
    }

    /// How many calls of these kinds the emulator counted; with `PTX_EMU_STATS`.
    ///
    /// # Panics
    /// Where it counted none of a kind of that name, or nothing at all.
    #[must_use]
    pub fn counted(&self, kinds: &[&str]) -> u64 {
        let line = self.stderr.lines().find_map(|line| line.split_once(COUNTS));
        let counts = line.unwrap_or_else(|| panic!("no counts; is PTX_EMU_STATS set?\n{}", self.stderr)).1;
        let count = |kind: &&str| {
            let mut values = counts.split([',', '}']).filter_map(|field| field.trim().split_once(": "));
            let value = values.find(|(name, _)| name == kind).and_then(|(_, n)| n.parse::<u64>().ok());
            value.unwrap_or_else(|| panic!("no count of {kind}: {counts}"))
        };
        kinds.iter().map(count).sum()
    }

    /// What stands after `key: ` on lines that begin so.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        // The harness begins the first line with the test's name.
        let own = |line: &'a str| {
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")).map_or(line, |(_, own)| own)
        };
        self.stdout.lines().map(own).filter_map(move |line| line.strip_prefix(key)?.strip_prefix(": "))
    }
}

/// In the process of a case: which one. `None` in the test program itself.
#[must_use]
pub fn case() -> Option<String> {
    std::env::var(CASE).ok()
}

/// The name under which the harness knows a test, from a function declared inside it; see [`test_name`](crate::test_name).
#[must_use]
pub fn name_of<F>(_: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    let path = path.split_once("::").map_or(path, |(_, rest)| rest);
    path.split("::{{closure}}").next().unwrap_or(path).trim_end_matches("::__here")
}

/// The name of the test function this stands in.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn __here() {}
        $crate::test::name_of(&__here)
    }};
}

/// Runs `name`, a test of this very program, again as `case` under the emulator. `None`, after saying why, where what it needs
/// cannot be had or the emulator was not built, and nothing requires it.
///
/// # Panics
/// Where the emulator cannot be set up although it is required.
#[track_caller]
#[must_use]
pub fn run(name: &str, case: &str, launcher: &Launcher) -> Option<Report> {
    unless_excused(name, start(name, case, launcher))
}

/// The command that runs `program`, which is not this one, under the emulator; for tests of finished programs. `None`, after
/// saying why, where what it needs cannot be had or the emulator was not built, and nothing requires it.
///
/// # Panics
/// Where the emulator cannot be set up although it is required.
#[track_caller]
#[must_use]
pub fn command(program: &Path, launcher: &Launcher) -> Option<Command> {
    unless_excused(&program.display().to_string(), launcher.command(program, &|_| ()))
}

/// What a test of that name needs of the launcher; `None`, after saying why, where it cannot be had and nothing requires it. For
/// tests that want a compiler or a path and start no process, or start one in their own way.
///
/// # Panics
/// Where it cannot be had although it is required.
#[track_caller]
#[must_use]
pub fn unless_excused<T>(name: &str, outcome: Result<T, Error>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        // What no setting can mend is never required.
        Err(error) if matches!(error, Error::Platform { .. }) || excusable(&error) && !required() => {
            skip(name, &error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[allow(clippy::print_stderr)] // what a test skips, its log should say
fn skip(name: &str, error: &Error) {
    eprintln!("skipped: {name}: {error}");
}

fn excusable(error: &Error) -> bool {
    matches!(error, Error::NoNetwork { .. } | Error::NoPip { .. } | Error::NoLibrary { .. })
}

fn required() -> bool {
    match std::env::var(REQUIRED) {
        Ok(value) => !matches!(value.as_str(), "" | "0"),
        Err(_) => std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false")),
    }
}

fn start(name: &str, case: &str, launcher: &Launcher) -> Result<Report, Error> {
    let exe = std::env::current_exe().map_err(|e| Error::files("finding", "this program".as_ref(), &e))?;
    let mut command = launcher.command(&exe, &|_| ())?;
    command.args(["--exact", name, "--nocapture", "--include-ignored", "--test-threads=1"]).env(CASE, case);
    // Files and not pipes: nothing must be read for the process to go on.
    let folder = std::env::temp_dir();
    let stem = format!("emu-{}-{:?}", std::process::id(), std::thread::current().id());
    let paths = ["out", "err"].map(|end| folder.join(format!("{stem}.{end}")));
    let make = |path| File::create(path).map_err(|e| Error::files("making", path, &e));
    command.stdin(Stdio::null()).stdout(make(&paths[0])?).stderr(make(&paths[1])?);
    let mut child = command.spawn().map_err(|e| Error::files("starting", &exe, &e))?;
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    let (passed, ending) = loop {
        match child.try_wait() {
            Ok(Some(status)) => break (status.success(), format!("{name} as {case:?}: {status}")),
            Ok(None) if began.elapsed() < launcher.patience => std::thread::sleep(pause),
            Ok(None) => {
                child.kill().ok();
                child.wait().ok();
                break (false, format!("{name} as {case:?}: no end after {} s", launcher.patience.as_secs()));
            }
            Err(e) => return Err(Error::files("waiting for", &exe, &e)),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let [stdout, stderr] = paths.map(|path| {
        let bytes = std::fs::read(&path).unwrap_or_default();
        std::fs::remove_file(&path).ok();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    Ok(Report { passed, ending, stdout, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_knows_its_name() {
        assert_eq!(crate::test_name!(), "test::tests::a_test_knows_its_name");
        let inside = || crate::test_name!();
        assert_eq!(inside(), "test::tests::a_test_knows_its_name");
    }

    fn report(stdout: &str, stderr: &str) -> Report {
        Report { passed: true, ending: "a case".into(), stdout: stdout.into(), stderr: stderr.into() }
    }

    #[test]
    fn values_are_found_by_their_key() {
        let report = report("x\ntest a::b ... sum: 1\nsummary: 2\nsum: 3\n", "");
        assert_eq!(report.values("sum").collect::<Vec<_>>(), ["1", "3"]);
    }

    #[test]
    fn calls_are_counted_by_their_kinds() {
        let report = report("", "x\nptx-emulator: Counts { calls: 12, uploads: 3, downloads: 4 }\n");
        assert_eq!(report.counted(&["uploads", "downloads"]), 7);
        let told = std::panic::catch_unwind(|| report.counted(&["launches"])).unwrap_err();
        assert!(told.downcast_ref::<String>().unwrap().starts_with("no count of launches"));
    }

    const LEAKS: &str =
        "ptx-emulator: leak: allocation #7 of 256 bytes on device 0 was never freed\na leak of the program's";

    #[test]
    fn a_case_that_leaks_has_not_passed() {
        let leaks = report("", LEAKS);
        assert_eq!(leaks.leaks().collect::<Vec<_>>(), [LEAKS.lines().next().unwrap()]);
        let told = std::panic::catch_unwind(|| leaks.clone().ok()).unwrap_err();
        let told = told.downcast_ref::<String>().unwrap();
        assert!(told.starts_with("a case\nptx-emulator: leak: allocation #7"), "{told}");
        assert_eq!(leaks.ok_but_for_leaks().stderr, LEAKS);
        assert_eq!(report("", "leak").ok().leaks().count(), 0);
    }

    #[test]
    #[should_panic(expected = "a case")]
    fn a_case_that_failed_has_not_passed() {
        let failed = Report { passed: false, ..report("", LEAKS) };
        failed.ok_but_for_leaks();
    }
}
