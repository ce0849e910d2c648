//! The next step, prepared while one runs.
//!
//! Between the launch of a step and the wait for what it gives, the host has nothing else to do. If every sequence that the step leaves
//! something to draw goes on, all of the next one but its tokens is known: who is in it, at which positions, with which pages. So that is
//! made then. If it turns out otherwise, what was made is dropped and the step is made as any other: no one loses pages for it, and after an
//! error the engine is as it was.

use crate::Engine;
use crate::backend::Batch;
use crate::inputs;
use crate::request::SeqId;
use crate::schedule::Part;

/// A step of one row for each of its sequences, without their tokens.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    batch: Batch,
    /// Who is in it, and how many tokens each has in the cache by then.
    seqs: Vec<(SeqId, usize)>,
}

impl Engine {
    /// Prepares the step after the one that runs with these rows, where that is to be known.
    pub(crate) fn prepare_next(&mut self, ran: &[Part]) {
        // Where there are guesses it is not known how far a sequence gets, and where there may be some next it is not known which.
        let may_guess = self.speculation.as_ref().is_some_and(|speculation| speculation.most >= ran.len());
        if may_guess || ran.iter().any(|part| part.guessed > 0) {
            return;
        }
        let mut ahead = Ahead::default();
        let known = self.fill(&mut ahead, ran).is_some();
        self.ahead = Some(ahead);
        if !known {
            self.drop_next();
        }
    }

    /// Fills the next step, and reserves its pages. `None`, with some of it done, where there is none, it is not known or pages are short.
    fn fill(&mut self, ahead: &mut Ahead, ran: &[Part]) -> Option<()> {
        if self.seqs.values().filter(|s| s.unseen() > 0).count() != ran.len() {
            return None;
        }
        for &Part { id, len, .. } in ran {
            let seq = self.seqs.get_mut(&id)?;
            let past = seq.past + len;
            if past != seq.tokens.len() {
                return None;
            }
            // It ends with the token it draws.
            if seq.left == 1 || past + 1 >= self.limits.context {
                continue;
            }
            // What a window leaves behind is given back a step later than otherwise: this one may yet fail and come again.
            if !self.pool.grow(&mut seq.held, seq.past, past + 1) {
                return None;
            }
            ahead.seqs.push((id, past));
            let [read, written] = seq.held.slots.unwrap_or_default();
            let start = ahead.batch.tokens.len();
            ahead.batch.push(&[0], past, seq.held.tables.clone(), [written, read]);
            inputs::push(&seq.inputs, &mut ahead.batch, start, past);
            ahead.batch.want_last();
        }
        let any = !ahead.seqs.is_empty();
        any.then(|| ahead.batch = self.backend.bucket(std::mem::take(&mut ahead.batch)))
    }

    /// The step that was prepared, with its tokens, if it is the one that is due.
    pub(crate) fn take_next(&mut self) -> Option<(Batch, Vec<Part>)> {
        let ahead = self.ahead.as_ref()?;
        let due: Vec<_> = self.due().into_iter().filter_map(|id| Some((id, self.seqs.get(&id)?))).collect();
        let one = |(id, past): &(SeqId, usize)| (*id, *past, 1);
        if !due.iter().map(|(id, s)| (*id, s.past, s.unseen())).eq(ahead.seqs.iter().map(one)) {
            self.drop_next();
            return None;
        }
        let tokens: Vec<u32> = due.iter().filter_map(|(_, s)| s.tokens.last().copied()).collect();
        let Ahead { mut batch, seqs } = self.ahead.take()?;
        batch.tokens.iter_mut().zip(tokens).for_each(|(to, token)| *to = token);
        Some((batch, seqs.into_iter().map(|(id, _)| Part { id, len: 1, guessed: 0 }).collect()))
    }

    /// Drops what was prepared, if anything was, and gives back its pages.
    pub(crate) fn drop_next(&mut self) {
        let seqs = self.ahead.take().map(|ahead| ahead.seqs).unwrap_or_default();
        for (id, past) in seqs.into_iter().rev() {
            if let Some(seq) = self.seqs.get_mut(&id) {
                self.pool.shrink(&mut seq.held, past);
            }
        }
    }
}
