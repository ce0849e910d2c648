//! What a template's value is in Python's terms, and the budget every operation on values draws on.
//!
//! minijinja's kinds are wider than Python's (a namespace looks like a dict, a lazy iterable like a list). Only the
//! plain kinds here may be stored inside others: then no value can contain itself, none is deeper than
//! [`MAX_DEPTH`], and walking, printing, comparing and dropping one is safe.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::OnceLock;

use minijinja::value::{DynObject, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Levels of lists and dicts in one value, of the variables too.
pub(super) const MAX_DEPTH: usize = 64;
/// Bytes that one rendering may produce, all intermediate values together. A conversation of a megabyte passes some
/// twenty operations; a list of four thousand messages that is built one by one (`list + [message]`) takes 200 MB.
const BUDGET: usize = 256 << 20;
/// Bytes that one operation may take of it: well beyond the longest context there is.
const SINGLE: usize = 32 << 20;
/// What one element of a list or dict costs beside its contents.
const ELEMENT: usize = 24;

/// What looking at one pair of values costs: time is drawn on the same budget as memory.
const COMPARISON: usize = 32;
/// Readings of a text that cost as much as one copy.
const READINGS: usize = 16;

/// Why a rendering was stopped, carried as the source of a minijinja error.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    #[error("{0}")]
    Raised(String),
    #[error("{0}")]
    Limit(String),
}

/// An error of an operation: what Python would call a `TypeError` or `ValueError`.
pub(super) fn fail(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

pub(super) fn limit(message: impl Into<String>) -> Error {
    let message = message.into();
    fail(message.clone()).with_source(Stop::Limit(message))
}

pub(super) fn raised(message: String) -> Error {
    fail(message.clone()).with_source(Stop::Raised(message))
}

#[derive(Debug)]
struct Meter {
    left: usize,
}

/// Bytes that the next operation may take.
pub(super) fn room(state: &mut State<'_, '_>) -> usize {
    (*budget(state)).min(SINGLE)
}

/// Bytes this rendering may still produce.
fn budget<'a>(state: &'a mut State<'_, '_>) -> &'a mut usize {
    &mut state.get_or_insert_extension_with(|| Meter { left: BUDGET }).left
}

/// Takes `bytes` from the budget.
pub(super) fn charge(state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
    let left = budget(state);
    if bytes > SINGLE {
        return Err(limit(format!("one operation of the template produces more than {} MiB", SINGLE >> 20)));
    }
    *left = left.checked_sub(bytes).ok_or_else(|| {
        limit(format!("template produces more than {} MiB of values and text", BUDGET >> 20))
    })?;
    Ok(())
}

/// Takes the cost of reading a text from the budget, a sixteenth of a copy: time is drawn on the same budget as memory.
pub(super) fn charge_reading(state: &mut State<'_, '_>, text: &str) -> Result<(), Error> {
    charge(state, text.len() / READINGS)
}

/// Takes the cost of a list or dict of `count` elements from the budget.
pub(super) fn charge_elements(state: &mut State<'_, '_>, count: usize) -> Result<(), Error> {
    charge(state, count.saturating_mul(ELEMENT))
}

/// A value by Python's kinds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind<'v> {
    Undefined,
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(&'v str),
    List(&'v [Value]),
    Tuple(&'v [Value]),
    Dict(&'v DynObject),
    /// Macros, namespaces, loops and functions: can be called or read, not stored in other values.
    Opaque,
}

/// The type behind minijinja's own dicts, which it does not name.
fn dict_type() -> &'static str {
    static NAME: OnceLock<&'static str> = OnceLock::new();
    NAME.get_or_init(|| {
        let dict = Value::from_pairs([("", Value::from(()))]);
        dict.as_object().map_or("", DynObject::type_name)
    })
}

pub(super) fn kind(value: &Value) -> Kind<'_> {
    match value.kind() {
        ValueKind::Undefined => Kind::Undefined,
        ValueKind::None => Kind::None,
        ValueKind::Bool => Kind::Bool(value.is_true()),
        ValueKind::Number if value.is_integer() => match i128::try_from(value.clone()) {
            Ok(int) => Kind::Int(int),
            Err(_) => Kind::Opaque,
        },
        ValueKind::Number => f64::try_from(value.clone()).map_or(Kind::Opaque, Kind::Float),
        ValueKind::String => value.as_str().map_or(Kind::Opaque, Kind::Str),
        _ => {
            let Some(object) = value.as_object() else { return Kind::Opaque };
            if let Some(list) = object.downcast_ref::<Vec<Value>>() {
                Kind::List(list)
            } else if let Some(tuple) = object.downcast_ref::<Tuple>() {
                Kind::Tuple(tuple)
            } else if object.type_name() == dict_type() {
                Kind::Dict(object)
            } else {
                Kind::Opaque
            }
        }
    }
}

impl Kind<'_> {
    /// Python's name of the type, for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Undefined => "Undefined",
            Kind::None => "NoneType",
            Kind::Bool(_) => "bool",
            Kind::Int(_) => "int",
            Kind::Float(_) => "float",
            Kind::Str(_) => "str",
            Kind::List(_) => "list",
            Kind::Tuple(_) => "tuple",
            Kind::Dict(_) => "dict",
            Kind::Opaque => "object",
        }
    }

    /// Bools are integers in Python.
    pub(super) fn int(self) -> Option<i128> {
        match self {
            Kind::Int(int) => Some(int),
            Kind::Bool(b) => Some(i128::from(b)),
            _ => None,
        }
    }

    pub(super) fn float(self) -> Option<f64> {
        match self {
            Kind::Float(float) => Some(float),
            // Rounds to nearest, as Python does.
            other => other.int().map(|int| int as f64),
        }
    }
}

/// The pairs of a dict, in insertion order.
pub(super) fn pairs(dict: &DynObject) -> impl Iterator<Item = (Value, Value)> + '_ {
    dict.try_iter_pairs().into_iter().flatten()
}

pub(super) fn dict_len(dict: &DynObject) -> usize {
    dict.enumerator_len().unwrap_or(0)
}

/// What a dict has under a key, which is read for it.
pub(super) fn look_up(
    state: &mut State<'_, '_>,
    dict: &DynObject,
    key: &Value,
) -> Result<Option<Value>, Error> {
    Ok(if read_whole(state, key)? { dict.get_value(key) } else { None })
}

/// A dict, whose keys are read for it.
pub(super) fn new_dict(state: &mut State<'_, '_>, pairs: Vec<(Value, Value)>) -> Result<Value, Error> {
    for (key, _) in &pairs {
        read_key(state, key)?;
    }
    Ok(Value::from_pairs(pairs))
}

/// Pays for reading a key, and refuses what is none.
pub(super) fn read_key(state: &mut State<'_, '_>, key: &Value) -> Result<(), Error> {
    if read_whole(state, key)? {
        return Ok(());
    }
    Err(fail(format!("unhashable type: '{}'", kind(key).name())))
}

/// Pays for reading a value to its last leaf, as hashing and comparing do in minijinja: `(t, t)`, thirty times over, has a
/// billion of them. Tells whether the value can be a key: no list, dict or macro is in it.
pub(super) fn read_whole(state: &mut State<'_, '_>, value: &Value) -> Result<bool, Error> {
    charge(state, COMPARISON)?;
    let object = match kind(value) {
        Kind::Str(text) => return charge_reading(state, text).map(|()| true),
        Kind::List(items) | Kind::Tuple(items) => {
            let mut key = matches!(kind(value), Kind::Tuple(_));
            for item in items {
                key &= read_whole(state, item)?;
            }
            return Ok(key);
        }
        Kind::Dict(dict) => Some(dict),
        Kind::Opaque => value.as_object(),
        _ => return Ok(true),
    };
    for (_, item) in object.into_iter().flat_map(pairs) {
        read_whole(state, &item)?;
    }
    Ok(false)
}

/// Small integers in minijinja's usual form.
pub(super) fn int_value(int: i128) -> Value {
    i64::try_from(int).map_or_else(|_| Value::from(int), Value::from)
}

/// What `for` and `list()` see: the elements of a value, or Python's error.
pub(super) fn elements(state: &mut State<'_, '_>, value: &Value) -> Result<Vec<Value>, Error> {
    match kind(value) {
        Kind::Undefined => Ok(Vec::new()),
        Kind::List(items) | Kind::Tuple(items) => {
            charge_elements(state, items.len())?;
            Ok(items.to_vec())
        }
        Kind::Dict(dict) => {
            charge_elements(state, dict_len(dict))?;
            Ok(pairs(dict).map(|(key, _)| key).collect())
        }
        Kind::Str(text) => {
            charge_elements(state, text.chars().count())?;
            Ok(text.chars().map(|c| Value::from(c.to_string())).collect())
        }
        other => Err(fail(format!("'{}' object is not iterable", other.name()))),
    }
}

/// Checks that a value may be stored in another, and pays for looking.
pub(super) fn check_plain(state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let height = height(state, value, &mut HashMap::new())?;
    if height > MAX_DEPTH {
        return Err(limit(format!("value is nested more than {MAX_DEPTH} levels deep")));
    }
    Ok(())
}

/// Levels of lists and dicts. What is inside was checked when it was stored, so this is not deeper than the stack.
/// Lists are remembered: `[l, l]`, thirty times over, has a billion leaves and thirty lists.
fn height(
    state: &mut State<'_, '_>,
    value: &Value,
    seen: &mut HashMap<usize, usize>,
) -> Result<usize, Error> {
    let mut tallest = 0;
    match kind(value) {
        Kind::List(items) | Kind::Tuple(items) => {
            charge(state, items.len().saturating_mul(2))?;
            let address = items.as_ptr().addr();
            if let Some(height) = seen.get(&address) {
                return Ok(*height);
            }
            for item in items {
                tallest = tallest.max(height(state, item, seen)?);
            }
            if !items.is_empty() {
                seen.insert(address, tallest + 1);
            }
        }
        Kind::Dict(dict) => {
            charge(state, dict_len(dict).saturating_mul(16))?;
            for (key, item) in pairs(dict) {
                if matches!(kind(&key), Kind::List(_) | Kind::Dict(_) | Kind::Opaque) {
                    return Err(fail(format!("unhashable type: '{}'", kind(&key).name())));
                }
                tallest = tallest.max(height(state, &item, seen)?);
            }
        }
        Kind::Opaque => {
            return Err(fail(
                "macros, namespaces and loops cannot be stored in lists, dicts or namespaces here",
            ));
        }
        _ => return Ok(0),
    }
    Ok(tallest + 1)
}

/// Python's `==`, charged by what it looks at.
pub(super) fn equal(state: &mut State<'_, '_>, a: &Value, b: &Value) -> Result<bool, Error> {
    charge(state, COMPARISON)?;
    Ok(match (kind(a), kind(b)) {
        (Kind::Undefined, Kind::Undefined) | (Kind::None, Kind::None) => true,
        (Kind::Str(a), Kind::Str(b)) => {
            charge(state, a.len().min(b.len()) / 16)?;
            a == b
        }
        (Kind::List(a), Kind::List(b)) | (Kind::Tuple(a), Kind::Tuple(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b) {
                if !equal(state, a, b)? {
                    return Ok(false);
                }
            }
            true
        }
        (Kind::Dict(a), Kind::Dict(b)) => {
            if dict_len(a) != dict_len(b) {
                return Ok(false);
            }
            for (key, item) in pairs(a) {
                match look_up(state, b, &key)? {
                    Some(other) if equal(state, &item, &other)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Kind::Opaque, Kind::Opaque) => match (a.as_object(), b.as_object()) {
            (Some(a), Some(b)) => std::ptr::eq(a, b),
            _ => false,
        },
        (a, b) => match (a.int(), b.int()) {
            (Some(a), Some(b)) => a == b,
            _ => matches!((a.float(), b.float()), (Some(a), Some(b)) if a == b),
        },
    })
}

/// Python's `<` and its kin. `None`: not comparable by order (NaN).
pub(super) fn order(state: &mut State<'_, '_>, a: &Value, b: &Value) -> Result<Option<Ordering>, Error> {
    charge(state, COMPARISON)?;
    match (kind(a), kind(b)) {
        (Kind::Str(a), Kind::Str(b)) => {
            charge(state, a.len().min(b.len()) / 16)?;
            Ok(Some(a.cmp(b)))
        }
        (Kind::List(a), Kind::List(b)) | (Kind::Tuple(a), Kind::Tuple(b)) => {
            for (x, y) in a.iter().zip(b) {
                if !equal(state, x, y)? {
                    return order(state, x, y);
                }
            }
            Ok(Some(a.len().cmp(&b.len())))
        }
        (x, y) => match (x.int(), y.int(), x.float(), y.float()) {
            (Some(x), Some(y), ..) => Ok(Some(x.cmp(&y))),
            (_, _, Some(x), Some(y)) => Ok(x.partial_cmp(&y)),
            _ => Err(fail(format!("'{}' and '{}' cannot be ordered", x.name(), y.name()))),
        },
    }
}

/// Python's `in`.
pub(super) fn contains(state: &mut State<'_, '_>, container: &Value, item: &Value) -> Result<bool, Error> {
    match kind(container) {
        Kind::Undefined => Ok(false),
        Kind::Str(text) => {
            let Kind::Str(part) = kind(item) else {
                let message = "'in <string>' requires string as left operand, not ";
                return Err(fail(format!("{message}{}", kind(item).name())));
            };
            charge_reading(state, text)?;
            charge_reading(state, part)?;
            Ok(text.contains(part))
        }
        Kind::List(items) | Kind::Tuple(items) => {
            for candidate in items {
                if equal(state, candidate, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Kind::Dict(dict) => match kind(item) {
            Kind::List(_) | Kind::Dict(_) => Err(fail(format!("unhashable type: '{}'", kind(item).name()))),
            _ => Ok(look_up(state, dict, item)?.is_some()),
        },
        other => Err(fail(format!("argument of type '{}' is not iterable", other.name()))),
    }
}

/// A stable sort of `(key, item)` by Python's `<` of the keys. A comparison can fail, and need not be an order at all
/// (NaN), which Rust's own sort answers with a panic: hence a plain merge sort.
pub(super) fn sort(
    state: &mut State<'_, '_>,
    items: Vec<(Value, Value)>,
    reverse: bool,
) -> Result<Vec<(Value, Value)>, Error> {
    charge_elements(state, items.len())?;
    let mut runs: Vec<Vec<(Value, Value)>> = items.into_iter().map(|item| vec![item]).collect();
    let wanted = if reverse { Ordering::Greater } else { Ordering::Less };
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut old = runs.into_iter();
        while let Some(left) = old.next() {
            let Some(right) = old.next() else {
                merged.push(left);
                break;
            };
            let mut run = Vec::with_capacity(left.len() + right.len());
            let mut left = left.into_iter().peekable();
            let mut right = right.into_iter().peekable();
            while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
                // The right one goes first only if it is strictly before: equal keys keep their order.
                let next = if order(state, &b.0, &a.0)? == Some(wanted) { right.next() } else { left.next() };
                run.extend(next);
            }
            run.extend(left);
            run.extend(right);
            merged.push(run);
        }
        runs = merged;
    }
    Ok(runs.pop().unwrap_or_default())
}
