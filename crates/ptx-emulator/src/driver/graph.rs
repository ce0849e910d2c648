//! Graphs as a whole: making, instantiating, launching.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::entry::{Out, Text, api, current, stream};
use super::types::{InstantiateParams, UpdateResult};
use crate::runtime::{Code, Error, Exec, Graph, Machine, Node, Result};

fn instantiate(m: &Machine, exec: Out<u64>, graph: u64, flags: u64) -> Result<()> {
    exec.set(0)?;
    exec.set(m.instantiate(Graph(graph), flags)?.0)
}

/// A list with its length: asked for the length alone, or filled up to it. What is beyond the list becomes null.
pub(super) fn list(values: &[u64], to: Out<u64>, count: Out<usize>) -> Result<()> {
    if to.is_null() {
        return count.set(values.len());
    }
    let room = count.get()?;
    to.fill(values.iter().copied().chain(std::iter::repeat(0)).take(room))?;
    count.set(values.len().min(room))
}

fn update(m: &Machine, exec: u64, graph: u64) -> (Result<()>, c_int) {
    match m.update_exec(Exec(exec), Graph(graph)) {
        Ok(()) => (Ok(()), 0),
        // CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED or CU_GRAPH_EXEC_UPDATE_ERROR.
        Err(error) if error.code == Code::GRAPH_EXEC_UPDATE_FAILURE => (Err(error), 2),
        Err(error) => (Err(error), 1),
    }
}

api! {
    fn cuGraphCreate(m, graph: Out<u64>, flags: c_uint) {
        if flags != 0 {
            return Code::INVALID_VALUE.error(format!("graph flags {flags:#x}; there are none"));
        }
        graph.set(m.create_graph().0)
    }

    fn cuGraphDestroy(m, graph: u64) { m.destroy_graph(Graph(graph)) }

    fn cuGraphClone(m, clone: Out<u64>, graph: u64) { clone.set(m.clone_graph(Graph(graph))?.0) }

    fn cuGraphInstantiateWithFlags(m, exec: Out<u64>, graph: u64, flags: u64) { instantiate(m, exec, graph, flags) }

    fn cuGraphInstantiate_v2(m, exec: Out<u64>, graph: u64, node: Out<u64>, _log: Out<c_char>, _room: usize) {
        node.offer(0);
        instantiate(m, exec, graph, 0)
    }

    fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz(m, exec: Out<u64>, graph: u64, parameters: Out<InstantiateParams>) {
        let mut given = parameters.get()?;
        let done = instantiate(m, exec, graph, given.flags);
        // CUDA_GRAPH_INSTANTIATE_SUCCESS or _ERROR.
        given.result = c_int::from(done.is_err());
        given.error_node = 0;
        parameters.set(given)?;
        done
    }

    fn cuGraphLaunch | cuGraphLaunch_ptsz(m, exec: u64, handle: u64) { m.launch_graph(current()?, Exec(exec), stream(handle)) }

    fn cuGraphUpload | cuGraphUpload_ptsz(m, exec: u64, handle: u64) { m.upload_graph(current()?, Exec(exec), stream(handle)) }

    fn cuGraphExecDestroy(m, exec: u64) { m.destroy_exec(Exec(exec)) }

    fn cuGraphExecGetFlags(m, exec: u64, flags: Out<u64>) { flags.set(m.exec_flags(Exec(exec))?) }

    fn cuGraphExecUpdate(m, exec: u64, graph: u64, node: Out<u64>, result: Out<c_int>) {
        let (done, why) = update(m, exec, graph);
        node.offer(0);
        result.offer(why);
        done
    }

    fn cuGraphExecUpdate_v2(m, exec: u64, graph: u64, result: Out<UpdateResult>) {
        let (done, why) = update(m, exec, graph);
        result.offer(UpdateResult { result: why, node: 0, from: 0 });
        done
    }

    fn cuGraphGetNodes(m, graph: u64, nodes: Out<u64>, count: Out<usize>) {
        let all: Vec<u64> = m.graph_nodes(Graph(graph))?.into_iter().map(|node| node.0).collect();
        list(&all, nodes, count)
    }

    fn cuGraphGetRootNodes(m, graph: u64, nodes: Out<u64>, count: Out<usize>) {
        let edges = m.graph_edges(Graph(graph))?;
        let all = m.graph_nodes(Graph(graph))?.into_iter().filter(|node| edges.iter().all(|(_, to)| to != node));
        list(&all.map(|node| node.0).collect::<Vec<_>>(), nodes, count)
    }

    fn cuGraphGetEdges(m, graph: u64, from: Out<u64>, to: Out<u64>, count: Out<usize>) { edges(m, graph, from, to, count) }

    fn cuGraphGetEdges_v2(m, graph: u64, from: Out<u64>, to: Out<u64>, data: Out<u64>, count: Out<usize>) {
        if !data.is_null() && !from.is_null() {
            data.fill(std::iter::repeat_n(0, count.get()?))?;
        }
        edges(m, graph, from, to, count)
    }

    fn cuGraphDebugDotPrint(m, graph: u64, name: Text, _flags: c_uint) {
        let name = name.get()?;
        let text = m.graph_dot(Graph(graph))?;
        std::fs::write(&name, text).map_err(|error| Error::new(Code::OPERATING_SYSTEM, format!("{name}: {error}")))
    }

    fn cuGraphNodeFindInClone(m, node: Out<u64>, original: u64, clone: u64) {
        node.set(m.node_in_clone(Node(original), Graph(clone))?.0)
    }

    fn cuGraphConditionalHandleCreate(m, _handle: Out<u64>, _graph: u64, _context: u64, _value: c_uint, _flags: c_uint) {
        let _ = m;
        Code::NOT_SUPPORTED.error("conditional nodes are not emulated")
    }

    fn cuGraphAddNode(m, _node: Out<u64>, _graph: u64, _before: *const c_void, _count: usize, _parameters: *const c_void) {
        let _ = m;
        Code::NOT_SUPPORTED.error("cuGraphAddNode is not emulated; cuGraphAddKernelNode and its like are")
    }
}

fn edges(m: &Machine, graph: u64, from: Out<u64>, to: Out<u64>, count: Out<usize>) -> Result<()> {
    let all = m.graph_edges(Graph(graph))?;
    if from.is_null() || to.is_null() {
        return count.set(all.len());
    }
    let room = count.get()?;
    from.fill(all.iter().take(room).map(|edge| edge.0.0))?;
    to.fill(all.iter().take(room).map(|edge| edge.1.0))?;
    count.set(all.len().min(room))
}
