//! Jinja 2's filters on lists and dicts.

use minijinja::value::Tuple;
use minijinja::{Error, State, Value};

use super::arguments::{bind, integer, required, split, string};
use super::operators::keep;
use super::predicates::test;
use super::text::to_text;
use super::values::{
    Kind, charge, charge_elements, elements, equal, fail, kind, new_dict, order, pairs, sort,
};

type Outcome = Result<Value, Error>;

/// What `attribute='a.b.0'` reads.
pub(super) fn read_path(state: &mut State<'_, '_>, item: &Value, path: &Value) -> Outcome {
    let Kind::Str(text) = kind(path) else {
        return state.apply_filter("__item", &[item.clone(), path.clone()]);
    };
    let mut value = item.clone();
    for part in text.split('.') {
        let key = part.parse::<i64>().map_or_else(|_| Value::from(part), Value::from);
        value = state.apply_filter("__item", &[value, key])?;
    }
    Ok(value)
}

/// `map('filter', …)` or `map(attribute='a', default=…)`. What is false is empty, also a number, and its arguments are not
/// looked at.
pub(super) fn map(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    if !value.is_true() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    let (positional, keywords) = split(args)?;
    let items = elements(state, value)?;
    let mapped: Result<Vec<Value>, Error> = match positional.split_first() {
        None => {
            let path = keywords
                .peek::<Value>("attribute")
                .map_err(|_| fail("map() requires a filter or an attribute"))?;
            let default = keywords.peek::<Value>("default").ok();
            let read = |item: &Value| match (read_path(state, item, &path)?, &default) {
                (value, Some(default)) if value.is_undefined() => Ok(default.clone()),
                (value, _) => Ok(value),
            };
            items.iter().map(read).collect()
        }
        Some((name, _)) => {
            let name = string("map", name)?;
            let call = |item: &Value| {
                let mut call = vec![item.clone()];
                call.extend_from_slice(&args[1..]);
                state.apply_filter(name, &call)
            };
            items.iter().map(call).collect()
        }
    };
    keep(state, &Value::from(mapped?), &[])
}

/// `select`, `reject`, `selectattr`, `rejectattr`; of what is false as [`map`].
pub(super) fn select(
    state: &mut State<'_, '_>,
    value: &Value,
    args: &[Value],
    by_attribute: bool,
    wanted: bool,
) -> Outcome {
    if !value.is_true() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    let (path, args) = match args.split_first() {
        Some((path, rest)) if by_attribute => (Some(path), rest),
        None if by_attribute => return Err(fail("missing parameter: attribute name")),
        _ => (None, args),
    };
    let mut out = Vec::new();
    for item in elements(state, value)? {
        charge(state, 1)?;
        let subject = path.map_or(Ok(item.clone()), |path| read_path(state, &item, path))?;
        let holds = match args.split_first() {
            Some((name, rest)) => test(state, &subject, string("select", name)?, rest)?,
            None => subject.is_true(),
        };
        if holds == wanted {
            out.push(item);
        }
    }
    Ok(out.into())
}

/// Lower case, unless told otherwise: Jinja's sorting ignores case.
fn fold_case(state: &mut State<'_, '_>, value: Value, case_sensitive: bool) -> Outcome {
    match kind(&value) {
        Kind::Str(text) if !case_sensitive => {
            charge(state, text.len())?;
            Ok(text.to_lowercase().into())
        }
        _ => Ok(value),
    }
}

fn is_set(value: &Option<Value>) -> bool {
    value.as_ref().is_some_and(|v| v.is_true())
}

pub(super) fn sort_filter(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [reverse, case, path] = bind("sort", args, ["reverse", "case_sensitive", "attribute"])?;
    let mut keyed = Vec::new();
    for item in elements(state, value)? {
        let key = match path.as_ref().filter(|p| !p.is_none()) {
            None => fold_case(state, item.clone(), is_set(&case))?,
            Some(paths) => {
                let mut key = Vec::new();
                for path in to_text(state, paths)?.split(',') {
                    let part = read_path(state, &item, &Value::from(path))?;
                    key.push(fold_case(state, part, is_set(&case))?);
                }
                Value::from(key)
            }
        };
        keyed.push((key, item));
    }
    let sorted = sort(state, keyed, is_set(&reverse))?;
    Ok(sorted.into_iter().map(|(_, item)| item).collect::<Vec<_>>().into())
}

pub(super) fn dictsort(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [case, by, reverse] = bind("dictsort", args, ["case_sensitive", "by", "reverse"])?;
    let by_value = match by.as_ref().map_or(Some("key"), |b| b.as_str()) {
        Some("key") => false,
        Some("value") => true,
        _ => return Err(fail("dictsort: you can only sort by either \"key\" or \"value\"")),
    };
    let Kind::Dict(dict) = kind(value) else { return Err(fail("dictsort() expects a dict")) };
    let mut keyed = Vec::new();
    for (key, item) in pairs(dict) {
        charge_elements(state, 2)?;
        let by = fold_case(state, if by_value { item.clone() } else { key.clone() }, is_set(&case))?;
        keyed.push((by, Value::from(Tuple::from([key, item]))));
    }
    let sorted = sort(state, keyed, is_set(&reverse))?;
    Ok(sorted.into_iter().map(|(_, item)| item).collect::<Vec<_>>().into())
}

pub(super) fn unique(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [case, path] = bind("unique", args, ["case_sensitive", "attribute"])?;
    let mut seen: Vec<Value> = Vec::new();
    let mut out = Vec::new();
    'items: for item in elements(state, value)? {
        let key = path
            .as_ref()
            .filter(|p| !p.is_none())
            .map_or(Ok(item.clone()), |p| read_path(state, &item, p))?;
        let key = fold_case(state, key, is_set(&case))?;
        for old in &seen {
            if equal(state, old, &key)? {
                continue 'items;
            }
        }
        seen.push(key);
        out.push(item);
    }
    Ok(out.into())
}

pub(super) fn extreme(
    state: &mut State<'_, '_>,
    value: &Value,
    args: &[Value],
    wanted: std::cmp::Ordering,
) -> Outcome {
    let [case, path] = bind("min/max", args, ["case_sensitive", "attribute"])?;
    let mut best: Option<(Value, Value)> = None;
    for item in elements(state, value)? {
        let key = path
            .as_ref()
            .filter(|p| !p.is_none())
            .map_or(Ok(item.clone()), |p| read_path(state, &item, p))?;
        let key = fold_case(state, key, is_set(&case))?;
        let better = match &best {
            Some((old, _)) => order(state, &key, old)? == Some(wanted),
            None => true,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map(|(_, item)| item).unwrap_or_default())
}

pub(super) fn sum(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [path, start] = bind("sum", args, ["attribute", "start"])?;
    let mut items = vec![start.unwrap_or_else(|| Value::from(0))];
    for item in elements(state, value)? {
        items.push(
            path.as_ref()
                .filter(|p| !p.is_none())
                .map_or(Ok(item.clone()), |p| read_path(state, &item, p))?,
        );
    }
    state.apply_filter("__add", &items)
}

pub(super) fn groupby(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [path, default, case] = bind("groupby", args, ["attribute", "default", "case_sensitive"])?;
    let path = required("groupby", "attribute", path)?;
    let mut keyed = Vec::new();
    for item in elements(state, value)? {
        let key = read_path(state, &item, &path)?;
        let key = if key.is_undefined() { default.clone().unwrap_or_default() } else { key };
        keyed.push((fold_case(state, key.clone(), is_set(&case))?, Value::from(Tuple::from([key, item]))));
    }
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for (folded, pair) in sort(state, keyed, false)? {
        let (Kind::List(pair) | Kind::Tuple(pair)) = kind(&pair) else { continue };
        let [key, item] = pair else { continue };
        match groups.last_mut() {
            Some((last, _, items)) if equal(state, last, &folded)? => items.push(item.clone()),
            _ => groups.push((folded, key.clone(), vec![item.clone()])),
        }
    }
    charge_elements(state, groups.len())?;
    let pair =
        |(_, key, items): (Value, Value, Vec<Value>)| Value::from(Tuple::from([key, Value::from(items)]));
    keep(state, &Value::from(groups.into_iter().map(pair).collect::<Vec<_>>()), &[])
}

/// Rows of `count`, the last one filled up.
pub(super) fn batch(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [count, fill] = bind("batch", args, ["linecount", "fill_with"])?;
    let count =
        usize::try_from(integer("batch", &required("batch", "linecount", count)?)?).unwrap_or(0).max(1);
    let items = elements(state, value)?;
    let mut rows: Vec<Vec<Value>> = items.chunks(count).map(<[Value]>::to_vec).collect();
    if let (Some(last), Some(fill)) = (rows.last_mut(), fill.filter(|f| !f.is_none())) {
        charge_elements(state, count)?;
        last.resize(count, fill);
    }
    charge_elements(state, items.len().saturating_add(rows.len()))?;
    keep(state, &Value::from(rows.into_iter().map(Value::from).collect::<Vec<_>>()), &[])
}

/// `count` columns, the first ones longer by one.
pub(super) fn slices(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Outcome {
    let [count, fill] = bind("slice", args, ["slices", "fill_with"])?;
    let count = usize::try_from(integer("slice", &required("slice", "slices", count)?)?).unwrap_or(0).max(1);
    let items = elements(state, value)?;
    charge_elements(state, items.len().saturating_add(count.saturating_mul(2)))?;
    let (each, longer) = (items.len() / count, items.len() % count);
    let mut rest = items.as_slice();
    let mut columns = Vec::with_capacity(count);
    for i in 0..count {
        let (column, tail) = rest.split_at(each + usize::from(i < longer));
        let mut column = column.to_vec();
        if let (Some(fill), true) = (&fill, longer > 0 && i >= longer) {
            column.push(fill.clone());
        }
        columns.push(Value::from(column));
        rest = tail;
    }
    keep(state, &Value::from(columns), &[])
}

/// `dict(pairs, key=value)`.
pub(super) fn dict(state: &mut State<'_, '_>, args: &[Value]) -> Outcome {
    let (positional, keywords) = split(args)?;
    let mut out = Vec::new();
    match positional.first().map(|v| (kind(v), v)) {
        None => {}
        Some((Kind::Dict(dict), _)) => out.extend(pairs(dict)),
        Some((_, value)) => {
            for pair in elements(state, value)? {
                match kind(&pair) {
                    Kind::List([key, item]) | Kind::Tuple([key, item]) => {
                        out.push((key.clone(), item.clone()))
                    }
                    _ => return Err(fail("dict() expects pairs")),
                }
            }
        }
    }
    for key in keywords.args() {
        out.push((Value::from(key), keywords.peek::<Value>(key)?));
    }
    charge_elements(state, out.len().saturating_mul(2))?;
    let dict = new_dict(state, out)?;
    keep(state, &dict, &[])
}
