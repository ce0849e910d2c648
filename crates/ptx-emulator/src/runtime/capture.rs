//! Stream capture: queued work becomes nodes of a graph, and what must not happen meanwhile.
//!
//! The rules are CUDA's (driver API, "stream management"): a call that could wait for the device, or touch the default stream, breaks
//! the capture, and the capture stays broken until it is ended. A program that only meets the rules by luck fails here.

use std::thread::ThreadId;

use super::Machine;
use super::error::{Code, Result};
use super::graph::{GraphState, NodeState};
use super::handle::{Context, Event, Graph, Node, Stream};
use super::state::State;
use super::stream::NON_BLOCKING;
use super::work::Operation;

/// Which calls of which threads a capture forbids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// Unsafe calls of any thread.
    #[default]
    Global,
    /// Unsafe calls of the capturing thread.
    ThreadLocal,
    /// None.
    Relaxed,
}

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) graph: Graph,
    pub(crate) mode: CaptureMode,
    pub(crate) thread: ThreadId,
    pub(crate) origin: Stream,
    pub(crate) broken: bool,
}

/// What `cuStreamIsCapturing` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// No capture.
    None,
    /// A capture in progress.
    Active,
    /// A capture that was broken and not ended.
    Invalidated,
}

impl Machine {
    /// Begins to capture what is queued in a stream.
    ///
    /// # Errors
    /// The default stream (`CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`); a stream that captures already.
    pub fn begin_capture(&self, context: Context, stream: Stream, mode: CaptureMode) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        if state.context(context)?.legacy == stream {
            return Code::STREAM_CAPTURE_UNSUPPORTED.error("the default stream cannot be captured; make one");
        }
        if state.streams.get(&stream).is_some_and(|stream| stream.capture.is_some()) {
            return Code::ILLEGAL_STATE.error("beginning a capture: the stream captures already");
        }
        let graph = Graph(state.number());
        state.graphs.insert(graph, GraphState::default());
        let id = state.number();
        let thread = std::thread::current().id();
        state.captures.insert(id, Capture { graph, mode, thread, origin: stream, broken: false });
        if let Some(stream) = state.streams.get_mut(&stream) {
            stream.capture = Some((id, Vec::new()));
        }
        Ok(())
    }

    /// Ends a capture and gives its graph.
    ///
    /// # Errors
    /// A stream that does not capture or did not begin; another thread; work that was forked and not joined; a broken capture.
    /// The capture is over after each of these but the first two and the wrong thread.
    pub fn end_capture(&self, context: Context, stream: Stream) -> Result<Graph> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        let Some((id, frontier)) = state.streams.get(&stream).and_then(|stream| stream.capture.clone())
        else {
            return Code::ILLEGAL_STATE.error("ending a capture: the stream does not capture");
        };
        let Some(capture) = state.captures.get(&id) else {
            return Code::ILLEGAL_STATE.error("ending a capture: it is gone");
        };
        let (graph, broken) = (capture.graph, capture.broken);
        if capture.origin != stream {
            state.invalidate(id);
            return Code::STREAM_CAPTURE_UNMATCHED
                .error("ending a capture in a stream in which it did not begin");
        }
        if capture.mode != CaptureMode::Relaxed && capture.thread != std::thread::current().id() {
            return Code::STREAM_CAPTURE_WRONG_THREAD
                .error("ending a capture on another thread than it began on; only relaxed ones may");
        }
        let reached = state.graphs.get(&graph).map(|graph| graph.ancestors(&frontier)).unwrap_or_default();
        let unjoined =
            state.streams.values_mut().filter(|stream| stream.capture.as_ref().is_some_and(|c| c.0 == id));
        let mut loose = false;
        for stream in unjoined {
            let (_, nodes) = stream.capture.take().unwrap_or_default();
            loose |= nodes.iter().any(|node| !reached.contains(node));
        }
        state.captures.remove(&id);
        if broken || loose {
            state.graphs.remove(&graph);
        }
        if broken {
            return Code::STREAM_CAPTURE_INVALIDATED
                .error("ending a capture: something that is not allowed during capture broke it");
        }
        if loose {
            return Code::STREAM_CAPTURE_UNJOINED.error(
                "ending a capture: another stream took part, and its work was not joined by an event before the end",
            );
        }
        Ok(graph)
    }

    /// Whether a stream captures; the capture's number and its graph so far, and what the next node would depend on.
    ///
    /// # Errors
    /// No such stream; the default stream while a stream that it waits for captures.
    pub fn capture_status(
        &self,
        context: Context,
        stream: Stream,
    ) -> Result<(CaptureStatus, u64, Graph, Vec<Node>)> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        state.no_implicit_join(stream)?;
        let nothing = (CaptureStatus::None, 0, Graph(0), Vec::new());
        let Some((id, nodes)) = state.streams.get(&stream).and_then(|s| s.capture.clone()) else {
            return Ok(nothing);
        };
        Ok(match state.captures.get(&id) {
            None => nothing,
            Some(capture) if capture.broken => (CaptureStatus::Invalidated, id, Graph(0), Vec::new()),
            Some(capture) => (CaptureStatus::Active, id, capture.graph, nodes),
        })
    }

    /// Sets what captures forbid to this thread and tells what it was.
    pub fn exchange_capture_mode(&self, mode: CaptureMode) -> CaptureMode {
        let thread = std::thread::current().id();
        self.lock().capture_modes.insert(thread, mode).unwrap_or_default()
    }
}

impl State {
    /// Breaks a capture.
    pub(super) fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.broken = true;
        }
    }

    /// Refuses what could wait for the device while a capture forbids it; the capture breaks.
    pub(super) fn not_while_capturing(&mut self, doing: &str) -> Result<()> {
        if self.captures.is_empty() {
            return Ok(());
        }
        let thread = std::thread::current().id();
        let own = self.capture_modes.get(&thread).copied().unwrap_or_default();
        if own == CaptureMode::Relaxed {
            return Ok(());
        }
        let mut forbidden = false;
        for capture in self.captures.values_mut() {
            let hit = match capture.mode {
                CaptureMode::Relaxed => false,
                CaptureMode::ThreadLocal => capture.thread == thread,
                CaptureMode::Global => capture.thread == thread || own == CaptureMode::Global,
            };
            capture.broken |= hit;
            forbidden |= hit;
        }
        if forbidden {
            return Code::STREAM_CAPTURE_UNSUPPORTED
                .error(format!("{doing} while a stream captures; the capture is broken by it"));
        }
        Ok(())
    }

    /// Refuses what cannot be done with a capturing stream; the capture breaks.
    pub(super) fn not_capturing(&mut self, stream: Stream, doing: &str) -> Result<()> {
        self.no_implicit_join(stream)?;
        if let Some((id, _)) = self.streams.get(&stream).and_then(|stream| stream.capture.as_ref()) {
            let id = *id;
            self.invalidate(id);
            return Code::STREAM_CAPTURE_UNSUPPORTED
                .error(format!("{doing} while the stream captures; the capture is broken by it"));
        }
        Ok(())
    }

    /// Refuses to wait for an event that stands for nodes of a graph; the capture breaks.
    pub(super) fn not_captured(&self, event: Event) -> Result<()> {
        match self.event(event)?.captured {
            Some(_) => Code::CAPTURED_EVENT.error("the event was last recorded in a capturing stream"),
            None => Ok(()),
        }
    }

    /// Refuses the default stream while a stream that waits for it captures; the capture breaks.
    pub(super) fn no_implicit_join(&mut self, stream: Stream) -> Result<()> {
        let Some(found) = self.streams.get(&stream) else { return Ok(()) };
        if !found.legacy || self.captures.is_empty() {
            return Ok(());
        }
        let context = found.context;
        let hit: Vec<u64> = self
            .streams
            .values()
            .filter(|other| other.context == context && other.flags & NON_BLOCKING == 0)
            .filter_map(|other| other.capture.as_ref().map(|capture| capture.0))
            .collect();
        for id in &hit {
            self.invalidate(*id);
        }
        if hit.is_empty() {
            return Ok(());
        }
        Code::STREAM_CAPTURE_IMPLICIT.error(
            "the default stream waits for all blocking streams, and one of them captures; make that one non-blocking",
        )
    }

    /// The graph that a stream adds to; `None` if it does not capture.
    fn capture_of(&mut self, stream: Stream) -> Result<Option<(u64, Graph, Vec<Node>)>> {
        self.no_implicit_join(stream)?;
        let Some((id, nodes)) = self.streams.get(&stream).and_then(|stream| stream.capture.clone()) else {
            return Ok(None);
        };
        match self.captures.get(&id) {
            Some(capture) if capture.broken => {
                Code::STREAM_CAPTURE_INVALIDATED.error("the capture was broken by an earlier call; end it")
            }
            Some(capture) => Ok(Some((id, capture.graph, nodes))),
            None => Ok(None),
        }
    }

    /// Adds an operation to the graph, if the stream captures.
    pub(super) fn capture_operation(&mut self, stream: Stream, operation: &Operation) -> Result<bool> {
        let Some((id, graph, before)) = self.capture_of(stream)? else { return Ok(false) };
        let node = Node(self.number());
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.nodes.push((node, NodeState { operation: operation.clone(), before, original: None }));
        }
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.capture = Some((id, vec![node]));
        }
        Ok(true)
    }

    /// Lets an event stand for the nodes so far, if the stream captures.
    pub(super) fn capture_record(&mut self, stream: Stream, event: Event) -> Result<bool> {
        let Some((id, _, nodes)) = self.capture_of(stream)? else { return Ok(false) };
        let event = self.event_mut(event)?;
        event.captured = Some((id, nodes));
        event.recorded = None;
        event.at = None;
        Ok(true)
    }

    /// Adds the nodes of an event to what comes next, if the stream or the event is captured; the stream joins the capture.
    pub(super) fn capture_wait(&mut self, stream: Stream, event: Event) -> Result<bool> {
        let own = self.capture_of(stream)?;
        let found = self.event(event)?;
        match (own, found.captured.clone()) {
            (None, None) => Ok(false),
            (Some((id, ..)), None) => {
                if found.recorded.is_none() {
                    return Ok(true);
                }
                self.invalidate(id);
                Code::STREAM_CAPTURE_ISOLATION
                    .error("a capturing stream cannot wait for an event recorded outside of the capture")
            }
            (own, Some((id, nodes))) => {
                let Some(capture) = self.captures.get(&id) else {
                    return Code::CAPTURED_EVENT
                        .error("waiting for an event that a capture recorded which has ended");
                };
                if capture.broken {
                    return Code::STREAM_CAPTURE_INVALIDATED
                        .error("the event's capture was broken by an earlier call");
                }
                let mut all = match own {
                    Some((other, ..)) if other != id => {
                        self.invalidate(id);
                        self.invalidate(other);
                        return Code::STREAM_CAPTURE_MERGE.error("an event would join two captures");
                    }
                    Some((_, _, nodes)) => nodes,
                    None => Vec::new(),
                };
                let Some(found) = self.streams.get_mut(&stream) else { return Ok(true) };
                if found.legacy {
                    self.invalidate(id);
                    return Code::STREAM_CAPTURE_IMPLICIT.error("the default stream cannot join a capture");
                }
                for node in nodes {
                    if !all.contains(&node) {
                        all.push(node);
                    }
                }
                found.capture = Some((id, all));
                Ok(true)
            }
        }
    }
}
