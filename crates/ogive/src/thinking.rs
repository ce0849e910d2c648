//! What a model thinks, told apart from what it answers.
//!
//! Marks are found by their tokens and not by their letters. A model that writes about `<|channel|>` spells the name, so what it says
//! stays whole; and nothing waits for what may yet become a mark. Tags open a thought only where the answer begins, for whoever writes
//! about `<think>` may well draw its token.

use crate::Generate;
use crate::saved::Note;
use crate::tokenizer::Tokenizer;
use std::collections::VecDeque;

/// A piece of a reply. Either part may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parts {
    /// What the model thinks.
    pub thinking: String,
    /// What it answers.
    pub answer: String,
}

impl Parts {
    /// Whether there is neither.
    pub fn is_empty(&self) -> bool {
        self.thinking.is_empty() && self.answer.is_empty()
    }

    fn push(&mut self, more: &Self) {
        self.thinking.push_str(&more.thinking);
        self.answer.push_str(&more.answer);
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
}

/// As files name them.
const PLACES: [(&str, Place); 6] = [
    ("before", Place::Before),
    ("thinking", Place::Thinking),
    ("answer", Place::Answer),
    ("begun", Place::Begun),
    ("header", Place::Header),
    ("channel", Place::Channel),
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
        Self { place, held: held.to_owned(), spoke: [false; 2], tags }
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
        match (token.mark, self.place) {
            (Mark::Open, Place::Before) => self.enter(Place::Thinking),
            // The prompt had it already.
            (Mark::Open, Place::Thinking) if !self.spoke[THINKING] => {}
            (Mark::Close, Place::Thinking) => self.enter(Place::Answer),
            // Spoken of.
            (Mark::Open | Mark::Close, _) if token.shown => self.text(token.spelling, out),
            (Mark::Open | Mark::Close, _) => {}
            (Mark::Start, _) => self.enter(Place::Header),
            (Mark::Channel, _) => self.enter(Place::Channel),
            (Mark::Message, Place::Channel) => self.enter(of_channel(&self.held)),
            (Mark::Message, Place::Begun | Place::Header) | (Mark::End, _) => self.enter(Place::Answer),
            (Mark::Message, _) => {}
        }
    }

    fn text(&mut self, text: &str, out: &mut Parts) {
        self.held.push_str(text);
        match self.place {
            Place::Begun | Place::Header | Place::Channel => {}
            Place::Before if self.held.trim().is_empty() => {}
            Place::Before => self.answers(out),
            Place::Thinking => self.say(THINKING, &mut out.thinking),
            Place::Answer => self.say(ANSWER, &mut out.answer),
        }
    }

    /// What was held was no mark's.
    fn answers(&mut self, out: &mut Parts) {
        (self.place, self.spoke[ANSWER]) = (Place::Answer, true);
        self.say(ANSWER, &mut out.answer);
    }

    fn say(&mut self, part: usize, out: &mut String) {
        let mut text = std::mem::take(&mut self.held);
        if self.tags && !self.spoke[part] {
            text = text.trim_start_matches('\n').to_owned();
        }
        if self.tags && part == THINKING {
            self.held = text.split_off(text.trim_end_matches('\n').len());
        }
        self.spoke[part] |= !text.is_empty();
        out.push_str(&text);
    }

    /// When no more will come: what waited for a mark, and was an answer.
    fn finish(&mut self, out: &mut Parts) {
        if matches!(self.place, Place::Before | Place::Begun) && !self.held.is_empty() {
            self.answers(out);
        }
    }
}

/// What a message of a channel is: `name` may be followed by more of the header.
fn of_channel(name: &str) -> Place {
    if name.split_whitespace().next() == Some(THOUGHTS) { Place::Thinking } else { Place::Answer }
}

/// Cuts an answer into its parts, behind the filter of stop strings.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    marks: Vec<Token>,
    /// What has gone into the filter and not come out: bytes, of a text or of a mark.
    ahead: VecDeque<(usize, Option<Token>)>,
    state: State,
    /// All that came of this answer.
    pub(crate) said: Parts,
}

impl Cut {
    /// For an answer to a prompt; `None` where it is not to be cut: no marks, or somebody wants every token or a grammar's sentence.
    pub(crate) fn after(prompt: &str, tokenizer: &Tokenizer, how: &Generate) -> Option<Self> {
        let whole = how.show_special;
        #[cfg(feature = "grammar")]
        let whole = whole || how.grammar.is_some();
        let marks = marks(tokenizer).filter(|_| !whole)?;
        let state = State::after(prompt, marks.iter().any(|token| token.mark == Mark::Open));
        Some(Self { marks, ahead: VecDeque::new(), state, said: Parts::default() })
    }

    /// For the last answer of a conversation that was saved, which goes on.
    pub(crate) fn going_on(note: &Note, tokenizer: &Tokenizer, how: &Generate) -> Option<Self> {
        let answer = note.answer()?;
        let (place, held) = note.place.clone()?;
        let mut cut = Self::after("", tokenizer, how)?;
        let spoke = [&answer.thinking, &answer.content].map(|part| !part.is_empty());
        cut.state = State { place, held, spoke, ..cut.state };
        cut.ahead.push_back((note.held.len(), None));
        Some(cut)
    }

    /// Where it stands, for [`going_on`](Self::going_on).
    pub(crate) fn place(&self) -> (Place, String) {
        (self.state.place, self.state.held.clone())
    }

    /// What a token says, on its way into the filter. A mark that texts do not show says nothing.
    pub(crate) fn hear(&mut self, id: u32, said: &str) {
        let mark = self.marks.iter().find(|token| token.id == id).copied();
        let spelled =
            mark.map_or(0, |mark| if said.ends_with(mark.spelling) { mark.spelling.len() } else { 0 });
        // Before it there may be the rest of a character that it ends.
        self.hear_text(said.len() - spelled);
        self.ahead.extend(mark.map(|mark| (spelled, Some(mark))));
    }

    /// Bytes of no token, on their way into the filter.
    pub(crate) fn hear_text(&mut self, len: usize) {
        self.ahead.push_back((len, None));
    }

    /// What came out of the filter, in parts. `last`: no more will come.
    pub(crate) fn give(&mut self, mut text: &str, last: bool) -> Parts {
        let mut parts = Parts::default();
        while let Some((len, mark)) = self.ahead.front_mut() {
            let Some((now, rest)) = text.split_at_checked((*len).min(text.len())) else { break };
            (*len, text) = (*len - now.len(), rest);
            let over = *len == 0;
            match *mark {
                None if !now.is_empty() => self.state.text(now, &mut parts),
                Some(mark) if over => self.state.mark(mark, &mut parts),
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
mod tests {
    use super::*;
    use crate::stop::StopFilter;

    fn cut(prompt: &str, shown: bool) -> impl Fn(bool) -> Cut {
        move |tags| {
            let kind = if tags { &TAGS[..] } else { &CHANNELS };
            let marks = (1..).zip(kind).map(|(id, &(mark, spelling))| Token { id, mark, spelling, shown });
            let (state, ahead, said) = (State::after(prompt, tags), VecDeque::new(), Parts::default());
            Cut { marks: marks.collect(), ahead, state, said }
        }
    }

    /// Text as tokens: marks, each with its id, and what is between them.
    fn tokens<'t>(cut: &Cut, mut text: &'t str) -> Vec<(u32, &'t str)> {
        let mut tokens = Vec::new();
        while !text.is_empty() {
            let found = cut.marks.iter().filter_map(|m| Some((text.find(m.spelling)?, m)));
            let (at, id, len) = found
                .min_by_key(|(at, _)| *at)
                .map_or((text.len(), 0, 0), |(at, m)| (at, m.id, m.spelling.len()));
            let (before, rest) = text.split_at(at);
            let (mark, rest) = rest.split_at(len);
            tokens.extend([(0, before), (id, mark)].into_iter().filter(|(_, t)| !t.is_empty()));
            text = rest;
        }
        tokens
    }

    /// Thoughts, the answer and the text that shows, in the end.
    fn told(mut cut: Cut, tokens: &[(u32, &str)], stops: &[&str]) -> [String; 3] {
        let mut stop = StopFilter::new(&stops.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        let (mut all, mut shows) = (Parts::default(), String::new());
        let mut give = |cut: &mut Cut, text: &str, last| {
            shows += text;
            all.push(&cut.give(text, last));
        };
        for (id, text) in tokens {
            let shown = *id == 0 || cut.marks[0].shown;
            let said = if shown { *text } else { "" };
            cut.hear(*id, said);
            let piece = stop.push(said);
            give(&mut cut, &piece, stop.stopped());
            if stop.stopped() {
                break;
            }
        }
        give(&mut cut, &stop.finish(), true);
        assert_eq!(cut.said, all);
        [all.thinking, all.answer, shows]
    }

    /// By every way of cutting what is between the marks, and with stop strings that hold it back.
    fn check(tags: bool, prompt: &str, text: &str, thinking: &str, answer: &str) {
        for (shown, stops) in [
            (true, &[][..]),
            (false, &[]),
            (true, &["</think>!", "<|message|>!", "\n\n\n\n", "think>!"]),
            (false, &["Über 2\n\nund 2.\n\n\n4!", "é.\nassistantfinal\n4!", "ab!", "\n\n\n\n5"]),
        ] {
            let cut = cut(prompt, shown);
            let whole = tokens(&cut(tags), text);
            let shows: String = whole.iter().filter(|(id, _)| shown || *id == 0).map(|(_, t)| *t).collect();
            let want = [thinking.to_owned(), answer.to_owned(), shows];
            assert_eq!(told(cut(tags), &whole, stops), want, "{text:?} {stops:?}");
            for at in (1..text.len()).filter(|at| text.is_char_boundary(*at)) {
                let (mut start, mut two) = (0, Vec::new());
                for &(id, token) in &whole {
                    let inner = at.checked_sub(start).filter(|n| id == 0 && *n < token.len()).unwrap_or(0);
                    let (a, b) = token.split_at(inner);
                    two.extend([(id, a), (id, b)].into_iter().filter(|(_, t)| !t.is_empty()));
                    start += token.len();
                }
                assert_eq!(told(cut(tags), &two, stops), want, "{text:?} at {at}, {stops:?}");
            }
            let letters = whole.iter().flat_map(|&(id, token)| {
                let n = if id == 0 { token.chars().count() } else { 1 };
                let ends = (0..=n).map(move |i| {
                    if i == n { token.len() } else { token.char_indices().nth(i).map_or(0, |(at, _)| at) }
                });
                ends.clone().zip(ends.skip(1)).map(move |(a, b)| (id, &token[a..b]))
            });
            assert_eq!(told(cut(tags), &letters.collect::<Vec<_>>(), stops), want, "{text:?} by letters");
        }
    }

    #[test]
    fn tags_part_a_thought_from_the_answer() {
        let check = |prompt, text, thinking, answer| check(true, prompt, text, thinking, answer);
        check("", "<think>\nÜber 2\n\nund 2.\n</think>\n\n4.\n", "Über 2\n\nund 2.", "4.\n");
        check("", " \n<think>a</think>b", "a", "b");
        check("", "<think>\n\n</think>\n\n4", "", "4");
        check("", "<think>\nIt is\n", "It is", "");
        check("", "<think>", "", "");
        // None, and what is said about them.
        check("", "\n\n 4 ", "", "\n\n 4 ");
        check("", "  \n", "", "  \n");
        check("", "", "", "");
        check("Q: <think>\n", "\na</think>b", "a", "b");
        check("Q: <think>\n", "<think>\na\n</think>\nb", "a", "b");
        check("Q: <think>\n\n</think>\n\n", "\nb\n", "", "b\n");
        check("Q: <think> A:", "b", "", "b");
    }

    #[test]
    fn tags_are_spoken_of_elsewhere() {
        let said = |prompt, text| {
            let cut = cut(prompt, true)(true);
            told(cut.clone(), &tokens(&cut, text), &[])
        };
        let text = "Use <think> and </think>.";
        assert_eq!(said("", text), ["", text, text]);
        assert_eq!(said("", "</think>."), ["", "</think>.", "</think>."]);
        let text = "<think>a <think> b</think>c <think>d</think>";
        assert_eq!(said("", text), ["a <think> b", "c <think>d</think>", text]);
        // Letters are no mark.
        let letters = told(cut("", true)(true), &[(0, "<think>"), (0, "a</think>")], &[]);
        assert_eq!(letters, ["", "<think>a</think>", "<think>a</think>"]);
    }

    #[test]
    fn channels_part_thoughts_from_the_answer() {
        let check = |prompt, text, thinking, answer| check(false, prompt, text, thinking, answer);
        let prompt = "<|start|>user<|message|>2+2?<|end|><|start|>assistant";
        let two = "<|channel|>analysis<|message|>\nHm, é.\n<|end|><|start|>assistant<|channel|>final<|message|>\n4.\n";
        check(prompt, two, "\nHm, é.\n", "\n4.\n");
        // Several of each, and a header that has more.
        check(
            prompt,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>\
             <|start|>assistant<|channel|>analysis<|message|>c<|end|>\
             <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}",
            "a\n\nc",
            "b\n\n{}",
        );
        check(prompt, "<|message|>b", "", "b");
        check(prompt, "<|channel|>anal", "", "");
        check(prompt, "<|channel|>analysis<|message|>a<|end|><|start|>assis", "a", "");
        // Without a header, and where the prompt began more of it.
        check("", "b", "", "b");
        check(prompt, "4.", "", "4.");
        check("<|start|>assistant<|channel|>anal", "ysis<|message|>a", "a", "");
        check("<|start|>assistant<|channel|>analysis<|message|>", "a<|end|>b", "a", "b");
        check("<|start|>assistant<|channel|>final<|message|>", "b", "", "b");
        check("<|start|>assistant<|message|>", "b", "", "b");
        check("<|start|>user<|message|>2+2?<|end|>", "b", "", "b");
        let letters =
            told(cut(prompt, false)(false), &[(2, ""), (0, "final"), (3, ""), (0, "<|end|>a")], &[]);
        assert_eq!(letters, ["", "<|end|>a", "final<|end|>a"]);
    }

    #[test]
    fn a_stop_string_ends_either_part() {
        let cut = |tags| cut("", true)(tags);
        let text = tokens(&cut(true), "<think>\na b\nc</think>\n\nd e").into_iter().collect::<Vec<_>>();
        assert_eq!(told(cut(true), &text, &["b"]), ["a ", "", "<think>\na "]);
        assert_eq!(told(cut(true), &text, &["e"])[..2], ["a b\nc", "d "]);
        assert_eq!(told(cut(true), &text, &["c</think>"])[..2], ["a b", ""]);
        assert_eq!(told(cut(true), &text, &["think>\n\n"]), ["a b\nc", "", "<think>\na b\nc</"]);
    }
}
