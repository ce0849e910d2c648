//! `tojson` as transformers defines it: Python's `json.dumps` with `ensure_ascii=False` by default.

use minijinja::{Error, State, Value};

use super::arguments::bind;
use super::text::{Sink, float_repr};
use super::values::{Kind, dict_len, fail, kind, pairs, sort};

/// Options of one call.
#[derive(Debug)]
struct Style {
    ascii: bool,
    /// What one level is indented by; `None` writes everything on one line.
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// `value|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn tojson(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let [ascii, indent, separators, sort] =
        bind("tojson", args, ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match indent.as_ref().map(kind) {
        None | Some(Kind::None) => None,
        Some(Kind::Str(text)) if text.len() <= 64 => Some(text.to_string()),
        Some(other) => match other.int() {
            Some(width) if width <= 64 => Some(" ".repeat(usize::try_from(width).unwrap_or(0))),
            _ => return Err(fail("tojson: indent must be an integer or a string of at most 64 characters")),
        },
    };
    let (item, key) = match separators.as_ref().map(kind) {
        None | Some(Kind::None) => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
        Some(Kind::List([item, key]) | Kind::Tuple([item, key])) => match (kind(item), kind(key)) {
            (Kind::Str(item), Kind::Str(key)) => (item.to_string(), key.to_string()),
            _ => return Err(fail("tojson: separators must be two strings")),
        },
        Some(_) => return Err(fail("tojson: separators must be two strings")),
    };
    let is_true = |value: Option<Value>| value.is_some_and(|v| v.is_true());
    let style = Style { ascii: is_true(ascii), indent, item, key, sort: is_true(sort) };
    let mut sink = Sink::new(state);
    write(state, &mut sink, value, &style, 0)?;
    sink.finish(state).map(Value::from)
}

fn write(
    state: &mut State<'_, '_>,
    sink: &mut Sink,
    value: &Value,
    style: &Style,
    level: usize,
) -> Result<(), Error> {
    match kind(value) {
        Kind::List(items) | Kind::Tuple(items) => {
            if items.is_empty() {
                return sink.push("[]");
            }
            sink.push("[")?;
            for (i, item) in items.iter().enumerate() {
                separate(sink, style, level, i)?;
                write(state, sink, item, style, level + 1)?;
            }
            new_line(sink, style, level)?;
            sink.push("]")
        }
        Kind::Dict(dict) => {
            if dict_len(dict) == 0 {
                return sink.push("{}");
            }
            let mut items: Vec<(Value, Value)> = pairs(dict).collect();
            if style.sort {
                items = sort(state, items, false)?;
            }
            sink.push("{")?;
            for (i, (key, item)) in items.iter().enumerate() {
                separate(sink, style, level, i)?;
                match kind(key) {
                    Kind::Str(key) => string(sink, key, style.ascii)?,
                    Kind::None | Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) => {
                        sink.push("\"")?;
                        write(state, sink, key, style, level)?;
                        sink.push("\"")?;
                    }
                    other => {
                        let message = "keys must be str, int, float, bool or None, not ";
                        return Err(fail(format!("{message}{}", other.name())));
                    }
                }
                sink.push(&style.key)?;
                write(state, sink, item, style, level + 1)?;
            }
            new_line(sink, style, level)?;
            sink.push("}")
        }
        Kind::None => sink.push("null"),
        Kind::Bool(true) => sink.push("true"),
        Kind::Bool(false) => sink.push("false"),
        Kind::Int(int) => sink.push(&int.to_string()),
        Kind::Float(float) if float.is_nan() => sink.push("NaN"),
        Kind::Float(float) if float.is_infinite() => {
            sink.push(if float > 0.0 { "Infinity" } else { "-Infinity" })
        }
        Kind::Float(float) => sink.push(&float_repr(float)),
        Kind::Str(text) => string(sink, text, style.ascii),
        other @ (Kind::Undefined | Kind::Opaque) => {
            Err(fail(format!("Object of type {} is not JSON serializable", other.name())))
        }
    }
}

fn separate(sink: &mut Sink, style: &Style, level: usize, index: usize) -> Result<(), Error> {
    if index > 0 {
        sink.push(&style.item)?;
    }
    new_line(sink, style, level + 1)
}

fn new_line(sink: &mut Sink, style: &Style, level: usize) -> Result<(), Error> {
    if let Some(indent) = &style.indent {
        sink.push("\n")?;
        for _ in 0..level {
            sink.push(indent)?;
        }
    }
    Ok(())
}

fn string(sink: &mut Sink, text: &str, ascii: bool) -> Result<(), Error> {
    sink.push("\"")?;
    for c in text.chars() {
        match c {
            '"' => sink.push("\\\"")?,
            '\\' => sink.push("\\\\")?,
            '\n' => sink.push("\\n")?,
            '\r' => sink.push("\\r")?,
            '\t' => sink.push("\\t")?,
            '\x08' => sink.push("\\b")?,
            '\x0c' => sink.push("\\f")?,
            c if c < ' ' || (ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    sink.push(&format!("\\u{unit:04x}"))?;
                }
            }
            c => sink.push_char(c)?,
        }
    }
    sink.push("\"")
}
