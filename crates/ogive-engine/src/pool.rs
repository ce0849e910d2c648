//! Which cache blocks and state slots are free.

use crate::backend::{BlockTable, CacheSpec, LayerCache};
use crate::limits::windowed_blocks;

/// Free blocks of each group, and free pairs of slots.
#[derive(Debug)]
pub(crate) struct Pool {
    windows: Vec<Option<usize>>,
    total: Vec<usize>,
    free: Vec<Vec<u32>>,
    slots: Vec<[u32; 2]>,
    has_states: bool,
    block_len: usize,
}

/// What a sequence holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) tables: Vec<BlockTable>,
    pub(crate) slots: Option<[u32; 2]>,
}

impl Held {
    /// Whether giving it up would free anything.
    pub(crate) fn any(&self) -> bool {
        self.slots.is_some() || self.tables.iter().any(|t| !t.blocks.is_empty())
    }
}

/// What others hold that one could have.
#[derive(Debug)]
pub(crate) struct Loan {
    /// Blocks of each group.
    blocks: Vec<usize>,
    /// Whether there is a pair of slots.
    slot: bool,
}

impl Loan {
    /// Whether there is anything.
    pub(crate) fn any(&self) -> bool {
        self.slot || self.blocks.iter().any(|blocks| *blocks > 0)
    }
}

/// Blocks that a table is to grow by for tokens up to `end`.
fn missing(table: &BlockTable, end: usize, block_len: usize) -> usize {
    end.div_ceil(block_len).saturating_sub(table.first + table.blocks.len())
}

impl Pool {
    pub(crate) fn new(spec: &CacheSpec) -> Self {
        let stack = |n: usize| (0..n as u32).rev().collect::<Vec<_>>();
        Self {
            windows: spec.groups(),
            total: spec.blocks.clone(),
            free: spec.blocks.iter().map(|&n| stack(n)).collect(),
            slots: stack(spec.slots / 2).into_iter().map(|s| [2 * s, 2 * s + 1]).collect(),
            has_states: spec.layers.iter().any(|l| matches!(l, LayerCache::State { .. })),
            block_len: spec.block_len,
        }
    }

    /// Whether a sequence of `tokens`, in steps of up to `step`, fits when it is alone.
    pub(crate) fn fits(&self, tokens: usize, step: usize) -> bool {
        self.windows
            .iter()
            .zip(&self.total)
            .all(|(window, total)| self.needed(*window, tokens, step) <= *total)
    }

    /// Gives back what no token from `past` on can see, then grows `held` so that tokens up to `end` fit. On failure it
    /// has grown nothing.
    pub(crate) fn grow(&mut self, held: &mut Held, past: usize, end: usize) -> bool {
        held.tables.resize(self.windows.len(), BlockTable::default());
        let mut more = Vec::with_capacity(self.windows.len());
        for ((table, window), free) in held.tables.iter_mut().zip(&self.windows).zip(&mut self.free) {
            let unseen = window.map_or(0, |w| (past + 1).saturating_sub(w)) / self.block_len;
            let gone = unseen.saturating_sub(table.first).min(table.blocks.len());
            free.extend(table.blocks.drain(..gone));
            table.first += gone;
            more.push(missing(table, end, self.block_len));
        }
        let short = more.iter().zip(&self.free).any(|(more, free)| *more > free.len());
        let no_slot = self.has_states && held.slots.is_none() && self.slots.is_empty();
        if short || no_slot {
            return false;
        }
        if self.has_states {
            held.slots = held.slots.or_else(|| self.slots.pop());
        }
        for ((table, free), more) in held.tables.iter_mut().zip(&mut self.free).zip(more) {
            table.blocks.extend(free.drain(free.len() - more..).rev());
        }
        true
    }

    /// Takes back the pages of `held` that no token before `end` is in.
    pub(crate) fn shrink(&mut self, held: &mut Held, end: usize) {
        for (table, free) in held.tables.iter_mut().zip(&mut self.free) {
            let keep = end.div_ceil(self.block_len).saturating_sub(table.first);
            free.extend(table.blocks.drain(keep.min(table.blocks.len())..).rev());
        }
    }

    /// Pages and slots for a sequence whose first `past` tokens come from elsewhere, of which each group has those from
    /// `firsts` on: for all of those where there is room, else for what the next token sees. `None` where they would not
    /// do to go on with, or there is no room for that either.
    pub(crate) fn place(&mut self, past: usize, firsts: &[usize]) -> Option<Held> {
        let needed =
            self.windows.iter().map(|w| w.map_or(0, |w| (past + 1).saturating_sub(w)) / self.block_len);
        let needed: Vec<usize> = needed.collect();
        let given: Vec<usize> = firsts.iter().map(|first| first.div_ceil(self.block_len)).collect();
        if given.len() != needed.len() || given.iter().zip(&needed).any(|(given, needed)| given > needed) {
            return None;
        }
        [given, needed].into_iter().find_map(|firsts| {
            let table = |first| BlockTable { first, blocks: Vec::new() };
            let mut held = Held { tables: firsts.into_iter().map(table).collect(), slots: None };
            self.grow(&mut held, past, past).then_some(held)
        })
    }

    /// What all of these hold.
    pub(crate) fn loan<'a>(&self, others: impl Iterator<Item = &'a Held>) -> Loan {
        let mut loan = Loan { blocks: vec![0; self.windows.len()], slot: false };
        for other in others {
            loan.blocks.iter_mut().zip(&other.tables).for_each(|(sum, table)| *sum += table.blocks.len());
            loan.slot |= other.slots.is_some();
        }
        loan
    }

    /// How many tokens `held` could grow to hold if what is lent were given up; 0 where there is no slot for it.
    pub(crate) fn reach(&self, held: &Held, loan: &Loan) -> usize {
        if self.has_states && held.slots.is_none() && self.slots.is_empty() && !loan.slot {
            return 0;
        }
        let free = self.free.iter().zip(&loan.blocks).map(|(free, lent)| free.len() + lent);
        let blocks = held.tables.iter().zip(free).map(|(t, free)| t.first + t.blocks.len() + free);
        blocks.min().map_or(usize::MAX, |blocks| blocks.saturating_mul(self.block_len))
    }

    /// Blocks of a group that are missing for `held` to hold tokens up to `end`: of the group that misses most.
    pub(crate) fn short(&self, held: &Held, end: usize) -> usize {
        let tables = held.tables.iter().zip(&self.free);
        let short = |(table, free): (&BlockTable, &Vec<u32>)| {
            missing(table, end, self.block_len).saturating_sub(free.len())
        };
        tables.map(short).max().unwrap_or(0)
    }

    /// Whether sequences can go on with their first tokens when the last ones are lost, however many those are.
    pub(crate) fn can_go_back(&self) -> bool {
        !self.has_states && self.windows.iter().all(Option::is_none)
    }

    /// Whether a sequence that holds this finds room for `tokens`, in steps of up to `step`, with what is free and what is lent.
    pub(crate) fn has_room(&self, held: &Held, tokens: usize, step: usize, loan: &Loan) -> bool {
        let slot = !self.has_states || held.slots.is_some() || !self.slots.is_empty() || loan.slot;
        let own = self.loan(std::iter::once(held)).blocks;
        let room = self.free.iter().zip(own).zip(&loan.blocks).map(|((f, own), lent)| f.len() + own + lent);
        slot && self.windows.iter().zip(room).all(|(window, room)| self.needed(*window, tokens, step) <= room)
    }

    /// Blocks of a group for `tokens`, in steps of up to `step`.
    fn needed(&self, window: Option<usize>, tokens: usize, step: usize) -> usize {
        let all = tokens.div_ceil(self.block_len);
        window.map_or(all, |w| all.min(windowed_blocks(w, step, self.block_len)))
    }

    /// Takes back the last `blocks` of each group, or all that `held` holds where what is left would not do to go on with. Gives the number
    /// of tokens that are left.
    pub(crate) fn give_up(&mut self, held: &mut Held, blocks: usize) -> usize {
        let most = held.tables.iter().map(|t| t.first + t.blocks.len()).max().unwrap_or(0);
        let end = most.saturating_sub(blocks) * self.block_len;
        if blocks == 0 || end == 0 || !self.can_rewind(held, end) {
            self.release(held);
            return 0;
        }
        self.shrink(held, end);
        end
    }

    /// Whether a sequence that has only its first `past` tokens could go on with what it holds.
    pub(crate) fn can_rewind(&self, held: &Held, past: usize) -> bool {
        let seen = |(table, window): (&BlockTable, &Option<usize>)| {
            window.map_or(0, |w| (past + 1).saturating_sub(w)) / self.block_len >= table.first
        };
        !self.has_states && held.tables.iter().zip(&self.windows).all(seen)
    }

    /// Takes back everything that `held` holds.
    pub(crate) fn release(&mut self, held: &mut Held) {
        for (table, free) in held.tables.drain(..).zip(&mut self.free) {
            free.extend(table.blocks);
        }
        self.slots.extend(held.slots.take());
    }

    /// Free blocks of each group, for messages and tests.
    pub(crate) fn free(&self) -> Vec<usize> {
        self.free.iter().map(Vec::len).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn pool(limits: &Limits, layers: Vec<LayerCache>) -> Pool {
        Pool::new(&limits.cache_spec(layers).unwrap())
    }

    #[test]
    fn a_window_gives_pages_back_and_runs_for_ever() {
        let limits = Limits::new(1000).step_tokens(4).block_len(4);
        let mut p = pool(&limits, vec![LayerCache::windowed(8, 8, 6, 0)]);
        let (mut held, all) = (Held::default(), p.free());
        assert_eq!(all, [windowed_blocks(6, 4, 4)]);
        for past in 0..990 {
            assert!(p.grow(&mut held, past, past + 4), "at {past}");
            let table = &held.tables[0];
            for seen in past.saturating_sub(5)..past + 4 {
                assert!(table.block(seen, 4).is_some(), "token {seen} is seen from {past}");
            }
        }
        p.release(&mut held);
        assert_eq!(p.free(), all);
    }

    #[test]
    fn what_shrinks_is_as_it_was() {
        let limits = Limits::new(64).sequences(2).block_len(4);
        let mut p = pool(&limits, vec![LayerCache::full(8, 8), LayerCache::windowed(8, 8, 6, 1)]);
        let mut held = Held::default();
        for end in 1..60 {
            assert!(p.grow(&mut held, end - 1, end));
            let (free, tables) = (p.free.clone(), held.tables.clone());
            assert!(p.grow(&mut held, end - 1, end + 1));
            p.shrink(&mut held, end);
            assert_eq!((&p.free, &held.tables), (&free, &tables), "at {end}");
        }
    }

    #[test]
    fn growth_that_fails_takes_nothing() {
        let limits = Limits::new(16).sequences(2).cache_tokens(16).block_len(4);
        let mut p = pool(&limits, vec![LayerCache::full(8, 8), LayerCache::windowed(8, 8, 4, 1)]);
        let (mut a, mut b) = (Held::default(), Held::default());
        assert!(p.grow(&mut a, 0, 9));
        let free = p.free();
        assert!(!p.grow(&mut b, 0, 8));
        assert_eq!((p.free(), b.any()), (free, false));
        assert!(p.grow(&mut b, 0, 4));
    }
}
