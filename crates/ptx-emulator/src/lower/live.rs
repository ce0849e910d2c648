//! Where in a kernel each register's value is still wanted.
//!
//! The flow is that of one thread: lanes have registers of their own, so that what diverges and meets again needs no thought. It is
//! the textbook's backward iteration over basic blocks, for the few registers that live across one. Where a kernel is so large that
//! this would take long, they count as live everywhere, which is only less good.

use super::mentions::{self, Mention, Register};
use crate::exec::registers::Slot;
use crate::program::{Action, NONE, Step};

/// Most words of a set for all blocks: 8 MiB for each of three.
const MOST_WORDS: usize = 1 << 20;

/// A run of steps that is entered at its start and left at its end.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: usize,
    end: usize,
}

/// What is live at the borders of blocks.
#[derive(Debug)]
pub(super) struct Live {
    blocks: Vec<Block>,
    /// The registers that live across a border; sets have a bit for each.
    across: Vec<usize>,
    words: usize,
    before: Vec<u64>,
    after: Vec<u64>,
    offsets: [usize; 3],
    /// Registers of all classes.
    pub(super) registers: usize,
}

/// From where to where a register is in use: twice the step's number for its reads, and one more for what is written after them.
pub(super) type Interval = Option<(u32, u32)>;

/// Where a step may go on.
fn successors(step: &Step, at: usize, slots: &[Slot], mut go: impl FnMut(usize)) {
    let (start, len) = (step.list.0 as usize, step.list.1 as usize);
    let goes_on = match step.action {
        Action::Branch => {
            go(step.imm as usize);
            step.guard != NONE
        }
        Action::BranchIndexed => {
            slots.get(start..start + len).unwrap_or_default().iter().for_each(|&target| go(target as usize));
            step.guard != NONE
        }
        Action::Exit => step.guard != NONE,
        _ => true,
    };
    if goes_on {
        go(at + 1);
    }
}

fn ends_block(step: &Step) -> bool {
    matches!(step.action, Action::Branch | Action::BranchIndexed | Action::Exit)
}

fn blocks(steps: &[Step], slots: &[Slot]) -> Vec<Block> {
    let mut leads = vec![false; steps.len() + 1];
    for (at, step) in steps.iter().enumerate() {
        if ends_block(step) {
            leads[at + 1] = true;
            successors(step, at, slots, |to| {
                if let Some(lead) = leads.get_mut(to) {
                    *lead = true;
                }
            });
        }
    }
    let mut blocks = Vec::new();
    let mut start = 0;
    for (end, leads) in leads.into_iter().enumerate().skip(1) {
        if leads || end == steps.len() {
            blocks.push(Block { start, end });
            start = end;
        }
    }
    blocks
}

impl Live {
    /// Follows the flow of a kernel with so many registers of each class.
    pub(super) fn new(steps: &[Step], slots: &[Slot], rows: [u32; 3]) -> Self {
        let [words, longs, preds] = rows.map(|n| n as usize);
        let offsets = [0, words, words + longs];
        let registers = words + longs + preds;
        let mut live = Self {
            blocks: blocks(steps, slots),
            across: Vec::new(),
            words: 0,
            before: Vec::new(),
            after: Vec::new(),
            offsets,
            registers,
        };
        let exposed = live.exposed(steps, slots);
        live.words = live.across.len().div_ceil(64);
        let size = live.blocks.len() * live.words;
        if size > MOST_WORDS {
            live.words = 0;
            return live;
        }
        live.before = vec![0; size];
        live.after = vec![0; size];
        live.iterate(steps, slots, &exposed);
        live
    }

    pub(super) fn index(&self, register: Register) -> usize {
        self.offsets[register.class] + register.number
    }

    /// Which registers each block reads before it writes them; their union becomes [`Live::across`].
    fn exposed(&mut self, steps: &[Step], slots: &[Slot]) -> Vec<Vec<usize>> {
        let mut written_in = vec![usize::MAX; self.registers];
        let mut seen_in = vec![usize::MAX; self.registers];
        let mut is_across = vec![false; self.registers];
        let mut all = Vec::with_capacity(self.blocks.len());
        for (number, block) in self.blocks.iter().enumerate() {
            let mut exposed = Vec::new();
            for step in &steps[block.start..block.end] {
                mentions::of(step, slots, |register, mention| {
                    let index = self.offsets[register.class] + register.number;
                    match mention {
                        Mention::Read if written_in[index] != number && seen_in[index] != number => {
                            seen_in[index] = number;
                            is_across[index] = true;
                            exposed.push(index);
                        }
                        Mention::Write => written_in[index] = number,
                        Mention::Read | Mention::Maybe => {}
                    }
                });
            }
            all.push(exposed);
        }
        self.across = (0..self.registers).filter(|&index| is_across[index]).collect();
        all
    }

    fn iterate(&mut self, steps: &[Step], slots: &[Slot], exposed: &[Vec<usize>]) {
        let mut bit_of = vec![usize::MAX; self.registers];
        for (bit, &index) in self.across.iter().enumerate() {
            bit_of[index] = bit;
        }
        let words = self.words;
        let mut kept = vec![!0u64; self.blocks.len() * words];
        let mut block_at = vec![0; steps.len() + 1];
        for (number, block) in self.blocks.iter().enumerate() {
            block_at[block.start] = number;
            for step in &steps[block.start..block.end] {
                mentions::of(step, slots, |register, mention| {
                    let bit = bit_of[self.offsets[register.class] + register.number];
                    if mention == Mention::Write && bit != usize::MAX {
                        kept[number * words + bit / 64] &= !(1 << (bit % 64));
                    }
                });
            }
            for &index in &exposed[number] {
                self.before[number * words + bit_of[index] / 64] |= 1 << (bit_of[index] % 64);
            }
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (number, block) in self.blocks.iter().enumerate().rev() {
                successors(&steps[block.end - 1], block.end - 1, slots, |to| {
                    if to < steps.len() {
                        let next = block_at[to] * words;
                        for word in 0..words {
                            self.after[number * words + word] |= self.before[next + word];
                        }
                    }
                });
                let own = number * words..(number + 1) * words;
                let after = self.after[own.clone()].iter().zip(&kept[own.clone()]);
                for (before, (after, kept)) in self.before[own].iter_mut().zip(after) {
                    let now = *before | after & kept;
                    changed |= now != *before;
                    *before = now;
                }
            }
        }
    }

    /// Calls for each register live at one border.
    fn set(&self, bits: &[u64], number: usize, mut tell: impl FnMut(usize)) {
        if self.words == 0 {
            self.across.iter().for_each(|&index| tell(index));
        }
        for (word, &bits) in bits.iter().skip(number * self.words).take(self.words).enumerate() {
            let mut bits = bits;
            while bits != 0 {
                if let Some(&index) = self.across.get(word * 64 + bits.trailing_zeros() as usize) {
                    tell(index);
                }
                bits &= bits - 1;
            }
        }
    }

    /// The registers that may be read before anything was written to them.
    pub(super) fn at_entry(&self) -> Vec<bool> {
        let mut live = vec![false; self.registers];
        self.set(&self.before, 0, |index| live[index] = true);
        live
    }

    /// For each register the smallest interval that holds all places where it is live or mentioned.
    pub(super) fn intervals(&self, steps: &[Step], slots: &[Slot]) -> Vec<Interval> {
        let mut all: Vec<Interval> = vec![None; self.registers];
        let mut touch = |index: usize, at: usize| {
            let at = at as u32;
            let (from, to) = all[index].unwrap_or((at, at));
            all[index] = Some((from.min(at), to.max(at)));
        };
        for (number, block) in self.blocks.iter().enumerate() {
            self.set(&self.before, number, |index| touch(index, 2 * block.start));
            self.set(&self.after, number, |index| touch(index, 2 * block.end - 1));
        }
        for (at, step) in steps.iter().enumerate() {
            let write = 2 * at + usize::from(mentions::reads_first(step));
            mentions::of(step, slots, |register, mention| {
                let index = self.index(register);
                touch(index, if mention == Mention::Read { 2 * at } else { write });
            });
        }
        all
    }
}
