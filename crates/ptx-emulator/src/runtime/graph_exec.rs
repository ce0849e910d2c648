//! Instantiated graphs: launching and updating them.
//!
//! A launch adds the nodes as tasks with the edges they have and nothing more: two nodes that no edge orders run in an order drawn from the
//! seed, so that a missing edge shows.

use std::sync::Arc;

use super::Machine;
use super::error::{Code, Error, Result};
use super::graph::{ExecNode, ExecState, GraphState, NodeState};
use super::handle::{Context, Exec, Graph, Node, Stream};
use super::state::State;
use super::work::{Operation, Work};

/// `AUTO_FREE_ON_LAUNCH`, `UPLOAD`, `DEVICE_LAUNCH`, `USE_NODE_PRIORITY`.
const KNOWN_FLAGS: u64 = 1 | 2 | 4 | 8;

impl Machine {
    /// Makes a graph ready to launch.
    ///
    /// # Errors
    /// No such graph; flags that are unknown or do not go together; nodes whose kernel was unloaded.
    pub fn instantiate(&self, graph: Graph, flags: u64) -> Result<Exec> {
        let mut state = self.lock();
        if flags & !KNOWN_FLAGS != 0 || flags & 5 == 5 {
            return Code::INVALID_VALUE.error(format!("instantiating a graph with flags {flags:#x}"));
        }
        if flags & 4 != 0 {
            return Code::NOT_SUPPORTED.error("launching graphs from the device is not emulated");
        }
        let found = state.graph(graph)?;
        for (_, node) in &found.nodes {
            if let Operation::Launch(spec) = &node.operation {
                state.function(spec.function)?;
            }
        }
        let nodes = Arc::new(sorted(found)?);
        state.counts.graph_instantiations += 1;
        self.admit_graph(&state, "instantiating")?;
        let exec = Exec(state.number());
        state.execs.insert(exec, ExecState { nodes, last: None, flags });
        Ok(exec)
    }

    /// Destroys an instantiated graph; a launch in progress goes on.
    ///
    /// # Errors
    /// No such graph.
    pub fn destroy_exec(&self, exec: Exec) -> Result<()> {
        let mut state = self.lock();
        state.exec(exec)?;
        state.execs.remove(&exec);
        Ok(())
    }

    /// Fails where the settings say so.
    fn admit_graph(&self, state: &State, doing: &str) -> Result<()> {
        let count = state.counts.graph_instantiations + state.counts.graph_launches;
        match self.shared.settings.faults.graph.iter().find(|nth| nth.strikes(count)) {
            Some(nth) => Code(nth.code).error(format!("{doing} a graph: told to fail")),
            None => Ok(()),
        }
    }

    /// Launches a graph in a stream.
    ///
    /// # Errors
    /// Handles that are none; kernels of another context than the stream's; in a capturing stream (graphs within graphs are not emulated).
    pub fn launch_graph(&self, context: Context, exec: Exec, stream: Stream) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(context, stream)?;
        state.not_capturing(stream, "launching a graph")?;
        let (nodes, last) = {
            let found = state.exec(exec)?;
            (Arc::clone(&found.nodes), found.last)
        };
        let home = state.streams.get(&stream).map_or(context, |stream| stream.context);
        for node in nodes.iter() {
            if let Operation::Launch(spec) = &node.operation
                && state.function(spec.function)?.context != home
            {
                return Code::INVALID_VALUE
                    .error("launching a graph in a stream of another context than its kernels'");
            }
        }
        state.counts.graph_launches += 1;
        self.admit_graph(&state, "launching")?;
        let mut before = state.before(stream);
        before.extend(last);
        let mut tasks = Vec::with_capacity(nodes.len());
        let mut ends = vec![true; nodes.len()];
        for node in nodes.iter() {
            let work = self.admit(&mut state, &node.operation)?;
            let waits: Vec<_> = if node.before.is_empty() {
                before.clone()
            } else {
                node.before.iter().filter_map(|index| tasks.get(*index).copied()).collect()
            };
            for index in &node.before {
                if let Some(end) = ends.get_mut(*index) {
                    *end = false;
                }
            }
            let primary = match (&node.operation, node.before.as_slice()) {
                (Operation::Launch(spec), [one]) if spec.programmatic => tasks.get(*one).copied(),
                _ => None,
            };
            tasks.push(state.tasks.add(home, work, waits, primary));
        }
        let mut joined: Vec<_> =
            tasks.iter().zip(&ends).filter(|(_, end)| **end).map(|(task, _)| *task).collect();
        if joined.is_empty() {
            joined = before;
        }
        let end = state.append(stream, Work::Empty, joined, None);
        if let Some(found) = state.execs.get_mut(&exec) {
            found.last = Some(end);
        }
        self.queued(state);
        Ok(())
    }

    /// The flags a graph was instantiated with.
    ///
    /// # Errors
    /// No such graph.
    pub fn exec_flags(&self, exec: Exec) -> Result<u64> {
        Ok(self.lock().exec(exec)?.flags)
    }

    /// Checks an upload's handles; there is nothing to upload.
    ///
    /// # Errors
    /// Handles that are none.
    pub fn upload_graph(&self, context: Context, exec: Exec, stream: Stream) -> Result<()> {
        let mut state = self.lock();
        state.stream(context, stream)?;
        state.exec(exec).map(|_| ())
    }

    /// Replaces what the nodes of an instantiated graph do by those of a graph of the same shape.
    ///
    /// # Errors
    /// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE` if the shapes differ.
    pub fn update_exec(&self, exec: Exec, graph: Graph) -> Result<()> {
        let mut state = self.lock();
        let new = sorted(state.graph(graph)?)?;
        let old = state.exec(exec)?;
        let same = old.nodes.len() == new.len()
            && old
                .nodes
                .iter()
                .zip(&new)
                .all(|(a, b)| a.before == b.before && a.operation.kind() == b.operation.kind());
        if !same {
            return Code::GRAPH_EXEC_UPDATE_FAILURE.error(
                "updating an instantiated graph: the new one has other nodes or edges; instantiate it",
            );
        }
        let merged = old.nodes.iter().zip(new).map(|(a, b)| ExecNode { node: a.node, ..b }).collect();
        if let Some(found) = state.execs.get_mut(&exec) {
            found.nodes = Arc::new(merged);
        }
        Ok(())
    }

    /// Replaces what one node of an instantiated graph does; launches in progress keep the old.
    pub(crate) fn set_exec_node(&self, exec: Exec, node: Node, operation: Operation) -> Result<()> {
        let mut state = self.lock();
        let Some(found) = state.execs.get_mut(&exec) else {
            return Code::INVALID_VALUE
                .error(format!("{exec:x?} is no instantiated graph, or was destroyed"));
        };
        let nodes = Arc::make_mut(&mut found.nodes);
        match nodes.iter_mut().find(|found| found.node == node) {
            Some(found) if found.operation.kind() == operation.kind() => {
                found.operation = operation;
                Ok(())
            }
            Some(_) => Code::INVALID_VALUE.error("changing a node into one of another kind"),
            None => Code::INVALID_VALUE.error(format!("{node:x?} is not in the instantiated graph")),
        }
    }
}

impl State {
    fn exec(&self, exec: Exec) -> Result<&ExecState> {
        self.execs.get(&exec).ok_or_else(|| {
            Error::new(Code::INVALID_VALUE, format!("{exec:x?} is no instantiated graph, or was destroyed"))
        })
    }
}

/// The nodes in an order in which each comes after those it waits for.
fn sorted(graph: &GraphState) -> Result<Vec<ExecNode>> {
    let mut done: std::collections::HashMap<Node, usize> = std::collections::HashMap::new();
    let mut nodes: Vec<ExecNode> = Vec::with_capacity(graph.nodes.len());
    let mut rest: Vec<&(Node, NodeState)> = graph.nodes.iter().collect();
    while !rest.is_empty() {
        let open = rest.len();
        let mut later = Vec::new();
        for pair in rest {
            let (node, found) = pair;
            let before: Option<Vec<usize>> =
                found.before.iter().map(|node| done.get(node).copied()).collect();
            match before {
                Some(before) => {
                    done.insert(*node, nodes.len());
                    nodes.push(ExecNode { node: *node, operation: found.operation.clone(), before });
                }
                None => later.push(pair),
            }
        }
        if later.len() == open {
            return Code::INVALID_VALUE.error("instantiating a graph with a cycle");
        }
        rest = later;
    }
    Ok(nodes)
}
