//! Speculative decoding: guesses that go into a step, and what of them is kept.
//!
//! A step computes a sequence's last token and those that are guessed to follow it. Behind each of them a token is drawn, for as long as what was
//! drawn is what had been guessed: the chain sees the same logits and the same history as without guesses, so it draws the same. The first
//! of these tokens belongs to the sequence at once. The others wait and are given one by one, before anything is computed again. A sequence that is
//! paused meanwhile thus has nothing, neither in its tokens nor in its chain, that nobody was told of.
//!
//! Keys and values behind the last guess that was right are written over. States cannot be taken back: where a guess was wrong, the sequence
//! stays at the state it had before the step, which is still there ([`Seq::held`]'s other slot), and computes the right ones again in its next step.

use crate::compute::Draw;
use crate::draft::{Asked, Draft, Patience};
use crate::engine::Seq;
use crate::request::{Event, SeqId};
use crate::schedule::Part;
use crate::{Engine, Limits};
use std::collections::VecDeque;

/// Who guesses, and how many tokens for a step.
#[derive(Debug)]
pub(crate) struct Speculation {
    pub(crate) draft: Box<dyn Draft>,
    pub(crate) most: usize,
}

/// What was guessed of one sequence, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    /// For the next step.
    pub(crate) tokens: Vec<u32>,
    /// So many are asked for at most. It follows how many were right.
    pub(crate) length: usize,
    /// What was drawn and not given yet.
    pub(crate) drawn: VecDeque<Draw>,
    /// Rows that count when all of that is given, where a sequence has states; 0 where some are to be computed again.
    rows: usize,
    patience: Patience,
}

impl Guesses {
    /// Forgets what was guessed, and what was drawn and not given: whether there was any of that.
    pub(crate) fn clear(&mut self) -> bool {
        let any = !self.drawn.is_empty();
        self.tokens.clear();
        self.drawn.clear();
        self.rows = 0;
        any
    }

    /// Of `guessed` tokens so many were right.
    fn learn(&mut self, guessed: usize, right: usize, most: usize) {
        if guessed == 0 {
            return;
        }
        let next = if right == guessed { self.length.saturating_mul(2) } else { right + 1 };
        self.length = next.clamp(1, most.max(1));
        self.patience.learn(right == 0);
    }
}

/// How many tokens may be guessed of a sequence: none that it could not draw and go on behind.
fn room(seq: &Seq, limits: &Limits) -> usize {
    (seq.left - 1).min((limits.context - 1).saturating_sub(seq.tokens.len()))
}

impl Engine {
    /// Asks for guesses of all sequences that draw in the next step, if anyone guesses.
    pub(crate) fn guess(&mut self) {
        let Some(most) = self.speculation.as_ref().map(|speculation| speculation.most) else { return };
        let states = self.pool.has_states();
        // Those who may be in the step, and of them those who draw.
        let mut ids = self.due();
        ids.truncate(self.limits.sequences);
        let draws = |seq: &Seq| match seq.unseen() {
            1 => true,
            // What was right and is computed once more.
            n => states && n <= most && seq.past > 0,
        };
        ids.retain(|id| self.seqs.get(id).is_some_and(draws));
        self.seqs.values_mut().for_each(|seq| seq.guesses.tokens.clear());
        let each = most / ids.len().max(1);
        if each == 0 {
            return;
        }
        ids.retain(|id| self.seqs.get_mut(id).is_some_and(|seq| seq.guesses.patience.rested()));
        let ask = |id: &SeqId| {
            let seq = self.seqs.get(id)?;
            // Rows that are computed once more count too, so that they do not become ever more.
            let again = seq.unseen() - 1;
            let max_tokens = each.min(seq.guesses.length).saturating_sub(again).min(room(seq, &self.limits));
            (max_tokens > 0).then_some(Asked { id: *id, tokens: &seq.tokens, max_tokens })
        };
        let asked: Vec<Asked<'_>> = ids.iter().filter_map(ask).collect();
        if asked.is_empty() {
            return;
        }
        let Some(speculation) = &mut self.speculation else { return };
        let found = match speculation.draft.guess(&asked) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "guessing failed: from here on nothing is guessed");
                self.speculation = None;
                return;
            }
        };
        let known =
            |token: &u32| self.model.vocab().is_none_or(|n| usize::try_from(*token).is_ok_and(|t| t < n));
        let found: Vec<(SeqId, Vec<u32>)> = asked
            .iter()
            .zip(found)
            .map(|(asked, tokens)| {
                (asked.id, tokens.into_iter().take(asked.max_tokens).take_while(known).collect())
            })
            .collect();
        for (id, tokens) in found {
            if let Some(seq) = self.seqs.get_mut(&id) {
                seq.guesses.tokens = tokens;
            }
        }
    }

    /// Counts what a step has computed of a sequence, for which `draws` tokens were drawn.
    pub(crate) fn count(&mut self, part: &Part, draws: usize) {
        let (step, most) = (self.stats.steps, self.speculation.as_ref().map_or(0, |s| s.most));
        let Some(seq) = self.seqs.get_mut(&part.id) else { return };
        seq.last_step = step;
        let right = draws.saturating_sub(1);
        let end = seq.past + part.len + right;
        seq.guesses.learn(part.guessed, right, most);
        self.stats.drafted += part.guessed as u64;
        self.stats.accepted += right as u64;
        if part.guessed == 0 || !self.pool.has_states() {
            seq.past += part.len;
            seq.swap();
        } else {
            seq.guesses.rows = if right == part.guessed { part.len + part.guessed } else { 0 };
        }
        if part.guessed > 0 {
            // What is behind is nobody's.
            self.pool.shrink(&mut seq.held, end);
        }
    }

    /// The next token of every sequence that has more than one drawn.
    pub(crate) fn drawn_ahead(&mut self) -> Vec<Event> {
        let ids: Vec<SeqId> =
            self.seqs.iter().filter(|(_, seq)| !seq.guesses.drawn.is_empty()).map(|(id, _)| *id).collect();
        let mut events = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(seq) = self.seqs.get_mut(&id) else { continue };
            // The token before it was guessed, so it is in the cache.
            if !self.pool.has_states() {
                seq.past += 1;
            } else if seq.guesses.drawn.len() == 1 && seq.guesses.rows > 0 {
                seq.past += std::mem::take(&mut seq.guesses.rows);
                seq.swap();
            }
            events.extend(self.give(id));
        }
        events
    }
}
