//! Where words go: text to stdout, everything else to stderr, thoughts too.
//!
//! Not by `print!`, which panics when nobody reads: a closed stdout ends the program quietly, a full disk is an error,
//! and a closed stderr is nothing to fail for.

use crate::error::{Doing, Error, Result};
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the last word was text on stdout that ended no line.
static MID_LINE: AtomicBool = AtomicBool::new(false);

/// Whether the last word was a thought.
static THINKS: AtomicBool = AtomicBool::new(false);

/// A piece of what a model thinks, dim on a terminal. Whatever comes next begins a line.
pub(crate) fn thought(piece: &str) {
    if piece.is_empty() {
        return;
    }
    THINKS.store(true, Relaxed);
    let mut out = io::stderr().lock();
    let [dim, plain] = if out.is_terminal() { ["\x1b[2m", "\x1b[0m"] } else { [""; 2] };
    let _ = write!(out, "{dim}{piece}{plain}");
}

fn end_thought() {
    if THINKS.swap(false, Relaxed) {
        let _ = writeln!(io::stderr().lock());
    }
}

/// A line on stderr.
pub(crate) fn note(text: impl Display) {
    end_thought();
    MID_LINE.store(false, Relaxed);
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// An error, in a line of its own also where stdout and stderr are one and text broke off. Who reads stdout alone gets the text as it was
/// written, so that line is ended on stderr, but for a terminal.
pub(crate) fn error(why: &str) {
    end_thought();
    if MID_LINE.load(Relaxed) && !(is_terminal() && write(b"\n").is_ok()) {
        note("");
    }
    note(format_args!("error: {why}"));
}

/// Writes to stdout, at once.
pub(crate) fn write(bytes: &[u8]) -> Result<()> {
    end_thought();
    if let Some(last) = bytes.last() {
        MID_LINE.store(*last != b'\n', Relaxed);
    }
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Error::ClosedPipe),
        other => other.doing("writing to stdout"),
    }
}

/// Writes a line to stdout.
pub(crate) fn line(text: impl Display) -> Result<()> {
    write(format!("{text}\n").as_bytes())
}

/// Whether stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}
