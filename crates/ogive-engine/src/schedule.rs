//! What goes into a step.
//!
//! Sequences are served in the order in which they came, and one that was there before may take the pages of a later one: so
//! the first always moves, and nothing wedges. Who loses pages loses its last ones, as many as are wanted, and goes on from there when there is
//! room; or all of them, where states or windows leave no way back, and then begins again once all its tokens and some more have room, as what it
//! computed with fewer would be lost once more. Who is resumed comes anew, or a kept sequence could stop all others turn after
//! turn. A prompt leaves one row for every later sequence that can still be in the step, so that a long prompt is spread over
//! steps which the others share, and no one's tokens stop while it is read. That counts later prompts too: each takes a row at
//! least, which would else be the row of one that decodes.
//!
//! A sequence without pages begins with those of another that begins alike. It looks for them when it is to be computed, not when it comes,
//! as there may be more by then; and while one that came before it computes what it could have, it waits.

use crate::Engine;
use crate::backend::Batch;
use crate::engine::Seq;
use crate::inputs;
use crate::pool::Loan;
use crate::request::SeqId;

/// Tokens that a sequence is to find room for beside its own where it would have to begin again if it lost a page. More of them would keep sequences
/// waiting that end before they have drawn as many.
const AHEAD: usize = 256;

/// A sequence's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) id: SeqId,
    /// Rows of its own tokens.
    pub(crate) len: usize,
    /// Rows behind those, of tokens that were guessed.
    pub(crate) guessed: usize,
}

/// Who holds pages that others may take.
#[derive(Debug)]
struct Holders {
    /// What those hold together that wait for more tokens.
    waiting: Loan,
    /// When the last one came that does not wait.
    last: Option<u64>,
}

/// What a sequence begins with that another computes.
enum Share {
    Nothing,
    /// It has it.
    Now,
    /// It will have it, or more.
    Soon,
}

impl Engine {
    /// Fills a step, padded as the backend wants it, and says which sequences are in it with how many rows. Reserves
    /// pages, but counts nothing.
    pub(crate) fn schedule(&mut self) -> (Batch, Vec<Part>) {
        let (mut ran, mut rows) = (Vec::new(), 0);
        let ids = self.due();
        let (mut holders, mut taken) = (self.holders(), self.stats.preempted);
        for (i, &id) in ids.iter().enumerate() {
            if ran.len() == self.limits.sequences {
                break;
            }
            let free = self.limits.step_tokens.saturating_sub(rows);
            // No more of them than can still be in the step.
            let others = (ids.len() - i - 1).min(self.limits.sequences - ran.len() - 1);
            let room = free.saturating_sub(others).max(free.min(1));
            if taken != self.stats.preempted {
                (holders, taken) = (self.holders(), self.stats.preempted);
            }
            // The first may take what it wants.
            if i > 0 && !self.has_room(id, &holders.waiting) {
                continue;
            }
            if room > 0 && (i == 0 || self.pool.has_free()) {
                match self.share(id) {
                    Share::Nothing => {}
                    Share::Now => holders = self.holders(),
                    Share::Soon => continue,
                }
            }
            let Some(len) = self.reserve(id, room, &holders) else { continue };
            rows += len;
            ran.push(Part { id, len, guessed: 0 });
        }
        // Guesses have what all tokens that there are leave.
        for part in &mut ran {
            part.guessed = self.reserve_guessed(part, self.limits.step_tokens - rows);
            rows += part.guessed;
        }
        let mut batch = Batch::default();
        ran.iter().for_each(|part| self.push(&mut batch, part));
        if !ran.is_empty() {
            batch = self.backend.bucket(batch);
        }
        (batch, ran)
    }

    /// Puts a sequence's part into a step.
    fn push(&self, batch: &mut Batch, part: &Part) {
        let Some(seq) = self.seqs.get(&part.id) else { return };
        let end = seq.past + part.len;
        let (own, guesses) = (&seq.tokens[seq.past..end], &seq.guesses.tokens[..part.guessed]);
        let (tables, slots) = (seq.held.tables.clone(), seq.held.slots.unwrap_or_default());
        let start = batch.tokens.len();
        batch.push(&[own, guesses].concat(), seq.past, tables, slots);
        inputs::push(&seq.inputs, batch, start, seq.past);
        if end == seq.tokens.len() {
            batch.want_last_of(1 + part.guessed);
        }
    }

    /// Has a sequence without pages begin with those of the one that has computed most of what both begin with. Only what a step has left
    /// behind counts, so it is never taken back.
    fn share(&mut self, id: SeqId) -> Share {
        let Some(seq) = self.seqs.get(&id).filter(|s| s.past == 0 && !s.held.any()) else {
            return Share::Nothing;
        };
        // The last one is computed, for its logits.
        let own = &seq.tokens[..seq.tokens.len().saturating_sub(1)];
        let alike = |other: &Seq, seen: usize| {
            inputs::alike((own, &seq.inputs), (&other.tokens[..seen], &other.inputs))
        };
        // As much of it as ends where a block does and cuts nothing that must be together.
        let whole = |end: usize, blocks: &dyn Fn(usize) -> usize| inputs::settled(&seq.inputs, end, blocks);
        let common = |other: &Seq| whole(alike(other, other.past), &|end| self.pool.common(&other.held, end));
        let best = self.seqs.values().map(|other| (common(other), other)).max_by_key(|(end, _)| *end);
        let (end, from) = best.map_or((0, seq), |best| best);
        // Those before it move first, so who waits for one of them waits for no longer than that computes.
        let before = self.seqs.values().filter(|other| other.arrived < seq.arrived && other.unseen() > 0);
        let soon = |other: &Seq| whole(alike(other, other.tokens.len()), &|end| self.pool.whole(end));
        if before.map(soon).any(|soon| soon > end) {
            return Share::Soon;
        }
        if end == 0 {
            return Share::Nothing;
        }
        let held = self.pool.share(&from.held, end);
        tracing::debug!(id, tokens = end, "shared");
        if let Some(seq) = self.seqs.get_mut(&id) {
            (seq.held, seq.past) = (held, end);
            self.stats.shared += end as u64;
        }
        Share::Now
    }

    /// Those who have something to compute, in the order in which they came.
    pub(crate) fn due(&self) -> Vec<SeqId> {
        let due = self.seqs.iter().filter(|(_, s)| s.unseen() > 0);
        let mut due: Vec<_> = due.map(|(id, s)| (s.arrived, *id)).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// Those whom others may take pages from, now. Sequences that get some later in the step came before whoever looks then.
    fn holders(&self) -> Holders {
        let waiting = self.seqs.values().filter(|s| s.left == 0).map(|s| &s.held);
        let moving = self.seqs.values().filter(|s| s.left > 0 && s.held.any());
        Holders { waiting: self.pool.loan(waiting), last: moving.map(|s| s.arrived).max() }
    }

    /// Finds pages for the next rows of a sequence, if need be those of others. Gives the number of rows: fewer where
    /// all that others hold would not do for more, and none before anyone has lost pages in vain.
    fn reserve(&mut self, id: SeqId, room: usize, holders: &Holders) -> Option<usize> {
        let mut len = self.seqs.get(&id)?.unseen().min(room);
        loop {
            let seq = self.seqs.get_mut(&id)?;
            let end = inputs::floor(&seq.inputs, seq.past + len);
            len = end.checked_sub(seq.past).filter(|len| *len > 0)?;
            if self.pool.grow(&mut seq.held, seq.past, end) {
                return Some(len);
            }
            // Most who come here wait in a long line behind all that hold anything: they are not to look through it, each of them.
            let nobody = !holders.waiting.any() && holders.last.is_none_or(|last| last <= seq.arrived);
            let victims = if nobody { Vec::new() } else { self.victims(id) };
            let seq = self.seqs.get(&id)?;
            let loan = self.pool.loan(victims.iter().filter_map(|v| Some(&self.seqs.get(v)?.held)));
            let reach = self.pool.reach(&seq.held, &loan);
            if reach >= end {
                let short = self.pool.short(&seq.held, end);
                self.take_back(*victims.first()?, short);
            } else {
                len = reach.saturating_sub(seq.past);
            }
        }
    }

    /// Finds pages for what was guessed of a sequence, behind its own rows: those that are free, and no more than `room` rows. Gives the number
    /// of them.
    fn reserve_guessed(&mut self, part: &Part, room: usize) -> usize {
        let Some(seq) = self.seqs.get_mut(&part.id).filter(|seq| seq.unseen() == part.len) else { return 0 };
        let end = seq.tokens.len();
        let mut guessed = seq.guesses.tokens.len().min(room);
        while guessed > 0 && !self.pool.grow(&mut seq.held, seq.past, end + guessed) {
            guessed -= 1;
        }
        guessed
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

    /// Whether a sequence that would have to begin again if it lost a page, and has none yet, finds room for all its tokens and some of those that it
    /// is to draw: what is free and what those hold that wait. Others have it as it comes.
    fn has_room(&self, id: SeqId, waiting: &Loan) -> bool {
        let Some(seq) = self.seqs.get(&id).filter(|s| s.past == 0 && !self.pool.can_go_back()) else {
            return true;
        };
        let tokens = (seq.tokens.len() + seq.left.min(AHEAD)).min(self.limits.context);
        self.pool.has_room(&seq.held, tokens, self.limits.step_tokens, waiting)
    }

    /// Takes a sequence's last pages, so many of each group, or all where it could not go on with the others. It keeps its tokens and its
    /// chain, so that it goes on as if nothing had been.
    fn take_back(&mut self, id: SeqId, blocks: usize) {
        if let Some(seq) = self.seqs.get_mut(&id) {
            let (had, past) = (seq.past, self.pool.give_up(&mut seq.held, blocks).min(seq.past));
            seq.past = past;
            let left = if inputs::floor(&seq.inputs, past) < past { self.go_back(id, past) } else { past };
            tracing::debug!(id, tokens = had, left, free = ?self.pool.free(), "preempted");
            self.stats.preempted += 1;
        }
    }
}
