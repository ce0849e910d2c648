//! Calls that are JSON objects, one or a list, as they come.

use super::scan::{Scanner, Seen};
use super::{Around, OpenCall, Outcome, Told};
use crate::tools::{Keys, json};

/// Objects that may be calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::tools) struct Objects {
    /// What was looked at of the text.
    at: usize,
    /// Their JSON, once it has begun.
    scanner: Option<Scanner>,
    /// Where the quote is that opened last.
    quote: usize,
    /// The one that is read.
    object: Option<Object>,
    /// Whether its member that is read is its arguments.
    due: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    /// Brackets around its members, and around those of what it may be in: `{"function": {…}}`.
    depth: usize,
    outer: usize,
    from: usize,
    /// The member that is read.
    key: String,
    name: Option<String>,
    /// Whether that was told.
    named: bool,
    /// Where its arguments begin, if they are an object, and end, and how far they were told.
    arguments: Option<usize>,
    end: Option<usize>,
    told: usize,
}

impl Objects {
    pub(super) fn read(
        &mut self,
        around: &Around<'_>,
        keys: &Keys,
        text: &str,
        out: &mut Vec<Told>,
    ) -> Outcome {
        if self.scanner.is_none() {
            let rest = text.trim_start_matches([',', ';', ' ', '\n']);
            let Some(rest) = around.syntax.behind_marks(rest) else { return Outcome::More };
            if !rest.starts_with(['{', '[']) {
                return Outcome::No;
            }
            self.at = text.len() - rest.len();
        }
        let mut scanner = self.scanner.take().unwrap_or_default();
        for (at, byte) in (self.at..).zip(text[self.at..].bytes()) {
            let seen = scanner.push(byte).filter(|seen| self.see(keys, &scanner, *seen, at, text, out));
            if seen.is_none() {
                return Outcome::No;
            }
            if scanner.depth() == 0 {
                return around.whole(&text[..=at]);
            }
        }
        (self.at, self.scanner) = (text.len(), Some(scanner));
        self.tell(text, out);
        Outcome::More
    }

    /// Hears what a byte was. False if what ended with it is no call.
    fn see(
        &mut self,
        keys: &Keys,
        scanner: &Scanner,
        seen: Seen,
        at: usize,
        text: &str,
        out: &mut Vec<Told>,
    ) -> bool {
        let depth = scanner.depth();
        if seen != Seen::Within {
            self.due = false;
        }
        let quoted = || json::value(&text[self.quote..=at])?.0.as_str().map(str::to_owned);
        match (&mut self.object, seen) {
            (_, Seen::Quote) => self.quote = at,
            (None, Seen::Object) if scanner.is_listed() => {
                let (key, name, named, arguments, end, told) = Default::default();
                let (outer, from) = (depth, at);
                self.object = Some(Object { depth, outer, from, key, name, named, arguments, end, told });
            }
            (Some(object), Seen::Object) if depth == object.depth + 1 => {
                if object.key == "function" && object.name.is_none() && object.depth == object.outer {
                    object.depth = depth;
                } else if keys.name.is_none() || keys.is_arguments(&object.key) {
                    object.arguments = object.arguments.or(Some(at));
                }
            }
            (Some(object), Seen::Key) if depth == object.depth => {
                object.key = quoted().unwrap_or_default();
                self.due = keys.is_arguments(&object.key) || keys.name.is_none() && object.key != "function";
                if keys.name.is_none() && object.key != "function" {
                    object.name = object.name.take().or_else(|| Some(object.key.clone()));
                }
            }
            (Some(object), Seen::Text)
                if depth == object.depth && keys.name.as_ref() == Some(&object.key) =>
            {
                object.name = quoted();
            }
            (Some(object), Seen::Close) if depth == object.depth => {
                object.end = object.end.or(object.arguments.map(|_| at + 1));
            }
            (Some(object), Seen::Close) if depth < object.outer => {
                let from = object.from;
                self.tell(&text[..=at], out);
                self.object = None;
                let mut calls = Vec::new();
                let value = json::value(&text[from..=at]);
                if value.and_then(|(value, _)| keys.calls(&value, &mut calls)).is_none() {
                    return false;
                }
                out.extend(calls.into_iter().map(Told::Ends));
            }
            _ => {}
        }
        true
    }

    /// Tells the name and what came of the arguments.
    fn tell(&mut self, text: &str, out: &mut Vec<Told>) {
        let Some(Object { name: Some(name), named, arguments, end, told, .. }) = &mut self.object else {
            return;
        };
        if !std::mem::replace(named, true) {
            out.push(Told::Begins(name.clone()));
        }
        let Some(from) = arguments.map(|from| from.max(*told)) else { return };
        let to = end.unwrap_or(text.len());
        if from < to {
            *told = to;
            out.push(Told::Json(text[from..to].to_owned()));
        }
    }

    pub(super) fn may_leave_out(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.arguments.is_none())
    }

    pub(super) fn closes(&self, more: &str) -> bool {
        let (Some(object), Some(mut scanner)) = (&self.object, self.scanner.clone()) else { return false };
        let mut seen = more.bytes().map_while(|byte| Some((scanner.push(byte)?, scanner.depth())));
        seen.any(|(seen, depth)| seen == Seen::Close && depth < object.outer)
    }

    pub(super) fn open(&self) -> Option<OpenCall<'_>> {
        let object = self.object.as_ref()?;
        let due = || (self.due && self.scanner.as_ref()?.is_before_value()).then_some(self.at);
        let closes = 1 + object.depth - object.outer;
        Some(OpenCall { name: object.name.as_deref()?, at: object.arguments.or_else(due)?, closes })
    }
}
