//! Whether a schema that refers to itself has a way out: `{"a": {"a": {"a": ...` has none if `a` is required.
//!
//! Only what is sure is refused: whatever is not understood here counts as a way out, and what contradicts itself otherwise is
//! llguidance's to find.

use super::keywords::Targets;
use serde_json::Value;
use std::collections::BTreeMap;

/// Whether some finite text can satisfy `schema`, as far as references decide it.
pub(super) fn can_end(schema: &Value, targets: &Targets<'_>) -> bool {
    // From "none can" upwards, until nothing more is found to: a schema that needs itself is never found.
    let mut ends: BTreeMap<&str, bool> = targets.keys().map(|name| (*name, false)).collect();
    loop {
        let mut grown = false;
        for (name, target) in targets {
            if !ends[name] && ends_with(target.schema, &ends) {
                ends.insert(name, true);
                grown = true;
            }
        }
        if !grown {
            return ends_with(schema, &ends);
        }
    }
}

fn ends_with(schema: &Value, ends: &BTreeMap<&str, bool>) -> bool {
    let Value::Object(keywords) = schema else { return true };
    let ends_each = |value: Option<&Value>| match value {
        Some(Value::Array(list)) => list.iter().all(|schema| ends_with(schema, ends)),
        _ => true,
    };
    let ends_some = |value: Option<&Value>| match value {
        Some(Value::Array(list)) => list.is_empty() || list.iter().any(|schema| ends_with(schema, ends)),
        _ => true,
    };
    let reference = keywords.get("$ref").and_then(Value::as_str);
    if reference.is_some_and(|name| ends.get(name) == Some(&false))
        || !ends_each(keywords.get("allOf"))
        || !ends_some(keywords.get("anyOf"))
        || !ends_some(keywords.get("oneOf"))
    {
        return false;
    }
    match keywords.get("type").and_then(Value::as_str) {
        Some("object") => {
            let required = keywords.get("required").and_then(Value::as_array);
            let properties = keywords.get("properties").and_then(Value::as_object);
            let names = required.into_iter().flatten().filter_map(Value::as_str);
            names.filter_map(|name| properties?.get(name)).all(|schema| ends_with(schema, ends))
        }
        Some("array") => {
            let least = keywords.get("minItems").and_then(Value::as_u64).unwrap_or(0);
            let first =
                keywords.get("prefixItems").or(keywords.get("items").filter(|items| items.is_array()));
            let first = first.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let rest = keywords.get("items").filter(|items| !items.is_array());
            let needed = usize::try_from(least).unwrap_or(usize::MAX);
            first.iter().take(needed).all(|schema| ends_with(schema, ends))
                && (needed <= first.len() || rest.is_none_or(|schema| ends_with(schema, ends)))
        }
        _ => true,
    }
}
