//! The instructions on mbarriers.
//!
//! Lanes act one after the other, lowest first: arrivals of one warp are as many arrivals as lanes. A wait that fails is where copies tied to
//! the mbarrier land, because that is as late as they may.

use super::{Mbarrier, Wait};
use crate::check::{Access, Order, Scope};
use crate::exec::copies;
use crate::exec::registers::{Class, Mask, lanes};
use crate::exec::words::Words;
use crate::exec::{Cx, address};
use crate::fault::{Fault, Kind};
use crate::lower::Operands;
use crate::program::{Action, ExecFn, NONE, Outcome, Results, Step};
use crate::ptx::ast::Instruction;

/// The arrival takes itself out of later phases.
const DROP: u32 = 1 << 8;
/// The arrival announces `src[1]` bytes and counts once.
const EXPECT: u32 = 1 << 9;
/// The arrival must not end the phase.
const NO_COMPLETE: u32 = 1 << 10;
/// No ordering of other accesses.
const RELAXED: u32 = 1 << 11;
/// The wait is for a parity, not for a state.
const PARITY: u32 = 1 << 12;

/// Lowers `mbarrier.*`.
pub(crate) fn lower(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let mut words = Words::new(i);
    let operation = words.first().unwrap_or_default();
    let mut flags = 0;
    if words.take("relaxed") {
        flags |= RELAXED;
    }
    words.take_one(&["acquire", "release"]);
    words.take_one(&["cta", "cluster"]);
    let cluster = words.take("shared::cluster");
    words.take_one(&["shared", "shared::cta"]);
    for (word, flag) in [("expect_tx", EXPECT), ("noComplete", NO_COMPLETE), ("parity", PARITY)] {
        if words.take(word) {
            flags |= flag;
        }
    }
    if !words.take("b64") {
        return Err("it is of .b64".into());
    }
    words.end()?;
    let allowed = match operation {
        "arrive" | "arrive_drop" => EXPECT | NO_COMPLETE | RELAXED,
        "test_wait" | "try_wait" => PARITY | RELAXED,
        "expect_tx" | "complete_tx" => RELAXED,
        _ => 0,
    };
    if flags & !allowed != 0 || cluster && matches!(operation, "init" | "inval" | "test_wait" | "try_wait") {
        return Err("these modifiers do not go together".into());
    }
    let (run, result, at, more): (ExecFn, _, _, _) = match (operation, &i.operands[..]) {
        ("init", [at, count]) => (init, None, at, Some((count, Class::Word))),
        ("inval", [at]) => (inval, None, at, None),
        ("expect_tx", [at, bytes]) => (expect, None, at, Some((bytes, Class::Word))),
        ("complete_tx", [at, bytes]) => (complete, None, at, Some((bytes, Class::Word))),
        ("arrive" | "arrive_drop", [state, at, count]) => {
            (arrive, Some((state, Class::Long)), at, Some((count, Class::Word)))
        }
        ("arrive" | "arrive_drop", [state, at]) if flags & (EXPECT | NO_COMPLETE) == 0 => {
            (arrive, Some((state, Class::Long)), at, None)
        }
        ("test_wait", [done, at, phase]) | ("try_wait", [done, at, phase] | [done, at, phase, _]) => {
            let class = if flags & PARITY != 0 { Class::Word } else { Class::Long };
            (wait, Some((done, Class::Pred)), at, Some((phase, class)))
        }
        ("pending_count", [count, state]) => {
            let mut step = Step::new(Action::Exec(pending_count));
            step.dst = o.destination(count, Class::Word)?;
            step.src[0] = o.long(state)?;
            return Ok(step);
        }
        _ => return Err("no such operation with so many operands".into()),
    };
    if operation == "arrive_drop" {
        flags |= DROP;
    }
    let mut step = Step::new(Action::Exec(run));
    step.flags = flags;
    if let Some((operand, class)) = result {
        step.dst = o.destination(operand, class)?;
    }
    if let Some((operand, class)) = more {
        step.src[0] = o.source(operand, class)?;
    }
    let mut list = Vec::new();
    address::push(&mut list, o, at)?;
    (step.list, step.results) = (o.list(&list), Results::At(0, 0));
    Ok(step)
}

/// The addresses of a step's mbarrier.
fn addresses(cx: &Cx<'_>, step: &Step) -> [u64; 32] {
    cx.addresses(cx.grid.launch.program.list(step))
}

/// An access that orders itself.
const ATOMIC: Access =
    Access::Strong { reads: true, writes: true, order: Order::Relaxed, scope: Scope::Block };

impl Cx<'_> {
    /// The offset of the mbarrier at an address, which must be one.
    pub(crate) fn mbarrier(&mut self, place: u32, lane: usize, address: u64) -> Result<usize, Box<Fault>> {
        let at = self.mbarrier_bounds(place, lane, address)?;
        let Some(mbarrier) = self.block.mbarriers.get(at) else {
            let message =
                format!("there is no mbarrier at {at:#x} in shared memory; mbarrier.init comes first");
            return Err(self.fault(place, lane, Kind::Misuse, message));
        };
        let summary = mbarrier.summary().to_le_bytes();
        if self.block.shared.get(at..at + 8) != Some(&summary[..]) {
            let message = format!("the mbarrier at {at:#x} in shared memory was written over");
            return Err(self.fault(place, lane, Kind::Misuse, message));
        }
        if self.grid.checked {
            self.shared(place, lane, address, 8, ATOMIC)?;
        }
        Ok(at)
    }

    fn mbarrier_bounds(&self, place: u32, lane: usize, address: u64) -> Result<usize, Box<Fault>> {
        if !matches!(address >> 56, 0 | 1) || address >> 56 == 0 && address >> 32 != 0 {
            let message = format!("an mbarrier at {address:#x}, which is not in shared memory");
            return Err(self.fault(place, lane, Kind::OutOfBounds, message));
        }
        self.shared_bounds(place, lane, address, 8)
    }

    /// Changes the mbarrier at an offset that [`Cx::mbarrier`] gave.
    pub(crate) fn change_mbarrier<T>(
        &mut self,
        place: u32,
        lane: usize,
        at: usize,
        change: impl FnOnce(&mut Mbarrier) -> Result<T, String>,
    ) -> Result<T, Box<Fault>> {
        let Some(mbarrier) = self.block.mbarriers.get_mut(at) else {
            return Err(self.fault(place, lane, Kind::Misuse, format!("the mbarrier at {at:#x} is gone")));
        };
        let result = change(mbarrier);
        let summary = mbarrier.summary().to_le_bytes();
        if let Some(bytes) = self.block.shared.get_mut(at..at + 8) {
            bytes.copy_from_slice(&summary);
        }
        result.map_err(|what| self.fault(place, lane, Kind::Misuse, format!("mbarrier at {at:#x}: {what}")))
    }
}

fn init(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = addresses(cx, step);
    let counts = cx.registers.word(step.src[0]);
    for lane in lanes(mask) {
        let at = cx.mbarrier_bounds(step.place, lane, addresses[lane])?;
        let whole = cx
            .block
            .mbarriers
            .get(at)
            .is_some_and(|old| cx.block.shared.get(at..at + 8) == Some(&old.summary().to_le_bytes()[..]));
        if whole && cx.grid.checked {
            let message = format!(
                "mbarrier.init of {at:#x}, which is an mbarrier already{}; mbarrier.inval comes first",
                if cx.block.mbarriers.get(at).is_some_and(Mbarrier::busy) { " and in use" } else { "" }
            );
            return Err(cx.fault(step.place, lane, Kind::Misuse, message));
        }
        let new =
            Mbarrier::new(counts[lane]).map_err(|what| cx.fault(step.place, lane, Kind::Misuse, what))?;
        cx.shared(step.place, lane, addresses[lane], 8, Access::Write)?;
        cx.block.mbarriers.insert(at, new);
        cx.change_mbarrier(step.place, lane, at, |_| Ok(()))?;
    }
    Ok(())
}

fn inval(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = addresses(cx, step);
    for lane in lanes(mask) {
        let at = cx.mbarrier(step.place, lane, addresses[lane])?;
        cx.shared(step.place, lane, addresses[lane], 8, Access::Write)?;
        if copies::under_way_to(cx, at) {
            let message = format!("mbarrier.inval of {at:#x}, which copies under way are to arrive at");
            return Err(cx.fault(step.place, lane, Kind::Misuse, message));
        }
        cx.block.mbarriers.remove(at);
    }
    Ok(())
}

fn expect(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = addresses(cx, step);
    let counts = cx.registers.word(step.src[0]);
    for lane in lanes(mask) {
        let at = cx.mbarrier(step.place, lane, addresses[lane])?;
        cx.change_mbarrier(step.place, lane, at, |mbarrier| mbarrier.expect(counts[lane]))?;
    }
    Ok(())
}

fn complete(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = addresses(cx, step);
    let counts = cx.registers.word(step.src[0]);
    for lane in lanes(mask) {
        let at = cx.mbarrier(step.place, lane, addresses[lane])?;
        cx.change_mbarrier(step.place, lane, at, |mbarrier| mbarrier.complete(counts[lane], &[]))?;
    }
    Ok(())
}

fn arrive(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = addresses(cx, step);
    let counts = if step.src[0] == NONE { [1; 32] } else { cx.registers.word(step.src[0]) };
    let mut places = [0; 32];
    for lane in lanes(mask) {
        places[lane] = cx.mbarrier(step.place, lane, addresses[lane])?;
    }
    // After the accesses: to the shadow a release orders them before what the warp does next.
    let clock = if step.flags & RELAXED != 0 { Vec::new() } else { cx.release_clock() };
    let mut states = [0; 32];
    for lane in lanes(mask) {
        let at = places[lane];
        if step.flags & RELAXED == 0
            && let Some(watch) = &mut cx.block.watch
        {
            watch.mbarrier_arrive(cx.warp.index, 1 << lane, at as u32);
        }
        states[lane] = cx.change_mbarrier(step.place, lane, at, |mbarrier| {
            let mut count = counts[lane];
            if step.flags & EXPECT != 0 {
                mbarrier.expect(count)?;
                count = 1;
            }
            if step.flags & NO_COMPLETE != 0 && mbarrier.would_complete(count, 0) {
                return Err("arrive.noComplete is the last arrival of its phase".into());
            }
            mbarrier.arrive(count, step.flags & DROP != 0, &clock)
        })?;
    }
    if step.dst != NONE {
        cx.registers.set_long(step.dst, &states, mask);
    }
    Ok(())
}

fn wait(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = addresses(cx, step);
    let waits: [Wait; 32] = if step.flags & PARITY != 0 {
        cx.registers.word(step.src[0]).map(Wait::Parity)
    } else {
        cx.registers.long(step.src[0]).map(Wait::State)
    };
    let mut done: Mask = 0;
    let mut before = None;
    for lane in lanes(mask) {
        // Most often all lanes wait for the same.
        if let Some((address, wait, passed)) = before
            && (address, wait) == (addresses[lane], waits[lane])
        {
            done |= Mask::from(passed) << lane;
            continue;
        }
        let passed = wait_one(cx, step, lane, addresses[lane], waits[lane])?;
        done |= Mask::from(passed) << lane;
        before = Some((addresses[lane], waits[lane], passed));
    }
    if step.dst != NONE {
        cx.registers.set_pred(step.dst, done, mask);
    }
    if done == 0 {
        // It waits for somebody else: no use in going on.
        cx.warp.yielding = true;
        cx.block.mbarriers.polled_in_vain();
    }
    Ok(())
}

/// Whether the phase is complete for one lane; what it learns by that is learnt for the warp.
fn wait_one(cx: &mut Cx<'_>, step: &Step, lane: usize, address: u64, wait: Wait) -> Result<bool, Box<Fault>> {
    let at = cx.mbarrier(step.place, lane, address)?;
    let mut passed = passed(cx, step, lane, at, wait)?;
    if !passed && copies::deliver(cx, step.place, lane, at)? {
        passed = self::passed(cx, step, lane, at, wait)?;
    }
    if passed && step.flags & RELAXED == 0 {
        if let Some(watch) = &mut cx.block.watch {
            watch.mbarrier_wait(cx.warp.index, 1 << lane, at as u32);
        }
        if cx.grid.checked {
            let clock = cx.block.mbarriers.get(at).map(Mbarrier::knowledge).unwrap_or_default();
            cx.acquire_clock(&clock);
        }
    }
    Ok(passed)
}

fn passed(cx: &Cx<'_>, step: &Step, lane: usize, at: usize, wait: Wait) -> Result<bool, Box<Fault>> {
    let result = match cx.block.mbarriers.get(at) {
        Some(mbarrier) => mbarrier.passed(wait),
        None => Err("it is gone".into()),
    };
    result.map_err(|what| {
        cx.fault(step.place, lane, Kind::Misuse, format!("waiting for the mbarrier at {at:#x}: {what}"))
    })
}

fn pending_count(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let counts = cx.registers.long(step.src[0]).map(Mbarrier::pending_of);
    if step.dst != NONE {
        cx.registers.set_word(step.dst, &counts, mask);
    }
    Ok(())
}
