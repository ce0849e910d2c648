//! Reading what a model has said.

use super::{CallSyntax, Dialect, Form, Keys, Spoken, Tool, ToolCall, find, json, name};
use serde_json::Value as Json;

/// Marks of an answer that are tried: a model may speak of them.
const MAX_MARKS: usize = 64;

impl CallSyntax {
    /// Tells calls from text. `text` is an answer, with special tokens spelled out; `tools` say which arguments are texts where the syntax
    /// does not, and what may be called without a mark. Ids are counted on from `made`, the calls that the conversation has had, where the
    /// model writes none.
    ///
    /// Models do not always write as their templates do. Spaces between marks may be others, and behind a mark may be JSON or Python.
    #[must_use]
    pub fn read(&self, text: &str, tools: &[Tool], made: usize) -> Spoken {
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
        let Some((at, mut calls, rest)) = read else {
            return Spoken { text: text.to_owned(), calls: Vec::new() };
        };
        for (n, call) in (made + 1..).zip(&mut calls) {
            if call.id.is_empty() || self.own_ids {
                call.id = format!("call{n:05}");
            }
        }
        let parts = [text[..at].trim_end(), self.beside(rest).trim_end()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Spoken { text: parts.join("\n\n"), calls }
    }

    /// The calls that a text begins with, at a mark or bracket, and what follows them.
    fn calls<'t>(&self, text: &'t str, tools: &[Tool]) -> Option<(Vec<ToolCall>, &'t str)> {
        let others =
            [Form::Json(Keys::default()), Form::Literal { open: "[".into(), dialect: Dialect::Python }];
        [&self.form, &others[0], &others[1]].into_iter().find_map(|form| {
            let (mut calls, mut rest) = self.next(form, text, tools)?;
            while let Some((more, after)) = self.next(form, rest, tools) {
                calls.extend(more);
                rest = after;
            }
            (!calls.is_empty()).then_some((calls, rest))
        })
    }

    /// The next call, or list of calls, and what follows it. `None` if something else is next, or one that is cut short.
    fn next<'t>(&self, form: &Form, text: &'t str, tools: &[Tool]) -> Option<(Vec<ToolCall>, &'t str)> {
        let one = |(call, rest)| (vec![call], rest);
        match form {
            Form::Json(keys) => {
                let (value, rest) = json::value(self.beside(text.trim_start_matches([',', ';', ' ', '\n'])))?;
                let mut calls = Vec::new();
                keys.calls(&value, &mut calls)?;
                Some((calls, rest))
            }
            Form::Named { open, id, in_id } => {
                let (name, text) = name(self.opened(text, open)?)?;
                let (between, _) = text.split_once('{')?;
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
    fn beside<'t>(&self, text: &'t str) -> &'t str {
        let mut rest = text.trim_start();
        while let Some(next) = self.around.iter().find_map(|mark| rest.strip_prefix(mark.as_str())) {
            rest = next.trim_start();
        }
        rest
    }

    /// What follows `open`, which nothing is in front of but marks around calls.
    fn opened<'t>(&self, text: &'t str, open: &str) -> Option<&'t str> {
        let (at, end) = find(text, open)?;
        self.beside(&text[..at]).is_empty().then_some(&text[end..])
    }
}
