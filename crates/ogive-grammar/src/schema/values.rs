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
