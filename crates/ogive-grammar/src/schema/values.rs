//! What a schema's keywords have as values, where those are no schemas.
//!
//! llguidance looks at the values of those keywords alone that a schema's type makes use of, and panics at some that it does not
//! expect. Here they are looked at whatever the type, and told with the place where they stand.

use serde_json::{Map, Value};

/// A whole number of 0 or more, `2.0` included, as far as such are exact.
pub(super) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().filter(|n| *n <= MOST).or_else(|| {
        let n = value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..=MOST as f64).contains(n))?;
        Some(n as u64)
    })
}

/// Kinds of values.
pub(super) const NULL: u8 = 1;
pub(super) const BOOLEAN: u8 = 2;
pub(super) const NUMBER: u8 = 4;
pub(super) const STRING: u8 = 8;
pub(super) const ARRAY: u8 = 16;
pub(super) const OBJECT: u8 = 32;
pub(super) const KINDS: u8 = NULL | BOOLEAN | NUMBER | STRING | ARRAY | OBJECT;

/// What kind a value is of.
pub(super) fn kind(value: &Value) -> u8 {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Number(_) => NUMBER,
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

/// The kinds that a schema's `type` lets be.
pub(super) fn kinds(keywords: &Map<String, Value>) -> u8 {
    types(keywords).map_or(KINDS, |names| {
        names.iter().fold(0, |kinds, name| {
            kinds
                | match name.as_str() {
                    Some("null") => NULL,
                    Some("boolean") => BOOLEAN,
                    Some("number" | "integer") => NUMBER,
                    Some("string") => STRING,
                    Some("array") => ARRAY,
                    Some("object") => OBJECT,
                    _ => 0,
                }
        })
    })
}

/// The names in a schema's `type`, one or a list.
pub(super) fn types(keywords: &Map<String, Value>) -> Option<&[Value]> {
    match keywords.get("type")? {
        Value::Array(names) => Some(names),
        name => Some(std::slice::from_ref(name)),
    }
}

/// The schemas, names or values in a keyword's list; none where it has none.
pub(super) fn list<'s>(keywords: &'s Map<String, Value>, keyword: &str) -> &'s [Value] {
    keywords.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The properties that a schema requires.
pub(super) fn required(keywords: &Map<String, Value>) -> impl Iterator<Item = &str> {
    list(keywords, "required").iter().filter_map(Value::as_str)
}

/// The schema that a keyword with a map of them has by a name.
pub(super) fn named<'s>(keywords: &'s Map<String, Value>, keyword: &str, name: &str) -> Option<&'s Value> {
    keywords.get(keyword)?.as_object()?.get(name)
}

/// What a value is, in the words of a message: the value itself may be long.
pub(super) fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// Whole numbers are exact up to this as what llguidance reckons with, 64 bits floating point.
const MOST: u64 = 1 << 53;

/// Whether all numbers in a value are exact; if not, one that is not.
pub(super) fn exact(value: &Value) -> Result<(), String> {
    match value {
        Value::Number(n) => {
            let large =
                n.as_u64().is_some_and(|n| n > MOST) || n.as_i64().is_some_and(|n| n.unsigned_abs() > MOST);
            if large { Err(n.to_string()) } else { Ok(()) }
        }
        Value::Array(list) => list.iter().try_for_each(exact),
        Value::Object(map) => Map::values(map).try_for_each(exact),
        _ => Ok(()),
    }
}
