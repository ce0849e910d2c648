//! What holds of one value at once: a schema's own keywords, its `allOf`, what its `$ref` leads to, one of its `anyOf`.
//!
//! llguidance makes one schema of those, in ways that do not bear everything: the least common multiple of two `multipleOf` is
//! reckoned in 32 bits and wraps, and an object's names are gone through for each of its names. Here it is followed in what it
//! brings together, by its own order of keywords, and what it would get wrong or would work on for minutes is refused before.

use super::factor::Factor;
use super::references::lead_to;
use super::values::{ARRAY, NUMBER, OBJECT, kind, kinds, list, named, required, whole};
use crate::error::{GrammarError, at_most};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Names of one object, in `properties` and `required`: two seconds.
const MAX_NAMES: usize = 3_000;
/// Pairs of names within objects, of all objects: `MAX_NAMES` of one. A schema for FHIR has some 100 000.
const MAX_PAIRS: usize = MAX_NAMES * MAX_NAMES;
/// Properties that llguidance writes out for a `minProperties` or `maxProperties` of 1, each of which it has start an object:
/// a second and 100 MB.
const MAX_WRITTEN: usize = 20_000;
/// What can be left of divisions by all `multipleOf`, without twos and fives: two seconds and 160 MB.
const MAX_REMAINDERS: usize = 200_000;
/// Patterns of one object's names, of which llguidance asks of each two whether a name fits both: half a second.
const MAX_PATTERNS: usize = 150;
/// Pairs of them within objects, each schema of one counted: two seconds.
const MAX_PATTERN_PAIRS: usize = 3 * MAX_PATTERNS * MAX_PATTERNS;
/// Schemas put together. llguidance itself goes no further than 50 000 schemas.
const MAX_STEPS: usize = 1_000_000;

/// Kinds of values of which something is asked here.
const ALL: u8 = NUMBER | OBJECT | ARRAY;

/// Refuses what llguidance gets wrong or takes too long for. Goes down references by recursion, as llguidance does.
pub(crate) fn check(root: &Value) -> Result<(), GrammarError> {
    let mut look =
        Look { root, known: HashMap::new(), steps: 0, pairs: 0, written: 0, remainders: 0, pattern_pairs: 0 };
    let mut seen = HashSet::new();
    let mut open = vec![vec![root]];
    while let Some(schemas) = open.pop() {
        let key: Vec<*const Value> = schemas.iter().map(|&schema| std::ptr::from_ref(schema)).collect();
        if !seen.insert(key) {
            continue;
        }
        for way in look.all(&schemas)?.iter() {
            if let Some(factor) = way.factor.as_ref().filter(|_| way.kinds & NUMBER != 0) {
                look.factor(factor)?;
            }
            if way.kinds & OBJECT != 0 {
                look.object(way, &mut open)?;
            }
            if way.kinds & ARRAY != 0 {
                look.array(way, &mut open)?;
            }
        }
    }
    Ok(())
}

fn refused(why: String) -> GrammarError {
    GrammarError::Refused { why }
}

/// One choice among all alternatives, and what it asks for.
#[derive(Clone)]
struct Way<'s> {
    kinds: u8,
    factor: Option<Factor>,
    /// Schemas with keywords for objects and arrays.
    schemas: Vec<&'s Map<String, Value>>,
    /// Names of the objects that it is, by `const` or `enum`.
    names: usize,
    /// Whether it is such an object, which has no other names.
    listed: bool,
}

impl Way<'_> {
    fn of(kinds: u8) -> Self {
        Self { kinds, factor: None, schemas: Vec::new(), names: 0, listed: false }
    }
}

struct Look<'s> {
    root: &'s Value,
    /// The ways of a schema; `None` while they are looked for, for what refers to itself at the same place is no schema.
    known: HashMap<*const Value, Option<Rc<Vec<Way<'s>>>>>,
    steps: usize,
    pairs: usize,
    written: usize,
    remainders: usize,
    pattern_pairs: usize,
}

type Ways<'s> = Rc<Vec<Way<'s>>>;

impl<'s> Look<'s> {
    fn spend(&mut self, steps: usize) -> Result<(), GrammarError> {
        self.steps += steps;
        at_most("the number of its parts that hold at once", self.steps, MAX_STEPS)
    }

    /// The ways in which all of them hold.
    fn all(&mut self, schemas: &[&'s Value]) -> Result<Ways<'s>, GrammarError> {
        if let [one] = schemas {
            return self.ways(one);
        }
        let mut ways = vec![Way::of(ALL)];
        for schema in schemas {
            let more = self.ways(schema)?;
            ways = self.both(&ways, &more)?;
        }
        Ok(Rc::new(ways))
    }

    fn ways(&mut self, schema: &'s Value) -> Result<Ways<'s>, GrammarError> {
        self.spend(1)?;
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(false) => return Ok(Rc::default()),
            _ => return Ok(Rc::new(vec![Way::of(ALL)])),
        };
        match self.known.get(&std::ptr::from_ref(schema)) {
            Some(Some(ways)) => return Ok(Rc::clone(ways)),
            Some(None) => return Ok(Rc::new(vec![Way::of(ALL)])),
            None => {}
        }
        self.known.insert(schema, None);
        let ways = Rc::new(self.object_ways(keywords)?);
        self.known.insert(schema, Some(Rc::clone(&ways)));
        Ok(ways)
    }

    /// As llguidance goes through the keywords: those that lead to other schemas in their order, all others together before the
    /// next of those.
    fn object_ways(&mut self, keywords: &'s Map<String, Value>) -> Result<Vec<Way<'s>>, GrammarError> {
        let mut own = Some(vec![own(keywords)]);
        let mut ways = vec![Way::of(ALL)];
        let mut due = false;
        for (keyword, value) in keywords {
            let list = || list(keywords, keyword);
            let more = match keyword.as_str() {
                "multipleOf" => {
                    due = true;
                    continue;
                }
                "const" => vec![self.data(std::slice::from_ref(value))?],
                "enum" => vec![self.data(list())?],
                "$ref" => {
                    let target = value.as_str().and_then(|text| lead_to(self.root, text));
                    target.map_or_else(|| Ok(Rc::default()), |target| self.ways(target))?.to_vec()
                }
                "allOf" => {
                    let parts: Vec<&Value> = list().iter().collect();
                    if let Some(own) = own.take_if(|_| due) {
                        ways = self.both(&ways, &own)?;
                    }
                    for part in parts {
                        let more = self.ways(part)?;
                        ways = self.both(&ways, &more)?;
                    }
                    continue;
                }
                "anyOf" | "oneOf" => {
                    let mut any = Vec::new();
                    for part in list() {
                        any.extend(self.ways(part)?.iter().cloned());
                        self.spend(1)?;
                    }
                    any
                }
                _ => continue,
            };
            if let Some(own) = own.take_if(|_| due) {
                ways = self.both(&ways, &own)?;
            }
            ways = self.both(&ways, &more)?;
        }
        match own {
            Some(own) => self.both(&ways, &own),
            None => Ok(ways),
        }
    }

    /// Each of these with each of those.
    fn both(&mut self, these: &[Way<'s>], those: &[Way<'s>]) -> Result<Vec<Way<'s>>, GrammarError> {
        let mut ways = Vec::new();
        for a in these {
            for b in those {
                self.spend(1 + a.schemas.len() + b.schemas.len())?;
                let kinds = a.kinds & b.kinds;
                if kinds == 0 {
                    continue;
                }
                let factor = match (&a.factor, &b.factor) {
                    (Some(a), Some(b)) if kinds & NUMBER != 0 => Some(a.with(b).map_err(refused)?),
                    (a, b) => a.clone().or_else(|| b.clone()),
                };
                let mut schemas = Vec::new();
                if kinds & (OBJECT | ARRAY) != 0 {
                    schemas.extend(a.schemas.iter().chain(&b.schemas));
                }
                let (names, listed) = (a.names + b.names, a.listed || b.listed);
                ways.push(Way { kinds, factor, schemas, names, listed });
            }
        }
        Ok(ways)
    }

    /// One of some values.
    fn data(&mut self, values: &'s [Value]) -> Result<Way<'s>, GrammarError> {
        let mut way = Way::of(0);
        let mut open: Vec<&Value> = Vec::new();
        for value in values {
            if let Value::Object(map) = value {
                way.names = way.names.max(map.len());
                way.listed = true;
            }
            way.kinds |= kind(value) & ALL;
            open.push(value);
        }
        while let Some(value) = open.pop() {
            match value {
                Value::Array(list) => open.extend(list),
                Value::Object(map) => {
                    self.names(map.len(), map.keys().next())?;
                    open.extend(map.values());
                }
                _ => {}
            }
        }
        Ok(way)
    }

    /// Notes what a number is divided by.
    fn factor(&mut self, factor: &Factor) -> Result<(), GrammarError> {
        factor.fits().map_err(refused)?;
        self.remainders += factor.remainders();
        if self.remainders <= MAX_REMAINDERS {
            return Ok(());
        }
        Err(refused(format!(
            "multipleOf {factor}: without their factors 2 and 5 all multipleOf come to {}, but at most {MAX_REMAINDERS} are \
             taken; take smaller ones",
            self.remainders
        )))
    }

    /// Notes an object with so many names.
    fn names(&mut self, names: usize, first: Option<&String>) -> Result<(), GrammarError> {
        if names > MAX_NAMES {
            return Err(refused(format!(
                "{} names {names} properties, but at most {MAX_NAMES} are taken; divide it among several objects",
                called(first)
            )));
        }
        self.pairs += names * names;
        at_most("the sum of its objects' numbers of properties, each squared,", self.pairs, MAX_PAIRS)
    }

    /// Looks at an object's size and notes what its properties are.
    fn object(&mut self, way: &Way<'s>, open: &mut Vec<Vec<&'s Value>>) -> Result<(), GrammarError> {
        let map = |schema: &&'s Map<String, Value>, keyword| schema.get(keyword).and_then(Value::as_object);
        let all = |keyword| way.schemas.iter().filter_map(move |schema| map(schema, keyword));
        let required: HashSet<&str> = way.schemas.iter().flat_map(|schema| required(schema)).collect();
        let mut listed: Vec<&'s String> = all("properties").flat_map(Map::keys).collect();
        let first = listed.first().copied();
        self.spend(listed.len() * way.schemas.len())?;
        if way.schemas.len() > 1 {
            let mut seen = HashSet::new();
            listed.retain(|name| seen.insert(*name));
        }
        let optional = listed.iter().filter(|name| !required.contains(name.as_str())).count();
        self.names(optional + required.len() + way.names, first)?;
        self.bounded(way, optional, required.len(), first)?;
        let mut patterns: Vec<Option<&'s String>> = vec![None];
        patterns.extend(all("patternProperties").flat_map(Map::keys).map(Some));
        self.patterns(way, patterns.len() - 1)?;
        for &pattern in &patterns {
            // A name that is not listed stands for all of those.
            for name in listed.iter().map(|name| Some(*name)).chain([None]) {
                let mut schemas = Vec::new();
                for schema in &way.schemas {
                    let found = |keyword, key: Option<&'s String>| named(schema, keyword, key?);
                    let own = [found("properties", name), found("patternProperties", pattern)];
                    let before = schemas.len();
                    schemas.extend(own.into_iter().flatten());
                    if schemas.len() == before {
                        schemas.extend(schema.get("additionalProperties"));
                    }
                }
                self.spend(1 + way.schemas.len())?;
                open.extend((!schemas.is_empty()).then_some(schemas));
            }
        }
        Ok(())
    }

    /// Notes so many patterns of names. llguidance compares them again for each schema that comes to an object.
    fn patterns(&mut self, way: &Way<'_>, count: usize) -> Result<(), GrammarError> {
        at_most("the number of patternProperties of an object", count, MAX_PATTERNS)?;
        self.pattern_pairs += count * count * way.schemas.len();
        at_most(
            "the sum of its objects' numbers of patternProperties, each squared,",
            self.pattern_pairs,
            MAX_PATTERN_PAIRS,
        )
    }

    /// For one property at least, or at most, llguidance writes the object once for each that it could be.
    fn bounded(
        &mut self,
        way: &Way<'_>,
        optional: usize,
        required: usize,
        first: Option<&String>,
    ) -> Result<(), GrammarError> {
        let all =
            |keyword| way.schemas.iter().filter_map(move |schema| schema.get(keyword)).filter_map(whole);
        let least = all("minProperties").max().unwrap_or(0).saturating_sub(required as u64);
        let most = all("maxProperties").min().map(|most| most.saturating_sub(required as u64));
        let closed = |schema: &&Map<String, Value>| {
            schema.get("additionalProperties") == Some(&Value::Bool(false))
                && !schema.contains_key("patternProperties")
        };
        // One name twice would do for two, and which there were is not remembered.
        if least > 1 && !way.listed && !way.schemas.iter().any(closed) {
            return Err(refused(format!(
                "minProperties of {} cannot be counted, for {least} of those would be names that are not listed, and one of \
                 them could come twice; require all but one, or leave minProperties out",
                called(first)
            )));
        }
        let (keyword, each) = match (least, most) {
            (0 | 1, Some(1)) => ("maxProperties", 1 + required),
            (1, None) => ("minProperties", optional + required),
            _ => return Ok(()),
        };
        self.written += optional * each;
        if self.written > MAX_WRITTEN {
            return Err(refused(format!(
                "{keyword} of {}: with {optional} properties that are optional and {required} that are required it, and all \
                 like it, come to {} written out, but at most {MAX_WRITTEN} are; leave {keyword} out, or require some",
                called(first),
                self.written
            )));
        }
        Ok(())
    }

    /// Notes what an array's items are.
    fn array(&mut self, way: &Way<'s>, open: &mut Vec<Vec<&'s Value>>) -> Result<(), GrammarError> {
        let items = |schema: &&'s Map<String, Value>| {
            let (prefix, items) = (schema.get("prefixItems"), schema.get("items"));
            match items {
                Some(Value::Array(list)) => (list.as_slice(), schema.get("additionalItems")),
                _ => (prefix.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default(), items),
            }
        };
        let parts: Vec<(&'s [Value], Option<&'s Value>)> = way.schemas.iter().map(items).collect();
        let longest = parts.iter().map(|(first, _)| first.len()).max().unwrap_or(0);
        for at in 0..=longest {
            self.spend(1 + parts.len())?;
            let schemas: Vec<&Value> =
                parts.iter().filter_map(|(first, rest)| first.get(at).or(*rest)).collect();
            open.extend((!schemas.is_empty()).then_some(schemas));
        }
        Ok(())
    }
}

/// What a schema's own keywords ask for.
fn own(keywords: &Map<String, Value>) -> Way<'_> {
    let mut way = Way::of(kinds(keywords) & ALL);
    if way.kinds & NUMBER != 0 {
        way.factor = keywords.get("multipleOf").and_then(Value::as_f64).and_then(Factor::new);
    }
    way.schemas.push(keywords);
    way
}

/// An object, by a property of it.
fn called(first: Option<&String>) -> String {
    first.map_or_else(|| "an object".into(), |name| format!("the object with {name:?}"))
}
