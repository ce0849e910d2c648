//! One step's work: tokens of many sequences laid end to end, without a batch dimension.
//!
//! Prefill, decode, chunked prefill and continuous batching are thus one forward pass; only the spans tell them apart.
//! Rows after the last span belong to nobody: [`bucket`](crate::Backend::bucket) adds them.

use crate::inputs::Input;
use ogive_tensor::{Error, Result};
use std::{any::Any, ops::Range, sync::Arc};

/// The blocks of a sequence in one group of cache layers. A windowed group gives its oldest blocks back, so the table
/// says which it still has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// Blocks already given back.
    pub first: usize,
    /// The others, oldest first.
    pub blocks: Vec<u32>,
}

impl BlockTable {
    /// The block that holds token `t` of the sequence, if it is still there.
    pub fn block(&self, t: usize, block_len: usize) -> Option<u32> {
        self.blocks.get((t / block_len).checked_sub(self.first)?).copied()
    }
}

/// The part of a step that belongs to one sequence.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Span {
    /// First row of this sequence in the step.
    pub start: usize,
    /// Rows of this sequence in the step: 1 when decoding, more in a prompt.
    pub len: usize,
    /// Tokens already in the cache before this step. 0 means a fresh state.
    pub past: usize,
    /// A block table for each group. Sequences that begin alike may hold the same blocks, which no row of the step is then stored in.
    pub tables: Vec<BlockTable>,
    /// Where the sequence's states are read and where they are written: two places, so that a step that fails, or runs
    /// twice, has changed nothing.
    pub slots: [u32; 2],
    /// The adapter (LoRA) to apply, if any.
    pub adapter: Option<u32>,
}

impl Span {
    /// Rows of the step.
    pub fn rows(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
    /// Tokens the last row can see: those before this step and in it.
    pub fn context(&self) -> usize {
        self.past + self.len
    }
}

/// One block to copy before anything else happens in a step (copy on write, for whoever forks a sequence within a block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// The group both blocks belong to.
    pub group: usize,
    /// The block that is read.
    pub from: u32,
    /// The block that is written.
    pub to: u32,
}

/// A step as the scheduler made it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Batch {
    /// The token of each row.
    pub tokens: Vec<u32>,
    /// The position of each row in its own sequence: how many tokens are before it, unless there are such with [places](Self::places).
    pub positions: Vec<u32>,
    /// Where each row stands in time, down and across, for rotations that tell these apart ([`Rope::axes`](crate::Rope::axes)); none where
    /// all three are every row's position.
    pub places: Vec<[u32; 3]>,
    /// The segment of each row, for models that tell segments apart.
    pub types: Vec<u32>,
    /// Who owns which rows, in order, without gaps.
    pub spans: Vec<Span>,
    /// Rows that have vectors in place of their tokens, in order. A model puts them there, not a backend.
    pub inputs: Vec<Input>,
    /// The rows whose logits are wanted.
    pub outputs: Vec<u32>,
    /// Blocks to copy first, in this order.
    pub copies: Vec<BlockCopy>,
}

impl Batch {
    /// Appends rows of a sequence that has `past` tokens in the cache.
    pub fn push(&mut self, tokens: &[u32], past: usize, tables: Vec<BlockTable>, slots: [u32; 2]) {
        self.spans.push(Span {
            start: self.tokens.len(),
            len: tokens.len(),
            past,
            tables,
            slots,
            adapter: None,
        });
        self.tokens.extend(tokens);
        self.positions.extend((past..past + tokens.len()).map(|p| u32::try_from(p).unwrap_or(u32::MAX)));
        self.types.resize(self.tokens.len(), 0);
        if !self.places.is_empty() {
            let known = self.places.len();
            self.places.extend(self.positions.iter().skip(known).map(|p| [*p; 3]));
        }
    }

    /// Wants the logits of the row last pushed.
    pub fn want_last(&mut self) {
        self.outputs.extend(self.tokens.len().checked_sub(1).map(|r| r as u32));
    }

    /// Wants the logits of the last `rows` rows of the span last pushed, or of all where it has no more.
    pub fn want_last_of(&mut self, rows: usize) {
        let span = self.spans.last().map(Span::rows).unwrap_or_default();
        let from = span.end.saturating_sub(rows).max(span.start);
        self.outputs.extend((from..span.end).map(|r| r as u32));
    }

    /// Wants the logits of every row of the span last pushed.
    pub fn want_all(&mut self) {
        self.outputs.extend(self.spans.last().into_iter().flat_map(|s| s.rows()).map(|r| r as u32));
    }

    /// Adds rows that belong to nobody, up to `rows`.
    pub fn pad(&mut self, rows: usize) {
        let rows = rows.max(self.tokens.len());
        self.tokens.resize(rows, 0);
        self.positions.resize(rows, 0);
        self.types.resize(rows, 0);
        if !self.places.is_empty() {
            self.places.resize(rows, [0; 3]);
        }
    }

    /// Has the rows from `start` on, all that were pushed since, stand at these places, one for each.
    pub fn place(&mut self, start: usize, places: &[[u32; 3]]) {
        for (position, [time, ..]) in self.positions.iter_mut().skip(start).zip(places) {
            *position = *time;
        }
        let flat = |places: &[[u32; 3]]| places.iter().all(|[t, h, w]| t == h && t == w);
        if self.places.is_empty() && flat(places) {
            return;
        }
        let known = self.places.len();
        self.places.extend(self.positions.iter().skip(known).map(|p| [*p; 3]));
        for (to, place) in self.places.iter_mut().skip(start).zip(places) {
            *to = *place;
        }
    }

    /// Checks that there is a position and a type for each row and, where rows have places, one of those; and that rows which see each other to
    /// both sides are all there, in one sequence.
    ///
    /// # Errors
    /// If not.
    pub fn check_rows(&self) -> Result<()> {
        let (rows, places) = (self.tokens.len(), self.places.len());
        let (p, t) = (self.positions.len(), self.types.len());
        if p != rows || t != rows || (places != 0 && places != rows) {
            let why = format!("{rows} tokens with {p} positions, {t} types and {places} places");
            return Err(Error::invalid("plan", why));
        }
        let together = |input: &Input| {
            let one =
                |span: &Span| span.rows().start <= input.rows.start && input.rows.end <= span.rows().end;
            input.is_whole() && self.spans.iter().any(one)
        };
        if self.inputs.iter().any(|input| input.of.mutual && !together(input)) {
            let why = "rows that see each other to both sides are in several steps or sequences; they must be in one";
            return Err(Error::invalid("plan", why));
        }
        Ok(())
    }

    /// For each row how many tokens of its sequence it sees where attention is [`Mutual`](crate::AttnOption::Mutual): those up to itself, and all that
    /// came in with it. They never grow fewer from one row of a sequence to the next. Nobody's rows see none. `None` where all rows look back.
    pub fn mutual(&self) -> Option<Vec<usize>> {
        let inputs = || self.inputs.iter().filter(|input| input.of.mutual);
        inputs().next()?;
        let mut ends = vec![0; self.tokens.len()];
        for span in &self.spans {
            let end = |row: usize| span.past + (row + 1).saturating_sub(span.start);
            for (row, to) in ends.iter_mut().enumerate().take(span.rows().end).skip(span.start) {
                *to = end(row);
            }
            for input in inputs().filter(|input| span.rows().contains(&input.rows.start)) {
                let last = input.rows.end.min(span.rows().end);
                for to in ends.iter_mut().take(last).skip(input.rows.start) {
                    *to = end(last - 1);
                }
            }
        }
        Some(ends)
    }

    /// Rows of each span, then those that belong to nobody.
    pub fn row_counts(&self) -> Vec<usize> {
        let owned: usize = self.spans.iter().map(|s| s.len).sum();
        self.spans.iter().map(|s| s.len).chain([self.tokens.len() - owned]).collect()
    }

    /// Rows of all contexts: for each span in turn, a row for each token it can see.
    pub fn contexts(&self) -> usize {
        self.spans.iter().map(Span::context).sum()
    }
}

/// A step whose indices are on the device.
#[derive(Clone, Debug)]
pub struct Plan {
    batch: Batch,
    device: Arc<dyn Any + Send + Sync>,
}

impl Plan {
    /// A step and what the backend made of it. Called by backends only.
    pub fn new(batch: Batch, device: impl Any + Send + Sync) -> Self {
        Self { batch, device: Arc::new(device) }
    }
    /// The step.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }
    /// What the backend made of it, if that is a `T`.
    pub fn device<T: Any>(&self) -> Option<&T> {
        self.device.downcast_ref()
    }
}

/// Contexts of no more tokens are one kind: they take few operators' time, and a conversation begins with them.
const SHORT: usize = 256;

/// What two steps must have in common for one to replay the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StepKey {
    /// Which model with which cache: the engine's number.
    pub model: u64,
    /// Rows, those of nobody included.
    pub rows: usize,
    /// Sequences, where they have states; 0 where none has, as it is then among the step's numbers which rows are somebody's.
    pub spans: usize,
    /// Rows whose logits are wanted.
    pub outputs: usize,
    /// The longest context, rounded up as [`StepKey::bucket`] does: to a power of two, or to 256 for those below. A backend whose operators
    /// hang on the context does so by no more than this says.
    pub context_bucket: usize,
    /// How many logits of each row the step ends with ([`top_k`](crate::Backend::top_k)); 0 is all of them.
    pub top_k: usize,
    /// Which piece of which steps, where a backend made of backends has each run its own; 0 is all of the step.
    pub piece: u64,
}

impl StepKey {
    /// The key of a step, if it can be replayed: only where each sequence has one row (definitions may split rows by
    /// sequence), no block is copied and all rows are tokens. What a model asks for in a step whose sequences have no states (slots are all 0) must not hang
    /// on how many of its rows are nobody's.
    pub fn of(model: u64, batch: &Batch) -> Option<Self> {
        let longest = batch.spans.iter().map(Span::context).max()?;
        let plain = batch.copies.is_empty() && batch.inputs.is_empty() && batch.places.is_empty();
        let same = plain && batch.spans.iter().all(|s| s.len == 1);
        // Each state has two slots of its own.
        let stateless = batch.spans.iter().all(|s| s.slots == [0; 2]);
        same.then(|| Self {
            model,
            rows: batch.tokens.len(),
            spans: if stateless { 0 } else { batch.spans.len() },
            outputs: batch.outputs.len(),
            context_bucket: Self::bucket(longest),
            top_k: 0,
            piece: 0,
        })
    }

    /// The [`context_bucket`](Self::context_bucket) of a step whose longest context has so many tokens. What a backend launches may hang on
    /// the context by this alone: a step is replayed for every context of its bucket.
    pub fn bucket(longest: usize) -> usize {
        longest.checked_next_power_of_two().unwrap_or(usize::MAX).max(SHORT)
    }

    /// The key of the same step that ends with the best `k` logits of each row.
    #[must_use]
    pub fn top_k(self, k: usize) -> Self {
        Self { top_k: k, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_nobody_change_the_key_of_states_alone() {
        let batch = |spans: usize, rows: usize, states: bool| {
            let mut batch = Batch::default();
            for i in 0..spans as u32 {
                batch.push(&[i], 5, Vec::new(), if states { [2 * i, 2 * i + 1] } else { [0; 2] });
            }
            batch.pad(rows);
            StepKey::of(1, &batch).unwrap()
        };
        assert_eq!(batch(3, 4, false), batch(4, 4, false));
        assert_ne!(batch(3, 4, true), batch(4, 4, true));
        assert_ne!(batch(3, 4, false), batch(3, 8, false));
    }

    #[test]
    fn who_came_in_together_sees_all_of_it() {
        let vectors = |rows: usize| crate::Vectors::new(vec![0.0; rows], 1).unwrap();
        let mut batch = Batch::default();
        batch.push(&[0; 6], 4, Vec::new(), [0; 2]);
        batch.push(&[0; 3], 0, Vec::new(), [0; 2]);
        batch.pad(10);
        batch.inputs = vec![Input::new(0, 0..2, Arc::new(vectors(2)))];
        assert_eq!(batch.mutual(), None);
        let mutual = |start: usize, rows: usize| Input::new(start, 0..rows, Arc::new(vectors(rows).mutual()));
        batch.inputs.extend([mutual(2, 3), mutual(7, 2)]);
        assert_eq!(batch.mutual(), Some(vec![5, 6, 9, 9, 9, 10, 1, 3, 3, 0]));
        batch.check_rows().unwrap();
        // Some in another step, in two sequences, nobody's.
        for wrong in [Input::new(2, 1..3, Arc::new(vectors(3).mutual())), mutual(5, 2), mutual(8, 2)] {
            batch.inputs[1] = wrong;
            assert!(batch.check_rows().is_err());
        }
    }

    #[test]
    fn contexts_of_a_key() {
        let of = |context: usize| {
            let mut batch = Batch::default();
            batch.push(&[0], context - 1, Vec::new(), [0; 2]);
            StepKey::of(1, &batch).unwrap().context_bucket
        };
        let contexts = [1, 2, 255, 256, 257, 512, 513, 1024];
        assert_eq!(contexts.map(of), [256, 256, 256, 256, 512, 512, 1024, 1024]);
    }
}
