//! How the texts of JSON are spelled: every character in one way alone.
//!
//! llguidance tells an object's names apart by how they are spelled. Where `a` may be written `\u0061` too, what a schema asks of `a`
//! is not asked of that, and whoever reads the object takes the last of both. So `\u` is left out, and with it the control characters
//! that have no letter of their own: no loss, since llguidance lets `\u` stand for those alone. A schema that asks for such a
//! character gets it if none of its objects can have a name twice.

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value};

/// What may stand after a backslash.
pub(super) const ESCAPES: &str = "nrbtf\\\"";
pub(super) const ALL_ESCAPES: &str = "nrbtf\\\"u";

/// Characters that JSON has no letter for, and llguidance no other spelling than `\u`.
const CONTROLS: [(u32, u32); 4] = [(0, 7), (0xb, 0xb), (0xe, 0x1f), (0x7f, 0x7f)];

fn are_controls(low: impl Into<u32>, high: impl Into<u32>) -> bool {
    let (low, high) = (low.into(), high.into());
    CONTROLS.iter().any(|(first, last)| *first <= low && high <= *last)
}

fn has_control(text: &str) -> bool {
    text.chars().any(|c| are_controls(c, c))
}

/// Whether a text in a value has one. Names have none other than their own spelling.
pub(super) fn in_data(value: &Value) -> bool {
    match value {
        Value::String(text) => has_control(text),
        Value::Array(list) => list.iter().any(in_data),
        Value::Object(map) => map.values().any(in_data),
        _ => false,
    }
}

/// Whether an expression comes to a place where nothing else will do.
pub(super) fn in_pattern(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.iter().any(|&byte| are_controls(byte, byte)),
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class.ranges();
            !ranges.is_empty() && ranges.iter().all(|range| are_controls(range.start(), range.end()))
        }
        HirKind::Class(Class::Bytes(class)) => {
            let ranges = class.ranges();
            !ranges.is_empty() && ranges.iter().all(|range| are_controls(range.start(), range.end()))
        }
        HirKind::Repetition(repetition) => in_pattern(&repetition.sub),
        HirKind::Capture(capture) => in_pattern(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(in_pattern),
        HirKind::Empty | HirKind::Look(_) => false,
    }
}

/// Whether an object by this schema has names of its own beside others.
pub(super) fn names_and_others(keywords: &Map<String, Value>) -> bool {
    let patterns = keywords.contains_key("patternProperties");
    let names = patterns || keywords.contains_key("properties") || keywords.contains_key("required");
    names && (patterns || keywords.get("additionalProperties") != Some(&Value::Bool(false)))
}
