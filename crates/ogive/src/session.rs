//! A session: one sequence with a cache of its own, and the text it brings forth.
//!
//! Every prompt is given whole. What of it the session has in its cache already is not computed again, so a chat can
//! render its whole conversation each turn and pays for the new part alone.

use crate::endless;
use crate::engine::sampler::{Chain, Stage};
use crate::engine::{Engine, Event, Finish, Placed, Request, SeqId, Stats};
use crate::saved::Note;
use crate::thinking::{Cut, Parts};
use crate::tokenizer::TextStream;
use crate::{Answer, Generate, Model, Prompt, Result, TokenLogprobs};
use std::time::{Duration, Instant};

/// One sequence of a model. Sessions of one model are independent of each other and may run in different threads.
#[derive(Debug)]
pub struct Session {
    pub(crate) model: Model,
    pub(crate) engine: Engine,
    pub(crate) seq: Option<SeqId>,
    /// What is saved with it beside its tokens.
    pub(crate) note: Note,
}

impl Session {
    pub(crate) fn new(model: Model, engine: Engine) -> Self {
        Self { model, engine, seq: None, note: Note::default() }
    }

    /// The model it runs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokens it holds: the last prompt and what followed.
    pub fn tokens(&self) -> &[u32] {
        self.seq.and_then(|id| self.engine.tokens(id)).unwrap_or_default()
    }

    /// The chain that the last answer was drawn by, as it was left: its random numbers, mirostat's and adaptive-p's state.
    /// A clone goes on from there, also where the session has since gone back.
    pub fn chain(&self) -> Option<&Chain> {
        self.engine.chain(self.seq?)
    }

    /// Text that goes on from `prompt`, piece by piece.
    ///
    /// Every call draws by a new chain, from its seed: penalties and DRY see the whole prompt, but mirostat and adaptive-p
    /// begin anew, as llama.cpp's do at each request. To carry them over, give [`generate_with`](Self::generate_with) a
    /// clone of [`chain`](Self::chain).
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// let mut session = ogive::open("model.gguf")?.session()?;
    /// for piece in session.generate("Once upon a time", &ogive::Generate::new())? {
    ///     print!("{}", piece?);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If a setting of the sampler is wrong ([`Model::chain`]), and as [`generate_with`](Self::generate_with).
    pub fn generate(&mut self, prompt: impl Into<Prompt>, how: &Generate) -> Result<Generation<'_>> {
        let chain = self.model.chain(&how.sampler)?;
        self.generate_with(prompt, how, chain)
    }

    /// The same by a chain of stages of one's own; `how.sampler` is not looked at. A chain that has drawn before goes on
    /// from its state, without what `how` asked for then: a grammar, or to ignore the end.
    ///
    /// # Errors
    /// If the prompt cannot be encoded ([`Model::encode`]), fills the context or has a token that the model does not know, if no token is
    /// to be drawn, if the grammar does not fit the vocabulary, or if `how` is `strict`, which is for conversations. The session is as it was then.
    pub fn generate_with(
        &mut self,
        prompt: impl Into<Prompt>,
        how: &Generate,
        chain: Chain,
    ) -> Result<Generation<'_>> {
        #[cfg(feature = "grammar")]
        if how.strict {
            let why = "a session's text has no tools to call: have it in a `Chat` with tools, or leave out `strict`";
            return Err(crate::strict::wrong(why));
        }
        self.generate_over(prompt, how, chain, |chain| chain)
    }

    /// The same with what else this answer is held to, over the chain.
    pub(crate) fn generate_over(
        &mut self,
        prompt: impl Into<Prompt>,
        how: &Generate,
        chain: Chain,
        over: impl FnOnce(Chain) -> Chain,
    ) -> Result<Generation<'_>> {
        let asked = Instant::now();
        let (ids, inputs) = self.model.read_within(&prompt.into(), self.model.context())?;
        let seeing = if inputs.is_empty() { Duration::ZERO } else { asked.elapsed() };
        // What the answer that it was cloned from had asked for was for that answer.
        let chain = chain.without(is_of_one_answer);
        let chain = self.model.endless(how, chain)?;
        #[cfg(feature = "grammar")]
        let (chain, constraint) = self.model.constrained(how, chain)?;
        let mut generation = self.start(ids, inputs, how, over(chain), false)?;
        generation.times.seeing = seeing;
        #[cfg(feature = "grammar")]
        let generation = generation.held_to(constraint);
        Ok(generation)
    }

    /// Goes on from `ids`. `on`: they are the session's own text, and what was drawn of it and not given away comes first.
    pub(crate) fn start(
        &mut self,
        ids: Vec<u32>,
        inputs: Vec<Placed>,
        how: &Generate,
        chain: Chain,
        on: bool,
    ) -> Result<Generation<'_>> {
        /// A character is in the last so many tokens, if it is incomplete.
        const TAIL: usize = 8;
        let tokenizer = self.model.tokenizer().ok();
        let (before, tail) = ids.split_at(if on { ids.len().saturating_sub(TAIL) } else { ids.len() });
        let mut answer = Answer::new(&self.model, before, how);
        for id in tail {
            // What is complete was given away before; a token without a spelling has none.
            answer.text.as_mut().map(|text| text.push(*id));
        }
        // Where the model ended the text, what there was of a character was given away as U+FFFD.
        if on && tokenizer.is_some_and(|t| tail.last().is_some_and(|id| t.eog().contains(id))) {
            answer.text.as_mut().map(TextStream::finish);
        }
        answer.cut = tokenizer.filter(|_| on).and_then(|tokenizer| Cut::going_on(&self.note, tokenizer, how));
        let max_tokens = how.max_tokens.unwrap_or(self.model.context());
        let start = Instant::now();
        let mut request =
            Request::new(&*ids, max_tokens).inputs(inputs).chain(chain).stop(&*answer.end).keep();
        request.logprobs = how.logprobs;
        let (id, cached) = self.place(request)?;
        if !on {
            self.note = Note::default();
        }
        let (held, given) = (std::mem::take(&mut self.note.held), std::mem::take(&mut self.note.given));
        answer.stop = answer.stop.holding(held, &given);
        Ok(Generation {
            before: self.engine.stats(),
            note: &mut self.note,
            engine: &mut self.engine,
            id,
            prompt: ids.len(),
            answer,
            #[cfg(feature = "grammar")]
            constraint: None,
            failed: false,
            times: Times { prompt_tokens: ids.len() - cached, ..Times::default() },
            start,
        })
    }

    /// Starts the session's sequence on a request for a whole prompt, keeping what the cache has of it. Gives the number of
    /// tokens that need not be computed.
    pub(crate) fn place(&mut self, mut request: Request) -> Result<(SeqId, usize)> {
        // Before anything of the old sequence goes: what is refused leaves the session as it was.
        self.engine.would_take(&request)?;
        if let Some(id) = self.seq {
            let common = self.engine.common(id, &request.prompt, &request.inputs);
            if common > 0 {
                self.engine.pause(id);
                let cached = self.engine.rewind(id, common)?;
                request.prompt.drain(..common);
                request.inputs.retain(|input| input.at >= common);
                request.inputs.iter_mut().for_each(|input| input.at -= common);
                self.engine.resume(id, request)?;
                return Ok((id, cached));
            }
        }
        let id = self.engine.add(request)?;
        if let Some(old) = self.seq.replace(id) {
            self.engine.cancel(old);
        }
        Ok((id, 0))
    }
}

/// Whether a stage is what one answer asked for: a chain that goes on with another leaves it behind.
pub(crate) fn is_of_one_answer(stage: &dyn Stage) -> bool {
    #[cfg(feature = "grammar")]
    let held = crate::constrained::is_held(stage);
    #[cfg(not(feature = "grammar"))]
    let held = false;
    held || endless::is_endless(stage)
}

/// How long a generation took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Times {
    /// Tokens of the prompt that had to be computed.
    pub prompt_tokens: usize,
    /// From the request to the first token.
    pub prefill: Duration,
    /// Tokens drawn after the first.
    pub decoded: usize,
    /// From the first token to the last.
    pub decode: Duration,
    /// Tokens that were guessed and computed ([`Model::with_draft`]).
    pub drafted: usize,
    /// Those of them that were drawn as well.
    pub accepted: usize,
    /// What it took to see the images of the prompt, before all that: next to nothing for those that were seen before.
    pub seeing: Duration,
}

impl Times {
    /// Tokens of the prompt a second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }
    /// Tokens of the answer a second, the first not counted.
    pub fn decode_rate(&self) -> f64 {
        rate(self.decoded, self.decode)
    }
}

fn rate(n: usize, time: Duration) -> f64 {
    if n == 0 || time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() }
}

/// Text as it comes: an iterator over its pieces. Dropping it early ends the answer where it is.
///
/// Pieces are whole characters. Of one that the model does not complete there is U+FFFD; but where [`Generate::max_tokens`] or the
/// context ends an answer within a character, it ends before that character, which comes whole when the session
/// [goes on](Session::resume).
#[derive(Debug)]
pub struct Generation<'s> {
    engine: &'s mut Engine,
    /// Takes the text that is held back when this is dropped, and in a conversation what its last answer goes on with.
    pub(crate) note: &'s mut Note,
    id: SeqId,
    pub(crate) answer: Answer,
    prompt: usize,
    /// What the engine had done before.
    before: Stats,
    /// What it is held to, at its beginning.
    #[cfg(feature = "grammar")]
    pub(crate) constraint: Option<ogive_grammar::Constraint>,
    /// The iterator has given an error.
    failed: bool,
    times: Times,
    start: Instant,
}

impl Generation<'_> {
    /// The ids of the prompt.
    pub fn prompt_ids(&self) -> &[u32] {
        self.engine.tokens(self.id).map_or(&[], |t| &t[..self.prompt.min(t.len())])
    }

    /// The ids drawn so far; a token that ended the answer is the last of them.
    pub fn ids(&self) -> &[u32] {
        self.answer.ids()
    }

    /// How likely each of [`ids`](Self::ids) was, where [`Generate::logprobs`] asked for it; empty else. A piece of text is
    /// made of whole characters and may come of several tokens, or of none that is new.
    pub fn logprobs(&self) -> &[TokenLogprobs] {
        self.answer.logprobs()
    }

    /// The sum of their log probabilities: the logarithm of the answer's, as far as it has come.
    pub fn cumulative_logprob(&self) -> f64 {
        self.logprobs().iter().map(|each| each.token.logprob).sum()
    }

    #[cfg(feature = "grammar")]
    pub(crate) fn held_to(mut self, constraint: Option<ogive_grammar::Constraint>) -> Self {
        self.constraint = constraint;
        self
    }

    #[cfg(feature = "grammar")]
    pub(crate) fn chain(&self) -> Option<&Chain> {
        self.engine.chain(self.id)
    }

    /// Why it ended, once it has. A stop string counts as [`Finish::Stop`].
    pub fn finish(&self) -> Option<&Finish> {
        self.answer.finish()
    }

    /// How long it has taken so far.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Runs to the end and gives the whole text, with what came of it before, piece by piece. Where a session goes on, what it said
    /// before that is no part of it.
    ///
    /// # Errors
    /// If a step fails; to ask again tries again. If no token could be drawn.
    pub fn text(&mut self) -> Result<String> {
        while self.step()?.is_some() {}
        match self.finish() {
            Some(Finish::Failed(e)) => Err(e.clone().into()),
            _ => Ok(self.answer.written.clone()),
        }
    }

    /// Tokens of the prompt that have been computed so far, of the [`Times::prompt_tokens`] there are to compute.
    pub fn prompt_read(&self) -> usize {
        let rows = self.engine.stats().rows - self.before.rows;
        usize::try_from(rows).unwrap_or(usize::MAX).min(self.times.prompt_tokens)
    }

    /// One step of the engine; what it did for this sequence, if anything.
    fn draw(&mut self) -> Result<Option<Event>> {
        let event = self.engine.step()?.into_iter().find(|e| e.id == self.id);
        if event.is_some() {
            self.clock();
        }
        Ok(event)
    }

    fn clock(&mut self) {
        if self.ids().is_empty() {
            self.times.prefill = self.start.elapsed();
        } else {
            self.times.decoded = self.ids().len();
            self.times.decode = self.start.elapsed().saturating_sub(self.times.prefill);
        }
        let (now, count) = (self.engine.stats(), |n| usize::try_from(n).unwrap_or(usize::MAX));
        self.times.drafted = count(now.drafted - self.before.drafted);
        self.times.accepted = count(now.accepted - self.before.accepted);
    }

    /// Runs one step of the model and gives the text that came of it, which is none while a prompt is read, a character
    /// is incomplete or a stop string may begin; `None` when there is no more. The iterator steps until there is text:
    /// this is for those who must look at a clock or a flag meanwhile.
    ///
    /// # Errors
    /// If computing fails, which may be tried again; if no token could be drawn, after which there is no more.
    pub fn step(&mut self) -> Result<Option<String>> {
        Ok(self.advance()?.map(|(piece, _)| piece))
    }

    /// The same, with the parts of it where they are told apart.
    pub(crate) fn advance(&mut self) -> Result<Option<(String, Option<Parts>)>> {
        if self.finish().is_some() {
            return Ok(None);
        }
        let Some(event) = self.draw()? else { return Ok(Some(Default::default())) };
        let (piece, parts) = self.answer.hear(event)?;
        if self.answer.stop.stopped() {
            self.engine.pause(self.id);
        }
        if let Some(given) = self.answer.given.take() {
            self.note.given = given;
        }
        // A chat has its messages itself: here they are of one whose answer goes on without it.
        if let Some(answer) = self.note.answer_mut() {
            let (thought, said) = parts.as_ref().map_or(("", &piece), |p| (&p.thinking, &p.answer));
            answer.thinking.push_str(thought);
            answer.content.push_str(said);
        }
        match self.finish() {
            Some(Finish::Failed(e)) => Err(e.clone().into()),
            _ => Ok(Some((piece, parts))),
        }
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<String>;

    /// The next piece that is not empty. An error is the last that comes: one that stays would never end. To try again
    /// there is [`step`](Generation::step).
    fn next(&mut self) -> Option<Self::Item> {
        let mut failed = self.failed;
        let next = next_piece(&mut failed, || self.step());
        self.failed = failed;
        next
    }
}

/// Steps until there is text. An error is the last that comes: `failed` says that it came.
pub(crate) fn next_piece(
    failed: &mut bool,
    mut step: impl FnMut() -> Result<Option<String>>,
) -> Option<Result<String>> {
    while !*failed {
        match step().transpose()? {
            Ok(piece) if piece.is_empty() => {}
            other => {
                *failed = other.is_err();
                return Some(other);
            }
        }
    }
    None
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        self.engine.pause(self.id);
        self.note.place = self.answer.cut.as_ref().map(Cut::place);
        if !self.answer.has_ended() {
            [self.note.given, self.note.held] = self.answer.stop.held().map(str::to_owned);
        }
    }
}
