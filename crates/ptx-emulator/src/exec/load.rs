//! Loads.
//!
//! A warp that reads one piece of memory from end to end, and one that reads a single address, are found by comparing addresses; everything else goes lane
//! by lane. The functions are compiled for each space, width and number of elements, since this is where kernels spend their time; those of
//! words in global and shared memory once more for processors with AVX2, where the common case is a transposition in registers.
#![allow(unsafe_code)]

use super::access::{self, SIGNED, STRONG, UNIFORM, space};
use super::raw::{self, Plain};
use super::registers::{ALL, Mask, Slot, lanes};
use super::{Cx, Target};
use crate::check::shared::By;
use crate::program::{ExecFn, Outcome, Step};

/// The function for a load of `count` elements of `bytes` bytes from a space.
pub(crate) fn function(space: u8, bytes: u64, count: usize) -> Option<ExecFn> {
    macro_rules! counts {
        ($space:expr, $type:ty) => {
            match count {
                1 => load::<{ $space }, $type, 1> as ExecFn,
                2 => load::<{ $space }, $type, 2>,
                4 => load::<{ $space }, $type, 4>,
                8 => load::<{ $space }, $type, 8>,
                _ => return None,
            }
        };
    }
    macro_rules! widths {
        ($space:expr) => {
            match bytes {
                1 => counts!($space, u8),
                2 => counts!($space, u16),
                4 => counts!($space, u32),
                8 => counts!($space, u64),
                _ => return None,
            }
        };
    }
    #[cfg(target_arch = "x86_64")]
    if bytes == 4 && super::columns::wide() {
        match (space, count) {
            (space::GLOBAL, 1) => return Some(wide::<{ space::GLOBAL }, 1>),
            (space::GLOBAL, 2) => return Some(wide::<{ space::GLOBAL }, 2>),
            (space::GLOBAL, 4) => return Some(wide::<{ space::GLOBAL }, 4>),
            (space::SHARED, 1) => return Some(wide::<{ space::SHARED }, 1>),
            (space::SHARED, 2) => return Some(wide::<{ space::SHARED }, 2>),
            (space::SHARED, 4) => return Some(wide::<{ space::SHARED }, 4>),
            _ => {}
        }
    }
    Some(match space {
        space::GLOBAL => widths!(space::GLOBAL),
        space::SHARED => widths!(space::SHARED),
        space::LOCAL => widths!(space::LOCAL),
        space::PARAM => widths!(space::PARAM),
        _ => widths!(space::GENERIC),
    })
}

/// [`load`] of words, for processors with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn wide<const SPACE: u8, const N: usize>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = access::row(cx, step);
    let stride = 4 * N;
    if step.flags & STRONG == 0 && mask == ALL && access::consecutive(&addresses, stride as u64) {
        let columns = if SPACE == space::GLOBAL {
            cx.global_row(step, &addresses, stride, true)?.map(|host| super::columns::of_device::<N>(host))
        } else {
            cx.shared_row(step, addresses[0], stride)?.map(|at| {
                super::columns::of_slice::<N>(cx.block.shared.get(at..at + 32 * stride).unwrap_or_default())
            })
        };
        if let Some(columns) = columns {
            for (k, column) in columns.iter().enumerate() {
                if let Some(dst) = destination(cx, step, k, N) {
                    cx.registers.set_word(dst, column, ALL);
                }
            }
            return Ok(());
        }
    }
    load_from::<SPACE, u32, N>(cx, step, mask, &addresses)
}

fn load<const SPACE: u8, T: Plain, const N: usize>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    if step.flags & (UNIFORM | STRONG) == UNIFORM {
        let address = access::one(cx, step, mask.trailing_zeros() as usize & 31);
        return broadcast::<SPACE, T, N>(cx, step, mask, address);
    }
    let addresses = access::row(cx, step);
    load_from::<SPACE, T, N>(cx, step, mask, &addresses)
}

#[inline(always)]
fn load_from<const SPACE: u8, T: Plain, const N: usize>(
    cx: &mut Cx<'_>,
    step: &Step,
    mask: Mask,
    addresses: &[u64; 32],
) -> Outcome {
    let stride = N * T::BYTES;
    if step.flags & STRONG == 0 && mask == ALL && access::consecutive(addresses, stride as u64) {
        let rows = match access::space_of::<SPACE>(addresses[0]) {
            space::GLOBAL => cx.global_row(step, addresses, stride, true)?.map(raw::load_rows::<T, N>),
            space::SHARED => cx.shared_row(step, addresses[0], stride)?.map(|at| {
                raw::rows_of::<T, N>(cx.block.shared.get(at..at + 32 * stride).unwrap_or_default())
            }),
            _ => None,
        };
        if let Some(rows) = rows {
            deliver(cx, step, &rows, mask);
            return Ok(());
        }
    } else if step.flags & STRONG == 0 && access::same(addresses, mask) {
        return broadcast::<SPACE, T, N>(cx, step, mask, addresses[mask.trailing_zeros() as usize & 31]);
    }
    if step.flags & STRONG == 0
        && gather::<T, N>(
            cx,
            step,
            mask,
            addresses,
            access::space_of::<SPACE>(addresses[(31 - mask.leading_zeros() as usize) & 31]),
        )?
    {
        return Ok(());
    }
    by_lane(cx, step, mask, addresses, SPACE, T::BYTES, N)
}

/// Any addresses, as long as all of them lie in one piece of memory and nothing is wrong with any; false, and nothing done, where not.
#[inline(always)]
fn gather<T: Plain, const N: usize>(
    cx: &mut Cx<'_>,
    step: &Step,
    mask: Mask,
    addresses: &[u64; 32],
    space: u8,
) -> Result<bool, Box<crate::fault::Fault>> {
    let stride = N * T::BYTES;
    let (low, span) = access::span(addresses, mask);
    // One odd address spoils all of them; so does one in another window, since the span is no allocation then.
    if lanes(mask).any(|lane| addresses[lane] & (stride as u64 - 1) != 0) {
        return Ok(false);
    }
    let signed = step.flags & SIGNED != 0;
    let to: [Option<Slot>; N] = std::array::from_fn(|k| destination(cx, step, k, N));
    match space {
        space::GLOBAL => {
            let Some(host) = cx.global_piece(low, span, stride, true) else { return Ok(false) };
            if cx.grid.checked && !cx.windows.whole() {
                for lane in lanes(mask) {
                    if cx.windows.unwritten(addresses[lane], stride).is_some() {
                        return Ok(false);
                    }
                }
            }
            if cx.block.watch.is_some() {
                cx.tell_reads(step.place, mask, addresses, stride)?;
            }
            for lane in lanes(mask) {
                let from = host.wrapping_add((addresses[lane] - low) as usize);
                for (k, to) in to.iter().enumerate() {
                    let value = T::cut(raw::load(from.wrapping_add(k * T::BYTES), T::BYTES));
                    put(cx, *to, lane, value, signed);
                }
            }
        }
        space::SHARED => {
            let low = Cx::shared_offset(low);
            let fits =
                low.checked_add(span + stride as u64).is_some_and(|end| end <= cx.block.shared.len() as u64);
            if !fits {
                return Ok(false);
            }
            for lane in lanes(mask) {
                let at = Cx::shared_offset(addresses[lane]) as usize;
                if cx.grid.checked {
                    cx.shared_shadow(step.place, lane, at, stride, crate::check::Access::Read, None)?;
                }
                let from = cx.block.shared.get(at..at + stride).unwrap_or_default();
                let values: [T; N] = raw::group_of(from);
                for (to, value) in to.iter().zip(values) {
                    put(cx, *to, lane, value, signed);
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Writes a value to one lane of a destination that is wanted.
#[inline(always)]
fn put<T: Plain>(cx: &mut Cx<'_>, to: Option<Slot>, lane: usize, value: T, signed: bool) {
    match to {
        Some(to) if T::BYTES == 8 => cx.registers.set_long_lane(to, lane, value.long(false)),
        Some(to) => cx.registers.set_word_lane(to, lane, value.word(signed)),
        None => {}
    }
}

/// Writes 32 groups of values to the destinations.
#[allow(clippy::needless_range_loop)] // rows and columns of one table
#[inline(always)]
fn deliver<T: Plain, const N: usize>(cx: &mut Cx<'_>, step: &Step, rows: &[[T; N]; 32], mask: Mask) {
    let signed = step.flags & SIGNED != 0;
    for k in 0..N {
        let Some(dst) = destination(cx, step, k, N) else { continue };
        if T::BYTES == 8 {
            let row: [u64; 32] = std::array::from_fn(|lane| rows[lane][k].long(false));
            cx.registers.set_long(dst, &row, mask);
        } else if signed {
            let row: [u32; 32] = std::array::from_fn(|lane| rows[lane][k].word(true));
            cx.registers.set_word(dst, &row, mask);
        } else {
            let row: [u32; 32] = std::array::from_fn(|lane| rows[lane][k].word(false));
            cx.registers.set_word(dst, &row, mask);
        }
    }
}

/// The row of the `k`-th of `n` elements; `None` where it is not wanted.
#[inline(always)]
fn destination(cx: &Cx<'_>, step: &Step, k: usize, n: usize) -> Option<Slot> {
    let slot = if n == 1 { step.dst } else { *cx.grid.launch.program.slots.get(step.list.0 as usize + k)? };
    (slot != crate::program::NONE).then_some(slot)
}

/// All lanes read the same address.
fn broadcast<const SPACE: u8, T: Plain, const N: usize>(
    cx: &mut Cx<'_>,
    step: &Step,
    mask: Mask,
    address: u64,
) -> Outcome {
    let lane = mask.trailing_zeros() as usize & 31;
    let space = access::space_of::<SPACE>(address);
    if space == space::LOCAL {
        // The same offset, and in each lane another value.
        if T::BYTES < 4 {
            return by_lane(cx, step, mask, &[address; 32], SPACE, T::BYTES, N);
        }
        cx.local(step.place, lane, address, N * T::BYTES)?;
        let first = Cx::local_row(address);
        let empty = [0; 32];
        for k in 0..N {
            let Some(dst) = destination(cx, step, k, N) else { continue };
            if T::BYTES == 8 {
                let low = cx.warp.local.get(first + 2 * k).unwrap_or(&empty);
                let high = cx.warp.local.get(first + 2 * k + 1).unwrap_or(&empty);
                let row: [u64; 32] = std::array::from_fn(|l| u64::from(low[l]) | u64::from(high[l]) << 32);
                cx.registers.set_long(dst, &row, mask);
            } else {
                cx.registers.set_word(dst, cx.warp.local.get(first + k).unwrap_or(&empty), mask);
            }
        }
        return Ok(());
    }
    let target = cx.target(step, lane, space, address, N * T::BYTES, crate::check::Access::Read)?;
    let last = 31 - mask.leading_zeros() as usize;
    if (cx.grid.checked && space == space::SHARED || cx.block.watch.is_some()) && last != lane {
        // Of the readers the first and the last are noted: whichever of them writes next, there is another.
        cx.target(step, last, space, address, N * T::BYTES, crate::check::Access::Read)?;
    }
    for k in 0..N {
        let value = T::cut(cx.element(target, lane, k * T::BYTES, T::BYTES));
        match destination(cx, step, k, N) {
            Some(dst) if T::BYTES == 8 => cx.registers.set_long(dst, &[value.long(false); 32], mask),
            Some(dst) => cx.registers.set_word(dst, &[value.word(step.flags & SIGNED != 0); 32], mask),
            None => {}
        }
    }
    Ok(())
}

/// Any addresses, any mask.
#[inline(never)]
fn by_lane(
    cx: &mut Cx<'_>,
    step: &Step,
    mask: Mask,
    addresses: &[u64; 32],
    space: u8,
    bytes: usize,
    count: usize,
) -> Outcome {
    let access = access::kind(step, true, false);
    let mut seen = 0u64;
    for lane in lanes(mask) {
        let target = cx.target(step, lane, space, addresses[lane], bytes * count, access)?;
        for k in 0..count {
            let value = cx.element(target, lane, k * bytes, bytes);
            seen = seen.rotate_left(7) ^ value;
            let Some(dst) = destination(cx, step, k, count) else { continue };
            let signed = step.flags & SIGNED != 0;
            match bytes {
                8 => cx.registers.set_long_lane(dst, lane, value),
                4 => cx.registers.set_word_lane(dst, lane, value as u32),
                2 => cx.registers.set_word_lane(dst, lane, (value as u16).word(signed)),
                _ => cx.registers.set_word_lane(dst, lane, (value as u8).word(signed)),
            }
        }
        if step.flags & STRONG != 0 {
            cx.synchronise(addresses[lane], step);
            cx.told(step.place, lane, target, addresses[lane], access);
        }
    }
    if step.flags & STRONG != 0 {
        cx.polled(step.place, seen);
    }
    Ok(())
}

impl Cx<'_> {
    /// One element where a target leads.
    #[inline]
    pub(crate) fn element(&self, target: Target, lane: usize, offset: usize, bytes: usize) -> u64 {
        let plain = |from: &[u8], at: usize| {
            let mut value = [0; 8];
            if let Some(from) = from.get(at..at + bytes) {
                value[..bytes].copy_from_slice(from);
            }
            u64::from_le_bytes(value)
        };
        match target {
            Target::Global(host) => raw::load(host.wrapping_add(offset), bytes),
            Target::Shared(at) => plain(&self.block.shared, at + offset),
            Target::Local(at) => self.local_read(lane, at + offset, bytes),
            Target::Param(at) => plain(&self.grid.launch.arguments, at + offset),
        }
    }

    /// 32 accesses of `stride` bytes that follow one another in global memory, if nothing is wrong with them and nobody is to be told of each.
    #[inline(always)]
    pub(crate) fn global_row(
        &mut self,
        step: &Step,
        addresses: &[u64; 32],
        stride: usize,
        reads: bool,
    ) -> Result<Option<*mut u8>, Box<crate::fault::Fault>> {
        let address = addresses[0];
        if !address.is_multiple_of(stride as u64) || self.block.watch.is_some() && !reads {
            return Ok(None);
        }
        let host = match self.windows.host(address, 32 * stride) {
            Some(host) => host,
            None => {
                self.windows.enter(&self.grid.environment, address);
                match self.windows.host(address, 32 * stride) {
                    Some(host) => host,
                    None => return Ok(None),
                }
            }
        };
        if self.grid.checked {
            if !reads {
                self.windows.mark(address, 32 * stride);
            } else if self.windows.unwritten(address, 32 * stride).is_some() {
                return Ok(None);
            }
        }
        if self.block.watch.is_some() {
            self.tell_reads(step.place, ALL, addresses, stride)?;
        }
        Ok(Some(host))
    }

    /// Tells the watch of plain reads of `stride` bytes by the lanes of a mask.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_reads(
        &mut self,
        place: u32,
        mask: Mask,
        addresses: &[u64; 32],
        stride: usize,
    ) -> Outcome {
        let who = crate::check::Who { warp: self.warp.index, lane: 0, place };
        match &mut self.block.watch {
            Some(watch) => watch.reads(&mut self.block.clocks, who, mask, addresses, stride as u32),
            None => Ok(()),
        }
    }

    /// Tells the shadow of a row of accesses at once; the lanes that have to be told one by one, if that shows something odd.
    #[inline(always)]
    pub(crate) fn lanes_to_tell(
        &mut self,
        step: &Step,
        at: usize,
        stride: usize,
        writes: bool,
    ) -> std::ops::Range<usize> {
        let first = By { thread: self.thread(0), place: step.place, atomic: false };
        let block = &mut *self.block;
        let fine = if writes {
            block.shadow.write_row(&block.clocks, at, stride, first)
        } else {
            block.shadow.read_row(&block.clocks, at, stride, first)
        };
        if fine { 0..0 } else { 0..32 }
    }

    /// A piece of global memory that begins at `low` and ends `stride` bytes after `span`; `None` if it is no piece of one allocation. The
    /// watch is still to be told where something `reads`; of writes it has to be told lane by lane.
    #[inline(always)]
    pub(crate) fn global_piece(
        &mut self,
        low: u64,
        span: u64,
        stride: usize,
        reads: bool,
    ) -> Option<*mut u8> {
        if self.block.watch.is_some() && !reads {
            return None;
        }
        let bytes = usize::try_from(span).ok()?.checked_add(stride)?;
        match self.windows.host(low, bytes) {
            Some(host) => Some(host),
            None => {
                self.windows.enter(&self.grid.environment, low);
                self.windows.host(low, bytes)
            }
        }
    }

    /// 32 reads of `stride` bytes that follow one another in shared memory; `None` if one of them is wrong.
    #[inline(always)]
    fn shared_row(
        &mut self,
        step: &Step,
        address: u64,
        stride: usize,
    ) -> Result<Option<usize>, Box<crate::fault::Fault>> {
        let offset = Self::shared_offset(address);
        let end = offset.saturating_add(32 * stride as u64);
        if !offset.is_multiple_of(stride as u64) || end > self.block.shared.len() as u64 {
            return Ok(None);
        }
        let at = offset as usize;
        if self.grid.checked {
            for lane in self.lanes_to_tell(step, at, stride, false) {
                self.shared_shadow(
                    step.place,
                    lane,
                    at + lane * stride,
                    stride,
                    crate::check::Access::Read,
                    None,
                )?;
            }
        }
        Ok(Some(at))
    }
}
