//! Calls that are JSON: whole, or their arguments.

use super::ToolCall;
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
                        let given = object.get(&self.arguments);
                        // Models leave out what there is not.
                        (object.get(key)?.as_str()?, given.map_or_else(|| Some(Map::new()), object_in)?)
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

/// The object that a value is, or that a text is as JSON.
pub(super) fn object_in(value: &Json) -> Option<Map<String, Json>> {
    match value {
        Json::Object(object) => Some(object.clone()),
        Json::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// The value that a text begins with, and what follows it.
pub(super) fn value(text: &str) -> Option<(Json, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let value = values.next()?.ok()?;
    Some((value, text.get(values.byte_offset()..)?))
}
