//! Sequences that grow step by step, as an engine would run them: blocks handed out in a random order, given back when
//! a window has passed them and used again by others, or held by two sequences that begin alike; states swapped between two slots.

use crate::suite::random::Random;
use ogive_backend::{Batch, BlockTable, CacheSpec, Input, Vectors};
use std::sync::Arc;

struct Sequence {
    len: usize,
    tables: Vec<BlockTable>,
    slots: [u32; 2],
}

/// Has rows of each sequence see each other to both sides, as images do: of three rows or more one in their middle, of twelve or more two that
/// follow each other.
pub(super) fn together(batch: &mut Batch) {
    for span in &batch.spans {
        let (first, end) = (span.start + 1, (span.start + span.len).saturating_sub(1));
        let middle = if span.len < 12 { end } else { first + span.len / 3 };
        for (from, to) in [(first, middle), (middle, end)] {
            let vectors = Vectors::new(vec![0.0; to.saturating_sub(from)], 1);
            let input = vectors.map(|vectors| Input::new(from, 0..to - from, Arc::new(vectors.mutual())));
            batch.inputs.extend(input);
        }
    }
}

/// Sequences over one cache.
pub(super) struct Sequences {
    windows: Vec<Option<usize>>,
    block_len: usize,
    free: Vec<Vec<u32>>,
    /// Blocks of each group that two sequences have held: they are not used again.
    shared: Vec<Vec<u32>>,
    all: Vec<Sequence>,
    random: Random,
}

impl Sequences {
    /// `count` sequences without a token yet. The cache must have two slots for each.
    pub(super) fn new(random: &mut Random, spec: &CacheSpec, count: usize) -> Self {
        let windows = spec.groups();
        let slots = random.order(2 * count);
        let all = slots.chunks(2).map(|s| Sequence {
            len: 0,
            tables: vec![BlockTable::default(); windows.len()],
            slots: [s[0], s[1]],
        });
        Self {
            all: all.collect(),
            free: spec.blocks.iter().map(|&n| random.order(n)).collect(),
            shared: vec![Vec::new(); windows.len()],
            block_len: spec.block_len,
            random: random.clone(),
            windows,
        }
    }

    /// Begins sequence `s` anew: its blocks go back and are the next to be used, its slots stay.
    pub(super) fn restart(&mut self, s: usize) {
        let seq = &mut self.all[s];
        seq.len = 0;
        for (table, free) in seq.tables.iter_mut().zip(&mut self.free) {
            free.append(&mut table.blocks);
            table.first = 0;
        }
    }

    /// Has sequence `s`, which has no token yet, begin as `other` does: both hold its whole blocks from now on. None where what the next token
    /// sees has left a window.
    pub(super) fn begin_as(&mut self, s: usize, other: usize) {
        let blocks = self.all[other].len / self.block_len;
        let len = blocks * self.block_len;
        let seen =
            |window: &Option<usize>| window.map_or(0, |w| (len + 1).saturating_sub(w)) / self.block_len;
        let tables = self.all[other].tables.iter().zip(&self.windows);
        if tables.clone().any(|(table, window)| table.first > seen(window)) {
            return;
        }
        let share = |(table, window): (&BlockTable, _)| {
            let first = seen(window);
            let blocks = table.blocks[first - table.first..blocks - table.first].to_vec();
            BlockTable { first, blocks }
        };
        let tables: Vec<BlockTable> = tables.map(share).collect();
        self.shared.iter_mut().zip(&tables).for_each(|(shared, table)| shared.extend(&table.blocks));
        (self.all[s].len, self.all[s].tables) = (len, tables);
    }

    /// A step that appends `n` tokens to sequence `s` for each `(s, n)`, with `nobody` rows of padding. What it wrote
    /// counts at once.
    pub(super) fn step(&mut self, work: &[(usize, usize)], nobody: usize) -> Batch {
        let mut batch = Batch::default();
        for &(s, n) in work {
            let seq = &mut self.all[s];
            let groups = self.windows.iter().zip(&mut self.free).zip(&self.shared);
            for (table, ((window, free), shared)) in seq.tables.iter_mut().zip(groups) {
                // The first new token sees `window` tokens, itself included.
                let passed = window.map_or(0, |w| (seq.len + 1).saturating_sub(w)) / self.block_len;
                while table.first < passed {
                    let block = table.blocks.remove(0);
                    if !shared.contains(&block) {
                        free.insert(0, block);
                    }
                    table.first += 1;
                }
                while (table.first + table.blocks.len()) * self.block_len < seq.len + n {
                    table.blocks.push(free.pop().expect("the case reserves enough blocks"));
                }
            }
            let tokens = self.random.ids(n, 50);
            batch.push(&tokens, seq.len, seq.tables.clone(), seq.slots);
            batch.want_last();
            seq.len += n;
            seq.slots.swap(0, 1);
        }
        batch.pad(batch.tokens.len() + nobody);
        batch
    }
}
