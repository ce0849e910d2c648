//! One sequence's tokens as an iterator.

use crate::Engine;
use crate::request::{Event, SeqId};
use crate::tensor::Result;

/// Gives the events of one sequence until it ends. After an error it goes on: the step is tried again. Dropping it early
/// cancels the sequence, unless it was to be kept: then it is paused.
#[derive(Debug)]
pub struct Session<'e> {
    engine: &'e mut Engine,
    id: SeqId,
    ended: bool,
}

impl<'e> Session<'e> {
    pub(crate) fn new(engine: &'e mut Engine, id: SeqId) -> Self {
        Self { engine, id, ended: false }
    }

    /// Which sequence it is.
    pub fn id(&self) -> SeqId {
        self.id
    }

    /// The tokens so far, prompt included; empty once the sequence has gone.
    pub fn tokens(&self) -> &[u32] {
        self.engine.tokens(self.id).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(at) = self.engine.inbox.iter().position(|e| e.id == self.id) {
                return Ok(self.engine.inbox.remove(at));
            }
            if self.engine.seqs.get(&self.id).is_none_or(|s| s.left == 0) {
                return Ok(None);
            }
            let events = self.engine.forward()?;
            self.engine.inbox.extend(events);
        }
    }
}

impl Iterator for Session<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        self.ended = match &next {
            None => true,
            Some(Ok(event)) => event.finish.is_some(),
            // The step can be tried again.
            Some(Err(_)) => false,
        };
        next
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.engine.seqs.get(&self.id).is_some_and(|seq| seq.keep) {
            self.engine.pause(self.id);
            self.engine.inbox.retain(|e| e.id != self.id);
        } else {
            self.engine.cancel(self.id);
        }
    }
}
