//! Calls that are JSON: whole, or their arguments.

use super::{MAX_DEPTH, ToolCall};
use serde_json::{Map, Value as Json};

/// Under which keys of a call's object its parts are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keys {
    /// The name; `None` where it is the key, and the arguments are its value.
    pub(super) name: Option<String>,
    pub(super) arguments: String,
}

impl Keys {
    /// Those of an object that is a call of `name` with `arguments`.
    pub(super) fn of(object: &Map<String, Json>, name: &str, arguments: &Map<String, Json>) -> Option<Self> {
        let is = |value: &Json| object_in(value).as_ref() == Some(arguments);
        let key_of = |is: &dyn Fn(&Json) -> bool| Some(object.iter().find(|(_, value)| is(value))?.0.clone());
        if object.get(name).is_some_and(is) {
            return Some(Self { name: None, arguments: String::new() });
        }
        Some(Self { name: Some(key_of(&|value| value == name)?), arguments: key_of(&is)? })
    }

    /// Whether the arguments are under this key.
    pub(super) fn is_arguments(&self, key: &str) -> bool {
        key == self.arguments || ARGUMENTS.contains(&key)
    }

    /// Adds the calls of a value: an object, a list of such, or one around another. `None` if it is or has anything else.
    pub(super) fn calls(&self, value: &Json, calls: &mut Vec<ToolCall>) -> Option<()> {
        match value {
            Json::Array(items) => items.iter().try_for_each(|item| self.calls(item, calls)),
            Json::Object(object) => {
                if let Some(inner) = object.get("function").filter(|inner| inner.is_object()) {
                    return self.calls(inner, calls);
                }
                let (name, arguments) = match &self.name {
                    Some(key) => {
                        let known = |other: &String| {
                            other == key || self.is_arguments(other) || BESIDE.contains(&&**other)
                        };
                        if !object.keys().all(known) {
                            return None;
                        }
                        let given = object.iter().find(|(key, _)| self.is_arguments(key));
                        // Models leave out what there is not.
                        (
                            object.get(key)?.as_str()?,
                            given.map_or_else(|| Some(Map::new()), |(_, given)| object_in(given))?,
                        )
                    }
                    None => {
                        let mut pairs = object.iter();
                        let (name, value) = pairs.next().filter(|_| object.len() == 1)?;
                        (name.as_str(), object_in(value)?)
                    }
                };
                let id = ["id", "tool_call_id"].iter().find_map(|key| object.get(*key)?.as_str());
                calls.push(ToolCall::new(id.unwrap_or_default(), name, arguments));
                Some(())
            }
            _ => None,
        }
    }
}

impl Default for Keys {
    /// Those of most.
    fn default() -> Self {
        Self { name: Some("name".into()), arguments: "arguments".into() }
    }
}

/// What models take for each other.
const ARGUMENTS: [&str; 3] = ["arguments", "parameters", "args"];
/// What may be beside a name and arguments.
const BESIDE: [&str; 4] = ["id", "tool_call_id", "type", "index"];

/// The object that a value is, or that a text is as JSON; an empty one for nothing.
pub(super) fn object_in(value: &Json) -> Option<Map<String, Json>> {
    match value {
        Json::Object(object) => Some(object.clone()),
        Json::String(text) if text.trim().is_empty() => Some(Map::new()),
        Json::String(text) => match self::value(text)? {
            (Json::Object(object), rest) if rest.trim().is_empty() => Some(object),
            _ => None,
        },
        Json::Null => Some(Map::new()),
        _ => None,
    }
}

/// The value that a text begins with, and what follows it.
pub(super) fn value(text: &str) -> Option<(Json, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let value = values.next()?.ok()?;
    is_shallow(&value, MAX_DEPTH).then_some(())?;
    Some((value, text.get(values.byte_offset()..)?))
}

fn is_shallow(value: &Json, depth: usize) -> bool {
    match value {
        Json::Array(items) => depth > 0 && items.iter().all(|item| is_shallow(item, depth - 1)),
        Json::Object(items) => depth > 0 && items.values().all(|item| is_shallow(item, depth - 1)),
        _ => true,
    }
}
