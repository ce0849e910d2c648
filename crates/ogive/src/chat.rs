//! A conversation: messages, the model's template, and a session that remembers what it has read.

use crate::engine::Finish;
use crate::sampler::Chain;
use crate::session::next_piece;
use crate::thinking::Parts;
use crate::tokenizer::template::{ChatOptions, ChatTemplate, Message};
use crate::tokenizer::tools::{Tool, ToolCall};
use crate::{Conversation, Generate, Generation, Result, Session};

/// A conversation by a chat template.
///
/// Special tokens count in all that the template renders, and so in what the messages say: a user who writes `<|im_end|>` ends
/// the turn, as in llama.cpp. Who does not trust the words takes such names out before.
///
/// What a model thinks is told apart from what it answers, where its vocabulary has the marks for it: `<think>` and `</think>` (Qwen3,
/// DeepSeek-R1), or gpt-oss's channels. It is the message's [`thinking`](Message::thinking), and the template decides what the model sees of
/// it in the next turn. So are calls of [tools](Self::tools). Where special tokens [show](Generate::show_special) or a grammar holds the answer, all is answer.
#[derive(Debug)]
pub struct Chat {
    pub(crate) session: Session,
    pub(crate) talk: Conversation,
    /// What the next message shows.
    #[cfg(feature = "vision")]
    shown: Vec<crate::Image>,
}

impl Chat {
    /// A conversation in `session` by `template`; for the model's own, see [`Model::chat`](crate::Model::chat).
    /// A session that was saved with a conversation brings its messages.
    ///
    /// # Errors
    /// If the model has no tokenizer, or one without a spelling for the token that begins or ends its texts.
    pub fn new(mut session: Session, template: ChatTemplate) -> Result<Self> {
        let mut talk = Conversation::new(session.model(), template)?;
        talk.messages = std::mem::take(&mut session.note.messages);
        Ok(Self {
            session,
            talk,
            #[cfg(feature = "vision")]
            shown: Vec::new(),
        })
    }

    /// Begins with what the assistant is to be, instead of what it was told before.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.talk.messages.retain(|m| m.role != "system");
        self.talk.messages.insert(0, Message::new("system", text));
        self
    }

    /// Lets the model call these functions, instead of those it had. It is told of them by the template, which also shows how it
    /// [writes calls](crate::tokenizer::tools::CallSyntax). What it calls is in [`Reply::calls`], and nothing is run: you do that, say what
    /// came of it by [`ToolCall::result`], and have the model [go on](Self::reply). Saved conversations have the calls, and not the tools: give
    /// them again.
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// use ogive::tensor::serde_json::json;
    /// let city = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    /// let weather = ogive::Tool::new("get_weather", "The weather in a city now", city);
    /// let mut chat = ogive::open("model.gguf")?.chat()?.tools([weather])?;
    /// let how = ogive::Generate::new();
    /// let mut reply = chat.send("Do I need an umbrella in Bergen?", &how)?;
    /// loop {
    ///     println!("{}", reply.text()?);
    ///     let calls = reply.calls().to_vec();
    ///     drop(reply);
    ///     if calls.is_empty() {
    ///         break Ok(());
    ///     }
    ///     for call in &calls {
    ///         println!("{} {:?}", call.name, call.arguments);
    ///         chat.messages().push(call.result(r#"{"rain": true, "degrees": 7}"#));
    ///     }
    ///     reply = chat.reply(&how)?;
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a tool's name or schema is none; if the template shows no calls. Some models have another for this, under the name `tool_use`: it is taken in place of their main one then.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Result<Self> {
        self.talk = self.talk.tools(tools)?;
        Ok(self)
    }

    /// The conversation so far; may be edited.
    pub fn messages(&mut self) -> &mut Vec<Message> {
        &mut self.talk.messages
    }

    /// Shows an image with what is said next, before it, and as long as that fails or nothing comes of it, with what is said then. The model
    /// must [see](crate::Options::vision).
    #[cfg(feature = "vision")]
    pub fn show(&mut self, image: crate::Image) {
        self.shown.push(image);
    }

    /// The first call of the last answer that has no [result](ToolCall::result) yet.
    #[must_use]
    pub fn waits_for(&self) -> Option<&ToolCall> {
        let messages = &self.talk.messages;
        let results = messages.iter().rev().take_while(|message| message.role == "tool").count();
        let answer = messages.len().checked_sub(results + 1)?;
        messages[answer].calls.get(results)
    }

    /// Images that the next message [shows](Self::show); may be edited.
    #[cfg(feature = "vision")]
    pub fn shown(&mut self) -> &mut Vec<crate::Image> {
        &mut self.shown
    }

    /// What the template is given beside the messages: further variables, the date.
    pub fn options(&mut self) -> &mut ChatOptions {
        &mut self.talk.options
    }

    /// The session it runs in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Says `text` and gives the answer piece by piece. When the answer has ended, or is dropped, what has come of it is
    /// part of the conversation. On an error here, or where not one token has come, the conversation is as it was.
    ///
    /// # Errors
    /// If the template does not take the messages, and as [`Session::generate`].
    pub fn send(&mut self, text: impl Into<String>, how: &Generate) -> Result<Reply<'_>> {
        let chain = self.session.model().chain(&how.sampler)?;
        self.send_with(text, how, chain)
    }

    /// The same by a chain of stages of one's own; see [`Session::generate_with`].
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    pub fn send_with(&mut self, text: impl Into<String>, how: &Generate, chain: Chain) -> Result<Reply<'_>> {
        let message = Message::new("user", text);
        #[cfg(feature = "vision")]
        let message = self.shown.iter().fold(message, |message, image| message.attach(image.clone()));
        self.talk.messages.push(message);
        self.go_on(how, chain, Begins::Question)
    }

    /// Says what came of the call that [waits](Self::waits_for), and gives the answer to it; `None` while another one waits. Where none does, it
    /// answers what the messages say as [`reply`](Self::reply). On an error here, or where not one token has come, the conversation is as it was.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    pub fn tell(&mut self, result: impl Into<String>, how: &Generate) -> Result<Option<Reply<'_>>> {
        let Some(call) = self.waits_for() else { return self.reply(how).map(Some) };
        let result = call.result(result);
        let chain = self.session.model().chain(&how.sampler)?;
        self.talk.messages.push(result);
        if self.waits_for().is_some() {
            return Ok(None);
        }
        self.go_on(how, chain, Begins::Result).map(Some)
    }

    /// Answers what the messages say as they are, as after [results](ToolCall::result) of calls.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    pub fn reply(&mut self, how: &Generate) -> Result<Reply<'_>> {
        let chain = self.session.model().chain(&how.sampler)?;
        self.reply_with(how, chain)
    }

    /// The same by a chain of stages of one's own; see [`Session::generate_with`].
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    pub fn reply_with(&mut self, how: &Generate, chain: Chain) -> Result<Reply<'_>> {
        self.go_on(how, chain, Begins::Nothing)
    }

    /// `with`: what the last message is, which goes where it is not answered.
    fn go_on(&mut self, how: &Generate, chain: Chain, with: Begins) -> Result<Reply<'_>> {
        let answer = self
            .talk
            .ready(how)
            .and_then(|(prompt, cut, over)| Ok((cut, self.session.generate_over(prompt, how, chain, over)?)));
        match answer {
            Ok((cut, mut generation)) => {
                generation.answer.cut = cut;
                #[cfg(feature = "vision")]
                if with == Begins::Question {
                    self.shown.clear();
                }
                Ok(Reply {
                    generation,
                    messages: &mut self.talk.messages,
                    #[cfg(feature = "vision")]
                    shown: &mut self.shown,
                    with,
                    failed: false,
                })
            }
            Err(e) => {
                if with != Begins::Nothing {
                    self.talk.messages.pop();
                }
                Err(e)
            }
        }
    }
}

/// What an answer came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    /// A message, which shows what waited for it.
    Question,
    /// The result of a call.
    Result,
    Nothing,
}

/// An answer as it comes: an iterator over its pieces, without what the model thinks. For both there is
/// [`step_parts`](Self::step_parts). A stop string ends thoughts too, and with them the answer.
///
/// ```no_run
/// # fn main() -> ogive::Result<()> {
/// let mut chat = ogive::open("model.gguf")?.chat()?;
/// let mut reply = chat.send("How many r are in strawberry?", &ogive::Generate::new())?;
/// while let Some(parts) = reply.step_parts()? {
///     eprint!("{}", parts.thinking);
///     print!("{}", parts.answer);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Reply<'c> {
    generation: Generation<'c>,
    messages: &'c mut Vec<Message>,
    /// What the next message shows.
    #[cfg(feature = "vision")]
    shown: &'c mut Vec<crate::Image>,
    /// What came with it.
    with: Begins,
    /// The iterator has given an error.
    failed: bool,
}

impl<'c> Reply<'c> {
    /// The generation behind it: ids, times, why it ended.
    pub fn generation(&self) -> &Generation<'c> {
        &self.generation
    }

    /// What the model has thought so far; empty for one that does not, or not in marks that are known.
    pub fn thinking(&self) -> &str {
        self.generation.answer.cut.as_ref().map_or("", |cut| &cut.said.thinking)
    }

    /// What it calls, once it has ended: none without [tools](Chat::tools), and none of a call that was cut short, which is text.
    pub fn calls(&self) -> &[ToolCall] {
        self.generation.answer.cut.as_ref().map_or(&[], |cut| &cut.said.calls)
    }

    /// One step of the model and what came of the answer; see [`Generation::step`]. It is empty while the model thinks.
    ///
    /// # Errors
    /// If the step fails.
    pub fn step(&mut self) -> Result<Option<String>> {
        Ok(self.step_parts()?.map(|parts| parts.answer))
    }

    /// One step of the model and what came of its thoughts, of the answer and of [calls](Parts::calling).
    ///
    /// # Errors
    /// If the step fails.
    pub fn step_parts(&mut self) -> Result<Option<Parts>> {
        let step = self.generation.advance()?;
        Ok(step.map(|(piece, parts)| parts.unwrap_or_else(|| piece.into())))
    }

    /// Runs to the end and gives the whole answer, with what came of it before; see [`Generation::text`].
    ///
    /// # Errors
    /// If a step fails, or no token could be drawn.
    pub fn text(&mut self) -> Result<String> {
        while self.step_parts()?.is_some() {}
        let generation = &self.generation;
        if let Some(Finish::Failed(e)) = generation.finish() {
            return Err(e.clone().into());
        }
        let answer = &generation.answer;
        Ok(answer.cut.as_ref().map_or(&answer.written, |cut| &cut.said.answer).clone())
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<String>;

    /// The next piece of the answer that is not empty; see [`Generation`].
    fn next(&mut self) -> Option<Self::Item> {
        let mut failed = self.failed;
        let next = next_piece(&mut failed, || self.step());
        self.failed = failed;
        next
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if self.generation.ids().is_empty() && self.with == Begins::Nothing {
            self.generation.note.closed = true;
        } else if self.generation.ids().is_empty() {
            // The question that was not answered: asked again, it would be there twice. The session has read it.
            let question = self.messages.pop();
            // What it showed is shown with the next.
            #[cfg(feature = "vision")]
            self.shown.extend(crate::vision::shown(question.as_slice()).unwrap_or_default());
            #[cfg(not(feature = "vision"))]
            drop(question);
            self.generation.note.closed = true;
        } else {
            let answer = &mut self.generation.answer;
            let mut said = match &mut answer.cut {
                Some(cut) => {
                    cut.end();
                    std::mem::take(&mut cut.said)
                }
                None => std::mem::take(&mut answer.written).into(),
            };
            if !said.calls.is_empty() {
                // Templates have their own spaces before calls.
                said.answer.truncate(said.answer.trim_end().len());
            }
            let message = Message::new("assistant", said.answer).thinking(said.thinking).calls(said.calls);
            self.messages.push(message);
        }
    }
}
