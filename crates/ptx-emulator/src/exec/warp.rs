//! A warp's turn: runs steps until it must wait, ends, or gave others their chance.

#![allow(unsafe_code)]

use super::fragments::{Fragments, Wait};
use super::registers::{ALL, Mask, Registers, lanes};
use super::state::{BlockState, GridState, WarpState};
use super::windows::Windows;
use super::{Cx, barrier};
use crate::fault::{Fault, Kind};
use crate::program::{Action, BarrierKind, NONE, Step};

/// How many steps a fragment runs before another of its warp has a turn.
const FRAGMENT_TURN: i64 = 4096;

/// A warp.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    /// Its registers.
    pub(crate) registers: Registers,
    /// What instructions see of it.
    pub(crate) state: WarpState,
    /// Where its lanes stand.
    pub(crate) fragments: Fragments,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing of it can run (it waits, or it has ended).
    Blocked,
    /// Its share of steps is used up, or a barrier is complete.
    Share,
    /// It polls what others must change.
    Polling,
}

impl Warp {
    /// Runs up to about `share` steps.
    pub(crate) fn turn(
        &mut self,
        block: &mut BlockState,
        grid: &GridState,
        windows: &mut Windows,
        share: i64,
    ) -> Result<Turn, Box<Fault>> {
        let fragments = &mut self.fragments;
        let mut cx = Cx { registers: &mut self.registers, warp: &mut self.state, block, grid, windows };
        let mut left = share;
        let mut fair = false;
        let mut polls = 0;
        loop {
            let Some(pick) = fragments.pick(fair) else { return Ok(Turn::Blocked) };
            let of_fragment = if pick.runnable > 1 { FRAGMENT_TURN.min(left) } else { left };
            let before = cx.warp.clock;
            let stop = stretch(&mut cx, fragments, pick.index, pick.limit, of_fragment)?;
            left -= (cx.warp.clock - before) as i64;
            fair = false;
            match stop {
                Stop::Met => {}
                Stop::Share => {
                    fragments.at(pick.index).ran = cx.warp.clock;
                    fair = true;
                }
                Stop::Poll => {
                    fragments.at(pick.index).ran = cx.warp.clock;
                    fair = true;
                    polls += 1;
                    if polls >= pick.runnable {
                        fragments.merge();
                        return Ok(Turn::Polling);
                    }
                }
                Stop::Barrier => return Ok(Turn::Share),
            }
            fragments.merge();
            if left <= 0 {
                return Ok(Turn::Share);
            }
        }
    }
}

/// Why a stretch of steps ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The fragments changed: they split, one waits or ended, or one reached another.
    Met,
    /// Its share is used up.
    Share,
    /// It polled in vain.
    Poll,
    /// A barrier of the block is complete: others must be woken before anything else.
    Barrier,
}

/// Runs one fragment until it splits, waits, ends, reaches `limit`, or has run `share` steps.
#[inline]
fn stretch(
    cx: &mut Cx<'_>,
    fragments: &mut Fragments,
    index: usize,
    limit: u32,
    share: i64,
) -> Result<Stop, Box<Fault>> {
    let grid = cx.grid;
    let steps = &grid.launch.program.steps[..];
    let (mut pc, mask) = (fragments.at(index).pc, fragments.at(index).mask);
    let end = cx.warp.clock + share.max(1) as u64;
    loop {
        if pc >= limit {
            fragments.at(index).pc = pc;
            return Ok(Stop::Met);
        }
        let step = &steps[pc as usize];
        cx.warp.clock += 1;
        let m = if step.guard == NONE {
            mask
        } else {
            let holds = cx.registers.pred(step.guard);
            mask & if step.guard_negated { !holds } else { holds }
        };
        match step.action {
            Action::Alu(run) => {
                if m != 0 {
                    // SAFETY: lowering chose this variant after it found the processor features it needs.
                    unsafe { run(cx.registers, step, m) };
                }
                pc += 1;
            }
            Action::Exec(run) => {
                if m != 0 {
                    // SAFETY: as above.
                    unsafe { run(cx, step, m)? };
                    if cx.warp.yielding {
                        cx.warp.yielding = false;
                        fragments.at(index).pc = pc + 1;
                        return Ok(Stop::Poll);
                    }
                }
                pc += 1;
            }
            Action::Branch => {
                if m == mask {
                    pc = step.imm as u32;
                } else if m == 0 {
                    pc += 1;
                } else {
                    *fragments.at(index) =
                        super::fragments::Fragment { pc: pc + 1, mask: mask & !m, wait: Wait::Run, ran: 0 };
                    fragments.push(step.imm as u32, m, Wait::Run);
                    return Ok(Stop::Met);
                }
                if cx.warp.clock >= end {
                    fragments.at(index).pc = pc;
                    return Ok(Stop::Share);
                }
            }
            _ => {
                fragments.at(index).pc = pc;
                if m == 0 {
                    pc += 1;
                    continue;
                }
                if m != mask {
                    // The lanes whose guard does not hold go on by themselves.
                    fragments.at(index).mask = m;
                    fragments.push(pc + 1, mask & !m, Wait::Run);
                }
                match rare(cx, fragments, index, step, m)? {
                    Some(stop) => return Ok(stop),
                    None if m != mask => return Ok(Stop::Met),
                    None => pc = fragments.at(index).pc,
                }
            }
        }
    }
}

/// The steps that involve other lanes or warps. All lanes of the fragment at `index` execute; `None` if it can simply go on at its new `pc`.
fn rare(
    cx: &mut Cx<'_>,
    fragments: &mut Fragments,
    index: usize,
    step: &Step,
    mask: Mask,
) -> Result<Option<Stop>, Box<Fault>> {
    let pc = fragments.at(index).pc;
    match step.action {
        Action::Together(run) => {
            let first = mask.trailing_zeros() as usize;
            if let Some(member) = uniform_member(cx, step, mask) {
                let need = member & cx.warp.alive;
                if mask & need == need && mask & !member == 0 {
                    gone_lanes(cx, step, member, first)?;
                    // SAFETY: lowering chose this variant after it found the processor features it needs.
                    unsafe { run(cx, step, mask)? };
                    fragments.at(index).pc = pc + 1;
                    if cx.warp.yielding {
                        cx.warp.yielding = false;
                        return Ok(Some(Stop::Poll));
                    }
                    return Ok(None);
                }
            }
            fragments.remove(index);
            let mut rest = mask;
            while rest != 0 {
                let (member, group) = group_of(cx, step, rest);
                let lane = group.trailing_zeros() as usize;
                rest &= !group;
                own_mask(cx, step, group, member)?;
                let came = fragments
                    .all()
                    .iter()
                    .filter(|f| f.pc == pc && f.wait == Wait::Together { member })
                    .fold(group, |all, f| all | f.mask);
                let need = member & cx.warp.alive;
                if came & need == need {
                    gone_lanes(cx, step, member, lane)?;
                    fragments
                        .all_mut()
                        .iter_mut()
                        .filter(|f| f.pc == pc && f.wait == Wait::Together { member })
                        .for_each(|f| {
                            f.pc = pc + 1;
                            f.wait = Wait::Run;
                        });
                    // SAFETY: as above.
                    unsafe { run(cx, step, came)? };
                    fragments.push(pc + 1, group, Wait::Run);
                } else {
                    fragments.push(pc, group, Wait::Together { member });
                }
            }
            cx.warp.yielding = false;
            Ok(Some(Stop::Met))
        }
        Action::WarpSync => {
            fragments.remove(index);
            let mut rest = mask;
            while rest != 0 {
                let (member, group) = group_of(cx, step, rest);
                let lane = group.trailing_zeros() as usize;
                rest &= !group;
                own_mask(cx, step, group, member)?;
                let wait = Wait::WarpSync { member };
                let came =
                    fragments.all().iter().filter(|f| f.wait == wait).fold(group, |all, f| all | f.mask);
                let need = member & cx.warp.alive;
                if came & need == need {
                    gone_lanes(cx, step, member, lane)?;
                    for fragment in fragments.all_mut().iter_mut().filter(|f| f.wait == wait) {
                        fragment.pc += 1;
                        fragment.wait = Wait::Run;
                    }
                    fragments.push(pc + 1, group, Wait::Run);
                    cx.release_clock();
                } else {
                    fragments.push(pc, group, wait);
                }
            }
            Ok(Some(Stop::Met))
        }
        Action::Barrier(kind) => {
            let lane = mask.trailing_zeros() as usize;
            let mine = barrier::operands(cx, step, lane);
            let group = lanes(mask)
                .fold(0, |group, l| group | Mask::from(barrier::operands(cx, step, l) == mine) << l);
            if group != mask {
                // Another barrier for some: they come back here as a fragment of their own.
                fragments.push(pc, mask & !group, Wait::Run);
            }
            let (id, phase) = barrier::arrive(cx, step, group, kind)?;
            let fragment = fragments.at(index);
            fragment.mask = group;
            if kind == BarrierKind::Arrive {
                fragment.pc = pc + 1;
            } else {
                fragment.wait = Wait::Barrier { id, phase };
            }
            let complete = !cx.block.barriers.completed.is_empty();
            if group != mask && !complete && kind != BarrierKind::Arrive {
                return Ok(Some(Stop::Met));
            }
            Ok(Some(if complete { Stop::Barrier } else { Stop::Met }))
        }
        Action::BranchIndexed => {
            fragments.remove(index);
            let (start, len) = step.list;
            for lane in lanes(mask) {
                let choice = cx.registers.word_lane(step.src[0], lane);
                if choice >= len {
                    let what = format!("brx.idx with index {choice} of {len} targets");
                    return Err(cx.fault(step.place, lane, Kind::Misuse, what));
                }
                let target = cx.grid.launch.program.slots[(start + choice) as usize];
                fragments.push(target, 1 << lane, Wait::Run);
            }
            Ok(Some(Stop::Met))
        }
        Action::Exit => {
            cx.warp.alive &= !mask;
            cx.block.alive -= mask.count_ones();
            fragments.remove(index);
            fragments.look_again();
            if cx.warp.alive == 0 {
                super::copies::warp_end(cx)?;
            }
            let alive = cx.block.alive;
            cx.block.barriers.look_again(alive);
            Ok(Some(if cx.block.barriers.completed.is_empty() { Stop::Met } else { Stop::Barrier }))
        }
        Action::DependencyWait => {
            if cx.grid.dependencies_done() {
                // A block that begins late waits for nothing, and knows as much as one that did.
                if let Some(watch) = &mut cx.block.watch {
                    watch.dependency_wait();
                }
                fragments.at(index).pc = pc + 1;
                return Ok(None);
            }
            fragments.at(index).wait = Wait::Dependency;
            Ok(Some(Stop::Met))
        }
        Action::Alu(_) | Action::Exec(_) | Action::Branch => Ok(None),
    }
}

/// The member mask, if all lanes bring the same.
fn uniform_member(cx: &Cx<'_>, step: &Step, mask: Mask) -> Option<Mask> {
    if step.src[3] == NONE {
        return Some(ALL);
    }
    let first = cx.registers.word_lane(step.src[3], mask.trailing_zeros() as usize);
    if mask == ALL {
        let differ =
            cx.registers.word(step.src[3]).iter().fold(0, |differ, member| differ | (member ^ first));
        return (differ == 0).then_some(first);
    }
    lanes(mask).all(|lane| cx.registers.word_lane(step.src[3], lane) == first).then_some(first)
}

/// The member mask of the first lane of `rest`, and the lanes that bring the same.
fn group_of(cx: &Cx<'_>, step: &Step, rest: Mask) -> (Mask, Mask) {
    let member = |lane| if step.src[3] == NONE { ALL } else { cx.registers.word_lane(step.src[3], lane) };
    let first = member(rest.trailing_zeros() as usize);
    (first, lanes(rest).fold(0, |group, lane| group | Mask::from(member(lane) == first) << lane))
}

/// A lane must name itself.
fn own_mask(cx: &Cx<'_>, step: &Step, group: Mask, member: Mask) -> Result<(), Box<Fault>> {
    let outside = group & !member;
    if outside != 0 && step.src[3] != NONE {
        let lane = outside.trailing_zeros() as usize;
        let what = format!(
            "lane {lane} executes a .sync operation with the mask {member:#010x}, which does not name it"
        );
        return Err(cx.fault(step.place, lane, Kind::WrongMask, what));
    }
    Ok(())
}

/// Named lanes should not have ended.
#[inline]
fn gone_lanes(cx: &Cx<'_>, step: &Step, member: Mask, lane: usize) -> Result<(), Box<Fault>> {
    let gone = member & cx.warp.exist & !cx.warp.alive;
    if cx.grid.checked && gone != 0 {
        let what = format!(
            "a .sync operation with the mask {member:#010x}, but lane {} has ended",
            gone.trailing_zeros()
        );
        return Err(cx.fault(step.place, lane, Kind::WrongMask, what));
    }
    Ok(())
}
