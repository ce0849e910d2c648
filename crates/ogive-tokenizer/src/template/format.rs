//! `"…".format(…)` and `"…" % …`: the part of Python's formatting that templates use.

use minijinja::value::Kwargs;
use minijinja::{Error, State, Value};

use super::arguments::split;
use super::text::{Sink, float_repr, write_repr, write_text};
use super::values::{Kind, fail, kind, limit, look_up, new_dict};

/// Widths and precisions beyond this have no use but to fill memory.
const MAX_WIDTH: usize = 1000;

/// How one value is laid out: `[[fill]align][sign][#][0][width][,][.precision][type]`.
#[derive(Debug, Default, Clone, Copy)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    comma: bool,
    width: usize,
    precision: Option<usize>,
    conversion: Option<char>,
}

fn digits(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Option<usize>, Error> {
    let mut out = None;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        let value = out.unwrap_or(0) * 10 + digit as usize;
        if value > MAX_WIDTH {
            return Err(limit(format!("width or precision in a format is above {MAX_WIDTH}")));
        }
        out = Some(value);
        chars.next();
    }
    Ok(out)
}

impl Spec {
    fn parse(text: &str) -> Result<Self, Error> {
        let mut spec = Self::default();
        let mut chars = text.chars().peekable();
        let mut ahead = text.chars();
        let (first, second) = (ahead.next(), ahead.next());
        if matches!(second, Some('<' | '>' | '^' | '=')) {
            spec.fill = first;
            chars.next();
        }
        spec.align = chars.next_if(|c| matches!(c, '<' | '>' | '^' | '='));
        spec.sign = chars.next_if(|c| matches!(c, '+' | '-' | ' '));
        spec.alternate = chars.next_if_eq(&'#').is_some();
        if chars.next_if_eq(&'0').is_some() && spec.align.is_none() {
            spec.fill = Some('0');
            spec.align = Some('=');
        }
        spec.width = digits(&mut chars)?.unwrap_or(0);
        spec.comma = chars.next_if(|c| matches!(c, ',' | '_')).is_some();
        if chars.next_if_eq(&'.').is_some() {
            spec.precision =
                Some(digits(&mut chars)?.ok_or_else(|| fail("format specifier is missing precision"))?);
        }
        spec.conversion = chars.next();
        match (chars.next(), spec.conversion) {
            (
                None,
                None | Some('s' | 'd' | 'i' | 'f' | 'F' | 'e' | 'E' | 'x' | 'X' | 'o' | 'b' | '%' | 'c'),
            ) => Ok(spec),
            _ => Err(fail(format!("format specifier {text:?} is not supported"))),
        }
    }

    fn write(self, state: &mut State<'_, '_>, sink: &mut Sink, value: &Value) -> Result<(), Error> {
        let wrong =
            || fail(format!("format code for object of type '{}' is not possible", kind(value).name()));
        let (negative, body) = match (self.conversion, kind(value)) {
            (None, Kind::Str(_) | Kind::Bool(_)) | (Some('s'), _) => {
                return self.write_str(state, sink, value);
            }
            (None, Kind::Int(_)) | (Some('d' | 'i' | 'x' | 'X' | 'o' | 'b'), _) => {
                let int = match kind(value) {
                    // Only `%d` takes a float, and cuts it.
                    Kind::Float(float) if self.conversion == Some('i') && float.is_finite() => {
                        float.trunc() as i128
                    }
                    other => other.int().ok_or_else(wrong)?,
                };
                (int < 0, self.integer(int.unsigned_abs()))
            }
            (Some('c'), _) => {
                let code = kind(value).int().and_then(|i| u32::try_from(i).ok()).and_then(char::from_u32);
                (false, code.ok_or_else(wrong)?.to_string())
            }
            (None, Kind::Float(float)) if self.precision.is_none() => {
                (float.is_sign_negative(), float_repr(float.abs()))
            }
            (Some('f' | 'F' | 'e' | 'E' | '%'), _) | (None, Kind::Float(_)) => {
                let float = kind(value).float().ok_or_else(wrong)?;
                (float.is_sign_negative(), self.float(float.abs())?)
            }
            _ if self.width == 0 && self.align.is_none() => return self.write_str(state, sink, value),
            _ => return Err(wrong()),
        };
        let body = if self.comma { group(&body) } else { body };
        let sign = match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        };
        self.pad(sink, sign, &body, '>')
    }

    fn write_str(self, state: &mut State<'_, '_>, sink: &mut Sink, value: &Value) -> Result<(), Error> {
        let mut text = super::text::to_text(state, value)?;
        if let Some(precision) = self.precision {
            text = text.chars().take(precision).collect();
        }
        self.pad(sink, "", &text, '<')
    }

    fn integer(self, int: u128) -> String {
        let prefix =
            |prefix: &str, text: String| if self.alternate { format!("{prefix}{text}") } else { text };
        match self.conversion {
            Some('x') => prefix("0x", format!("{int:x}")),
            Some('X') => prefix("0X", format!("{int:X}")),
            Some('o') => prefix("0o", format!("{int:o}")),
            Some('b') => prefix("0b", format!("{int:b}")),
            _ => int.to_string(),
        }
    }

    fn float(self, float: f64) -> Result<String, Error> {
        if !float.is_finite() {
            return Ok(float_repr(float));
        }
        let precision = self.precision.unwrap_or(6);
        Ok(match self.conversion {
            Some('f' | 'F') => format!("{float:.precision$}"),
            Some('%') => format!("{:.precision$}%", float * 100.0),
            Some(e @ ('e' | 'E')) => {
                let text = format!("{float:.precision$e}");
                let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
                let power: i32 = power.parse().unwrap_or(0);
                format!("{mantissa}{e}{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
            }
            _ => return Err(fail("float format with a precision needs a type: f, e or %")),
        })
    }

    fn pad(self, sink: &mut Sink, sign: &str, body: &str, default: char) -> Result<(), Error> {
        let missing = self.width.saturating_sub(sign.len() + body.chars().count());
        let fill = self.fill.unwrap_or(' ');
        let (before, between, after) = match self.align.unwrap_or(default) {
            '<' => (0, 0, missing),
            '^' => (missing / 2, 0, missing - missing / 2),
            '=' => (0, missing, 0),
            _ => (missing, 0, 0),
        };
        let repeat = |sink: &mut Sink, count: usize| (0..count).try_for_each(|_| sink.push_char(fill));
        repeat(sink, before)?;
        sink.push(sign)?;
        repeat(sink, between)?;
        sink.push(body)?;
        repeat(sink, after)
    }
}

/// `1234567.5` as `1,234,567.5`.
fn group(number: &str) -> String {
    let whole = number.bytes().take_while(u8::is_ascii_digit).count();
    let mut out = String::new();
    for (i, c) in number.chars().enumerate() {
        if i > 0 && i < whole && (whole - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `text.format(*args, **kwargs)`.
pub(super) fn str_format(state: &mut State<'_, '_>, text: &str, args: &[Value]) -> Result<Value, Error> {
    let (positional, keywords) = split(args)?;
    let mut sink = Sink::new(state);
    let mut next = 0;
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        sink.push(&rest[..at])?;
        let tail = &rest[at..];
        if tail.starts_with("{{") || tail.starts_with("}}") {
            sink.push(&tail[..1])?;
            rest = &tail[2..];
            continue;
        }
        let Some(end) = tail.find('}').filter(|end| *end > 0) else {
            return Err(fail("single '{' or '}' in a format string"));
        };
        let field = &tail[1..end];
        rest = &tail[end + 1..];
        let (field, spec) = field.split_once(':').unwrap_or((field, ""));
        if spec.contains('{') {
            return Err(fail("nested fields in a format string are not supported"));
        }
        let (name, conversion) = field.split_once('!').map_or((field, ""), |(name, c)| (name, c));
        let value = lookup(state, name, &mut next, positional, &keywords)?;
        match conversion {
            "" => Spec::parse(spec)?.write(state, &mut sink, &value)?,
            "s" => Spec::parse(spec)?.write_str(state, &mut sink, &value)?,
            "r" => {
                let mut repr = Sink::new(state);
                write_repr(&mut repr, &value)?;
                let repr = Value::from(repr.finish(state)?);
                Spec::parse(spec)?.write_str(state, &mut sink, &repr)?;
            }
            _ => return Err(fail(format!("conversion {conversion:?} in a format string is not supported"))),
        }
    }
    sink.push(rest)?;
    sink.finish(state).map(Value::from)
}

/// The value of `{}`, `{0}`, `{name}`, each with `.attributes` and `[items]`.
fn lookup(
    state: &mut State<'_, '_>,
    path: &str,
    next: &mut usize,
    positional: &[Value],
    keywords: &Kwargs,
) -> Result<Value, Error> {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (head, mut tail) = path.split_at(end);
    let mut value = if head.is_empty() || head.bytes().all(|b| b.is_ascii_digit()) {
        let index = if head.is_empty() { *next } else { head.parse().unwrap_or(usize::MAX) };
        *next += usize::from(head.is_empty());
        positional.get(index).cloned().ok_or_else(|| fail(format!("format field {index} has no argument")))?
    } else {
        keywords.peek::<Value>(head).map_err(|_| fail(format!("format field {head:?} has no argument")))?
    };
    while !tail.is_empty() {
        let (key, rest) = if let Some(inner) = tail.strip_prefix('[') {
            inner.split_once(']').ok_or_else(|| fail("missing ']' in a format string"))?
        } else {
            let inner = &tail[1..];
            inner.split_at(inner.find(['.', '[']).unwrap_or(inner.len()))
        };
        let key = key.parse::<i64>().map_or_else(|_| Value::from(key), Value::from);
        value = state.apply_filter("__item", &[value, key])?;
        tail = rest;
        if !tail.is_empty() && !tail.starts_with(['.', '[']) {
            return Err(fail("only '.' or '[' may follow ']' in a format string"));
        }
    }
    Ok(value)
}

/// `text % args`: `%s`, `%r`, `%d`, `%x`, `%f` and their kin, also `%(name)s`.
pub(super) fn percent(state: &mut State<'_, '_>, text: &str, args: &[Value]) -> Result<Value, Error> {
    let mut sink = Sink::new(state);
    let mut next = args.iter();
    let mut named = false;
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        sink.push(&rest[..at])?;
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix('%') {
            sink.push("%")?;
            rest = tail;
            continue;
        }
        let mut value = None;
        if let Some(tail) = rest.strip_prefix('(') {
            let (key, tail) = tail.split_once(')').ok_or_else(|| fail("incomplete format key"))?;
            let Some(Kind::Dict(dict)) = args.first().map(kind) else {
                return Err(fail("format requires a mapping"));
            };
            let found = look_up(state, dict, &Value::from(key))?;
            value = Some(found.ok_or_else(|| fail(format!("format key {key:?} is missing")))?);
            named = true;
            rest = tail;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(|| fail("incomplete format"))?;
        let (flags, conversion) = (&rest[..end], &rest[end..=end]);
        rest = &rest[end + 1..];
        let value = match value.or_else(|| next.next().cloned()) {
            Some(value) => value,
            None => return Err(fail("not enough arguments for format string")),
        };
        let left = flags.contains('-');
        let flags = flags.replace('-', if left { "<" } else { "" });
        match conversion {
            "s" => Spec::parse(&align_right(&flags, left, "s"))?.write_str(state, &mut sink, &value)?,
            "r" => {
                let mut repr = Sink::new(state);
                write_repr(&mut repr, &value)?;
                let repr = Value::from(repr.finish(state)?);
                Spec::parse(&align_right(&flags, left, "s"))?.write_str(state, &mut sink, &repr)?;
            }
            "d" | "i" | "u" => Spec::parse(&format!("{flags}i"))?.write(state, &mut sink, &value)?,
            _ => Spec::parse(&format!("{flags}{conversion}"))?.write(state, &mut sink, &value)?,
        }
    }
    sink.push(rest)?;
    if !named && next.next().is_some() {
        return Err(fail("not all arguments converted during string formatting"));
    }
    sink.finish(state).map(Value::from)
}

/// `%5s` pads on the left, unlike `{:5s}`.
fn align_right(flags: &str, left: bool, conversion: &str) -> String {
    if left { format!("{flags}{conversion}") } else { format!(">{flags}{conversion}") }
}

/// `value|format(*args)`: the filter's name for `%`.
pub(super) fn format_filter(
    state: &mut State<'_, '_>,
    value: &Value,
    args: &[Value],
) -> Result<Value, Error> {
    let (positional, keywords) = split(args)?;
    let mut sink = Sink::new(state);
    write_text(&mut sink, value)?;
    let text = sink.finish(state)?;
    if positional.is_empty() && keywords.args().next().is_some() {
        let dict = keywords.args().map(|k| Ok((Value::from(k), keywords.peek::<Value>(k)?)));
        let dict = dict.collect::<Result<_, Error>>()?;
        let dict = new_dict(state, dict)?;
        return percent(state, &text, &[dict]);
    }
    percent(state, &text, positional)
}
