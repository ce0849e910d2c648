//! Reading what a model has said.

use super::{CallSyntax, Form, Spoken, Tool, ToolCall, json, name};
use serde_json::Value as Json;

impl CallSyntax {
    /// Tells calls from text. `text` is an answer, with special tokens spelled out; `tools` say which arguments are texts where the syntax
    /// does not. Ids are counted on from `made`, the calls that the conversation has had, where the model writes none.
    #[must_use]
    pub fn read(&self, text: &str, tools: &[Tool], made: usize) -> Spoken {
        let at = match &self.mark {
            Some(mark) => text.find(mark.as_str()),
            None => self.begins(text).then_some(0),
        };
        let Some((said, mut rest)) = at.map(|at| text.split_at(at)) else { return Spoken::text(text) };
        let mut calls: Vec<ToolCall> = Vec::new();
        while let Some((more, after)) = self.next(rest, tools) {
            calls.extend(more);
            rest = after;
        }
        if calls.is_empty() {
            return Spoken::text(text);
        }
        for (n, call) in (made + 1..).zip(&mut calls) {
            if call.id.is_empty() {
                call.id = format!("call{n:05}");
            }
        }
        let parts = [said.trim_end(), self.beside(rest, false).trim_end()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Spoken { text: parts.join("\n\n"), calls }
    }

    /// The next call, or list of calls, and what follows it. `None` if something else is next, or one that is cut short.
    fn next<'t>(&self, text: &'t str, tools: &[Tool]) -> Option<(Vec<ToolCall>, &'t str)> {
        let one = |(call, rest)| (vec![call], rest);
        match &self.form {
            Form::Json(keys) => {
                let (value, rest) = json::value(self.beside(text, false))?;
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
                let listed = || text.trim_start().strip_prefix([',', '[']).map(str::trim_start);
                let (call, rest) = dialect.call(self.opened(text, open).or_else(listed)?)?;
                let end = rest.trim_start().strip_prefix(']').filter(|_| open.trim_end().ends_with('['));
                Some(one((call, end.unwrap_or(rest))))
            }
        }
    }

    /// A text without the marks at its beginning that belong to calls: tags, and `words` between them.
    fn beside<'t>(&self, text: &'t str, words: bool) -> &'t str {
        let mut rest = text.trim_start();
        let is_tag = |mark: &&String| words || !mark.starts_with(char::is_alphanumeric);
        while let Some(next) =
            self.around.iter().filter(is_tag).find_map(|mark| rest.strip_prefix(mark.as_str()))
        {
            rest = next.trim_start();
        }
        rest
    }

    /// What follows `open`, which nothing is in front of but marks around calls.
    fn opened<'t>(&self, text: &'t str, open: &str) -> Option<&'t str> {
        let (before, rest) = text.split_once(open.trim())?;
        self.beside(before, true).is_empty().then_some(rest)
    }
}

impl Spoken {
    fn text(text: &str) -> Self {
        Self { text: text.to_owned(), calls: Vec::new() }
    }
}
