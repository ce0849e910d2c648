//! The engine: sequences in flight, and the promise that a step either happens or does not.
//!
//! What a sequence has seen is counted only when its logits have come back. Keys and values can be stored again; a state
//! cannot be advanced again, so each sequence has two, and which of them is read changes with the count. A step that
//! fails, wherever it breaks off, thus leaves every sequence as it was.

use crate::ahead::Ahead;
use crate::backend::{Backend, Cache};
use crate::compute::Draw;
use crate::draft::Draft;
use crate::inputs::{self, Placed};
use crate::pool::{Held, Pool};
use crate::request::{Event, Finish, Request, SeqId};
use crate::sampler::Chain;
use crate::speculate::{Guesses, Speculation};
use crate::tensor::{Error, Result};
use crate::{Limits, Session, nn::Model};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

#[derive(Debug)]
pub(crate) struct Seq {
    pub(crate) tokens: Vec<u32>,
    /// What stands in place of some of them.
    pub(crate) inputs: Vec<Placed>,
    /// Tokens whose keys and values are in the cache.
    pub(crate) past: usize,
    /// Tokens still to draw; 0 for a kept sequence that waits.
    pub(crate) left: usize,
    pub(crate) held: Held,
    /// Its place among those who want to be served: a number for each that was added, loaded or resumed.
    pub(crate) arrived: u64,
    /// The last step it was in.
    pub(crate) last_step: u64,
    pub(crate) chain: Chain,
    pub(crate) stop: Vec<u32>,
    pub(crate) keep: bool,
    pub(crate) logprobs: Option<usize>,
    /// The state of the chain that it was saved with, until it is resumed.
    pub(crate) saved_chain: Option<Vec<u8>>,
    /// What was guessed of its next tokens, and what came of it.
    pub(crate) guesses: Guesses,
}

impl Seq {
    /// Kept, with nothing to draw.
    pub(crate) fn waiting(tokens: Vec<u32>, chain: Chain) -> Self {
        let (inputs, held, arrived, stop, last_step, saved_chain, guesses) = Default::default();
        Self {
            tokens,
            inputs,
            past: 0,
            left: 0,
            held,
            arrived,
            last_step,
            chain,
            stop,
            keep: true,
            logprobs: None,
            saved_chain,
            guesses,
        }
    }

    /// Reads from now on the states that were written last.
    pub(crate) fn swap(&mut self) {
        self.held.slots = self.held.slots.map(|[read, written]| [written, read]);
    }

    /// Rows it wants computed before its next token can be drawn.
    pub(crate) fn unseen(&self) -> usize {
        if self.left == 0 { 0 } else { self.tokens.len() - self.past }
    }
}

/// What an engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Steps that happened.
    pub steps: u64,
    /// Rows computed in them.
    pub rows: u64,
    /// How often a sequence gave pages back, its last ones or all, and has what they held computed again.
    pub preempted: u64,
    /// Tokens that sequences had from others that begin alike, instead of computing them.
    pub shared: u64,
    /// Tokens that were guessed and computed in these steps ([`Engine::speculate`]).
    pub drafted: u64,
    /// Those of them that were drawn as well, given or not.
    pub accepted: u64,
}

/// A model, a backend and the sequences in flight.
#[derive(Debug)]
pub struct Engine {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) limits: Limits,
    pub(crate) cache: Cache,
    pub(crate) pool: Pool,
    pub(crate) seqs: BTreeMap<SeqId, Seq>,
    pub(crate) stats: Stats,
    pub(crate) key: u64,
    pub(crate) inbox: VecDeque<Event>,
    /// The next step, if it was prepared.
    pub(crate) ahead: Option<Ahead>,
    /// Who guesses, if anyone does.
    pub(crate) speculation: Option<Speculation>,
    next: SeqId,
    arrivals: u64,
}

/// Numbers engines, because a recorded step holds one model and one cache and must not be replayed for another. Only
/// ever read to get a number that no other engine has.
static ENGINES: AtomicU64 = AtomicU64::new(0);

impl Engine {
    /// Reserves the cache.
    ///
    /// # Errors
    /// If the model is an encoder, if limits contradict each other ([`Limits::cache_spec`]), or if there is no memory for the cache.
    pub fn new(backend: Arc<dyn Backend>, model: Arc<dyn Model>, limits: Limits) -> Result<Self> {
        if !model.causal() {
            let why = "the model is an encoder and draws no tokens; ask for its vectors (`ogive embed`, `Model::embed`)";
            return Err(Error::unsupported("engine", why));
        }
        let spec = limits.cache_spec(model.cache_layout())?;
        let (cache, pool) = (backend.new_cache(&spec)?, Pool::new(&spec, limits.rewind));
        tracing::debug!(blocks = ?spec.blocks, bytes = spec.bytes(), element = spec.element.name, "cache reserved");
        let (seqs, stats, inbox, ahead, speculation, next, arrivals) = Default::default();
        let key = ENGINES.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            backend,
            model,
            limits,
            cache,
            pool,
            seqs,
            stats,
            key,
            inbox,
            ahead,
            speculation,
            next,
            arrivals,
        })
    }

    /// How large sequences and steps may grow.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What has been done so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The chain that a sequence draws by, in its present state.
    pub fn chain(&self, id: SeqId) -> Option<&Chain> {
        self.seqs.get(&id).map(|seq| &seq.chain)
    }

    /// Adds a sequence; it joins at the next step. Every sequence that was added can finish.
    ///
    /// If another sequence that is there, running or kept, has computed tokens with which this one begins too, the two share the cache's
    /// blocks of those, as many as are whole, and they are not computed again: a kept sequence of instructions serves all that begin
    /// with them. Of several that come together and begin alike the first computes what the others wait for. A model whose layers have
    /// states shares nothing, and one with windows only what is there and nobody waits for.
    ///
    /// # Errors
    /// If it has no prompt, nothing to draw, or no room to draw a token into, if the cache could not hold it even alone, if it has a
    /// token that the model [says](Model::vocab) it does not know, and if it has vectors in place of tokens that are not there, that the model
    /// [does not take](Model::takes_vectors), or that must be in one step, or one window, and have no room there.
    pub fn add(&mut self, request: Request) -> Result<SeqId> {
        self.would_take(&request)?;
        let Request { prompt, inputs, max_tokens: left, chain, stop, keep, logprobs } = request;
        Ok(self.insert(Seq { inputs, left, stop, keep, logprobs, ..Seq::waiting(prompt, chain) }))
    }

    /// Takes a sequence in, under a name of its own.
    pub(crate) fn insert(&mut self, mut seq: Seq) -> SeqId {
        seq.arrived = self.arrive();
        seq.guesses.length = self.speculation.as_ref().map_or(0, |s| s.most);
        self.seqs.insert(self.next, seq);
        self.next += 1;
        self.next - 1
    }

    /// The place of one that comes now, behind all others.
    fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// Whether [`add`](Self::add) would take `request`.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub fn would_take(&self, request: &Request) -> Result<()> {
        self.check("adding a sequence", request, request.prompt.len())
    }

    /// Goes on with a kept sequence that has ended: the request's prompt is appended, with its vectors, which are placed in that prompt, and its
    /// other fields hold from here on. It is served after those who are there. Events of its last turn that nobody has taken are dropped. On an
    /// error the sequence is as it was.
    ///
    /// # Errors
    /// If there is no such sequence or it has not ended, and as [`add`](Self::add), the prompt being all tokens together.
    pub fn resume(&mut self, id: SeqId, request: Request) -> Result<()> {
        let doing = "resuming a sequence";
        let before = self.ended(doing, id)?.tokens.len();
        let len = before + request.prompt.len();
        self.check(doing, &request, len)?;
        let Request { prompt, mut inputs, max_tokens, chain, stop, keep, logprobs } = request;
        inputs.iter_mut().for_each(|input| input.at += before);
        if prompt.is_empty() {
            // A draw that failed has left no token unseen, so the last one's logits must be computed again.
            self.rewind(id, len)?;
        }
        self.inbox.retain(|e| e.id != id);
        let arrived = self.arrive();
        let seq = self.ended(doing, id)?;
        seq.arrived = arrived;
        seq.tokens.extend(prompt);
        seq.inputs.extend(inputs);
        (seq.left, seq.chain, seq.stop, seq.keep) = (max_tokens, chain, stop, keep);
        (seq.logprobs, seq.saved_chain) = (logprobs, None);
        Ok(())
    }

    /// Shortens a kept sequence that has ended to its first `len` tokens. What the cache holds of them stays where it
    /// can: states cannot be taken back, and a window may have given away what would be seen again; then the sequence
    /// is computed anew when it goes on, as the end of a block is that others share. Gives the number of tokens that need not be.
    ///
    /// # Errors
    /// If there is no such sequence, if it has not ended, or if `len` is in the middle of vectors that stand in place of tokens.
    pub fn rewind(&mut self, id: SeqId, len: usize) -> Result<usize> {
        let doing = "rewinding a sequence";
        let seq = self.ended(doing, id)?;
        if let Some(cut) = seq.inputs.iter().map(Placed::tokens).find(|of| of.start < len && len < of.end) {
            let why =
                format!("vectors stand for its tokens {} to {}, and {len} is among them", cut.start, cut.end);
            return Err(Error::invalid(doing, why));
        }
        seq.tokens.truncate(len);
        seq.inputs.retain(|input| input.at < len);
        // The last token is computed again, for its logits are not kept.
        let past = seq.past.min(seq.tokens.len().saturating_sub(1));
        if past == seq.past {
            return Ok(past);
        }
        Ok(self.go_back(id, past))
    }

    /// Has a sequence hold no more than its first `past` tokens: fewer where it could not go on from there. Gives their number.
    pub(crate) fn go_back(&mut self, id: SeqId, past: usize) -> usize {
        let Some(seq) = self.seqs.get_mut(&id) else { return 0 };
        // What a sequence can go on from may be within what must be together, and the other way round.
        seq.past = inputs::settled(&seq.inputs, past, |end| self.pool.rewind(&mut seq.held, end));
        seq.past
    }

    /// A sequence that is there and waits.
    fn ended(&mut self, doing: &str, id: SeqId) -> Result<&mut Seq> {
        let seq = self.seqs.get_mut(&id).ok_or_else(|| Error::missing(&format!("{doing}: sequence {id}")))?;
        if seq.left > 0 {
            return Err(Error::invalid(
                doing,
                format!("sequence {id} has not ended; cancel it or let it end"),
            ));
        }
        Ok(seq)
    }

    /// Checks a request for a sequence that has `len` tokens with it.
    fn check(&self, doing: &str, request: &Request, len: usize) -> Result<()> {
        let Request { prompt, inputs, max_tokens, .. } = request;
        let max_tokens = *max_tokens;
        if len == 0 || max_tokens == 0 {
            return Err(Error::invalid(doing, "it needs at least one token to start from and one to draw"));
        }
        if len >= self.limits.context {
            let why =
                format!("a prompt of {len} tokens leaves no room in a context of {}", self.limits.context);
            return Err(Error::invalid(doing, format!("{why}; shorten it or ask for a longer context")));
        }
        if let Some(vocab) = self.model.vocab()
            && let Some(id) = prompt.iter().find(|id| usize::try_from(**id).is_ok_and(|id| id >= vocab))
        {
            return Err(Error::invalid(
                doing,
                format!("token {id} is none of the {vocab} that the model knows"),
            ));
        }
        self.check_inputs(doing, inputs, prompt.len())?;
        let longest = len.saturating_add(max_tokens).min(self.limits.context);
        if !self.pool.fits(longest, self.limits.step_tokens) {
            return Err(Error::cache_full(format!("{longest} tokens could not be kept even alone")));
        }
        Ok(())
    }

    /// The tokens of a sequence, prompt included; `None` once it is gone.
    pub fn tokens(&self, id: SeqId) -> Option<&[u32]> {
        self.seqs.get(&id).map(|s| &*s.tokens)
    }

    /// Forgets a sequence and frees its pages; false if there is none of this name.
    pub fn cancel(&mut self, id: SeqId) -> bool {
        self.inbox.retain(|e| e.id != id);
        self.forget(id)
    }

    /// Frees a sequence; what it has drawn may still wait to be taken.
    fn forget(&mut self, id: SeqId) -> bool {
        let Some(mut seq) = self.seqs.remove(&id) else { return false };
        self.pool.release(&mut seq.held);
        if let Some(speculation) = &mut self.speculation {
            speculation.draft.forget(id);
        }
        true
    }

    /// Ends a kept sequence's turn where it is, so that it can be resumed; false if it is not running, or not kept.
    pub fn pause(&mut self, id: SeqId) -> bool {
        let Some(seq) = self.seqs.get_mut(&id).filter(|s| s.keep && s.left > 0) else { return false };
        seq.left = 0;
        // It will not be given what was drawn ahead: it is as if that had not been. (Else its pages may be those of a step that is prepared.)
        if seq.guesses.clear() {
            self.pool.shrink(&mut seq.held, seq.past);
        }
        self.inbox.retain(|e| e.id != id);
        true
    }

    /// Forgets what a kept sequence that has ended drew by, which may be large (a grammar's states), and is not needed until it is
    /// [resumed](Self::resume) by another: its [chain](Self::chain) is the greedy one from here on. False if it is running, or not there.
    pub fn forget_chain(&mut self, id: SeqId) -> bool {
        let Some(seq) = self.seqs.get_mut(&id).filter(|s| s.left == 0) else { return false };
        (seq.chain, seq.saved_chain) = (Chain::greedy(), None);
        seq.stop = Vec::new();
        true
    }

    /// Whether no sequence has anything left to do.
    pub fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.seqs.values().all(|s| s.left == 0)
    }

    /// Runs one step and returns what it did; where a step has drawn several tokens of a sequence ([`speculate`](Self::speculate)), the next
    /// calls give those, one each, before anything is computed again. After an error the engine is as it was: the step can be tried again. It
    /// fails for all that are in it, so a sequence that can never be computed must be cancelled for the others to go on.
    ///
    /// # Errors
    /// If no sequence can move for want of cache, or if computing fails: as [all operators](crate::backend::Backend#errors), and where the
    /// model has no logits.
    pub fn step(&mut self) -> Result<Vec<Event>> {
        if !self.inbox.is_empty() {
            return Ok(self.inbox.drain(..).collect());
        }
        self.forward()
    }

    /// Adds a sequence and gives its tokens one by one. Other sequences move on too; their events wait for
    /// [`step`](Self::step).
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn run(&mut self, request: Request) -> Result<Session<'_>> {
        let id = self.add(request)?;
        Ok(Session::new(self, id))
    }

    /// Takes up the tokens of a sequence that was added or resumed, as [`run`](Self::run) does.
    pub fn follow(&mut self, id: SeqId) -> Session<'_> {
        Session::new(self, id)
    }

    /// Has `draft` guess what sequences draw next: up to `most` tokens in each step, shared out among those that draw. They are computed in the same step
    /// as the tokens before them, and kept as far as they turn out to be what is drawn. So nothing of what is drawn changes, and a step may
    /// bring several tokens of a sequence, which [`step`](Self::step) gives one call after the other. [`Draft`] tells more. `None` guesses no
    /// more; nor does an engine whose draft has failed, which only a warning in the log tells and [`speculates`](Self::speculates).
    pub fn speculate(&mut self, draft: Option<Box<dyn Draft>>, most: usize) {
        self.speculation = draft.map(|draft| Speculation { draft, most });
        for seq in self.seqs.values_mut() {
            seq.guesses.tokens.clear();
            seq.guesses.length = most;
        }
    }

    /// Whether anyone guesses.
    pub fn speculates(&self) -> bool {
        self.speculation.is_some()
    }

    pub(crate) fn forward(&mut self) -> Result<Vec<Event>> {
        let drawn = self.drawn_ahead();
        if !drawn.is_empty() {
            return Ok(drawn);
        }
        let (batch, ran) = match self.take_next() {
            Some(next) => next,
            None => {
                self.guess();
                self.schedule()
            }
        };
        if ran.is_empty() {
            return if self.is_idle() {
                Ok(Vec::new())
            } else {
                Err(Error::cache_full("no sequence can move"))
            };
        }
        let rows = ran.iter().map(|part| part.len + part.guessed).sum::<usize>();
        let started = self.launch(batch, &ran)?;
        // While it runs.
        self.prepare_next(&ran);
        let drawn = self.draw(&started, &ran).inspect_err(|_| self.drop_next())?;
        self.stats.steps += 1;
        self.stats.rows += rows as u64;
        tracing::trace!(
            rows,
            sequences = ran.len(),
            drawn = drawn.iter().map(VecDeque::len).sum::<usize>(),
            "step"
        );
        let mut events = Vec::with_capacity(ran.len());
        for (part, draws) in ran.into_iter().zip(drawn) {
            self.count(&part, draws.len());
            if let Some(seq) = self.seqs.get_mut(&part.id) {
                seq.guesses.drawn = draws;
                events.extend(self.give(part.id));
            }
        }
        Ok(events)
    }

    /// The next token of a sequence that has one drawn: appends it, and ends the sequence where it says so.
    pub(crate) fn give(&mut self, id: SeqId) -> Option<Event> {
        let seq = self.seqs.get_mut(&id)?;
        let Draw { chain, token: drawn, logprobs } = seq.guesses.drawn.pop_front()?;
        seq.chain = chain;
        let (token, finish) = match drawn {
            Err(e) => (None, Some(Finish::Failed(e))),
            Ok(token) => {
                seq.tokens.push(token);
                seq.left -= 1;
                let finish = if seq.stop.contains(&token) {
                    Some(Finish::Stop)
                } else if seq.left == 0 {
                    Some(Finish::Length)
                } else {
                    (seq.tokens.len() >= self.limits.context).then_some(Finish::Context)
                };
                (Some(token), finish)
            }
        };
        if finish.is_some() {
            seq.left = 0;
            if !seq.keep {
                self.forget(id);
            }
        }
        Some(Event { id, token, finish, logprobs })
    }
}
