//! The operators [`super::lower`] turns expressions into, with Python's meaning.

use minijinja::{Error, State, Value};

use super::Builtin;
use super::arguments::{required, split};
use super::format::percent;
use super::methods::{bound, call_method, is_method};
use super::text::{Sink, write_text};
use super::values::{
    Kind, charge, charge_elements, charge_reading, check_plain, contains, elements, equal, fail, int_value,
    kind, limit, look_up, order, pairs, read_key,
};

type Outcome = Result<Value, Error>;

/// The operators by the names [`super::lower`] writes.
pub(super) fn operators() -> [(&'static str, Builtin); 22] {
    [
        ("__add", add),
        ("__sub", |_, a, b| arithmetic("-", a, b)),
        ("__mul", multiply),
        ("__div", |_, a, b| arithmetic("/", a, b)),
        ("__floordiv", |_, a, b| arithmetic("//", a, b)),
        ("__mod", modulo),
        ("__pow", |_, a, b| arithmetic("**", a, b)),
        ("__neg", |_, a, _| sign(a, true)),
        ("__pos", |_, a, _| sign(a, false)),
        ("__cat", concatenate),
        ("__cmp", compare),
        ("__item", item),
        ("__attr", attribute),
        ("__slice", slice),
        ("__call", |state, a, args| {
            let Some((name, rest)) = args.split_first() else {
                return Err(fail("method call without a name"));
            };
            call_method(state, a, name.as_str().unwrap_or_default(), rest)
        }),
        ("__invoke", |state, a, args| a.call(state, args)),
        ("__iter", |state, a, _| elements(state, a).map(Value::from)),
        ("__keep", keep),
        ("__key", |state, a, _| read_key(state, a).map(|()| a.clone())),
        ("__keywords", keywords),
        ("__store", |state, a, _| check_plain(state, a).map(|()| a.clone())),
        ("__text", |state, a, args| {
            charge(state, args.first().and_then(Value::as_usize).unwrap_or(0))?;
            Ok(a.clone())
        }),
    ]
}

/// A new list, dict or tuple: its elements must be plain.
pub(super) fn keep(state: &mut State<'_, '_>, a: &Value, _: &[Value]) -> Outcome {
    match kind(a) {
        Kind::List(items) | Kind::Tuple(items) => charge_elements(state, items.len())?,
        _ => {}
    }
    check_plain(state, a)?;
    Ok(a.clone())
}

/// What `**` spreads: the names of arguments.
fn keywords(state: &mut State<'_, '_>, a: &Value, _: &[Value]) -> Outcome {
    if let Kind::Dict(dict) = kind(a) {
        for (key, _) in pairs(dict) {
            charge_reading(state, key.as_str().ok_or_else(|| fail("keywords must be strings"))?)?;
        }
    }
    Ok(a.clone())
}

fn operands(b: &[Value]) -> Result<&Value, Error> {
    b.first().ok_or_else(|| fail("operator without its right operand"))
}

fn unsupported(op: &str, a: Kind<'_>, b: Kind<'_>) -> Error {
    if matches!(a, Kind::Undefined) || matches!(b, Kind::Undefined) {
        return fail(format!("operand of {op} is undefined"));
    }
    fail(format!("unsupported operand types for {op}: '{}' and '{}'", a.name(), b.name()))
}

fn too_large() -> Error {
    limit("integer is too large: values hold 127 bits")
}

/// `a + b + c + …`: strings and lists grow in place.
fn add(state: &mut State<'_, '_>, a: &Value, terms: &[Value]) -> Outcome {
    enum Sum {
        Text(String),
        List(Vec<Value>),
        Tuple(Vec<Value>),
        Other(Value),
    }
    let mut sum = match kind(a) {
        Kind::Str(text) => Sum::Text(text.to_string()),
        Kind::List(items) => Sum::List(items.to_vec()),
        Kind::Tuple(items) => Sum::Tuple(items.to_vec()),
        _ => Sum::Other(a.clone()),
    };
    match &sum {
        Sum::Text(text) => charge(state, text.len())?,
        Sum::List(items) | Sum::Tuple(items) => charge_elements(state, items.len())?,
        Sum::Other(_) => {}
    }
    for term in terms {
        match (&mut sum, kind(term)) {
            (Sum::Text(text), Kind::Str(more)) => {
                charge(state, more.len())?;
                text.push_str(more);
            }
            (Sum::List(items), Kind::List(more)) | (Sum::Tuple(items), Kind::Tuple(more)) => {
                charge_elements(state, more.len())?;
                items.extend_from_slice(more);
            }
            (Sum::Text(_), other) => {
                return Err(match other {
                    Kind::Undefined => unsupported("+", Kind::Str(""), other),
                    _ => fail(format!("can only concatenate str (not \"{}\") to str", other.name())),
                });
            }
            (Sum::List(_), other) => return Err(unsupported("+", Kind::List(&[]), other)),
            (Sum::Tuple(_), other) => return Err(unsupported("+", Kind::Tuple(&[]), other)),
            (Sum::Other(value), _) => *value = arithmetic("+", value, std::slice::from_ref(term))?,
        }
    }
    Ok(match sum {
        Sum::Text(text) => Value::from(text),
        Sum::List(items) => Value::from(items),
        Sum::Tuple(items) => Value::from(minijinja::value::Tuple::from(items)),
        Sum::Other(value) => value,
    })
}

/// Numbers: integers stay integers, a float makes all floats, `/` always does.
fn arithmetic(op: &'static str, a: &Value, b: &[Value]) -> Outcome {
    let (a, b) = (kind(a), kind(operands(b)?));
    let zero = || fail("division by zero");
    if let (Some(x), Some(y)) = (a.int(), b.int()) {
        let result = match op {
            "+" => x.checked_add(y),
            "-" => x.checked_sub(y),
            "*" => x.checked_mul(y),
            "//" | "%" if y == 0 => return Err(zero()),
            "//" => x.checked_div(y).map(|q| if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q }),
            "%" => x.checked_rem(y).map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r }),
            "**" if y >= 0 => {
                let power = u32::try_from(y).ok();
                match (x, power) {
                    (0 | 1, _) => Some(if y == 0 { 1 } else { x }),
                    (_, Some(power)) => x.checked_pow(power),
                    _ => None,
                }
            }
            _ => return float_arithmetic(op, x as f64, y as f64),
        };
        return result.map(int_value).ok_or_else(too_large);
    }
    match (a.float(), b.float()) {
        (Some(x), Some(y)) => float_arithmetic(op, x, y),
        _ => Err(unsupported(op, a, b)),
    }
}

fn float_arithmetic(op: &str, x: f64, y: f64) -> Outcome {
    let floor_mod = || {
        let r = x % y;
        if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r }
    };
    Ok(Value::from(match op {
        "+" => x + y,
        "-" => x - y,
        "*" => x * y,
        "/" | "//" | "%" if y == 0.0 => return Err(fail("division by zero")),
        "/" => x / y,
        "//" => ((x - floor_mod()) / y).round(),
        "%" => floor_mod(),
        _ => {
            let power = x.powf(y);
            if power.is_nan() && !x.is_nan() && !y.is_nan() {
                return Err(fail("power is not a real number"));
            }
            power
        }
    }))
}

fn multiply(state: &mut State<'_, '_>, a: &Value, b: &[Value]) -> Outcome {
    let b = operands(b)?;
    let (sequence, times) = match (kind(a), kind(b)) {
        (Kind::Str(_) | Kind::List(_) | Kind::Tuple(_), times) => (a, times.int()),
        (times, Kind::Str(_) | Kind::List(_) | Kind::Tuple(_)) => (b, times.int()),
        _ => return arithmetic("*", a, std::slice::from_ref(b)),
    };
    let Some(times) = times else { return Err(unsupported("*", kind(a), kind(b))) };
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    match kind(sequence) {
        Kind::Str(text) => {
            charge(state, text.len().saturating_mul(times))?;
            Ok(Value::from(if text.is_empty() { String::new() } else { text.repeat(times) }))
        }
        Kind::List(items) => {
            charge_elements(state, items.len().saturating_mul(times))?;
            Ok(Value::from(repeat(items, times)))
        }
        Kind::Tuple(items) => {
            charge_elements(state, items.len().saturating_mul(times))?;
            Ok(Value::from(minijinja::value::Tuple::from(repeat(items, times))))
        }
        other => Err(unsupported("*", other, other)),
    }
}

/// `items`, so many times; the caller has paid for the result.
fn repeat(items: &[Value], times: usize) -> Vec<Value> {
    items.iter().cycle().take(items.len().saturating_mul(times)).cloned().collect()
}

fn modulo(state: &mut State<'_, '_>, a: &Value, b: &[Value]) -> Outcome {
    let right = operands(b)?;
    match (kind(a), kind(right)) {
        (Kind::Str(text), Kind::Tuple(items)) => percent(state, text, items),
        (Kind::Str(text), _) => percent(state, text, std::slice::from_ref(right)),
        _ => arithmetic("%", a, b),
    }
}

fn sign(a: &Value, negative: bool) -> Outcome {
    match (kind(a).int(), kind(a)) {
        (Some(int), _) => {
            Ok(int_value(if negative { int.checked_neg().ok_or_else(too_large)? } else { int }))
        }
        (_, Kind::Float(float)) => Ok(Value::from(if negative { -float } else { float })),
        (_, Kind::Undefined) => Err(fail("operand of a sign is undefined")),
        (_, other) => Err(fail(format!("bad operand type for a sign: '{}'", other.name()))),
    }
}

fn concatenate(state: &mut State<'_, '_>, a: &Value, terms: &[Value]) -> Outcome {
    let mut sink = Sink::new(state);
    write_text(&mut sink, a)?;
    for term in terms {
        write_text(&mut sink, term)?;
    }
    sink.finish(state).map(Value::from)
}

/// `a < b == c in d`: pairs of operator and operand.
fn compare(state: &mut State<'_, '_>, a: &Value, rest: &[Value]) -> Outcome {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let mut left = a;
    for pair in rest.chunks_exact(2) {
        let right = &pair[1];
        let holds = match pair[0].as_str().unwrap_or_default() {
            "==" => equal(state, left, right)?,
            "!=" => !equal(state, left, right)?,
            "in" => contains(state, right, left)?,
            "not in" => !contains(state, right, left)?,
            op => {
                let found = (order(state, left, right)?, op);
                let less = matches!(found, (Some(Less), "<" | "<="));
                less || matches!(found, (Some(Greater), ">" | ">=") | (Some(Equal), "<=" | ">="))
            }
        };
        if !holds {
            return Ok(Value::from(false));
        }
        left = right;
    }
    Ok(Value::from(true))
}

/// `a[b]`: Jinja tries the element, then an attribute of that name.
fn item(state: &mut State<'_, '_>, a: &Value, b: &[Value]) -> Outcome {
    let key = operands(b)?;
    match kind(a) {
        Kind::Undefined => {
            Err(fail(format!("value with item {} is undefined", super::text::to_text(state, key)?)))
        }
        Kind::List(items) | Kind::Tuple(items) => match kind(key).int() {
            Some(index) => Ok(at(items.len(), index).and_then(|i| items.get(i)).cloned().unwrap_or_default()),
            None => attribute(state, a, b),
        },
        Kind::Str(text) => match kind(key).int() {
            Some(index) => {
                charge_reading(state, text)?;
                let found = if index >= 0 {
                    usize::try_from(index).ok().and_then(|i| text.chars().nth(i))
                } else {
                    let back = index.checked_neg().and_then(|i| usize::try_from(i - 1).ok());
                    back.and_then(|i| text.chars().rev().nth(i))
                };
                Ok(found.map_or(Value::UNDEFINED, |c| Value::from(c.to_string())))
            }
            None => attribute(state, a, b),
        },
        Kind::Dict(dict) => match (kind(key), look_up(state, dict, key)?) {
            (Kind::List(_) | Kind::Dict(_), _) | (_, None) => match kind(key) {
                Kind::Str(name) if is_method(name) => Ok(bound(a, name)),
                _ => Ok(Value::UNDEFINED),
            },
            (_, Some(value)) => Ok(value),
        },
        Kind::Opaque => Ok(a.get_item(key).unwrap_or_default()),
        _ => Ok(Value::UNDEFINED),
    }
}

/// An index from either end.
fn at(len: usize, index: i128) -> Option<usize> {
    let index = if index < 0 { index.checked_add(i128::try_from(len).ok()?)? } else { index };
    usize::try_from(index).ok()
}

/// `a.name` where a method of that name could be meant: Jinja finds methods before keys.
fn attribute(_: &mut State<'_, '_>, a: &Value, b: &[Value]) -> Outcome {
    let name = operands(b)?;
    let Some(text) = name.as_str() else { return Ok(Value::UNDEFINED) };
    match kind(a) {
        Kind::Undefined => Err(fail(format!("value with attribute '{text}' is undefined"))),
        Kind::Dict(_) | Kind::Str(_) | Kind::List(_) | Kind::Tuple(_) if super::methods::has(a, text) => {
            Ok(bound(a, text))
        }
        // The only pairs of Jinja's whose parts have names are the groups of `groupby`.
        Kind::Tuple([key, items]) if matches!(kind(items), Kind::List(_)) => Ok(match text {
            "grouper" => key.clone(),
            "list" => items.clone(),
            _ => Value::UNDEFINED,
        }),
        Kind::Dict(_) | Kind::Opaque => Ok(a.get_attr(text).unwrap_or_default()),
        _ => Ok(Value::UNDEFINED),
    }
}

/// `a[start:stop:step]` of strings, lists and tuples.
fn slice(state: &mut State<'_, '_>, a: &Value, bounds: &[Value]) -> Outcome {
    let (bounds, _) = split(bounds)?;
    let bound = |i: usize| -> Result<Option<i128>, Error> {
        let value = required("slice", "bound", bounds.get(i).cloned())?;
        match kind(&value) {
            Kind::None => Ok(None),
            other => other.int().map(Some).ok_or_else(|| fail("slice indices must be integers or None")),
        }
    };
    let (start, stop, step) = (bound(0)?, bound(1)?, bound(2)?.unwrap_or(1));
    if step == 0 {
        return Err(fail("slice step cannot be zero"));
    }
    match kind(a) {
        Kind::List(items) => {
            let picked = pick(items, start, stop, step);
            charge_elements(state, picked.len())?;
            Ok(Value::from(picked))
        }
        Kind::Tuple(items) => {
            let picked = pick(items, start, stop, step);
            charge_elements(state, picked.len())?;
            Ok(Value::from(minijinja::value::Tuple::from(picked)))
        }
        Kind::Str(text) => {
            charge(state, text.len())?;
            let chars: Vec<char> = text.chars().collect();
            Ok(Value::from(pick(&chars, start, stop, step).into_iter().collect::<String>()))
        }
        Kind::Undefined => Err(fail("sliced value is undefined")),
        // Jinja answers a failed lookup with Undefined.
        _ => Ok(Value::UNDEFINED),
    }
}

/// Python's slice: bounds are clamped, a negative step walks back.
fn pick<T: Clone>(items: &[T], start: Option<i128>, stop: Option<i128>, step: i128) -> Vec<T> {
    let len = i128::try_from(items.len()).unwrap_or(i128::MAX);
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |bound: Option<i128>, default: i128| match bound {
        None => default,
        Some(b) if b < 0 => b.saturating_add(len).clamp(low, high),
        Some(b) => b.clamp(low, high),
    };
    let mut at = clamp(start, if step > 0 { low } else { high });
    let stop = clamp(stop, if step > 0 { high } else { low });
    let mut out = Vec::new();
    while if step > 0 { at < stop } else { at > stop } {
        out.extend(usize::try_from(at).ok().and_then(|i| items.get(i)).cloned());
        at = at.saturating_add(step);
    }
    out
}
