//! What goes into a step.
//!
//! Sequences are served in the order in which they came, and one that was there before may take the pages of a later one: so
//! the first always moves, and nothing wedges. Who loses pages loses its last ones, as many as are wanted, and goes on from there when there is
//! room; or all of them, where states or windows leave no way back, and then begins again once all its tokens have room, as what it
//! computed with fewer would be lost once more. Who is resumed comes anew, or a kept sequence could stop all others turn after
//! turn. A prompt leaves one row for every later sequence that can still be in the step, so that a long prompt is spread over
//! steps which the others share, and no one's tokens stop while it is read. That counts later prompts too: each takes a row at
//! least, which would else be the row of one that decodes.

use crate::Engine;
use crate::backend::Batch;
use crate::request::SeqId;

impl Engine {
    /// Fills a step, padded as the backend wants it, and says which sequences are in it with how many rows. Reserves
    /// pages, but counts nothing.
    pub(crate) fn schedule(&mut self) -> (Batch, Vec<(SeqId, usize)>) {
        let (mut batch, mut ran) = (Batch::default(), Vec::new());
        let ids = self.due();
        for (i, &id) in ids.iter().enumerate() {
            if ran.len() == self.limits.sequences {
                break;
            }
            let free = self.limits.step_tokens.saturating_sub(batch.tokens.len());
            // No more of them than can still be in the step.
            let others = (ids.len() - i - 1).min(self.limits.sequences - ran.len() - 1);
            let room = free.saturating_sub(others).max(free.min(1));
            // The first may take what it wants.
            if i > 0 && !self.has_room(id) {
                continue;
            }
            let Some(len) = self.reserve(id, room) else { continue };
            let Some(seq) = self.seqs.get(&id) else { continue };
            let tokens = &seq.tokens[seq.past..seq.past + len];
            batch.push(tokens, seq.past, seq.held.tables.clone(), seq.held.slots.unwrap_or_default());
            if seq.past + len == seq.tokens.len() {
                batch.want_last();
            }
            ran.push((id, len));
        }
        if !ran.is_empty() {
            batch = self.backend.bucket(batch);
        }
        (batch, ran)
    }

    /// Those who have something to compute, in the order in which they came.
    pub(crate) fn due(&self) -> Vec<SeqId> {
        let due = self.seqs.iter().filter(|(_, s)| s.unseen() > 0);
        let mut due: Vec<_> = due.map(|(id, s)| (s.arrived, *id)).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// Finds pages for the next rows of a sequence, if need be those of others. Gives the number of rows: fewer where
    /// all that others hold would not do for more, and none before anyone has lost pages in vain.
    fn reserve(&mut self, id: SeqId, mut room: usize) -> Option<usize> {
        loop {
            let seq = self.seqs.get_mut(&id)?;
            let len = seq.unseen().min(room);
            if len == 0 {
                return None;
            }
            let end = seq.past + len;
            if self.pool.grow(&mut seq.held, seq.past, end) {
                return Some(len);
            }
            let victims = self.victims(id);
            let held = victims.iter().filter_map(|v| Some(&self.seqs.get(v)?.held));
            if self.pool.could_grow(&self.seqs.get(&id)?.held, end, held) {
                let short = self.pool.short(&self.seqs.get(&id)?.held, end);
                self.take_back(*victims.first()?, short);
            } else {
                room = len / 2;
            }
        }
    }

    /// Who may lose pages to sequence `id`, first to last: those that wait, the longest idle first, then those that came
    /// after it, the last first.
    fn victims(&self, id: SeqId) -> Vec<SeqId> {
        let mut waiting: Vec<_> = self
            .seqs
            .iter()
            .filter(|(_, s)| s.left == 0 && s.held.any())
            .map(|(id, s)| (s.last_step, *id))
            .collect();
        waiting.sort_unstable();
        let arrived = self.seqs.get(&id).map_or(u64::MAX, |s| s.arrived);
        let later = self.seqs.iter().filter(|(_, s)| s.arrived > arrived && s.left > 0 && s.held.any());
        let mut later: Vec<_> = later.map(|(id, s)| (s.arrived, *id)).collect();
        later.sort_unstable();
        waiting.into_iter().chain(later.into_iter().rev()).map(|(_, id)| id).collect()
    }

    /// Whether a sequence that would have to begin again if it lost a page, and has none yet, finds room for all its tokens: what is
    /// free and what those hold that wait. Others have it as it comes.
    fn has_room(&self, id: SeqId) -> bool {
        let Some(seq) = self.seqs.get(&id).filter(|s| s.past == 0 && !self.pool.can_go_back()) else {
            return true;
        };
        let waiting = self.seqs.values().filter(|s| s.left == 0).map(|s| &s.held);
        self.pool.has_room(&seq.held, seq.tokens.len(), self.limits.step_tokens, waiting)
    }

    /// Takes a sequence's last pages, so many of each group, or all where it could not go on with the others. It keeps its tokens and its
    /// chain, so that it goes on as if nothing had been.
    fn take_back(&mut self, id: SeqId, blocks: usize) {
        if let Some(seq) = self.seqs.get_mut(&id) {
            let past = self.pool.give_up(&mut seq.held, blocks).min(seq.past);
            tracing::debug!(id, tokens = seq.past, left = past, free = ?self.pool.free(), "preempted");
            seq.past = past;
            self.stats.preempted += 1;
        }
    }
}
