//! The schema as llguidance is to have it, which means the same.
//!
//! llguidance goes through keywords in their order and puts together what it has whenever one leads to other schemas. So keywords that
//! belong together are brought together, and what it would read otherwise, or not at all, is written in words that it knows.

use super::exclusive::Exclusive;
use super::keywords::{Holds, Schemas, Targets, asks_for_nothing, holds};
use super::references::{is_plain, lead_to, steps};
use super::values::whole;
use super::{format, pattern};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Keywords that say something only with each other.
const TOGETHER: [&[&str]; 4] = [
    &["properties", "patternProperties", "additionalProperties"],
    &["items", "prefixItems", "additionalItems"],
    &["minimum", "exclusiveMinimum"],
    &["maximum", "exclusiveMaximum"],
];

struct Rewriter<'s> {
    root: &'s Value,
    /// All that were walked: a property or a value of a `const` may be called as a keyword is.
    schemas: &'s Schemas,
    /// What definitions are called that references with escapes lead to.
    names: BTreeMap<&'s str, String>,
    exclusive: Exclusive<'s>,
}

/// The whole schema, with a definition for each reference that llguidance does not read.
pub(super) fn rewritten<'s>(root: &'s Value, targets: &Targets<'s>, schemas: &'s Schemas) -> Value {
    let names = names(root, targets);
    let mut rewriter = Rewriter { root, schemas, names, exclusive: Exclusive::new(root) };
    let mut new = rewriter.value(root);
    let definitions: Vec<_> = targets
        .iter()
        .filter_map(|(text, target)| Some((rewriter.names.get(text)?.clone(), rewriter.value(target))))
        .collect();
    if !definitions.is_empty()
        && let Some(new) = new.as_object_mut()
        && let Value::Object(all) = new.entry("$defs").or_insert_with(|| json!({}))
    {
        all.extend(definitions);
    }
    new
}

/// Names that there are not yet, which still tell what they stand for.
fn names<'s>(root: &Value, targets: &Targets<'s>) -> BTreeMap<&'s str, String> {
    let taken = root.get("$defs");
    let odd = targets.keys().filter(|text| !is_plain(text));
    let name = |(at, text): (usize, &&'s str)| {
        let last = steps(text).and_then(|steps| steps.last().cloned()).unwrap_or_default();
        let mut name = format!("{}_{at}", last.replace(['/', '%', '~'], "_"));
        while taken.is_some_and(|taken| taken.get(&name).is_some()) {
            name.push('_');
        }
        (*text, name)
    };
    odd.enumerate().map(name).collect()
}

impl<'s> Rewriter<'s> {
    fn value(&mut self, value: &'s Value) -> Value {
        match value {
            Value::Array(list) => list.iter().map(|value| self.value(value)).collect(),
            Value::Object(map) if self.schemas.contains(&std::ptr::from_ref(value)) => self.schema(map),
            Value::Object(map) => self.each(map),
            value => value.clone(),
        }
    }

    fn each(&mut self, map: &'s Map<String, Value>) -> Value {
        Value::Object(map.iter().map(|(name, value)| (name.clone(), self.value(value))).collect())
    }

    fn schema(&mut self, map: &'s Map<String, Value>) -> Value {
        let (mut new, mut also) = (Map::new(), Vec::new());
        for (keyword, value) in in_order(map) {
            let (becomes, value) = self.keyword(map, keyword, value);
            match becomes {
                Some(other) if other != keyword && map.contains_key(other) => {
                    also.push(json!({ other: value }))
                }
                Some(name) => drop(new.insert(name.to_owned(), value)),
                None => also.push(value),
            }
        }
        if !also.is_empty()
            && let Value::Array(all) = new.entry("allOf").or_insert_with(|| json!([]))
        {
            all.extend(also);
        }
        Value::Object(new)
    }

    /// What a keyword is to be called, and its value; without a name that is a schema of its own.
    fn keyword<'k>(
        &mut self,
        beside: &'s Map<String, Value>,
        keyword: &'k str,
        value: &'s Value,
    ) -> (Option<&'k str>, Value) {
        let new = match (holds(keyword), value) {
            (Some(Holds::Data | Holds::Values), value) => value.clone(),
            (Some(Holds::Count | Holds::Length), value) => {
                whole(value).map_or_else(|| value.clone(), Value::from)
            }
            (Some(Holds::Reference), Value::String(text)) => {
                // llguidance takes a definition that cannot hold for a schema that cannot.
                if lead_to(self.root, text) == Some(&Value::Bool(false)) {
                    return (None, Value::Bool(false));
                }
                let name = self.names.get(text.as_str());
                name.map_or_else(|| value.clone(), |name| format!("#/$defs/{name}").into())
            }
            (Some(Holds::Text), Value::String(text)) if keyword == "pattern" => translated(text).into(),
            (Some(Holds::Text), Value::String(text)) if keyword == "format" => {
                return match format::pattern_of(text) {
                    Some(pattern) => (Some("pattern"), pattern.into()),
                    None => (Some(keyword), value.clone()),
                };
            }
            (Some(Holds::List), Value::Array(alternatives))
                if keyword == "oneOf" && self.exclusive.are(beside, alternatives) =>
            {
                return (Some("anyOf"), self.value(value));
            }
            (Some(Holds::Map), Value::Object(map)) if keyword == "patternProperties" => {
                let all = map.iter().map(|(text, value)| (translated(text), self.value(value)));
                Value::Object(all.collect())
            }
            // Even if a reference leads to it as if it were a schema: names are no keywords.
            (Some(Holds::Map), Value::Object(map)) => self.each(map),
            _ => self.value(value),
        };
        (Some(keyword), new)
    }
}

/// The keywords that ask for something, those that belong together one after the other.
fn in_order(map: &Map<String, Value>) -> Vec<(&str, &Value)> {
    let mut ordered: Vec<(&str, &Value)> = Vec::with_capacity(map.len());
    for (keyword, value) in map {
        // Some drafts have llguidance pass over keywords of others. They mean the same wherever they are known.
        if keyword == "$schema" || asks_for_nothing(keyword, value) {
            continue;
        }
        match TOGETHER.iter().find(|set| set.contains(&keyword.as_str())) {
            None => ordered.push((keyword, value)),
            Some(set) if !ordered.iter().any(|(other, _)| set.contains(other)) => {
                ordered.extend(set.iter().filter_map(|&other| Some((other, map.get(other)?))));
            }
            Some(_) => {}
        }
    }
    ordered
}

/// A pattern for llguidance; the checker has refused those that have none.
fn translated(text: &str) -> String {
    pattern::translated(text).unwrap_or_else(|_| text.to_owned())
}
