//! What goes into a step.
//!
//! Sequences are served oldest first, and an older one may take the pages of a younger: so the oldest always moves, and
//! nothing wedges. A prompt leaves one row for every younger sequence that only decodes, so that a long prompt is spread
//! over steps which the others share, and no one's tokens stop while it is read.

use crate::Engine;
use crate::backend::Batch;
use crate::request::SeqId;

impl Engine {
    /// Fills a step, and says which sequences are in it with how many rows. Reserves pages, but counts nothing.
    pub(crate) fn schedule(&mut self) -> (Batch, Vec<(SeqId, usize)>) {
        let (mut batch, mut ran) = (Batch::default(), Vec::new());
        let ids: Vec<SeqId> = self.seqs.iter().filter(|(_, s)| s.unseen() > 0).map(|(id, _)| *id).collect();
        let mut decoding = self.seqs.values().filter(|s| s.unseen() == 1).count();
        for id in ids {
            if ran.len() == self.limits.sequences {
                break;
            }
            let Some(unseen) = self.seqs.get(&id).map(|s| s.unseen()) else { continue };
            decoding -= usize::from(unseen == 1);
            let free = self.limits.step_tokens.saturating_sub(batch.tokens.len());
            // No more of them than can still be in the step.
            let others = decoding.min(self.limits.sequences - ran.len() - 1);
            let room = if unseen == 1 { free } else { free.saturating_sub(others).max(free.min(1)) };
            let Some(len) = self.reserve(id, room) else { continue };
            let Some(seq) = self.seqs.get(&id) else { continue };
            let tokens = &seq.tokens[seq.past..seq.past + len];
            batch.push(tokens, seq.past, seq.held.tables.clone(), seq.held.slots.unwrap_or_default());
            if seq.past + len == seq.tokens.len() {
                batch.want_last();
            }
            ran.push((id, len));
        }
        (batch, ran)
    }

    /// Finds pages for the next rows of a sequence, if need be those of a sequence that waits or of the youngest after
    /// it. Gives the number of rows.
    fn reserve(&mut self, id: SeqId, room: usize) -> Option<usize> {
        loop {
            let seq = self.seqs.get_mut(&id)?;
            let len = seq.unseen().min(room);
            if len == 0 {
                return None;
            }
            if self.pool.grow(&mut seq.held, seq.past, seq.past + len) {
                return Some(len);
            }
            let waiting = self.seqs.iter().find(|(_, s)| s.left == 0 && s.held.any()).map(|(id, _)| *id);
            let younger = || self.seqs.range(id + 1..).rev().find(|(_, s)| s.held.any()).map(|(id, _)| *id);
            let victim = waiting.or_else(younger)?;
            self.start_over(victim);
        }
    }

    /// Takes a sequence's pages; it keeps its tokens and its chain, so that it goes on as if nothing had been.
    fn start_over(&mut self, id: SeqId) {
        if let Some(seq) = self.seqs.get_mut(&id) {
            self.pool.release(&mut seq.held);
            tracing::debug!(id, tokens = seq.past, free = ?self.pool.free(), "preempted");
            seq.past = 0;
            self.stats.preempted += 1;
        }
    }
}
