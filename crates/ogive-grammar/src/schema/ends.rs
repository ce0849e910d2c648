//! Whether a schema that refers to itself has a way out: `{"a": {"a": {"a": ...` has none if `a` is required.
//!
//! Only what is sure is refused: whatever is not understood here counts as a way out, and what contradicts itself otherwise is
//! llguidance's to find. Each schema counts those that it waits for, so that none is looked at twice however they refer to each
//! other.

use super::keywords::Targets;
use super::values::{list, named, required, types, whole};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Whether some finite text can satisfy `schema`, as far as references decide it.
pub(super) fn can_end<'s>(schema: &'s Value, targets: &Targets<'s>) -> bool {
    let mut waits = Waits::default();
    let root = waits.at(schema);
    while let Some((at, schema)) = waits.open.pop() {
        waits.look(at, schema, targets);
    }
    waits.ends(root)
}

/// Schemas, and choices between some, by number.
#[derive(Default)]
struct Waits<'s> {
    numbers: HashMap<*const Value, usize>,
    open: Vec<(usize, &'s Value)>,
    /// For each, how many it waits for and which wait for it.
    missing: Vec<usize>,
    used_by: Vec<Vec<usize>>,
}

impl<'s> Waits<'s> {
    fn add(&mut self, missing: usize) -> usize {
        self.missing.push(missing);
        self.used_by.push(Vec::new());
        self.missing.len() - 1
    }

    /// The number of a schema; one that is new is looked at later.
    fn at(&mut self, schema: &'s Value) -> usize {
        if let Some(&at) = self.numbers.get(&std::ptr::from_ref(schema)) {
            return at;
        }
        let at = self.add(0);
        self.numbers.insert(schema, at);
        self.open.push((at, schema));
        at
    }

    fn needs(&mut self, whole: usize, part: usize) {
        self.missing[whole] += 1;
        self.used_by[part].push(whole);
    }

    fn needs_each(&mut self, whole: usize, schemas: impl IntoIterator<Item = &'s Value>) {
        for schema in schemas {
            let part = self.at(schema);
            self.needs(whole, part);
        }
    }

    fn needs_one(&mut self, whole: usize, schemas: impl IntoIterator<Item = &'s Value>) {
        let mut schemas = schemas.into_iter().peekable();
        if schemas.peek().is_none() {
            return;
        }
        let choice = self.add(1);
        for schema in schemas {
            let part = self.at(schema);
            self.used_by[part].push(choice);
        }
        self.needs(whole, choice);
    }

    fn look(&mut self, at: usize, schema: &'s Value, targets: &Targets<'s>) {
        let Value::Object(keywords) = schema else { return };
        let list = |keyword| list(keywords, keyword);
        let reference = keywords.get("$ref").and_then(Value::as_str);
        self.needs_each(at, reference.and_then(|name| targets.get(name).copied()));
        self.needs_each(at, list("allOf"));
        self.needs_one(at, list("anyOf"));
        self.needs_one(at, list("oneOf"));
        // With several types another one may be the way out.
        let kind = match types(keywords) {
            Some([one]) => one.as_str(),
            _ => None,
        };
        match kind {
            Some("object") => self.object(at, keywords),
            Some("array") => {
                let least = keywords.get("minItems").and_then(whole).unwrap_or(0);
                let needed = usize::try_from(least).unwrap_or(usize::MAX);
                let first =
                    if keywords.contains_key("prefixItems") { list("prefixItems") } else { list("items") };
                self.needs_each(at, first.iter().take(needed));
                let rest = keywords.get("items").filter(|items| !items.is_array());
                self.needs_each(at, rest.filter(|_| needed > first.len()));
            }
            _ => {}
        }
    }

    fn object(&mut self, at: usize, keywords: &'s Map<String, Value>) {
        let schemas =
            |keyword| keywords.get(keyword).and_then(Value::as_object).into_iter().flat_map(Map::values);
        // What a name may have that is not listed, if that is not anything.
        let others = keywords.get("additionalProperties");
        let unlisted =
            || schemas("patternProperties").chain(others.filter(|schema| *schema != &Value::Bool(false)));
        let names: HashSet<&str> = required(keywords).collect();
        for &name in &names {
            match named(keywords, "properties", name) {
                Some(schema) => self.needs_each(at, [schema]),
                None if others.is_some() => self.needs_one(at, unlisted()),
                None => {}
            }
        }
        let least = keywords.get("minProperties").and_then(whole).unwrap_or(0);
        if others.is_some() && least > names.len() as u64 {
            let properties = keywords.get("properties").and_then(Value::as_object).into_iter().flatten();
            let optional = properties.filter(|(name, _)| !names.contains(name.as_str()));
            self.needs_one(at, optional.map(|(_, schema)| schema).chain(unlisted()));
        }
    }

    /// Whether one is found to end, from those on that wait for none.
    fn ends(mut self, one: usize) -> bool {
        let mut open: Vec<usize> = (0..self.missing.len()).filter(|&at| self.missing[at] == 0).collect();
        while let Some(at) = open.pop() {
            if at == one {
                return true;
            }
            for &whole in &self.used_by[at] {
                // Of a choice another may have been enough.
                let left = self.missing[whole].checked_sub(1);
                if left == Some(0) {
                    open.push(whole);
                }
                self.missing[whole] = left.unwrap_or(0);
            }
        }
        false
    }
}
