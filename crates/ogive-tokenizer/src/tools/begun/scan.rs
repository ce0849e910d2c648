//! JSON as it comes, letter by letter: where values begin and end.
//!
//! serde_json reads whole values alone, and asking it again at each token would read a long argument as often as it has tokens. This looks
//! at each byte once and keeps no value; numbers and words it takes as they are, for who gets a whole value reads that anyhow.

use crate::tools::MAX_DEPTH;

/// What a byte was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The first bracket of an object.
    Object,
    /// The first bracket of a list.
    List,
    /// The last bracket of either.
    Close,
    /// The first quote of a text, whether a value or a name.
    Quote,
    /// The last quote of an object's name.
    Key,
    /// The last quote of a text that is a value.
    Text,
    /// Anything else.
    Within,
}

/// Where in a value it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before a value; `end`: or the list's end.
    Value {
        end: bool,
    },
    /// Before an object's name; `end`: or the object's end.
    Key {
        end: bool,
    },
    Colon,
    /// Behind a value.
    Behind,
    /// In a number or a word.
    Word,
    /// In a text, which may be a name.
    Quoted {
        key: bool,
        escaped: bool,
    },
}

/// How far a value has come that begins with a bracket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scanner {
    /// The brackets that are open: whether each is an object's.
    open: Vec<bool>,
    at: At,
}

impl Default for At {
    fn default() -> Self {
        Self::Value { end: false }
    }
}

impl Scanner {
    /// How many brackets are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether all that is open around the innermost bracket are lists.
    pub(super) fn is_listed(&self) -> bool {
        self.open.iter().rev().skip(1).all(|object| !object)
    }

    /// Whether a value has to come next.
    pub(super) fn is_before_value(&self) -> bool {
        self.at == At::Value { end: false }
    }

    /// Takes a byte. `None` if no JSON goes on so.
    pub(super) fn push(&mut self, byte: u8) -> Option<Seen> {
        let space = matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        match self.at {
            At::Quoted { key, escaped: true } => self.at = At::Quoted { key, escaped: false },
            At::Quoted { key, .. } => match byte {
                b'\\' => self.at = At::Quoted { key, escaped: true },
                b'"' if key => return self.to(At::Colon, Seen::Key),
                b'"' => return self.to(At::Behind, Seen::Text),
                0..0x20 => return None,
                _ => {}
            },
            At::Word if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.') => {}
            At::Behind | At::Word => match (byte, self.open.last()) {
                _ if space => self.at = At::Behind,
                (b',', Some(true)) => self.at = At::Key { end: false },
                (b',', Some(false)) => self.at = At::Value { end: false },
                (b'}', Some(true)) | (b']', Some(false)) => return self.close(),
                _ => return None,
            },
            _ if space => {}
            At::Colon => match byte {
                b':' => self.at = At::Value { end: false },
                _ => return None,
            },
            At::Key { end } => match byte {
                b'"' => return self.to(At::Quoted { key: true, escaped: false }, Seen::Quote),
                b'}' if end => return self.close(),
                _ => return None,
            },
            At::Value { end } => match byte {
                b'{' | b'[' => {
                    self.open.push(byte == b'{');
                    if self.depth() > 2 * MAX_DEPTH {
                        return None;
                    }
                    let list = byte == b'[';
                    let at = if list { At::Value { end: true } } else { At::Key { end: true } };
                    return self.to(at, if list { Seen::List } else { Seen::Object });
                }
                b'"' => return self.to(At::Quoted { key: false, escaped: false }, Seen::Quote),
                b']' if end => return self.close(),
                b'-' | b'0'..=b'9' | b't' | b'f' | b'n' if self.depth() > 0 => self.at = At::Word,
                _ => return None,
            },
        }
        Some(Seen::Within)
    }

    fn to(&mut self, at: At, seen: Seen) -> Option<Seen> {
        self.at = at;
        Some(seen)
    }

    fn close(&mut self) -> Option<Seen> {
        self.open.pop();
        self.to(At::Behind, Seen::Close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// How much of a text is a value, if it has a whole one, as serde_json has it.
    fn twin(text: &str) -> Option<usize> {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        values.next()?.ok()?;
        Some(values.byte_offset())
    }

    fn scanned(text: &str) -> Option<usize> {
        let mut scanner = Scanner::default();
        for (at, byte) in text.bytes().enumerate() {
            scanner.push(byte)?;
            if scanner.depth() == 0 {
                return Some(at + 1);
            }
        }
        None
    }

    #[test]
    fn values_end_where_they_do_for_serde() {
        let whole = r#"{"a": [1, -2.5e+3, true, null, "x\"]}\\", [], {}], "é\u00e9": {"b": {"c": "\n"}}, "d": 1} and on"#;
        assert_eq!(scanned(whole), Some(twin(whole).unwrap()));
        let letters = ['{', '}', '[', ']', '"', ':', ',', '1', ' ', '\\', 'x', '\n'];
        let mut state = 1_u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % n
        };
        let (mut taken, mut both) = (0, 0);
        for _ in 0..20_000 {
            let mut text: Vec<char> = whole.chars().skip(random(2) * 6).collect();
            for _ in 0..1 + random(2) {
                let at = random(text.len());
                text[at] = letters[random(letters.len())];
            }
            let text: String = text.into_iter().collect();
            if let Some(end) = twin(&text).filter(|_| text.starts_with(['{', '['])) {
                // What is a value is never refused.
                assert_eq!(scanned(&text), Some(end), "{text}");
                both += 1;
            }
            taken += usize::from(scanned(&text).is_some());
        }
        assert!(both > 500 && taken < 4 * both, "{both} {taken}");
    }

    #[test]
    fn what_is_no_json_is_refused_where_it_turns_wrong() {
        for (text, at) in
            [("{a", 1), ("[1 2", 3), ("{\"a\" 1", 5), ("{]", 1), ("[1,]", 3), ("{\"a\n", 3), ("x", 0)]
        {
            let mut scanner = Scanner::default();
            assert_eq!(text.bytes().position(|byte| scanner.push(byte).is_none()), Some(at), "{text}");
        }
        let mut scanner = Scanner::default();
        assert!("[".repeat(100_000).bytes().any(|byte| scanner.push(byte).is_none()));
    }
}
