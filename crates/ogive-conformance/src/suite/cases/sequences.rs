//! Sequences that grow step by step, as an engine would run them: blocks handed out in a random order, given back when
//! a window has passed them and used again by others, states swapped between two slots.

use crate::suite::random::Random;
use ogive_backend::{Batch, BlockTable, CacheSpec};

struct Sequence {
    len: usize,
    tables: Vec<BlockTable>,
    slots: [u32; 2],
}

/// Sequences over one cache.
pub(super) struct Sequences {
    windows: Vec<Option<usize>>,
    block_len: usize,
    free: Vec<Vec<u32>>,
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

    /// A step that appends `n` tokens to sequence `s` for each `(s, n)`, with `nobody` rows of padding. What it wrote
    /// counts at once.
    pub(super) fn step(&mut self, work: &[(usize, usize)], nobody: usize) -> Batch {
        let mut batch = Batch::default();
        for &(s, n) in work {
            let seq = &mut self.all[s];
            for ((table, window), free) in seq.tables.iter_mut().zip(&self.windows).zip(&mut self.free) {
                // The first new token sees `window` tokens, itself included.
                let passed = window.map_or(0, |w| (seq.len + 1).saturating_sub(w)) / self.block_len;
                while table.first < passed {
                    free.insert(0, table.blocks.remove(0));
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
