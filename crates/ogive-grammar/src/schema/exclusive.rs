//! Whether the alternatives of a `oneOf` exclude each other: then it is an `anyOf`, which llguidance can enforce.
//!
//! Only what is sure counts: two exclude each other if no kind of value can be both. Tagged unions do by the property that tells
//! which one it is, as pydantic writes them, and references are followed, which llguidance does not for this.

use super::references::lead_to;
use super::values::{ARRAY, KINDS, NUMBER, OBJECT, STRING, kind, kinds, list, named, required, types};
use serde_json::{Map, Value};

type Keywords = Map<String, Value>;

/// Schemas looked at, of all lists together: half a second. With none left nothing more is found.
const MAX_STEPS: usize = 4_000_000;
/// Schemas in schemas and references to references.
const MAX_DEPTH: usize = 24;

/// What holds of one value at once.
#[derive(Default)]
struct All<'s> {
    keywords: Vec<&'s Keywords>,
    /// Lists, of each of which one holds at least.
    choices: Vec<&'s [Value]>,
    /// Nothing is all that.
    never: bool,
}

pub(super) struct Exclusive<'s> {
    root: &'s Value,
    left: usize,
}

impl<'s> Exclusive<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        Self { root, left: MAX_STEPS }
    }

    /// Whether each two of these exclude each other, beside the keywords that they stand among.
    pub(super) fn are(&mut self, beside: &'s Keywords, alternatives: &'s [Value]) -> bool {
        let mut all = Vec::with_capacity(alternatives.len());
        for schema in alternatives {
            let mut one = All { keywords: vec![beside], ..All::default() };
            self.gather(schema, &mut one, MAX_DEPTH);
            all.push(one);
        }
        all.iter().enumerate().all(|(i, a)| all.iter().skip(i + 1).all(|b| self.apart(a, b, MAX_DEPTH)))
    }

    fn spend(&mut self, steps: usize) -> bool {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    fn all(&mut self, schema: &'s Value, depth: usize) -> All<'s> {
        let mut all = All::default();
        self.gather(schema, &mut all, depth);
        all
    }

    fn gather(&mut self, schema: &'s Value, into: &mut All<'s>, depth: usize) {
        if depth == 0 || !self.spend(1) {
            return;
        }
        into.never |= schema == &Value::Bool(false);
        let Value::Object(keywords) = schema else { return };
        into.keywords.push(keywords);
        let target = keywords.get("$ref").and_then(Value::as_str).and_then(|text| lead_to(self.root, text));
        for schema in target.into_iter().chain(list(keywords, "allOf")) {
            self.gather(schema, into, depth - 1);
        }
        let choices = ["anyOf", "oneOf"].map(|keyword| list(keywords, keyword));
        into.choices.extend(choices.into_iter().filter(|choices| !choices.is_empty()));
    }

    /// Whether nothing is both.
    fn apart(&mut self, a: &All<'s>, b: &All<'s>, depth: usize) -> bool {
        if depth == 0 || !self.spend(1 + a.keywords.len() + b.keywords.len()) {
            return false;
        }
        let common = kinds_of(a) & kinds_of(b);
        if a.never || b.never || common == 0 {
            return true;
        }
        for (one, other) in [(a, b), (b, a)] {
            if values(one).is_some_and(|values| values.iter().all(|value| self.excludes(other, value, depth)))
            {
                return true;
            }
            for &choices in &one.choices {
                let apart = |schema| {
                    let choice = self.all(schema, depth);
                    self.apart(&choice, other, depth - 1)
                };
                if choices.iter().all(apart) {
                    return true;
                }
            }
        }
        let both = || a.keywords.iter().chain(&b.keywords).copied();
        (0..8).map(|bit| 1 << bit).filter(|kind| common & kind != 0).all(|kind| match kind {
            NUMBER => within(both(), "minimum", "maximum").is_none(),
            STRING => within(both(), "minLength", "maxLength").is_none(),
            ARRAY => within(both(), "minItems", "maxItems").is_none(),
            OBJECT => self.objects_apart(a, b, depth),
            _ => false,
        })
    }

    /// Whether no object is both, by a property that it must have.
    fn objects_apart(&mut self, a: &All<'s>, b: &All<'s>, depth: usize) -> bool {
        let both = || a.keywords.iter().chain(&b.keywords).copied();
        within(both(), "minProperties", "maxProperties").is_none()
            || both().flat_map(required).any(|name| {
                let [a, b] = [a, b].map(|all| self.property(all, name, depth));
                self.apart(&a, &b, depth - 1)
            })
    }

    /// What holds of a property.
    fn property(&mut self, all: &All<'s>, name: &str, depth: usize) -> All<'s> {
        let mut property = All::default();
        for keywords in &all.keywords {
            let schema = named(keywords, "properties", name).or_else(|| others(keywords));
            if let Some(schema) = schema {
                self.gather(schema, &mut property, depth);
            }
        }
        property
    }

    /// Whether a value cannot be all that.
    fn excludes(&mut self, all: &All<'s>, value: &Value, depth: usize) -> bool {
        if depth == 0 || !self.spend(1 + all.keywords.len()) {
            return false;
        }
        let number = value.as_f64();
        let whole = number.is_none_or(|n| n.fract() == 0.0);
        all.never
            || kinds_of(all) & kind(value) == 0
            || all.keywords.iter().any(|keywords| {
                let integers = types(keywords)
                    .is_some_and(|t| t.contains(&"integer".into()) && !t.contains(&"number".into()));
                (integers && !whole)
                    || allowed(keywords).is_some_and(|values| {
                        self.spend(values.len()) && !values.iter().any(|other| same(value, other))
                    })
            })
            || number.is_some_and(|n| {
                within(all.keywords.iter().copied(), "minimum", "maximum").is_none_or(|(low, high)| {
                    !meet(low, Bound { at: n, out: false }) || !meet(Bound { at: n, out: false }, high)
                })
            })
            || value.as_object().is_some_and(|object| self.excludes_object(all, object, depth))
            || all.choices.iter().any(|choices| {
                choices.iter().all(|schema| {
                    let choice = self.all(schema, depth);
                    self.excludes(&choice, value, depth - 1)
                })
            })
    }

    fn excludes_object(&mut self, all: &All<'s>, object: &Keywords, depth: usize) -> bool {
        all.keywords.iter().any(|keywords| required(keywords).any(|name| !object.contains_key(name)))
            || object.iter().any(|(name, value)| {
                let property = self.property(all, name, depth);
                self.excludes(&property, value, depth - 1)
            })
    }
}

/// The schema of all properties that are not listed.
fn others(keywords: &Keywords) -> Option<&Value> {
    if keywords.contains_key("patternProperties") { None } else { keywords.get("additionalProperties") }
}

fn kinds_of(all: &All<'_>) -> u8 {
    all.keywords.iter().fold(KINDS, |common, keywords| {
        let values = allowed(keywords).map(|values| values.iter().fold(0, |all, value| all | kind(value)));
        common & kinds(keywords) & values.unwrap_or(KINDS)
    })
}

/// The values that may be, where a schema lists them.
fn allowed(keywords: &Keywords) -> Option<&[Value]> {
    keywords
        .get("const")
        .map(std::slice::from_ref)
        .or_else(|| keywords.get("enum").and_then(Value::as_array).map(Vec::as_slice))
}

fn values<'s>(all: &All<'s>) -> Option<&'s [Value]> {
    all.keywords.iter().find_map(|keywords| allowed(keywords))
}

/// One end of a range, and whether it is out of it itself.
#[derive(Clone, Copy)]
struct Bound {
    at: f64,
    out: bool,
}

/// Whether there is something from one to the other.
fn meet(low: Bound, high: Bound) -> bool {
    low.at < high.at || (low.at == high.at && !low.out && !high.out)
}

/// The range that all of them leave; `None` if that is none.
fn within<'s>(all: impl Iterator<Item = &'s Keywords>, least: &str, most: &str) -> Option<(Bound, Bound)> {
    let (mut low, mut high) =
        (Bound { at: f64::NEG_INFINITY, out: false }, Bound { at: f64::INFINITY, out: false });
    for keywords in all {
        for bound in bounds(keywords, least, "exclusiveMinimum") {
            if bound.at > low.at || (bound.at == low.at && bound.out) {
                low = bound;
            }
        }
        for bound in bounds(keywords, most, "exclusiveMaximum") {
            if bound.at < high.at || (bound.at == high.at && bound.out) {
                high = bound;
            }
        }
    }
    meet(low, high).then_some((low, high))
}

/// The bounds by a keyword and by the one that leaves the number itself out, which in draft 4 says so of the other.
fn bounds(keywords: &Keywords, keyword: &str, exclusive: &str) -> impl Iterator<Item = Bound> {
    let exclusive = keywords.get(exclusive).filter(|_| matches!(keyword, "minimum" | "maximum"));
    let out = exclusive == Some(&Value::Bool(true));
    // Whole numbers beyond this are not told from their neighbours.
    let exact = |at: f64| at.abs() < 9_007_199_254_740_992.0;
    let bound = |value: &Value, out| value.as_f64().map(|at| Bound { at, out: out && exact(at) });
    let own = keywords.get(keyword).and_then(|value| bound(value, out));
    own.into_iter().chain(exclusive.and_then(|value| bound(value, true)))
}

/// Whether two values are the same to JSON Schema, for which `1.0` is `1`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}
