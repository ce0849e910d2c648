//! Methods of Python's str that look for a text in another, within bounds: `find`, `index`, `count`, `startswith` and kin.

use minijinja::{Error, State, Value};

use super::arguments::{bind, required, string};
use super::values::{Kind, charge_reading, fail, kind};

/// The methods here.
pub(super) const NAMES: [&str; 7] = ["count", "endswith", "find", "index", "rfind", "rindex", "startswith"];

/// `text.name(wanted, start, end)`.
pub(super) fn search(
    state: &mut State<'_, '_>,
    text: &str,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let affix = name.ends_with("with");
    if !affix {
        charge_reading(state, text)?;
    }
    let what = if affix { "affix" } else { "sub" };
    let [wanted, start, end] = bind(name, args, [what, "start", "end"])?;
    let wanted = required(name, what, wanted)?;
    let window = window(state, text, start.as_ref(), end.as_ref())?;
    if affix {
        let one = std::slice::from_ref(&wanted);
        let affixes = if let Kind::Tuple(affixes) = kind(&wanted) { affixes } else { one };
        for affix in affixes {
            let affix = string(name, affix)?;
            charge_reading(state, affix)?;
            let found = window.is_some_and(|(_, text)| {
                if name == "startswith" { text.starts_with(affix) } else { text.ends_with(affix) }
            });
            if found {
                return Ok(Value::from(true));
            }
        }
        return Ok(Value::from(false));
    }
    let wanted = string(name, &wanted)?;
    charge_reading(state, wanted)?;
    if name == "count" {
        return Ok(Value::from(window.map_or(0, |(_, text)| text.matches(wanted).count())));
    }
    let found = window.and_then(|(before, text)| {
        let at = if name.starts_with('r') { text.rfind(wanted) } else { text.find(wanted) };
        at.map(|at| before + text[..at].chars().count())
    });
    match found {
        Some(at) => Ok(Value::from(at)),
        None if name.ends_with("index") => Err(fail("substring not found")),
        None => Ok(Value::from(-1)),
    }
}

/// The characters before `start`, and the text from there to `end`; `None` where it ends before it starts, in which not
/// even nothing is found.
fn window<'t>(
    state: &mut State<'_, '_>,
    text: &'t str,
    start: Option<&Value>,
    end: Option<&Value>,
) -> Result<Option<(usize, &'t str)>, Error> {
    if [start, end].into_iter().flatten().all(Value::is_none) {
        return Ok(Some((0, text)));
    }
    charge_reading(state, text)?;
    let Some((start, end)) = bounds(text.chars().count(), start, end)? else { return Ok(None) };
    let at = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    Ok(Some((start, &text[at(start)..at(end)])))
}

/// Python's `start` and `end` of something so long: negative ones count from the end. `None` where nothing can lie between.
pub(super) fn bounds(
    len: usize,
    start: Option<&Value>,
    end: Option<&Value>,
) -> Result<Option<(usize, usize)>, Error> {
    let bound = |value: Option<&Value>, default: usize| -> Result<usize, Error> {
        match value.map(kind) {
            None | Some(Kind::None) => Ok(default),
            Some(other) => {
                let bound = other.int().ok_or_else(|| fail("slice indices must be integers or None"))?;
                let len = i128::try_from(len).unwrap_or(i128::MAX);
                let bound = if bound < 0 { bound.saturating_add(len).max(0) } else { bound };
                Ok(usize::try_from(bound).unwrap_or(usize::MAX))
            }
        }
    };
    let (start, end) = (bound(start, 0)?, bound(end, len)?.min(len));
    Ok((start <= end).then_some((start, end)))
}
