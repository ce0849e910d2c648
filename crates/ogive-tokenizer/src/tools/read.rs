//! Reading what a model has said.

use super::{CallSyntax, Dialect, Form, Keys, Spoken, Tool, ToolCall, find, json, name};
use serde_json::Value as Json;

/// Marks of an answer that are tried: a model may speak of them.
pub(super) const MAX_MARKS: usize = 64;
/// Bytes between a call's name and its arguments: an id, and marks.
pub(super) const MAX_BETWEEN: usize = 256;

impl CallSyntax {
    /// Tells calls from text. `text` is an answer, with special tokens spelled out; `tools` say which arguments are texts where the syntax
    /// does not, and what may be called without a mark. Ids are counted on from `made`, the calls that the conversation has had, where the
    /// model writes none.
    ///
    /// Models do not always write as their templates do. Spaces between marks may be others, and behind a mark may be JSON or Python.
    #[must_use]
    pub fn read(&self, text: &str, tools: &[Tool], made: usize) -> Spoken {
        match &self.lead {
            Some(lead) => self.read_whole(&lead.whole(text), tools, made),
            None => self.read_whole(text, tools, made),
        }
    }

    /// The same of an answer of which the prompt has nothing.
    fn read_whole(&self, text: &str, tools: &[Tool], made: usize) -> Spoken {
        let bare = self.begins(text).then_some((0, true));
        let mut marked: Vec<usize> = self
            .marks
            .iter()
            .flat_map(|mark| text.match_indices(mark.as_str()).take(MAX_MARKS))
            .map(|(at, _)| at)
            .collect();
        marked.sort_unstable();
        let places = bare.into_iter().chain(marked.into_iter().map(|at| (at, false)));
        let read = places.take(MAX_MARKS).find_map(|(at, bare)| {
            let (calls, rest) = self.calls(&text[at..], tools)?;
            let known = |call: &ToolCall| tools.iter().any(|tool| tool.name == call.name);
            (!bare || calls.iter().all(known)).then_some((at, calls, rest))
        });
        // What the prompt had of it nobody is to see.
        let own = |text: &'_ str| {
            let mark = self.lead.as_ref().map_or("", |lead| &lead.mark);
            text.strip_prefix(mark).unwrap_or(text).to_owned()
        };
        let Some((at, mut calls, rest)) = read else {
            return Spoken { text: own(text), calls: Vec::new() };
        };
        for (n, call) in (made + 1..).zip(&mut calls) {
            if call.id.is_empty() || self.own_ids {
                call.id = format!("call{n:05}");
            }
        }
        let before = own(&text[..at]);
        let parts = [before.trim_end(), self.beside(rest).trim_end()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Spoken { text: parts.join("\n\n"), calls }
    }

    /// The forms that calls may have, in the order in which they are tried.
    pub(super) fn forms(&self) -> [Form; 3] {
        let python = Form::Literal { open: "[".into(), dialect: Dialect::Python };
        [self.form.clone(), Form::Json(Keys::default()), python]
    }

    /// The calls that a text begins with, at a mark or bracket, and what follows them.
    fn calls<'t>(&self, text: &'t str, tools: &[Tool]) -> Option<(Vec<ToolCall>, &'t str)> {
        self.forms().iter().find_map(|form| {
            let (mut calls, mut rest) = self.next(form, text, tools)?;
            while let Some((more, after)) = self.next(form, rest, tools) {
                calls.extend(more);
                rest = after;
            }
            (!calls.is_empty()).then_some((calls, rest))
        })
    }

    /// The next call, or list of calls, and what follows it. `None` if something else is next, or one that is cut short.
    pub(super) fn next<'t>(
        &self,
        form: &Form,
        text: &'t str,
        tools: &[Tool],
    ) -> Option<(Vec<ToolCall>, &'t str)> {
        let one = |(call, rest)| (vec![call], rest);
        match form {
            Form::Json(keys) => {
                let (value, rest) = json::value(self.beside(text.trim_start_matches([',', ';', ' ', '\n'])))?;
                let mut calls = Vec::new();
                keys.calls(&value, &mut calls)?;
                Some((calls, rest))
            }
            Form::Named { open, id, in_id, .. } => {
                let (name, text) = name(self.opened(text, open)?)?;
                let (between, _) =
                    text.split_once('{').filter(|(between, _)| between.len() <= MAX_BETWEEN)?;
                let (Json::Object(arguments), rest) = json::value(&text[between.len()..])? else {
                    return None;
                };
                let id = match id {
                    // As far as the next mark: `functions.f:0`.
                    _ if *in_id => {
                        let before = open.rfind(['>', ']']).map_or(&**open, |at| &open[at + 1..]);
                        let behind = between.split(['<', '[']).next().unwrap_or_default();
                        Some(format!("{before}{name}{}", behind.trim()))
                    }
                    Some((before, behind)) => between
                        .split_once(before.trim())
                        .and_then(|(_, id)| Some(id.split_once(behind.trim())?.0.trim().to_owned())),
                    None => None,
                };
                Some(one((ToolCall::new(id.unwrap_or_default(), name, arguments), rest)))
            }
            Form::Tagged(tags) => tags.call(self.opened(text, &tags.open)?, tools).map(one),
            Form::Literal { open, dialect } => {
                // Those of a list are parted by commas.
                let listed = || text.trim_start().strip_prefix(',').map(str::trim_start);
                let (call, rest) = dialect.call(self.opened(text, open).or_else(listed)?)?;
                let end = rest.trim_start().strip_prefix(']').filter(|_| open.trim_end().ends_with('['));
                Some(one((call, end.unwrap_or(rest))))
            }
        }
    }

    /// A text without the marks at its beginning that belong to calls.
    pub(super) fn beside<'t>(&self, text: &'t str) -> &'t str {
        let mut rest = text.trim_start();
        while let Some(next) = self.around.iter().find_map(|mark| rest.strip_prefix(mark.as_str())) {
            rest = next.trim_start();
        }
        rest
    }

    /// What follows `open`, which nothing is in front of but marks around calls.
    pub(super) fn opened<'t>(&self, text: &'t str, open: &str) -> Option<&'t str> {
        let (at, end) = find(text, open)?;
        self.beside(&text[..at]).is_empty().then_some(&text[end..])
    }

    /// Whether a text has no more than what may be the beginning of a mark around calls.
    pub(super) fn begins_mark(&self, text: &str) -> bool {
        text.is_empty() || self.around.iter().any(|mark| mark.len() > text.len() && mark.starts_with(text))
    }

    /// The same as [`beside`](Self::beside) of a text that may go on: `None` where it may do so with a mark.
    pub(super) fn behind_marks<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut rest = text.trim_start();
        while !self.begins_mark(rest) {
            match self.around.iter().find_map(|mark| rest.strip_prefix(mark.as_str())) {
                Some(next) => rest = next.trim_start(),
                None => return Some(rest),
            }
        }
        None
    }

    /// Whether a text that is not [opened](Self::opened) may be with more.
    pub(super) fn may_open(&self, text: &str, open: &str) -> bool {
        let letters = |text: &str| text.split_whitespace().collect::<String>();
        let open = letters(open);
        let mut rest = text.trim_start();
        loop {
            // Marks around calls may be of those that open one.
            if self.begins_mark(rest) || open.starts_with(&letters(rest)) {
                return true;
            }
            match self.around.iter().find_map(|mark| rest.strip_prefix(mark.as_str())) {
                Some(next) => rest = next.trim_start(),
                None => return false,
            }
        }
    }
}
