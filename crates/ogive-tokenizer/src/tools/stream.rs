//! Calls and text told apart as they come.
//!
//! A call is told when it begins, and taken back if it comes to nothing: to wait for its end would be simpler, and then nobody could show
//! what a model writes into a file before all of it is written. Text is told once it can be no call's, and is never taken back. In the end
//! all is as [`CallSyntax::read`] has it.

mod held;

use super::begun::{Around, Begun, Outcome, Told};
use super::read::MAX_MARKS;
use super::{CallSyntax, Form, Tool, ToolCall, overlap};
use serde_json::Value as Json;
use std::sync::Arc;

/// What comes of an answer that may have calls. An `index` counts the answer's calls from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallEvent {
    /// Text that is no part of a call.
    Text(String),
    /// A call begins.
    Begins {
        /// Which one.
        index: usize,
        /// The function's name.
        name: String,
    },
    /// More of the call's arguments.
    Arguments {
        /// Which one.
        index: usize,
        /// A piece of JSON: all pieces of a call together are an object.
        json: String,
    },
    /// The call is whole.
    Ends {
        /// Which one.
        index: usize,
        /// The call, with its id, which a model may write last.
        call: ToolCall,
    },
    /// This call and those behind it are none: they were cut short, or the model made a mistake. What was said instead follows.
    TakenBack {
        /// The first of them.
        index: usize,
    },
}

/// Tells calls from text while an answer comes.
///
/// ```
/// # use ogive_tokenizer::template::ChatTemplate;
/// use ogive_tokenizer::tools::CallEvent;
/// # let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}\
/// #               <call>{{ c.function | tojson }}</call>{% endfor %}{% endfor %}{{ tools | tojson if tools }}";
/// # let template = ChatTemplate::new(source)?;
/// let mut stream = template.call_syntax()?.stream(&[], 0);
/// assert_eq!(stream.push("Let me see. <ca"), [CallEvent::Text("Let me see.".into())]);
/// assert_eq!(stream.push("ll>{\"name\": \"no"), []);
/// let begins = CallEvent::Begins { index: 0, name: "now".into() };
/// let arguments = |json: &str| CallEvent::Arguments { index: 0, json: json.into() };
/// assert_eq!(stream.push("w\", \"arguments\": {\"zo"), [begins, arguments("{\"zo")]);
/// let mut rest = stream.push("ne\": \"cet\"}}</call>");
/// rest.extend(stream.finish());
/// assert_eq!((&rest[0], rest.len()), (&arguments("ne\": \"cet\"}"), 2));
/// assert!(matches!(&rest[1], CallEvent::Ends { index: 0, call } if call.arguments["zone"] == "cet"));
/// # Ok::<(), ogive_tokenizer::template::TemplateError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallStream {
    fixed: Arc<Fixed>,
    /// All that came, and what of it is special tokens.
    text: String,
    special: Vec<(usize, usize)>,
    /// Where in the text there was more that is taken out.
    taken: Vec<usize>,
    place: Place,
    /// How far it was told or read, and spaces that wait for what follows them.
    told: usize,
    spaces: String,
    /// Whether text was told, and whether what comes next is the first behind calls.
    said: bool,
    behind: bool,
    /// Where the next mark may be, how many places were tried, and whether the answer's beginning was.
    from: usize,
    tried: usize,
    began: bool,
    calls: Vec<ToolCall>,
    /// The call that was told to begin, and its arguments.
    open: Option<(String, String)>,
    /// What may say that text follows, where that is said.
    held: String,
    /// What is read is told if it is known to be a call: one without a mark, of a tool that there is not.
    silent: bool,
}

/// What stays the same: clones share it, as one is made for each token where a sampler follows.
#[derive(Debug, PartialEq, Eq)]
struct Fixed {
    syntax: CallSyntax,
    forms: [Form; 3],
    tools: Vec<Tool>,
    made: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// In text, before any call.
    Text,
    Calls(Box<Here>),
    /// Behind calls, in marks.
    Marks(usize),
    /// In text that has no calls.
    Rest,
}

/// Where calls are read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Here {
    /// Where they begin, and whether without a mark.
    at: usize,
    bare: bool,
    form: usize,
    /// Where the one begins that is read, or the list, and how many were before.
    next: usize,
    calls: usize,
    begun: Begun,
}

impl CallSyntax {
    /// The same as [`read`](Self::read) does, while the answer comes.
    #[must_use]
    pub fn stream(&self, tools: &[Tool], made: usize) -> CallStream {
        let (text, special, taken, spaces, calls) = Default::default();
        let lead = self.lead.as_ref().map(|lead| lead.mark.clone());
        let fixed = Fixed { syntax: self.clone(), forms: self.forms(), tools: tools.to_vec(), made };
        CallStream {
            fixed: Arc::new(fixed),
            text,
            special,
            taken,
            place: Place::Text,
            told: 0,
            spaces,
            said: false,
            behind: false,
            from: 0,
            tried: 0,
            began: false,
            calls,
            open: None,
            silent: false,
            held: lead.unwrap_or_default(),
        }
    }
}

impl CallStream {
    /// Takes more of the answer.
    pub fn push(&mut self, text: &str) -> Vec<CallEvent> {
        match &self.fixed.syntax.lead {
            Some(lead) => {
                let mut taken = Vec::new();
                let text = lead.next(&mut self.held, text, &mut taken);
                if self.text.is_empty() && text.len() < lead.mark.len() {
                    // It may be the mark that nobody is to see.
                    self.held.insert_str(0, &text);
                } else {
                    self.taken.extend(taken.into_iter().map(|at| self.text.len() + at));
                    self.take(&text);
                }
            }
            None => self.text.push_str(text),
        }
        self.advance(false)
    }

    /// Takes text of which the prompt may have had the first mark, which nobody is to see.
    fn take(&mut self, text: &str) {
        let lead = self.fixed.syntax.lead.as_ref().filter(|_| self.text.is_empty());
        if let Some(lead) = lead.filter(|lead| text.starts_with(&lead.mark)) {
            self.special.push((0, lead.mark.len()));
        }
        self.text.push_str(text);
    }

    /// Takes a special token, as it is spelled: it may be a mark, and is told in no text.
    pub fn push_special(&mut self, spelling: &str) -> Vec<CallEvent> {
        self.release();
        self.special.push((self.text.len(), self.text.len() + spelling.len()));
        self.text.push_str(spelling);
        self.advance(false)
    }

    /// When no more will come. What was held back is a call if it is whole, and text if not.
    pub fn finish(&mut self) -> Vec<CallEvent> {
        self.release();
        let mut events = self.advance(true);
        let spaces = std::mem::take(&mut self.spaces);
        if self.calls.is_empty() && !spaces.is_empty() {
            push_text(&spaces, &mut events);
        }
        events
    }

    /// Nothing follows that could be taken out with what is held.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.take(&held);
    }

    /// The calls that are whole. Until the answer has ended, some may be [taken back](CallEvent::TakenBack).
    #[must_use]
    pub fn calls(&self) -> &[ToolCall] {
        &self.calls
    }

    /// The syntax that is read.
    #[must_use]
    pub fn syntax(&self) -> &CallSyntax {
        &self.fixed.syntax
    }

    /// All that came, special tokens spelled out.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn is_known(&self, name: &str) -> bool {
        self.fixed.tools.iter().any(|tool| tool.name == name)
    }

    fn advance(&mut self, last: bool) -> Vec<CallEvent> {
        let mut events = Vec::new();
        loop {
            let place = std::mem::replace(&mut self.place, Place::Rest);
            let next = match place {
                Place::Text => self.find(last, &mut events),
                Place::Calls(here) => self.read(here, last, &mut events),
                Place::Marks(at) => self.pass(at, last),
                Place::Rest => {
                    self.tell_to(self.text.len(), &mut events);
                    return events;
                }
            };
            match next {
                Ok(place) => self.place = place,
                // It depends on what comes.
                Err(place) => {
                    self.place = place;
                    return events;
                }
            }
        }
    }

    /// Where calls may begin.
    fn find(&mut self, last: bool, events: &mut Vec<CallEvent>) -> Result<Place, Place> {
        if self.tried >= MAX_MARKS {
            return Ok(Place::Rest);
        }
        if !self.began {
            let at = self.beginning();
            let answer = &self.text[at..];
            if answer.trim_start().is_empty() && !last {
                return Err(Place::Text);
            }
            self.began = true;
            if self.fixed.syntax.begins(answer) {
                self.tell_to(at, events);
                return Ok(self.at(at, true));
            }
        }
        let text = &self.text[self.from..];
        let found = self.fixed.syntax.marks.iter().filter_map(|mark| text.find(mark.as_str())).min();
        let held = self.fixed.syntax.marks.iter().map(|mark| overlap(text, mark)).max().unwrap_or(0);
        let free = if last { text.len() } else { text.len() - held };
        let at = self.from + found.unwrap_or(text.len()).min(free);
        self.tell_to(at, events);
        self.from = at;
        match found {
            Some(found) if found <= free => Ok(self.at(at, false)),
            _ if last => Ok(Place::Rest),
            _ => Err(Place::Text),
        }
    }

    /// Where the answer begins, behind special tokens that are no marks.
    fn beginning(&self) -> usize {
        let mut at = 0;
        for &(start, end) in &self.special {
            let spelling = &self.text[start..end];
            let is_mark = self.fixed.syntax.marks.iter().any(|mark| mark.starts_with(spelling));
            if is_mark || !self.text[at..start].trim().is_empty() {
                break;
            }
            at = end;
        }
        at
    }

    fn at(&mut self, at: usize, bare: bool) -> Place {
        self.tried += 1;
        let begun = Begun::new(&self.fixed.forms[0]);
        Place::Calls(Box::new(Here { at, bare, form: 0, next: at, calls: 0, begun }))
    }

    /// Reads a call, or a list of calls.
    fn read(&mut self, mut here: Box<Here>, last: bool, events: &mut Vec<CallEvent>) -> Result<Place, Place> {
        let form = &self.fixed.forms[here.form];
        let around = Around { syntax: &self.fixed.syntax, form, tools: &self.fixed.tools, last };
        let mut told = Vec::new();
        let outcome = here.begun.read(&around, &self.text[here.next..], &mut told);
        if outcome != Outcome::No {
            told.into_iter().for_each(|told| self.hear(told, here.bare, events));
        }
        let place = match outcome {
            Outcome::More => return Err(Place::Calls(here)),
            Outcome::Done(calls, _) if here.bare && !calls.iter().all(|call| self.is_known(&call.name)) => {
                self.take_back(0, events);
                self.none(&here)
            }
            Outcome::Done(calls, len) => {
                let same =
                    |(a, b): (&ToolCall, &ToolCall)| (&a.name, &a.arguments) == (&b.name, &b.arguments);
                let known = &self.calls[here.calls..];
                if known.len() != calls.len() || !known.iter().zip(&calls).all(same) {
                    if !known.is_empty() {
                        self.take_back(here.calls, events);
                    }
                    calls.into_iter().for_each(|call| self.end(call, events));
                }
                here.next += len;
                self.go_on(here)
            }
            Outcome::No => {
                self.take_back(here.calls, events);
                if !self.calls.is_empty() {
                    Place::Marks(here.next)
                } else if here.form + 1 < self.fixed.forms.len() {
                    (here.form, here.next) = (here.form + 1, here.at);
                    self.go_on(here)
                } else {
                    self.none(&here)
                }
            }
        };
        Ok(place)
    }

    fn go_on(&self, mut here: Box<Here>) -> Place {
        (here.calls, here.begun) = (self.calls.len(), Begun::new(&self.fixed.forms[here.form]));
        Place::Calls(here)
    }

    /// There are no calls here: the next mark may have some.
    fn none(&mut self, here: &Here) -> Place {
        let first = self.text[here.at..].chars().next().map_or(0, char::len_utf8);
        self.from = if here.bare { here.at } else { here.at + first };
        Place::Text
    }

    /// Passes marks behind calls.
    fn pass(&mut self, at: usize, last: bool) -> Result<Place, Place> {
        let (behind, syntax) = (&self.text[at..], &self.fixed.syntax);
        let rest = if last { Some(syntax.beside(behind)) } else { syntax.behind_marks(behind) };
        let Some(rest) = rest else { return Err(Place::Marks(at)) };
        self.told = self.text.len() - rest.len();
        self.behind = true;
        self.spaces = if self.said { "\n\n" } else { "" }.to_owned();
        Ok(Place::Rest)
    }

    /// Tells text up to there.
    fn tell_to(&mut self, to: usize, events: &mut Vec<CallEvent>) {
        let from = std::mem::replace(&mut self.told, to);
        let mut shown = String::new();
        let mut at = from;
        // One of which a part is a mark is special there and here.
        for &(start, end) in self.special.iter().filter(|(start, end)| *start < to && *end > from) {
            shown.push_str(&self.text[at..start.max(at)]);
            at = end.min(to);
        }
        shown.push_str(&self.text[at..to]);
        let shown = if self.behind { shown.trim_start() } else { &shown };
        let (words, spaces) = shown.split_at(shown.trim_end().len());
        if words.is_empty() {
            self.spaces.push_str(spaces);
            return;
        }
        let before = std::mem::replace(&mut self.spaces, spaces.to_owned());
        (self.said, self.behind) = (true, false);
        push_text(&before, events);
        push_text(words, events);
    }

    fn hear(&mut self, told: Told, bare: bool, events: &mut Vec<CallEvent>) {
        match told {
            Told::Begins(name) if bare && !self.is_known(&name) => self.silent = true,
            _ if self.silent => {}
            Told::Begins(name) => self.begin(name, events),
            Told::Json(json) => {
                if let Some((_, whole)) = &mut self.open {
                    whole.push_str(&json);
                    push_json(self.calls.len(), json, events);
                }
            }
            Told::Ends(call) => self.end(call, events),
        }
    }

    fn begin(&mut self, name: String, events: &mut Vec<CallEvent>) {
        self.open = Some((name.clone(), String::new()));
        events.push(CallEvent::Begins { index: self.calls.len(), name });
    }

    /// A call is whole; what was told of it is completed, or taken back if it is not so.
    fn end(&mut self, mut call: ToolCall, events: &mut Vec<CallEvent>) {
        let index = self.calls.len();
        let arguments = Json::Object(call.arguments.clone());
        let is = |json: &str| serde_json::from_str::<Json>(json).is_ok_and(|told| told == arguments);
        let open = self.open.take();
        let rest = open.as_ref().filter(|(name, _)| *name == call.name).and_then(|(_, told)| {
            let rest = [String::new(), "}".to_owned()].into_iter().find(|rest| is(&format!("{told}{rest}")));
            rest.or_else(|| told.is_empty().then(|| arguments.to_string()))
        });
        let json = rest.unwrap_or_else(|| {
            if open.is_some() {
                events.push(CallEvent::TakenBack { index });
            }
            self.begin(call.name.clone(), events);
            arguments.to_string()
        });
        push_json(index, json, events);
        if call.id.is_empty() || self.fixed.syntax.own_ids {
            call.id = format!("call{:05}", self.fixed.made + index + 1);
        }
        self.open = None;
        self.calls.push(call.clone());
        events.push(CallEvent::Ends { index, call });
    }

    fn take_back(&mut self, index: usize, events: &mut Vec<CallEvent>) {
        if self.open.take().is_some() || self.calls.len() > index {
            self.calls.truncate(index);
            events.push(CallEvent::TakenBack { index });
        }
        self.silent = false;
    }
}

fn push_text(text: &str, events: &mut Vec<CallEvent>) {
    match events.last_mut() {
        _ if text.is_empty() => {}
        Some(CallEvent::Text(before)) => before.push_str(text),
        _ => events.push(CallEvent::Text(text.to_owned())),
    }
}

fn push_json(of: usize, more: String, events: &mut Vec<CallEvent>) {
    match events.last_mut() {
        _ if more.is_empty() => {}
        Some(CallEvent::Arguments { index, json }) if *index == of => json.push_str(&more),
        _ => events.push(CallEvent::Arguments { index: of, json: more }),
    }
}
