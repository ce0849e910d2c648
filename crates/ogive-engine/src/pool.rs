//! Which cache blocks and state slots are free, and which blocks several sequences hold.
//!
//! Sequences that begin alike can hold the same blocks, whole ones, behind all of which each goes on in blocks of its own: nobody ever
//! writes in a block that another one holds.

use crate::backend::{BlockTable, CacheSpec, LayerCache};
use crate::limits::windowed_blocks;
use std::collections::HashMap;

/// Blocks of each group, and free pairs of slots.
#[derive(Debug)]
pub(crate) struct Pool {
    groups: Vec<Group>,
    slots: Vec<[u32; 2]>,
    has_states: bool,
    block_len: usize,
    /// How often a block is held once more than by one sequence.
    shared: usize,
}

/// Blocks of the layers that have a window in common.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    window: Option<usize>,
    /// Tokens that are kept beside those that are seen.
    rewind: usize,
    /// Those that no sequence holds.
    free: Vec<u32>,
    /// How many sequences hold each block.
    holders: Vec<u32>,
}

impl Group {
    fn new(window: Option<usize>, rewind: usize, blocks: usize) -> Self {
        Self { window, rewind, free: (0..blocks as u32).rev().collect(), holders: vec![0; blocks] }
    }

    /// How many blocks come before the first that the token after `past` others sees.
    fn unseen(&self, past: usize, block_len: usize) -> usize {
        self.window.map_or(0, |w| (past + 1).saturating_sub(w)) / block_len
    }

    /// How many of them are not kept either.
    fn gone(&self, past: usize, block_len: usize) -> usize {
        self.unseen(past.saturating_sub(self.rewind), block_len)
    }

    /// Blocks that nobody holds, for one sequence.
    fn take(&mut self, n: usize) -> Vec<u32> {
        let blocks: Vec<u32> = self.free.drain(self.free.len() - n..).rev().collect();
        blocks.iter().for_each(|block| self.holders[*block as usize] = 1);
        blocks
    }

    /// One sequence less holds these; gives the number of those that others hold still.
    fn give_back(&mut self, blocks: impl IntoIterator<Item = u32>) -> usize {
        let mut kept = 0;
        for block in blocks {
            let holders = &mut self.holders[block as usize];
            *holders -= 1;
            if *holders == 0 {
                self.free.push(block);
            } else {
                kept += 1;
            }
        }
        kept
    }
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
    /// Of windows `rewind` tokens more are kept than they see.
    pub(crate) fn new(spec: &CacheSpec, rewind: usize) -> Self {
        let groups = spec.groups().into_iter().zip(&spec.blocks);
        let groups = groups.map(|(window, n)| Group::new(window, rewind, *n)).collect();
        Self {
            groups,
            slots: (0..spec.slots as u32 / 2).rev().map(|s| [2 * s, 2 * s + 1]).collect(),
            has_states: spec.layers.iter().any(|l| matches!(l, LayerCache::State { .. })),
            block_len: spec.block_len,
            shared: 0,
        }
    }

    /// Whether a sequence of `tokens`, in steps of up to `step`, fits when it is alone.
    pub(crate) fn fits(&self, tokens: usize, step: usize) -> bool {
        self.groups.iter().all(|group| self.needed(group, tokens, step) <= group.holders.len())
    }

    /// Gives back what no token from `past` on can see, then grows `held` so that tokens up to `end` fit. On failure it
    /// has grown nothing.
    pub(crate) fn grow(&mut self, held: &mut Held, past: usize, end: usize) -> bool {
        held.tables.resize(self.groups.len(), BlockTable::default());
        let mut more = Vec::with_capacity(self.groups.len());
        for (table, group) in held.tables.iter_mut().zip(&mut self.groups) {
            let gone = group.gone(past, self.block_len).saturating_sub(table.first).min(table.blocks.len());
            self.shared -= group.give_back(table.blocks.drain(..gone));
            table.first += gone;
            more.push(missing(table, end, self.block_len));
        }
        let short = more.iter().zip(&self.groups).any(|(more, group)| *more > group.free.len());
        let no_slot = self.has_states && held.slots.is_none() && self.slots.is_empty();
        if short || no_slot {
            return false;
        }
        if self.has_states {
            held.slots = held.slots.or_else(|| self.slots.pop());
        }
        for ((table, group), more) in held.tables.iter_mut().zip(&mut self.groups).zip(more) {
            table.blocks.extend(group.take(more));
        }
        true
    }

    /// Takes back the pages of `held` that no token before `end` is in.
    pub(crate) fn shrink(&mut self, held: &mut Held, end: usize) {
        for (table, group) in held.tables.iter_mut().zip(&mut self.groups) {
            let keep = end.div_ceil(self.block_len).saturating_sub(table.first);
            self.shared -= group.give_back(table.blocks.drain(keep.min(table.blocks.len())..).rev());
        }
    }

    /// How many of `tokens` tokens that a sequence begins with it can have from another that keeps all of its own: those in whole blocks.
    pub(crate) fn whole(&self, tokens: usize) -> usize {
        if self.can_go_back() { tokens / self.block_len * self.block_len } else { 0 }
    }

    /// How many of their first `tokens` tokens, which they have in common, a sequence could have from one that holds `from`: those in whole
    /// blocks. None where there are states, or where what is seen from there has left a window.
    pub(crate) fn common(&self, from: &Held, tokens: usize) -> usize {
        let end = tokens / self.block_len * self.block_len;
        if from.tables.is_empty() || !self.can_rewind(from, end) { 0 } else { end }
    }

    /// What a sequence holds that has its first `end` tokens from one that holds `from`: as many as are [`common`](Self::common).
    pub(crate) fn share(&mut self, from: &Held, end: usize) -> Held {
        let mut held = Held::default();
        for (table, group) in from.tables.iter().zip(&mut self.groups) {
            let first = group.unseen(end, self.block_len);
            let blocks = table.blocks.iter().skip(first - table.first);
            let blocks: Vec<u32> =
                blocks.take((end / self.block_len).saturating_sub(first)).copied().collect();
            blocks.iter().for_each(|block| group.holders[*block as usize] += 1);
            self.shared += blocks.len();
            held.tables.push(BlockTable { first, blocks });
        }
        held
    }

    /// Takes back what follows the first `past` tokens of a sequence, and the block that they end in where others hold it too, as the sequence
    /// is to write there. Gives the number of tokens that are left: none, and `held` is empty, where it could not go on with those.
    pub(crate) fn rewind(&mut self, held: &mut Held, past: usize) -> usize {
        let others = |(table, group): (&BlockTable, &Group)| {
            table.block(past, self.block_len).is_some_and(|block| group.holders[block as usize] > 1)
        };
        let is_shared = held.tables.iter().zip(&self.groups).any(others);
        let end = if is_shared { past / self.block_len * self.block_len } else { past };
        if end == 0 || !self.can_rewind(held, end) {
            self.release(held);
            return 0;
        }
        self.shrink(held, end);
        end
    }

    /// Pages and slots for a sequence whose first `past` tokens come from elsewhere, of which each group has those from
    /// `firsts` on: for all of those where there is room, else for what the next token sees. `None` where they would not
    /// do to go on with, or there is no room for that either.
    pub(crate) fn place(&mut self, past: usize, firsts: &[usize]) -> Option<Held> {
        let needed: Vec<usize> = self.groups.iter().map(|group| group.unseen(past, self.block_len)).collect();
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

    /// What would be free if all of these gave up what they hold.
    pub(crate) fn loan<'a>(&self, others: impl Iterator<Item = &'a Held>) -> Loan {
        let mut loan = Loan { blocks: vec![0; self.groups.len()], slot: false };
        // How many of the others hold a block that several sequences hold.
        let mut held: HashMap<(usize, u32), u32> = HashMap::new();
        for other in others {
            loan.slot |= other.slots.is_some();
            for (g, (table, group)) in other.tables.iter().zip(&self.groups).enumerate() {
                if self.shared == 0 {
                    loan.blocks[g] += table.blocks.len();
                    continue;
                }
                for block in &table.blocks {
                    let count = held.entry((g, *block)).or_default();
                    *count += 1;
                    loan.blocks[g] += usize::from(*count == group.holders[*block as usize]);
                }
            }
        }
        loan
    }

    /// How many tokens `held` could grow to hold if what is lent were given up; 0 where there is no slot for it.
    pub(crate) fn reach(&self, held: &Held, loan: &Loan) -> usize {
        if self.has_states && held.slots.is_none() && self.slots.is_empty() && !loan.slot {
            return 0;
        }
        let free = self.groups.iter().zip(&loan.blocks).map(|(group, lent)| group.free.len() + lent);
        let blocks = held.tables.iter().zip(free).map(|(t, free)| t.first + t.blocks.len() + free);
        blocks.min().map_or(usize::MAX, |blocks| blocks.saturating_mul(self.block_len))
    }

    /// Blocks of a group that are missing for `held` to hold tokens up to `end`: of the group that misses most.
    pub(crate) fn short(&self, held: &Held, end: usize) -> usize {
        let tables = held.tables.iter().zip(&self.groups);
        let short = |(table, group): (&BlockTable, &Group)| {
            missing(table, end, self.block_len).saturating_sub(group.free.len())
        };
        tables.map(short).max().unwrap_or(0)
    }

    /// Whether sequences can go on with their first tokens when the last ones are lost, however many those are.
    pub(crate) fn can_go_back(&self) -> bool {
        !self.has_states && self.groups.iter().all(|group| group.window.is_none())
    }

    /// Whether a sequence that holds this finds room for `tokens`, in steps of up to `step`, with what is free and what is lent.
    pub(crate) fn has_room(&self, held: &Held, tokens: usize, step: usize, loan: &Loan) -> bool {
        let slot = !self.has_states || held.slots.is_some() || !self.slots.is_empty() || loan.slot;
        let has_room = |(g, group): (usize, &Group)| {
            let own = held.tables.get(g).map_or(0, |table| table.blocks.len());
            self.needed(group, tokens, step) <= group.free.len() + own + loan.blocks[g]
        };
        slot && self.groups.iter().enumerate().all(has_room)
    }

    /// Whether sequences have states, of which there is no way back.
    pub(crate) fn has_states(&self) -> bool {
        self.has_states
    }

    /// Whether a sequence could get a block of each group without anyone's giving one up.
    pub(crate) fn has_free(&self) -> bool {
        self.groups.iter().all(|group| !group.free.is_empty())
    }

    /// Blocks of a group for `tokens`, in steps of up to `step`.
    fn needed(&self, group: &Group, tokens: usize, step: usize) -> usize {
        let all = tokens.div_ceil(self.block_len);
        let kept = |window: usize| window.saturating_add(group.rewind);
        group.window.map_or(all, |w| all.min(windowed_blocks(kept(w), step, self.block_len)))
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
        let seen = |(table, group): (&BlockTable, &Group)| group.unseen(past, self.block_len) >= table.first;
        !self.has_states && held.tables.iter().zip(&self.groups).all(seen)
    }

    /// Takes back everything that `held` holds.
    pub(crate) fn release(&mut self, held: &mut Held) {
        for (table, group) in held.tables.drain(..).zip(&mut self.groups) {
            self.shared -= group.give_back(table.blocks);
        }
        self.slots.extend(held.slots.take());
    }

    /// Free blocks of each group, for messages and tests.
    pub(crate) fn free(&self) -> Vec<usize> {
        self.groups.iter().map(|group| group.free.len()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn pool(limits: &Limits, layers: Vec<LayerCache>) -> Pool {
        Pool::new(&limits.cache_spec(layers).unwrap(), limits.rewind)
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
            let (groups, tables) = (p.groups.clone(), held.tables.clone());
            assert!(p.grow(&mut held, end - 1, end + 1));
            p.shrink(&mut held, end);
            assert_eq!((&p.groups, &held.tables), (&groups, &tables), "at {end}");
        }
    }

    #[test]
    fn blocks_that_sequences_share_are_free_when_all_have_left() {
        let limits = Limits::new(64).sequences(2).block_len(4);
        let mut p = pool(&limits, vec![LayerCache::full(8, 8), LayerCache::windowed(8, 8, 6, 1)]);
        let all = p.free();
        let mut a = Held::default();
        assert!(p.grow(&mut a, 0, 18));
        // From 11 tokens two whole blocks; the next sees six tokens, which begin in the first.
        assert_eq!((p.common(&a, 3), p.common(&a, 11)), (0, 8));
        let mut b = p.share(&a, 8);
        let table = |first, blocks: &[u32]| BlockTable { first, blocks: blocks.into() };
        assert_eq!(b.tables, [table(0, &a.tables[0].blocks[..2]), table(0, &a.tables[1].blocks[..2])]);
        assert!(p.grow(&mut b, 8, 13));
        // What one of two gives up is not free.
        let lent = |p: &Pool, of: &[&Held]| p.loan(of.iter().copied()).blocks;
        assert_eq!((lent(&p, &[&a]), lent(&p, &[&b])), (vec![3, 3], vec![2, 2]));
        assert_eq!(lent(&p, &[&a, &b]), [7, 7]);
        let before = p.free();
        // Seven tokens end in a block that both have: one of them must compute the rest of it again, in its own.
        assert_eq!(p.rewind(&mut a, 7), 4);
        assert_eq!(p.free(), before.iter().map(|n| n + 3).collect::<Vec<_>>());
        assert_eq!((a.tables[0].blocks.len(), b.tables[0].blocks.len()), (1, 4));
        assert!(p.grow(&mut a, 4, 8));
        assert_ne!(a.tables[0].blocks[1], b.tables[0].blocks[1]);
        // Its end is its own by now.
        assert_eq!(p.rewind(&mut a, 7), 7);
        p.release(&mut a);
        assert!(b.tables.iter().zip(&p.groups).all(|(t, g)| t.blocks.iter().all(|b| !g.free.contains(b))));
        p.release(&mut b);
        assert_eq!((p.free(), p.shared), (all, 0));
    }

    #[test]
    fn a_window_shares_what_it_still_has() {
        let limits = Limits::new(64).sequences(2).step_tokens(4).block_len(4);
        let mut p = pool(&limits, vec![LayerCache::windowed(8, 8, 6, 0)]);
        let all = p.free();
        let mut a = Held::default();
        (0..30).step_by(3).for_each(|past| assert!(p.grow(&mut a, past, past + 3)));
        // At token 27 that of 22 is seen, which begins a block of four at 20.
        assert_eq!(a.tables[0].first, 5);
        assert_eq!([20, 24, 25, 27, 28, 30].map(|n| p.common(&a, n)), [0, 0, 0, 0, 28, 28]);
        let mut b = p.share(&a, 28);
        assert_eq!(b.tables[0], BlockTable { first: 5, blocks: a.tables[0].blocks[..2].into() });
        p.release(&mut a);
        assert!(p.grow(&mut b, 28, 32));
        p.release(&mut b);
        assert_eq!((p.free(), p.shared), (all, 0));
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
