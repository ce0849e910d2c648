//! Graphs: any order that the edges allow, updates, and what refuses them.

use super::super::{Code, Graph, LaunchConfig, Node, NodeKind};
use super::{Argument, Bench};
use crate::runtime::work::Operation;
use crate::settings::{Schedule, Settings};

fn bench(seed: u64) -> Bench {
    Bench::with(Settings { seed, idle: None, workers: 1, ..Settings::default() })
}

fn kernel(bench: &Bench, name: &str, at: u64, value: u32) -> Operation {
    let mut block = at.to_le_bytes().to_vec();
    block.extend(value.to_le_bytes());
    let config = LaunchConfig { grid: [1; 3], block: [1; 3], ..LaunchConfig::default() };
    let spec = bench
        .machine
        .launch_spec(bench.context, None, bench.function(name), &config, block)
        .expect("checked");
    Operation::Launch(std::sync::Arc::new(spec))
}

fn two(bench: &Bench, at: u64, edge: bool) -> (Graph, Node, Node) {
    let graph = bench.machine.create_graph();
    let a = bench.machine.add_node(graph, kernel(bench, "set", at, 1), &[]).expect("a node");
    let before: &[Node] = if edge { &[a] } else { &[] };
    let b = bench.machine.add_node(graph, kernel(bench, "set", at, 2), before).expect("a node");
    (graph, a, b)
}

fn run(bench: &Bench, graph: Graph, times: usize) {
    let exec = bench.machine.instantiate(graph, 0).expect("instantiated");
    let stream = bench.stream();
    for _ in 0..times {
        bench.machine.launch_graph(bench.context, exec, stream).expect("launched");
    }
    bench.machine.destroy_exec(exec).expect("launches in progress go on");
    bench.machine.synchronize_stream(bench.context, stream).expect("done");
}

#[test]
fn edges_order_and_their_absence_does_not() {
    let mut seen = Vec::new();
    for seed in 0..16 {
        for edge in [true, false] {
            let bench = bench(seed);
            let words = bench.words();
            let (graph, ..) = two(&bench, words, edge);
            run(&bench, graph, 1);
            let word = bench.word(words);
            if edge {
                assert_eq!(word, 2);
            } else {
                seen.push(word);
            }
        }
    }
    assert!(seen.contains(&1) && seen.contains(&2), "{seen:?}");
}

#[test]
fn launches_of_one_graph_follow_one_another_in_any_stream() {
    let bench = bench(3);
    let words = bench.words();
    let graph = bench.machine.create_graph();
    bench.machine.add_node(graph, kernel(&bench, "add", words, 1), &[]).expect("a node");
    run(&bench, graph, 20);
    assert_eq!(bench.word(words), 20);
    assert_eq!(bench.machine.counts().graph_launches, 20);
}

#[test]
fn nodes_change_in_the_graph_and_in_what_was_instantiated() {
    let bench = bench(0);
    let words = bench.words();
    let (graph, _, b) = two(&bench, words, true);
    let exec = bench.machine.instantiate(graph, 0).expect("instantiated");
    let stream = bench.stream();
    let launch = || {
        bench.machine.launch_graph(bench.context, exec, stream).expect("launched");
        bench.machine.synchronize_stream(bench.context, stream).expect("done");
        bench.word(words)
    };
    bench.machine.set_exec_node(exec, b, kernel(&bench, "set", words, 30)).expect("changed");
    assert_eq!(launch(), 30);
    bench.machine.set_node(b, kernel(&bench, "add", words, 40)).expect("changed");
    assert_eq!(launch(), 30, "what was instantiated stays");
    bench.machine.update_exec(exec, graph).expect("the same shape");
    assert_eq!(launch(), 41);
    let (other, ..) = two(&bench, words, false);
    let code = bench.machine.update_exec(exec, other).expect_err("another shape").code;
    assert_eq!(code, Code::GRAPH_EXEC_UPDATE_FAILURE);
    assert!(bench.machine.set_exec_node(exec, b, Operation::Empty).is_err(), "another kind");
}

#[test]
fn shapes_are_told_and_cycles_refused() {
    let bench = bench(0);
    let words = bench.words();
    let (graph, a, b) = two(&bench, words, true);
    assert_eq!(bench.machine.graph_edges(graph).expect("a graph"), [(a, b)]);
    assert_eq!(bench.machine.node_kind(a).expect("a node"), NodeKind::Kernel);
    assert!(bench.machine.change_edges(graph, &[(b, a)], true).is_err(), "a cycle");
    assert!(bench.machine.change_edges(graph, &[(a, b)], true).is_err(), "there already");
    let clone = bench.machine.clone_graph(graph).expect("cloned");
    let twin = bench.machine.node_in_clone(b, clone).expect("its twin");
    bench.machine.destroy_node(twin).expect("destroyed");
    assert_eq!(bench.machine.graph_nodes(clone).expect("a graph").len(), 1);
    assert_eq!(bench.machine.graph_nodes(graph).expect("a graph").len(), 2);
    assert!(bench.machine.graph_dot(graph).expect("text").contains("label=\"set\""));
    bench.machine.destroy_graph(graph).expect("destroyed");
    assert!(bench.machine.instantiate(graph, 0).is_err());
}

#[test]
fn graphs_refuse_what_they_cannot_hold() {
    let bench = Bench::new(Schedule::Random);
    let (stream, words) = (bench.stream(), bench.words());
    let mode = super::super::CaptureMode::Relaxed;
    bench.machine.begin_capture(bench.context, stream, mode).expect("begun");
    let code =
        bench.machine.allocate_async(bench.context, 16, None, stream).expect_err("owned by the graph").code;
    assert_eq!(code, Code::NOT_SUPPORTED);
    assert!(bench.machine.free_async(bench.context, words, stream).is_err());
    bench.launch(stream, "add", &[Argument::Pointer(words), Argument::U32(1)]).expect("captured");
    let graph = bench.machine.end_capture(bench.context, stream).expect("ended");
    assert_eq!(bench.machine.instantiate(graph, 5).expect_err("flags").code, Code::INVALID_VALUE);
    bench.machine.unload_module(bench.module).expect("unloaded");
    assert!(bench.machine.instantiate(graph, 0).is_err(), "its kernel is gone");
}
