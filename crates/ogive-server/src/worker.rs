//! The thread that owns the engine: takes requests in, steps, and puts what was drawn into mailboxes.
//!
//! Sequences that have ended stay as long as there is room, so that the next turn of a conversation reads its new part alone. The engine would take pages
//! of theirs where it has none left, but by and by, and what has lost some is hardly worth what is left. So whole ones go here before that, the oldest first; room is
//! counted as if nothing were shared, which is too early rather than too late. Models with states or windows keep nothing: states
//! cannot be taken back to where a conversation goes on, and the room that windows have is counted otherwise.

use crate::error::Refusal;
use crate::mailbox::{Ended, Piece, Post};
use crate::queue::{Job, Queue};
use ogive::backend::LayerCache;
use ogive::engine::{Engine, Event, Finish, Limits, Request, SeqId};
use ogive::tensor::{self, ErrorKind};
use ogive::{Answer, CallEvent};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::{io, thread};
use tokio::sync::OwnedSemaphorePermit;

/// Tokens that a sequence may grow by in a step, guessed ones among them.
const GROWTH: usize = 32;

/// Starts the thread.
pub(crate) fn start(engine: Engine, layers: &[LayerCache], queue: Arc<Queue>) -> io::Result<()> {
    let keeps = layers
        .iter()
        .all(|layer| !matches!(layer, LayerCache::State { .. } | LayerCache::Paged { window: Some(_), .. }));
    let limits = engine.limits().clone();
    let worker =
        Worker { engine, limits, queue: Over(queue), running: BTreeMap::new(), kept: VecDeque::new(), keeps };
    thread::Builder::new().name("ogive-engine".into()).spawn(move || worker.run()).map(drop)
}

/// Says that it is over when the thread ends, however that is.
struct Over(Arc<Queue>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.end("the engine's thread has ended; start the server anew");
    }
}

/// An answer that is drawn.
struct Running {
    answer: Answer,
    /// Log probabilities that were put.
    told: usize,
    one_call: bool,
    post: Post,
    _place: Arc<OwnedSemaphorePermit>,
}

struct Worker {
    engine: Engine,
    limits: Limits,
    queue: Over,
    running: BTreeMap<SeqId, Running>,
    /// Ended sequences, the oldest first.
    kept: VecDeque<SeqId>,
    keeps: bool,
}

impl Worker {
    fn run(mut self) {
        loop {
            let gone: Vec<SeqId> =
                self.running.iter().filter(|(_, r)| !r.post.is_awaited()).map(|(id, _)| *id).collect();
            for id in gone {
                self.running.remove(&id);
                self.let_go(id);
            }
            let room = self.limits.sequences.saturating_sub(self.running.len());
            let Some(jobs) = self.queue.0.take(room, self.running.is_empty()) else { break };
            jobs.into_iter().for_each(|job| self.admit(job));
            if self.running.is_empty() {
                continue;
            }
            self.make_room();
            match self.engine.step() {
                Ok(events) => events.into_iter().for_each(|event| self.hear(event)),
                Err(e) if !self.fail(&e) => break,
                Err(_) => {}
            }
        }
        let why = self.queue.0.is_over().unwrap_or_default();
        self.running.values_mut().for_each(|running| running.post.refuse(Refusal::over(&why)));
    }

    fn admit(&mut self, job: Job) {
        let Job { mut request, answer, one_call, mut post, place } = job;
        request.keep = self.keeps;
        match self.begin(request) {
            Ok(id) => {
                let running = Running { answer, told: 0, one_call, post, _place: place };
                self.running.insert(id, running);
            }
            Err(e) => post.refuse(Refusal::of(&e.into())),
        }
    }

    /// Begins a sequence, or goes on with one that is kept and begins alike. One of which this is less than half stays for others: the engine shares it.
    fn begin(&mut self, mut request: Request) -> tensor::Result<SeqId> {
        self.engine.would_take(&request)?;
        let common = |id: &SeqId| (self.engine.common(*id, &request.prompt, &request.inputs), *id);
        let best = self.kept.iter().map(common).max().filter(|(common, id)| {
            *common > 0 && 2 * common >= self.engine.tokens(*id).map_or(usize::MAX, <[u32]>::len)
        });
        let Some((common, id)) = best else { return self.engine.add(request) };
        self.kept.retain(|kept| *kept != id);
        request.prompt.drain(..common);
        request.inputs.retain(|input| input.at >= common);
        request.inputs.iter_mut().for_each(|input| input.at -= common);
        let resumed = self.engine.rewind(id, common).and_then(|_| self.engine.resume(id, request));
        resumed.map(|()| id).inspect_err(|_| _ = self.engine.cancel(id))
    }

    /// Gives room back that the next step may want.
    fn make_room(&mut self) {
        let Limits { block_len, context, sequences, cache_tokens, .. } = self.limits;
        let all =
            cache_tokens.map_or(context.div_ceil(block_len) * sequences, |tokens| tokens.div_ceil(block_len));
        let blocks = |id: SeqId, more: usize| {
            self.engine.tokens(id).map_or(0, |tokens| (tokens.len() + more).min(context).div_ceil(block_len))
        };
        let running: usize = self.running.keys().map(|id| blocks(*id, GROWTH)).sum();
        let mut kept: usize = self.kept.iter().map(|id| blocks(*id, 0)).sum();
        let mut go = 0;
        for id in &self.kept {
            if running + kept <= all {
                break;
            }
            kept -= blocks(*id, 0);
            go += 1;
        }
        for id in self.kept.drain(..go) {
            self.engine.cancel(id);
        }
    }

    /// Takes what a step has drawn.
    fn hear(&mut self, event: Event) {
        let id = event.id;
        let Some(running) = self.running.get_mut(&id) else { return };
        let piece = running.take(event);
        let ended = piece.end.as_ref().map(Result::is_ok);
        running.post.put(piece);
        match ended {
            None => return,
            // What could not be drawn is not gone on with.
            Some(false) => _ = self.engine.cancel(id),
            Some(true) => self.let_go(id),
        }
        self.running.remove(&id);
    }

    /// A sequence that draws no more.
    fn let_go(&mut self, id: SeqId) {
        if self.keeps {
            self.engine.pause(id);
            // It is resumed by another chain, and this one may have a grammar's states.
            self.engine.forget_chain(id);
            self.kept.push_back(id);
        } else {
            self.engine.cancel(id);
        }
    }

    /// After a step that failed; false if there will be no more.
    fn fail(&mut self, e: &tensor::Error) -> bool {
        if let (ErrorKind::CacheFull(_), Some(id)) = (e.kind(), self.kept.pop_front()) {
            self.engine.cancel(id);
            return true;
        }
        tracing::error!("a step failed: {e}");
        // Which of them cannot be computed is not known.
        let why = Refusal::failed(format!("computing failed: {e}"));
        for (id, mut running) in std::mem::take(&mut self.running) {
            running.post.refuse(why.clone());
            self.engine.cancel(id);
        }
        if e.is_device_lost() {
            self.queue.0.end(&format!("the device is lost; start the server anew: {e}"));
        }
        !e.is_device_lost()
    }
}

impl Running {
    fn take(&mut self, event: Event) -> Piece {
        let mut parts = match self.answer.take(event) {
            Ok(parts) => parts,
            Err(e) => return Piece { end: Some(Err(Refusal::of(&e))), ..Piece::default() },
        };
        let logprobs = self.answer.logprobs().get(self.told..).unwrap_or_default().to_vec();
        self.told = self.answer.logprobs().len();
        let tokens = self.answer.ids().len();
        let is_end = |event: &CallEvent| matches!(event, CallEvent::Ends { .. });
        if let Some(at) = parts.calling.iter().position(is_end).filter(|_| self.one_call) {
            parts.calling.truncate(at + 1);
            return Piece { parts, logprobs, end: Some(Ok(Ended { cut: false, tokens })) };
        }
        let cut = |finish: &Finish| matches!(finish, Finish::Length | Finish::Context);
        let end = self.answer.finish().map(|finish| Ok(Ended { cut: cut(finish), tokens }));
        Piece { parts, logprobs, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{Letters, mailbox};
    use ogive::{Generate, Model};
    use std::task::{Context, Poll, Waker};
    use tokio::sync::Semaphore;

    fn worker(model: &Model, sequences: usize) -> Worker {
        let limits = model.limits().clone().sequences(sequences);
        let engine = model.engine(limits.clone()).unwrap();
        let (running, kept) = Default::default();
        Worker { engine, limits, queue: Over(Arc::default()), running, kept, keeps: true }
    }

    fn ask(worker: &mut Worker, model: &Model, prompt: &str, tokens: usize) -> Letters {
        let how = Generate::greedy().max_tokens(tokens).ignore_end();
        let (request, answer) = model.ask(prompt, &how).unwrap();
        let (mut posts, letters) = mailbox(1);
        let place = Arc::new(Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap());
        worker.admit(Job { request, answer, one_call: false, post: posts.remove(0), place });
        letters
    }

    /// Draws to the end, and gives the text and the rows that it took.
    fn told(worker: &mut Worker, letters: &Letters) -> (String, u64) {
        let before = worker.engine.stats().rows;
        let mut text = String::new();
        loop {
            worker.make_room();
            let events = worker.engine.step().unwrap();
            events.into_iter().for_each(|event| worker.hear(event));
            if let Poll::Ready(Some((_, piece))) = letters.poll(&mut Context::from_waker(Waker::noop())) {
                text += &piece.parts.answer;
                if let Some(end) = piece.end {
                    end.unwrap();
                    return (text, worker.engine.stats().rows - before);
                }
            }
        }
    }

    #[test]
    fn what_a_conversation_has_read_is_not_read_again() {
        let model = ogive::Options::new().context(128).open(ogive::DEMO).unwrap();
        let mut kept = worker(&model, 1);
        let letters = ask(&mut kept, &model, "Once upon a time there was a dog.", 8);
        let (first, rows) = told(&mut kept, &letters);
        assert!(rows > 12, "{rows}");
        let on = format!("Once upon a time there was a dog.{first} And then");
        let letters = ask(&mut kept, &model, &on, 8);
        let (again, rows) = told(&mut kept, &letters);
        assert!(rows < 8 + 8, "{rows}: what is new, and what is drawn");
        let mut anew = worker(&model, 1);
        let letters = ask(&mut anew, &model, &on, 8);
        assert_eq!(told(&mut anew, &letters).0, again);
        assert_eq!(kept.kept.len(), 1, "it went on in its own");
    }

    #[test]
    fn what_is_kept_has_no_chain() {
        let model = ogive::Options::new().context(64).open(ogive::DEMO).unwrap();
        let mut worker = worker(&model, 1);
        let mut how = Generate::new().max_tokens(2);
        how.sampler.logit_bias = vec![(3, 1.0)];
        let (request, answer) = model.ask("The dog", &how).unwrap();
        let (mut posts, letters) = mailbox(1);
        let place = Arc::new(Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap());
        worker.admit(Job { request, answer, one_call: false, post: posts.remove(0), place });
        let id = *worker.running.keys().next().unwrap();
        assert!(worker.engine.chain(id).unwrap().stages().len() > 1 && !worker.engine.forget_chain(id));
        told(&mut worker, &letters);
        assert_eq!(worker.kept, [id]);
        assert_eq!(worker.engine.chain(id).unwrap().to_string(), "greedy");
    }

    #[test]
    fn what_is_kept_makes_room_for_what_is_drawn() {
        let model = ogive::Options::new().context(64).open(ogive::DEMO).unwrap();
        let mut worker = worker(&model, 2);
        for (i, prompt) in
            ["The dog", "Lily and Tom", "In the garden", "Once upon a time", "A cat"].iter().enumerate()
        {
            // Two at a time, to the end of their contexts.
            let two = [
                ask(&mut worker, &model, prompt, 200),
                ask(&mut worker, &model, &format!("{prompt} was"), 200),
            ];
            for letters in &two {
                told(&mut worker, letters);
            }
            assert!((1..=2).contains(&worker.kept.len()), "{i}: {:?}", worker.kept);
        }
        assert_eq!(worker.engine.stats().preempted, 0);
    }

    #[test]
    fn who_is_gone_while_others_wait_leaves_nothing() {
        let queue = Queue::default();
        let model = ogive::Options::new().context(64).open(ogive::DEMO).unwrap();
        let job = |place: &Arc<OwnedSemaphorePermit>| {
            let (request, answer) = model.ask("The dog", &Generate::new()).unwrap();
            let (mut posts, letters) = mailbox(1);
            (
                Job { request, answer, one_call: false, post: posts.remove(0), place: Arc::clone(place) },
                letters,
            )
        };
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::new(Arc::clone(&places).try_acquire_owned().unwrap());
        let ((one, gone), (two, stays)) = (job(&place), job(&place));
        queue.push(vec![one, two]).unwrap();
        drop(gone);
        let taken = queue.take(5, false).unwrap();
        assert_eq!(taken.len(), 1);
        drop((taken, place));
        assert_eq!(places.available_permits(), 1);
        assert!(matches!(
            stays.poll(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(Some((0, Piece { end: Some(Err(_)), .. })))
        ));
        queue.end("enough");
        assert!(queue.take(5, true).is_none() && queue.push(Vec::new()).is_err());
    }
}
