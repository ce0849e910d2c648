//! A conversation at a terminal, which `script` of util-linux makes: what becomes of it when the terminal is closed or a signal comes.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod common;

use common::{is_nothing, ogive_reads};
use std::fs::File;
use std::io::{BufRead, BufReader, Bytes, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What the line editor sends to the terminal whenever it begins to read a line.
const READS: &[u8] = b"\x1b[?2004h";
/// And when it has read one.
const LEAVES: &[u8] = b"\x1b[?2004l";

/// What makes an answer that does not end by itself.
const LONG: &str = "--ignore-eos -c 20000";

struct Terminal {
    script: Child,
    keys: ChildStdin,
    shown: Bytes<BufReader<ChildStdout>>,
    /// The program's stderr: a pipe with a name, of which the program's end is the end.
    said: BufReader<File>,
    program: String,
}

impl Terminal {
    /// `ogive chat` with these arguments; `None`, and a line that says so, where there is no `script`.
    fn open(folder: &Path, arguments: &str) -> Option<Self> {
        let pipe = folder.join("said");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let program = env!("CARGO_BIN_EXE_ogive");
        let line = format!("exec 2>{}; echo $$ >&2; exec {program} chat {arguments}", pipe.display());
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).env("SHELL", "/bin/sh").env("TERM", "xterm");
        script.env("OGIVE_MODEL", "ogive:demo").env("OGIVE_HISTORY", "").env_remove("OGIVE_LOG");
        let Ok(mut script) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            eprintln!("skipped: there is no `script`");
            return None;
        };
        let mut said = BufReader::new(File::open(&pipe).unwrap());
        std::fs::remove_file(pipe).unwrap();
        let mut program = String::new();
        said.read_line(&mut program).unwrap();
        let keys = script.stdin.take().unwrap();
        let shown = BufReader::new(script.stdout.take().unwrap()).bytes();
        Some(Self { script, keys, shown, said, program: program.trim().to_owned() })
    }

    /// The same with a conversation that is kept, whose first message is written.
    fn keeping(folder: &Path, arguments: &str) -> Option<(Self, PathBuf)> {
        let kept = folder.join("kept");
        let mut terminal = Self::open(folder, &format!("--temp 0 {arguments} --session {}", kept.display()))?;
        terminal.write("Hello");
        Some((terminal, kept))
    }

    /// Waits until this is shown.
    fn until(&mut self, what: &[u8]) {
        let mut last = Vec::new();
        while !last.ends_with(what) {
            last.push(self.shown.next().expect("the program goes on").unwrap());
        }
    }

    /// A line with Enter, once the editor reads.
    fn write(&mut self, line: &str) {
        self.until(READS);
        self.keys.write_all(line.as_bytes()).unwrap();
        self.keys.write_all(b"\r").unwrap();
    }

    /// Waits until some of an answer is shown.
    fn answers(&mut self) {
        self.until(LEAVES);
        assert_eq!(self.shown.by_ref().take(20).count(), 20);
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.program]).status().unwrap().success());
    }

    /// Waits for the program's end; gives what it said, and its exit code as a shell has it.
    fn end(mut self) -> (String, Option<i32>) {
        let shown = std::thread::spawn(move || self.shown.for_each(drop));
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        drop(self.keys);
        let code = self.script.wait().unwrap().code();
        shown.join().unwrap();
        (said, code)
    }
}

/// How many messages a conversation has, as the program tells it.
fn has_messages(kept: &Path, count: usize) -> bool {
    let ran = ogive_reads(args!["chat", "--model", ogive::DEMO, "--session", kept], b"");
    ran.text();
    ran.stderr.contains(&format!("{count} messages, "))
}

#[test]
fn a_signal_at_the_prompt_keeps_what_was_said_and_kills() {
    for (signal, number) in [("-TERM", 15), ("-HUP", 1), ("-INT", 2)] {
        if is_nothing(number) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let Some((mut terminal, kept)) = Terminal::keeping(folder.path(), "-n 5") else { return };
        terminal.until(READS);
        terminal.signal(signal);
        let (said, code) = terminal.end();
        assert_eq!(code, Some(128 + number), "{said}");
        assert!(!said.contains("error"), "{said}");
        assert!(has_messages(&kept, 2), "{signal}: {said}");
    }
}

#[test]
fn a_terminal_that_is_closed_loses_nothing() {
    if is_nothing(1) {
        return;
    }
    for begun in ["", "What is the cap"] {
        let folder = tempfile::tempdir().unwrap();
        let Some((mut terminal, kept)) = Terminal::keeping(folder.path(), "-n 5") else { return };
        terminal.until(READS);
        terminal.keys.write_all(begun.as_bytes()).unwrap();
        terminal.script.kill().unwrap();
        let (said, _) = terminal.end();
        assert!(has_messages(&kept, 2), "{said}");
    }
}

#[test]
fn a_signal_in_an_answer_at_a_terminal_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut terminal, kept)) = Terminal::keeping(folder.path(), LONG) else { return };
    terminal.answers();
    terminal.signal("-TERM");
    let (said, code) = terminal.end();
    assert_eq!(code, Some(128 + 15), "{said}");
    assert!(has_messages(&kept, 2), "{said}");
}

/// Ctrl-C stops the answer, and twice at the prompt leaves.
#[test]
fn keys_stop_an_answer_and_leave() {
    if is_nothing(2) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some((mut terminal, kept)) = Terminal::keeping(folder.path(), LONG) else { return };
    terminal.answers();
    terminal.keys.write_all(b"\x03").unwrap();
    for _ in 0..2 {
        terminal.until(READS);
        terminal.keys.write_all(b"\x03").unwrap();
    }
    let (said, code) = terminal.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("(stopped)") && said.contains("Ctrl-C once more leaves"), "{said}");
    assert!(has_messages(&kept, 2), "{said}");
}
