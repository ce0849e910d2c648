//! Events: a place in a stream, to wait for or to read the time at.
//!
//! The clock is virtual: it advances with work done and not with the host's time, so that a measurement is the same on every run. What it says
//! about speed is nothing.

use super::Machine;
use super::error::{Code, Result};
use super::handle::{Context, Event, Stream};
use super::state::EventState;
use super::work::Work;

/// `CU_EVENT_DISABLE_TIMING`.
pub const DISABLE_TIMING: u32 = 2;
/// Blocking synchronisation, no timing, between processes.
const KNOWN: u32 = 1 | DISABLE_TIMING | 4;

impl Machine {
    /// Makes an event that is not recorded.
    ///
    /// # Errors
    /// Unknown flags; a context that is none or dead.
    pub fn create_event(&self, context: Context, flags: u32) -> Result<Event> {
        let mut state = self.lock();
        state.context(context)?;
        if flags & !KNOWN != 0 || flags & 4 != 0 && flags & DISABLE_TIMING == 0 {
            return Code::INVALID_VALUE
                .error(format!("creating an event: flags {flags:#x} do not go together"));
        }
        let event = Event(state.number());
        state.events.insert(event, EventState { context, flags, recorded: None, at: None, captured: None });
        Ok(event)
    }

    /// Destroys an event. Streams that wait for it still do.
    ///
    /// # Errors
    /// No such event.
    pub fn destroy_event(&self, event: Event) -> Result<()> {
        let mut state = self.lock();
        state.event(event)?;
        state.events.remove(&event);
        Ok(())
    }

    /// Records what is in a stream now.
    ///
    /// # Errors
    /// Handles that are none, or of two contexts; the rules of capture.
    pub fn record_event(&self, context: Context, event: Event, stream: Stream) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        let of_stream = state.streams.get(&stream).map(|stream| stream.context);
        if Some(state.event(event)?.context) != of_stream {
            return Code::INVALID_HANDLE.error("recording an event in a stream of another context");
        }
        if state.capture_record(stream, event)? {
            return Ok(());
        }
        let before = state.before(stream);
        let task = state.append(stream, Work::Record(event), before, None);
        let found = state.event_mut(event)?;
        found.recorded = Some(task);
        found.at = None;
        found.captured = None;
        self.queued(state);
        Ok(())
    }

    /// Waits until what an event recorded is done; at once if it recorded nothing.
    ///
    /// # Errors
    /// No such event; the rules of capture; what went wrong on the device.
    pub fn synchronize_event(&self, event: Event) -> Result<()> {
        let mut state = self.lock();
        let context = state.event(event)?.context;
        state.context(context)?;
        state.not_captured(event)?;
        state.not_while_capturing("waiting for an event")?;
        let goals: Vec<_> = state.event(event)?.recorded.into_iter().collect();
        self.wait(state, context, &goals)
    }

    /// Whether what an event recorded is done.
    ///
    /// # Errors
    /// As [`Machine::synchronize_event`].
    pub fn query_event(&self, event: Event) -> Result<bool> {
        let mut state = self.lock();
        let context = state.event(event)?.context;
        state.context(context)?;
        state.not_captured(event)?;
        state.not_while_capturing("querying an event")?;
        let goals: Vec<_> = state.event(event)?.recorded.into_iter().collect();
        self.query(state, context, &goals)
    }

    /// Milliseconds of the virtual clock between two events.
    ///
    /// # Errors
    /// An event without timing, not recorded, or not reached yet (`CUDA_ERROR_NOT_READY`).
    pub fn elapsed(&self, start: Event, end: Event) -> Result<f32> {
        let state = self.lock();
        let mut times = [0u64; 2];
        for (time, event) in times.iter_mut().zip([start, end]) {
            state.not_captured(event)?;
            let found = state.event(event)?;
            state.context(found.context)?;
            if found.flags & DISABLE_TIMING != 0 {
                return Code::INVALID_HANDLE.error("the time between events: one was made without timing");
            }
            let Some(recorded) = found.recorded else {
                return Code::INVALID_HANDLE.error("the time between events: one was never recorded");
            };
            if !state.tasks.is_done(recorded) {
                return Code::NOT_READY.error("the time between events: one was not reached yet");
            }
            *time = found.at.unwrap_or(0);
        }
        Ok((times[1] as f64 - times[0] as f64) as f32 / 1e6)
    }
}
