//! Jinja 2's tests: what may stand behind `is`.

use minijinja::{Error, State, Value};

use super::values::{Kind, contains, equal, fail, kind, order};

/// `value is name(args)`.
pub(super) fn test(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<bool, Error> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let other = || args.first().ok_or_else(|| fail(format!("test '{name}' needs an argument")));
    let int = |value: &Value| {
        kind(value)
            .int()
            .ok_or_else(|| fail(format!("test '{name}' expects an integer, not '{}'", kind(value).name())))
    };
    let cased = |state: &mut State<'_, '_>, wrong: fn(char) -> bool| -> Result<bool, Error> {
        let text = super::text::to_text(state, value)?;
        Ok(text.chars().any(|c| c.is_lowercase() || c.is_uppercase()) && !text.chars().any(wrong))
    };
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => value.is_none(),
        "boolean" => matches!(kind(value), Kind::Bool(_)),
        "true" => matches!(kind(value), Kind::Bool(true)),
        "false" => matches!(kind(value), Kind::Bool(false)),
        "integer" => matches!(kind(value), Kind::Int(_)),
        "float" => matches!(kind(value), Kind::Float(_)),
        "number" => kind(value).float().is_some(),
        "string" => matches!(kind(value), Kind::Str(_)),
        "mapping" => matches!(kind(value), Kind::Dict(_)),
        // Anything with a length and items: dicts and strings too, and an undefined value.
        "sequence" | "iterable" => {
            matches!(
                kind(value),
                Kind::Str(_) | Kind::List(_) | Kind::Tuple(_) | Kind::Dict(_) | Kind::Undefined
            )
        }
        "callable" => matches!(kind(value), Kind::Opaque),
        "escaped" => false,
        "odd" => int(value)?.rem_euclid(2) == 1,
        "even" => int(value)?.rem_euclid(2) == 0,
        "divisibleby" => {
            let by = int(other()?)?;
            let left = int(value)?.checked_rem(by);
            left.ok_or_else(|| fail("division by zero"))? == 0
        }
        "lower" => cased(state, char::is_uppercase)?,
        "upper" => cased(state, char::is_lowercase)?,
        "eq" | "equalto" | "==" => equal(state, value, other()?)?,
        "ne" | "!=" => !equal(state, value, other()?)?,
        "lt" | "lessthan" | "<" => order(state, value, other()?)? == Some(Less),
        "gt" | "greaterthan" | ">" => order(state, value, other()?)? == Some(Greater),
        "le" | "<=" => matches!(order(state, value, other()?)?, Some(Less | Equal)),
        "ge" | ">=" => matches!(order(state, value, other()?)?, Some(Greater | Equal)),
        "in" => contains(state, other()?, value)?,
        "sameas" => same(state, value, other()?)?,
        "filter" => match kind(value) {
            // Called without a value, a known filter complains of something else.
            Kind::Str(name) => {
                let called = state.apply_filter(name, &[]);
                !called.is_err_and(|e| e.kind() == minijinja::ErrorKind::UnknownFilter)
            }
            _ => false,
        },
        _ => return Err(fail(format!("no test named '{name}'"))),
    })
}

/// Python's `is`: one object. Small values are one object if they are of one kind and equal.
fn same(state: &mut State<'_, '_>, a: &Value, b: &Value) -> Result<bool, Error> {
    match (kind(a), kind(b)) {
        (Kind::List(a), Kind::List(b)) | (Kind::Tuple(a), Kind::Tuple(b)) => Ok(std::ptr::eq(a, b)),
        (x, y) if x.name() == y.name() => equal(state, a, b),
        _ => Ok(false),
    }
}
