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
    /// Gives a conversation the tools, if there are any.
    pub(crate) fn over(&self, chat: Chat, how: &Generate) -> Result<Chat> {
        let Some(path) = &self.tools else { return Ok(chat) };
        if how.grammar.is_some() {
            return Err(Error::Usage(
                "an answer that a grammar holds calls nothing: leave out --tools or the grammar".into(),
            ));
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
        let tools = (1..).zip(tools).map(read).collect::<Result<Vec<_>>>()?;
        Ok(chat.tools(tools)?)
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.tools.is_some()
    }
}

/// Says something in a conversation: where a call waits, what came of it. `None` while another one does.
pub(crate) fn say<'c>(chat: &'c mut Chat, text: &str, how: &Generate) -> ogive::Result<Option<Reply<'c>>> {
    let Some(call) = chat.waits_for() else { return chat.send(text, how).map(Some) };
    let result = call.result(text);
    chat.messages().push(result);
    if chat.waits_for().is_some() { Ok(None) } else { chat.reply(how).map(Some) }
}

/// A call for scripts.
pub(crate) fn json(call: &ToolCall) -> Value {
    json!({ "id": call.id, "name": call.name, "arguments": call.arguments })
}
