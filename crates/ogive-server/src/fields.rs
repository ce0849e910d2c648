//! What a client sends, field by field.
//!
//! Fields are taken by hand and not by serde's types: an error has to name the field and say what to do, `null` counts as nothing everywhere, and the same
//! field may be one of several kinds (a text, a list of texts, ids).

use crate::error::Refusal;
use serde_json::{Map, Value};

/// A request's fields.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body. How deep it may nest is bounded by serde_json, at 128.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Refusal::bad("the body is to be a JSON object")),
            Err(e) => Err(Refusal::bad(format!("the body is no JSON: {e}"))),
        }
    }

    /// The field, if there is one.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// The same, which there must be.
    pub(crate) fn need(&self, name: &str) -> Result<&Value, Refusal> {
        self.get(name).ok_or_else(|| Refusal::field(name, "it is missing"))
    }

    fn typed<'v, T>(
        &'v self,
        name: &str,
        what: &str,
        read: impl Fn(&'v Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let wrong = || Refusal::field(name, format!("it is to be {what}"));
        self.get(name).map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        self.typed(name, "a text", Value::as_str)
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub(crate) fn list(&self, name: &str) -> Result<Option<&Vec<Value>>, Refusal> {
        self.typed(name, "a list", Value::as_array)
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<&Map<String, Value>>, Refusal> {
        self.typed(name, "an object", Value::as_object)
    }

    /// A number that single precision has.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f32>, Refusal> {
        let finite = |number: f64| Some(number as f32).filter(|number| number.is_finite());
        self.typed(name, "a number", |value| value.as_f64().and_then(finite))
    }

    /// A whole number; some clients write `16.0`.
    pub(crate) fn whole(&self, name: &str) -> Result<Option<usize>, Refusal> {
        self.typed(name, "a whole number from 0", whole)
    }

    /// A whole number from `least` to `most`.
    pub(crate) fn within(&self, name: &str, least: usize, most: usize) -> Result<Option<usize>, Refusal> {
        let what = format!("a whole number from {least} to {most}");
        self.typed(name, &what, |value| whole(value).filter(|n| (least..=most).contains(n)))
    }

    /// Refuses what would change the answer and is not done here. What is as if it were not there is none of it.
    pub(crate) fn refuse(&self, names: &[(&str, &str)]) -> Result<(), Refusal> {
        let nothing = |value: &Value| match value {
            Value::Bool(on) => !on,
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::String(text) => text.is_empty(),
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Null => true,
        };
        match names.iter().find(|(name, _)| self.get(name).is_some_and(|value| !nothing(value))) {
            Some((name, instead)) => {
                Err(Refusal::unsupported(*name, format!("it is not supported; {instead}")))
            }
            None => Ok(()),
        }
    }
}

fn whole(value: &Value) -> Option<usize> {
    let float = || value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..9e15).contains(n)).map(|n| n as u64);
    usize::try_from(value.as_u64().or_else(float)?).ok()
}
