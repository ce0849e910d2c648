//! A turn of a conversation, as templates see it.

use crate::tools::{CallSyntax, ToolCall};
use serde_json::{Value as Json, json};
use std::{any::Any, fmt, sync::Arc};

/// One turn of a conversation, in its plainest form.
///
/// ```
/// use ogive_tokenizer::template::Message;
///
/// let message = Message::new("assistant", "It is 4.").thinking("2 and 2 make 4.");
/// assert_eq!((&*message.content, &*message.thinking), ("It is 4.", "2 and 2 make 4."));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// What is said.
    pub content: String,
    /// What was thought before that; empty for nothing. Templates see it as `reasoning_content` and as `thinking`, as some read one and some
    /// the other, and see neither where it is empty.
    pub thinking: String,
    /// What is shown before that is said: images.
    pub attached: Vec<Attached>,
    /// What is called after that is said.
    pub calls: Vec<ToolCall>,
    /// The id and name of the call that this is the [result](ToolCall::result) of.
    pub result_of: Option<(String, String)>,
}

impl Message {
    /// A message of `role` that says `content`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        let (thinking, attached, calls, result_of) = Default::default();
        Self { role: role.into(), content: content.into(), thinking, attached, calls, result_of }
    }

    /// The same with what was thought before it was said.
    #[must_use]
    pub fn thinking(self, thinking: impl Into<String>) -> Self {
        Self { thinking: thinking.into(), ..self }
    }

    /// The same with something more that is shown before it is said.
    #[must_use]
    pub fn attach(mut self, what: impl Into<Attached>) -> Self {
        self.attached.push(what.into());
        self
    }

    /// The same with calls after it.
    #[must_use]
    pub fn calls(self, calls: Vec<ToolCall>) -> Self {
        Self { calls, ..self }
    }

    /// Reads one as OpenAI's interface and most programs have it: `role`, `content` (a text), `reasoning_content` or `thinking`, `tool_calls`,
    /// and of a tool's result `tool_call_id` and `name`. `None` where there is no role, nothing is said nor called, or a call is none.
    #[must_use]
    pub fn from_json(json: &Json) -> Option<Self> {
        let text = |key: &str| json.get(key).and_then(Json::as_str);
        let calls = match json.get("tool_calls") {
            None | Some(Json::Null) => Vec::new(),
            Some(calls) => calls.as_array()?.iter().map(ToolCall::from_json).collect::<Option<_>>()?,
        };
        let content = text("content").or((!calls.is_empty()).then_some(""))?;
        let thinking = ["reasoning_content", "thinking"].iter().filter_map(|key| json.get(*key));
        let thinking = thinking.filter(|thinking| !thinking.is_null()).map(Json::as_str).next();
        let thinking = thinking.unwrap_or(Some(""))?;
        let mut message = Self::new(text("role")?, content).thinking(thinking).calls(calls);
        // A name alone is enough to some.
        let of = ["tool_call_id", "name"].map(text);
        let is_result = of[0].is_some() || message.role == "tool" && of[1].is_some();
        message.result_of = is_result.then(|| of.map(|text| text.unwrap_or_default().to_owned()).into());
        Some(message)
    }

    /// What [`from_json`](Self::from_json) reads; what is [attached](Self::attached) is not in it.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut message = json!({ "role": self.role, "content": self.content });
        if !self.thinking.is_empty() {
            message["reasoning_content"] = self.thinking.as_str().into();
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.iter().map(|call| call.to_json(false)).collect();
        }
        if let Some((id, name)) = &self.result_of {
            for (key, text) in
                [("tool_call_id", id), ("name", name)].into_iter().filter(|(_, text)| !text.is_empty())
            {
                message[key] = text.as_str().into();
            }
        }
        message
    }

    /// One call a message.
    pub(super) fn call_by_call(&self) -> Vec<Self> {
        let mut messages = vec![self.clone()];
        for call in messages[0].calls.split_off(1.min(self.calls.len())) {
            messages.push(Self::new(self.role.as_str(), "").calls(vec![call]));
        }
        messages
    }

    /// What a template sees. In parts, a list of what is shown and of what is said, or as what is said alone. `syntax` says how it wants calls.
    pub(super) fn for_template(&self, in_parts: bool, syntax: Option<&CallSyntax>) -> Json {
        let both = !self.content.is_empty() && !self.thinking.is_empty();
        if both && syntax.is_some_and(|syntax| syntax.one_text) {
            let thinking = [self.thinking.as_str(), &self.content].join("\n\n");
            return Self { thinking, content: String::new(), ..self.clone() }.for_template(in_parts, syntax);
        }
        let mut message = self.to_json();
        if self.content.is_empty() && syntax.is_some_and(|syntax| syntax.no_text) {
            message["content"] = Json::Null;
        } else if in_parts {
            let shown = self.attached.iter().map(|what| json!({ "type": what.kind }));
            let said = Some(&self.content).filter(|said| !said.is_empty() || self.attached.is_empty());
            let said = said.map(|said| json!({ "type": "text", "text": said }));
            message["content"] = shown.chain(said).collect();
        }
        if !self.thinking.is_empty() {
            message["thinking"] = self.thinking.as_str().into();
        }
        if syntax.is_some_and(|syntax| syntax.arguments_as_text) {
            message["tool_calls"] = self.calls.iter().map(|call| call.to_json(true)).collect();
        }
        message
    }
}

/// Something that a message shows beside what it says. Templates know no more of it than its kind; what it is, is for whoever attached it and
/// whoever reads what a template made of it. Two are the same if one is a clone of the other.
#[derive(Clone)]
pub struct Attached {
    kind: &'static str,
    what: Arc<dyn Any + Send + Sync>,
}

impl Attached {
    /// Something of a kind that templates know: `image`.
    pub fn new(kind: &'static str, what: impl Any + Send + Sync) -> Self {
        Self { kind, what: Arc::new(what) }
    }

    /// What kind of thing it is, as templates see it under `type`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The thing itself, if it is a `T`.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.what.downcast_ref()
    }
}

impl PartialEq for Attached {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && Arc::ptr_eq(&self.what, &other.what)
    }
}

impl Eq for Attached {}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("kind", &self.kind).finish_non_exhaustive()
    }
}
