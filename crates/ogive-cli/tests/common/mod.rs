//! Runs the built program, and finds the shared test data.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A file of the shared test data; `None`, and a line that says so, where they are missing.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("OGIVE_SHARED").map_or(beside, PathBuf::from);
    if root.is_dir() {
        return Some(root.join(name));
    }
    eprintln!("skipped: shared test data not found");
    None
}

/// JSON of the shared test data.
pub(crate) fn shared_json(name: &str) -> Option<serde_json::Value> {
    let bytes = std::fs::read(shared(name)?).unwrap();
    Some(serde_json::from_slice(&bytes).unwrap())
}

/// The program, apart from the user's environment.
pub(crate) fn command() -> Command {
    apart(Command::new(env!("CARGO_BIN_EXE_ogive")))
}

/// The same, where no file grows beyond so many blocks of 512 bytes. Without the trap a signal would end the program.
pub(crate) fn limited(blocks: u32) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_ogive")]);
    apart(shell)
}

fn apart(mut command: Command) -> Command {
    command
        .env_remove("OGIVE_MODEL")
        .env_remove("OGIVE_LOG")
        .env_remove("OGIVE_API_KEY")
        .env("OGIVE_HISTORY", "");
    command
}

/// Whether a signal is nothing to what is started from here, as a hangup is under `nohup`; then a line says that it is not tested.
#[cfg(unix)]
pub(crate) fn is_nothing(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored =
        mask.is_some_and(|mask| (u128::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1)) & 1 == 1);
    if ignored {
        eprintln!("skipped: signal {signal} is ignored here");
    }
    ignored
}

/// What a run of the program came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{stderr}");
        Self { code: output.status.code(), stdout: output.stdout, stderr }
    }

    /// The text of a run that went well.
    pub(crate) fn text(&self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// The JSON of a run that went well.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text()).unwrap()
    }

    /// The message of a run that went wrong in the right way: the exit code, one line `error: ...`, and no text.
    pub(crate) fn error(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(String::from_utf8_lossy(&self.stdout), "");
        let mut lines = self.stderr.lines().filter_map(|l| l.strip_prefix("error: "));
        let line = lines.next().unwrap_or_else(|| panic!("no error line in {:?}", self.stderr));
        assert_eq!(lines.next(), None, "{}", self.stderr);
        line
    }
}

/// Runs the program with nothing to read.
pub(crate) fn ogive<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    Ran::of(command().args(args).stdin(Stdio::null()).output().unwrap())
}

/// Runs the program on an input.
pub(crate) fn ogive_reads<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, input: &[u8]) -> Ran {
    reads(command().args(args), input)
}

/// Runs any command on an input.
pub(crate) fn reads(command: &mut Command, input: &[u8]) -> Ran {
    let pipe = Stdio::piped;
    let mut child = command.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    // A program that reads no input at all closes the pipe: no failure of the test.
    let writer = std::thread::spawn(move || stdin.write_all(&input).ok());
    let ran = Ran::of(child.wait_with_output().unwrap());
    writer.join().unwrap();
    ran
}

/// Arguments, paths among them.
#[macro_export]
macro_rules! args {
    ($($arg:expr),* $(,)?) => { vec![$(std::ffi::OsStr::new(&$arg).to_owned()),*] };
}
