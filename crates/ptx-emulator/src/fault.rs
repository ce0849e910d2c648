//! What went wrong on the device: an error of the hardware, or a finding of the checker.

use std::fmt;

/// What kind of thing went wrong. The first group a GPU notices too; of the rest only the checker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An address outside every allocation.
    OutOfBounds,
    /// An address that the access's size does not divide.
    Misaligned,
    /// An allocation that was freed before.
    UseAfterFree,
    /// `trap`, or an instruction that cannot go on.
    Trap,
    /// `__assertfail`.
    Assertion,
    /// Threads wait for one another for ever.
    Deadlock,
    /// The launch ran longer than the limit in the settings.
    TimedOut,
    /// Made to fail by the settings.
    Injected,
    /// Something the emulator does not do.
    Unsupported,
    /// A read of memory nothing wrote.
    Unwritten,
    /// Two accesses of shared memory that nothing orders.
    SharedRace,
    /// Two accesses of global memory that nothing orders.
    GlobalRace,
    /// A barrier reached by some threads of a block, or at different places.
    DivergentBarrier,
    /// A `.sync` operation whose mask names lanes that are not there.
    WrongMask,
    /// A rule of the instruction, or of a copy, broken by its operands (a bad `mbarrier` count, a wait on nothing, ends that overlap).
    Misuse,
    /// An allocation nobody freed.
    Leak,
}

/// One thread at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The kernel.
    pub kernel: String,
    /// `file.cu:12` from the debug information, or `ptx line 40`.
    pub place: String,
    /// The block's index.
    pub block: [u32; 3],
    /// The thread's index in its block, counted through.
    pub thread: u32,
}

/// A fault or a finding, with the thread it struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind.
    pub kind: Kind,
    /// What happened, in one sentence.
    pub message: String,
    /// Who did it.
    pub site: Option<Site>,
    /// The other party of a race.
    pub other: Option<Site>,
}

impl Kind {
    /// The driver's error number for a kernel that ended this way (`CUresult`).
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::OutOfBounds | Self::UseAfterFree => 700,
            Self::TimedOut => 702,
            Self::Assertion => 710,
            Self::Trap => 715,
            Self::Misaligned => 716,
            _ => 719,
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.block;
        write!(f, "{} at {}, block ({x}, {y}, {z}), thread {}", self.kernel, self.place, self.thread)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(site) = &self.site {
            write!(f, "\n    in {site}")?;
        }
        if let Some(other) = &self.other {
            write!(f, "\n    and {other}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
