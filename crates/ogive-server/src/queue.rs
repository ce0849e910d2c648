//! Requests on their way to the engine's thread.
//!
//! How many there may be is not decided here: each has a place, of which the server gives out only so many, and keeps it until its answer has ended.

use crate::error::Refusal;
use crate::mailbox::Post;
use ogive::Answer;
use ogive::engine::Request;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedSemaphorePermit;

/// An answer that is asked for.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) answer: Answer,
    /// Whether it ends with its first call of a tool.
    pub(crate) one_call: bool,
    pub(crate) post: Post,
    /// Held as long as any answer of the request goes on.
    pub(crate) place: Arc<OwnedSemaphorePermit>,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Why nobody is answered any more.
    over: Option<String>,
}

/// What waits for the engine.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    news: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the answers of one request.
    pub(crate) fn push(&self, jobs: Vec<Job>) -> Result<(), Refusal> {
        let mut state = self.lock();
        if let Some(why) = &state.over {
            return Err(Refusal::over(why));
        }
        state.jobs.extend(jobs);
        self.news.notify_one();
        Ok(())
    }

    /// The next ones, up to `room`; those whose clients have gone are forgotten. `wait`: until there is one. `None` when it is over.
    pub(crate) fn take(&self, room: usize, wait: bool) -> Option<Vec<Job>> {
        let mut state = self.lock();
        loop {
            state.jobs.retain(|job| job.post.is_awaited());
            if state.over.is_some() {
                return None;
            }
            if !wait || !state.jobs.is_empty() {
                let room = room.min(state.jobs.len());
                return Some(state.jobs.drain(..room).collect());
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// From here on nobody is answered, for this reason; the first one counts.
    pub(crate) fn end(&self, why: &str) {
        let left = {
            let mut state = self.lock();
            state.over.get_or_insert_with(|| why.to_owned());
            self.news.notify_all();
            std::mem::take(&mut state.jobs)
        };
        for mut job in left {
            job.post.refuse(Refusal::over(why));
        }
    }

    /// Why it is over, if it is.
    pub(crate) fn is_over(&self) -> Option<String> {
        self.lock().over.clone()
    }
}
