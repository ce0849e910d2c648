//! Reading off a template how its model writes calls.
//!
//! One conversation is rendered several times: with a text, with a call, with two, with arguments of other kinds. Where texts part and meet
//! again is the answer's beginning and end; around the name and the arguments, which are known, stand the marks. Of what two texts have in
//! common only whole tags count, for `</a` is no mark. A syntax that does not read back the calls it was read off is none.

use super::{
    CallSyntax, Dialect, Form, Keys, Lead, Tags, Tool, ToolCall, json, piece_ends, pieces, tagged::Between,
};
use crate::template::{ChatTemplate, TemplateError};
use serde_json::{Map, Value as Json};

/// Words that no template has.
const NAMES: [&str; 2] = ["xyzzy_plugh", "frobnicate_it"];
const KEYS: [&str; 2] = ["wibble_one", "wobble_two"];
const VALUES: [&str; 2] = ["quuxvalue", "gruntvalue"];
const SAID: &str = "§said";
const ID: &str = "zyx000001";

impl ChatTemplate {
    /// How the model writes calls of [tools](crate::tools), as the template shows it. Found out once.
    ///
    /// # Errors
    /// [`TemplateError::NoCalls`] if the template shows no calls, or such as cannot be told from its other text.
    pub fn call_syntax(&self) -> Result<&CallSyntax, TemplateError> {
        let found = self.calls.get_or_init(|| learn(self));
        found.as_ref().ok_or(TemplateError::NoCalls)
    }
}

/// How calls are given to the template.
#[derive(Clone, Copy)]
struct Way {
    arguments_as_text: bool,
    /// An id has the name in it, as Kimi K2's: its template writes no other.
    in_id: bool,
    /// There is no text before a call.
    no_text: bool,
    /// The prompt ends with the first mark of what may be text as well as a call.
    lead: bool,
}

impl Way {
    fn content(self) -> Json {
        if self.no_text { Json::Null } else { "".into() }
    }
}

fn learn(template: &ChatTemplate) -> Option<CallSyntax> {
    let way = |n| Way { arguments_as_text: n & 1 > 0, in_id: n & 2 > 0, no_text: n & 4 > 0, lead: n & 8 > 0 };
    (0..16).map(way).find_map(|way| {
        let shown = Shown::of(template, way)?;
        let syntax = shown.syntax(way)?;
        shown.is_read_by(&syntax).then_some(syntax)
    })
}

fn call(n: usize, arguments: Map<String, Json>, way: Way) -> ToolCall {
    let id = if way.in_id { format!("functions.{}:{n}", NAMES[n]) } else { ID.to_owned() };
    ToolCall::new(id, NAMES[n], arguments)
}

fn arguments(values: [Json; 2]) -> Map<String, Json> {
    KEYS.map(str::to_owned).into_iter().zip(values).collect()
}

/// What the template makes of an answer, from its beginning to its end.
struct Shown {
    tools: Vec<Tool>,
    /// A call of texts, one with a number in place of the first, and two.
    one: (ToolCall, String),
    number: Option<String>,
    two: Option<([ToolCall; 2], String)>,
    /// What follows an answer of text.
    behind: String,
    one_text: bool,
    own_ids: bool,
    lead: Option<Lead>,
}

impl Shown {
    fn of(template: &ChatTemplate, way: Way) -> Option<Self> {
        let text = serde_json::json!({ "type": "string", "description": "" });
        let schema = serde_json::json!({ "type": "object", "properties": { KEYS[0]: text, KEYS[1]: text }, "required": [] });
        let tools = NAMES.map(|name| Tool::new(name, "", schema.clone())).to_vec();
        let rendered = |messages: Vec<Json>, prompt: bool| {
            let tools: Vec<Json> = tools.iter().map(Tool::to_json).collect();
            let all = serde_json::json!({
                "messages": messages, "tools": tools, "bos_token": "", "eos_token": "", "add_generation_prompt": prompt,
            });
            template.render(&all, None).ok()
        };
        let question = serde_json::json!({ "role": "user", "content": "?" });
        let render = |answer: Json| rendered(vec![question.clone(), answer], false);
        let calls = |calls: &[&ToolCall]| {
            let calls: Vec<Json> = calls.iter().map(|call| call.to_json(way.arguments_as_text)).collect();
            render(serde_json::json!({ "role": "assistant", "content": way.content(), "tool_calls": calls }))
        };
        let first = call(0, arguments(VALUES.map(Json::from)), way);
        let second = call(1, arguments(VALUES.map(Json::from)), way);
        let whole = calls(&[&first])?;
        let said = render(serde_json::json!({ "role": "assistant", "content": SAID }))?;
        let start = common_prefix(&whole, &said).len();
        let (before, behind) = said.split_once(SAID)?;
        let lead = match way.lead {
            true => Some(lead(before, start, &rendered(vec![question.clone()], true)?)?),
            false => None,
        };
        let cut = |whole: &str| {
            let turn = whole.get(start..)?;
            Some(turn[..turn.len() - common_suffix(turn, behind).len()].to_owned())
        };
        let one = cut(&whole)?;
        let two = calls(&[&first, &second]).and_then(|whole| cut(&whole));
        let number = call(0, arguments([Json::from(4711), Json::from(VALUES[1])]), way);
        let number = calls(&[&number]).and_then(|whole| cut(&whole));
        let foreign = ToolCall { id: "q".into(), ..first.clone() };
        let own_ids = !way.in_id && calls(&[&foreign]).is_none();
        let thoughtful = |content: Json| {
            let calls = [first.to_json(way.arguments_as_text)];
            let message = serde_json::json!({
                "role": "assistant", "content": content, "tool_calls": calls, "thinking": SAID, "reasoning_content": SAID,
            });
            render(message).is_some()
        };
        let one_text = thoughtful(way.content()) && !thoughtful(SAID.into());
        let two = two.map(|text| ([first.clone(), second], text));
        Some(Self {
            tools,
            one: (first, one),
            number,
            two,
            behind: behind.to_owned(),
            one_text,
            own_ids,
            lead,
        })
    }

    fn is_read_by(&self, syntax: &CallSyntax) -> bool {
        let reads = |text: &str, calls: &[ToolCall]| {
            let spoken = syntax.read(text, &self.tools, 0);
            let same = |(a, b): (&ToolCall, &ToolCall)| (&a.name, &a.arguments) == (&b.name, &b.arguments);
            spoken.calls.len() == calls.len() && spoken.calls.iter().zip(calls).all(same)
        };
        let two = self.two.as_ref().is_none_or(|(calls, text)| {
            // Some templates write the first alone, or leave out what parts them: one call a turn it is then.
            reads(text, calls) || !text.contains(NAMES[1])
        });
        reads(&self.one.1, std::slice::from_ref(&self.one.0)) && two
    }

    fn syntax(&self, way: Way) -> Option<CallSyntax> {
        let call = &self.one.0;
        let mark = self.lead.as_ref().map_or("", |lead| &lead.mark);
        let whole = [mark, without_thoughts(&self.one.1)].concat();
        let text = whole.as_str();
        let first_key = text.find(KEYS[0])?;
        let (form, open, close) = match json_form(call, text) {
            Some(found) => found,
            None => {
                let at = text[..first_key].rfind(NAMES[0])?;
                let (open, rest) = (&text[..at], &text[at + NAMES[0].len()..]);
                self.named(call, open, rest, way)
                    .or_else(|| self.literal(call, open, &text[at..]))
                    .or_else(|| self.tagged(open, rest))?
            }
        };
        let mut around: Vec<String> = Vec::new();
        let second = self.two.as_ref().map_or("", |(_, text)| text);
        let between = self.between(second).unwrap_or_default();
        for piece in [open, close, between].into_iter().flat_map(plain_pieces) {
            if !piece.contains(ID) && !around.iter().any(|known| known == piece) {
                around.push(piece.to_owned());
            }
        }
        let marks = self.marks(open, &form)?;
        let one_call = !self.two.as_ref().is_some_and(|(_, text)| text.contains(NAMES[1]));
        let (arguments_as_text, no_text, one_text) = (way.arguments_as_text, way.no_text, self.one_text);
        let (own_ids, lead) = (self.own_ids, self.lead.clone());
        Some(CallSyntax {
            marks,
            form,
            around,
            arguments_as_text,
            one_text,
            one_call,
            no_text,
            own_ids,
            lead,
        })
    }

    /// What an answer's first call begins with: as many tags as an answer of text does not end with; and what each begins with, if that is
    /// something else, for models may leave out what is around it. None if these have the name, which may be any.
    fn marks(&self, open: &str, form: &Form) -> Option<Vec<String>> {
        let open = open.trim();
        let mut tags = piece_ends(open).into_iter().map(|end| &open[..end]);
        let first = tags.find(|tags| !self.behind.contains(*tags)).filter(|tags| *tags != "[");
        let each = match form {
            Form::Named { open, .. } => open.trim(),
            Form::Tagged(tags) => tags.open.trim(),
            _ => "",
        };
        let each = Some(each).filter(|each| each.starts_with('<') && !self.behind.contains(each));
        let mut marks: Vec<String> = first.into_iter().chain(each).map(str::to_owned).collect();
        marks.dedup();
        (!marks.iter().any(|mark| mark.contains(NAMES[0]))).then_some(marks)
    }

    /// A name, and arguments that are JSON.
    fn named<'t>(
        &self,
        call: &ToolCall,
        open: &'t str,
        rest: &'t str,
        way: Way,
    ) -> Option<(Form, &'t str, &'t str)> {
        let at = rest.find('{')?;
        let (value, close) = json::value(&rest[at..])?;
        (value.as_object() == Some(&call.arguments)).then_some(())?;
        let id = rest[..at].split_once(ID).map(|(before, behind)| (before.to_owned(), behind.to_owned()));
        let before = pieces(rest[..at].trim_end()).last().unwrap_or_default().to_owned();
        Some((Form::Named { open: self.open(open), before, id, in_id: way.in_id }, open, close))
    }

    /// A call as a language has it, if one reads it.
    fn literal<'t>(&self, call: &ToolCall, open: &'t str, text: &'t str) -> Option<(Form, &'t str, &'t str)> {
        Dialect::ALL.into_iter().find_map(|dialect| {
            let (read, close) = dialect.call(text)?;
            (read.arguments == call.arguments).then_some(())?;
            Some((Form::Literal { open: self.open(open), dialect }, open, close))
        })
    }

    /// Arguments by themselves. `rest` follows the name.
    fn tagged<'t>(&self, open: &'t str, rest: &'t str) -> Option<(Form, &'t str, &'t str)> {
        let (before_key, rest) = rest.split_once(KEYS[0])?;
        let (to_value, rest) = rest.split_once(VALUES[0])?;
        let (next, rest) = rest.split_once(KEYS[1])?;
        let (_, last) = rest.split_once(VALUES[1])?;
        let key = common_suffix(before_key, next);
        let end = common_prefix(next, last);
        let end = &end[..end.len().min(next.len() - key.len())];
        let of_number =
            self.number.as_deref().and_then(|text| text.split_once(KEYS[0])?.1.split_once("4711"));
        let of_number = of_number.map_or(to_value, |(between, _)| between);
        let value = if of_number == to_value {
            Between::Always(to_value.to_owned())
        } else {
            let before = &to_value[..shared_start(to_value, of_number)];
            let after = &to_value
                [to_value.len() - shared_end(&to_value[before.len()..], &of_number[before.len()..])..];
            let text = &to_value[before.len()..to_value.len() - after.len()];
            Between::By { before: before.to_owned(), text: text.to_owned(), after: after.to_owned() }
        };
        let behind = &last[end.len()..];
        // As few tags as nothing else begins with, as models may write other spaces between them.
        let mut close = piece_ends(behind).into_iter().map(|end| behind[..end].trim_start());
        let close = close
            .find(|tags| !before_key.contains(*tags) && !next.contains(*tags))
            .unwrap_or_default()
            .to_owned();
        let tags = Tags { open: self.open(open), key: key.to_owned(), value, end: end.to_owned(), close };
        Some((Form::Tagged(tags), open, behind))
    }

    /// What stands before each name, of what stands before the first.
    fn open(&self, open: &str) -> String {
        if let Some(lead) = &self.lead {
            return lead.mark.clone();
        }
        let second = self.two.as_ref().and_then(|(_, text)| self.between(text));
        let common =
            second.map(|between| common_suffix(open, between)).filter(|common| !common.trim().is_empty());
        let open = common.unwrap_or(open);
        // Of `<tool_call>\n<function=` the tag that the name is in: the one around it may be missing.
        let own = open.rfind('<').filter(|at| !open[*at..].contains('>'));
        own.map_or(open, |at| &open[at..]).to_owned()
    }

    /// What stands between two calls, from the last value of the first to the name of the second.
    fn between<'t>(&self, two: &'t str) -> Option<&'t str> {
        let (_, rest) = two.split_once(VALUES[1])?;
        let (before_key, _) = rest.split_once(KEYS[0])?;
        Some(&before_key[..before_key.rfind(NAMES[1])?])
    }
}

/// What a prompt ends with that stands before a call as well as before text, behind `start` bytes, where text has more of its own before it.
fn lead(before: &str, start: usize, prompt: &str) -> Option<Lead> {
    let (shared, says) = (before.get(..start)?, before.get(start..)?);
    let mark = &shared[shared.rfind(char::is_whitespace).map_or(0, |at| at + 1)..];
    let is_mark = !mark.is_empty() && !says.trim().is_empty() && !mark.contains(char::is_alphanumeric);
    (is_mark && prompt.ends_with(mark)).then(|| Lead { mark: mark.to_owned(), text: format!("{mark}{says}") })
}

/// Calls that are JSON: the form, what is before the first and behind the last.
fn json_form<'t>(call: &ToolCall, text: &'t str) -> Option<(Form, &'t str, &'t str)> {
    text.match_indices('{').find_map(|(at, _)| {
        let (value, rest) = json::value(&text[at..])?;
        let keys = Keys::of(value.as_object()?, &call.name, &call.arguments)?;
        Some((Form::Json(keys), &text[..at], rest))
    })
}

/// An answer's beginning may be an empty thought.
fn without_thoughts(text: &str) -> &str {
    let name = text.find(NAMES[0]).unwrap_or(0);
    let thought = text[..name].to_ascii_lowercase().rfind("think");
    thought.and_then(|at| Some(&text[at + text[at..name].find('>')? + 1..])).unwrap_or(text)
}

/// The pieces that are marks, and no brackets of JSON or Python.
fn plain_pieces(text: &str) -> impl Iterator<Item = &str> {
    let pieces = pieces(text).map(|piece| piece.trim_start_matches(']'));
    pieces.filter(|piece| piece.len() > 1 && !piece.contains(['{', '}', '"', '\'']))
}

/// Bytes that two texts begin with.
fn shared_start(a: &str, b: &str) -> usize {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    same.map(|(c, _)| c.len_utf8()).sum()
}

/// Bytes that two texts end with.
fn shared_end(a: &str, b: &str) -> usize {
    let same = a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b);
    same.map(|(c, _)| c.len_utf8()).sum()
}

/// What two texts begin with, without the beginning of a tag.
fn common_prefix<'t>(a: &'t str, b: &str) -> &'t str {
    let common = &a[..shared_start(a, b)];
    match common.rfind('<') {
        Some(at) if !common[at..].contains('>') => &common[..at],
        _ => common,
    }
}

/// What two texts end with, without the end of a tag.
fn common_suffix<'t>(a: &'t str, b: &str) -> &'t str {
    let common = &a[a.len() - shared_end(a, b)..];
    match common.find('>') {
        Some(at) if !common[..at].contains('<') => common[at + 1..].trim_start(),
        _ => common,
    }
}
