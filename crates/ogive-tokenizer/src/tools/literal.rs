//! Calls as languages write them: `f(a='x', b=[1, None])` as Python does (LFM2, Llama 4), and `call:f{a:<|"|>x<|"|>}` of Gemma 4.

use super::{MAX_DEPTH, ToolCall, name};
use serde_json::{Map, Value as Json};

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Python,
    Gemma,
}

/// Around texts in Gemma's.
const QUOTE: &str = "<|\"|>";

impl Dialect {
    pub(super) const ALL: [Self; 2] = [Self::Python, Self::Gemma];

    /// What is around arguments.
    pub(super) fn brackets(self) -> (char, char) {
        match self {
            Self::Python => ('(', ')'),
            Self::Gemma => ('{', '}'),
        }
    }

    /// The call that a text begins with, and what follows it.
    pub(super) fn call(self, text: &str) -> Option<(ToolCall, &str)> {
        let (name, rest) = name(text)?;
        let (open, close) = self.brackets();
        let (arguments, rest) = self.pairs(rest.strip_prefix(open)?, close, 0)?;
        Some((ToolCall::new("", name, arguments), rest))
    }

    /// Names and values up to `close`.
    fn pairs(self, text: &str, close: char, depth: usize) -> Option<(Map<String, Json>, &str)> {
        let mut pairs = Map::new();
        let mut rest = text.trim_start();
        loop {
            if let Some(rest) = rest.strip_prefix(close) {
                return Some((pairs, rest));
            }
            let (key, after) = match self {
                // Those of dictionaries are texts.
                Self::Python if close == '}' => quoted(rest)?,
                _ => name(rest).map(|(key, rest)| (key.to_owned(), rest))?,
            };
            let after = after.trim_start().strip_prefix([':', '='])?;
            let (value, after) = self.value(after.trim_start(), depth)?;
            pairs.insert(key, value);
            rest = comma(after, close)?;
        }
    }

    fn value(self, text: &str, depth: usize) -> Option<(Json, &str)> {
        if depth > MAX_DEPTH {
            return None;
        }
        if let Some(mut rest) = text.strip_prefix('[') {
            let mut items = Vec::new();
            loop {
                rest = rest.trim_start();
                if let Some(rest) = rest.strip_prefix(']') {
                    return Some((items.into(), rest));
                }
                let (item, after) = self.value(rest, depth + 1)?;
                items.push(item);
                rest = comma(after, ']')?;
            }
        }
        if let Some(rest) = text.strip_prefix('{') {
            let (pairs, rest) = self.pairs(rest, '}', depth + 1)?;
            return Some((pairs.into(), rest));
        }
        if self == Self::Gemma
            && let Some(rest) = text.strip_prefix(QUOTE)
        {
            let (said, rest) = rest.split_once(QUOTE)?;
            return Some((said.into(), rest));
        }
        if self == Self::Python && text.starts_with(['\'', '"']) {
            return quoted(text).map(|(said, rest)| (said.into(), rest));
        }
        let (word, rest) = text.split_at(text.find([',', ')', ']', '}']).unwrap_or(text.len()));
        let value = match word.trim() {
            "None" | "none" | "null" => Json::Null,
            "True" | "true" => true.into(),
            "False" | "false" => false.into(),
            number => serde_json::from_str(number).ok().filter(Json::is_number)?,
        };
        Some((value, rest))
    }
}

/// The value that a text is in Python.
pub(super) fn python(text: &str) -> Option<Json> {
    Dialect::Python.value(text, 0).filter(|(_, rest)| rest.trim().is_empty()).map(|(value, _)| value)
}

/// Passes what parts one item from the next, if it does not end here.
fn comma(text: &str, close: char) -> Option<&str> {
    let text = text.trim_start();
    match text.strip_prefix(',') {
        Some(rest) => Some(rest.trim_start()),
        None => text.starts_with(close).then_some(text),
    }
}

/// A text between quotes, with Python's escapes.
fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut said = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Some((said, &text[at + 1..]));
        }
        if c != '\\' {
            said.push(c);
            continue;
        }
        let digits = match chars.next()?.1 {
            'n' => {
                said.push('\n');
                continue;
            }
            't' => {
                said.push('\t');
                continue;
            }
            'r' => {
                said.push('\r');
                continue;
            }
            '\n' => continue,
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => {
                // Python keeps the backslash of what is no escape.
                if !matches!(other, '\\' | '\'' | '"') {
                    said.push('\\');
                }
                said.push(other);
                continue;
            }
        };
        let mut code = 0;
        for _ in 0..digits {
            code = code * 16 + chars.next()?.1.to_digit(16)?;
        }
        said.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(dialect: Dialect, text: &str) -> Option<(String, Json, &str)> {
        dialect.call(text).map(|(call, rest)| (call.name, call.arguments.into(), rest))
    }

    #[test]
    fn python_is_read() {
        let read = |text| read(Dialect::Python, text);
        assert_eq!(read("f()"), Some(("f".into(), json!({}), "")));
        let text =
            r#"a.f( x = 'it\'s\n\x41é\u00e9', y=-1.5e3, z=[1, "two", [], {'k': None, "m": True},], ), g()"#;
        let want = json!({ "x": "it's\nAéé", "y": -1.5e3, "z": [1, "two", [], { "k": null, "m": true }] });
        assert_eq!(read(text), Some(("a.f".into(), want, ", g()")));
        for wrong in [
            "",
            "f",
            "f(",
            "f(x)",
            "f(x=)",
            "f(x='a",
            "f(x=1 y=2)",
            "f(x=[1",
            "f(x={y: 1})",
            r"f(x='\u12')",
            "f(x=f())",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(read(&format!("f(x={})", "[".repeat(1000))), None);
    }

    #[test]
    fn gemmas_is_read() {
        let read = |text| read(Dialect::Gemma, text);
        let text = r#"f{a:<|"|>x, "y"}<|"|>,b:{c:[1,true]},d:null}<tool_call|>"#;
        let want = json!({ "a": "x, \"y\"}", "b": { "c": [1, true] }, "d": null });
        assert_eq!(read(text), Some(("f".into(), want, "<tool_call|>")));
        for wrong in ["f{a", "f{a:", r#"f{a:<|"|>x}"#, "f{a:x}", "f{'a':1}"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
