//! Calls of tools, told apart from what a model answers, as it comes.
//!
//! What may be a call is held back: from a mark that calls begin with, or a bracket that the answer begins with, to the answer's end, when
//! it is [read](CallSyntax::read). A call that cannot be read is given as text then, so nothing that the model said is lost. gpt-oss's marks
//! have no text; what they say is told here by who hears them.

use crate::stop::overlap;
use crate::tensor::serde_json::json;
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
        // One that goes on in the rest, as a mark may begin within it, is special there too.
        for &(start, end) in self.special.iter().filter(|(start, _)| *start < len) {
            shown.push_str(&given[from..start]);
            from = end.min(len);
        }
        shown.push_str(&given[from..]);
        let behind = self.special.iter().filter(|(_, end)| *end > len);
        self.special = behind.map(|(start, end)| (start.saturating_sub(len), end - len)).collect();
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
        self.syntax.marks().iter().any(|mark| mark.starts_with(spelling))
    }

    fn hear(&mut self, said: &str, special: bool) -> String {
        if let Some(tail) = &mut self.tail {
            tail.push(said, special);
            return String::new();
        }
        self.held.push(said, special);
        let text = self.held.text.as_str();
        let at = match self.syntax.begins(text) && !self.answers {
            true => Some(0),
            false => self.syntax.marks().iter().filter_map(|mark| text.find(mark.as_str())).min(),
        };
        if let Some(at) = at {
            let before = self.held.give(at);
            self.tail = Some(std::mem::take(&mut self.held));
            return before;
        }
        let keep = self.syntax.marks().iter().map(|mark| overlap(text, mark)).max().unwrap_or(0);
        self.answers |= !special && !text.trim().is_empty();
        // Spaces may be in front of a bracket.
        let keep = if self.answers || special { keep } else { text.len() };
        self.held.give(self.held.text.len() - keep)
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
            calls = spoken.calls;
            if calls.is_empty() {
                text += &tail.give(len);
            } else {
                // What is left shows no special tokens either.
                let special = tail.special.iter().map(|&(start, end)| &tail.text[start..end]);
                let left = special.fold(spoken.text, |left, special| left.replace(special, ""));
                text += left.trim();
            }
        }
        for (name, arguments) in std::mem::take(&mut self.told) {
            match ToolCall::from_json(&json!({ "name": name, "arguments": arguments })) {
                Some(mut call) => {
                    call.id = format!("call{:05}", self.made + calls.len() + 1);
                    calls.push(call);
                }
                None => text += &format!("to={name} {arguments}"),
            }
        }
        (text, calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::template::ChatTemplate;

    fn listener(mark: &str) -> Listener {
        let template = format!(
            "{{% for m in messages %}}<|{{{{ m.role }}}}|>{{{{ m.content }}}}{{% for c in m.tool_calls or [] %}}\
             {mark}{{{{ c.function|tojson }}}}{{% endfor %}}{{% endfor %}}{{{{ tools|tojson }}}}"
        );
        let template = ChatTemplate::new(&template).unwrap();
        Listener::new(template.call_syntax().unwrap().clone(), Vec::new(), 0)
    }

    /// What is shown as it comes, in the end, and the number of calls; of pieces that are special or not.
    fn heard(mark: &str, pieces: &[(&str, bool)]) -> (String, String, usize) {
        let mut listener = listener(mark);
        let hear = |(piece, special): &(&str, bool)| {
            if *special { listener.special(piece) } else { listener.text(piece) }
        };
        let shown: String = pieces.iter().map(hear).collect();
        let (rest, calls) = listener.finish();
        (shown, rest, calls.len())
    }

    #[test]
    fn a_mark_is_heard_however_it_is_cut() {
        let said = "é <cal <call>{\"name\": \"now\"} ü";
        for at in (0..said.len()).filter(|at| said.is_char_boundary(*at)) {
            let (a, b) = said.split_at(at);
            assert_eq!(heard("<call>", &[(a, false), (b, false)]), ("é <cal ".into(), "ü".into(), 1), "{at}");
        }
        let letters: Vec<String> = said.chars().map(String::from).collect();
        let letters: Vec<(&str, bool)> = letters.iter().map(|letter| (letter.as_str(), false)).collect();
        assert_eq!(heard("<call>", &letters), ("é <cal ".into(), "ü".into(), 1));
    }

    #[test]
    fn special_tokens_are_marks_and_do_not_show() {
        let now = ("{\"name\": \"now\"}", false);
        assert_eq!(
            heard("<call>", &[("<other>", true), ("a", false), ("<call>", true), now]),
            ("a".into(), String::new(), 1)
        );
        assert_eq!(
            heard("<call>", &[("a", false), ("<call>", true), ("b", false)]),
            ("a".into(), "b".into(), 0)
        );
        // One within another, and one that is not ended.
        assert_eq!(
            heard("<call>", &[("|<call>|", true), now, ("b", false)]),
            (String::new(), "{\"name\": \"now\"}b".into(), 0)
        );
        assert_eq!(heard("<call>", &[("|<ca", true), ("d", false)]), ("d".into(), String::new(), 0));
        assert_eq!(
            heard("<call>", &[("|<ca", true), ("ll>", false), now]),
            (String::new(), String::new(), 1)
        );
    }
}
