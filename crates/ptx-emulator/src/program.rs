//! A kernel made ready to run: steps over numbered rows of registers.
//!
//! Each step carries a function pointer that was chosen when the kernel was lowered, so that running it decides nothing but the
//! lanes. Inlining calls and folding addresses happen once, in `lower`; what is left is a flat list with branch targets.

use crate::exec::Cx;
use crate::exec::registers::{Class, Mask, Registers, Slot};
use crate::fault::Fault;

/// No register.
pub(crate) const NONE: Slot = Slot::MAX;

/// What a step that can fail gives back.
pub(crate) type Outcome = Result<(), Box<Fault>>;

/// Computes on registers alone; cannot fail.
///
/// Unsafe to call only because a variant may be compiled for processor features; it is chosen after they were found.
pub(crate) type AluFn = unsafe fn(&mut Registers, &Step, Mask);

/// Touches memory, other lanes' state or the block.
///
/// Unsafe to call for the same reason as [`AluFn`].
pub(crate) type ExecFn = unsafe fn(&mut Cx<'_>, &Step, Mask) -> Outcome;

/// How a step runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Registers in, registers out.
    Alu(AluFn),
    /// Memory, conversion of addresses, atomics, copies, anything that needs the block or the grid.
    Exec(ExecFn),
    /// Like `Exec`, but all lanes of the member mask (the row `src[3]`; all 32 where that is [`NONE`]) come together first.
    Together(ExecFn),
    /// Jump to step `imm` where the guard holds.
    Branch,
    /// Jump to step `slots[list][src[0]]` (`brx.idx`).
    BranchIndexed,
    /// The lanes end.
    Exit,
    /// `bar.warp.sync`: the lanes of the member mask (`src[3]`) come together, wherever each is.
    WarpSync,
    /// `bar`, `barrier`: the lanes wait for the block. `src[0]` is the row of the barrier's number, `src[1]` of the number of threads
    /// (or [`NONE`]: all of the block).
    Barrier(BarrierKind),
    /// `griddepcontrol.wait`: the grid waits for the one before it.
    DependencyWait,
}

/// What a barrier does beside waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    /// `bar.sync`, `barrier.sync`; `dst` is unused.
    Sync,
    /// `bar.arrive`: no waiting.
    Arrive,
    /// `bar.red.popc`: `dst` gets how many threads hold `src[2]`.
    Popc,
    /// `bar.red.and`.
    And,
    /// `bar.red.or`.
    Or,
}

/// Which operands in a step's list are results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// Any of them may be.
    Unknown,
    /// So many from there on.
    At(u8, u8),
}

/// One instruction, decoded.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// How it runs.
    pub(crate) action: Action,
    /// Predicate that must hold, or [`NONE`].
    pub(crate) guard: Slot,
    /// The guard must not hold.
    pub(crate) guard_negated: bool,
    /// First result, or [`NONE`]. Its class is fixed by the instruction.
    pub(crate) dst: Slot,
    /// Second result (`p|q`), or [`NONE`].
    pub(crate) dst2: Slot,
    /// Sources. Constants have rows of their own.
    pub(crate) src: [Slot; 4],
    /// Bit `k`: predicate source `k` is negated. From bit 8 on: free for the instruction.
    pub(crate) flags: u32,
    /// An immediate whose meaning the action fixes (offset of an address, branch target, …).
    pub(crate) imm: i64,
    /// Operands that do not fit: a range of [`Program::slots`].
    pub(crate) list: (u32, u32),
    /// Which of those are written, all others being read.
    pub(crate) results: Results,
    /// All it does is to copy the row `src[0]` to `dst`.
    pub(crate) moves: bool,
    /// Index into [`Program::places`].
    pub(crate) place: u32,
}

/// Where a step comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Line in the PTX.
    pub(crate) ptx_line: u32,
    /// File and line in the source, where the debug information tells them.
    pub(crate) source: Option<(std::sync::Arc<str>, u32)>,
    /// Where the call stands, if the line belongs to a function that was inlined.
    pub(crate) caller: Option<(std::sync::Arc<str>, u32)>,
    /// The instruction with its modifiers.
    pub(crate) text: String,
}

/// A kernel's parameter within the parameter block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamSlot {
    /// Byte offset.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// A kernel, ready to launch.
#[derive(Debug)]
pub struct Program {
    /// The entry's name.
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) places: Vec<Place>,
    /// Longer operand lists.
    pub(crate) slots: Vec<Slot>,
    /// Rows of each class a warp needs: words, longs, predicates.
    pub(crate) rows: [u32; 3],
    /// How many of the rows of each class are variables; constants and special registers stand behind them.
    pub(crate) variables: [u32; 3],
    /// Rows of special registers.
    pub(crate) specials: Vec<(crate::exec::specials::Special, Slot)>,
    /// Rows that hold one constant in all lanes; set once for each warp and never written.
    pub(crate) constants: Vec<(Class, Slot, u64)>,
    /// Parameters in order.
    pub(crate) params: Vec<ParamSlot>,
    /// The kernel has fences, or accesses with an order.
    pub(crate) fences: bool,
    /// Bytes of the narrowest access to shared memory.
    pub(crate) granule: u32,
    /// Bytes of the parameter block.
    pub(crate) param_bytes: u32,
    /// Bytes of static shared memory.
    pub(crate) static_shared: u32,
    /// Where dynamic shared memory begins.
    pub(crate) dynamic_base: u32,
    /// Bytes of local memory for each thread.
    pub(crate) local_bytes: u32,
    /// `.maxntid` and its like.
    pub(crate) limits: crate::ptx::ast::Limits,
}

impl Program {
    /// A kernel with no steps and no parameters.
    #[cfg(test)]
    pub(crate) fn empty(name: &str) -> Self {
        Self {
            name: name.into(),
            steps: Vec::new(),
            places: Vec::new(),
            slots: Vec::new(),
            rows: [0; 3],
            constants: Vec::new(),
            variables: [0; 3],
            specials: Vec::new(),
            fences: false,
            params: Vec::new(),
            param_bytes: 0,
            static_shared: 0,
            dynamic_base: 0,
            local_bytes: 0,
            limits: Default::default(),
            granule: 4,
        }
    }

    /// Bytes of a block's shared memory, with so many dynamic ones.
    pub(crate) fn shared_bytes(&self, dynamic: u32) -> u32 {
        let dynamic_end = if dynamic > 0 { self.dynamic_base.saturating_add(dynamic) } else { 0 };
        self.static_shared.max(dynamic_end)
    }

    /// Where a place is, in words: `file.cu:12`, `help.cuh:3 (from file.cu:12)` of what was inlined, or `ptx line 40` without debug information.
    #[must_use]
    pub fn place_name(&self, place: u32) -> String {
        match self.places.get(place as usize) {
            Some(Place { source: Some((file, line)), caller: Some((from, at)), .. }) => {
                format!("{file}:{line} (from {from}:{at})")
            }
            Some(Place { source: Some((file, line)), .. }) => format!("{file}:{line}"),
            Some(Place { ptx_line, text, .. }) => format!("ptx line {ptx_line} ({text})"),
            None => "an unknown place".into(),
        }
    }
}

impl Program {
    /// The operands of a step that did not fit into it.
    #[inline(always)]
    pub(crate) fn list(&self, step: &Step) -> &[Slot] {
        let (start, len) = step.list;
        self.slots.get(start as usize..(start + len) as usize).unwrap_or_default()
    }
}

impl Step {
    /// A step with nothing set but its action.
    pub(crate) fn new(action: Action) -> Self {
        Self {
            action,
            guard: NONE,
            guard_negated: false,
            dst: NONE,
            dst2: NONE,
            src: [NONE; 4],
            flags: 0,
            imm: 0,
            list: (0, 0),
            results: Results::Unknown,
            moves: false,
            place: 0,
        }
    }
}
