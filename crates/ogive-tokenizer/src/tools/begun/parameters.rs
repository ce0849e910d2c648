//! Calls whose arguments stand between tags, as they come.
//!
//! A text is told letter by letter, for it may be a file's; of what is none nobody can say what it is before it ends.

use super::{Around, Outcome, Told, whole_name};
use crate::tools::{find, pieces, tagged, tagged::Tags};
use serde_json::Value as Json;

/// How far the arguments have come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::tools) struct Parameters {
    name: Option<String>,
    /// Where the next argument may begin.
    at: usize,
    /// Whether there was one.
    any: bool,
    value: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Value {
    is_text: bool,
    start: usize,
    /// How far it was told, if it is a text and was begun.
    told: Option<usize>,
    /// Up to there is no end of it.
    looked: usize,
}

impl Parameters {
    pub(super) fn read(
        &mut self,
        around: &Around<'_>,
        tags: &Tags,
        text: &str,
        out: &mut Vec<Told>,
    ) -> Outcome {
        if self.name.is_none() {
            let Some(behind) = around.syntax.opened(text, &tags.open) else {
                return around.unopened(text, &tags.open);
            };
            let (name, rest) = match whole_name(behind) {
                Ok(named) => named,
                Err(outcome) => return outcome,
            };
            out.push(Told::Begins(name.to_owned()));
            (self.name, self.at) = (Some(name.to_owned()), text.len() - rest.len());
        }
        loop {
            if let Some(value) = &mut self.value {
                let Some(end) = value.read(tags, text, out) else { return Outcome::More };
                (self.at, self.value) = (end, None);
            }
            let rest = &text[self.at..];
            let over = find(rest, &tags.close);
            let key = find(rest, &tags.key).filter(|key| over.is_none_or(|over| key.0 < over.0));
            let Some((_, key)) = key else {
                if over.is_none() {
                    return Outcome::More;
                }
                out.push(Told::Json(if self.any { "}" } else { "{}" }.to_owned()));
                return around.whole(text);
            };
            let Some((key, is_text, said)) = tags.value.named(&rest[key..]) else { return Outcome::More };
            // The tag's own spaces may not all be there yet.
            if tags.value.spaces().starts_with(said) {
                return Outcome::More;
            }
            let is_text = is_text.unwrap_or_else(|| {
                let tool = around.tools.iter().find(|tool| Some(&tool.name) == self.name.as_ref());
                tool.is_some_and(|tool| tool.takes_text(key))
            });
            let before = if std::mem::replace(&mut self.any, true) { ',' } else { '{' };
            out.push(Told::Json(format!("{before}{}:", Json::from(key))));
            let start = text.len() - said.len();
            self.value = Some(Value { is_text, start, told: None, looked: start });
        }
    }
}

impl Value {
    /// Tells what came of it; where it has ended, what is behind it.
    fn read(&mut self, tags: &Tags, text: &str, out: &mut Vec<Told>) -> Option<usize> {
        let lines = tags.end.starts_with('\n');
        if let Some((end, behind)) = find(&text[self.looked..], &tags.end) {
            let said = &text[self.start..self.looked + end];
            let said = said.strip_suffix('\n').filter(|_| lines).unwrap_or(said);
            let json = match self.told {
                Some(told) => escaped(&said[told - self.start..]) + "\"",
                None => tagged::value(said, self.is_text).to_string(),
            };
            out.push(Told::Json(json));
            return Some(self.looked + behind);
        }
        let first = pieces(&tags.end).next().unwrap_or_default();
        let rest = &text[self.looked..];
        let may_end = rest.find(first).unwrap_or_else(|| rest.len() - super::super::overlap(rest, first));
        self.looked += may_end;
        let said = &text[self.start..self.looked];
        // One in CDATA is what is within that.
        let bare = text[self.start..].trim_start();
        let wrapped = bare.starts_with(tagged::CDATA) || tagged::CDATA.starts_with(bare);
        if self.is_text && (self.told.is_some() || !wrapped) {
            let told = self.told.unwrap_or_else(|| {
                out.push(Told::Json("\"".to_owned()));
                self.start
            });
            let to = self.start + said.strip_suffix('\n').filter(|_| lines).unwrap_or(said).len();
            if told < to {
                out.push(Told::Json(escaped(&text[told..to])));
            }
            self.told = Some(told.max(to));
        }
        None
    }
}

/// A text as it stands between JSON's quotes.
fn escaped(text: &str) -> String {
    let quoted = Json::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
