//! `cp.async`: 4, 8 or 16 bytes for each lane from global to shared memory, in groups that each thread counts for itself.

use std::collections::VecDeque;

use super::{Awaited, What};
use crate::check::Access;
use crate::exec::mbarrier::Mbarrier;
use crate::exec::registers::{Class, Mask, lanes};
use crate::exec::words::Words;
use crate::exec::{Cx, address, raw};
use crate::fault::{Fault, Kind};
use crate::lower::Operands;
use crate::program::{Action, Outcome, Results, Step};
use crate::ptx::ast::Instruction;

/// `src[0]` is how many bytes are read; the rest is zero.
const SIZED: u32 = 1 << 8;
/// Where predicate `src[0]` holds, zeros are written and nothing is read.
const IGNORE: u32 = 1 << 9;
/// `cp.async.mbarrier.arrive.noinc`.
const NO_INCREMENT: u32 = 1 << 10;

/// One `cp.async` of a warp.
#[derive(Clone, Debug)]
struct Copy {
    serial: u64,
    place: u32,
    /// Lanes that have not landed.
    lanes: Mask,
    /// The group of each lane.
    groups: [u32; 32],
    /// Bytes written.
    bytes: u8,
    /// Bytes read.
    sizes: [u8; 32],
    to: [u32; 32],
    from: [u64; 32],
}

/// The copies of a warp, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pending: VecDeque<Copy>,
    /// How many groups each lane has committed.
    committed: [u32; 32],
    /// The same of bulk copies.
    pub(super) bulk_committed: [u32; 32],
}

impl Queue {
    pub(super) fn reset(&mut self) {
        self.pending.clear();
        self.committed = [0; 32];
        self.bulk_committed = [0; 32];
    }
}

pub(super) fn lower(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let mut words = Words::new(i);
    words.take("async");
    let cached = words.take_one(&["ca", "cg"]).ok_or("it is .ca or .cg")?;
    if words.take_one(&["shared", "shared::cta"]).is_none() || !words.take("global") {
        return Err("it goes from .global to .shared".into());
    }
    words.take_one(&["L2::64B", "L2::128B", "L2::256B"]);
    let policy = words.take("L2::cache_hint");
    words.end()?;
    let operands = match (&i.operands[..], policy) {
        ([rest @ .., _], true) => rest,
        (all, _) => all,
    };
    let (to, from, bytes, size) = match operands {
        [to, from, bytes] => (to, from, bytes, None),
        [to, from, bytes, size] => (to, from, bytes, Some(size)),
        _ => return Err("it takes two addresses, a size, and how much to read".into()),
    };
    let bytes = match o.integer(bytes) {
        Some(16) => 16,
        Some(bytes @ (4 | 8)) if cached == "ca" => bytes,
        _ => return Err("it copies 4, 8 or 16 bytes, and with .cg 16".into()),
    };
    let mut step = Step::new(Action::Exec(issue));
    step.imm = bytes as i64;
    if let Some(size) = size {
        if o.class(size) == Some(Class::Pred) {
            let (slot, negated) = o.pred(size)?;
            step.src[0] = slot;
            step.flags |= IGNORE | u32::from(negated);
        } else {
            step.src[0] = o.word(size)?;
            step.flags |= SIZED;
        }
    }
    let mut list = Vec::new();
    address::push(&mut list, o, to)?;
    address::push(&mut list, o, from)?;
    (step.list, step.results) = (o.list(&list), Results::At(0, 0));
    Ok(step)
}

pub(super) fn lower_commit(i: &Instruction) -> Result<Step, String> {
    match i.operands[..] {
        [] => Ok(Step::new(Action::Exec(commit))),
        _ => Err("it takes no operands".into()),
    }
}

pub(super) fn lower_wait(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let mut step = Step::new(Action::Exec(wait));
    step.imm = super::bulk::groups(i, o)?;
    Ok(step)
}

pub(super) fn lower_wait_all(i: &Instruction) -> Result<Step, String> {
    match i.operands[..] {
        [] => Ok(Step::new(Action::Exec(wait_all))),
        _ => Err("it takes no operands".into()),
    }
}

pub(super) fn lower_arrive(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let mut words = Words::new(i);
    if !(words.take("async") & words.take("mbarrier") & words.take("arrive") & words.take("b64")) {
        return Err("only cp.async.mbarrier.arrive of .b64 is known".into());
    }
    let mut step = Step::new(Action::Exec(arrive));
    if words.take("noinc") {
        step.flags |= NO_INCREMENT;
    }
    words.take_one(&["shared", "shared::cta"]);
    words.end()?;
    let [at] = &i.operands[..] else { return Err("it takes the address of an mbarrier".into()) };
    let mut list = Vec::new();
    address::push(&mut list, o, at)?;
    (step.list, step.results) = (o.list(&list), Results::At(0, 0));
    Ok(step)
}

fn issue(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let (to, from) = cx.grid.launch.program.list(step).split_at(address::PLACES);
    let to = cx.addresses(to);
    let from = cx.addresses(from);
    let bytes = step.imm as usize;
    let sizes = sizes(cx, step, mask, bytes)?;
    let index = cx.warp.index;
    cx.block.copies.serial += 1;
    let mut copy = Copy {
        serial: cx.block.copies.serial,
        place: step.place,
        lanes: mask,
        groups: cx.block.copies.queue(index).committed,
        bytes: bytes as u8,
        sizes,
        to: [0; 32],
        from,
    };
    for lane in lanes(mask) {
        let size = usize::from(sizes[lane]);
        let at = cx.shared_bounds(step.place, lane, to[lane], bytes)?;
        copy.to[lane] = at as u32;
        // Of a source that is not read, too.
        if from[lane] & (bytes as u64 - 1) != 0 {
            return Err(cx.misaligned(step.place, lane, from[lane], bytes, "global"));
        }
        if size != 0 {
            cx.locate(step.place, lane, from[lane], size)?;
            if cx.grid.checked {
                cx.written_map(step.place, lane, from[lane], size, Access::Read)?;
            }
        }
        if cx.grid.checked {
            cx.shared_in_flight(step.place, lane, at, bytes)?;
        }
    }
    tell_sources(cx, &copy, mask)?;
    cx.block.copies.queue(index).pending.push_back(copy);
    Ok(())
}

/// How many bytes each lane reads.
#[inline]
fn sizes(cx: &Cx<'_>, step: &Step, mask: Mask, bytes: usize) -> Result<[u8; 32], Box<Fault>> {
    let mut sizes = [bytes as u8; 32];
    if step.flags & IGNORE != 0 {
        let held = cx.registers.pred(step.src[0]);
        for lane in lanes(if step.flags & 1 != 0 { !held } else { held }) {
            sizes[lane] = 0;
        }
    }
    if step.flags & SIZED != 0 {
        let given = cx.registers.word(step.src[0]);
        for lane in lanes(mask) {
            if given[lane] as usize > bytes {
                let message = format!("cp.async of {bytes} bytes is to read {}, which is more", given[lane]);
                return Err(cx.fault(step.place, lane, Kind::Misuse, message));
            }
            sizes[lane] = given[lane] as u8;
        }
    }
    Ok(sizes)
}

fn commit(cx: &mut Cx<'_>, _: &Step, mask: Mask) -> Outcome {
    let queue = cx.block.copies.queue(cx.warp.index);
    for lane in lanes(mask) {
        queue.committed[lane] += 1;
    }
    Ok(())
}

fn wait(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let warp = cx.warp.index;
    let open = step.imm as u32;
    // A group is due if `open` or more were committed after it.
    let due = cx.block.copies.queue(warp).committed.map(|committed| committed.saturating_sub(open));
    land_where(cx, warp, true, |copy| {
        lanes(copy.lanes & mask).fold(0, |out, lane| out | Mask::from(copy.groups[lane] < due[lane]) << lane)
    })
}

fn wait_all(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    commit(cx, step, mask)?;
    land_where(cx, cx.warp.index, true, |copy| copy.lanes & mask)
}

/// Lands the copies of some lanes of a warp that were issued up to a serial.
pub(super) fn land_until(cx: &mut Cx<'_>, warp: u32, arriving: Mask, serial: u64) -> Outcome {
    land_where(cx, warp, false, |copy| if copy.serial <= serial { copy.lanes & arriving } else { 0 })
}

/// Lands the lanes of each copy that `due` picks. `waited` says that the threads which issued them do so.
fn land_where(cx: &mut Cx<'_>, warp: u32, waited: bool, due: impl Fn(&Copy) -> Mask) -> Outcome {
    // Taken out while `cx` is used; nothing here looks at the queue.
    let mut pending = std::mem::take(&mut cx.block.copies.queue(warp).pending);
    let mut result = Ok(());
    for copy in &mut pending {
        let picked = due(copy);
        if picked != 0 && result.is_ok() {
            result = land(cx, copy, picked);
            if waited && cx.grid.clocked && result.is_ok() {
                result = done_now(cx, copy, picked);
            }
            copy.lanes &= !picked;
        }
    }
    while pending.front().is_some_and(|copy| copy.lanes == 0) {
        pending.pop_front();
    }
    if pending.iter().any(|copy| copy.lanes == 0) {
        pending.retain(|copy| copy.lanes != 0);
    }
    cx.block.copies.queue(warp).pending = pending;
    result
}

fn land(cx: &mut Cx<'_>, copy: &Copy, picked: Mask) -> Outcome {
    match copy.bytes {
        4 => land_bytes::<4>(cx, copy, picked),
        8 => land_bytes::<8>(cx, copy, picked),
        _ => land_bytes::<16>(cx, copy, picked),
    }
}

fn land_bytes<const BYTES: usize>(cx: &mut Cx<'_>, copy: &Copy, picked: Mask) -> Outcome {
    for lane in lanes(picked) {
        let mut data = [0; BYTES];
        let size = usize::from(copy.sizes[lane]);
        if size != 0 {
            let host = match cx.windows.host(copy.from[lane], size) {
                Some(host) => host,
                None => cx.locate(copy.place, lane, copy.from[lane], size)?,
            };
            raw::read(host, &mut data[..size]);
        }
        cx.shared_landed(copy.to[lane] as usize, &data);
    }
    Ok(())
}

/// Tells the watch that some lanes read their sources.
fn tell_sources(cx: &mut Cx<'_>, copy: &Copy, mask: Mask) -> Outcome {
    if cx.block.watch.is_none() {
        return Ok(());
    }
    let mut whole = 0;
    for lane in lanes(mask) {
        match copy.sizes[lane] {
            0 => {}
            size if size == copy.bytes => whole |= (1 << lane) as Mask,
            size => cx.tell(copy.place, lane, copy.from[lane], usize::from(size), Access::Read)?,
        }
    }
    if whole != 0 {
        cx.tell_reads(copy.place, whole, &copy.from, usize::from(copy.bytes))?;
    }
    Ok(())
}

/// Copies that their own threads waited for: to the checks their sources were read and their targets written just now, so that a barrier
/// between the issue and the wait orders neither. Those that arrive at an mbarrier stay as they were: whoever waits for it knows what came
/// before the arrival, and that is all they need.
fn done_now(cx: &mut Cx<'_>, copy: &Copy, picked: Mask) -> Outcome {
    let warp = cx.warp.index;
    let tied = cx.block.copies.awaited.iter().fold(0, |out, awaited| match awaited.what {
        What::Arrivals { lanes, serial } if awaited.warp == warp && copy.serial <= serial => out | lanes,
        _ => out,
    });
    let picked = picked & !tied;
    if cx.grid.checked {
        for lane in lanes(picked) {
            let (at, bytes) = (copy.to[lane] as usize, usize::from(copy.bytes));
            cx.shared_written_now(copy.place, lane, at, bytes);
        }
    }
    tell_sources(cx, copy, picked)
}

fn arrive(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = cx.addresses(cx.grid.launch.program.list(step));
    let (serial, warp) = (cx.block.copies.serial, cx.warp.index);
    let first = cx.block.copies.awaited.len();
    let mut rest = mask;
    while rest != 0 {
        let leader = rest.trailing_zeros() as usize;
        let same = lanes(rest)
            .filter(|&lane| addresses[lane] == addresses[leader])
            .fold(0, |out, lane| out | (1 << lane) as Mask);
        rest &= !same;
        let mut at = 0;
        for lane in lanes(same) {
            at = cx.mbarrier(step.place, lane, addresses[lane])?;
            if step.flags & NO_INCREMENT == 0 {
                cx.change_mbarrier(step.place, lane, at, Mbarrier::await_one_more)?;
            }
        }
        if let Some(watch) = &mut cx.block.watch {
            watch.mbarrier_arrive(warp, same, at as u32);
        }
        let what = What::Arrivals { lanes: same, serial };
        cx.block.copies.awaited.push(Awaited { at, what, clock: Vec::new(), place: step.place, warp });
    }
    let clock = cx.release_clock();
    for awaited in cx.block.copies.awaited.iter_mut().skip(first) {
        awaited.clock.clone_from(&clock);
    }
    Ok(())
}

/// A warp has ended.
pub(super) fn warp_end(cx: &mut Cx<'_>) -> Outcome {
    if !cx.grid.checked {
        return Ok(());
    }
    let warp = cx.warp.index;
    let awaited = cx.block.copies.awaited.iter().filter(|a| a.warp == warp);
    let tied = awaited.fold(0, |out, a| match a.what {
        What::Arrivals { lanes, .. } => out | lanes,
        What::Bulk(_) => out,
    });
    let found = cx.block.copies.queue(warp).pending.iter().find(|copy| copy.lanes & !tied != 0);
    let Some(copy) = found else { return Ok(()) };
    let lane = (copy.lanes & !tied).trailing_zeros() as usize;
    let (place, uncommitted) = (copy.place, copy.groups[lane]);
    let uncommitted = cx.block.copies.queue(warp).committed[lane] == uncommitted;
    let message = format!(
        "the thread ended with a cp.async under way that {}",
        if uncommitted { "was never committed nor waited for" } else { "was never waited for" }
    );
    Err(cx.fault(place, lane, Kind::Misuse, message))
}
