//! Arguments of filters, methods and functions, bound to names as Python binds them.

use minijinja::value::{Kwargs, from_args};
use minijinja::{Error, Value};

use super::values::{Kind, fail, kind};

/// Positional and keyword arguments under their names; `None` where one is missing.
pub(super) fn bind<const N: usize>(
    function: &str,
    args: &[Value],
    names: [&str; N],
) -> Result<[Option<Value>; N], Error> {
    let (positional, keywords) = split(args)?;
    if positional.len() > N {
        return Err(fail(format!(
            "{function}() takes at most {N} arguments, {} were given",
            positional.len()
        )));
    }
    let mut out = [const { None }; N];
    for (slot, value) in out.iter_mut().zip(positional) {
        *slot = Some(value.clone());
    }
    for key in keywords.args() {
        let Some(index) = names.iter().position(|name| *name == key) else {
            return Err(fail(format!("{function}() got an unexpected keyword argument '{key}'")));
        };
        if let Some(slot @ None) = out.get_mut(index) {
            *slot = Some(keywords.peek::<Value>(key)?);
        } else {
            return Err(fail(format!("{function}() got multiple values for argument '{key}'")));
        }
    }
    Ok(out)
}

/// Positional arguments and keyword arguments.
pub(super) fn split(args: &[Value]) -> Result<(&[Value], Kwargs), Error> {
    from_args(args)
}

/// An argument that must be there.
pub(super) fn required(function: &str, name: &str, value: Option<Value>) -> Result<Value, Error> {
    value.ok_or_else(|| fail(format!("{function}() is missing its argument '{name}'")))
}

/// A string argument.
pub(super) fn string<'v>(function: &str, value: &'v Value) -> Result<&'v str, Error> {
    match kind(value) {
        Kind::Str(text) => Ok(text),
        other => Err(fail(format!("{function}() expects a string, not '{}'", other.name()))),
    }
}

/// An integer argument within an `i64`.
pub(super) fn integer(function: &str, value: &Value) -> Result<i64, Error> {
    let int = kind(value).int().and_then(|int| i64::try_from(int).ok());
    int.ok_or_else(|| fail(format!("{function}() expects an integer, not '{}'", kind(value).name())))
}
