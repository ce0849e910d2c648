//! Rows of addresses, and what the flags of a memory step say.

use super::registers::{ALL, Mask, lanes};
use super::state::WarpState;
use super::{Cx, LOCAL_WINDOW, PARAM_WINDOW, Target};
use crate::check::{Access, Order, Scope};
use crate::fault::Fault;
use crate::program::Step;

/// The base of the address is a row of 64 bits.
pub(crate) const WIDE: u32 = 1 << 8;
/// Values are extended with their sign.
pub(crate) const SIGNED: u32 = 1 << 9;
/// The access is strong: relaxed, acquire, release, volatile.
pub(crate) const STRONG: u32 = 1 << 10;
/// All lanes have the same address.
pub(crate) const UNIFORM: u32 = 1 << 11;
/// Where the order stands.
const ORDER: u32 = 12;
/// Where the scope stands.
const SCOPE: u32 = 15;

/// An order and a scope as flags.
pub(crate) fn ordering_flags(order: Order, scope: Scope) -> u32 {
    (order as u32) << ORDER | (scope as u32) << SCOPE
}

/// The order and scope in a step's flags.
pub(crate) fn ordering(step: &Step) -> (Order, Scope) {
    let order = match step.flags >> ORDER & 7 {
        0 => Order::Relaxed,
        1 => Order::Acquire,
        2 => Order::Release,
        3 => Order::AcquireRelease,
        _ => Order::Sequential,
    };
    let scope = match step.flags >> SCOPE & 3 {
        0 => Scope::Block,
        1 => Scope::Cluster,
        2 => Scope::Device,
        _ => Scope::System,
    };
    (order, scope)
}

/// What a load or store does.
#[inline(always)]
pub(crate) fn kind(step: &Step, reads: bool, writes: bool) -> Access {
    if step.flags & STRONG != 0 {
        let (order, scope) = ordering(step);
        Access::Strong { reads, writes, order, scope }
    } else if writes {
        Access::Write
    } else {
        Access::Read
    }
}

/// Address spaces, as numbers that functions can be compiled for.
pub(crate) mod space {
    /// Global and constant memory.
    pub(crate) const GLOBAL: u8 = 0;
    /// Shared memory.
    pub(crate) const SHARED: u8 = 1;
    /// Local memory.
    pub(crate) const LOCAL: u8 = 2;
    /// Kernel parameters.
    pub(crate) const PARAM: u8 = 3;
    /// The address says.
    pub(crate) const GENERIC: u8 = 4;
}

/// The addresses of all lanes.
#[inline(always)]
pub(crate) fn row(cx: &Cx<'_>, step: &Step) -> [u64; 32] {
    // Loops over what stands in the registers, since `map` copies it first.
    let mut row = [0; 32];
    if step.flags & WIDE != 0 {
        for (to, from) in row.iter_mut().zip(cx.registers.long_row(step.src[0])) {
            *to = from.wrapping_add(step.imm as u64);
        }
    } else {
        for (to, from) in row.iter_mut().zip(cx.registers.word_row(step.src[0])) {
            *to = u64::from(from.wrapping_add(step.imm as u32));
        }
    }
    row
}

/// The address of one lane.
#[inline(always)]
pub(crate) fn one(cx: &Cx<'_>, step: &Step, lane: usize) -> u64 {
    if step.flags & WIDE != 0 {
        cx.registers.long_lane(step.src[0], lane).wrapping_add(step.imm as u64)
    } else {
        u64::from(cx.registers.word_lane(step.src[0], lane).wrapping_add(step.imm as u32))
    }
}

/// Whether each lane's address is `stride` bytes after the one before.
#[inline(always)]
pub(crate) fn consecutive(addresses: &[u64; 32], stride: u64) -> bool {
    if addresses[1].wrapping_sub(addresses[0]) != stride {
        return false;
    }
    let mut differ = 0;
    let mut expected = addresses[0];
    for address in addresses {
        differ |= address ^ expected;
        expected = expected.wrapping_add(stride);
    }
    differ == 0
}

/// Whether all lanes of the mask have one address.
#[inline(always)]
pub(crate) fn same(addresses: &[u64; 32], mask: Mask) -> bool {
    let first = addresses[mask.trailing_zeros() as usize & 31];
    if mask == ALL {
        addresses[31] == first && addresses.iter().fold(0, |differ, address| differ | (address ^ first)) == 0
    } else {
        lanes(mask).all(|lane| addresses[lane] == first)
    }
}

/// The lowest address of the lanes of a mask, and how far the highest is from it.
#[inline(always)]
pub(crate) fn span(addresses: &[u64; 32], mask: Mask) -> (u64, u64) {
    let (mut low, mut high) = (u64::MAX, 0);
    if mask == ALL {
        for &address in addresses {
            low = low.min(address);
            high = high.max(address);
        }
    } else {
        for lane in lanes(mask) {
            low = low.min(addresses[lane]);
            high = high.max(addresses[lane]);
        }
    }
    (low, high.wrapping_sub(low))
}

/// The space that an address of a step in `space` is in, for spaces that are known only from the address.
#[inline(always)]
pub(crate) fn space_of<const SPACE: u8>(address: u64) -> u8 {
    if SPACE != space::GENERIC {
        return SPACE;
    }
    match address >> 56 {
        1 => space::SHARED,
        2 => space::LOCAL,
        3 => space::PARAM,
        _ => space::GLOBAL,
    }
}

impl Cx<'_> {
    /// One lane's access: where it leads, checked and told.
    pub(crate) fn target(
        &mut self,
        step: &Step,
        lane: usize,
        space: u8,
        address: u64,
        bytes: usize,
        access: Access,
    ) -> Result<Target, Box<Fault>> {
        match space {
            space::GLOBAL => self.global(step.place, lane, address, bytes, access).map(Target::Global),
            space::SHARED => self.shared(step.place, lane, address, bytes, access).map(Target::Shared),
            space::LOCAL => self.local(step.place, lane, address, bytes).map(Target::Local),
            space::PARAM => {
                let offset = if address >> 56 == 3 { address - PARAM_WINDOW } else { address };
                self.param(step.place, lane, offset, bytes).map(Target::Param)
            }
            _ => self.generic(step.place, lane, address, bytes, access),
        }
    }

    /// Reads up to eight bytes of a lane's local memory. The caller checked that they are there.
    #[inline]
    pub(crate) fn local_read(&self, lane: usize, at: usize, bytes: usize) -> u64 {
        self.warp.local_read(lane, at, bytes)
    }

    /// Writes up to eight bytes of a lane's local memory.
    #[inline]
    pub(crate) fn local_write(&mut self, lane: usize, at: usize, bytes: usize, value: u64) {
        self.warp.local_write(lane, at, bytes, value);
    }

    /// A row of local memory that a uniform address names, where it is whole words.
    #[inline(always)]
    pub(crate) fn local_row(address: u64) -> usize {
        let offset = if address >> 56 == 2 { address - LOCAL_WINDOW } else { address };
        usize::try_from(offset / 4).unwrap_or(usize::MAX)
    }
}

impl WarpState {
    fn local_read(&self, lane: usize, at: usize, bytes: usize) -> u64 {
        let word = |index: usize| u64::from(self.local.get(index).map_or(0, |row| row[lane & 31]));
        let low = word(at / 4) >> (8 * (at % 4));
        match bytes {
            1 => low & 0xff,
            2 => low & 0xffff,
            4 => low,
            _ => low | word(at / 4 + 1) << 32,
        }
    }

    fn local_write(&mut self, lane: usize, at: usize, bytes: usize, value: u64) {
        let mask: u32 = match bytes {
            1 => 0xff,
            2 => 0xffff,
            _ => !0,
        };
        let shift = 8 * (at % 4) as u32;
        if let Some(row) = self.local.get_mut(at / 4) {
            let word = &mut row[lane & 31];
            *word = (*word & !(mask << shift)) | (value as u32 & mask) << shift;
        }
        if bytes == 8
            && let Some(row) = self.local.get_mut(at / 4 + 1)
        {
            row[lane & 31] = (value >> 32) as u32;
        }
    }
}
