//! Values as Python prints them: `str()` and `repr()`.

use minijinja::{Error, State, Value};

use super::values::{Kind, charge, kind, limit, pairs, room};

/// A string under construction that stops when the rendering's budget is spent.
#[derive(Debug)]
pub(super) struct Sink {
    text: String,
    room: usize,
}

impl Sink {
    pub(super) fn new(state: &mut State<'_, '_>) -> Self {
        Self { text: String::new(), room: room(state) }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), Error> {
        match self.room.checked_sub(text.len()) {
            Some(room) => self.room = room,
            None => return Err(limit("template produces too much text")),
        }
        self.text.push_str(text);
        Ok(())
    }

    pub(super) fn push_char(&mut self, c: char) -> Result<(), Error> {
        self.push(c.encode_utf8(&mut [0; 4]))
    }

    /// The text, paid for.
    pub(super) fn finish(self, state: &mut State<'_, '_>) -> Result<String, Error> {
        charge(state, self.text.len())?;
        Ok(self.text)
    }
}

/// Python's `str(value)`; what `{{ value }}` prints.
pub(super) fn to_text(state: &mut State<'_, '_>, value: &Value) -> Result<String, Error> {
    let mut sink = Sink::new(state);
    write_text(&mut sink, value)?;
    sink.finish(state)
}

pub(super) fn write_text(sink: &mut Sink, value: &Value) -> Result<(), Error> {
    match kind(value) {
        Kind::Str(text) => sink.push(text),
        Kind::Undefined => Ok(()),
        _ => write_repr(sink, value),
    }
}

/// Python's `repr(value)`. Values are at most [`super::values::MAX_DEPTH`] deep.
pub(super) fn write_repr(sink: &mut Sink, value: &Value) -> Result<(), Error> {
    match kind(value) {
        Kind::Undefined => sink.push("Undefined"),
        Kind::None => sink.push("None"),
        Kind::Bool(true) => sink.push("True"),
        Kind::Bool(false) => sink.push("False"),
        Kind::Int(int) => sink.push(&int.to_string()),
        Kind::Float(float) => sink.push(&float_repr(float)),
        Kind::Str(text) => string_repr(sink, text),
        Kind::List(items) => sequence(sink, "[", items, "]"),
        Kind::Tuple(items) => sequence(sink, "(", items, if items.len() == 1 { ",)" } else { ")" }),
        Kind::Dict(dict) => {
            sink.push("{")?;
            for (i, (key, item)) in pairs(dict).enumerate() {
                sink.push(if i > 0 { ", " } else { "" })?;
                write_repr(sink, &key)?;
                sink.push(": ")?;
                write_repr(sink, &item)?;
            }
            sink.push("}")
        }
        Kind::Opaque => sink.push("<object>"),
    }
}

fn sequence(sink: &mut Sink, open: &str, items: &[Value], close: &str) -> Result<(), Error> {
    sink.push(open)?;
    for (i, item) in items.iter().enumerate() {
        sink.push(if i > 0 { ", " } else { "" })?;
        write_repr(sink, item)?;
    }
    sink.push(close)
}

fn string_repr(sink: &mut Sink, text: &str) -> Result<(), Error> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    sink.push_char(quote)?;
    for c in text.chars() {
        match c {
            '\n' => sink.push("\\n")?,
            '\r' => sink.push("\\r")?,
            '\t' => sink.push("\\t")?,
            '\\' => sink.push("\\\\")?,
            _ if c == quote => {
                sink.push("\\")?;
                sink.push_char(c)?;
            }
            _ if printable(c) => sink.push_char(c)?,
            _ => {
                let code = u32::from(c);
                let escape = match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                };
                sink.push(&escape)?;
            }
        }
    }
    sink.push_char(quote)
}

/// Python's `str.isprintable` for one character. Rust's debug form escapes the same categories; only at the start of
/// a string it escapes combining characters too, hence the letter before.
fn printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let mut text = String::from("a");
    text.push(c);
    !format!("{text:?}").contains("\\u{")
}

/// Python's shortest float form: an exponent below 1e-4 and from 1e16 on.
pub(super) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let power: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&power) {
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", power.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') { plain } else { format!("{plain}.0") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e100, "1.25e+100"),
            (123456.789, "123456.789"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "nan"),
        ];
        for (value, expected) in cases {
            assert_eq!(float_repr(value), expected);
        }
    }
}
