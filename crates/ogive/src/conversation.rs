//! Messages, a template and tools: what a model reads of a conversation, and what tells its answer apart.
//!
//! It has no session, so that many of them can share an engine. A [`Chat`](crate::Chat) is one in a session, which also adds answers to the messages; here who
//! asks has the messages, as a server's clients send all of them each time.

use crate::calls::Listener;
use crate::engine::{Request, sampler::Chain};
use crate::thinking::Cut;
use crate::tokenizer::template::{ChatOptions, ChatTemplate, Message};
use crate::tokenizer::tools::Tool;
use crate::{Answer, Error, Generate, Model, Prompt, Result, tensor};

/// A conversation for an [engine](Model::engine), by the model's template. Cheap to clone before it has messages: what was found out of the template is
/// cloned too.
///
/// ```no_run
/// # fn main() -> ogive::Result<()> {
/// use ogive::tokenizer::template::Message;
/// let model = ogive::open("model.gguf")?;
/// let mut engine = model.engine(model.limits().clone().sequences(4))?;
/// let mut talk = model.conversation()?;
/// talk.messages().push(Message::new("user", "What is the capital of France?"));
/// let (request, answer) = talk.ask(&ogive::Generate::new())?;
/// let id = engine.add(request)?;
/// # let _ = (id, answer);
/// # Ok(()) }
/// ```
///
/// What counts as special in messages, and what is told apart of an answer, is as in a [`Chat`](crate::Chat).
#[derive(Clone, Debug)]
pub struct Conversation {
    pub(crate) model: Model,
    template: ChatTemplate,
    pub(crate) messages: Vec<Message>,
    pub(crate) options: ChatOptions,
}

impl Conversation {
    /// A conversation by `template`; for the model's own, see [`Model::conversation`].
    ///
    /// # Errors
    /// If the model has no tokenizer, or one without a spelling for the token that begins or ends its texts.
    pub fn new(model: &Model, template: ChatTemplate) -> Result<Self> {
        let mut options = ChatOptions::default();
        let tokenizer = model.tokenizer()?;
        let spelling = |id: Option<u32>| id.map(|id| tokenizer.decode_with_special(&[id])).transpose();
        options.bos_token = spelling(tokenizer.bos())?.unwrap_or_default();
        options.eos_token = spelling(tokenizer.eos())?.unwrap_or_default();
        Ok(Self { model: model.clone(), template, messages: Vec::new(), options })
    }

    /// Lets the model call these functions, instead of those it had: see [`Chat::tools`](crate::Chat::tools).
    ///
    /// # Errors
    /// If a tool's name or schema is none; if the template shows no calls.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Result<Self> {
        self.options.tools = tools.into_iter().collect();
        let whole = |tool: &Tool| Tool::from_json(&tool.to_json()).is_some();
        if let Some(wrong) = self.options.tools.iter().find(|tool| !whole(tool)) {
            let why = "its name needs letters, digits, `_`, `-` and `.` alone, and its parameters are an object, a JSON Schema";
            return Err(tensor::Error::invalid("giving a model tools", why).within(&wrong.name).into());
        }
        if let Err(none) = self.template.call_syntax() {
            let own = Some(self.template.source()) == self.model.chat_template();
            let other = self.model.tokenizer()?.chat_template_named("tool_use").filter(|_| own);
            self.template = ChatTemplate::new(other.ok_or(none)?)?;
            self.template.call_syntax()?;
        }
        Ok(self)
    }

    /// The model it is with.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The messages so far.
    pub fn messages(&mut self) -> &mut Vec<Message> {
        &mut self.messages
    }

    /// What the template is given beside the messages: further variables, the date.
    pub fn options(&mut self) -> &mut ChatOptions {
        &mut self.options
    }

    /// The template's source.
    pub fn template(&self) -> &str {
        self.template.source()
    }

    /// Calls of tools that its messages have; ids that are made for further ones go on from there.
    pub fn calls_made(&self) -> usize {
        self.messages.iter().map(|message| message.calls.len()).sum()
    }

    /// What an engine is asked to answer the messages, and what tells the answer apart.
    ///
    /// # Errors
    /// If the template does not take the messages, and as [`Model::ask`]; if `how` is [strict](Generate::strict), what is told there.
    pub fn ask(&self, how: &Generate) -> Result<(Request, Answer)> {
        let (prompt, cut, over) = self.ready(how)?;
        self.model.asked(&prompt, how, cut, over)
    }

    /// What the model reads, what tells its answer apart, and what holds that beside `how`'s own.
    pub(crate) fn ready(&self, how: &Generate) -> Result<(Prompt, Option<Cut>, Over)> {
        let listener = self.listener()?;
        let (prompt, text) = self.rendered()?;
        let cut = Cut::after(&text, self.model.tokenizer()?, how, listener);
        #[cfg(feature = "grammar")]
        if let Some(strict) = self.strict(how, cut.as_ref())? {
            return Ok((prompt, cut, Box::new(|chain| chain.first(strict))));
        }
        Ok((prompt, cut, Box::new(|chain| chain)))
    }

    /// Who listens for calls of tools, if there are any.
    fn listener(&self) -> Result<Option<Listener>> {
        let tools = &self.options.tools;
        if tools.is_empty() {
            return Ok(None);
        }
        Ok(Some(Listener::new(self.template.call_syntax()?, tools, self.calls_made())))
    }

    /// What holds calls to their schemas, if that was asked for.
    #[cfg(feature = "grammar")]
    fn strict(&self, how: &Generate, cut: Option<&Cut>) -> Result<Option<crate::strict::Strict>> {
        use crate::strict::{Strict, wrong};
        let tools = &self.options.tools;
        if !how.strict || tools.is_empty() {
            return Ok(None);
        }
        let syntax = self.template.call_syntax()?;
        if !syntax.has_json_arguments() {
            return Err(crate::forced::no_json("holding calls to their schemas"));
        }
        if how.grammar.is_some() {
            return Err(wrong(
                "an answer that a grammar holds calls nothing: leave out `strict`, or the grammar",
            ));
        }
        let Some(cut) = cut else {
            return Err(wrong(
                "calls are text where special tokens show: leave out `strict`, or `show_special`",
            ));
        };
        Strict::new(&self.model, tools, cut, syntax.closes(), how.ignore_end).map(Some)
    }

    /// What the model reads of the conversation, and its text.
    pub(crate) fn rendered(&self) -> Result<(Prompt, String)> {
        let render = |messages: &[Message]| -> Result<String> {
            Ok(self.template.render_chat(messages, &self.options)?)
        };
        #[cfg(feature = "vision")]
        if self.messages.iter().any(|message| !message.attached.is_empty()) {
            return crate::vision::rendered(&self.model, &self.messages, &render);
        }
        let text = render(&self.messages)?;
        Ok((Prompt::Rendered(text.clone()), text))
    }
}

impl Model {
    /// A conversation by the model's own template, for an [engine](Self::engine).
    ///
    /// # Errors
    /// If the model has no template or one that cannot be read.
    pub fn conversation(&self) -> Result<Conversation> {
        let source = self.chat_template().ok_or(Error::NoTemplate)?;
        Conversation::new(self, ChatTemplate::new(source)?)
    }
}

/// Puts what holds one answer before a chain.
pub(crate) type Over = Box<dyn FnOnce(Chain) -> Chain>;
