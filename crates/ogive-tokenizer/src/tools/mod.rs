//! Tools: functions that a model may call, and how it writes that it does.
//!
//! Every family of models writes calls in its own way, and its chat template shows which: it writes the calls of earlier turns as the
//! model would. So a [`CallSyntax`] is read off a template, by rendering calls whose names and values are known, and believed only if
//! it reads these calls back. Templates that nobody has seen work so too, and there is no list of models.

mod begun;
mod json;
mod lead;
mod learn;
mod literal;
mod read;
mod stream;
mod tagged;

pub use begun::OpenCall;
pub use stream::{CallEvent, CallStream};

use crate::template::Message;
use json::Keys;
use lead::Lead;
use literal::Dialect;
use serde_json::{Map, Value as Json};
use tagged::Tags;

/// A function that a model may call.
///
/// ```
/// use ogive_tokenizer::tools::Tool;
/// use serde_json::json;
///
/// let tool = Tool::new("get_weather", "The weather in a city now", serde_json::json!({
///     "type": "object",
///     "properties": { "city": { "type": "string" } },
///     "required": ["city"],
/// }));
/// assert_eq!(Tool::from_json(&tool.to_json()), Some(tool));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tool {
    /// Its name: letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// What it is for, to the model.
    pub description: String,
    /// A JSON Schema of its arguments, which are an object.
    pub parameters: Json,
}

impl Tool {
    /// A function of this name, for what `description` says, whose arguments are as the schema `parameters` has them.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Json) -> Self {
        Self { name: name.into(), description: description.into(), parameters }
    }

    /// Reads one as OpenAI's interface has it, `{"type": "function", "function": {"name": …, "description": …, "parameters": …}}`, or what
    /// is under `function` there. `None` for what is neither. Without `parameters` there are none.
    #[must_use]
    pub fn from_json(json: &Json) -> Option<Self> {
        let function = json.get("function").unwrap_or(json);
        let name =
            function.get("name")?.as_str().filter(|name| !name.is_empty() && name.chars().all(in_name))?;
        let description = function.get("description").filter(|d| !d.is_null());
        let description = description.map_or(Some(""), Json::as_str)?;
        let none = || serde_json::json!({ "type": "object", "properties": {} });
        let parameters = function.get("parameters").filter(|p| !p.is_null()).cloned().unwrap_or_else(none);
        parameters.is_object().then(|| Self::new(name, description, parameters))
    }

    /// What templates see, and [`from_json`](Self::from_json) reads.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let Self { name, description, parameters } = self;
        serde_json::json!({ "type": "function", "function": { "name": name, "description": description, "parameters": parameters } })
    }

    /// Whether an argument of this name is a text, whatever it looks like, or nothing; by a schema that does not say, it is not.
    fn takes_text(&self, argument: &str) -> bool {
        let schema = self.parameters.get("properties").and_then(|properties| properties.get(argument));
        schema.is_some_and(|schema| is_text(schema, MAX_DEPTH))
    }
}

/// Whether a schema has texts, and besides none but null.
fn is_text(schema: &Json, depth: usize) -> bool {
    let is = |kind: &Json| kind == "string";
    let or_null =
        |kinds: &[Json]| kinds.iter().any(is) && kinds.iter().all(|kind| is(kind) || kind == "null");
    match schema.get("type") {
        Some(Json::Array(kinds)) => return or_null(kinds),
        Some(kind) => return is(kind),
        None => {}
    }
    if let Some(values) = schema.get("enum").and_then(Json::as_array) {
        return values.iter().all(Json::is_string);
    }
    let any = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
    any.is_some_and(|any| {
        let mut some = false;
        depth > 0
            && any.iter().all(|one| {
                let text = is_text(one, depth - 1);
                some |= text;
                text || one.get("type").is_some_and(|kind| kind == "null")
            })
            && some
    }) || schema.get("const").is_some_and(Json::is_string)
}

/// A call of a function by a model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCall {
    /// What tells it from other calls: the model's own where it writes any, else `call00001` and so on (nine letters and digits, as
    /// Mistral's templates want).
    pub id: String,
    /// The function's name. A model may call what there is not.
    pub name: String,
    /// The arguments, by name. A model may give others than the function has.
    pub arguments: Map<String, Json>,
}

impl ToolCall {
    /// A call by hand, as part of a conversation that was had elsewhere.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Map<String, Json>) -> Self {
        Self { id: id.into(), name: name.into(), arguments }
    }

    /// The message that says what came of it.
    #[must_use]
    pub fn result(&self, content: impl Into<String>) -> Message {
        let mut message = Message::new("tool", content);
        message.result_of = Some((self.id.clone(), self.name.clone()));
        message
    }

    /// Reads one as OpenAI's interface has it, `{"id": …, "type": "function", "function": {"name": …, "arguments": …}}`, or without what is
    /// around the function; the arguments are an object, or a text that has one.
    #[must_use]
    pub fn from_json(json: &Json) -> Option<Self> {
        let function = json.get("function").unwrap_or(json);
        let arguments = function.get("arguments").map_or_else(|| Some(Map::new()), json::object_in)?;
        let id = json.get("id").and_then(Json::as_str).unwrap_or_default();
        Some(Self::new(id, function.get("name")?.as_str()?, arguments))
    }

    /// What templates see, and [`from_json`](Self::from_json) reads. The arguments as an object, or as a text that has one.
    pub(crate) fn to_json(&self, as_text: bool) -> Json {
        let arguments = Json::Object(self.arguments.clone());
        let arguments = if as_text { Json::String(arguments.to_string()) } else { arguments };
        serde_json::json!({ "id": self.id, "type": "function", "function": { "name": self.name, "arguments": arguments } })
    }
}

/// What a model has said: text, and calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spoken {
    /// What is no part of a call. A call that cannot be read, because it was cut short or the model made a mistake, is text.
    pub text: String,
    /// The calls, in order.
    pub calls: Vec<ToolCall>,
}

/// How a model writes calls, as [its template](crate::template::ChatTemplate::call_syntax) shows it.
///
/// ```
/// # use ogive_tokenizer::template::ChatTemplate;
/// let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}\
///               <call>{{ c.function | tojson }}</call>{% endfor %}{% endfor %}{{ tools | tojson if tools }}";
/// let template = ChatTemplate::new(source)?;
/// let syntax = template.call_syntax()?;
/// let spoken = syntax.read(r#"Let me see. <call>{"name": "now", "arguments": {}}</call>"#, &[], 0);
/// assert_eq!((&*spoken.text, &*spoken.calls[0].name), ("Let me see.", "now"));
/// # Ok::<(), ogive_tokenizer::template::TemplateError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSyntax {
    /// What calls begin with; none where that is their own first bracket.
    marks: Vec<String>,
    form: Form,
    /// What may stand around calls and is no text.
    around: Vec<String>,
    /// Whether the template wants arguments as a text.
    pub(crate) arguments_as_text: bool,
    /// Whether the template refuses a text and a thought before a call (gpt-oss): they are one then.
    pub(crate) one_text: bool,
    /// Whether the template has one call a message.
    pub(crate) one_call: bool,
    /// Whether the template wants no text, where others take an empty one, before a call.
    pub(crate) no_text: bool,
    /// Whether the template takes no ids but such as are made here.
    own_ids: bool,
    /// What the prompt has of an answer.
    lead: Option<Lead>,
}

/// The kinds of syntax there are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// `{"name": "f", "arguments": {"a": 1}}`
    Json(Keys),
    /// `f` and `{"a": 1}` somewhere behind it.
    Named {
        /// What stands before the name.
        open: String,
        /// What stands right before the arguments.
        before: String,
        /// What stands before an id and behind it, between the two.
        id: Option<(String, String)>,
        /// Whether an id has the name in it and stands in its place: `functions.f:0` (Kimi K2).
        in_id: bool,
    },
    /// The name, then each argument by itself.
    Tagged(Tags),
    /// `f(a=1)`, or another language's.
    Literal {
        /// What stands before the name.
        open: String,
        dialect: Dialect,
    },
}

impl CallSyntax {
    /// What calls begin with: any of these. There may be none, as a call's [first bracket](Self::begins) is enough at an answer's beginning.
    #[must_use]
    pub fn marks(&self) -> &[String] {
        &self.marks
    }

    /// Whether arguments are written as JSON, as one value: so they can be held to a schema while they come.
    #[must_use]
    pub fn has_json_arguments(&self) -> bool {
        matches!(self.form, Form::Json(_) | Form::Named { .. })
    }

    /// How many brackets of its own a call has around arguments that are [JSON](Self::has_json_arguments), at least.
    #[must_use]
    pub fn closes(&self) -> usize {
        usize::from(matches!(self.form, Form::Json(_)))
    }

    /// Whether an answer that begins so may be a call without a mark. It is one if there is a tool of the name.
    #[must_use]
    pub fn begins(&self, answer: &str) -> bool {
        answer.trim_start().starts_with(['{', '['])
    }
}

/// Values within each other that are read; templates write little more.
const MAX_DEPTH: usize = 48;

/// Where a mark is in a text, from its first letter to behind its last. Between its tags there may be other spaces than its own.
fn find(text: &str, mark: &str) -> Option<(usize, usize)> {
    let mut pieces = pieces(mark);
    let first = pieces.next()?;
    let rest: Vec<&str> = pieces.collect();
    text.match_indices(first).find_map(|(at, _)| {
        let behind = rest
            .iter()
            .try_fold(&text[at + first.len()..], |text, piece| text.trim_start().strip_prefix(*piece));
        Some((at, text.len() - behind?.len()))
    })
}

/// A mark's tags, and what is between them and spaces.
fn pieces(mark: &str) -> impl Iterator<Item = &str> {
    let ends = piece_ends(mark);
    let starts = [0].into_iter().chain(ends.clone());
    starts.zip(ends).map(|(start, end)| mark[start..end].trim_start())
}

/// Where each of them ends.
fn piece_ends(mark: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while let Some(next) = mark[at..].find(|c: char| !c.is_whitespace()) {
        at += next;
        let rest = &mark[at..];
        let end = match rest.as_bytes()[0] {
            b'<' => rest.find('>').map(|end| end + 1),
            b'[' => rest.find(']').map(|end| end + 1),
            _ => rest.find(['<', '[']),
        };
        let space = rest.find(char::is_whitespace);
        at += [end, space].into_iter().flatten().min().unwrap_or(rest.len());
        ends.push(at);
    }
    ends
}

/// Bytes of the longest end of `text` that `mark` begins with, the whole of `mark` excepted.
fn overlap(text: &str, mark: &str) -> usize {
    let most = text.len().min(mark.len().saturating_sub(1));
    (1..=most).rev().find(|&n| mark.is_char_boundary(n) && text.ends_with(&mark[..n])).unwrap_or(0)
}

/// Letters of functions' names.
fn in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// The name that a text begins with, and what follows it.
fn name(text: &str) -> Option<(&str, &str)> {
    let at = text.find(|c| !in_name(c)).unwrap_or(text.len());
    (at > 0).then(|| text.split_at(at))
}
