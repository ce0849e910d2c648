//! Calls as languages write them: `f(a='x', b=[1, None])` as Python does (LFM2, Llama 4), and `call:f{a:<|"|>x<|"|>}` of Gemma 4.

use super::{MAX_DEPTH, ToolCall, name};
use serde_json::{Map, Value as Json};

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Python,
    Gemma,
}

/// What is neither a text nor a number.
const WORDS: [&str; 7] = ["None", "none", "null", "True", "true", "False", "false"];
/// Around texts in Gemma's.
const QUOTE: &str = "<|\"|>";

/// Why a text is no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It ends too early: with more it may be one.
    End,
    /// However it goes on it is none.
    Wrong,
}

impl Stop {
    /// Where this is what there is in place of what should be there.
    fn at(text: &str) -> Self {
        if text.is_empty() { Self::End } else { Self::Wrong }
    }
}

/// What was read, and what follows it.
type Read<'t, T> = Result<(T, &'t str), Stop>;

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
        self.try_call(text).ok()
    }

    /// The same, and why there is none.
    pub(super) fn try_call(self, text: &str) -> Read<'_, ToolCall> {
        let (name, rest) = name(text).ok_or(Stop::at(text))?;
        let (open, close) = self.brackets();
        let rest = rest.strip_prefix(open).ok_or(Stop::at(rest))?;
        let (arguments, rest) = self.pairs(rest, close, 0)?;
        Ok((ToolCall::new("", name, arguments), rest))
    }

    /// Names and values up to `close`.
    fn pairs(self, text: &str, close: char, depth: usize) -> Read<'_, Map<String, Json>> {
        let mut pairs = Map::new();
        let mut rest = text.trim_start();
        loop {
            if let Some(rest) = rest.strip_prefix(close) {
                return Ok((pairs, rest));
            }
            let (key, after) = match self {
                // Those of dictionaries are texts.
                Self::Python if close == '}' => quoted(rest)?,
                _ => name(rest).map(|(key, rest)| (key.to_owned(), rest)).ok_or(Stop::at(rest))?,
            };
            let after = after.trim_start();
            let after = after.strip_prefix([':', '=']).ok_or(Stop::at(after))?;
            let (value, after) = self.value(after.trim_start(), depth)?;
            pairs.insert(key, value);
            rest = comma(after, close)?;
        }
    }

    fn value(self, text: &str, depth: usize) -> Read<'_, Json> {
        if depth > MAX_DEPTH {
            return Err(Stop::Wrong);
        }
        if let Some(mut rest) = text.strip_prefix('[') {
            let mut items = Vec::new();
            loop {
                rest = rest.trim_start();
                if let Some(rest) = rest.strip_prefix(']') {
                    return Ok((items.into(), rest));
                }
                let (item, after) = self.value(rest, depth + 1)?;
                items.push(item);
                rest = comma(after, ']')?;
            }
        }
        if let Some(rest) = text.strip_prefix('{') {
            let (pairs, rest) = self.pairs(rest, '}', depth + 1)?;
            return Ok((pairs.into(), rest));
        }
        if self == Self::Gemma
            && let Some(rest) = text.strip_prefix(QUOTE)
        {
            let (said, rest) = rest.split_once(QUOTE).ok_or(Stop::End)?;
            return Ok((said.into(), rest));
        }
        if self == Self::Gemma && QUOTE.starts_with(text) {
            return Err(Stop::End);
        }
        if self == Self::Python && text.starts_with(['\'', '"']) {
            return quoted(text).map(|(said, rest)| (said.into(), rest));
        }
        let (word, rest) = text.split_at(text.find([',', ')', ']', '}']).unwrap_or(text.len()));
        let word = word.trim();
        let value = match word {
            "None" | "none" | "null" => Json::Null,
            "True" | "true" => true.into(),
            "False" | "false" => false.into(),
            number => match serde_json::from_str(number) {
                Ok(number @ Json::Number(_)) => number,
                _ if rest.is_empty() && may_be_word(word) => return Err(Stop::End),
                _ => return Err(Stop::Wrong),
            },
        };
        Ok((value, rest))
    }
}

/// Whether more letters may make it a word or a number.
fn may_be_word(begun: &str) -> bool {
    let is_number = begun.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    is_number || WORDS.iter().any(|word| word.starts_with(begun))
}

/// The value that a text is in Python.
pub(super) fn python(text: &str) -> Option<Json> {
    Dialect::Python.value(text, 0).ok().filter(|(_, rest)| rest.trim().is_empty()).map(|(value, _)| value)
}

/// Passes what parts one item from the next, if it does not end here.
fn comma(text: &str, close: char) -> Result<&str, Stop> {
    let text = text.trim_start();
    match text.strip_prefix(',') {
        Some(rest) => Ok(rest.trim_start()),
        None => text.starts_with(close).then_some(text).ok_or(Stop::at(text)),
    }
}

/// How far a call's brackets have come. Each letter is looked at once; of what is wrong it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extent {
    looked: usize,
    depth: usize,
    quote: Option<&'static str>,
}

impl Extent {
    /// Takes more of a text that begins with a bracket and grows; whether that is closed.
    pub(super) fn is_closed(&mut self, dialect: Dialect, text: &str) -> bool {
        let quotes: &[&'static str] = if dialect == Dialect::Gemma { &[QUOTE] } else { &["'", "\""] };
        while let Some(c) = text[self.looked..].chars().next() {
            let rest = &text[self.looked..];
            let mut len = c.len_utf8();
            match self.quote {
                Some(quote) if rest.starts_with(quote) => (self.quote, len) = (None, quote.len()),
                Some(quote) if rest.len() < quote.len() && quote.starts_with(rest) => return false,
                Some(_) if c == '\\' && dialect == Dialect::Python => {
                    let Some(next) = rest.chars().nth(1) else { return false };
                    len += next.len_utf8();
                }
                Some(_) => {}
                None => match quotes.iter().find(|quote| rest.starts_with(**quote)) {
                    Some(&quote) => (self.quote, len) = (Some(quote), quote.len()),
                    None if quotes
                        .iter()
                        .any(|quote| rest.len() < quote.len() && quote.starts_with(rest)) =>
                    {
                        return false;
                    }
                    None if matches!(c, '(' | '[' | '{') => self.depth += 1,
                    None if matches!(c, ')' | ']' | '}') => self.depth = self.depth.saturating_sub(1),
                    None => {}
                },
            }
            self.looked += len;
            if self.depth == 0 {
                return true;
            }
        }
        false
    }
}

/// A text between quotes, with Python's escapes.
fn quoted(text: &str) -> Read<'_, String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"')).ok_or(Stop::at(text))?;
    let mut said = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Ok((said, &text[at + 1..]));
        }
        if c != '\\' {
            said.push(c);
            continue;
        }
        let digits = match chars.next().ok_or(Stop::End)?.1 {
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
            code = code * 16 + chars.next().ok_or(Stop::End)?.1.to_digit(16).ok_or(Stop::Wrong)?;
        }
        said.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    Err(Stop::End)
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

    /// Every beginning of a call may become one, whose brackets close at its end; and it is said where that is over.
    #[test]
    fn what_is_cut_short_is_told_from_what_is_wrong() {
        let python = r#"f(a='x)\'(', b=[1, {"k": None, 'm': "]"}], c=-1.5e3, d=True, e="\u00e9\\")"#;
        let gemma = r#"f{a:<|"|>x, "y"}<|<|"|>,b:{c:[1,true]},d:null}"#;
        for (dialect, text) in [(Dialect::Python, python), (Dialect::Gemma, gemma)] {
            let mut extent = Extent::default();
            for at in 1..text.len() {
                assert_eq!(dialect.try_call(&text[..at]).err(), Some(Stop::End), "{}", &text[..at]);
                assert!(at < 2 || !extent.is_closed(dialect, &text[1..at]), "{}", &text[..at]);
            }
            assert!(dialect.try_call(text).is_ok() && extent.is_closed(dialect, &text[1..]));
            assert_eq!(extent.looked, text.len() - 1);
        }
        for wrong in ["f(x y", "f(x=y", "f(x=1 2", "f(x='a' b", "f(x={1", "f(x=[1)", r"f(x='\xg", "f(,"] {
            assert_eq!(Dialect::Python.try_call(wrong).err(), Some(Stop::Wrong), "{wrong}");
        }
        for wrong in ["f{a:x", "f{a:<|x", "f{'a", "f{a:1;"] {
            assert_eq!(Dialect::Gemma.try_call(wrong).err(), Some(Stop::Wrong), "{wrong}");
        }
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
