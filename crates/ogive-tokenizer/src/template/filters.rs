//! Jinja 2's filters, those that chat templates could use. Filters on lists and dicts are in [`super::sequences`].

use std::cmp::Ordering;

use minijinja::{Environment, Error, State, Value};

use super::Builtin;
use super::arguments::{bind, integer, required};
use super::format::format_filter;
use super::json::tojson;
use super::methods::{capitalize, has, is_space, length, lines, replace, strip, title};
use super::sequences::{
    batch, dictsort, extreme, groupby, map, read_path, select, slices, sort_filter, sum, unique,
};
use super::text::{Sink, to_text, write_text};
use super::values::{Kind, charge, charge_elements, elements, fail, int_value, kind, limit};

type Outcome = Result<Value, Error>;

/// Decimals that a float can have: beyond them there are zeros, and formatting takes no more than 65535.
const MAX_PLACES: usize = 1074;

/// Registers every filter.
pub(super) fn register(
    env: &mut Environment<'static>,
    add: fn(&mut Environment<'static>, &'static str, Builtin),
) {
    let filters: [(&'static str, Builtin); 49] = [
        ("abs", |_, v, _| match (kind(v).int(), kind(v)) {
            (Some(int), _) => Ok(int_value(int.checked_abs().ok_or_else(|| limit("integer is too large"))?)),
            (_, Kind::Float(float)) => Ok(Value::from(float.abs())),
            (_, other) => Err(fail(format!("bad operand type for abs(): '{}'", other.name()))),
        }),
        ("attr", |state, v, args| {
            let [name] = bind("attr", args, ["name"])?;
            let name = required("attr", "name", name)?;
            // Attributes only: a dict's keys are items.
            match (kind(v), name.as_str()) {
                (Kind::Dict(_), Some(text)) if !has(v, text) => Ok(Value::UNDEFINED),
                _ => state.apply_filter("__attr", &[v.clone(), name]),
            }
        }),
        ("batch", batch),
        ("bool", |_, v, _| Ok(Value::from(v.is_true()))),
        ("capitalize", |state, v, _| to_text(state, v).map(|t| capitalize(&t).into())),
        ("count", |state, v, _| length(state, v)),
        ("d", default),
        ("default", default),
        ("dictsort", dictsort),
        ("e", escape),
        ("escape", escape),
        ("first", |state, v, _| Ok(elements(state, v)?.into_iter().next().unwrap_or_default())),
        ("float", |state, v, args| {
            let [default] = bind("float", args, ["default"])?;
            charge(state, v.as_str().map_or(0, str::len))?;
            let parsed = match kind(v) {
                Kind::Str(text) => parse_float(text),
                other => other.float(),
            };
            Ok(parsed.map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0)))
        }),
        ("format", format_filter),
        ("groupby", groupby),
        ("indent", indent),
        ("int", int),
        ("items", |state, v, _| match kind(v) {
            Kind::Undefined => Ok(Value::from(Vec::<Value>::new())),
            Kind::Dict(_) => state.apply_filter("__call", &[v.clone(), Value::from("items")]),
            _ => Err(fail("can only get item pairs from a mapping")),
        }),
        ("join", join),
        ("last", |state, v, _| Ok(elements(state, v)?.pop().unwrap_or_default())),
        ("length", |state, v, _| length(state, v)),
        ("list", |state, v, _| elements(state, v).map(Value::from)),
        ("lower", |state, v, _| to_text(state, v).map(|t| t.to_lowercase().into())),
        ("map", map),
        ("max", |state, v, args| extreme(state, v, args, Ordering::Greater)),
        ("min", |state, v, args| extreme(state, v, args, Ordering::Less)),
        ("reject", |state, v, args| select(state, v, args, false, false)),
        ("rejectattr", |state, v, args| select(state, v, args, true, false)),
        ("replace", |state, v, args| {
            let [old, new, count] = bind("replace", args, ["s", "new", "count"])?;
            let (old, new) = (required("replace", "s", old)?, required("replace", "new", new)?);
            let count = count.filter(|c| !c.is_none()).map_or(Ok(-1), |c| integer("replace", &c))?;
            let (text, old, new) = (to_text(state, v)?, to_text(state, &old)?, to_text(state, &new)?);
            replace(state, &text, &old, &new, count).map(Value::from)
        }),
        ("reverse", |state, v, _| match kind(v) {
            Kind::Str(text) => {
                charge(state, text.len())?;
                Ok(text.chars().rev().collect::<String>().into())
            }
            _ => {
                let mut items = elements(state, v)?;
                items.reverse();
                Ok(items.into())
            }
        }),
        ("round", round),
        ("safe", |_, v, _| Ok(v.clone())),
        ("select", |state, v, args| select(state, v, args, false, true)),
        ("selectattr", |state, v, args| select(state, v, args, true, true)),
        ("slice", slices),
        ("sort", sort_filter),
        ("string", |state, v, _| to_text(state, v).map(Value::from)),
        ("sum", sum),
        ("title", |state, v, _| {
            let separates = |c: char| is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
            to_text(state, v).map(|t| title(&t, separates).into())
        }),
        ("tojson", tojson),
        ("trim", |state, v, args| {
            let [chars] = bind("trim", args, ["chars"])?;
            let text = to_text(state, v)?;
            charge(state, chars.as_ref().and_then(Value::as_str).map_or(0, str::len))?;
            strip(&text, chars.as_ref(), true, true).map(Value::from)
        }),
        ("truncate", truncate),
        ("unique", unique),
        ("upper", |state, v, _| to_text(state, v).map(|t| t.to_uppercase().into())),
        ("wordcount", |state, v, _| {
            let text = to_text(state, v)?;
            let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty());
            Ok(Value::from(words.count()))
        }),
        ("center", |state, v, args| {
            let [width] = bind("center", args, ["width"])?;
            let text = to_text(state, v)?;
            let args = [Value::from(text), Value::from("center"), width.unwrap_or_else(|| Value::from(80))];
            state.apply_filter("__call", &args)
        }),
        ("forceescape", escape),
        ("pprint", |state, v, _| {
            let mut sink = Sink::new(state);
            super::text::write_repr(&mut sink, v)?;
            sink.finish(state).map(Value::from)
        }),
        ("striptags", |state, v, _| {
            let text = to_text(state, v)?;
            let mut out = String::new();
            let mut rest = text.as_str();
            while let Some((before, tag)) = rest.split_once('<') {
                out.push_str(before);
                rest = tag.split_once('>').map_or("", |(_, rest)| rest);
            }
            out.push_str(rest);
            Ok(out.split(is_space).filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ").into())
        }),
    ];
    for (name, filter) in filters {
        add(env, name, filter);
    }
}

fn default(_: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [default, boolean] = bind("default", args, ["default_value", "boolean"])?;
    let falsy = boolean.is_some_and(|b| b.is_true()) && !value.is_true();
    let default = default.unwrap_or_else(|| Value::from(""));
    Ok(if value.is_undefined() || falsy { default } else { value.clone() })
}

fn escape(state: &mut State<'_, '_>, value: &Value, _: &[Value]) -> Outcome {
    let text = to_text(state, value)?;
    let mut sink = Sink::new(state);
    for c in text.chars() {
        match c {
            '&' => sink.push("&amp;")?,
            '<' => sink.push("&lt;")?,
            '>' => sink.push("&gt;")?,
            '\'' => sink.push("&#39;")?,
            '"' => sink.push("&#34;")?,
            _ => sink.push_char(c)?,
        }
    }
    sink.finish(state).map(Value::from)
}

fn parse_float(text: &str) -> Option<f64> {
    text.trim_matches(is_space).replace('_', "").parse().ok()
}

/// `value|int(default=0, base=10)`: what cannot be read is the default.
fn int(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    charge(state, value.as_str().map_or(0, str::len))?;
    let [default, base] = bind("int", args, ["default", "base"])?;
    let base = base.map_or(Ok(10), |b| integer("int", &b))?;
    let base = u32::try_from(base)
        .ok()
        .filter(|b| (2..=36).contains(b))
        .ok_or_else(|| fail("int: base is not 2 to 36"))?;
    let truncated = |float: f64| (float.is_finite() && float.abs() < 1e38).then(|| float.trunc() as i128);
    let parsed = match kind(value) {
        Kind::Str(text) => {
            let plain = text.trim_matches(is_space).replace('_', "");
            let lower = plain.to_ascii_lowercase();
            let prefix = match base {
                16 => "0x",
                8 => "0o",
                2 => "0b",
                _ => "",
            };
            let digits = lower.strip_prefix(prefix).unwrap_or(&lower);
            let exact = i128::from_str_radix(digits, base).ok();
            exact.or_else(|| parse_float(text).and_then(truncated))
        }
        Kind::Float(float) => truncated(float),
        other => other.int(),
    };
    Ok(parsed.map(int_value).or(default).unwrap_or_else(|| Value::from(0)))
}

/// `value|round(precision=0, method='common')`: a float, but for an integer by the common method.
fn round(_: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [precision, method] = bind("round", args, ["precision", "method"])?;
    let precision = precision.map_or(Ok(0), |p| integer("round", &p))?;
    let method = method.as_ref().map_or("common", |m| m.as_str().unwrap_or(""));
    if let (Some(int), "common") = (kind(value).int(), method) {
        return round_int(int, precision).map(int_value);
    }
    let Some(number) = kind(value).float() else { return Err(fail("round() expects a number")) };
    let scale = 10f64.powi(i32::try_from(precision.clamp(-300, 300)).unwrap_or(0));
    let scaled = match method {
        // Python rounds the decimal value half to even: so does Rust's formatting, for a positive precision.
        "common" => {
            let places = usize::try_from(precision).unwrap_or(0).min(MAX_PLACES);
            let exact = format!("{number:.places$}").parse::<f64>().unwrap_or(number);
            return Ok(Value::from(if precision < 0 {
                (number * scale).round_ties_even() / scale
            } else {
                exact
            }));
        }
        "ceil" => (number * scale).ceil(),
        "floor" => (number * scale).floor(),
        other => return Err(fail(format!("round() method must be common, ceil or floor, not {other:?}"))),
    };
    Ok(Value::from(scaled / scale))
}

/// Rounds to a power of ten, half to even.
fn round_int(int: i128, precision: i64) -> Result<i128, Error> {
    if precision >= 0 {
        return Ok(int);
    }
    // A unit that is too large for an integer is more than twice any of them.
    let digits = u32::try_from(precision.unsigned_abs()).unwrap_or(u32::MAX);
    let Some(unit) = 10i128.checked_pow(digits) else { return Ok(0) };
    let (down, rest) = (int.div_euclid(unit), int.rem_euclid(unit));
    let up = match rest.cmp(&(unit / 2)) {
        Ordering::Less => 0,
        Ordering::Equal => down & 1,
        Ordering::Greater => 1,
    };
    (down + up).checked_mul(unit).ok_or_else(|| limit("integer is too large"))
}

fn join(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [separator, path] = bind("join", args, ["d", "attribute"])?;
    let separator = separator.map_or(Ok(String::new()), |s| to_text(state, &s))?;
    let mut items = elements(state, value)?;
    if let Some(path) = path.filter(|p| !p.is_none()) {
        items = items.iter().map(|item| read_path(state, item, &path)).collect::<Result<_, _>>()?;
    }
    let mut sink = Sink::new(state);
    for (i, item) in items.iter().enumerate() {
        sink.push(if i > 0 { &separator } else { "" })?;
        write_text(&mut sink, item)?;
    }
    sink.finish(state).map(Value::from)
}

fn indent(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [width, first, blank] = bind("indent", args, ["width", "first", "blank"])?;
    let prefix = match width.as_ref().map(kind) {
        None => "    ".to_string(),
        Some(Kind::Str(text)) => text.to_string(),
        Some(other) => match other.int() {
            Some(width) if width <= 1000 => " ".repeat(usize::try_from(width).unwrap_or(0)),
            _ => return Err(limit("indent: width is above 1000")),
        },
    };
    let is_true = |v: Option<Value>| v.is_some_and(|v| v.is_true());
    let (first, blank) = (is_true(first), is_true(blank));
    let text = to_text(state, value)?;
    let text = text + "\n";
    let lines = lines(&text, false);
    charge_elements(state, lines.len())?;
    let mut sink = Sink::new(state);
    for (i, line) in lines.into_iter().enumerate() {
        sink.push(if i > 0 { "\n" } else { "" })?;
        // The first line is asked about by itself: `blank` says nothing of it.
        if if i == 0 { first } else { blank || !line.is_empty() } {
            sink.push(&prefix)?;
        }
        sink.push(line)?;
    }
    sink.finish(state).map(Value::from)
}

fn truncate(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [length, killwords, end, leeway] = bind("truncate", args, ["length", "killwords", "end", "leeway"])?;
    let size = |value: Option<Value>, default: i64| {
        value.map_or(Ok(default), |v| integer("truncate", &v)).map(|v| usize::try_from(v).unwrap_or(0))
    };
    let (length, leeway) = (size(length, 255)?, size(leeway, 5)?);
    let end = end.map_or(Ok("...".to_string()), |e| to_text(state, &e))?;
    let text = to_text(state, value)?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text.into());
    }
    let mut cut: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    if !killwords.is_some_and(|k| k.is_true()) {
        cut.truncate(cut.rfind(' ').unwrap_or(cut.len()));
    }
    Ok((cut + &end).into())
}
