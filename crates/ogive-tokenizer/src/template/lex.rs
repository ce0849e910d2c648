//! Cuts a template into text, comments and tags, and tags into tokens.
//!
//! The grammar is Jinja 2's. minijinja has a lexer of its own, but it cannot be extended; ours exists because
//! [`super::lower`] has to see every operator before minijinja does. Both must agree on where a tag ends, so the
//! rules here are the small common ones: strings hide delimiters, brackets hide end markers, `raw` hides all.

/// One token inside a tag.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'s> {
    Name(&'s str),
    Str(String),
    Int(i128),
    Float(f64),
    Op(&'static str),
}

/// What kind of tag a [`Tag`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagKind {
    Print,
    Block,
}

/// `{{ … }}` or `{% … %}`, with its whitespace markers (`""`, `"-"` or `"+"`).
#[derive(Debug)]
pub(super) struct Tag<'s> {
    pub(super) kind: TagKind,
    pub(super) open: &'s str,
    pub(super) close: &'s str,
    pub(super) tokens: Vec<Token<'s>>,
    pub(super) line: usize,
    pub(super) newlines: usize,
}

/// One piece of a template, in order.
#[derive(Debug)]
pub(super) enum Segment<'s> {
    /// Text that is output as it stands.
    Text(&'s str),
    /// A comment, with its delimiters.
    Comment(&'s str),
    /// A whole `{% raw %}…{% endraw %}`, with its tags.
    Raw(&'s str),
    Tag(Tag<'s>),
}

/// A syntax error and its line, counted from one.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// Longest first, so that `**` is not read as two `*`.
const OPERATORS: [&str; 27] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";", "!",
];

/// Cuts a whole template. Linear in its length.
pub(super) fn segments(source: &str) -> Result<Vec<Segment<'_>>, Fault> {
    let mut out = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(start) = find_open(rest) {
        let (text, tail) = rest.split_at(start);
        if !text.is_empty() {
            out.push(Segment::Text(text));
            line += newlines(text);
        }
        let length = if tail.starts_with("{#") {
            let end = tail
                .get(2..)
                .and_then(|t| t.find("#}"))
                .ok_or_else(|| Fault::new(line, "comment is not closed"))?;
            out.push(Segment::Comment(&tail[..end + 4]));
            end + 4
        } else if let Some(length) = raw_block(tail, line)? {
            out.push(Segment::Raw(&tail[..length]));
            length
        } else {
            let (tag, length) = read_tag(tail, line)?;
            out.push(Segment::Tag(tag));
            length
        };
        line += newlines(&tail[..length]);
        rest = &tail[length..];
    }
    if !rest.is_empty() {
        out.push(Segment::Text(rest));
    }
    Ok(out)
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|&b| b == b'\n').count()
}

fn find_open(text: &str) -> Option<usize> {
    text.as_bytes().windows(2).position(|w| matches!(w, b"{{" | b"{%" | b"{#"))
}

/// If `text` (at a `{%` or `{{`) opens a raw block: the length up to and including its `endraw` tag.
fn raw_block(text: &str, line: usize) -> Result<Option<usize>, Fault> {
    let Some(open) = bare_tag(text, "raw", &['-']) else { return Ok(None) };
    let mut at = open;
    while let Some(found) = text[at..].find("{%") {
        at += found;
        if let Some(length) = bare_tag(&text[at..], "endraw", &['-', '+']) {
            return Ok(Some(at + length));
        }
        at += 2;
    }
    Err(Fault::new(line, "raw block is not closed: expected {% endraw %}"))
}

/// The length of `{% NAME %}` at the start of `text`, with any whitespace marker before the name and those given behind it.
fn bare_tag(text: &str, name: &str, markers: &[char]) -> Option<usize> {
    let rest = text.strip_prefix("{%")?;
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let rest = rest.strip_prefix(name)?;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let rest = rest.strip_prefix(markers).unwrap_or(rest);
    let rest = rest.strip_prefix("%}")?;
    Some(text.len() - rest.len())
}

/// Reads the tag at the start of `text`; returns it and its length.
fn read_tag(text: &str, line: usize) -> Result<(Tag<'_>, usize), Fault> {
    let (kind, end) = if text.starts_with("{{") { (TagKind::Print, "}}") } else { (TagKind::Block, "%}") };
    let bytes = text.as_bytes();
    let mut at = 2;
    let open = match bytes.get(at) {
        Some(b'-' | b'+') => &text[2..3],
        _ => "",
    };
    at += open.len();
    let mut tokens = Vec::new();
    let mut brackets: Vec<u8> = Vec::new();
    loop {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let here = &text[at..];
        let Some(&first) = bytes.get(at) else {
            return Err(Fault::new(line, format!("tag is not closed: expected {end}")));
        };
        if brackets.is_empty() {
            let marker = if matches!(first, b'-' | b'+') { 1 } else { 0 };
            // A print tag knows no `+` marker: there `+}}` is an operator without an operand.
            let allowed = marker == 0 || first == b'-' || kind == TagKind::Block;
            if allowed && here[marker..].starts_with(end) {
                let close = &here[..marker];
                let length = at + marker + 2;
                let newlines = newlines(&text[..length]);
                return Ok((Tag { kind, open, close, tokens, line, newlines }, length));
            }
        }
        let fault = |message: String| Fault::new(line + newlines(&text[..at]), message);
        let (token, length) = match first {
            b'"' | b'\'' => read_string(here).map_err(fault)?,
            b'0'..=b'9' => {
                let after_dot = matches!(tokens.last(), Some(Token::Op(".")));
                read_number(here, after_dot).map_err(fault)?
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                let length = here.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
                (Token::Name(&here[..length]), length)
            }
            _ => {
                let op = OPERATORS.iter().find(|op| here.starts_with(**op));
                let op =
                    op.ok_or_else(|| fault(format!("unexpected character {:?}", here.chars().next())))?;
                match op.as_bytes() {
                    [open @ (b'(' | b'[' | b'{')] => brackets.push(*open),
                    [b')'] if brackets.pop() != Some(b'(') => return Err(fault("unexpected ')'".into())),
                    [b']'] if brackets.pop() != Some(b'[') => return Err(fault("unexpected ']'".into())),
                    [b'}'] if brackets.pop() != Some(b'{') => return Err(fault("unexpected '}'".into())),
                    _ => {}
                }
                (Token::Op(op), op.len())
            }
        };
        tokens.push(token);
        at += length;
    }
}

/// A string literal with Python's escapes; returns its value and its length with the quotes.
fn read_string(text: &str) -> Result<(Token<'_>, usize), String> {
    let quote = text.as_bytes().first().copied().map(char::from);
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if Some(c) == quote {
            return Ok((Token::Str(value), at + 1));
        }
        if c != '\\' {
            value.push(c);
            continue;
        }
        let Some((at, escape)) = chars.next() else { break };
        let simple = match escape {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'a' => Some('\x07'),
            'b' => Some('\x08'),
            'f' => Some('\x0c'),
            'v' => Some('\x0b'),
            '\\' | '\'' | '"' => Some(escape),
            _ => None,
        };
        if let Some(c) = simple {
            value.push(c);
            continue;
        }
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            '0'..='7' => {
                let octal: String =
                    text[at..].chars().take(3).take_while(|c| ('0'..='7').contains(c)).collect();
                let code = u32::from_str_radix(&octal, 8).unwrap_or(0);
                value.extend(char::from_u32(code));
                for _ in 1..octal.len() {
                    chars.next();
                }
                continue;
            }
            '\n' => continue,
            _ => {
                // Python keeps an escape it does not know.
                value.push('\\');
                value.push(escape);
                continue;
            }
        };
        let mut code = hex(&text[at + 1..], digits)?;
        for _ in 0..digits {
            chars.next();
        }
        // A pair of surrogates written as two escapes is one character; a lone one has no UTF-8 form.
        if (0xd800..0xdc00).contains(&code) {
            let low = text[at + 1..].get(digits..).and_then(|t| t.strip_prefix("\\u"));
            let low = low.and_then(|t| hex(t, 4).ok()).filter(|c| (0xdc00..0xe000).contains(c));
            let Some(low) = low else { return Err("lone surrogate in a string".into()) };
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            for _ in 0..6 {
                chars.next();
            }
        }
        value.push(char::from_u32(code).ok_or("escape in a string is no character")?);
    }
    Err("string is not closed".into())
}

fn hex(text: &str, digits: usize) -> Result<u32, String> {
    let digits = text.get(..digits).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
    digits.and_then(|d| u32::from_str_radix(d, 16).ok()).ok_or_else(|| "incomplete escape in a string".into())
}

/// A number; after a dot (`messages.0`) only its integer part.
fn read_number(text: &str, integer_only: bool) -> Result<(Token<'_>, usize), String> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit() || **b == b'_').count();
    let radix = match bytes.get(1) {
        Some(b'x' | b'X') => 16,
        Some(b'o' | b'O') => 8,
        Some(b'b' | b'B') => 2,
        _ => 10,
    };
    let too_large = |_| "integer is too large: this reader holds 127 bits".to_string();
    if bytes[0] == b'0' && radix != 10 && !integer_only {
        let length = 2 + bytes[2..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        let value = i128::from_str_radix(&text[2..length].replace('_', ""), radix).map_err(too_large)?;
        return Ok((Token::Int(value), length));
    }
    let mut length = digits(0);
    let mut float = false;
    if !integer_only {
        if bytes.get(length) == Some(&b'.') && bytes.get(length + 1).is_some_and(u8::is_ascii_digit) {
            float = true;
            length += 1 + digits(length + 1);
        }
        if matches!(bytes.get(length), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
            if bytes.get(length + 1 + sign).is_some_and(u8::is_ascii_digit) {
                float = true;
                length += 1 + sign + digits(length + 1 + sign);
            }
        }
    }
    let plain = text[..length].replace('_', "");
    let token = if float {
        Token::Float(plain.parse().map_err(|_| format!("{plain:?} is no number"))?)
    } else {
        Token::Int(plain.parse().map_err(too_large)?)
    };
    Ok((token, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(tag: &str) -> Vec<Token<'_>> {
        match segments(tag).unwrap().pop() {
            Some(Segment::Tag(tag)) => tag.tokens,
            other => panic!("expected a tag, got {other:?}"),
        }
    }

    #[test]
    fn strings_and_brackets_hide_the_end_of_a_tag() {
        assert_eq!(tokens("{{ '}}' }}"), [Token::Str("}}".into())]);
        assert_eq!(tokens("{{ {'a': {}} }}").len(), 6);
        assert!(segments("{{ ( }}").is_err());
        assert!(segments("{{ ) }}").is_err());
    }

    #[test]
    fn escapes_are_pythons() {
        assert_eq!(
            tokens(r"{{ 'a\nb\q\x41\u00e9\ud83e\udd99\101\'' }}"),
            [Token::Str("a\nb\\qAé🦙A'".into())]
        );
        for bad in [
            r"{{ '\x4' }}",
            r"{{ '\ud800' }}",
            r"{{ '\U00110000' }}",
            "{{ 'a",
            "{{ '\\",
            "{# x",
            "{% raw %}x",
        ] {
            assert!(segments(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers() {
        use Token::{Float, Int};
        assert_eq!(tokens("{{ 1_000 }}"), [Int(1000)]);
        assert_eq!(tokens("{{ 1.5e3 }}"), [Float(1500.0)]);
        assert_eq!(tokens("{{ 0x1f }}"), [Int(31)]);
        assert_eq!(tokens("{{ m.0.5 }}").len(), 5);
        assert!(segments("{{ 99999999999999999999999999999999999999999 }}").is_err());
    }

    #[test]
    fn raw_and_comments_are_whole() {
        let parts = segments("a{#- {{ -#}{%- raw %}{{ x }}{% endraw -%}b").unwrap();
        assert!(matches!(
            parts[..],
            [
                Segment::Text("a"),
                Segment::Comment("{#- {{ -#}"),
                Segment::Raw("{%- raw %}{{ x }}{% endraw -%}"),
                Segment::Text("b")
            ]
        ));
    }
}
