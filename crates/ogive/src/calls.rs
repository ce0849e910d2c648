//! Calls of tools, told apart from what a model answers, as it comes.
//!
//! What may be a call is held back: from the mark that calls begin with to the answer's end, when it is [read](CallSyntax::read). A call that
//! cannot be read is given as text then, so nothing that the model said is lost. gpt-oss's marks have no text; what they say is told here by
//! who hears them.

use crate::stop::overlap;
use crate::tensor::serde_json::{Value, from_str};
use crate::tokenizer::tools::{CallSyntax, Tool, ToolCall};

/// Listens for calls in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    syntax: CallSyntax,
    tools: Vec<Tool>,
    /// Calls that the conversation has had.
    made: usize,
    /// What waits, and may be the beginning of a mark.
    held: Said,
    /// From the mark on.
    tail: Option<Said>,
    /// Whether the answer has begun with what is no call.
    answers: bool,
    /// Calls that were told: to whom, and what.
    told: Vec<(String, String)>,
}

/// Text with special tokens spelled out, and where these are, for texts do not show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    text: String,
    special: Vec<(usize, usize)>,
}

impl Said {
    fn push(&mut self, text: &str, special: bool) {
        if special {
            self.special.push((self.text.len(), self.text.len() + text.len()));
        }
        self.text.push_str(text);
    }

    /// The first bytes, which go, and what a text shows of them.
    fn give(&mut self, len: usize) -> String {
        let rest = self.text.split_off(len);
        let given = std::mem::replace(&mut self.text, rest);
        let (mut shown, mut from) = (String::new(), 0);
        for &(start, end) in self.special.iter().filter(|(start, _)| *start < len) {
            shown.push_str(&given[from..start]);
            from = end;
        }
        shown.push_str(&given[from..]);
        let behind = self.special.iter().filter(|(start, _)| *start >= len);
        self.special = behind.map(|(start, end)| (start - len, end - len)).collect();
        shown
    }
}

impl Listener {
    pub(crate) fn new(syntax: CallSyntax, tools: Vec<Tool>, made: usize) -> Self {
        let (held, tail, answers, told) = Default::default();
        Self { syntax, tools, made, held, tail, answers, told }
    }

    /// Takes more of the answer; gives what can no longer be a call.
    pub(crate) fn text(&mut self, text: &str) -> String {
        self.hear(text, false)
    }

    /// Takes a special token, which texts do not show.
    pub(crate) fn special(&mut self, spelling: &str) -> String {
        self.hear(spelling, true)
    }

    /// Whether this may be the beginning of calls.
    pub(crate) fn may_begin(&self, spelling: &str) -> bool {
        self.syntax.mark().is_some_and(|mark| mark.starts_with(spelling))
    }

    fn hear(&mut self, said: &str, special: bool) -> String {
        if let Some(tail) = &mut self.tail {
            tail.push(said, special);
            return String::new();
        }
        self.held.push(said, special);
        let len = self.held.text.len();
        let keep = match self.syntax.mark() {
            Some(mark) => match self.held.text.find(mark) {
                Some(at) => {
                    let before = self.held.give(at);
                    self.tail = Some(std::mem::take(&mut self.held));
                    return before;
                }
                None => overlap(&self.held.text, mark),
            },
            None if self.answers || special => 0,
            None if self.syntax.begins(&self.held.text) => {
                self.tail = Some(std::mem::take(&mut self.held));
                return String::new();
            }
            // Spaces may be the beginning.
            None => {
                self.answers = !self.held.text.trim().is_empty();
                if self.answers { 0 } else { len }
            }
        };
        self.held.give(len - keep)
    }

    /// A call begins whose marks have no text, of what is spoken to.
    pub(crate) fn call(&mut self, name: String) {
        self.told.push((name, String::new()));
    }

    /// More of its arguments.
    pub(crate) fn argument(&mut self, text: &str) {
        if let Some((_, arguments)) = self.told.last_mut() {
            arguments.push_str(text);
        }
    }

    /// When no more will come: what was held back and is text, and the calls.
    pub(crate) fn finish(&mut self) -> (String, Vec<ToolCall>) {
        let mut calls = Vec::new();
        let len = self.held.text.len();
        let mut text = self.held.give(len);
        if let Some(mut tail) = self.tail.take() {
            let spoken = self.syntax.read(&tail.text, &self.tools, self.made);
            let len = tail.text.len();
            text += &if spoken.calls.is_empty() { tail.give(len) } else { spoken.text };
            calls = spoken.calls;
        }
        for (name, arguments) in std::mem::take(&mut self.told) {
            match from_str(&arguments) {
                Ok(Value::Object(given)) => {
                    let id = format!("call{:05}", self.made + calls.len() + 1);
                    calls.push(ToolCall::new(id, name, given));
                }
                _ => text += &arguments,
            }
        }
        (text, calls)
    }
}
