//! A conversation: messages, the model's template, and a session that remembers what it has read.

use crate::tokenizer::template::{ChatOptions, ChatTemplate, Message};
use crate::{Generate, Generation, Prompt, Result, Session};

/// A conversation by a chat template.
///
/// Special tokens count in all that the template renders, and so in what the messages say: a user who writes `<|im_end|>` ends
/// the turn, as in llama.cpp. Who does not trust the words takes such names out before.
#[derive(Debug)]
pub struct Chat {
    pub(crate) session: Session,
    template: ChatTemplate,
    pub(crate) messages: Vec<Message>,
    options: ChatOptions,
}

impl Chat {
    /// A conversation in `session` by `template`; for the model's own, see [`Model::chat`](crate::Model::chat).
    /// A session that was saved with a conversation brings its messages.
    ///
    /// # Errors
    /// If the model has no tokenizer, or one without a spelling for the token that begins or ends its texts.
    pub fn new(mut session: Session, template: ChatTemplate) -> Result<Self> {
        let mut options = ChatOptions::default();
        let tokenizer = session.model().tokenizer()?;
        let spelling = |id: Option<u32>| id.map(|id| tokenizer.decode_with_special(&[id])).transpose();
        options.bos_token = spelling(tokenizer.bos())?.unwrap_or_default();
        options.eos_token = spelling(tokenizer.eos())?.unwrap_or_default();
        let messages = std::mem::take(&mut session.note.messages);
        Ok(Self { session, template, messages, options })
    }

    /// Begins with what the assistant is to be, instead of what it was told before.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.messages.retain(|m| m.role != "system");
        self.messages.insert(0, Message::new("system", text));
        self
    }

    /// The conversation so far; may be edited.
    pub fn messages(&mut self) -> &mut Vec<Message> {
        &mut self.messages
    }

    /// What the template is given beside the messages: further variables, the date.
    pub fn options(&mut self) -> &mut ChatOptions {
        &mut self.options
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
        self.messages.push(Message::new("user", text));
        match self.prompt().and_then(|prompt| self.session.generate(prompt, how)) {
            Ok(generation) => Ok(Reply { generation, messages: &mut self.messages }),
            Err(e) => {
                self.messages.pop();
                Err(e)
            }
        }
    }

    /// What the model reads of the conversation.
    pub(crate) fn prompt(&self) -> Result<Prompt> {
        Ok(Prompt::Rendered(self.template.render_chat(&self.messages, &self.options)?))
    }
}

/// An answer as it comes.
#[derive(Debug)]
pub struct Reply<'c> {
    generation: Generation<'c>,
    messages: &'c mut Vec<Message>,
}

impl<'c> Reply<'c> {
    /// The generation behind it: ids, times, why it ended.
    pub fn generation(&self) -> &Generation<'c> {
        &self.generation
    }

    /// One step of the model; see [`Generation::step`].
    ///
    /// # Errors
    /// As [`Generation::step`].
    pub fn step(&mut self) -> Result<Option<String>> {
        self.generation.step()
    }

    /// Runs to the end and gives the whole text; see [`Generation::text`].
    ///
    /// # Errors
    /// If a step fails, or no token could be drawn.
    pub fn text(&mut self) -> Result<String> {
        self.generation.text()
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        self.generation.next()
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if self.generation.ids().is_empty() {
            // The question that was not answered: asked again, it would be there twice. The session has read it.
            self.messages.pop();
            self.generation.note.closed = true;
        } else {
            let text = std::mem::take(&mut self.generation.written);
            self.messages.push(Message::new("assistant", text));
        }
    }
}
