//! Stores: the mirror of loads.

use super::access::{self, STRONG, space};
use super::raw::{self, Plain};
use super::registers::{ALL, Mask, Slot, lanes};
use super::{Cx, Target};
use crate::check::Access;
use crate::fault::Kind;
use crate::program::{ExecFn, Outcome, Step};

/// The function for a store of `count` elements of `bytes` bytes to a space.
pub(crate) fn function(space: u8, bytes: u64, count: usize) -> Option<ExecFn> {
    macro_rules! counts {
        ($space:expr, $type:ty) => {
            match count {
                1 => store::<{ $space }, $type, 1> as ExecFn,
                2 => store::<{ $space }, $type, 2>,
                4 => store::<{ $space }, $type, 4>,
                8 => store::<{ $space }, $type, 8>,
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
    Some(match space {
        space::GLOBAL => widths!(space::GLOBAL),
        space::SHARED => widths!(space::SHARED),
        space::LOCAL => widths!(space::LOCAL),
        _ => widths!(space::GENERIC),
    })
}

#[inline(always)]
fn source(cx: &Cx<'_>, step: &Step, k: usize, n: usize) -> Slot {
    if n == 1 {
        step.src[1]
    } else {
        cx.grid.launch.program.slots.get(step.list.0 as usize + k).copied().unwrap_or(0)
    }
}

fn store<const SPACE: u8, T: Plain, const N: usize>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let addresses = access::row(cx, step);
    let stride = N * T::BYTES;
    if mask == ALL && step.flags & STRONG == 0 {
        if access::consecutive(&addresses, stride as u64) {
            let address = addresses[0];
            match access::space_of::<SPACE>(address) {
                space::GLOBAL => {
                    if let Some(host) = cx.global_row(step, &addresses, stride, false)? {
                        raw::store_rows(host, &gather::<T, N>(cx, step));
                        return Ok(());
                    }
                }
                space::SHARED => {
                    let offset = Cx::shared_offset(address);
                    let end = offset.saturating_add(32 * stride as u64);
                    if offset.is_multiple_of(stride as u64) && end <= cx.block.shared.len() as u64 {
                        let at = offset as usize;
                        let rows = gather::<T, N>(cx, step);
                        let bytes = raw::bytes_of(&rows);
                        if cx.grid.checked {
                            for lane in cx.lanes_to_tell(step, at, stride, true) {
                                let new = &bytes[lane * stride..][..stride];
                                let at = at + lane * stride;
                                cx.shared_shadow(step.place, lane, at, stride, Access::Write, Some(new))?;
                            }
                        }
                        if let Some(to) = cx.block.shared.get_mut(at..at + 32 * stride) {
                            to.copy_from_slice(bytes);
                        }
                        return Ok(());
                    }
                }
                _ => {}
            }
        } else if T::BYTES >= 4
            && access::same(&addresses, mask)
            && access::space_of::<SPACE>(addresses[0]) == space::LOCAL
        {
            return local_rows::<T, N>(cx, step, addresses[0]);
        }
    }
    by_lane(cx, step, mask, &addresses, SPACE, T::BYTES, N)
}

/// The values of all lanes, as they stand in memory.
#[allow(clippy::needless_range_loop)] // rows and columns of one table
#[inline(always)]
fn gather<T: Plain, const N: usize>(cx: &Cx<'_>, step: &Step) -> [[T; N]; 32] {
    let mut rows = [[T::default(); N]; 32];
    for k in 0..N {
        let slot = source(cx, step, k, N);
        if T::BYTES == 8 {
            let row = cx.registers.long(slot);
            for lane in 0..32 {
                rows[lane][k] = T::cut(row[lane]);
            }
        } else {
            let row = cx.registers.word(slot);
            for lane in 0..32 {
                rows[lane][k] = T::cut(u64::from(row[lane]));
            }
        }
    }
    rows
}

/// All lanes write the same offset of their local memory.
fn local_rows<T: Plain, const N: usize>(cx: &mut Cx<'_>, step: &Step, address: u64) -> Outcome {
    cx.local(step.place, 0, address, N * T::BYTES)?;
    let first = Cx::local_row(address);
    for k in 0..N {
        let slot = source(cx, step, k, N);
        if T::BYTES == 8 {
            let row = cx.registers.long(slot);
            if let Some([low, high]) = cx.warp.local.get_mut(first + 2 * k..first + 2 * k + 2) {
                *low = row.map(|x| x as u32);
                *high = row.map(|x| (x >> 32) as u32);
            }
        } else if let Some(to) = cx.warp.local.get_mut(first + k) {
            *to = cx.registers.word(slot);
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
    let access = access::kind(step, false, true);
    let total = bytes * count;
    for lane in lanes(mask) {
        let address = addresses[lane];
        let mut data = [0u8; 64];
        for k in 0..count {
            let slot = source(cx, step, k, count);
            let value = if bytes == 8 {
                cx.registers.long_lane(slot, lane)
            } else {
                u64::from(cx.registers.word_lane(slot, lane))
            };
            data[k * bytes..][..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
        let shared = space == space::SHARED || space == space::GENERIC && address >> 56 == 1;
        let target = if shared {
            let at = cx.shared_bounds(step.place, lane, address, total)?;
            if cx.grid.checked {
                cx.shared_shadow(step.place, lane, at, total, access, Some(&data[..total]))?;
            }
            Target::Shared(at)
        } else {
            cx.target(step, lane, space, address, total, access)?
        };
        if step.flags & STRONG != 0 {
            cx.synchronise(address, step);
        }
        for k in 0..count {
            let mut value = [0; 8];
            value[..bytes].copy_from_slice(&data[k * bytes..][..bytes]);
            let value = u64::from_le_bytes(value);
            match target {
                Target::Global(host) => raw::store(host.wrapping_add(k * bytes), bytes, value),
                Target::Shared(at) => {
                    if let Some(to) = cx.block.shared.get_mut(at + k * bytes..at + (k + 1) * bytes) {
                        to.copy_from_slice(&value.to_le_bytes()[..bytes]);
                    }
                }
                Target::Local(at) => cx.local_write(lane, at + k * bytes, bytes, value),
                Target::Param(_) => {
                    let what = format!("write to the kernel's parameters, at {address:#x}");
                    return Err(cx.fault(step.place, lane, Kind::OutOfBounds, what));
                }
            }
        }
        if step.flags & STRONG != 0 {
            cx.told(step.place, lane, target, address, access);
        }
    }
    Ok(())
}
