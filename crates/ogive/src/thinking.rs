//! What a model thinks and what it calls, told apart from what it answers.
//!
//! Marks are found by their tokens and not by their letters. A model that writes about `<|channel|>` spells the name, so what it says
//! stays whole; and nothing waits for what may yet become a mark. Tags open a thought only where the answer begins, for whoever writes
//! about `<think>` may well draw its token.

use crate::Generate;
use crate::calls::Listener;
use crate::saved::Note;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::tools::{CallEvent, ToolCall};
use std::collections::VecDeque;

/// A piece of a reply. Any part may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parts {
    /// What the model thinks.
    pub thinking: String,
    /// What it answers.
    pub answer: String,
    /// What it calls: comes with the last piece.
    pub calls: Vec<ToolCall>,
    /// Calls as they come, of these and of such as are [taken back](CallEvent::TakenBack) in the end; no [text](CallEvent::Text) is among them. In
    /// an answer's piece that has both, text behind a call that was taken back is that call's.
    pub calling: Vec<CallEvent>,
}

impl Parts {
    /// Whether there is none of it.
    pub fn is_empty(&self) -> bool {
        let said = !self.thinking.is_empty() || !self.answer.is_empty();
        !said && self.calls.is_empty() && self.calling.is_empty()
    }

    /// Adds a piece that came after it.
    pub fn push(&mut self, more: &Self) {
        self.thinking.push_str(&more.thinking);
        self.answer.push_str(&more.answer);
        self.calls.extend_from_slice(&more.calls);
        self.calling.extend_from_slice(&more.calling);
    }
}

impl From<String> for Parts {
    /// An answer without a thought.
    fn from(answer: String) -> Self {
        Self { answer, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Around a thought.
    Open,
    Close,
    /// Before a header, within it, after it, and after the message.
    Start,
    Channel,
    Message,
    End,
}

/// Of Qwen3, DeepSeek-R1 and most others.
const TAGS: [(Mark, &str); 2] = [(Mark::Open, "<think>"), (Mark::Close, "</think>")];
/// Of gpt-oss.
const CHANNELS: [(Mark, &str); 4] = [
    (Mark::Start, "<|start|>"),
    (Mark::Channel, "<|channel|>"),
    (Mark::Message, "<|message|>"),
    (Mark::End, "<|end|>"),
];
/// The channel of thoughts. What is for the user comes by others: `final`, and `commentary` for what it says before it acts.
const THOUGHTS: &str = "analysis";

/// A mark that a vocabulary has.
#[derive(Clone, Copy, Debug)]
struct Token {
    id: u32,
    mark: Mark,
    spelling: &'static str,
    /// Whether texts show it.
    shown: bool,
}

/// Those of one kind, if all of them are tokens.
fn marks(tokenizer: &Tokenizer) -> Option<Vec<Token>> {
    let token = |(mark, spelling): &(Mark, &'static str)| {
        let id = tokenizer.token_id(spelling)?;
        let shown = !tokenizer.token_kind(id)?.is_special();
        Some(Token { id, mark: *mark, spelling, shown })
    };
    [&CHANNELS[..], &TAGS].into_iter().find_map(|kind| kind.iter().map(token).collect())
}

/// Where in an answer its text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before the answer, where a tag may open a thought.
    Before,
    Thinking,
    Answer,
    /// In the header that the prompt began.
    Begun,
    /// In another one.
    Header,
    /// In the name of a channel.
    Channel,
    /// In the arguments of a call.
    Call,
}

/// As files name them.
const PLACES: [(&str, Place); 7] = [
    ("before", Place::Before),
    ("thinking", Place::Thinking),
    ("answer", Place::Answer),
    ("begun", Place::Begun),
    ("header", Place::Header),
    ("channel", Place::Channel),
    ("call", Place::Call),
];

impl Place {
    pub(crate) fn name(self) -> &'static str {
        PLACES.iter().find(|(_, place)| *place == self).map_or("", |(name, _)| name)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        PLACES.iter().find(|(of, _)| *of == name).map(|(_, place)| *place)
    }
}

/// How far an answer has come.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    place: Place,
    /// What waits there: spaces before a tag, newlines that may end a thought, a header or the name of a channel, what keeps this message from
    /// the one before.
    held: String,
    /// Whether there are thoughts, and an answer.
    spoke: [bool; 2],
    /// Whether it is tags that tell them apart: newlines around their contents are theirs.
    tags: bool,
    /// Whom a message is to, by its header.
    to: Option<String>,
    /// Who listens for calls, where there are tools.
    listener: Option<Listener>,
}

const THINKING: usize = 0;
const ANSWER: usize = 1;

impl State {
    /// Behind a prompt, whose template may have begun a thought, or ended an empty one.
    fn after(prompt: &str, tags: bool) -> Self {
        let (place, held) = if tags {
            let place = match TAGS.map(|(_, tag)| prompt.trim_end().ends_with(tag)) {
                [true, _] => Place::Thinking,
                [_, true] => Place::Answer,
                _ => Place::Before,
            };
            (place, "")
        } else {
            /// The last mark in a text: what is before it, which it is, and what follows.
            fn last(text: &str) -> Option<(&str, Mark, &str)> {
                let found = CHANNELS.iter().filter_map(|(mark, name)| Some((text.rfind(name)?, *mark, name)));
                let (at, mark, name) = found.max_by_key(|(at, ..)| *at)?;
                Some((&text[..at], mark, &text[at + name.len()..]))
            }
            match last(prompt) {
                Some((_, Mark::Start, _)) => (Place::Begun, ""),
                Some((_, Mark::Channel, name)) => (Place::Channel, name),
                Some((before, Mark::Message, _)) => match last(before) {
                    Some((_, Mark::Channel, name)) => (of_channel(name), ""),
                    _ => (Place::Answer, ""),
                },
                _ => (Place::Answer, ""),
            }
        };
        Self { place, held: held.to_owned(), spoke: [false; 2], tags, to: None, listener: None }
    }

    fn enter(&mut self, place: Place) {
        self.place = place;
        self.held.clear();
        let again = match place {
            Place::Thinking => self.spoke[THINKING],
            Place::Answer => self.spoke[ANSWER],
            _ => false,
        };
        if again {
            // Another message of the same part.
            self.held.push_str("\n\n");
        }
    }

    fn mark(&mut self, token: Token, out: &mut Parts) {
        // Only what begins or ends a message ends a call.
        if let (Place::Call, Some(listener)) = (self.place, &mut self.listener)
            && token.mark != Mark::Message
        {
            listener.end(out);
        }
        if matches!(self.place, Place::Begun | Place::Header | Place::Channel) {
            self.to = self.to.take().or_else(|| recipient(&self.held));
        }
        match (token.mark, self.place) {
            (Mark::Open, Place::Before) => self.enter(Place::Thinking),
            // The prompt had it already.
            (Mark::Open, Place::Thinking) if !self.spoke[THINKING] => {}
            (Mark::Close, Place::Thinking) => self.enter(Place::Answer),
            // Spoken of.
            (Mark::Open | Mark::Close, _) if token.shown => self.text(token.spelling, out),
            (Mark::Open | Mark::Close, _) => {}
            (Mark::Start, _) => {
                self.to = None;
                self.enter(Place::Header);
            }
            (Mark::Channel, _) => self.enter(Place::Channel),
            (Mark::Message, Place::Begun | Place::Header | Place::Channel) if self.is_called(out) => {
                self.place = Place::Call;
                self.held.clear();
            }
            (Mark::Message, Place::Channel) => self.enter(of_channel(&self.held)),
            (Mark::Message, Place::Begun | Place::Header) | (Mark::End, _) => self.enter(Place::Answer),
            (Mark::Message, _) => {}
        }
    }

    /// Begins a call, if the message is to a tool.
    fn is_called(&mut self, out: &mut Parts) -> bool {
        let begun = self.listener.as_mut().zip(self.to.take());
        begun.map(|(listener, name)| listener.call(name, out)).is_some()
    }

    /// A special token that is no mark.
    fn special(&mut self, spelling: &str, out: &mut Parts) {
        let begins = self.listener.as_ref().is_some_and(|listener| listener.may_begin(spelling));
        match self.place {
            Place::Before if begins => self.answers(out),
            // A thought that nobody has ended.
            Place::Thinking if begins => self.enter(Place::Answer),
            // Parts of a header.
            Place::Begun | Place::Header | Place::Channel => self.held.push(' '),
            _ => {}
        }
        if let Some(listener) = self.listener.as_mut().filter(|_| self.place == Place::Answer) {
            listener.special(spelling, out);
        }
    }

    fn text(&mut self, text: &str, out: &mut Parts) {
        if let (Place::Call, Some(listener)) = (self.place, &mut self.listener) {
            return listener.argument(text, out);
        }
        self.held.push_str(text);
        match self.place {
            Place::Begun | Place::Header | Place::Channel => {}
            Place::Before if self.held.trim().is_empty() => {}
            Place::Before => self.answers(out),
            Place::Thinking => self.say(THINKING, out),
            Place::Answer | Place::Call => self.say(ANSWER, out),
        }
    }

    /// What was held was no mark's.
    fn answers(&mut self, out: &mut Parts) {
        (self.place, self.spoke[ANSWER]) = (Place::Answer, true);
        self.say(ANSWER, out);
    }

    fn say(&mut self, part: usize, out: &mut Parts) {
        let mut text = std::mem::take(&mut self.held);
        if self.tags && !self.spoke[part] {
            text = text.trim_start_matches('\n').to_owned();
        }
        if self.tags && part == THINKING {
            self.held = text.split_off(text.trim_end_matches('\n').len());
        }
        self.spoke[part] |= !text.is_empty();
        match &mut self.listener {
            _ if part == THINKING => out.thinking.push_str(&text),
            Some(listener) => listener.text(&text, out),
            None => out.answer.push_str(&text),
        }
    }

    /// When no more will come: what waited for a mark, and was an answer.
    fn finish(&mut self, out: &mut Parts) {
        if matches!(self.place, Place::Before | Place::Begun) && !self.held.is_empty() {
            self.answers(out);
        }
        if let Some(listener) = &mut self.listener {
            listener.finish(out);
        }
    }
}

/// The tool that a header's message is to: `assistant to=functions.f`.
fn recipient(header: &str) -> Option<String> {
    let (_, to) = header.split_once("to=")?;
    Some(to.split_whitespace().next()?.strip_prefix("functions.")?.to_owned())
}

/// What a message of a channel is: `name` may be followed by more of the header.
fn of_channel(name: &str) -> Place {
    if name.split_whitespace().next() == Some(THOUGHTS) { Place::Thinking } else { Place::Answer }
}

/// What bytes are.
#[derive(Clone, Debug)]
enum Heard {
    Text,
    Mark(Token),
    /// A special token that is no mark, of which texts show nothing.
    Special(String),
}

/// Cuts an answer into its parts, behind the filter of stop strings.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    marks: Vec<Token>,
    /// What has gone into the filter and not come out: bytes, of a text or of a token.
    ahead: VecDeque<(usize, Heard)>,
    state: State,
    /// All that came of this answer.
    pub(crate) said: Parts,
}

impl Cut {
    /// For an answer to a prompt; `None` where it is not to be cut: no marks and no tools, or somebody wants every token or a grammar's
    /// sentence.
    pub(crate) fn after(
        prompt: &str,
        tokenizer: &Tokenizer,
        how: &Generate,
        listener: Option<Listener>,
    ) -> Option<Self> {
        let whole = how.show_special;
        #[cfg(feature = "grammar")]
        let whole = whole || how.grammar.is_some();
        let marks = marks(tokenizer).or_else(|| listener.is_some().then(Vec::new)).filter(|_| !whole)?;
        let state = State::after(prompt, marks.iter().any(|token| token.mark == Mark::Open));
        let state = State { listener, ..state };
        Some(Self { marks, ahead: VecDeque::new(), state, said: Parts::default() })
    }

    /// For the last answer of a conversation that was saved, which goes on.
    pub(crate) fn going_on(note: &Note, tokenizer: &Tokenizer, how: &Generate) -> Option<Self> {
        let answer = note.answer()?;
        let (place, held) = note.place.clone()?;
        let mut cut = Self::after("", tokenizer, how, None)?;
        let spoke = [&answer.thinking, &answer.content].map(|part| !part.is_empty());
        cut.state = State { place, held, spoke, ..cut.state };
        cut.ahead.push_back((note.held.len(), Heard::Text));
        Some(cut)
    }

    /// Where it stands, for [`going_on`](Self::going_on).
    pub(crate) fn place(&self) -> (Place, String) {
        (self.state.place, self.state.held.clone())
    }

    /// Who listens for calls.
    #[cfg(feature = "grammar")]
    pub(crate) fn listener(&self) -> Option<&Listener> {
        self.state.listener.as_ref()
    }

    /// What a token says, on its way into the filter. A mark that texts do not show says nothing. `special` spells a special token.
    pub(crate) fn hear(&mut self, id: u32, said: &str, special: impl FnOnce() -> Option<String>) {
        let mark = self.marks.iter().find(|token| token.id == id).copied();
        let spelled =
            mark.map_or(0, |mark| if said.ends_with(mark.spelling) { mark.spelling.len() } else { 0 });
        // Before it there may be the rest of a character that it ends.
        self.hear_text(said.len() - spelled);
        self.ahead.extend(mark.map(|mark| (spelled, Heard::Mark(mark))));
        if mark.is_none() && self.state.listener.is_some() {
            self.ahead.extend(special().map(|spelling| (0, Heard::Special(spelling))));
        }
    }

    /// Bytes of no token, on their way into the filter.
    pub(crate) fn hear_text(&mut self, len: usize) {
        self.ahead.push_back((len, Heard::Text));
    }

    /// Ends an answer that nobody waits for: what was held back is a call if it is whole, and text if not.
    pub(crate) fn end(&mut self) {
        if let Some(mut listener) = self.state.listener.take() {
            let mut parts = Parts::default();
            listener.finish(&mut parts);
            self.said.push(&parts);
        }
    }

    /// What came out of the filter, in parts. `last`: no more will come.
    pub(crate) fn give(&mut self, mut text: &str, last: bool) -> Parts {
        let mut parts = Parts::default();
        while let Some((len, heard)) = self.ahead.front_mut() {
            let Some((now, rest)) = text.split_at_checked((*len).min(text.len())) else { break };
            (*len, text) = (*len - now.len(), rest);
            let over = *len == 0;
            match heard {
                Heard::Text if !now.is_empty() => self.state.text(now, &mut parts),
                Heard::Mark(mark) if over => self.state.mark(*mark, &mut parts),
                Heard::Special(spelling) if over => self.state.special(spelling, &mut parts),
                _ => {}
            }
            if !over {
                break;
            }
            self.ahead.pop_front();
        }
        if last {
            self.state.finish(&mut parts);
        }
        self.said.push(&parts);
        parts
    }
}

#[cfg(test)]
mod tests;
