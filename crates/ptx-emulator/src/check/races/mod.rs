//! Races in global memory: accesses of threads, blocks, kernels and copies that nothing orders.
//!
//! Found by what happened before what (vector clocks) and not by what happened to collide in this run: a missing event shows in every
//! order the streams are run in. Clocks have three levels, each as coarse as it can be without inventing a race: operations
//! on chains ([`Known`]), blocks by fences and strong accesses, warps of a block by barriers.
//!
//! The memory model is taken at its word: a flag that is read without a fence after it (or an acquire) orders nothing, and two
//! plain writes race even where they write the same.

mod block;
mod knowledge;
mod order;
mod shadow;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub use order::{Known, Moment};

use super::watch::{BlockWatch, Watch};
use crate::fault::{Fault, Kind, Site};
use crate::memory::Memory;
use crate::program::Program;
use knowledge::Knowledge;
use shadow::{Collision, Mark, Shadow, Strength};

/// What all operations did to global memory, and whether it was in order.
#[derive(Debug)]
pub struct Races {
    memory: Arc<Memory>,
    shadow: Shadow,
    operations: RwLock<Vec<Operation>>,
    /// What strong writes have released, by address.
    flags: Mutex<HashMap<u64, Knowledge>>,
}

/// An operation that touched memory.
#[derive(Debug)]
struct Operation {
    moment: Moment,
    what: What,
}

#[derive(Debug)]
enum What {
    Kernel { program: Arc<Program>, grid: [u32; 3] },
    Transfer(String),
}

/// An operation of the host's making that touches memory.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    races: &'a Races,
    label: &'a str,
    operation: u32,
    known: &'a Known,
}

/// A kernel under watch.
#[derive(Debug)]
struct Kernel {
    races: Arc<Races>,
    program: Arc<Program>,
    grid: [u32; 3],
    operation: u32,
    known: Known,
    known_after_wait: Known,
}

impl Races {
    /// Nothing happened yet in `memory`.
    #[must_use]
    pub fn new(memory: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            memory,
            shadow: Shadow::default(),
            operations: RwLock::default(),
            flags: Mutex::default(),
        })
    }

    fn begin(&self, moment: Moment, what: What) -> u32 {
        let mut operations = self.operations.write().unwrap_or_else(PoisonError::into_inner);
        operations.push(Operation { moment, what });
        u32::try_from(operations.len()).unwrap_or(u32::MAX)
    }

    /// A kernel begins at `moment`, knowing of the operations in `known`, and after `griddepcontrol.wait` of those in `known_after_wait`
    /// too (which is the same for an ordinary launch).
    #[must_use]
    pub(crate) fn kernel(
        self: &Arc<Self>,
        program: &Arc<Program>,
        grid: [u32; 3],
        moment: Moment,
        known: Known,
        known_after_wait: Known,
    ) -> Arc<dyn Watch> {
        let program = Arc::clone(program);
        let operation = self.begin(moment, What::Kernel { program: Arc::clone(&program), grid });
        let races = Arc::clone(self);
        Arc::new(KernelWatch(Arc::new(Kernel { races, program, grid, operation, known, known_after_wait })))
    }

    /// A copy, a memset, a free or a library's computation called `label` begins at `moment`, knowing of the operations in `known`.
    pub(crate) fn transfer<'a>(&'a self, label: &'a str, moment: Moment, known: &'a Known) -> Transfer<'a> {
        let operation = self.begin(moment, What::Transfer(label.to_owned()));
        Transfer { races: self, label, operation, known }
    }

    /// Bytes of the allocation that begins at `address`; 0 if none does.
    pub(crate) fn length(&self, address: u64) -> u64 {
        self.memory.find(address).filter(|found| found.start == address).map_or(0, |found| found.len)
    }

    /// These bytes were freed: what is placed there later has nothing to do with them.
    pub fn forget(&self, address: u64, bytes: u64) {
        self.shadow.forget(address, bytes);
        let mut flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        flags.retain(|flag, _| !(address..address.saturating_add(bytes)).contains(flag));
    }

    fn moment(&self, operation: u32) -> Moment {
        let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        let index = (operation as usize).wrapping_sub(1);
        operations.get(index).map_or(Moment { chain: u32::MAX, count: u64::MAX }, |found| found.moment)
    }

    fn comes_before(&self, operation: u32, kernel: &Kernel, waited: bool) -> bool {
        let known = if waited { &kernel.known_after_wait } else { &kernel.known };
        known.has(self.moment(operation))
    }

    /// A strong write carries what its warp released.
    fn publish(&self, address: u64, released: &Knowledge, kernel: &Kernel) {
        let mut flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        let flag = flags.entry(address).or_default();
        flag.retain(|operation| operation == kernel.operation || !self.comes_before(operation, kernel, true));
        flag.join(released);
    }

    /// A strong read takes in what the flag carries.
    fn collect(&self, address: u64, pending: &mut Knowledge) {
        let flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flag) = flags.get(&address) {
            pending.join(flag);
        }
    }

    fn report(&self, collision: Collision, site: Option<Site>) -> Box<Fault> {
        let Collision { what, address, other } = collision;
        let message = format!(
            "race in global memory at {address:#x} ({}): {what}, and nothing orders the two",
            self.memory.describe(address)
        );
        Box::new(Fault { kind: Kind::GlobalRace, message, site, other: self.site(other) })
    }

    fn site(&self, mark: Mark) -> Option<Site> {
        let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        Some(match &operations.get((mark.operation as usize).wrapping_sub(1))?.what {
            What::Transfer(label) => transfer_site(label),
            What::Kernel { program, grid } => {
                let [width, height, _] = grid.map(|extent| extent.max(1));
                let block = [mark.block % width, mark.block / width % height, mark.block / width / height];
                Site {
                    kernel: program.name.clone(),
                    place: program.place_name(mark.place()),
                    block,
                    thread: mark.thread(),
                }
            }
        })
    }
}

impl Transfer<'_> {
    /// Reads or writes `bytes` bytes at `address`.
    ///
    /// # Errors
    /// The race that was found.
    pub(crate) fn touch(&self, address: u64, bytes: u64, writes: bool) -> Result<(), Box<Fault>> {
        let Self { races, label, operation, known } = self;
        let mark = Mark::new(*operation, Mark::TRANSFER, 0, 0, 0, 0, Strength::Weak);
        let mut ordered =
            |other: Mark| other.operation == *operation || known.has(races.moment(other.operation));
        let found = races.shadow.access(address, bytes, mark, !writes, writes, &mut ordered);
        found.map_err(|collision| races.report(collision, Some(transfer_site(label))))
    }
}

/// A copy has no threads; its name says what it is.
fn transfer_site(label: &str) -> Site {
    Site { kernel: label.to_owned(), place: "the host's call".into(), block: [0; 3], thread: 0 }
}

impl Kernel {
    fn site(&self, index: [u32; 3], mark: Mark) -> Site {
        Site {
            kernel: self.program.name.clone(),
            place: self.program.place_name(mark.place()),
            block: index,
            thread: mark.thread(),
        }
    }
}

/// Gives each block of a kernel its watch.
#[derive(Debug)]
struct KernelWatch(Arc<Kernel>);

impl Watch for KernelWatch {
    fn block(&self, index: [u32; 3], warps: u32) -> Box<dyn BlockWatch> {
        Box::new(block::Block::new(Arc::clone(&self.0), index, warps))
    }
}
