//! Arguments that give a model tools.

use crate::error::{Doing, Error, Result};
use crate::files;
use ogive::tokenizer::template::Message;
use ogive::{Chat, Generate, Reply, Tool, ToolCall};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What a model may call.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Calling {
    /// Functions that the model may call, in a JSON file: a list of `{"name": …, "description": …, "parameters": JSON Schema}`, also as OpenAI's
    /// interface has them. What it calls is written as a line of JSON each; nothing is run. The next message is what came of a call
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Holds the arguments of calls to the tools' schemas, if the model writes them as JSON
    #[arg(long, requires = "tools")]
    strict: bool,
    /// Has the model answer by a call of this tool, by its schema, and not think before. In a conversation that is for messages, and not for
    /// what came of a call
    #[arg(long, value_name = "NAME", requires = "tools")]
    call: Option<String>,
}

impl Calling {
    /// The tools, and how they are called.
    pub(crate) fn read(&self, how: &mut Generate) -> Result<Vec<Tool>> {
        let Some(path) = &self.tools else { return Ok(Vec::new()) };
        if how.grammar.is_some() {
            let why = "an answer that a grammar holds calls nothing: leave out --tools or the grammar";
            return Err(Error::Usage(why.into()));
        }
        let at = || format!("reading tools from {}", path.display());
        let tools: Value = serde_json::from_slice(&files::read(path, at())?).doing(at())?;
        let wrong = |what| Error::failed(format_args!("{}: {what}", at()));
        let tools = tools.as_array().ok_or_else(|| wrong("it should be a list".into()))?;
        let read = |(n, tool)| {
            let none = || {
                wrong(format!(
                    "number {n} of them needs a `name` of letters, digits and _, and `parameters` that are an object"
                ))
            };
            Tool::from_json(tool).ok_or_else(none)
        };
        let tools: Vec<Tool> = (1..).zip(tools).map(read).collect::<Result<_>>()?;
        if let Some(name) = self.call().filter(|name| tools.iter().all(|tool| tool.name != *name)) {
            let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
            let why = format!("--call {name}: {} has no such tool, but {}", path.display(), names.join(", "));
            return Err(Error::Usage(why));
        }
        how.strict = self.strict;
        Ok(tools)
    }

    /// The tool that has to be called.
    pub(crate) fn call(&self) -> Option<&str> {
        self.call.as_deref()
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.tools.is_some()
    }
}

/// Gives a conversation tools, if there are any.
pub(crate) fn over(chat: Chat, tools: Vec<Tool>) -> Result<Chat> {
    if tools.is_empty() { Ok(chat) } else { Ok(chat.tools(tools)?) }
}

/// Says something in a conversation: where a call waits, what came of it. `None` while another one does.
pub(crate) fn say<'c>(chat: &'c mut Chat, text: &str, how: &Generate) -> ogive::Result<Option<Reply<'c>>> {
    if chat.waits_for().is_some() { chat.tell(text, how) } else { chat.send(text, how).map(Some) }
}

/// Says something, and has this tool called. On an error the conversation is as it was.
pub(crate) fn call(chat: &mut Chat, text: &str, tool: &str, how: &Generate) -> ogive::Result<ToolCall> {
    let shown = std::mem::take(chat.shown());
    let message = Message::new("user", text);
    chat.messages().push(shown.iter().fold(message, |message, image| message.attach(image.clone())));
    chat.call(Some(tool), how).inspect_err(|_| {
        chat.messages().pop();
        *chat.shown() = shown;
    })
}

/// A call for scripts.
pub(crate) fn json(call: &ToolCall) -> Value {
    json!({ "id": call.id, "name": call.name, "arguments": call.arguments })
}
