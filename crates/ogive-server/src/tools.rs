//! Tools that a conversation has, and whether the model is to call one.

use crate::error::Refusal;
use crate::fields::Fields;
use ogive::Tool;
use serde_json::Value;

/// Which call is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The model decides.
    Free,
    /// One of all.
    Any,
    /// This one.
    One(String),
}

/// Tools that the model is told of.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) list: Vec<Tool>,
    pub(crate) choice: Choice,
    /// Whether arguments are held to their schemas.
    pub(crate) strict: bool,
    /// Whether one call ends the answer.
    pub(crate) one_call: bool,
}

impl Tools {
    /// None where there are no tools, or none is to be called: the model is not told of them then.
    pub(crate) fn read(fields: &Fields) -> Result<Option<Self>, Refusal> {
        let list = fields.list("tools")?.map_or(&[][..], Vec::as_slice);
        let mut tools = Self { list: Vec::new(), choice: Choice::Free, strict: false, one_call: false };
        for (i, json) in list.iter().enumerate() {
            let at = format!("tools[{i}]");
            if json.get("type").is_some_and(|kind| !kind.is_null() && kind != "function") {
                return Err(Refusal::unsupported(format!("{at}.type"), "only functions can be called"));
            }
            let tool = Tool::from_json(json);
            let why = "it is to be a function with a name of letters, digits, `_`, `-` and `.`, and `parameters` that are a JSON Schema";
            let tool = tool.ok_or_else(|| Refusal::field(&*at, why))?;
            if tools.list.iter().any(|other| other.name == tool.name) {
                return Err(Refusal::field(at, format!("there are two of the name {:?}", tool.name)));
            }
            tools.list.push(tool);
            tools.strict |= json.pointer("/function/strict").is_some_and(|strict| strict == true);
        }
        tools.one_call = fields.flag("parallel_tool_calls")? == Some(false);
        let wrong =
            "it is to be none, auto, required or {\"type\": \"function\", \"function\": {\"name\": …}}";
        tools.choice = match fields.get("tool_choice") {
            None => Choice::Free,
            Some(Value::String(word)) => match word.as_str() {
                "none" => return Ok(None),
                "auto" => Choice::Free,
                "required" => Choice::Any,
                _ => return Err(Refusal::field("tool_choice", wrong)),
            },
            Some(json) => {
                let name = json.pointer("/function/name").or(json.get("name")).and_then(Value::as_str);
                let name = name.ok_or_else(|| Refusal::field("tool_choice", wrong))?;
                if !tools.list.iter().any(|tool| tool.name == name) {
                    return Err(Refusal::field(
                        "tool_choice",
                        format!("there is no tool {name:?} among `tools`"),
                    ));
                }
                Choice::One(name.to_owned())
            }
        };
        if tools.list.is_empty() {
            return match tools.choice {
                Choice::Free => Ok(None),
                _ => Err(Refusal::field("tool_choice", "there are no `tools` to choose from")),
            };
        }
        Ok(Some(tools))
    }
}
