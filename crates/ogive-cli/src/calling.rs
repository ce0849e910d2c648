//! Arguments that give a model tools.

use crate::error::{Doing, Error, Result};
use crate::files;
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
}

impl Calling {
    /// The tools.
    pub(crate) fn read(&self, how: &Generate) -> Result<Vec<Tool>> {
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
        (1..).zip(tools).map(read).collect()
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

/// A call for scripts.
pub(crate) fn json(call: &ToolCall) -> Value {
    json!({ "id": call.id, "name": call.name, "arguments": call.arguments })
}
