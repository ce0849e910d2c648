//! What an instruction sees, and how it reaches memory.
//!
//! Every access goes through here, whatever the instruction: bounds, alignment, freed memory, the shadow of shared memory and the
//! hooks for global memory stand once. Accesses name a place (an index into [`Program::places`](crate::Program)) and a lane and not a
//! step, so that a copy that lands later is still told of where it was issued.

use super::registers::Registers;
use super::state::{BlockState, GridState, WarpState};
use super::windows::Windows;
use crate::check::clocks::Clock;
use crate::check::shared::{By, Finding};
use crate::check::{Access, Who};
use crate::fault::{Fault, Kind, Site};
use crate::program::Outcome;

/// Generic addresses of shared memory begin here.
pub(crate) const SHARED_WINDOW: u64 = 1 << 56;
/// Generic addresses of local memory begin here.
pub(crate) const LOCAL_WINDOW: u64 = 2 << 56;
/// Generic addresses of the kernel's parameters begin here.
pub(crate) const PARAM_WINDOW: u64 = 3 << 56;

/// What an instruction sees: its warp, its block, its grid, and its worker's view of device memory.
#[derive(Debug)]
pub(crate) struct Cx<'a> {
    /// The registers of the warp.
    pub(crate) registers: &'a mut Registers,
    /// The warp.
    pub(crate) warp: &'a mut WarpState,
    /// The block.
    pub(crate) block: &'a mut BlockState,
    /// The grid.
    pub(crate) grid: &'a GridState,
    /// The allocations this worker used last.
    pub(crate) windows: &'a mut Windows,
}

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Device or pinned memory, by the host's pointer.
    Global(*mut u8),
    /// An offset in the block's shared memory.
    Shared(usize),
    /// An offset in the thread's local memory.
    Local(usize),
    /// An offset in the parameters; only to be read.
    Param(usize),
}

impl Cx<'_> {
    /// The thread of a lane, counted through the block.
    #[inline(always)]
    pub(crate) fn thread(&self, lane: usize) -> u32 {
        self.warp.index * 32 + lane as u32
    }

    /// A thread at a place, for a report.
    pub(crate) fn site(&self, place: u32, thread: u32) -> Site {
        let program = &self.grid.launch.program;
        Site {
            kernel: program.name.clone(),
            place: program.place_name(place),
            block: self.block.index,
            thread,
        }
    }

    /// A fault of a lane.
    #[cold]
    #[inline(never)]
    pub(crate) fn fault(&self, place: u32, lane: usize, kind: Kind, message: String) -> Box<Fault> {
        let site = Some(self.site(place, self.thread(lane)));
        Box::new(Fault { kind, message, site, other: None })
    }

    /// A poll saw `seen` (a loaded value, or any number where only failure counts): what it waits for is another warp's doing. When it saw
    /// the same a few times at one place, the warp gives up its turn, and the block too when all its warps do. Call it where a strong load
    /// was done, or where a failed atomic or a `try_wait` changed nothing.
    #[inline]
    pub(crate) fn polled(&mut self, place: u32, seen: u64) {
        self.block.mbarriers.others_go_on();
        let poll = &mut self.warp.poll;
        if (poll.0, poll.1) == (place, seen) {
            poll.2 += 1;
            if poll.2 >= 8 {
                poll.2 = 0;
                self.warp.yielding = true;
            }
        } else {
            *poll = (place, seen, 0);
        }
    }

    /// Finds `bytes` bytes of global memory, without telling the checks of an access.
    #[inline]
    pub(crate) fn locate(
        &mut self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
    ) -> Result<*mut u8, Box<Fault>> {
        if address & (bytes as u64 - 1) != 0 && bytes.is_power_of_two() {
            return Err(self.misaligned(place, lane, address, bytes, "global"));
        }
        match self.windows.host(address, bytes) {
            Some(host) => Ok(host),
            None => self.locate_slowly(place, lane, address, bytes),
        }
    }

    #[cold]
    #[inline(never)]
    fn locate_slowly(
        &mut self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
    ) -> Result<*mut u8, Box<Fault>> {
        if self.windows.enter(&self.grid.environment, address)
            && let Some(host) = self.windows.host(address, bytes)
        {
            return Ok(host);
        }
        let memory = &self.grid.environment.memory;
        let kind = if memory.was_freed(address) { Kind::UseAfterFree } else { Kind::OutOfBounds };
        let message = format!(
            "access of {bytes} bytes of global memory at {address:#x}: {}{}",
            memory.describe(address),
            if address < 4096 { " (a null pointer?)" } else { "" },
        );
        Err(self.fault(place, lane, kind, message))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn misaligned(
        &self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        space: &str,
    ) -> Box<Fault> {
        let message = format!(
            "access of {bytes} bytes of {space} memory at {address:#x}, which {bytes} does not divide"
        );
        self.fault(place, lane, Kind::Misaligned, message)
    }

    /// An access to global memory: found, checked, told. What is at the pointer is touched through [`super::raw`].
    #[inline]
    pub(crate) fn global(
        &mut self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        access: Access,
    ) -> Result<*mut u8, Box<Fault>> {
        let host = self.locate(place, lane, address, bytes)?;
        if self.grid.checked {
            self.written_map(place, lane, address, bytes, access)?;
        }
        if self.block.watch.is_some() {
            self.tell(place, lane, address, bytes, access)?;
        }
        Ok(host)
    }

    /// Tells the watch of an access.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell(
        &mut self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        access: Access,
    ) -> Outcome {
        let who = Who { warp: self.warp.index, lane: lane as u32, place };
        match &mut self.block.watch {
            Some(watch) => watch.access(&mut self.block.clocks, who, address, bytes as u32, access),
            None => Ok(()),
        }
    }

    /// Keeps the map of what was written in global memory.
    #[inline(never)]
    pub(crate) fn written_map(
        &mut self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        access: Access,
    ) -> Outcome {
        let (reads, writes) = match access {
            Access::Read => (true, false),
            Access::Write => (false, true),
            Access::Strong { reads, writes, .. } => (reads, writes),
        };
        if reads && let Some(at) = self.windows.unwritten(address, bytes) {
            // Once is enough: the next read of it is not another finding.
            self.windows.mark(address, bytes);
            let message = format!(
                "read of {bytes} bytes of global memory that nothing wrote, at {:#x}: {}",
                at,
                self.grid.environment.memory.describe(at)
            );
            return Err(self.fault(place, lane, Kind::Unwritten, message));
        }
        if writes {
            self.windows.mark(address, bytes);
        }
        Ok(())
    }

    /// The offset in shared memory that a shared or generic address names.
    #[inline(always)]
    pub(crate) fn shared_offset(address: u64) -> u64 {
        // A shared address fits 32 bits; a generic one has the window above.
        if address >> 56 == 1 { address - SHARED_WINDOW } else { address }
    }

    /// An access to shared memory: bounds, alignment, shadow. Gives the offset into [`BlockState::shared`], at which `bytes` bytes may
    /// be sliced.
    #[inline]
    pub(crate) fn shared(
        &mut self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        access: Access,
    ) -> Result<usize, Box<Fault>> {
        let at = self.shared_bounds(place, lane, address, bytes)?;
        if self.grid.checked {
            self.shared_shadow(place, lane, at, bytes, access, None)?;
        }
        Ok(at)
    }

    /// Bounds and alignment of an access to shared memory; nothing is told.
    #[inline]
    pub(crate) fn shared_bounds(
        &self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
    ) -> Result<usize, Box<Fault>> {
        let offset = Self::shared_offset(address);
        if offset & (bytes as u64 - 1) != 0 && bytes.is_power_of_two() {
            return Err(self.misaligned(place, lane, offset, bytes, "shared"));
        }
        if offset.checked_add(bytes as u64).is_none_or(|end| end > self.block.shared.len() as u64) {
            return Err(self.shared_outside(place, lane, offset, bytes));
        }
        Ok(offset as usize)
    }

    #[cold]
    #[inline(never)]
    fn shared_outside(&self, place: u32, lane: usize, offset: u64, bytes: usize) -> Box<Fault> {
        let message = format!(
            "access of {bytes} bytes of shared memory at {offset:#x}, but the block has {} bytes",
            self.block.shared.len()
        );
        self.fault(place, lane, Kind::OutOfBounds, message)
    }

    /// Tells the shadow of an access to shared memory. With `new`, a write of bytes that are there already is no race with another write.
    #[inline(never)]
    pub(crate) fn shared_shadow(
        &mut self,
        place: u32,
        lane: usize,
        at: usize,
        bytes: usize,
        access: Access,
        new: Option<&[u8]>,
    ) -> Outcome {
        let (reads, writes, atomic) = match access {
            Access::Read => (true, false, false),
            Access::Write => (false, true, false),
            Access::Strong { reads, writes, .. } => (reads, writes, true),
        };
        let by = By { thread: self.thread(lane), place, atomic };
        let block = &mut *self.block;
        if reads && let Err(finding) = block.shadow.read(&block.clocks, at, bytes, by) {
            return Err(self.shared_finding(place, lane, at, bytes, finding));
        }
        if writes && let Err(finding) = block.shadow.write(&block.clocks, at, bytes, by) {
            let same = matches!(finding, Finding::Race { what: "write after write", .. })
                && new.is_some_and(|new| block.shared.get(at..at + bytes) == Some(new));
            if !same {
                return Err(self.shared_finding(place, lane, at, bytes, finding));
            }
        }
        Ok(())
    }

    /// A finding of the shadow as a fault.
    #[cold]
    #[inline(never)]
    pub(crate) fn shared_finding(
        &self,
        place: u32,
        lane: usize,
        at: usize,
        bytes: usize,
        finding: Finding,
    ) -> Box<Fault> {
        let (kind, message, other) = match finding {
            Finding::Unwritten => (
                Kind::Unwritten,
                format!("read of {bytes} bytes of shared memory at {at:#x} that nothing in this block wrote"),
                None,
            ),
            Finding::Race { what, thread, place } => (
                Kind::SharedRace,
                format!("race in shared memory at {at:#x}: {what}, and no barrier between"),
                Some((place, thread)),
            ),
            Finding::InFlight { thread, place } => (
                Kind::SharedRace,
                format!(
                    "access of shared memory at {at:#x} while an asynchronous copy of these bytes is under way"
                ),
                Some((place, thread)),
            ),
        };
        let mut fault = self.fault(place, lane, kind, message);
        fault.other = other.map(|(place, thread)| self.site(place, thread));
        fault
    }

    /// A copy into shared memory was issued by `lane`: until [`Cx::shared_landed`], whoever touches these bytes is told. Bounds first; only
    /// called where memory is checked. To the shadow the lane writes now; what would not be ordered before the copy is a race already.
    pub(crate) fn shared_in_flight(&mut self, place: u32, lane: usize, at: usize, bytes: usize) -> Outcome {
        self.shared_shadow(place, lane, at, bytes, Access::Write, None)?;
        let by = By { thread: self.thread(lane), place, atomic: false };
        self.block.shadow.take_off(&self.block.clocks, at, bytes, by, false);
        Ok(())
    }

    /// The copy is complete: here are its bytes.
    pub(crate) fn shared_landed(&mut self, at: usize, data: &[u8]) {
        if self.grid.checked {
            self.block.shadow.landed(at, data.len());
        }
        if let Some(to) = self.block.shared.get_mut(at..at + data.len()) {
            to.copy_from_slice(data);
        }
    }

    /// A copy that `lane` issued and that is complete counts as written now, and no longer when it was issued.
    pub(crate) fn shared_written_now(&mut self, place: u32, lane: usize, at: usize, bytes: usize) {
        let by = By { thread: self.thread(lane), place, atomic: false };
        self.block.shadow.written_now(&self.block.clocks, at, bytes, by);
    }

    /// A copy out of shared memory was issued by `lane`: until [`Cx::shared_was_read`], whoever writes these bytes is told. Otherwise as
    /// [`Cx::shared_in_flight`].
    pub(crate) fn shared_being_read(&mut self, place: u32, lane: usize, at: usize, bytes: usize) -> Outcome {
        self.shared_shadow(place, lane, at, bytes, Access::Read, None)?;
        let by = By { thread: self.thread(lane), place, atomic: false };
        self.block.shadow.take_off(&self.block.clocks, at, bytes, by, true);
        Ok(())
    }

    /// The copy has read its source.
    pub(crate) fn shared_was_read(&mut self, at: usize, bytes: usize) {
        if self.grid.checked {
            self.block.shadow.landed(at, bytes);
        }
    }

    /// Everything the warp did and knows, for whoever acquires it (an mbarrier's arrival); empty where nothing is checked.
    pub(crate) fn release_clock(&mut self) -> Clock {
        if self.grid.clocked { self.block.clocks.release(self.warp.index as usize) } else { Clock::new() }
    }

    /// Takes in what was released (a wait that succeeded).
    pub(crate) fn acquire_clock(&mut self, clock: &[u32]) {
        if self.grid.clocked {
            self.block.clocks.acquire(self.warp.index as usize, clock);
        }
    }

    /// Where a generic address of a lane leads: bounds, alignment, shadow and hooks included.
    #[inline]
    pub(crate) fn generic(
        &mut self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        access: Access,
    ) -> Result<Target, Box<Fault>> {
        match address >> 56 {
            0 => self.global(place, lane, address, bytes, access).map(Target::Global),
            1 => self.shared(place, lane, address, bytes, access).map(Target::Shared),
            2 => self.local(place, lane, address, bytes).map(Target::Local),
            3 => self.param(place, lane, address - PARAM_WINDOW, bytes).map(Target::Param),
            _ => self.locate_slowly(place, lane, address, bytes).map(Target::Global),
        }
    }

    /// An access to local memory.
    pub(crate) fn local(
        &mut self,
        place: u32,
        lane: usize,
        address: u64,
        bytes: usize,
    ) -> Result<usize, Box<Fault>> {
        let offset = if address >> 56 == 2 { address - LOCAL_WINDOW } else { address };
        if offset & (bytes as u64 - 1) != 0 && bytes.is_power_of_two() {
            return Err(self.misaligned(place, lane, offset, bytes, "local"));
        }
        let size = u64::from(self.grid.launch.program.local_bytes);
        if offset.checked_add(bytes as u64).is_none_or(|end| end > size) {
            let message = format!(
                "access of {bytes} bytes of local memory at {offset:#x}, but a thread has {size} bytes"
            );
            return Err(self.fault(place, lane, Kind::OutOfBounds, message));
        }
        Ok(offset as usize)
    }

    /// A read of the parameters.
    pub(crate) fn param(
        &mut self,
        place: u32,
        lane: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<usize, Box<Fault>> {
        let size = self.grid.launch.arguments.len() as u64;
        if offset.checked_add(bytes as u64).is_none_or(|end| end > size) {
            let message = format!(
                "access of {bytes} bytes of parameters at {offset:#x}, but the kernel has {size} bytes"
            );
            return Err(self.fault(place, lane, Kind::OutOfBounds, message));
        }
        Ok(offset as usize)
    }
}
