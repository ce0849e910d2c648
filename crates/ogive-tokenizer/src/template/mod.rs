//! Chat templates: the Jinja programs that turn a list of messages into a prompt.
//!
//! The reference is transformers' `apply_chat_template`: jinja2 in an immutable sandbox, with `trim_blocks`,
//! `lstrip_blocks`, `break` and `continue`, the `generation` tag, `tojson`, `raise_exception` and `strftime_now`.
//! Rendering is minijinja's, behind a rewrite (`statements.rs`, `lower/`) that turns every operation on values into a
//! call of a function here, so that Python's meaning and a budget hold for all of them. A template comes from a model
//! file, which is untrusted: it runs in bounded time, memory and stack.
//!
//! Known differences from the reference that are errors here: integers hold 127 bits; macros, namespaces and loops
//! cannot be put into lists, dicts and namespaces; macros take no surplus arguments (`varargs`, `kwargs`) and recursive
//! loops no `else`; `break` and `continue` do not leave a `with`, `set` or `filter` block that is inside of the loop;
//! `autoescape`, `cycler`, `joiner` and the filters that no chat template uses (`xmlattr`, `urlize`, …) are unknown.
//! And those that print something else: `dict.items()` and its kin print as plain lists; the `else` of a loop whose
//! every turn ended by `break` or `continue` is left out; in a loop that holds `break` or `continue`, macros and call
//! blocks see what the turn before assigned, and what its `else` assigns stays; integers of variables beyond 64 bits are
//! floats; `safe` and `escape` give plain strings, so that nothing that is added to them is escaped; a macro's default
//! also takes the place of an undefined value that was passed; `isnumeric` does not know the numerals among the Chinese
//! characters; `title` and `capitalize` write the capital of a digraph (`Ǆ` for `ǅ`);
//! `wordcount` takes marks for the ends of words.

mod arguments;
mod characters;
mod date;
mod error;
mod filters;
mod format;
mod json;
mod lex;
mod lower;
mod message;
mod methods;
mod operators;
mod predicates;
mod scopes;
mod search;
mod sequences;
mod statements;
mod text;
mod values;

use std::fmt;
use std::sync::OnceLock;

use crate::tools::{CallSyntax, Tool};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Output, State, Value};
use serde_json::Value as Json;

pub use date::DateTime;
pub use error::TemplateError;
pub use message::{Attached, Message};

use arguments::{bind, integer, required, string};
use values::{MAX_DEPTH, charge, charge_elements, check_plain, fail, raised};

/// Longest template read, in bytes. The longest in use are some 20 KB.
const MAX_SOURCE: usize = 4 << 20;
/// Instructions one rendering may run: some thousand for each message of a real conversation.
const FUEL: u64 = 5_000_000;
/// Scopes and calls inside each other; a macro call costs five of them.
const MAX_RECURSION: usize = 200;
/// As the reference's sandbox has it.
const MAX_RANGE: i64 = 100_000;
const NAME: &str = "chat";

/// A filter, or an operator that a filter stands for: the piped value, then the arguments.
type Builtin = fn(&mut State<'_, '_>, &Value, &[Value]) -> Result<Value, minijinja::Error>;

/// A chat template, compiled.
///
/// ```
/// use ogive_tokenizer::template::{ChatOptions, ChatTemplate, Message};
///
/// let template = ChatTemplate::new("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}")?;
/// let prompt = template.render_chat(&[Message::new("user", "Hi")], &ChatOptions::default())?;
/// assert_eq!(prompt, "<user>Hi\n");
/// # Ok::<(), ogive_tokenizer::template::TemplateError>(())
/// ```
#[derive(Clone)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    /// Whether it reads no message that is not in parts, once that was found out.
    wants_parts: OnceLock<bool>,
    /// How it writes calls, if it does, once that was found out.
    pub(crate) calls: OnceLock<Option<CallSyntax>>,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

/// What [`ChatTemplate::render_chat`] passes beside the messages.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChatOptions {
    /// Whether the prompt ends with the opening of the assistant's turn. On by default.
    pub add_generation_prompt: bool,
    /// The text of the token that begins a sequence; empty where there is none.
    pub bos_token: String,
    /// The text of the token that ends a sequence; empty where there is none.
    pub eos_token: String,
    /// Functions that the model may call.
    pub tools: Vec<Tool>,
    /// Further variables, such as `enable_thinking`. They win over the fields above.
    pub variables: serde_json::Map<String, Json>,
    /// What `strftime_now` prints; the system's clock, in UTC, if absent.
    pub now: Option<DateTime>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            add_generation_prompt: true,
            bos_token: String::new(),
            eos_token: String::new(),
            tools: Vec::new(),
            variables: serde_json::Map::new(),
            now: None,
        }
    }
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`] where it is no Jinja template, or nested beyond what is sensible.
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE {
            let message = format!("template has {} bytes; at most {MAX_SOURCE} are read", source.len());
            return Err(TemplateError::Limit { message });
        }
        let rewritten = statements::rewrite(source)
            .map_err(|fault| TemplateError::Syntax { line: fault.line, message: fault.message })?;
        let mut env = environment();
        env.add_template_owned(NAME, rewritten).map_err(|e| TemplateError::syntax(&e))?;
        Ok(Self { env, source: source.to_string(), wants_parts: OnceLock::new(), calls: OnceLock::new() })
    }

    /// The template as it was given.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders with the variables of a JSON object: `messages`, `add_generation_prompt`, `tools`, `bos_token` and so
    /// on. As in transformers, `tools` and `documents` are none, `messages` is empty and `add_generation_prompt`
    /// false where they are absent. `now` is what `strftime_now` prints; by default the system's clock, in UTC.
    ///
    /// # Errors
    /// [`TemplateError::Raised`] with the template's own words where it refuses the conversation,
    /// [`TemplateError::Limit`] where it does not come to an end, [`TemplateError::Render`] for its mistakes and
    /// [`TemplateError::Variables`] where the variables are no object or are too deep.
    pub fn render(&self, variables: &Json, now: Option<DateTime>) -> Result<String, TemplateError> {
        let Json::Object(given) = variables else {
            return Err(TemplateError::Variables {
                message: "template variables must be a JSON object".into(),
            });
        };
        let mut context = vec![
            (Value::from("messages"), Value::from(Vec::<Value>::new())),
            (Value::from("tools"), Value::from(())),
            (Value::from("documents"), Value::from(())),
            (Value::from("add_generation_prompt"), Value::from(false)),
        ];
        for (name, value) in given {
            context.push((Value::from(name), from_json(value, 0)?));
        }
        let strftime = move |state: &mut State<'_, '_>, format: &str| {
            // No directive prints more than ten characters for its two.
            charge(state, format.len().saturating_mul(5))?;
            let now = now.unwrap_or_else(DateTime::now_utc);
            now.strftime(format).map_err(|message| fail(format!("strftime_now: {message}")))
        };
        context.push((Value::from("strftime_now"), Value::from_function(strftime)));
        let template = self.env.get_template(NAME).map_err(|e| TemplateError::render(&e))?;
        template.render(Value::from_pairs(context)).map_err(|e| TemplateError::render(&e))
    }

    /// Renders a conversation. What its messages say is a text each; if any has something [attached](Message::attached), or the template takes
    /// no texts, it is a list of parts each, as transformers' processors have it: `{"type": "image"}`, then `{"type": "text", "text": …}`.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn render_chat(&self, messages: &[Message], options: &ChatOptions) -> Result<String, TemplateError> {
        let shows = messages.iter().any(|m| !m.attached.is_empty());
        let all = self.wants_parts();
        // Results of calls, and calls without a word, are told in parts where a template knows nothing else.
        let is_called = |m: &Message| m.result_of.is_some() || m.content.is_empty() && !m.calls.is_empty();
        self.render_messages(messages, |m| all || shows && !is_called(m), options)
    }

    /// Whether the template reads messages in parts alone, as those of some models that see do: it loses what a text says.
    fn wants_parts(&self) -> bool {
        const PROBE: &str = "what-is-said";
        let says = |in_parts| {
            let rendered =
                self.render_messages(&[Message::new("user", PROBE)], |_| in_parts, &ChatOptions::default());
            rendered.is_ok_and(|text| text.contains(PROBE))
        };
        *self.wants_parts.get_or_init(|| !says(false) && says(true))
    }

    fn render_messages(
        &self,
        messages: &[Message],
        in_parts: impl Fn(&Message) -> bool,
        options: &ChatOptions,
    ) -> Result<String, TemplateError> {
        let json = |message: &Message| -> Vec<Json> {
            let syntax = Some(message).filter(|m| !m.calls.is_empty()).and_then(|_| self.call_syntax().ok());
            match syntax {
                Some(syntax) if syntax.one_call => {
                    message.call_by_call().iter().map(|m| m.for_template(in_parts(m), Some(syntax))).collect()
                }
                _ => vec![message.for_template(in_parts(message), syntax)],
            }
        };
        let messages: Vec<Json> = messages.iter().flat_map(json).collect();
        let mut variables = serde_json::Map::new();
        variables.insert("messages".into(), messages.into());
        if !options.tools.is_empty() {
            variables.insert("tools".into(), options.tools.iter().map(Tool::to_json).collect());
        }
        variables.insert("add_generation_prompt".into(), options.add_generation_prompt.into());
        variables.insert("bos_token".into(), options.bos_token.as_str().into());
        variables.insert("eos_token".into(), options.eos_token.as_str().into());
        variables.extend(options.variables.clone());
        self.render(&Json::Object(variables), options.now)
    }
}

/// JSON as template values: objects keep the order of their keys.
fn from_json(value: &Json, depth: usize) -> Result<Value, TemplateError> {
    if depth > MAX_DEPTH {
        let message = format!("template variables are nested more than {MAX_DEPTH} levels deep");
        return Err(TemplateError::Variables { message });
    }
    Ok(match value {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), ..) => Value::from(n),
            (_, Some(n), _) => Value::from(n),
            (.., n) => Value::from(n.unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text),
        Json::Array(items) => {
            let items: Result<Vec<Value>, _> = items.iter().map(|item| from_json(item, depth + 1)).collect();
            Value::from(items?)
        }
        Json::Object(items) => {
            let items: Result<Vec<(Value, Value)>, TemplateError> =
                items.iter().map(|(k, v)| Ok((Value::from(k), from_json(v, depth + 1)?))).collect();
            Value::from_pairs(items?)
        }
    })
}

/// The names a template finds: ours only.
fn environment() -> Environment<'static> {
    let mut env = Environment::empty();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    if let Ok(syntax) = syntax.build() {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(MAX_RECURSION);
    env.set_debug(false);
    env.set_formatter(print);
    filters::register(&mut env, add_builtin);
    for (name, operator) in operators::operators() {
        add_builtin(&mut env, name, operator);
    }
    add_builtin(&mut env, "__is", |state, value, args| {
        let Some((name, rest)) = args.split_first() else { return Err(fail("test without a name")) };
        predicates::test(state, value, string("is", name)?, rest).map(Value::from)
    });
    add_function(&mut env, "dict", sequences::dict);
    add_function(&mut env, "namespace", namespace);
    add_function(&mut env, "range", range);
    add_function(&mut env, "raise_exception", |state, args| {
        let [message] = bind("raise_exception", args, ["message"])?;
        Err(raised(text::to_text(state, &required("raise_exception", "message", message)?)?))
    });
    env
}

fn add_builtin(env: &mut Environment<'static>, name: &'static str, builtin: Builtin) {
    env.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
        let args: Vec<Value> = args.0.into_iter().map(ValueOrKwargs::into_value).collect();
        match args.split_first() {
            Some((value, rest)) => builtin(state, value, rest),
            None => Err(fail(format!("filter {name} needs a value"))),
        }
    });
}

type Function = fn(&mut State<'_, '_>, &[Value]) -> Result<Value, minijinja::Error>;

fn add_function(env: &mut Environment<'static>, name: &'static str, function: Function) {
    env.add_function(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
        let args: Vec<Value> = args.0.into_iter().map(ValueOrKwargs::into_value).collect();
        function(state, &args)
    });
}

/// What `{{ value }}` writes.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), minijinja::Error> {
    let text = text::to_text(state, value)?;
    out.write_str(&text).map_err(minijinja::Error::from)
}

/// `namespace(a=1)`: minijinja's own, holding plain values only.
fn namespace(state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, minijinja::Error> {
    let fields = sequences::dict(state, args)?;
    check_plain(state, &fields)?;
    minijinja::functions::namespace(Some(ValueOrKwargs::from(fields)))
}

/// `range(stop)`, `range(start, stop, step)`.
fn range(state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, minijinja::Error> {
    let [first, stop, step] = bind("range", args, ["start", "stop", "step"])?;
    let first = integer("range", &required("range", "stop", first)?)?;
    let (start, stop) = match stop {
        Some(stop) => (first, integer("range", &stop)?),
        None => (0, first),
    };
    let step = step.map_or(Ok(1), |s| integer("range", &s))?;
    if step == 0 {
        return Err(fail("range() arg 3 must not be zero"));
    }
    let span =
        if step > 0 { i128::from(stop) - i128::from(start) } else { i128::from(start) - i128::from(stop) };
    let size = i128::from(step.unsigned_abs());
    let count = (span.max(0) + size - 1) / size;
    if count > i128::from(MAX_RANGE) {
        return Err(values::limit(format!("range too big: at most {MAX_RANGE} items")));
    }
    let count = usize::try_from(count).unwrap_or(0);
    charge_elements(state, count)?;
    let at = |i: i64| start.saturating_add(step.saturating_mul(i));
    Ok((0..i64::try_from(count).unwrap_or(0)).map(|i| Value::from(at(i))).collect::<Vec<_>>().into())
}
