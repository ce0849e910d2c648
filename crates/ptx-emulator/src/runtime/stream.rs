//! Streams: what is queued where, and what it waits for.

use std::sync::MutexGuard;

use super::error::{Code, Result};
use super::handle::{Context, Event, Stream};
use super::state::State;
use super::task::TaskId;
use super::work::{Comparison, Operation, Work};
use super::{Machine, copy};

/// `CU_STREAM_NON_BLOCKING`: the stream and the default stream do not wait for each other.
pub const NON_BLOCKING: u32 = 1;
/// The priorities there are: greatest number (lowest priority) first.
pub const PRIORITIES: (i32, i32) = (0, -5);

impl Machine {
    /// Makes a stream. A priority out of range is moved into it, as the driver does.
    ///
    /// # Errors
    /// Unknown flags; a context that is none or dead.
    pub fn create_stream(&self, context: Context, flags: u32, priority: i32) -> Result<Stream> {
        let mut state = self.lock();
        state.context(context)?;
        if flags & !NON_BLOCKING != 0 {
            return Code::INVALID_VALUE.error(format!("creating a stream: unknown flags {flags:#x}"));
        }
        Ok(state.add_stream(context, flags, priority.clamp(PRIORITIES.1, PRIORITIES.0), false))
    }

    /// Destroys a stream. What is queued in it still runs.
    ///
    /// # Errors
    /// No such stream.
    pub fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let mut state = self.lock();
        match state.streams.get(&stream) {
            Some(found) if !found.legacy => {}
            _ => return Code::INVALID_HANDLE.error(format!("{stream:x?} is no stream, or was destroyed")),
        }
        if let Some(gone) = state.streams.remove(&stream)
            && let Some((capture, _)) = gone.capture
        {
            state.invalidate(capture);
        }
        Ok(())
    }

    /// Waits until everything queued in a stream is done.
    ///
    /// # Errors
    /// A stream that is none or is capturing; what went wrong on the device.
    pub fn synchronize_stream(&self, context: Context, stream: Stream) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        state.not_capturing(stream, "synchronising with it")?;
        let goals = state.frontier(stream);
        let context = state.streams.get(&stream).map_or(context, |stream| stream.context);
        self.wait(state, context, &goals)
    }

    /// Whether everything queued in a stream is done. Asking lets a little of it run, so that a loop around it ends.
    ///
    /// # Errors
    /// As [`Machine::synchronize_stream`].
    pub fn query_stream(&self, context: Context, stream: Stream) -> Result<bool> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        state.not_capturing(stream, "querying it")?;
        let goals = state.frontier(stream);
        let context = state.streams.get(&stream).map_or(context, |stream| stream.context);
        self.query(state, context, &goals)
    }

    /// Waits until everything queued in a context is done.
    ///
    /// # Errors
    /// A context that is none; a capture that forbids it; what went wrong on the device.
    pub fn synchronize(&self, context: Context) -> Result<()> {
        let mut state = self.lock();
        state.context(context)?;
        state.not_while_capturing("synchronising with a context")?;
        let goals = state.queued_in(context);
        self.wait(state, context, &goals)
    }

    /// Lets what comes in a stream wait for an event as it is recorded now.
    ///
    /// # Errors
    /// Handles that are none; the rules of capture.
    pub fn stream_wait(&self, context: Context, stream: Stream, event: Event) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        if state.capture_wait(stream, event)? {
            return Ok(());
        }
        let recorded = state.event(event)?.recorded;
        let open = recorded.filter(|task| !state.tasks.is_done(*task));
        if let Some(stream) = state.streams.get_mut(&stream) {
            stream.waits.extend(recorded);
            stream.last_is_launch &= open.is_none();
        }
        Ok(())
    }

    /// Lets a stream wait until a word of memory compares.
    ///
    /// # Errors
    /// Handles that are none; an address that is none; a capture (there is no such node here).
    pub fn stream_wait_value(
        &self,
        context: Context,
        stream: Stream,
        address: u64,
        value: u64,
        wide: bool,
        flags: u32,
    ) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        state.not_capturing(stream, "waiting for a value")?;
        let until = match flags & 3 {
            0 => Comparison::AtLeast,
            1 => Comparison::Equal,
            2 => Comparison::And,
            _ => Comparison::Nor,
        };
        copy::read_word(&self.shared.memory, address, wide)
            .map_err(|fault| super::Error::new(Code::INVALID_VALUE, fault.message))?;
        let work = Work::WaitValue { address, value, wide, until };
        let before = state.before(stream);
        state.append(stream, work, before, None);
        self.queued(state);
        Ok(())
    }

    /// The context a stream belongs to, its flags and its priority.
    ///
    /// # Errors
    /// No such stream.
    pub fn stream_properties(&self, context: Context, stream: Stream) -> Result<(Context, u32, i32)> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        match state.streams.get(&stream) {
            Some(found) => Ok((found.context, found.flags, found.priority)),
            None => Code::INVALID_HANDLE.error(format!("{stream:x?} is no stream")),
        }
    }

    /// The number by which a stream is known for good, also where the handle means the default one.
    ///
    /// # Errors
    /// No such stream.
    pub fn stream_id(&self, context: Context, stream: Stream) -> Result<u64> {
        Ok(self.lock().stream(context, stream)?.0)
    }

    /// Queues an operation, or adds it to the graph if the stream is capturing.
    pub(crate) fn submit(&self, context: Context, stream: Stream, operation: Operation) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        if state.capture_operation(stream, &operation)? {
            return Ok(());
        }
        self.enqueue(&mut state, stream, &operation)?;
        self.queued(state);
        Ok(())
    }

    /// Queues an operation behind what is in a stream.
    pub(super) fn enqueue(&self, state: &mut State, stream: Stream, operation: &Operation) -> Result<TaskId> {
        let work = self.admit(state, operation)?;
        let before = state.before(stream);
        let mut primary = None;
        if let Operation::Launch(spec) = operation
            && spec.programmatic
            && let Some(found) = state.streams.get(&stream)
            && found.last_is_launch
        {
            primary = found.last;
        }
        let task = state.append(stream, work, before, primary);
        if let Some(stream) = state.streams.get_mut(&stream) {
            stream.last_is_launch = matches!(operation, Operation::Launch(_));
        }
        Ok(task)
    }

    /// Counts an operation, and replaces it by a failure where the settings say so.
    pub(super) fn admit(&self, state: &mut State, operation: &Operation) -> Result<Work> {
        let faults = &self.shared.settings.faults;
        let counts = &mut state.counts;
        let nth = match operation {
            Operation::Launch(_) => {
                counts.launches += 1;
                faults.launch.iter().find(|nth| nth.strikes(counts.launches))
            }
            Operation::Copy(copy) => {
                let bytes = copy.extent.bytes();
                counts.pageable_copies += u64::from(copy.is_pageable());
                match self.direction(copy) {
                    (false, true) => {
                        counts.uploads += 1;
                        counts.upload_bytes += bytes;
                    }
                    (true, false) => {
                        counts.downloads += 1;
                        counts.download_bytes += bytes;
                    }
                    _ => counts.device_copies += 1,
                }
                let between = self.is_between_devices(copy);
                counts.peer_copies += u64::from(between);
                let peer = faults.peer.iter().find(|nth| between && nth.strikes(counts.peer_copies));
                let copies = counts.uploads + counts.downloads + counts.device_copies;
                peer.or_else(|| faults.memcpy.iter().find(|nth| nth.strikes(copies)))
            }
            Operation::Fill(_) => {
                counts.fills += 1;
                None
            }
            Operation::Native(_) => {
                counts.library_calls += 1;
                None
            }
            Operation::Empty | Operation::Host(_) => None,
        };
        match nth {
            None => Ok(operation.work()),
            Some(nth) if Code(nth.code).is_sticky() => Ok(Work::Fail(Code(nth.code))),
            Some(nth) => Code(nth.code).error("made to fail by the settings"),
        }
    }

    /// Waits for tasks of a context and says what became of it.
    pub(super) fn wait(
        &self,
        mut state: MutexGuard<'_, State>,
        context: Context,
        goals: &[TaskId],
    ) -> Result<()> {
        state.counts.host_waits += 1;
        if goals.iter().any(|goal| !state.tasks.is_done(*goal)) {
            state.counts.host_blocked += 1;
        }
        let state = self.run_until(state, goals);
        state.context(context).map(|_| ())
    }

    pub(super) fn query<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        context: Context,
        goals: &[TaskId],
    ) -> Result<bool> {
        let open = |state: &State| goals.iter().any(|goal| !state.tasks.is_done(*goal));
        if open(&state) {
            state = self.step(state, Some(goals)).0;
        }
        state.context(context)?;
        let done = !open(&state);
        if done && let Some(orders) = &mut state.tasks.orders {
            orders.seen_by_host(goals);
        }
        Ok(done)
    }
}

impl State {
    /// What a synchronisation with a context waits for: what is queued in it, and what its streams were told to wait for, wherever that
    /// is. Some of it may be done.
    pub(super) fn queued_in(&self, context: Context) -> Vec<TaskId> {
        let mut all = self.tasks.which(|task| task.context == context);
        for stream in self.streams.values().filter(|stream| stream.context == context) {
            all.extend(&stream.waits);
            all.extend(stream.last);
        }
        all
    }

    /// What a synchronisation with a stream waits for; some of it may be done.
    pub(super) fn frontier(&self, stream: Stream) -> Vec<TaskId> {
        let Some(found) = self.streams.get(&stream) else { return Vec::new() };
        let mut all = found.waits.clone();
        all.extend(found.last);
        if found.legacy {
            for other in
                self.streams.values().filter(|s| s.context == found.context && s.flags & NON_BLOCKING == 0)
            {
                all.extend(&other.waits);
                all.extend(other.last);
            }
        }
        all
    }

    /// What the next task of a stream waits for.
    pub(super) fn before(&self, stream: Stream) -> Vec<TaskId> {
        let mut all = self.frontier(stream);
        if let Some(found) = self.streams.get(&stream)
            && !found.legacy
            && found.flags & NON_BLOCKING == 0
            && let Some(legacy) = self.contexts.get(&found.context).and_then(|c| self.streams.get(&c.legacy))
        {
            all.extend(&legacy.waits);
            all.extend(legacy.last);
        }
        all
    }

    /// Adds a task at the end of a stream.
    pub(super) fn append(
        &mut self,
        stream: Stream,
        work: Work,
        before: Vec<TaskId>,
        primary: Option<TaskId>,
    ) -> TaskId {
        let context = self.streams.get(&stream).map(|stream| stream.context).unwrap_or_default();
        let task = self.tasks.add(context, work, before, primary);
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.last = Some(task);
            stream.waits.clear();
            stream.last_is_launch = false;
        }
        task
    }
}
