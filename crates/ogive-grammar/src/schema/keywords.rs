//! Walks a schema: every keyword must be one that is enforced, or one that enforces nothing, and hold what it may.
//!
//! A list of what is known, and not of what is not: a keyword of a draft to come is unknown too.

use super::references::{lead_to, steps};
use super::values::{exact, kind_of, whole};
use super::{MAX_DEPTH, pattern, spelling};
use crate::error::{GrammarError, at_most};
use crate::regex;
use crate::weigh::{self, MAX_WEIGHT};
use llguidance::regex_to_lark;
use regex_syntax::ast;
use regex_syntax::hir::translate::Translator;
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
pub(super) enum Holds {
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
    /// Whether what is walked stands below an identifier of its own.
    based: bool,
    /// Where first a text asks for a character that JSON spells in one long way alone.
    control: Option<String>,
    /// Where first an object may have other names beside its own.
    open_names: Option<String>,
}

impl<'s> Checker<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        Self {
            root,
            targets: BTreeMap::new(),
            open: Vec::new(),
            walked: HashSet::new(),
            depths: HashMap::new(),
            depth: 0,
            weight: 0,
            based: false,
            control: None,
            open_names: None,
        }
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

    /// What may stand after a backslash in the texts, so that each object has each name once.
    ///
    /// # Errors
    /// If a text needs more than that may be.
    pub(super) fn escapes(&self) -> Result<&'static str, GrammarError> {
        match (&self.control, &self.open_names) {
            (None, _) => Ok(spelling::ESCAPES),
            (Some(_), None) => Ok(spelling::ALL_ESCAPES),
            (Some(at), Some(open)) => {
                let what = format!(
                    "a const, enum or pattern asks for a control character that is only written with \\u, and the object at \
                     {open} could then have the same name in two spellings; leave the character out, or give every object with \
                     properties \"additionalProperties\": false and no patternProperties"
                );
                Err(wrong(at, what))
            }
        }
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
                if self.open_names.is_none() && spelling::names_and_others(keywords) {
                    self.open_names = Some(at.clone());
                }
                let outside = self.based;
                self.based |= !std::ptr::eq(value, self.root) && has_base(keywords);
                let result =
                    keywords.iter().try_for_each(|(keyword, value)| self.keyword(keyword, value, at));
                self.based = outside;
                result
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
                    s.patterns(map, at)?;
                }
                map.iter().try_for_each(|(name, value)| s.below(at, name, |s, at| s.schema(value, at)))
            }),
            (Holds::Reference, Value::String(text)) => self.reference(text, at),
            (Holds::Data, value) | (Holds::Values, value @ Value::Array(_)) => {
                if spelling::in_data(value) {
                    self.needs_control(at);
                }
                self.exact(value, at)
            }
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
            (Holds::Text, Value::String(text)) if keyword == "pattern" => self.pattern(text, at).map(drop),
            (Holds::Text, Value::String(text)) if keyword == "format" && text == "unknown" => {
                Err(wrong(at, "the format \"unknown\" enforces nothing; use a pattern, or leave it out"))
            }
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

    /// Weighs a regular expression and gives it as llguidance is to have it; that it is none is llguidance's to say.
    fn pattern(&mut self, text: &str, at: &str) -> Result<String, GrammarError> {
        let fits = |text: &str| at_most("a pattern's length in bytes", text.len(), regex::MAX_BYTES);
        fits(text)?;
        let translated = pattern::translated(text).map_err(|what| wrong(at, what))?;
        fits(&translated)?;
        let read = regex_to_lark(&translated, "dw");
        let Ok(ast) = ast::parse::Parser::new().parse(&read) else { return Ok(translated) };
        self.weight = self.weight.saturating_add(weigh::weight(&ast));
        if self.weight > MAX_WEIGHT {
            let what = format!(
                "its patterns come to about {} ranges of characters, but at most {MAX_WEIGHT} are taken; write fewer classes such as \\pL",
                self.weight
            );
            return Err(wrong(at, what));
        }
        if Translator::new().translate(&read, &ast).is_ok_and(|hir| spelling::in_pattern(&hir)) {
            self.needs_control(at);
        }
        Ok(translated)
    }

    /// The patterns of properties' names, no two of which may become the same.
    fn patterns(&mut self, map: &'s Map<String, Value>, at: &str) -> Result<(), GrammarError> {
        let mut seen = HashMap::new();
        for text in map.keys() {
            if let Some(other) = seen.insert(self.pattern(text, at)?, text) {
                return Err(wrong(at, format!("{other:?} and {text:?} are the same pattern; make them one")));
            }
        }
        Ok(())
    }

    fn needs_control(&mut self, at: &str) {
        self.control.get_or_insert_with(|| at.to_owned());
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
        if self.based {
            let what = format!(
                "{text:?} stands in a schema whose \"$id\" or \"id\" gives references another base, which is not followed; \
                 leave that out, and let references lead from the whole schema"
            );
            return Err(wrong(at, what));
        }
        if self.targets.contains_key(text) {
            return Ok(());
        }
        if steps(text).is_none() {
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

/// Whether a schema says what references in it start from: what is no more than a name of its own begins with `#`.
fn has_base(keywords: &Map<String, Value>) -> bool {
    let id = |keyword| keywords.get(keyword).and_then(Value::as_str);
    ["$id", "id"].into_iter().filter_map(id).any(|id| !id.starts_with('#'))
}

/// A keyword with a value with which it asks for nothing, though llguidance knows it as one that it cannot enforce.
pub(super) fn asks_for_nothing(keyword: &str, value: &Value) -> bool {
    keyword == "uniqueItems" && value == &Value::Bool(false)
}

/// What a keyword that is enforced, or holds schemas to refer to, has as its value.
pub(super) fn holds(keyword: &str) -> Option<Holds> {
    let found = ENFORCED.iter().find(|(name, _)| *name == keyword).map(|(_, holds)| *holds);
    found.or(matches!(keyword, "$defs" | "definitions").then_some(Holds::Map))
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
