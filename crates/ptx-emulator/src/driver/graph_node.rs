//! Nodes of graphs.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use super::entry::{In, Out, api, current};
use super::graph::list;
use super::launch::arguments;
use super::memory_copy::three;
use super::stream::host;
use super::types::{Copy3, HostNodeParams, KernelNodeParams, KernelNodeParams1, MemsetNodeParams};
use crate::runtime::work::Operation;
use crate::runtime::{Code, Exec, Function, Graph, LaunchConfig, Machine, Node, Result};

fn kernel(m: &Machine, given: &KernelNodeParams) -> Result<Operation> {
    let function = Function(if given.function == 0 { given.kernel } else { given.function });
    let config = LaunchConfig {
        grid: given.grid,
        block: given.block,
        shared: given.shared,
        ..LaunchConfig::default()
    };
    let block = arguments(m, function, given.params, given.extra)?;
    let context = m.function_facts(function)?.1;
    Ok(Operation::Launch(Arc::new(m.launch_spec(context, None, function, &config, block)?)))
}

/// The parameters of version 1 as those of version 2.
fn newer(given: &KernelNodeParams1) -> KernelNodeParams {
    let KernelNodeParams1 { function, grid, block, shared, params, extra } = *given;
    KernelNodeParams { function, grid, block, shared, params, extra, kernel: 0, context: 0 }
}

fn memset(m: &Machine, given: &MemsetNodeParams) -> Result<Operation> {
    let (columns, rows) = (given.width as u64, given.height as u64);
    let value = (given.value, given.size);
    Ok(Operation::Fill(m.checked_fill(given.to, given.pitch as u64, value, columns, rows)?))
}

fn add(
    m: &Machine,
    node: Out<u64>,
    graph: u64,
    before: In<u64>,
    count: usize,
    operation: Operation,
) -> Result<()> {
    let before: Vec<Node> = before.list(count)?.into_iter().map(Node).collect();
    node.set(m.add_node(Graph(graph), operation, &before)?.0)
}

fn parameters(m: &Machine, node: u64) -> Result<KernelNodeParams> {
    match m.node_operation(Node(node))? {
        Operation::Launch(spec) => Ok(KernelNodeParams {
            function: spec.function.0,
            grid: spec.grid,
            block: spec.block,
            shared: spec.shared,
            // The addresses the arguments came from are not kept.
            params: std::ptr::null(),
            extra: std::ptr::null(),
            kernel: 0,
            context: 0,
        }),
        _ => Code::INVALID_VALUE.error("the node launches no kernel"),
    }
}

fn edges(m: &Machine, graph: u64, from: In<u64>, to: In<u64>, count: usize, add: bool) -> Result<()> {
    let pairs: Vec<(Node, Node)> =
        from.list(count)?.into_iter().map(Node).zip(to.list(count)?.into_iter().map(Node)).collect();
    m.change_edges(Graph(graph), &pairs, add)
}

fn neighbours(m: &Machine, node: u64, after: bool, to: Out<u64>, count: Out<usize>) -> Result<()> {
    let all: Vec<u64> = m.node_neighbours(Node(node), after)?.into_iter().map(|node| node.0).collect();
    list(&all, to, count)
}

api! {
    fn cuGraphAddKernelNode(m, node: Out<u64>, graph: u64, before: In<u64>, count: usize, given: In<KernelNodeParams1>) {
        add(m, node, graph, before, count, kernel(m, &newer(&given.get()?))?)
    }

    fn cuGraphAddKernelNode_v2(m, node: Out<u64>, graph: u64, before: In<u64>, count: usize, given: In<KernelNodeParams>) {
        add(m, node, graph, before, count, kernel(m, &given.get()?)?)
    }

    fn cuGraphAddMemcpyNode(m, node: Out<u64>, graph: u64, before: In<u64>, count: usize, given: In<Copy3>, context: u64) {
        m.check_context(if context == 0 { current()? } else { crate::runtime::Context(context) })?;
        let copy = m.checked(&three(&given.get()?)?)?;
        add(m, node, graph, before, count, Operation::Copy(copy))
    }

    fn cuGraphAddMemsetNode(m, node: Out<u64>, graph: u64, before: In<u64>, count: usize, given: In<MemsetNodeParams>, context: u64) {
        m.check_context(if context == 0 { current()? } else { crate::runtime::Context(context) })?;
        let fill = memset(m, &given.get()?)?;
        add(m, node, graph, before, count, fill)
    }

    fn cuGraphAddHostNode(m, node: Out<u64>, graph: u64, before: In<u64>, count: usize, given: In<HostNodeParams>) {
        let given = given.get()?;
        add(m, node, graph, before, count, host(given.function, given.data)?)
    }

    fn cuGraphAddEmptyNode(m, node: Out<u64>, graph: u64, before: In<u64>, count: usize) {
        add(m, node, graph, before, count, Operation::Empty)
    }

    fn cuGraphKernelNodeGetParams(m, node: u64, to: Out<KernelNodeParams1>) {
        let KernelNodeParams { function, grid, block, shared, params, extra, .. } = parameters(m, node)?;
        to.set(KernelNodeParams1 { function, grid, block, shared, params, extra })
    }

    fn cuGraphKernelNodeGetParams_v2(m, node: u64, to: Out<KernelNodeParams>) { to.set(parameters(m, node)?) }

    fn cuGraphKernelNodeSetParams(m, node: u64, given: In<KernelNodeParams1>) { m.set_node(Node(node), kernel(m, &newer(&given.get()?))?) }

    fn cuGraphKernelNodeSetParams_v2(m, node: u64, given: In<KernelNodeParams>) { m.set_node(Node(node), kernel(m, &given.get()?)?) }

    fn cuGraphExecKernelNodeSetParams(m, exec: u64, node: u64, given: In<KernelNodeParams1>) {
        m.set_exec_node(Exec(exec), Node(node), kernel(m, &newer(&given.get()?))?)
    }

    fn cuGraphExecKernelNodeSetParams_v2(m, exec: u64, node: u64, given: In<KernelNodeParams>) {
        m.set_exec_node(Exec(exec), Node(node), kernel(m, &given.get()?)?)
    }

    fn cuGraphExecMemcpyNodeSetParams(m, exec: u64, node: u64, given: In<Copy3>, _context: u64) {
        let copy = m.checked(&three(&given.get()?)?)?;
        m.set_exec_node(Exec(exec), Node(node), Operation::Copy(copy))
    }

    fn cuGraphExecMemsetNodeSetParams(m, exec: u64, node: u64, given: In<MemsetNodeParams>, _context: u64) {
        m.set_exec_node(Exec(exec), Node(node), memset(m, &given.get()?)?)
    }

    fn cuGraphExecHostNodeSetParams(m, exec: u64, node: u64, given: In<HostNodeParams>) {
        let given = given.get()?;
        m.set_exec_node(Exec(exec), Node(node), host(given.function, given.data)?)
    }

    fn cuGraphNodeGetType(m, node: u64, kind: Out<c_int>) { kind.set(m.node_kind(Node(node))? as c_int) }

    fn cuGraphDestroyNode(m, node: u64) { m.destroy_node(Node(node)) }

    fn cuGraphAddDependencies(m, graph: u64, from: In<u64>, to: In<u64>, count: usize) { edges(m, graph, from, to, count, true) }

    fn cuGraphRemoveDependencies(m, graph: u64, from: In<u64>, to: In<u64>, count: usize) { edges(m, graph, from, to, count, false) }

    fn cuGraphAddDependencies_v2(m, graph: u64, from: In<u64>, to: In<u64>, _data: In<u64>, count: usize) {
        edges(m, graph, from, to, count, true)
    }

    fn cuGraphRemoveDependencies_v2(m, graph: u64, from: In<u64>, to: In<u64>, _data: In<u64>, count: usize) {
        edges(m, graph, from, to, count, false)
    }

    fn cuGraphNodeGetDependencies(m, node: u64, to: Out<u64>, count: Out<usize>) { neighbours(m, node, false, to, count) }

    fn cuGraphNodeGetDependentNodes(m, node: u64, to: Out<u64>, count: Out<usize>) { neighbours(m, node, true, to, count) }

    fn cuGraphNodeGetDependencies_v2(m, node: u64, to: Out<u64>, data: Out<u64>, count: Out<usize>) {
        if !data.is_null() && !to.is_null() {
            data.fill(std::iter::repeat_n(0, count.get()?))?;
        }
        neighbours(m, node, false, to, count)
    }

    fn cuGraphNodeGetDependentNodes_v2(m, node: u64, to: Out<u64>, data: Out<u64>, count: Out<usize>) {
        if !data.is_null() && !to.is_null() {
            data.fill(std::iter::repeat_n(0, count.get()?))?;
        }
        neighbours(m, node, true, to, count)
    }
}
