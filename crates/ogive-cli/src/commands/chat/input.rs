//! Where messages come from: a line editor, or the lines of stdin.
//!
//! Whoever talks and saves does not wait for the keys itself: it could not be told then that the terminal is closed, and the thread that
//! hears of that could not save what another holds.
//!
//! The editor does not say whether Ctrl-C met an empty line. It asks for a hint at every change of the line, so the
//! hinter, which has none to give, remembers.

use super::{history, slash};
use crate::args::Context;
use crate::error::{Doing, Result};
use crate::interrupt::Interrupt;
use crate::{files, output};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Behavior, Config, Editor, Helper};
use std::cell::Cell;
use std::fs;
use std::io::{self, BufRead, ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

const PROMPT: &str = "> ";
const MORE: &str = "… ";

/// How often it is looked whether a signal came while no line does.
const LOOK: Duration = Duration::from_millis(50);

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A message or a command, without its line break; lines that ended with a backslash are one.
    Text(String),
    /// The key Ctrl-C, on an empty line or on one that was begun.
    CtrlC { empty: bool },
    /// SIGINT, which no key sends where the editor reads, or a signal to end.
    Signal,
    /// A line of a terminal that is no text, and why.
    Refused(&'static str),
    /// Nothing more will come.
    End,
}

/// Reads messages, each when it is asked for. A thread waits for them: where none comes, nothing else would hear a signal.
pub(super) struct Reader {
    ask: Sender<()>,
    heard: Receiver<Result<Input>>,
    /// Whether one was asked for and has not come.
    asked: bool,
    interactive: bool,
    interrupt: Interrupt,
}

impl Reader {
    /// A line editor if stdin is a terminal.
    pub(super) fn new(context: &Context) -> Result<Self> {
        let interactive = io::stdin().is_terminal();
        let ((ask, asked), (tell, heard)) = (channel(), channel());
        let own = context.clone();
        let read = move || {
            // An editor stays where it was made.
            let source = if interactive { Source::editor(&own) } else { Ok(Source::Stdin { lines: 0 }) };
            let mut source = match source {
                Ok(source) => source,
                Err(e) => return drop(tell.send(Err(e))),
            };
            // Until nobody wants to know any more.
            while asked.recv().is_ok() && tell.send(source.next()).is_ok() {}
        };
        thread::Builder::new().name("stdin".into()).spawn(read).doing("starting to read messages")?;
        Ok(Self { ask, heard, asked: false, interactive, interrupt: context.interrupt.clone() })
    }

    /// Whether somebody sits there.
    pub(super) fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// The next message, command or key.
    pub(super) fn next(&mut self) -> Result<Input> {
        let patience = self.interrupt.patience();
        if !self.asked {
            // Where the thread has ended, it has said why.
            let _ = self.ask.send(());
            self.asked = true;
        }
        loop {
            if patience.over() {
                return Ok(Input::Signal);
            }
            match self.heard.recv_timeout(LOOK) {
                Ok(input) => {
                    self.asked = false;
                    return input;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Input::End),
            }
        }
    }
}

/// Where messages come from.
enum Source {
    Editor(Box<Editor<Line, DefaultHistory>>, Option<PathBuf>),
    /// So many lines have come.
    Stdin {
        lines: u64,
    },
}

impl Source {
    fn editor(context: &Context) -> Result<Self> {
        // Where stdout is somebody else's, what the editor draws must not get there.
        let behavior = if output::is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder().behavior(behavior).max_history_size(1000);
        let config = config.map_err(io::Error::other).doing("setting the line editor up")?.build();
        let mut editor =
            Editor::with_config(config).map_err(io::Error::other).doing("starting the line editor")?;
        editor.set_helper(Some(Line::default()));
        let path = history::path();
        if let Some(path) = &path {
            if let Err(e) = path.parent().map_or(Ok(()), fs::create_dir_all) {
                context.note(format_args!("no history is kept: {}: {e}", path.display()));
            }
            // There is none the first time.
            let _ = editor.load_history(path);
        }
        Ok(Self::Editor(Box::new(editor), path))
    }

    /// The next message, command or key.
    fn next(&mut self) -> Result<Input> {
        let mut text = String::new();
        loop {
            let line = match self.line(if text.is_empty() { PROMPT } else { MORE })? {
                Input::Text(line) => line,
                Input::End if !text.is_empty() => break,
                Input::CtrlC { .. } if !text.is_empty() => return Ok(Input::CtrlC { empty: false }),
                other => return Ok(other),
            };
            match line.strip_suffix('\\') {
                Some(line) => {
                    text.push_str(line);
                    text.push('\n');
                }
                None => {
                    text.push_str(&line);
                    break;
                }
            }
        }
        self.remember(&text);
        Ok(Input::Text(text))
    }

    fn line(&mut self, prompt: &str) -> Result<Input> {
        let editor = match self {
            Self::Editor(editor, _) => editor,
            Self::Stdin { lines } => return plain_line(lines),
        };
        if let Some(line) = editor.helper() {
            line.empty.set(true);
        }
        match editor.readline(prompt) {
            Ok(line) => Ok(Input::Text(line)),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(ReadlineError::Interrupted) => {
                Ok(Input::CtrlC { empty: editor.helper().is_none_or(|l| l.empty.get()) })
            }
            // What the terminal has sent of the line beside it is gone with it.
            Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                Ok(Input::Refused("reading a message: it is no UTF-8; write it again"))
            }
            Err(e) => Err(io::Error::other(e)).doing("reading a message"),
        }
    }

    /// Appended at once, so that two conversations at a time do not overwrite each other's.
    fn remember(&mut self, text: &str) {
        let Self::Editor(editor, path) = self else { return };
        if text.trim().is_empty() || !editor.add_history_entry(text).unwrap_or(false) {
            return;
        }
        if let Some(path) = path {
            // A history that cannot be kept is no reason to stop a conversation.
            let _ = editor.append_history(path);
        }
    }
}

/// The next line of stdin, after so many.
fn plain_line(count: &mut u64) -> Result<Input> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_until(b'\n', &mut bytes).doing("reading stdin")?;
    if bytes.is_empty() {
        return Ok(Input::End);
    }
    *count += 1;
    let text = files::text(bytes, format_args!("reading line {count} of stdin"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Input::Text(text.strip_suffix('\r').unwrap_or(text).into()))
}

/// Remembers whether the line is empty, and completes commands.
#[derive(Debug)]
pub(super) struct Line {
    empty: Cell<bool>,
}

impl Default for Line {
    fn default() -> Self {
        Self { empty: Cell::new(true) }
    }
}

impl Hinter for Line {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &rustyline::Context<'_>) -> Option<String> {
        self.empty.set(line.is_empty());
        None
    }
}

impl Completer for Line {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let begun = line.get(..at).filter(|l| l.starts_with('/')).unwrap_or("\n");
        Ok((0, slash::NAMES.iter().filter(|n| n.starts_with(begun)).map(ToString::to_string).collect()))
    }
}

impl Highlighter for Line {}
impl Validator for Line {}
impl Helper for Line {}
