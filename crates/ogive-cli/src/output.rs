//! Where words go: text to stdout, everything else to stderr.
//!
//! Not by `print!`, which panics when nobody reads: a closed stdout ends the program quietly, a full disk is an error,
//! and a closed stderr is nothing to fail for.

use crate::error::{Doing, Error, Result};
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// A line on stderr.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes to stdout, at once.
pub(crate) fn write(bytes: &[u8]) -> Result<()> {
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
