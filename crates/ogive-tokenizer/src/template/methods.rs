//! Methods of Python's str, list, tuple and dict, those that change nothing.
//!
//! transformers renders in a sandbox that forbids methods which change their object, so `list.append` and its kin are
//! errors here too, not omissions.

use std::sync::Arc;

use minijinja::value::{Object, Tuple};
use minijinja::{Error, State, Value};

use super::arguments::{bind, integer, required, split as split_arguments, string};
use super::characters;
use super::format::str_format;
use super::search::{NAMES, bounds, search};
use super::text::{Sink, write_text};
use super::values::{
    Kind, charge, charge_elements, charge_reading, dict_len, elements, equal, fail, int_value, kind, look_up,
    new_dict, pairs, read_whole,
};

const STR: [&str; 37] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
];
const STR_MORE: [&str; 3] = ["title", "upper", "zfill"];
const DICT: [&str; 5] = ["copy", "get", "items", "keys", "values"];
const LIST: [&str; 3] = ["copy", "count", "index"];
/// Methods that change their object: known, and refused.
const CHANGING: [&str; 12] = [
    "append",
    "clear",
    "extend",
    "fromkeys",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
];

/// Whether any kind of value has a method of this name.
pub(super) fn is_method(name: &str) -> bool {
    [&STR[..], &STR_MORE, &DICT, &LIST, &CHANGING].iter().any(|names| names.contains(&name))
}

/// Whether `value` has a method of this name.
pub(super) fn has(value: &Value, name: &str) -> bool {
    match kind(value) {
        Kind::Str(_) => STR.contains(&name) || STR_MORE.contains(&name),
        Kind::Dict(_) => DICT.contains(&name),
        Kind::List(_) => LIST.contains(&name),
        Kind::Tuple(_) => matches!(name, "count" | "index"),
        _ => false,
    }
}

/// A method that was read and not called, as `schema.items` is by mistake.
#[derive(Debug)]
struct Bound {
    value: Value,
    name: String,
}

impl Object for Bound {
    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        call_method(state, &self.value, &self.name, args)
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

pub(super) fn bound(value: &Value, name: &str) -> Value {
    Value::from_object(Bound { value: value.clone(), name: name.to_string() })
}

/// `value.name(args)`.
pub(super) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if has(value, name) {
        return match kind(value) {
            Kind::Str(text) => str_method(state, text, name, args),
            Kind::Dict(_) => dict_method(state, value, name, args),
            _ => list_method(state, value, name, args),
        };
    }
    match kind(value) {
        Kind::Undefined => Err(fail(format!("value with method '{name}' is undefined"))),
        // minijinja's loop divides by their number, and compares them without counting.
        Kind::Opaque if name == "cycle" && split_arguments(args)?.0.is_empty() => {
            Err(fail("no items for cycling given"))
        }
        Kind::Opaque => {
            if name == "changed" {
                args.iter().try_for_each(|arg| read_whole(state, arg).map(drop))?;
            }
            value.call_method(state, name, args)
        }
        Kind::Dict(_) | Kind::List(_) if CHANGING.contains(&name) => {
            Err(fail(format!("access to attribute '{name}' of '{}' is unsafe", kind(value).name())))
        }
        Kind::Dict(dict) => match dict.get_value(&Value::from(name)) {
            Some(function) => function.call(state, args),
            None => Err(fail(format!("'dict' object has no attribute '{name}'"))),
        },
        other => Err(fail(format!("'{}' object has no attribute '{name}'", other.name()))),
    }
}

fn dict_method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Kind::Dict(dict) = kind(value) else { return Err(fail("not a dict")) };
    if name == "get" {
        let [key, default] = bind(name, args, ["key", "default"])?;
        let key = required(name, "key", key)?;
        if matches!(kind(&key), Kind::List(_) | Kind::Dict(_)) {
            return Err(fail(format!("unhashable type: '{}'", kind(&key).name())));
        }
        return Ok(look_up(state, dict, &key)?.or(default).unwrap_or_else(|| Value::from(())));
    }
    let [] = bind(name, args, [])?;
    charge_elements(state, dict_len(dict).saturating_mul(2))?;
    Ok(match name {
        "items" => pairs(dict).map(|(k, v)| Value::from(Tuple::from([k, v]))).collect::<Vec<_>>().into(),
        "keys" => pairs(dict).map(|(k, _)| k).collect::<Vec<_>>().into(),
        "values" => pairs(dict).map(|(_, v)| v).collect::<Vec<_>>().into(),
        _ => new_dict(state, pairs(dict).collect())?,
    })
}

fn list_method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (Kind::List(items) | Kind::Tuple(items)) = kind(value) else { return Err(fail("not a list")) };
    if name == "copy" {
        let [] = bind(name, args, [])?;
        return elements(state, value).map(Value::from);
    }
    let [wanted, start, end] = bind(name, args, ["value", "start", "stop"])?;
    if name == "count" && start.is_some() {
        return Err(fail("count() takes one argument"));
    }
    let wanted = required(name, "value", wanted)?;
    let (start, end) = bounds(items.len(), start.as_ref(), end.as_ref())?.unwrap_or((0, 0));
    let mut count = 0;
    for (i, item) in items.iter().enumerate().take(end).skip(start) {
        if equal(state, item, &wanted)? {
            if name == "index" {
                return Ok(Value::from(i));
            }
            count += 1;
        }
    }
    if name == "index" { Err(fail("value is not in list")) } else { Ok(Value::from(count)) }
}

fn str_method(state: &mut State<'_, '_>, text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    if NAMES.contains(&name) {
        return search(state, text, name, args);
    }
    // What copies pays for the copy (upper case can be three times as long), and what asks of
    // every character takes as much time.
    let cost = match name {
        "join" | "format" => 0,
        "isascii" => text.len() / 16,
        "istitle" => text.len().saturating_mul(2),
        _ => text.len(),
    };
    charge(state, cost.saturating_add(16))?;
    let all = |test: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(test));
    Ok(match name {
        "format" => return str_format(state, text, args),
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = bind(name, args, ["chars"])?;
            let (start, end) = (name != "rstrip", name != "lstrip");
            charge(state, chars.as_ref().and_then(Value::as_str).map_or(0, str::len))?;
            return strip(text, chars.as_ref(), start, end).map(Value::from);
        }
        "split" | "rsplit" => {
            let [separator, limit] = bind(name, args, ["sep", "maxsplit"])?;
            let limit = limit.map_or(Ok(-1), |l| integer(name, &l))?;
            let parts = split(text, separator.as_ref(), usize::try_from(limit).ok(), name == "rsplit")?;
            charge_elements(state, parts.len())?;
            parts.into_iter().map(Value::from).collect::<Vec<_>>().into()
        }
        "splitlines" => {
            let [keep] = bind(name, args, ["keepends"])?;
            let lines = lines(text, keep.is_some_and(|k| k.is_true()));
            charge_elements(state, lines.len())?;
            lines.into_iter().map(Value::from).collect::<Vec<_>>().into()
        }
        "partition" | "rpartition" => {
            let [separator] = bind(name, args, ["sep"])?;
            let separator = required(name, "sep", separator)?;
            let separator = nonempty(name, &separator)?;
            let found =
                if name == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match (found, name) {
                (Some((a, b)), _) => [a, separator, b],
                (None, "partition") => [text, "", ""],
                (None, _) => ["", "", text],
            };
            Tuple::from(parts.map(Value::from)).into()
        }
        "replace" => {
            let [old, new, count] = bind(name, args, ["old", "new", "count"])?;
            let (old, new) = (required(name, "old", old)?, required(name, "new", new)?);
            let count = count.map_or(Ok(-1), |c| integer(name, &c))?;
            return replace(state, text, string(name, &old)?, string(name, &new)?, count).map(Value::from);
        }
        "join" => {
            let [items] = bind(name, args, ["iterable"])?;
            let items = elements(state, &required(name, "iterable", items)?)?;
            let mut sink = Sink::new(state);
            for (i, item) in items.iter().enumerate() {
                sink.push(if i > 0 { text } else { "" })?;
                string("join", item)?;
                write_text(&mut sink, item)?;
            }
            return sink.finish(state).map(Value::from);
        }
        "removeprefix" | "removesuffix" => {
            let [affix] = bind(name, args, ["affix"])?;
            let affix = required(name, "affix", affix)?;
            let affix = string(name, &affix)?;
            let cut =
                if name == "removeprefix" { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
            Value::from(cut.unwrap_or(text))
        }
        "center" | "ljust" | "rjust" | "zfill" => return pad(state, text, name, args),
        _ => {
            let [] = bind(name, args, [])?;
            let cased = |c: char| c.is_uppercase() || c.is_lowercase();
            match name {
                "upper" => text.to_uppercase().into(),
                "lower" => text.to_lowercase().into(),
                "casefold" => text.chars().map(characters::folded).collect::<String>().into(),
                "capitalize" => capitalize(text).into(),
                "title" => title(text, |c| !c.is_alphabetic()).into(),
                "swapcase" => {
                    let swap = |c: char| -> String {
                        if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
                    };
                    text.chars().map(swap).collect::<String>().into()
                }
                "isalnum" => all(|c| characters::is_letter(c) || c.is_numeric()),
                "isalpha" => all(characters::is_letter),
                "isascii" => text.is_ascii().into(),
                "isdecimal" => all(characters::is_decimal),
                "isdigit" => all(characters::is_digit),
                "isnumeric" => all(char::is_numeric),
                "isspace" => all(is_space),
                "islower" => (text.chars().any(cased) && !text.chars().any(char::is_uppercase)).into(),
                "isupper" => (text.chars().any(cased) && !text.chars().any(char::is_lowercase)).into(),
                "istitle" => (text.chars().any(cased) && title(text, |c| !c.is_alphabetic()) == text).into(),
                _ => return Err(fail(format!("'str' object has no attribute '{name}'"))),
            }
        }
    })
}

/// What Python's `str.isspace` and `str.strip` take for white space: more than Unicode's property by four separators.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

fn nonempty<'v>(name: &str, separator: &'v Value) -> Result<&'v str, Error> {
    let separator = string(name, separator)?;
    if separator.is_empty() { Err(fail("empty separator")) } else { Ok(separator) }
}

/// Cuts white space, or the characters given, from the ends.
pub(super) fn strip<'t>(
    text: &'t str,
    chars: Option<&Value>,
    start: bool,
    end: bool,
) -> Result<&'t str, Error> {
    let given: Option<Vec<char>> = match chars.map(|c| (kind(c), c)) {
        None | Some((Kind::None, _)) => None,
        Some((_, chars)) => {
            let mut set: Vec<char> = string("strip", chars)?.chars().collect();
            set.sort_unstable();
            set.dedup();
            Some(set)
        }
    };
    let cut = |c: char| given.as_ref().map_or_else(|| is_space(c), |set| set.binary_search(&c).is_ok());
    let text = if start { text.trim_start_matches(cut) } else { text };
    Ok(if end { text.trim_end_matches(cut) } else { text })
}

fn split<'t>(
    text: &'t str,
    separator: Option<&Value>,
    limit: Option<usize>,
    right: bool,
) -> Result<Vec<&'t str>, Error> {
    let limit = limit.unwrap_or(usize::MAX).saturating_add(1);
    let mut parts: Vec<&str> = match separator.filter(|s| !s.is_none()) {
        Some(separator) => {
            let separator = nonempty("split", separator)?;
            if right {
                text.rsplitn(limit, separator).collect()
            } else {
                text.splitn(limit, separator).collect()
            }
        }
        // Runs of white space separate; at the far end of a rest that was not split it stays.
        None => {
            let mut parts = Vec::new();
            let mut rest =
                if right { text.trim_end_matches(is_space) } else { text.trim_start_matches(is_space) };
            while !rest.is_empty() {
                let at = if parts.len() + 1 >= limit {
                    None
                } else if right {
                    rest.rfind(is_space)
                } else {
                    rest.find(is_space)
                };
                let Some(at) = at else {
                    parts.push(rest);
                    break;
                };
                if right {
                    parts.push(rest[at..].trim_start_matches(is_space));
                    rest = rest[..at].trim_end_matches(is_space);
                } else {
                    parts.push(&rest[..at]);
                    rest = rest[at..].trim_start_matches(is_space);
                }
            }
            parts
        }
    };
    if right {
        parts.reverse();
    }
    Ok(parts)
}

/// Python's `splitlines`, which knows more line ends than `\n`.
pub(super) fn lines(text: &str, keep: bool) -> Vec<&str> {
    let ends = ['\n', '\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let tail = &rest[at..];
        let end = if tail.starts_with("\r\n") { 2 } else { tail.chars().next().map_or(1, char::len_utf8) };
        out.push(&rest[..if keep { at + end } else { at }]);
        rest = &tail[end..];
    }
    if !rest.is_empty() {
        out.push(rest);
    }
    out
}

pub(super) fn replace(
    state: &mut State<'_, '_>,
    text: &str,
    old: &str,
    new: &str,
    count: i64,
) -> Result<String, Error> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let hits = text.matches(old).count().min(count);
    charge(state, text.len().saturating_add(new.len().saturating_mul(hits)))?;
    Ok(if count == usize::MAX { text.replace(old, new) } else { text.replacen(old, new, count) })
}

pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    first + &chars.as_str().to_lowercase()
}

/// Upper case after every character that `separates`, lower case elsewhere.
pub(super) fn title(text: &str, separates: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut start = true;
    for c in text.chars() {
        if start {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        start = separates(c);
    }
    out
}

fn pad(state: &mut State<'_, '_>, text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let [width, fill] = bind(name, args, ["width", "fillchar"])?;
    let width = usize::try_from(integer(name, &required(name, "width", width)?)?).unwrap_or(0);
    let fill = match (&fill, name) {
        (Some(fill), "center" | "ljust" | "rjust") => string(name, fill)?,
        (_, "zfill") => "0",
        _ => " ",
    };
    if fill.chars().count() != 1 {
        return Err(fail("the fill character must be exactly one character long"));
    }
    let missing = width.saturating_sub(text.chars().count());
    charge(state, missing.saturating_mul(fill.len()))?;
    // Python gives the odd space to the left if the width is odd too.
    let left = match name {
        "ljust" => 0,
        "center" => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let sign =
        if name == "zfill" { text.len() - text.trim_start_matches(['-', '+']).len() } else { 0 }.min(1);
    let (sign, body) = text.split_at(sign);
    Ok(Value::from(format!("{sign}{}{body}{}", fill.repeat(left), fill.repeat(missing - left))))
}

/// Python's `len`.
pub(super) fn length(state: &mut State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let count = match kind(value) {
        Kind::Undefined => 0,
        Kind::Str(text) => {
            charge_reading(state, text)?;
            text.chars().count()
        }
        Kind::List(items) | Kind::Tuple(items) => items.len(),
        Kind::Dict(dict) => dict_len(dict),
        other => return Err(fail(format!("object of type '{}' has no len()", other.name()))),
    };
    Ok(int_value(i128::try_from(count).unwrap_or(i128::MAX)))
}
