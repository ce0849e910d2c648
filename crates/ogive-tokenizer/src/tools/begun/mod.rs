//! Calls that have begun: their names and arguments before they are whole.
//!
//! What is told here is a guess that nothing contradicts so far. Whether it is a call says [`CallSyntax::next`] alone, which is asked when the
//! call seems to be whole: so there is one reader of calls, and not two that have to agree.

mod objects;
mod parameters;
mod scan;

use super::literal::{Extent, Stop};
use super::read::MAX_BETWEEN;
use super::{CallSyntax, Dialect, Form, Tool, ToolCall, in_name, name};
use objects::Objects;
use parameters::Parameters;
use scan::Scanner;

/// What is told of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// One of this name begins.
    Begins(String),
    /// More of its arguments' JSON.
    Json(String),
    Ends(ToolCall),
}

/// What came of more text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It depends on what comes.
    More,
    /// There is no call.
    No,
    /// These are calls, and the text goes on there.
    Done(Vec<ToolCall>, usize),
}

/// A call that has begun, and where its arguments stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenCall<'a> {
    /// The function's name.
    pub name: &'a str,
    /// The byte of the answer's [text](super::CallStream::text) at which the arguments' JSON begins: the text's end, where that has to
    /// come next.
    pub at: usize,
    /// How many brackets of the call's own close behind the arguments, with a few short members before the first of them perhaps, such as
    /// an id. Up to there it is open.
    pub closes: usize,
}

/// What is around a call that is read.
pub(super) struct Around<'a> {
    pub(super) syntax: &'a CallSyntax,
    pub(super) form: &'a Form,
    pub(super) tools: &'a [Tool],
    /// Whether no more text will come.
    pub(super) last: bool,
}

impl Around<'_> {
    /// Reads what seems to be whole.
    fn whole(&self, text: &str) -> Outcome {
        match self.syntax.next(self.form, text, self.tools) {
            Some((calls, rest)) => Outcome::Done(calls, text.len() - rest.len()),
            None => Outcome::No,
        }
    }

    /// What it is to have no more than marks, or their beginning.
    fn unopened(&self, text: &str, open: &str) -> Outcome {
        if self.syntax.may_open(text, open) { Outcome::More } else { Outcome::No }
    }
}

/// The name that a text begins with, once it has ended, and what follows it.
fn whole_name(text: &str) -> Result<(&str, &str), Outcome> {
    match name(text) {
        Some((name, rest)) if !rest.is_empty() => Ok((name, rest)),
        _ if text.chars().all(in_name) => Err(Outcome::More),
        _ => Err(Outcome::No),
    }
}

/// A call that is read, or a list of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Begun {
    Objects(Objects),
    Named(Named),
    Parameters(Parameters),
    Literal(Literal),
}

impl Begun {
    pub(super) fn new(form: &Form) -> Self {
        match form {
            Form::Json(_) => Self::Objects(Objects::default()),
            Form::Named { .. } => Self::Named(Named::default()),
            Form::Tagged(_) => Self::Parameters(Parameters::default()),
            Form::Literal { .. } => Self::Literal(Literal::default()),
        }
    }

    /// Takes more of a text, which begins where calls may and grows from one time to the next.
    pub(super) fn read(&mut self, around: &Around<'_>, text: &str, out: &mut Vec<Told>) -> Outcome {
        let read = match (self, around.form) {
            (Self::Objects(objects), Form::Json(keys)) => objects.read(around, keys, text, out),
            (Self::Named(named), Form::Named { open, before, .. }) => {
                named.read(around, open, before, text, out)
            }
            (Self::Parameters(parameters), Form::Tagged(tags)) => parameters.read(around, tags, text, out),
            (Self::Literal(literal), Form::Literal { open, dialect }) => {
                literal.read(around, open, *dialect, text, out)
            }
            _ => Outcome::No,
        };
        // Where nothing more comes, what needs no end is whole.
        if around.last && read == Outcome::More { around.whole(text) } else { read }
    }

    /// Whether it is an object that has no arguments yet.
    pub(super) fn may_leave_out(&self) -> bool {
        matches!(self, Self::Objects(objects) if objects.may_leave_out())
    }

    /// Whether more text may end an object that is a call.
    pub(super) fn closes(&self, more: &str) -> bool {
        matches!(self, Self::Objects(objects) if objects.closes(more))
    }

    /// The call that is open, where its arguments are JSON and are to come, or do.
    pub(super) fn open(&self) -> Option<OpenCall<'_>> {
        match self {
            Self::Objects(objects) => objects.open(),
            Self::Named(named) => {
                let (name, at) = named.call.as_ref()?;
                Some(OpenCall { name, at: *at, closes: 0 })
            }
            _ => None,
        }
    }
}

/// A name, then an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// The name, and where the object begins, or has to.
    call: Option<(String, usize)>,
    scanner: Option<Scanner>,
    at: usize,
}

impl Named {
    fn read(
        &mut self,
        around: &Around<'_>,
        open: &str,
        before: &str,
        text: &str,
        out: &mut Vec<Told>,
    ) -> Outcome {
        if self.scanner.is_none() {
            let Some(behind) = around.syntax.opened(text, open) else { return around.unopened(text, open) };
            let (name, rest) = match whole_name(behind) {
                Ok(named) => named,
                Err(outcome) => return outcome,
            };
            let Some((between, _)) = rest.split_once('{').filter(|(between, _)| between.len() <= MAX_BETWEEN)
            else {
                let due = !before.is_empty() && rest.trim_end().ends_with(before);
                self.call = due.then(|| (name.to_owned(), text.len()));
                return if rest.len() > MAX_BETWEEN { Outcome::No } else { Outcome::More };
            };
            self.at = text.len() - rest.len() + between.len();
            self.scanner = Some(Scanner::default());
            self.call = Some((name.to_owned(), self.at));
            out.push(Told::Begins(name.to_owned()));
        }
        let Some(scanner) = &mut self.scanner else { return Outcome::No };
        let from = std::mem::replace(&mut self.at, text.len());
        for (at, byte) in (from..).zip(text[from..].bytes()) {
            if scanner.push(byte).is_none() {
                return Outcome::No;
            }
            if scanner.depth() == 0 {
                out.push(Told::Json(text[from..=at].to_owned()));
                return around.whole(&text[..=at]);
            }
        }
        if from < text.len() {
            out.push(Told::Json(text[from..].to_owned()));
        }
        Outcome::More
    }
}

/// A call as a language has it. Its arguments are told when it is whole: what is within one cannot be told from what ends it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Literal {
    named: bool,
    /// How far its brackets have come, and whether it is whole.
    extent: Extent,
    whole: bool,
    /// At how many bytes it is looked at for what is wrong with it: at twice as many each time, so that is no more work than reading it.
    due: usize,
}

impl Literal {
    fn read(
        &mut self,
        around: &Around<'_>,
        open: &str,
        dialect: Dialect,
        text: &str,
        out: &mut Vec<Told>,
    ) -> Outcome {
        // Those of a list are parted by commas.
        let listed = || text.trim_start().strip_prefix(',').map(str::trim_start);
        let Some(behind) = around.syntax.opened(text, open).or_else(listed) else {
            return around.unopened(text, open);
        };
        let (name, rest) = match whole_name(behind) {
            Ok(named) => named,
            Err(outcome) => return outcome,
        };
        let (first, _) = dialect.brackets();
        if !rest.starts_with(first) {
            return Outcome::No;
        }
        if !std::mem::replace(&mut self.named, true) {
            out.push(Told::Begins(name.to_owned()));
        }
        self.whole = self.whole || self.extent.is_closed(dialect, rest);
        if !self.whole && rest.len() < self.due {
            return Outcome::More;
        }
        self.due = 2 * rest.len();
        let rest = match dialect.try_call(behind) {
            Ok((_, rest)) => rest,
            Err(Stop::End) => return Outcome::More,
            Err(Stop::Wrong) => return Outcome::No,
        };
        // The last bracket of a list belongs to it.
        let waits = rest.trim_start().is_empty() && open.trim_end().ends_with('[');
        if waits && !around.last { Outcome::More } else { around.whole(text) }
    }
}
