//! Walks a schema: every keyword must be one that is enforced, or one that enforces nothing, and hold what it may.
//!
//! A list of what is known, and not of what is not: a keyword of a draft to come is unknown too.

use super::MAX_DEPTH;
use super::values::{exact, kind_of, whole};
use crate::error::{GrammarError, at_most};
use crate::regex;
use crate::weigh::{self, MAX_WEIGHT};
use llguidance::regex_to_lark;
use regex_syntax::ast;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What is enforced, and how its value is walked.
const ENFORCED: [(&str, Holds); 27] = [
    ("$ref", Holds::Reference),
    ("additionalItems", Holds::Schema),
    ("additionalProperties", Holds::Schema),
    ("allOf", Holds::List),
    ("anyOf", Holds::List),
    ("const", Holds::Data),
    ("enum", Holds::Values),
    ("exclusiveMaximum", Holds::Bound),
    ("exclusiveMinimum", Holds::Bound),
    ("format", Holds::Text),
    ("items", Holds::SchemaOrList),
    ("maxItems", Holds::Count),
    ("maxLength", Holds::Length),
    ("maxProperties", Holds::Count),
    ("maximum", Holds::Number),
    ("minItems", Holds::Count),
    ("minLength", Holds::Length),
    ("minProperties", Holds::Count),
    ("minimum", Holds::Number),
    ("multipleOf", Holds::Factor),
    ("oneOf", Holds::List),
    ("pattern", Holds::Text),
    ("patternProperties", Holds::Map),
    ("prefixItems", Holds::List),
    ("properties", Holds::Map),
    ("required", Holds::Names),
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
    /// A list of such.
    Values,
    /// How many there may be.
    Count,
    /// How many characters.
    Length,
    Number,
    /// A number, or as draft 4 has it, whether another bound excludes itself.
    Bound,
    /// A number that is not 0.
    Factor,
    Text,
    /// Texts.
    Names,
    Reference,
    /// Names of types, one or a list.
    Types,
}

/// What references lead to, by their text; the schema itself is `#`.
pub(super) type Targets<'s> = BTreeMap<&'s str, &'s Value>;

/// Schemas by their address, for one may have many names.
pub(super) type Schemas = HashSet<*const Value>;

pub(super) struct Checker<'s> {
    root: &'s Value,
    targets: Targets<'s>,
    /// Targets yet to be walked: a chain of references may be long.
    open: Vec<&'s str>,
    walked: Schemas,
    depths: HashMap<*const Value, usize>,
    /// Of all targets together: llguidance goes down each under every name that it has.
    depth: usize,
    /// Of all patterns.
    weight: usize,
}

impl<'s> Checker<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        let (targets, open) = (BTreeMap::new(), Vec::new());
        Self { root, targets, open, walked: HashSet::new(), depths: HashMap::new(), depth: 0, weight: 0 }
    }

    pub(super) fn run(&mut self) -> Result<(), GrammarError> {
        self.target("#", self.root)?;
        while let Some(name) = self.open.pop() {
            if let Some(schema) = self.targets.get(name) {
                self.schema(schema, &mut name.to_owned())?;
            }
        }
        Ok(())
    }

    /// What references lead to, and all schemas there are.
    pub(super) fn found(self) -> (Targets<'s>, Schemas) {
        (self.targets, self.walked)
    }

    /// Notes what a reference leads to, to be walked later: that may be where no keyword holds a schema.
    fn target(&mut self, name: &'s str, schema: &'s Value) -> Result<(), GrammarError> {
        let depth = *self.depths.entry(std::ptr::from_ref(schema)).or_insert_with(|| depth(schema));
        self.depth += depth;
        at_most("its depth, references followed,", self.depth, MAX_DEPTH)?;
        self.targets.insert(name, schema);
        self.open.push(name);
        Ok(())
    }

    fn schema(&mut self, value: &'s Value, at: &mut String) -> Result<(), GrammarError> {
        if !self.walked.insert(value) {
            return Ok(());
        }
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
        let annotates = ANNOTATIONS.contains(&keyword) || keyword.starts_with("x-");
        if annotates || asks_for_nothing(keyword, value) {
            return Ok(());
        }
        let Some(holds) = holds(keyword) else {
            let hint = hint(keyword);
            return Err(GrammarError::Keyword { keyword: keyword.to_owned(), at: at.clone(), hint });
        };
        let kind = |what: &str| wrong(at, format!("{keyword} must be {what}, not {}", kind_of(value)));
        match (holds, value) {
            (Holds::Schema, value) => self.below(at, keyword, |s, at| s.schema(value, at)),
            (Holds::List | Holds::SchemaOrList, Value::Array(list)) => self.below(at, keyword, |s, at| {
                (0..)
                    .zip(list)
                    .try_for_each(|(i, value)| s.below(at, &i.to_string(), |s, at| s.schema(value, at)))
            }),
            (Holds::SchemaOrList, value) => self.below(at, keyword, |s, at| s.schema(value, at)),
            (Holds::Map, Value::Object(map)) => self.below(at, keyword, |s, at| {
                if keyword == "patternProperties" {
                    map.keys().try_for_each(|pattern| s.pattern(pattern, at))?;
                }
                map.iter().try_for_each(|(name, value)| s.below(at, name, |s, at| s.schema(value, at)))
            }),
            (Holds::Reference, Value::String(text)) => self.reference(text, at),
            (Holds::Data, value) => self.exact(value, at),
            (Holds::Values, value @ Value::Array(_)) => self.exact(value, at),
            (Holds::Count | Holds::Length, Value::Number(_)) => {
                self.exact(value, at)?;
                let Some(n) = whole(value) else { return Err(kind("a whole number of 0 or more")) };
                let long = holds == Holds::Length && u32::try_from(n).is_err();
                if long { Err(kind(&format!("at most {}", u32::MAX))) } else { Ok(()) }
            }
            (Holds::Number | Holds::Bound, Value::Number(_)) => self.exact(value, at),
            (Holds::Bound, Value::Bool(_)) => Ok(()),
            (Holds::Factor, Value::Number(n)) => match n.as_f64() {
                Some(n) if n > 0.0 => self.exact(value, at),
                _ => Err(kind("a number above 0")),
            },
            (Holds::Text, Value::String(text)) if keyword == "pattern" => self.pattern(text, at),
            (Holds::Text, Value::String(_)) => Ok(()),
            (Holds::Names, Value::Array(names)) => match names.iter().find(|name| !name.is_string()) {
                None => Ok(()),
                Some(name) => {
                    Err(wrong(at, format!("{keyword} must name properties, not {}", kind_of(name))))
                }
            },
            (Holds::Types, Value::Array(names)) => names.iter().try_for_each(|name| type_name(name, at)),
            (Holds::Types, name) => type_name(name, at),
            (Holds::List, _) => Err(kind("an array of schemas")),
            (Holds::Map, _) => Err(kind("an object of schemas")),
            (Holds::Values, _) => Err(kind("an array")),
            (Holds::Count | Holds::Length, _) => Err(kind("a whole number")),
            (Holds::Number | Holds::Bound | Holds::Factor, _) => Err(kind("a number")),
            (Holds::Text | Holds::Reference, _) => Err(kind("a string")),
            (Holds::Names, _) => Err(kind("an array of strings")),
        }
    }

    fn exact(&self, value: &Value, at: &str) -> Result<(), GrammarError> {
        exact(value).map_err(|number| {
            wrong(at, format!("{number} is too large to be exact; numbers go to 2^53, 9007199254740992"))
        })
    }

    /// Weighs a regular expression; that it is none is llguidance's to say.
    fn pattern(&mut self, text: &str, at: &str) -> Result<(), GrammarError> {
        at_most("a pattern's length in bytes", text.len(), regex::MAX_BYTES)?;
        let Ok(ast) = ast::parse::Parser::new().parse(&regex_to_lark(text, "dw")) else { return Ok(()) };
        self.weight = self.weight.saturating_add(weigh::weight(&ast));
        if self.weight <= MAX_WEIGHT {
            return Ok(());
        }
        let what = format!(
            "its patterns come to about {} ranges of characters, but at most {MAX_WEIGHT} are taken; write fewer classes such as \\pL",
            self.weight
        );
        Err(wrong(at, what))
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
        if !is_within(text) {
            let what = format!(
                "{text:?}: only references within the schema, such as \"#/$defs/name\", are followed"
            );
            return Err(wrong(at, what));
        }
        let Some(schema) = lead_to(self.root, text) else {
            return Err(wrong(at, format!("the reference {text:?} leads nowhere")));
        };
        self.target(text, schema)
    }
}

/// Whether a reference leads into the schema that it is in.
fn is_within(text: &str) -> bool {
    text.strip_prefix('#').is_some_and(|steps| steps.is_empty() || steps.starts_with('/'))
}

/// What a reference leads to, as llguidance follows it: no escapes.
pub(super) fn lead_to<'s>(root: &'s Value, text: &str) -> Option<&'s Value> {
    let steps = text.strip_prefix('#')?;
    let steps = if steps == "/" { "" } else { steps };
    steps.split('/').skip(1).try_fold(root, |value, step| match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        value => value.get(step),
    })
}

/// A keyword with a value with which it asks for nothing, though llguidance knows it as one that it cannot enforce.
fn asks_for_nothing(keyword: &str, value: &Value) -> bool {
    keyword == "uniqueItems" && value == &Value::Bool(false)
}

/// What a keyword that is enforced, or holds schemas to refer to, has as its value.
fn holds(keyword: &str) -> Option<Holds> {
    let found = ENFORCED.iter().find(|(name, _)| *name == keyword).map(|(_, holds)| *holds);
    found.or(matches!(keyword, "$defs" | "definitions").then_some(Holds::Map))
}

/// The schema as llguidance is to have it: without what asks for nothing, and with counts as it reads them.
///
/// `schemas` are all that were walked: a property or a value of a `const` may be called as a keyword is.
pub(super) fn cleaned(value: &Value, schemas: &Schemas) -> Value {
    let each = |map: &Map<String, Value>| {
        Value::Object(map.iter().map(|(name, value)| (name.clone(), cleaned(value, schemas))).collect())
    };
    match value {
        Value::Array(list) => list.iter().map(|value| cleaned(value, schemas)).collect(),
        Value::Object(map) if schemas.contains(&std::ptr::from_ref(value)) => {
            let kept = map.iter().filter(|(keyword, value)| !asks_for_nothing(keyword, value));
            let clean = kept.map(|(keyword, value)| {
                let value = match (holds(keyword), value) {
                    (Some(Holds::Data | Holds::Values), value) => value.clone(),
                    (Some(Holds::Count | Holds::Length), value) => {
                        whole(value).map_or_else(|| value.clone(), Value::from)
                    }
                    // Even if a reference leads to it as if it were a schema: names are no keywords.
                    (Some(Holds::Map), Value::Object(map)) => each(map),
                    _ => cleaned(value, schemas),
                };
                (keyword.clone(), value)
            });
            Value::Object(clean.collect())
        }
        Value::Object(map) => each(map),
        value => value.clone(),
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
