//! Calls whose arguments stand between tags, each by itself: `<function=f><parameter=a>1</parameter></function>`.

use super::{Tool, ToolCall, find, json, literal, name};
use serde_json::{Map, Value as Json};

/// What stands where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tags {
    /// Before the name.
    pub(super) open: String,
    /// Before an argument's name.
    pub(super) key: String,
    /// Between an argument's name and its value.
    pub(super) value: Between,
    /// Behind a value.
    pub(super) end: String,
    /// Behind the call.
    pub(super) close: String,
}

/// What stands between an argument's name and its value, which may say what kind of value it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Between {
    Always(String),
    /// `before`, something, `after`. That something is `text` for a text.
    By {
        before: String,
        text: String,
        after: String,
    },
}

impl Between {
    /// What stands before anything that may vary.
    fn before(&self) -> &str {
        match self {
            Self::Always(between) | Self::By { before: between, .. } => between,
        }
    }

    /// The spaces in front of a value that are not its own.
    pub(super) fn spaces(&self) -> &str {
        let (Self::Always(behind) | Self::By { after: behind, .. }) = self;
        &behind[behind.trim_end().len()..]
    }

    /// The name of an argument that a text begins with, behind its tag; whether something says that a text follows, or that none does; and what follows.
    pub(super) fn named<'t>(&self, text: &'t str) -> Option<(&'t str, Option<bool>, &'t str)> {
        let (end, _) = find(text, self.before())?;
        let (is_text, rest) = self.pass(&text[end..])?;
        Some((text[..end].trim(), is_text, rest))
    }

    /// Passes it; whether it says that a text follows, or that none does.
    fn pass<'t>(&self, text: &'t str) -> Option<(Option<bool>, &'t str)> {
        match self {
            Self::Always(between) => Some((None, after(text, between)?)),
            Self::By { before, text: of_text, after: behind } => {
                let rest = after(text, before)?;
                let at = rest.find(behind.as_str())?;
                Some((Some(rest[..at] == **of_text), &rest[at + behind.len()..]))
            }
        }
    }
}

impl Tags {
    /// The call that a text begins with, behind its `open`, and what follows it.
    pub(super) fn call<'t>(&self, text: &'t str, tools: &[Tool]) -> Option<(ToolCall, &'t str)> {
        let (name, mut rest) = name(text)?;
        let tool = tools.iter().find(|tool| tool.name == name);
        let mut arguments = Map::new();
        loop {
            let over = find(rest, &self.close);
            let Some((_, at)) = find(rest, &self.key).filter(|key| over.is_none_or(|over| key.0 < over.0))
            else {
                // The end of what a call without a closing tag has, or one that was cut short.
                let rest = match over {
                    Some((_, end)) => &rest[end..],
                    None => self.close.trim().is_empty().then_some(rest)?,
                };
                return Some((ToolCall::new("", name, arguments), rest));
            };
            let (key, is_text, text) = self.value.named(&rest[at..])?;
            let (end, behind) = find(text, &self.end)?;
            // A newline on either side belongs to tags that have one.
            let lines = self.end.starts_with('\n');
            let said = text[..end].strip_suffix('\n').filter(|_| lines).unwrap_or(&text[..end]);
            let is_text = is_text.unwrap_or_else(|| tool.is_some_and(|tool| tool.takes_text(key)));
            arguments.insert(key.to_owned(), value(said, is_text));
            rest = &text[behind..];
        }
    }
}

/// What may stand in front of a value, with its end behind it, and is no part of it.
pub(super) const CDATA: &str = "<![CDATA[";

/// A value as it stands between tags. What is no text is JSON, and of some templates Python, by the way they print it.
pub(super) fn value(said: &str, is_text: bool) -> Json {
    let whole = said.trim().strip_prefix(CDATA).and_then(|said| said.strip_suffix("]]>"));
    let said = whole.unwrap_or(said);
    let json = || json::value(said).filter(|(_, rest)| rest.trim().is_empty()).map(|(value, _)| value);
    let read = || json().or_else(|| literal::python(said.trim()));
    (!is_text).then(read).flatten().unwrap_or_else(|| said.into())
}

/// What follows `mark`, which the text begins with, but for spaces around it that models may leave out; those at its end are its own.
fn after<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    let (_, end) = find(text, mark).filter(|(at, _)| text[..*at].trim().is_empty())?;
    let rest = &text[end..];
    let spaces = &mark[mark.trim_end().len()..];
    Some(rest.strip_prefix(spaces).unwrap_or(rest))
}
