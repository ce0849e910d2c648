//! Graphs: nodes and what each waits for.

use std::collections::HashSet;
use std::sync::Arc;

use super::Machine;
use super::error::{Code, Error, Result};
use super::handle::{Graph, Node};
use super::state::State;
use super::work::Operation;

/// A graph that can still be changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct GraphState {
    /// In the order in which they were added.
    pub(crate) nodes: Vec<(Node, NodeState)>,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    pub(crate) operation: Operation,
    /// What it waits for.
    pub(crate) before: Vec<Node>,
    /// The node it was cloned from.
    pub(crate) original: Option<Node>,
}

/// What a node does (`CUgraphNodeType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A kernel (or a library's computation, which is one).
    Kernel = 0,
    /// A copy.
    Memcpy = 1,
    /// A fill.
    Memset = 2,
    /// A function of the host.
    Host = 3,
    /// Nothing.
    Empty = 5,
}

impl Operation {
    /// The kind of node it makes.
    pub(crate) fn kind(&self) -> NodeKind {
        match self {
            Self::Launch(_) | Self::Native(_) => NodeKind::Kernel,
            Self::Copy(_) => NodeKind::Memcpy,
            Self::Fill(_) => NodeKind::Memset,
            Self::Host(_) => NodeKind::Host,
            Self::Empty => NodeKind::Empty,
        }
    }
}

impl GraphState {
    pub(crate) fn get(&self, node: Node) -> Option<&NodeState> {
        self.nodes.iter().find(|(id, _)| *id == node).map(|(_, state)| state)
    }

    pub(crate) fn get_mut(&mut self, node: Node) -> Option<&mut NodeState> {
        self.nodes.iter_mut().find(|(id, _)| *id == node).map(|(_, state)| state)
    }

    /// Some nodes and all that come before them.
    pub(crate) fn ancestors(&self, nodes: &[Node]) -> HashSet<Node> {
        let mut found = HashSet::new();
        let mut open = nodes.to_vec();
        let index: std::collections::HashMap<Node, &NodeState> =
            self.nodes.iter().map(|(n, s)| (*n, s)).collect();
        while let Some(node) = open.pop() {
            if found.insert(node)
                && let Some(state) = index.get(&node)
            {
                open.extend(&state.before);
            }
        }
        found
    }
}

impl Machine {
    /// Makes an empty graph.
    pub fn create_graph(&self) -> Graph {
        let mut state = self.lock();
        let graph = Graph(state.number());
        state.graphs.insert(graph, GraphState::default());
        graph
    }

    /// Destroys a graph; what was instantiated from it stays.
    ///
    /// # Errors
    /// No such graph.
    pub fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let mut state = self.lock();
        state.graph(graph)?;
        state.graphs.remove(&graph);
        Ok(())
    }

    /// A copy of a graph, with nodes of its own.
    ///
    /// # Errors
    /// No such graph.
    pub fn clone_graph(&self, graph: Graph) -> Result<Graph> {
        let mut state = self.lock();
        let old = state.graph(graph)?.clone();
        let names: Vec<(Node, Node)> =
            old.nodes.iter().map(|(node, _)| (*node, Node(state.number()))).collect();
        let renamed = |node: Node| names.iter().find(|(old, _)| *old == node).map_or(node, |(_, new)| *new);
        let nodes = old.nodes.into_iter().map(|(node, found)| {
            let before = found.before.iter().map(|before| renamed(*before)).collect();
            (renamed(node), NodeState { operation: found.operation, before, original: Some(node) })
        });
        let copy = GraphState { nodes: nodes.collect() };
        let graph = Graph(state.number());
        state.graphs.insert(graph, copy);
        Ok(graph)
    }

    /// The node of a clone that stands for a node of the original.
    ///
    /// # Errors
    /// No such graph, or no such node in it.
    pub fn node_in_clone(&self, node: Node, clone: Graph) -> Result<Node> {
        let state = self.lock();
        let found = state.graph(clone)?.nodes.iter().find(|(_, found)| found.original == Some(node));
        found
            .map(|(node, _)| *node)
            .ok_or_else(|| Error::new(Code::INVALID_VALUE, "the clone has no such node"))
    }

    /// Adds a node.
    pub(crate) fn add_node(&self, graph: Graph, operation: Operation, before: &[Node]) -> Result<Node> {
        let mut state = self.lock();
        let found = state.graph(graph)?;
        let mut waits = Vec::new();
        for node in before {
            if found.get(*node).is_none() || waits.contains(node) {
                return Code::INVALID_VALUE
                    .error(format!("adding a node: {node:x?} is not in the graph, or is given twice"));
            }
            waits.push(*node);
        }
        let node = Node(state.number());
        state.graph_mut(graph)?.nodes.push((node, NodeState { operation, before: waits, original: None }));
        Ok(node)
    }

    /// Replaces what a node does by something of the same kind.
    pub(crate) fn set_node(&self, node: Node, operation: Operation) -> Result<()> {
        let mut state = self.lock();
        let graph = state.graph_of(node)?;
        let found = state.graph_mut(graph)?.get_mut(node);
        match found {
            Some(found) if found.operation.kind() == operation.kind() => {
                found.operation = operation;
                Ok(())
            }
            _ => Code::INVALID_VALUE.error("changing a node into one of another kind"),
        }
    }

    /// What a node does.
    pub(crate) fn node_operation(&self, node: Node) -> Result<Operation> {
        let state = self.lock();
        let graph = state.graph_of(node)?;
        state
            .graph(graph)?
            .get(node)
            .map(|found| found.operation.clone())
            .ok_or_else(|| Error::new(Code::INVALID_VALUE, "no such node"))
    }

    /// What kind of node it is.
    ///
    /// # Errors
    /// No such node.
    pub fn node_kind(&self, node: Node) -> Result<NodeKind> {
        Ok(self.node_operation(node)?.kind())
    }

    /// The nodes of a graph.
    ///
    /// # Errors
    /// No such graph.
    pub fn graph_nodes(&self, graph: Graph) -> Result<Vec<Node>> {
        Ok(self.lock().graph(graph)?.nodes.iter().map(|(node, _)| *node).collect())
    }

    /// What waits for what: pairs of a node and one that waits for it.
    ///
    /// # Errors
    /// No such graph.
    pub fn graph_edges(&self, graph: Graph) -> Result<Vec<(Node, Node)>> {
        let state = self.lock();
        let nodes = &state.graph(graph)?.nodes;
        Ok(nodes
            .iter()
            .flat_map(|(node, found)| found.before.iter().map(move |before| (*before, *node)))
            .collect())
    }

    /// The nodes of a node's graph that come right before it, or right after.
    ///
    /// # Errors
    /// No such node.
    pub fn node_neighbours(&self, node: Node, after: bool) -> Result<Vec<Node>> {
        let graph = self.lock().graph_of(node)?;
        let edges = self.graph_edges(graph)?;
        Ok(edges
            .into_iter()
            .filter_map(
                |(from, to)| {
                    if after { (from == node).then_some(to) } else { (to == node).then_some(from) }
                },
            )
            .collect())
    }

    /// Adds edges, or removes them.
    ///
    /// # Errors
    /// Nodes of another graph; an edge that exists (or does not); a cycle.
    pub fn change_edges(&self, graph: Graph, edges: &[(Node, Node)], add: bool) -> Result<()> {
        let mut state = self.lock();
        let mut changed = state.graph(graph)?.clone();
        for (from, to) in edges {
            let invalid =
                || Error::new(Code::INVALID_VALUE, format!("changing the edge {from:x?} to {to:x?}"));
            changed.get(*from).ok_or_else(invalid)?;
            if add && changed.ancestors(&[*from]).contains(to) {
                return Err(invalid());
            }
            let before = &mut changed.get_mut(*to).ok_or_else(invalid)?.before;
            if before.contains(from) == add {
                return Err(invalid());
            }
            if add {
                before.push(*from);
            } else {
                before.retain(|node| node != from);
            }
        }
        *state.graph_mut(graph)? = changed;
        Ok(())
    }

    /// Removes a node with its edges.
    ///
    /// # Errors
    /// No such node.
    pub fn destroy_node(&self, node: Node) -> Result<()> {
        let mut state = self.lock();
        let graph = state.graph_of(node)?;
        let found = state.graph_mut(graph)?;
        found.nodes.retain(|(id, _)| *id != node);
        for (_, other) in &mut found.nodes {
            other.before.retain(|before| *before != node);
        }
        Ok(())
    }

    /// A graph as Graphviz text.
    ///
    /// # Errors
    /// No such graph.
    pub fn graph_dot(&self, graph: Graph) -> Result<String> {
        use std::fmt::Write;
        let state = self.lock();
        let mut text = String::from("digraph dot {\n");
        for (node, found) in &state.graph(graph)?.nodes {
            let label = match &found.operation {
                Operation::Launch(spec) => spec.program.name.clone(),
                Operation::Native(native) => native.name.to_owned(),
                other => format!("{:?}", other.kind()),
            };
            // Writing to a string does not fail.
            let _ = writeln!(text, "  n{} [label=\"{label}\"];", node.0);
            for before in &found.before {
                let _ = writeln!(text, "  n{} -> n{};", before.0, node.0);
            }
        }
        text.push_str("}\n");
        Ok(text)
    }
}

impl State {
    pub(super) fn graph(&self, graph: Graph) -> Result<&GraphState> {
        self.graphs.get(&graph).ok_or_else(|| {
            Error::new(Code::INVALID_VALUE, format!("{graph:x?} is no graph, or was destroyed"))
        })
    }

    pub(super) fn graph_mut(&mut self, graph: Graph) -> Result<&mut GraphState> {
        self.graphs.get_mut(&graph).ok_or_else(|| {
            Error::new(Code::INVALID_VALUE, format!("{graph:x?} is no graph, or was destroyed"))
        })
    }

    pub(super) fn graph_of(&self, node: Node) -> Result<Graph> {
        let found = self.graphs.iter().find(|(_, graph)| graph.get(node).is_some());
        found
            .map(|(graph, _)| *graph)
            .ok_or_else(|| Error::new(Code::INVALID_VALUE, format!("{node:x?} is in no graph")))
    }
}

/// A node of an instantiated graph.
#[derive(Clone, Debug)]
pub(crate) struct ExecNode {
    pub(crate) node: Node,
    pub(crate) operation: Operation,
    /// Indices of the nodes it waits for; all smaller than its own.
    pub(crate) before: Vec<usize>,
}

/// An instantiated graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExecState {
    pub(crate) nodes: Arc<Vec<ExecNode>>,
    /// The end of its last launch: launches of one graph follow one another.
    pub(crate) last: Option<super::task::TaskId>,
    pub(crate) flags: u64,
}
