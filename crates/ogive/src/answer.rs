//! What comes of the tokens that a sequence draws: text, told apart from thoughts and calls, up to where it ends.
//!
//! It stands between an engine's events and whoever reads, and knows neither the engine nor a session. So an answer in a [`Session`](crate::Session)
//! and one of many in an [`Engine`](crate::engine::Engine) are the same text, and a server has nothing of it to do itself.

use crate::engine::{Event, Finish, Request, sampler::Chain};
use crate::stop::StopFilter;
use crate::thinking::{Cut, Parts};
use crate::tokenizer::TextStream;
use crate::{Generate, Model, Prompt, Result, TokenLogprobs};

/// An answer that an [engine](Model::engine) draws. [`Model::ask`] and [`Conversation::ask`](crate::Conversation::ask) make it beside the request; give it
/// each event of the sequence.
///
/// ```no_run
/// # fn main() -> ogive::Result<()> {
/// let model = ogive::open("model.gguf")?;
/// let mut engine = model.engine(model.limits().clone().sequences(4))?;
/// let (request, mut answer) = model.ask("Once upon a time", &ogive::Generate::new())?;
/// let id = engine.add(request)?;
/// while answer.finish().is_none() {
///     for event in engine.step()?.into_iter().filter(|event| event.id == id) {
///         print!("{}", answer.take(event)?.answer);
///     }
/// }
/// // A stop string ends the answer, and not the sequence.
/// engine.cancel(id);
/// # Ok(()) }
/// ```
///
/// A clone made before anything was taken is for another answer to the same request, whose chain is to be [seeded anew](Chain::reseed).
#[derive(Clone, Debug)]
pub struct Answer {
    model: Model,
    pub(crate) text: Option<TextStream>,
    pub(crate) stop: StopFilter,
    /// Tokens that end it.
    pub(crate) end: Vec<u32>,
    ids: Vec<u32>,
    /// All pieces that were given.
    pub(crate) written: String,
    /// What tells its parts apart, in a conversation with a model that thinks.
    pub(crate) cut: Option<Cut>,
    logprobs: Vec<TokenLogprobs>,
    pub(crate) finish: Option<Finish>,
    /// Text that was given away in the end and may be the beginning of a stop string.
    pub(crate) given: Option<String>,
}

impl Answer {
    /// Behind these tokens, nothing of it drawn yet.
    pub(crate) fn new(model: &Model, before: &[u32], how: &Generate) -> Self {
        let tokenizer = model.tokenizer().ok();
        let mut text = tokenizer.map(|t| t.stream_after(before));
        if how.show_special {
            text = text.map(TextStream::with_special);
        }
        // A grammar means the letters of the tokens, the first one's space among them.
        #[cfg(feature = "grammar")]
        if how.grammar.is_some() {
            text = text.map(TextStream::verbatim);
        }
        let end = tokenizer.filter(|_| !how.is_endless()).map(|t| t.eog().to_vec()).unwrap_or_default();
        let (ids, written, cut, logprobs, finish, given) = Default::default();
        let stop = StopFilter::new(&how.stop);
        Self { model: model.clone(), text, stop, end, ids, written, cut, logprobs, finish, given }
    }

    /// The ids drawn so far; a token that ended the answer is the last of them.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// How likely each of [`ids`](Self::ids) was, where [`Generate::logprobs`] asked for it; empty else.
    pub fn logprobs(&self) -> &[TokenLogprobs] {
        &self.logprobs
    }

    /// Why it ended, once it has. A stop string counts as [`Finish::Stop`]: the sequence is then to be cancelled, for it knows nothing of that.
    pub fn finish(&self) -> Option<&Finish> {
        self.finish.as_ref()
    }

    /// Whether no more text can come of it. One that failed may be gone on with otherwise, and what is held back of it comes then.
    pub(crate) fn has_ended(&self) -> bool {
        self.finish.as_ref().is_some_and(|finish| !matches!(finish, Finish::Failed(_)))
    }

    /// Takes what a step has drawn of the sequence, and gives what came of it: nothing while a character is incomplete, or where a stop string or a
    /// call of a tool may begin. After its end it takes nothing.
    ///
    /// # Errors
    /// If no token could be drawn, after which it has ended, or the vocabulary does not know it.
    pub fn take(&mut self, event: Event) -> Result<Parts> {
        if self.finish.is_some() {
            return Ok(Parts::default());
        }
        let (piece, parts) = self.hear(event)?;
        match &self.finish {
            Some(Finish::Failed(e)) => Err(e.clone().into()),
            _ => Ok(parts.unwrap_or_else(|| piece.into())),
        }
    }

    /// The same, with the parts of it where they are told apart. That nothing could be drawn is no error here.
    pub(crate) fn hear(&mut self, event: Event) -> Result<(String, Option<Parts>)> {
        let mut piece = String::new();
        // Before anything can fail: who asks again after the last event would wait for ever.
        self.finish = event.finish;
        if let Some(id) = event.token {
            self.ids.push(id);
            self.logprobs.extend(event.logprobs.map(|found| TokenLogprobs::of(&self.model, found)));
            // A model may have more rows of logits than its vocabulary has tokens: those have no text.
            let is_word = self.model.tokenizer().is_ok_and(|t| (id as usize) < t.vocab_size());
            if let Some(text) = self.text.as_mut().filter(|_| is_word && !self.end.contains(&id)) {
                let said = text.push(id)?;
                if let (Some(cut), Ok(tokenizer)) = (&mut self.cut, self.model.tokenizer()) {
                    let special = || {
                        tokenizer.token_kind(id).filter(|kind| kind.is_special())?;
                        tokenizer.decode_with_special(&[id]).ok()
                    };
                    cut.hear(id, &said, special);
                }
                piece = self.stop.push(&said);
            }
        }
        if self.stop.stopped() {
            self.finish = Some(Finish::Stop);
        } else if self.has_ended() {
            // What was cut is completed by who goes on.
            if self.finish == Some(Finish::Stop) {
                let rest = self.text.as_mut().map(TextStream::finish).unwrap_or_default();
                if let Some(cut) = &mut self.cut {
                    cut.hear_text(rest.len());
                }
                piece += &self.stop.push(&rest);
            }
            self.given = Some(self.stop.held().concat());
            piece += &self.stop.finish();
        }
        let ended = self.has_ended();
        let parts = self.cut.as_mut().map(|cut| cut.give(&piece, ended));
        self.written.push_str(&piece);
        Ok((piece, parts))
    }
}

impl Model {
    /// What an [engine](Self::engine) is asked to go on from `prompt`, and what makes text of the tokens that it draws. A sequence draws by a chain of its
    /// own, from the seed of `how`, so it says what a [session](Self::session) says.
    ///
    /// # Errors
    /// As [`Session::generate`](crate::Session::generate), but that the prompt fits the engine is found when it is [added](crate::engine::Engine::add).
    pub fn ask(&self, prompt: impl Into<Prompt>, how: &Generate) -> Result<(Request, Answer)> {
        #[cfg(feature = "grammar")]
        if how.strict {
            let why = "a text by itself has no tools to call: have it in a `Conversation` with tools, or leave out `strict`";
            return Err(crate::strict::wrong(why));
        }
        self.asked(&prompt.into(), how, None, |chain| chain)
    }

    /// The same with what tells the answer apart, and what else it is held to, over the chain.
    pub(crate) fn asked(
        &self,
        prompt: &Prompt,
        how: &Generate,
        cut: Option<Cut>,
        over: impl FnOnce(Chain) -> Chain,
    ) -> Result<(Request, Answer)> {
        let chain = self.endless(how, self.chain(&how.sampler)?)?;
        #[cfg(feature = "grammar")]
        let (chain, _) = self.constrained(how, chain)?;
        let (ids, inputs) = self.read_within(prompt, self.context())?;
        let answer = Answer { cut, ..Answer::new(self, &ids, how) };
        let max_tokens = how.max_tokens.unwrap_or(self.context());
        let mut request = Request::new(ids, max_tokens).inputs(inputs).chain(over(chain)).stop(&*answer.end);
        request.logprobs = how.logprobs;
        Ok((request, answer))
    }
}
