//! Walks a schema: every keyword must be one that is enforced, or one that enforces nothing.
//!
//! A list of what is known, and not of what is not: a keyword of a draft to come is unknown too.

use crate::error::GrammarError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What is enforced, and how its value is walked.
const ENFORCED: [(&str, Holds); 27] = [
    ("$ref", Holds::Reference),
    ("additionalItems", Holds::Schema),
    ("additionalProperties", Holds::Schema),
    ("allOf", Holds::List),
    ("anyOf", Holds::List),
    ("const", Holds::Data),
    ("enum", Holds::Data),
    ("exclusiveMaximum", Holds::Data),
    ("exclusiveMinimum", Holds::Data),
    ("format", Holds::Nothing),
    ("items", Holds::SchemaOrList),
    ("maxItems", Holds::Data),
    ("maxLength", Holds::Data),
    ("maxProperties", Holds::Data),
    ("maximum", Holds::Data),
    ("minItems", Holds::Data),
    ("minLength", Holds::Data),
    ("minProperties", Holds::Data),
    ("minimum", Holds::Data),
    ("multipleOf", Holds::Data),
    ("oneOf", Holds::List),
    ("pattern", Holds::Nothing),
    ("patternProperties", Holds::Map),
    ("prefixItems", Holds::List),
    ("properties", Holds::Map),
    ("required", Holds::Nothing),
    ("type", Holds::Types),
];

/// What `type` may name.
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// What says something about a schema and enforces nothing.
const ANNOTATIONS: [&str; 14] = [
    "$anchor",
    "$comment",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "deprecated",
    "description",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
];

/// What a keyword's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Schema,
    SchemaOrList,
    List,
    Map,
    /// JSON whose numbers must be exact.
    Data,
    Reference,
    /// Names of types, one or a list.
    Types,
    Nothing,
}

/// What a reference leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'s> {
    pub(super) schema: &'s Value,
    /// Schemas in schemas below it, references not followed.
    pub(super) depth: usize,
}

/// By the reference's text; the schema itself is `#`.
pub(super) type Targets<'s> = BTreeMap<&'s str, Target<'s>>;

pub(super) struct Checker<'s> {
    root: &'s Value,
    targets: Targets<'s>,
    /// Targets yet to be walked: a chain of references may be long.
    open: Vec<&'s str>,
}

impl<'s> Checker<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        let targets = BTreeMap::from([("#", Target { schema: root, depth: depth(root) })]);
        Self { root, targets, open: vec!["#"] }
    }

    pub(super) fn run(&mut self) -> Result<(), GrammarError> {
        while let Some(name) = self.open.pop() {
            if let Some(target) = self.targets.get(name) {
                self.schema(target.schema, &mut name.to_owned())?;
            }
        }
        Ok(())
    }

    pub(super) fn targets(self) -> Targets<'s> {
        self.targets
    }

    fn schema(&mut self, value: &'s Value, at: &mut String) -> Result<(), GrammarError> {
        match value {
            Value::Bool(_) => Ok(()),
            Value::Object(keywords) => {
                let both = keywords.contains_key("prefixItems") && keywords.contains_key("additionalItems");
                if both {
                    return Err(wrong(
                        at,
                        "prefixItems and additionalItems are of different drafts; use items",
                    ));
                }
                keywords.iter().try_for_each(|(keyword, value)| self.keyword(keyword, value, at))
            }
            _ => Err(wrong(at, "a schema must be an object, true or false")),
        }
    }

    fn keyword(&mut self, keyword: &'s str, value: &'s Value, at: &mut String) -> Result<(), GrammarError> {
        let holds = match keyword {
            "$defs" | "definitions" => Holds::Map,
            // What asks for nothing.
            "uniqueItems" if value == &Value::Bool(false) => return Ok(()),
            _ if ANNOTATIONS.contains(&keyword) || keyword.starts_with("x-") => return Ok(()),
            _ => match ENFORCED.iter().find(|(name, _)| *name == keyword) {
                Some((_, holds)) => *holds,
                None => {
                    let hint = hint(keyword);
                    return Err(GrammarError::Keyword { keyword: keyword.to_owned(), at: at.clone(), hint });
                }
            },
        };
        let kind = |what: &str| wrong(at, format!("{keyword} must be {what}"));
        match (holds, value) {
            (Holds::Schema, value) => self.below(at, keyword, |s, at| s.schema(value, at)),
            (Holds::List | Holds::SchemaOrList, Value::Array(list)) => self.below(at, keyword, |s, at| {
                (0..)
                    .zip(list)
                    .try_for_each(|(i, value)| s.below(at, &i.to_string(), |s, at| s.schema(value, at)))
            }),
            (Holds::SchemaOrList, value) => self.below(at, keyword, |s, at| s.schema(value, at)),
            (Holds::Map, Value::Object(map)) => self.below(at, keyword, |s, at| {
                map.iter().try_for_each(|(name, value)| s.below(at, name, |s, at| s.schema(value, at)))
            }),
            (Holds::Reference, Value::String(text)) => self.reference(text, at),
            (Holds::Data, value) => exact(value).map_err(|number| {
                wrong(at, format!("{number} is too large to be exact; numbers go to 2^53, 9007199254740992"))
            }),
            (Holds::Types, Value::Array(names)) => names.iter().try_for_each(|name| type_name(name, at)),
            (Holds::Types, name) => type_name(name, at),
            (Holds::Nothing, _) => Ok(()),
            (Holds::List, _) => Err(kind("an array of schemas")),
            (Holds::Map, _) => Err(kind("an object of schemas")),
            (Holds::Reference, _) => Err(kind("a string")),
        }
    }

    /// Runs with one more step on the path.
    fn below(
        &mut self,
        at: &mut String,
        step: &str,
        run: impl FnOnce(&mut Self, &mut String) -> Result<(), GrammarError>,
    ) -> Result<(), GrammarError> {
        let length = at.len();
        at.push('/');
        at.push_str(&step.replace('~', "~0").replace('/', "~1"));
        let result = run(self, at);
        at.truncate(length);
        result
    }

    fn reference(&mut self, text: &'s str, at: &str) -> Result<(), GrammarError> {
        if self.targets.contains_key(text) {
            return Ok(());
        }
        let steps = match text.strip_prefix('#') {
            Some("" | "/") => "",
            Some(steps) if steps.starts_with('/') => steps,
            _ => {
                let what = format!(
                    "{text:?}: only references within the schema, such as \"#/$defs/name\", are followed"
                );
                return Err(wrong(at, what));
            }
        };
        // As llguidance follows it: no escapes.
        let found = steps.split('/').skip(1).try_fold(self.root, |value, step| match value {
            Value::Array(list) => list.get(step.parse::<usize>().ok()?),
            value => value.get(step),
        });
        let Some(schema) = found else {
            return Err(wrong(at, format!("the reference {text:?} leads nowhere")));
        };
        self.targets.insert(text, Target { schema, depth: depth(schema) });
        // It may lead to where no keyword holds a schema, which then has not been checked.
        self.open.push(text);
        Ok(())
    }
}

/// One of [`TYPES`].
fn type_name(name: &Value, at: &str) -> Result<(), GrammarError> {
    let known = name.as_str().is_some_and(|name| TYPES.contains(&name));
    let what = || format!("{name} is no type; there are {}", TYPES.join(", "));
    if known { Ok(()) } else { Err(wrong(at, what())) }
}

fn wrong(at: &str, what: impl Into<String>) -> GrammarError {
    GrammarError::Schema { what: what.into(), at: at.into() }
}

/// Values in values. serde_json reads no more than 128.
fn depth(value: &Value) -> usize {
    let below = |deepest: Option<usize>| 1 + deepest.unwrap_or(0);
    match value {
        Value::Array(list) => below(list.iter().map(depth).max()),
        Value::Object(map) => below(map.values().map(depth).max()),
        _ => 1,
    }
}

/// llguidance reckons with numbers of 64 bits floating point; whole ones are exact up to 2^53.
fn exact(value: &Value) -> Result<(), String> {
    const MOST: u64 = 1 << 53;
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

/// The keyword that was meant, as a part of the message.
fn hint(keyword: &str) -> String {
    let near = ENFORCED.iter().map(|(name, _)| (distance(keyword, name), name)).min();
    match near {
        Some((1..=2, name)) => format!(", but {name:?} is"),
        _ => String::new(),
    }
}

/// Letters to change, add or leave out to get from one to the other, up to 3.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(40).collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 2 {
        return 3;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()].min(3)
}
