//! The emulated machine: devices, contexts, streams, events, graphs, modules.
//!
//! Everything the driver does is here as safe Rust, and the C interface only translates; so a test can use the machine without a
//! shared library, and look inside: what was launched, what went wrong, what was never freed.
//!
//! ```
//! use ptx_emulator::runtime::{Argument, LaunchConfig, Machine, Stream};
//! use ptx_emulator::settings::Settings;
//!
//! let text = r"
//! .version 8.0
//! .target sm_80
//! .address_size 64
//! .visible .entry add(.param .u64 p, .param .u32 v)
//! {
//!     .reg .b32 %r<4>; .reg .b64 %rd<4>;
//!     ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v];
//!     mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;
//!     ld.global.u32 %r3, [%rd3]; add.s32 %r3, %r3, %r1; st.global.u32 [%rd3], %r3;
//!     ret;
//! }";
//! let machine = Machine::new(Settings::default());
//! let context = machine.retain_primary(0)?;
//! let add = machine.function(machine.load_module(context, text)?, "add")?;
//! let (stream, words) = (Stream::DEFAULT, machine.allocate(context, 16)?);
//! machine.upload(context, stream, words, &[1; 16])?;
//!
//! let four = LaunchConfig { grid: [1; 3], block: [4, 1, 1], ..LaunchConfig::default() };
//! machine.launch(context, stream, add, &four, &[Argument::Pointer(words), Argument::U32(1)])?;
//! let mut back = [0; 4];
//! machine.download(context, stream, &mut back, words + 12)?;
//! assert_eq!(u32::from_le_bytes(back), 0x0101_0102);
//!
//! // One thread too many: found, named, and the end of the context.
//! let five = LaunchConfig { block: [5, 1, 1], ..four };
//! machine.launch(context, stream, add, &five, &[Argument::Pointer(words), Argument::U32(1)])?;
//! assert!(machine.synchronize(context).is_err());
//! let fault = machine.take_fault().expect("a report");
//! assert_eq!(fault.site.map(|site| (site.kernel, site.thread)), Some(("add".into(), 4)));
//! # Ok::<(), ptx_emulator::runtime::Error>(())
//! ```

mod allocate;
mod capture;
mod context;
pub(crate) mod copy;
mod counts;
mod error;
mod event;
mod graph;
mod graph_exec;
mod handle;
mod launch;
mod module;
mod occupancy;
mod order;
mod pool;
mod schedule;
pub(crate) mod state;
mod stream;
mod task;
#[cfg(test)]
mod tests;
mod transfer;
pub(crate) mod work;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub use allocate::PointerFacts;
pub use capture::{CaptureMode, CaptureStatus};
pub use counts::Counts;
pub use error::{Code, Error, Result};
pub use event::DISABLE_TIMING;
pub use graph::NodeKind;
pub use handle::{Context, Event, Exec, Function, Graph, Module, Node, Pool, Stream};
pub use launch::{Argument, LaunchConfig};
pub(crate) use schedule::{in_host_function, say};
pub use stream::{NON_BLOCKING, PRIORITIES};
pub use transfer::{Place3, Transfer};

use crate::check::races::Races;
use crate::fault::Fault;
use crate::memory::Memory;
use crate::settings::{Check, Settings};
use state::State;

/// An emulated machine with its devices. Clones are the same machine.
#[derive(Clone, Debug)]
pub struct Machine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    memory: Arc<Memory>,
    /// Where races are looked for.
    races: Option<Arc<Races>>,
    state: Mutex<State>,
    /// A task has run.
    changed: Condvar,
}

impl Machine {
    /// A machine with the devices of the settings, switched on.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let memory = if settings.check >= Check::On { Memory::tracking() } else { Memory::new() };
        for (index, device) in settings.devices.iter().enumerate() {
            if let Ok(index) = u32::try_from(index) {
                memory.set_capacity(index, device.memory);
            }
        }
        let memory = Arc::new(memory);
        let mut state = State::new(settings.seed);
        let mut races = None;
        if settings.check >= Check::Races {
            races = Some(Races::new(Arc::clone(&memory)));
            state.tasks.orders = Some(order::Orders::default());
        }
        let shared = Shared { settings, memory, races, state: Mutex::new(state), changed: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// The settings it was made with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// All memory, of devices and pinned.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.shared.memory
    }

    /// The first thing a kernel did wrong, or the checker found, since this was asked last.
    #[must_use]
    pub fn take_fault(&self) -> Option<Fault> {
        self.lock().fault.take().map(|fault| (*fault).clone())
    }

    /// What happened so far, in numbers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Starts counting anew; faults that are made to happen by number count anew too.
    pub fn reset_counts(&self) {
        self.lock().counts = Counts::default();
    }

    /// Lets contexts that an error killed work again, as no driver can: for tests that go on after a fault.
    pub fn forgive(&self) {
        let mut state = self.lock();
        for context in state.contexts.values_mut() {
            context.error = None;
        }
        state.fault = None;
    }

    /// Runs everything that is queued anywhere.
    pub fn drain(&self) {
        let state = self.lock();
        let goals = state.tasks.which(|_| true);
        drop(self.run_until(state, &goals));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call of the driver interface; the number it is.
    pub(crate) fn called(&self) -> u64 {
        let mut state = self.lock();
        state.last_call = Instant::now();
        state.counts.calls += 1;
        state.counts.calls
    }

    /// A call of cuBLAS; the status it is told to fail with.
    pub(crate) fn called_cublas(&self) -> Option<i32> {
        self.called();
        let mut state = self.lock();
        state.counts.cublas_calls += 1;
        let count = state.counts.cublas_calls;
        self.shared.settings.faults.cublas.iter().find(|nth| nth.strikes(count)).map(|nth| nth.code)
    }
}
