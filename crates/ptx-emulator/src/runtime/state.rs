//! Everything the machine keeps besides memory, behind one lock.
//!
//! One lock and not one for each stream: what makes a driver hard to trust is the order of events, and with one lock there is one
//! order. The lock is not held while kernels, copies and host functions run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Instant;

use super::capture::{Capture, CaptureMode};
use super::counts::Counts;
use super::error::{Code, Error, Result};
use super::graph::{ExecState, GraphState};
use super::handle::{Context, Event, Exec, Function, Graph, Module, Node, Pool, Stream};
use super::module::{FunctionState, ModuleState};
use super::pool::PoolState;
use super::task::{TaskId, Tasks};
use crate::fault::Fault;

/// A context.
#[derive(Debug)]
pub(crate) struct ContextState {
    pub(crate) device: u32,
    pub(crate) flags: u32,
    /// How often the primary context was retained; 0 for others.
    pub(crate) retained: u32,
    pub(crate) primary: bool,
    pub(crate) error: Option<Code>,
    pub(crate) legacy: Stream,
    pub(crate) thread_streams: HashMap<ThreadId, Stream>,
    pub(crate) limits: BTreeMap<i32, u64>,
    pub(crate) cache_config: i32,
    pub(crate) peers: BTreeSet<u32>,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) context: Context,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// The default stream that all blocking streams wait for.
    pub(crate) legacy: bool,
    /// Its last task.
    pub(crate) last: Option<TaskId>,
    /// What the next task waits for besides.
    pub(crate) waits: Vec<TaskId>,
    /// The last task is a launch, and nothing was waited for since.
    pub(crate) last_is_launch: bool,
    /// The capture that this stream takes part in, and the nodes its next one depends on.
    pub(crate) capture: Option<(u64, Vec<Node>)>,
}

/// An event.
#[derive(Debug)]
pub(crate) struct EventState {
    pub(crate) context: Context,
    pub(crate) flags: u32,
    pub(crate) recorded: Option<TaskId>,
    /// Virtual nanoseconds at which the last record ran.
    pub(crate) at: Option<u64>,
    /// Recorded in a capture: which, and the nodes it stands for.
    pub(crate) captured: Option<(u64, Vec<Node>)>,
}

/// Where an allocation came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Device,
    Pool(Pool),
    Module(Module),
    Pinned,
    Registered,
}

/// What is known of an allocation besides its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned {
    pub(crate) context: Context,
    pub(crate) device: u32,
    pub(crate) origin: Origin,
    /// A free in stream order was queued.
    pub(crate) freeing: bool,
    pub(crate) flags: u32,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    next: u64,
    pub(crate) contexts: HashMap<Context, ContextState>,
    pub(crate) primaries: HashMap<u32, Context>,
    pub(crate) streams: HashMap<Stream, StreamState>,
    pub(crate) events: HashMap<Event, EventState>,
    pub(crate) modules: HashMap<Module, ModuleState>,
    pub(crate) functions: HashMap<Function, FunctionState>,
    pub(crate) graphs: HashMap<Graph, GraphState>,
    pub(crate) execs: HashMap<Exec, ExecState>,
    pub(crate) pools: HashMap<Pool, PoolState>,
    /// The default pool and the current one of each device.
    pub(crate) device_pools: HashMap<u32, (Pool, Pool)>,
    pub(crate) captures: HashMap<u64, Capture>,
    pub(crate) capture_modes: HashMap<ThreadId, CaptureMode>,
    pub(crate) owned: HashMap<u64, Owned>,
    pub(crate) tasks: Tasks,
    /// Waits for values that were not there, since anything else ran last.
    pub(crate) stalled: BTreeSet<TaskId>,
    /// Somebody runs a task.
    pub(crate) running: bool,
    /// Virtual nanoseconds since the machine was switched on.
    pub(crate) clock: u64,
    pub(crate) random: Random,
    pub(crate) counts: Counts,
    pub(crate) last_call: Instant,
    /// The first fault, until it is taken.
    pub(crate) fault: Option<Arc<Fault>>,
    pub(crate) drainer: bool,
}

/// A small generator (splitmix64): the same numbers for the same seed, everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (which is not 0).
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

impl State {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            next: 0,
            contexts: HashMap::new(),
            primaries: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            pools: HashMap::new(),
            device_pools: HashMap::new(),
            captures: HashMap::new(),
            capture_modes: HashMap::new(),
            owned: HashMap::new(),
            tasks: Tasks::default(),
            stalled: BTreeSet::new(),
            running: false,
            clock: 0,
            random: Random::new(seed),
            counts: Counts::default(),
            last_call: Instant::now(),
            fault: None,
            drainer: false,
        }
    }

    /// A number for a handle, unlike all before; spaced like addresses, so that arithmetic on one does not give another.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        0xe000_0000 + self.next * 64
    }

    /// A context that can still do something.
    pub(crate) fn context(&self, context: Context) -> Result<&ContextState> {
        let Some(state) = self.contexts.get(&context) else {
            return Code::INVALID_CONTEXT.error(format!(
                "{context:x?} is no context, or was destroyed; is one current on this thread?"
            ));
        };
        match state.error {
            None => Ok(state),
            Some(code) => {
                Err(Error::new(code, "an earlier error of this context; nothing works in it any more"))
            }
        }
    }

    pub(crate) fn context_mut(&mut self, context: Context) -> Result<&mut ContextState> {
        self.context(context)?;
        self.contexts
            .get_mut(&context)
            .ok_or_else(|| Error::new(Code::INVALID_CONTEXT, format!("{context:x?} is no context")))
    }

    /// The stream that a handle means in a context and on this thread.
    pub(crate) fn stream(&mut self, context: Context, stream: Stream) -> Result<Stream> {
        match stream {
            Stream::DEFAULT | Stream::LEGACY => Ok(self.context(context)?.legacy),
            Stream::PER_THREAD => {
                let thread = std::thread::current().id();
                if let Some(known) = self.context(context)?.thread_streams.get(&thread) {
                    return Ok(*known);
                }
                let made = self.add_stream(context, 0, 0, false);
                self.context_mut(context)?.thread_streams.insert(thread, made);
                Ok(made)
            }
            _ => {
                let known = self.streams.get(&stream).filter(|state| !state.legacy);
                let Some(known) = known else {
                    return Code::INVALID_HANDLE.error(format!("{stream:x?} is no stream, or was destroyed"));
                };
                self.context(known.context)?;
                Ok(stream)
            }
        }
    }

    pub(crate) fn add_stream(&mut self, context: Context, flags: u32, priority: i32, legacy: bool) -> Stream {
        let stream = Stream(self.number());
        let state = StreamState {
            context,
            flags,
            priority,
            legacy,
            last: None,
            waits: Vec::new(),
            last_is_launch: false,
            capture: None,
        };
        self.streams.insert(stream, state);
        stream
    }

    pub(crate) fn event(&self, event: Event) -> Result<&EventState> {
        self.events.get(&event).ok_or_else(|| {
            Error::new(Code::INVALID_HANDLE, format!("{event:x?} is no event, or was destroyed"))
        })
    }

    pub(crate) fn event_mut(&mut self, event: Event) -> Result<&mut EventState> {
        self.events.get_mut(&event).ok_or_else(|| {
            Error::new(Code::INVALID_HANDLE, format!("{event:x?} is no event, or was destroyed"))
        })
    }

    pub(crate) fn function(&self, function: Function) -> Result<&FunctionState> {
        self.functions.get(&function).ok_or_else(|| {
            Error::new(
                Code::INVALID_HANDLE,
                format!("{function:x?} is no function, or its module was unloaded"),
            )
        })
    }
}
