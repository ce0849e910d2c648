//! What a task does.

use std::fmt;
use std::sync::Arc;

use super::copy::{Copy, Fill};
use super::error::Code;
use super::handle::{Event, Function};
use crate::exec::Grid;
use crate::fault::Fault;
use crate::memory::Memory;
use crate::program::Program;

/// A kernel and all it is launched with.
#[derive(Clone, Debug)]
pub(crate) struct LaunchSpec {
    pub(crate) function: Function,
    pub(crate) program: Arc<Program>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) arguments: Vec<u8>,
    pub(crate) cooperative: bool,
    /// May begin before the launch ahead of it has ended.
    pub(crate) programmatic: bool,
}

/// A launch, perhaps half run.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) spec: Arc<LaunchSpec>,
    pub(crate) grid: Option<Box<Grid>>,
    /// The grid has ended, though what it depends on may not.
    pub(crate) ended: bool,
}

/// A function of the host, called in stream order.
#[derive(Clone)]
pub(crate) struct HostFunction(pub(crate) Arc<dyn Fn() + Send + Sync>);

/// A computation of a library, done by the host on device memory.
#[derive(Clone)]
pub(crate) struct Native {
    pub(crate) name: &'static str,
    pub(crate) run: Arc<Computation>,
}

/// What such a computation does.
pub(crate) type Computation = dyn Fn(&Reach<'_>) -> Result<(), Fault> + Send + Sync;

/// Memory as a library's computation reaches it.
pub(crate) struct Reach<'a> {
    pub(crate) memory: &'a Memory,
    /// Told of each piece before it is touched: address, bytes, whether it is written.
    pub(crate) told: &'a dyn Fn(u64, u64, bool) -> Result<(), Fault>,
}

/// When a wait on a value ends (`CUstreamWaitValue_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    AtLeast,
    Equal,
    And,
    Nor,
}

/// What a task does.
#[derive(Debug)]
pub(crate) enum Work {
    /// Nothing: a place to wait for.
    Empty,
    Copy(Copy),
    Fill(Fill),
    Launch(Launched),
    Host(HostFunction),
    Native(Native),
    /// Notes the time.
    Record(Event),
    /// Fails: the settings want it.
    Fail(Code),
    /// Gives memory back.
    Free(u64),
    /// Waits until a word of memory compares.
    WaitValue {
        address: u64,
        value: u64,
        wide: bool,
        until: Comparison,
    },
}

/// What can be queued and can stand in a graph.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Empty,
    Copy(Copy),
    Fill(Fill),
    Launch(Arc<LaunchSpec>),
    Host(HostFunction),
    Native(Native),
}

impl Operation {
    /// The work of one run of it.
    pub(crate) fn work(&self) -> Work {
        match self {
            Self::Empty => Work::Empty,
            Self::Copy(copy) => Work::Copy(copy.clone()),
            Self::Fill(fill) => Work::Fill(*fill),
            Self::Launch(spec) => Work::Launch(Launched::new(Arc::clone(spec))),
            Self::Host(function) => Work::Host(function.clone()),
            Self::Native(native) => Work::Native(native.clone()),
        }
    }
}

impl Launched {
    pub(crate) fn new(spec: Arc<LaunchSpec>) -> Self {
        Self { spec, grid: None, ended: false }
    }
}

impl fmt::Debug for HostFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostFunction")
    }
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Native").field(&self.name).finish()
    }
}
