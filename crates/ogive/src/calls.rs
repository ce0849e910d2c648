//! Calls of tools, told apart from what a model answers, as it comes.
//!
//! What is text and what a call, the [stream](CallStream) of a template's syntax says. gpt-oss's marks have no text: what they say is told here
//! by who hears them, so such calls go by the same events; with the first of them an answer has no others.

use crate::tensor::serde_json::json;
use crate::thinking::Parts;
use crate::tokenizer::tools::{CallEvent, CallStream, CallSyntax, Tool, ToolCall};

/// Listens for calls in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    stream: CallStream,
    /// Calls that the conversation has had.
    made: usize,
    /// The answer's whole calls, once none are read from its text any more.
    told: Option<Vec<ToolCall>>,
    /// The one that is told by marks: to whom, and what.
    open: Option<(String, String)>,
}

impl Listener {
    pub(crate) fn new(syntax: &CallSyntax, tools: &[Tool], made: usize) -> Self {
        let stream = syntax.stream(tools, made);
        Self { stream, made, told: None, open: None }
    }

    /// Takes more of the answer; gives what can no longer be a call, and what is one.
    pub(crate) fn text(&mut self, text: &str, out: &mut Parts) {
        if self.told.is_some() {
            return out.answer.push_str(text);
        }
        tell(self.stream.push(text), out);
    }

    /// Takes a special token, which texts do not show.
    pub(crate) fn special(&mut self, spelling: &str, out: &mut Parts) {
        if self.told.is_none() {
            tell(self.stream.push_special(spelling), out);
        }
    }

    /// Whether this may be the beginning of calls.
    pub(crate) fn may_begin(&self, spelling: &str) -> bool {
        self.stream.syntax().marks().iter().any(|mark| mark.starts_with(spelling))
    }

    /// A call begins whose marks have no text, of what is spoken to.
    pub(crate) fn call(&mut self, name: String, out: &mut Parts) {
        self.end(out);
        let index = self.whole(out).len();
        out.calling.push(CallEvent::Begins { index, name: name.clone() });
        self.open = Some((name, String::new()));
    }

    /// The whole calls; from here on none are read from text.
    fn whole(&mut self, out: &mut Parts) -> &mut Vec<ToolCall> {
        self.told.get_or_insert_with(|| {
            tell(self.stream.finish(), out);
            self.stream.calls().to_vec()
        })
    }

    /// More of its arguments.
    pub(crate) fn argument(&mut self, json: &str, out: &mut Parts) {
        let index = self.told.as_ref().map_or(0, Vec::len);
        if let Some((_, arguments)) = self.open.as_mut().filter(|_| !json.is_empty()) {
            arguments.push_str(json);
            out.calling.push(CallEvent::Arguments { index, json: json.to_owned() });
        }
    }

    /// The call that was told by marks is whole, or was none.
    pub(crate) fn end(&mut self, out: &mut Parts) {
        let Some((name, arguments)) = self.open.take() else { return };
        let made = self.made;
        let calls = self.whole(out);
        let index = calls.len();
        match ToolCall::from_json(&json!({ "name": name, "arguments": arguments })) {
            Some(mut call) => {
                call.id = format!("call{:05}", made + index + 1);
                calls.push(call.clone());
                if arguments.trim().is_empty() {
                    out.calling.push(CallEvent::Arguments { index, json: "{}".to_owned() });
                }
                out.calling.push(CallEvent::Ends { index, call });
            }
            None => {
                out.calling.push(CallEvent::TakenBack { index });
                out.answer += &format!("to={name} {arguments}");
            }
        }
    }

    /// Whose arguments are written or have to come, if it is JSON; at how many of the last bytes they begin, special tokens not counted; and how
    /// many brackets close behind them.
    #[cfg(feature = "grammar")]
    pub(crate) fn open(&self) -> Option<(&str, usize, usize)> {
        if let Some((name, arguments)) = &self.open {
            return Some((name, arguments.len(), 0));
        }
        let open = self.stream.open().filter(|_| self.told.is_none())?;
        Some((open.name, self.stream.pushed_since(open.at), open.closes))
    }

    /// Whether a call has begun that could end without arguments.
    #[cfg(feature = "grammar")]
    pub(crate) fn may_leave_out(&self) -> bool {
        self.told.is_none() && self.stream.may_leave_out()
    }

    /// Whether this text would end it so; see [`CallStream::leaves_out`].
    #[cfg(feature = "grammar")]
    pub(crate) fn leaves_out(&self, text: &str, needs: impl Fn(&str) -> bool) -> bool {
        self.stream.leaves_out(text, needs)
    }

    /// When no more will come: what was held back and is text, and the calls.
    pub(crate) fn finish(&mut self, out: &mut Parts) {
        self.end(out);
        out.calls = std::mem::take(self.whole(out));
    }
}

fn tell(events: Vec<CallEvent>, out: &mut Parts) {
    for event in events {
        match event {
            CallEvent::Text(text) => out.answer.push_str(&text),
            event => out.calling.push(event),
        }
    }
}
