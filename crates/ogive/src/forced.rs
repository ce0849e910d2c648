//! Calls that a model has to make, with arguments of the form that the tool wants.
//!
//! The template writes a call of the tool, and the model fills in what is not known: the name, if there are several, and the arguments, held
//! to their schema. So it works for every template whose arguments are JSON, and nothing has to be read of what the model has said.

use crate::engine::Request;
use crate::tensor::serde_json::{Map, Value, from_str};
use crate::tokenizer::template::Message;
use crate::tokenizer::tools::{Tool, ToolCall};
use crate::{Answer, Chat, Conversation, Error, Generate, Prompt, Result, tensor};

/// An argument that no template has a word like.
const MARK: &str = "xyzzy_plugh";

impl Chat {
    /// Has the model call one of its [tools](Self::tools), whatever it would say to what the messages say: `tool`, or the one it would rather.
    /// The arguments are an object as the tool's schema has them. The call is part of the conversation then, and [waits](Self::waits_for) for its result.
    /// The model does not think before.
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// use ogive::{tensor::serde_json::json, tokenizer::template::Message};
    /// let city = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"], "additionalProperties": false });
    /// let weather = ogive::Tool::new("get_weather", "The weather in a city now", city);
    /// let mut chat = ogive::open("model.gguf")?.chat()?.tools([weather])?;
    /// chat.messages().push(Message::new("user", "I fly to Bergen tomorrow."));
    /// let call = chat.call(Some("get_weather"), &ogive::Generate::new())?;
    /// println!("{}", call.arguments["city"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If there is no such tool, if the template writes arguments otherwise than as JSON, or one call a turn and another waits, if a schema asks
    /// for what cannot be enforced, if `how` is held to a grammar itself, and as of [`send`](Self::send); if the arguments are not whole within
    /// [`max_tokens`](Generate::max_tokens). The conversation is then as it was.
    pub fn call(&mut self, tool: Option<&str>, how: &Generate) -> Result<ToolCall> {
        check_free(how)?;
        let how = &filled_in(how);
        let tools = self.talk.options.tools.clone();
        let tool = match (tool, &*tools) {
            (Some(name), _) => tools.iter().find(|tool| tool.name == name),
            (None, [only]) => Some(only),
            (None, []) => None,
            (None, [first, ..]) => {
                let (name, _) = self.talk.around(first)?;
                let name = self.said(name, &naming(&tools, how)?)?;
                tools.iter().find(|tool| tool.name == name)
            }
        };
        let tool = tool.ok_or_else(|| wrong("there is no such tool"))?;
        let (_, arguments) = self.talk.around(tool)?;
        let how = how.clone().json_schema(&self::arguments(tool)?)?;
        let said = self.said(arguments, &how)?;
        let arguments: Map<String, Value> = from_str(&said).map_err(|e| Error::Json(e.to_string()))?;
        let made = self.talk.calls_made();
        let call = ToolCall::new(format!("call{:05}", made + 1), &*tool.name, arguments);
        self.messages().push(Message::new("assistant", "").calls(vec![call.clone()]));
        Ok(call)
    }

    /// What the model says there, whole.
    fn said(&mut self, prompt: Prompt, how: &Generate) -> Result<String> {
        let mut answer = self.session.generate(prompt, how)?;
        let said = answer.text()?;
        if answer.is_complete() == Some(false) {
            return Err(Error::CutShort { tokens: answer.ids().len() });
        }
        Ok(said)
    }
}

impl Conversation {
    /// What an engine is asked to have the model name the tool that it would call, whatever it would say to what the messages say. The answer's text is the
    /// name, for [`ask_arguments`](Self::ask_arguments).
    ///
    /// # Errors
    /// If there are no tools, and as of that.
    pub fn ask_name(&mut self, how: &Generate) -> Result<(Request, Answer)> {
        check_free(how)?;
        let tools = self.options.tools.clone();
        let first = tools.first().ok_or_else(|| wrong("there is no tool"))?;
        let (name, _) = self.around(first)?;
        self.model.asked(&name, &naming(&tools, &filled_in(how))?, None, |chain| chain)
    }

    /// What an engine is asked to have the model call `tool`: see [`Chat::call`]. The answer's text is the arguments, JSON as the tool's schema has it; one
    /// that is cut short is none.
    ///
    /// # Errors
    /// If there is no such tool, if the template writes arguments otherwise than as JSON, if the schema asks for what cannot be enforced, if `how` is held to
    /// a grammar itself, and as of [`ask`](Self::ask).
    pub fn ask_arguments(&mut self, tool: &str, how: &Generate) -> Result<(Request, Answer)> {
        check_free(how)?;
        let tool = self.options.tools.iter().find(|known| known.name == tool).cloned();
        let tool = tool.ok_or_else(|| wrong("there is no such tool"))?;
        let (_, prompt) = self.around(&tool)?;
        let how = filled_in(how).json_schema(&arguments(&tool)?)?;
        self.model.asked(&prompt, &how, None, |chain| chain)
    }

    /// What the model reads before it names a tool, and before it gives this one its arguments.
    fn around(&mut self, tool: &Tool) -> Result<(Prompt, Prompt)> {
        let arguments = Map::from_iter([(MARK.to_owned(), Value::from(MARK))]);
        let call = ToolCall::new("call00001", &*tool.name, arguments.clone());
        self.messages.push(Message::new("assistant", "").calls(vec![call]));
        let opens = std::mem::replace(&mut self.options.add_generation_prompt, false);
        let rendered = self.rendered();
        self.options.add_generation_prompt = opens;
        self.messages.pop();
        let (prompt, text) = rendered?;
        let object = |at: &usize| {
            let mut values = tensor::serde_json::Deserializer::from_str(&text[*at..]).into_iter();
            values.next().and_then(std::result::Result::ok) == Some(Value::Object(arguments.clone()))
        };
        let before = text.find(MARK).and_then(|mark| text[..mark].rfind('{')).filter(object);
        let named = before.and_then(|at| Some((text[..at].rfind(&tool.name)?, at)));
        let (name, arguments) = named.ok_or_else(|| no_json(DOING))?;
        let cut = |at: usize| match &prompt {
            #[cfg(feature = "vision")]
            Prompt::Shown { images, rendered, .. } => {
                Prompt::Shown { text: text[..at].to_owned(), images: images.clone(), rendered: *rendered }
            }
            _ => Prompt::Rendered(text[..at].to_owned()),
        };
        Ok((cut(name), cut(arguments)))
    }
}

/// That nothing else holds the answer.
fn check_free(how: &Generate) -> Result<()> {
    if how.grammar.is_some() { Err(wrong("the answer is held to another grammar already")) } else { Ok(()) }
}

/// How what the template leaves open is drawn: all of it is held anyhow, and a stop string within it would leave half a call.
fn filled_in(how: &Generate) -> Generate {
    Generate { strict: false, stop: Vec::new(), ..how.clone() }
}

/// How the name of one of these tools is drawn.
fn naming(tools: &[Tool], how: &Generate) -> Result<Generate> {
    let names: Vec<String> = tools.iter().map(|tool| tool.name.replace('.', "\\.")).collect();
    how.clone().regex(&format!("({})", names.join("|")))
}

const DOING: &str = "having a tool called";

/// The schema of a tool's arguments, which are an object where it does not say so.
pub(crate) fn arguments(tool: &Tool) -> Result<String> {
    let mut schema = tool.parameters.clone();
    let is_object = |kind: &Value| kind == "object";
    let may_be = match schema.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(is_object),
        Some(kind) => is_object(kind),
    };
    if !may_be {
        return Err(wrong(&format!(
            "arguments are an object, and by {}'s schema they cannot be: its `type` should be \"object\"",
            tool.name
        )));
    }
    schema["type"] = "object".into();
    Ok(schema.to_string())
}

fn wrong(why: &str) -> Error {
    tensor::Error::invalid(DOING, why).into()
}

/// Arguments that a template writes otherwise than as JSON.
pub(crate) fn no_json(doing: &str) -> Error {
    let why = "this model's arguments are not written as JSON, so they cannot be held to a schema";
    tensor::Error::invalid(doing, why).into()
}
