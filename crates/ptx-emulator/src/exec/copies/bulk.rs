//! `cp.async.bulk` in one dimension: global to shared with bytes counted by an mbarrier, shared to global in groups.
//!
//! A store's source is read when the thread waits with `.read`, and its target written when it waits in full or the block ends: between the
//! two the bytes travel with the copy.

use super::{Awaited, What};
use crate::check::Access;
use crate::exec::registers::{Mask, lanes};
use crate::exec::words::Words;
use crate::exec::{Cx, address, raw};
use crate::fault::Kind;
use crate::lower::Operands;
use crate::program::{Action, ExecFn, Outcome, Results, Step};
use crate::ptx::ast::{Instruction, Operand};

/// `wait_group.read`: only the sources are waited for.
const READ: u32 = 1 << 8;
/// What both ends and the size are multiples of.
const UNIT: usize = 16;

/// A copy into shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    from: Source,
    to: usize,
    bytes: u32,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Global(u64),
    Shared(usize),
}

/// A copy out of shared memory.
#[derive(Debug)]
pub(crate) struct Store {
    place: u32,
    warp: u32,
    lane: u32,
    group: u32,
    from: usize,
    to: u64,
    bytes: u32,
    /// The bytes, once the source was read.
    data: Option<Vec<u8>>,
}

pub(super) fn lower(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let mut words = Words::new(i);
    words.take("async");
    words.take("bulk");
    if words.take("commit_group") {
        words.end()?;
        return Ok(Step::new(Action::Exec(commit)));
    }
    if words.take("wait_group") {
        let mut step = Step::new(Action::Exec(wait));
        if words.take("read") {
            step.flags |= READ;
        }
        words.end()?;
        step.imm = groups(i, o)?;
        return Ok(step);
    }
    let policy = words.take("L2::cache_hint");
    let operands = match (&i.operands[..], policy) {
        ([rest @ .., _], true) => rest,
        (all, _) => all,
    };
    if words.take("prefetch") {
        if !(words.take("L2") & words.take("global")) {
            return Err("a prefetch is .L2.global".into());
        }
        words.end()?;
        let [from, size] = operands else { return Err("it takes an address and a size".into()) };
        return with_addresses(prefetch, &[from], size, o);
    }
    // The spaces in the order written: where to, where from.
    let spaces: Vec<&str> = i.modifiers.iter().map(String::as_str).filter(|w| is_space(w)).collect();
    let tied = words.take("mbarrier::complete_tx::bytes");
    let grouped = words.take("bulk_group");
    for space in &spaces {
        words.take(space);
    }
    words.end()?;
    match (&spaces[..], tied, grouped, operands) {
        (["shared::cluster" | "shared::cta", "global"], true, false, [to, from, size, mbarrier]) => {
            with_addresses(load_global, &[to, from, mbarrier], size, o)
        }
        (["shared::cluster", "shared::cta"], true, false, [to, from, size, mbarrier]) => {
            with_addresses(load_shared, &[to, from, mbarrier], size, o)
        }
        (["global", "shared::cta"], false, true, [to, from, size]) => {
            with_addresses(store, &[to, from], size, o)
        }
        _ => Err("it goes from .global or .shared::cta to .shared::cluster with .mbarrier::complete_tx::bytes, or from \
                  .shared::cta to .global with .bulk_group"
            .into()),
    }
}

fn is_space(word: &str) -> bool {
    matches!(word, "global" | "shared::cta" | "shared::cluster")
}

fn with_addresses(
    run: ExecFn,
    addresses: &[&Operand],
    size: &Operand,
    o: &mut Operands<'_>,
) -> Result<Step, String> {
    let mut step = Step::new(Action::Exec(run));
    let mut list = Vec::new();
    for operand in addresses {
        address::push(&mut list, o, operand)?;
    }
    (step.list, step.results) = (o.list(&list), Results::At(0, 0));
    step.src[0] = o.word(size)?;
    Ok(step)
}

/// The number of groups that may stay open, of a `wait_group`.
pub(super) fn groups(i: &Instruction, o: &Operands<'_>) -> Result<i64, String> {
    let [count] = &i.operands[..] else { return Err("it takes how many groups may stay open".into()) };
    let count = o.integer(count).and_then(|count| u32::try_from(count).ok());
    count.map(i64::from).ok_or_else(|| "how many groups may stay open is a constant".into())
}

/// The `n`-th address of a step, in all lanes.
fn addresses(cx: &Cx<'_>, step: &Step, n: usize) -> [u64; 32] {
    let list = cx.grid.launch.program.list(step);
    cx.addresses(list.get(n * address::PLACES..(n + 1) * address::PLACES).unwrap_or_default())
}

fn check_size(cx: &Cx<'_>, step: &Step, lane: usize, bytes: u32) -> Outcome {
    if bytes.is_multiple_of(UNIT as u32) {
        return Ok(());
    }
    let message = format!("cp.async.bulk of {bytes} bytes, which {UNIT} does not divide");
    Err(cx.fault(step.place, lane, Kind::Misuse, message))
}

/// Judges an access to global memory, piece by piece.
fn global(cx: &mut Cx<'_>, step: &Step, lane: usize, address: u64, bytes: u32, access: Access) -> Outcome {
    for at in (0..u64::from(bytes)).step_by(UNIT) {
        cx.global(step.place, lane, address.wrapping_add(at), UNIT, access)?;
    }
    Ok(())
}

/// Judges bounds and alignment in shared memory, and gives the offset.
fn shared(
    cx: &Cx<'_>,
    step: &Step,
    lane: usize,
    address: u64,
    bytes: u32,
) -> Result<usize, Box<crate::fault::Fault>> {
    let at = cx.shared_bounds(step.place, lane, address, UNIT)?;
    if bytes != 0 {
        cx.shared_bounds(step.place, lane, address + u64::from(bytes) - UNIT as u64, UNIT)?;
    }
    Ok(at)
}

fn load_global(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    load(cx, step, mask, true)
}

fn load_shared(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    load(cx, step, mask, false)
}

fn load(cx: &mut Cx<'_>, step: &Step, mask: Mask, from_global: bool) -> Outcome {
    let [to, from, mbarrier] = [0, 1, 2].map(|n| addresses(cx, step, n));
    let sizes = cx.registers.word(step.src[0]);
    let first = cx.block.copies.awaited.len();
    for lane in lanes(mask) {
        let bytes = sizes[lane];
        check_size(cx, step, lane, bytes)?;
        let at = cx.mbarrier(step.place, lane, mbarrier[lane])?;
        let target = shared(cx, step, lane, to[lane], bytes)?;
        let source = if from_global {
            global(cx, step, lane, from[lane], bytes, Access::Read)?;
            Source::Global(from[lane])
        } else {
            let source = shared(cx, step, lane, from[lane], bytes)?;
            if cx.grid.checked {
                cx.shared_being_read(step.place, lane, source, bytes as usize)?;
            }
            Source::Shared(source)
        };
        if cx.grid.checked {
            cx.shared_in_flight(step.place, lane, target, bytes as usize)?;
        }
        let what = What::Bulk(Load { from: source, to: target, bytes });
        let (place, warp) = (step.place, cx.warp.index);
        if let Some(watch) = &mut cx.block.watch {
            watch.mbarrier_arrive(warp, 1 << lane, at as u32);
        }
        cx.block.copies.awaited.push(Awaited { at, what, clock: Vec::new(), place, warp });
    }
    // Only now: the copies' own writes are among what those who wait for them know.
    let clock = cx.release_clock();
    for awaited in cx.block.copies.awaited.iter_mut().skip(first) {
        awaited.clock.clone_from(&clock);
    }
    Ok(())
}

impl Load {
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(super) fn land(&self, cx: &mut Cx<'_>, place: u32, lane: usize) -> Outcome {
        let bytes = self.bytes as usize;
        let mut data = vec![0; bytes];
        match self.from {
            Source::Global(from) => {
                for (index, piece) in data.chunks_mut(UNIT).enumerate() {
                    let address = from + (index * UNIT) as u64;
                    raw::read(cx.locate(place, lane, address, UNIT)?, piece);
                }
            }
            Source::Shared(from) => {
                cx.shared_was_read(from, bytes);
                if let Some(source) = cx.block.shared.get(from..from + bytes) {
                    data.copy_from_slice(source);
                }
            }
        }
        cx.shared_landed(self.to, &data);
        Ok(())
    }
}

fn store(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let [to, from] = [0, 1].map(|n| addresses(cx, step, n));
    let sizes = cx.registers.word(step.src[0]);
    let warp = cx.warp.index;
    for lane in lanes(mask) {
        let bytes = sizes[lane];
        check_size(cx, step, lane, bytes)?;
        let source = shared(cx, step, lane, from[lane], bytes)?;
        if cx.grid.checked {
            cx.shared_being_read(step.place, lane, source, bytes as usize)?;
        }
        global(cx, step, lane, to[lane], bytes, Access::Write)?;
        let group = cx.block.copies.queue(warp).bulk_committed[lane];
        cx.block.copies.stores.push(Store {
            place: step.place,
            warp,
            lane: lane as u32,
            group,
            from: source,
            to: to[lane],
            bytes,
            data: None,
        });
    }
    Ok(())
}

fn commit(cx: &mut Cx<'_>, _: &Step, mask: Mask) -> Outcome {
    let queue = cx.block.copies.queue(cx.warp.index);
    for lane in lanes(mask) {
        queue.bulk_committed[lane] += 1;
    }
    Ok(())
}

fn wait(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let warp = cx.warp.index;
    let open = step.imm as u32;
    let due = cx.block.copies.queue(warp).bulk_committed.map(|committed| committed.saturating_sub(open));
    for mut store in std::mem::take(&mut cx.block.copies.stores) {
        let lane = store.lane as usize;
        let waited = store.warp == warp && mask >> lane & 1 != 0 && store.group < due[lane];
        if waited {
            store.read(cx);
        }
        if waited && step.flags & READ == 0 {
            store.write(cx)?;
        } else {
            cx.block.copies.stores.push(store);
        }
    }
    Ok(())
}

impl Store {
    /// Reads the source, once.
    fn read(&mut self, cx: &mut Cx<'_>) {
        if self.data.is_none() {
            let bytes = self.from..self.from + self.bytes as usize;
            cx.shared_was_read(bytes.start, bytes.len());
            self.data = Some(cx.block.shared.get(bytes).unwrap_or_default().to_vec());
        }
    }

    fn write(&self, cx: &mut Cx<'_>) -> Outcome {
        for (index, piece) in self.data.iter().flat_map(|data| data.chunks(UNIT)).enumerate() {
            let address = self.to + (index * UNIT) as u64;
            raw::write(cx.locate(self.place, self.lane as usize, address, UNIT)?, piece);
        }
        Ok(())
    }
}

/// A block has ended: what was read is written; what was not read should have been waited for.
pub(super) fn block_end(cx: &mut Cx<'_>) -> Outcome {
    for mut store in std::mem::take(&mut cx.block.copies.stores) {
        if store.data.is_none() && cx.grid.checked {
            let message = "the block ended while a bulk copy was reading its shared memory; wait_group.read comes before";
            return Err(cx.fault(store.place, store.lane as usize, Kind::Misuse, message.into()));
        }
        store.read(cx);
        store.write(cx)?;
    }
    Ok(())
}

fn prefetch(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let from = addresses(cx, step, 0);
    let sizes = cx.registers.word(step.src[0]);
    for lane in lanes(mask) {
        check_size(cx, step, lane, sizes[lane])?;
        for at in (0..u64::from(sizes[lane])).step_by(UNIT) {
            cx.locate(step.place, lane, from[lane].wrapping_add(at), UNIT)?;
        }
    }
    Ok(())
}
