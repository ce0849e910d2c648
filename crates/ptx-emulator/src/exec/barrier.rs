//! The sixteen named barriers of a block.
//!
//! Arrivals are counted in threads. A warp whose living lanes have all come counts whole, as on the hardware, so that a barrier for 64 threads
//! works in a block of 48.

use super::Cx;
use super::registers::{Mask, lanes};
use crate::check::clocks::{Clock, join};
use crate::fault::{Fault, Kind};
use crate::program::{BarrierKind, NONE, Step};

/// The barrier of a cluster of one block: behind those that programs can name.
pub(crate) const CLUSTER_BARRIER: u8 = 16;

/// A warp, and those of its lanes that are meant.
pub(crate) type Party = (u32, Mask);

/// One barrier.
#[derive(Debug, Default)]
struct Barrier {
    /// Counts completions.
    phase: u32,
    /// Threads that must come; `None` is all of the block. Set by the first arrival of a phase.
    expected: Option<u32>,
    /// Threads that came.
    count: u32,
    /// Lanes that came, by warp.
    arrived: Vec<Party>,
    /// Those of them that wait.
    waiting: Vec<Party>,
    /// Where the first arrival was, and who.
    first: Option<(u32, u32)>,
    /// How many threads brought a true predicate.
    votes: u32,
    /// How many of the votes were asked for.
    voters: u32,
    clock: Clock,
    /// What the last phase came to: (true predicates, all voters, clock).
    result: (u32, u32, Clock),
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    all: [Barrier; CLUSTER_BARRIER as usize + 1],
    /// Barriers that completed and whose waiters are still to be woken.
    pub(crate) completed: Vec<u8>,
}

impl Barriers {
    /// A block begins.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The current phase.
    pub(crate) fn phase(&self, id: u8) -> u32 {
        self.all[usize::from(id)].phase
    }

    /// What the last complete phase came to: how many predicates were true, and of how many.
    pub(crate) fn votes(&self, id: u8) -> (u32, u32) {
        let (votes, voters, _) = self.all[usize::from(id)].result;
        (votes, voters)
    }

    /// The clock of the last complete phase.
    pub(crate) fn clock(&self, id: u8) -> &[u32] {
        &self.all[usize::from(id)].result.2
    }

    /// Threads ended: barriers for the whole block may be complete.
    pub(crate) fn look_again(&mut self, alive: u32) {
        for id in 0..=CLUSTER_BARRIER {
            let barrier = &self.all[usize::from(id)];
            if barrier.count > 0 && barrier.expected.is_none() && barrier.count >= alive {
                self.complete(id);
            }
        }
    }

    /// How many of how many have come, for a report.
    pub(crate) fn describe(&self, id: u8, alive: u32) -> String {
        let barrier = &self.all[usize::from(id)];
        format!("{} of {} threads came", barrier.count, barrier.expected.unwrap_or(alive))
    }

    fn complete(&mut self, id: u8) {
        let barrier = &mut self.all[usize::from(id)];
        barrier.phase += 1;
        barrier.count = 0;
        barrier.expected = None;
        barrier.first = None;
        barrier.result = (barrier.votes, barrier.voters, std::mem::take(&mut barrier.clock));
        (barrier.votes, barrier.voters) = (0, 0);
        self.completed.push(id);
    }

    /// Who came and who waited in the phase that was completed last; forgotten by this.
    pub(crate) fn take_parties(&mut self, id: u8) -> (Vec<Party>, Vec<Party>) {
        let barrier = &mut self.all[usize::from(id)];
        (std::mem::take(&mut barrier.arrived), std::mem::take(&mut barrier.waiting))
    }
}

/// The operands of a barrier for one lane: its number and how many threads it is for.
pub(crate) fn operands(cx: &Cx<'_>, step: &Step, lane: usize) -> (u32, Option<u32>) {
    let id = cx.registers.word_lane(step.src[0], lane);
    let count = (step.src[1] != NONE).then(|| cx.registers.word_lane(step.src[1], lane));
    (id, count)
}

/// Lanes of one warp arrive. Gives the barrier's number and the phase they are in.
pub(crate) fn arrive(
    cx: &mut Cx<'_>,
    step: &Step,
    mask: Mask,
    kind: BarrierKind,
) -> Result<(u8, u32), Box<Fault>> {
    let lane = mask.trailing_zeros() as usize;
    let misuse = |cx: &Cx<'_>, what: String| Err(cx.fault(step.place, lane, Kind::Misuse, what));
    let (id, expected) = operands(cx, step, lane);
    if id > u32::from(CLUSTER_BARRIER) {
        return misuse(cx, format!("barrier {id}: there are barriers 0 to 15"));
    }
    if let Some(count) = expected
        && (count == 0 || !count.is_multiple_of(32))
    {
        return misuse(cx, format!("barrier {id} for {count} threads: the number must be a multiple of 32"));
    }
    if expected.is_none() && kind == BarrierKind::Arrive {
        return misuse(cx, format!("bar.arrive at barrier {id} needs the number of threads"));
    }
    let id = id as u8;
    let warp = cx.warp.index;
    let first = cx.block.barriers.all[usize::from(id)].first;
    if let Some((place, thread)) = first {
        let awaited = cx.block.barriers.all[usize::from(id)].expected;
        if awaited != expected {
            let words = |n: Option<u32>| n.map_or("the whole block".into(), |n| format!("{n} threads"));
            let what = format!(
                "barrier {id} for {}, but threads wait at it as one for {}",
                words(expected),
                words(awaited)
            );
            let mut fault = cx.fault(step.place, lane, Kind::Misuse, what);
            fault.other = Some(cx.site(place, thread));
            return Err(fault);
        }
        if cx.grid.checked && expected.is_none() && place != step.place {
            let what = format!("barrier {id} reached at different places by threads of one block");
            let mut fault = cx.fault(step.place, lane, Kind::DivergentBarrier, what);
            fault.other = Some(cx.site(place, thread));
            return Err(fault);
        }
    }
    let votes = match kind {
        BarrierKind::Sync | BarrierKind::Arrive => None,
        _ => {
            let negated = if step.flags & 4 != 0 { !0 } else { 0 };
            Some(((cx.registers.pred(step.src[2]) ^ negated) & mask).count_ones())
        }
    };
    let clock = if cx.grid.clocked { cx.release_clock() } else { Clock::new() };
    let (alive, block_alive, thread) = (cx.warp.alive, cx.block.alive, cx.thread(lane));
    let barrier = &mut cx.block.barriers.all[usize::from(id)];
    if barrier.first.is_none() {
        barrier.first = Some((step.place, thread));
        barrier.expected = expected;
        barrier.arrived.clear();
        barrier.waiting.clear();
    }
    join(&mut barrier.clock, &clock);
    barrier.count += mask.count_ones();
    barrier.arrived.push((warp, mask));
    if kind != BarrierKind::Arrive {
        barrier.waiting.push((warp, mask));
    }
    if let Some(votes) = votes {
        barrier.votes += votes;
        barrier.voters += mask.count_ones();
    }
    let phase = barrier.phase;
    let complete = match barrier.expected {
        None => barrier.count >= block_alive,
        Some(expected) => {
            let of_warp = barrier.arrived.iter().filter(|(w, _)| *w == warp).fold(0, |all, (_, m)| all | m);
            if of_warp == alive {
                barrier.count += 32 - alive.count_ones();
            }
            barrier.count >= expected
        }
    };
    if complete {
        cx.block.barriers.complete(id);
    }
    Ok((id, phase))
}

/// Gives the waiting lanes of a reduction its result.
pub(crate) fn deliver(cx: &mut Cx<'_>, step: &Step, mask: Mask, id: u8, kind: BarrierKind) {
    let (votes, voters) = cx.block.barriers.votes(id);
    let all = |yes: bool| if yes { !0 } else { 0 };
    match kind {
        BarrierKind::Sync | BarrierKind::Arrive => {}
        BarrierKind::Popc => {
            for lane in lanes(mask) {
                cx.registers.set_word_lane(step.dst, lane, votes);
            }
        }
        BarrierKind::And => cx.registers.set_pred(step.dst, all(votes == voters), mask),
        BarrierKind::Or => cx.registers.set_pred(step.dst, all(votes > 0), mask),
    }
}
