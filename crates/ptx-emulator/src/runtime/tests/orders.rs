//! What is not ordered runs in any order; what is, runs in that one under every policy.

use super::{Argument, Bench, POLICIES};
use crate::settings::{Schedule, Settings};

/// One stream writes, another reads; with or without an event between them.
fn read_after_write(bench: &Bench, with_event: bool) -> u32 {
    let (from, to) = (bench.words(), bench.words());
    let (writer, reader) = (bench.stream(), bench.stream());
    bench.set(writer, from, 9);
    if with_event {
        let event = bench.machine.create_event(bench.context, 0).expect("an event");
        bench.machine.record_event(bench.context, event, writer).expect("recorded");
        bench.machine.stream_wait(bench.context, reader, event).expect("waits");
        bench.machine.destroy_event(event).expect("streams that wait still do");
    }
    bench.copy(reader, to, from, 4);
    bench.machine.synchronize_stream(bench.context, reader).expect("done");
    bench.word(to)
}

#[test]
fn an_event_orders_two_streams_under_every_policy() {
    for policy in POLICIES {
        assert_eq!(read_after_write(&Bench::new(policy), true), 9, "{policy:?}");
    }
}

#[test]
fn without_the_event_the_reader_comes_first() {
    for policy in [Schedule::Lazy, Schedule::Adversarial] {
        assert_eq!(read_after_write(&Bench::new(policy), false), 0, "{policy:?}");
    }
    assert_eq!(read_after_write(&Bench::new(Schedule::Eager), false), 9);
}

#[test]
fn a_random_order_takes_both_ways_and_repeats() {
    let run = |seed| {
        let settings = Settings { seed, idle: None, workers: 1, ..Settings::default() };
        read_after_write(&Bench::with(settings), false)
    };
    let results: Vec<u32> = (0..16).map(run).collect();
    assert!(results.contains(&0) && results.contains(&9), "{results:?}");
    assert_eq!(results, (0..16).map(run).collect::<Vec<_>>());
}

#[test]
fn a_stream_keeps_its_order() {
    for policy in POLICIES {
        let bench = Bench::new(policy);
        let (words, stream) = (bench.words(), bench.stream());
        for value in 1..20u32 {
            bench.set(stream, words, value);
            bench.launch(stream, "add", &[Argument::Pointer(words), Argument::U32(100)]).expect("launched");
        }
        bench.machine.synchronize_stream(bench.context, stream).expect("done");
        assert_eq!(bench.word(words), 119, "{policy:?}");
    }
}

#[test]
fn nothing_runs_until_it_is_asked_for() {
    let bench = Bench::new(Schedule::Random);
    let words = bench.words();
    let before = bench.machine.counts().tasks;
    bench.set(bench.stream(), words, 1);
    assert_eq!(bench.machine.counts().tasks, before);
    bench.machine.synchronize(bench.context).expect("done");
    assert_eq!(bench.machine.counts().tasks, before + 1);
}

#[test]
fn a_loop_around_a_query_ends() {
    for policy in POLICIES {
        let bench = Bench::new(policy);
        let (words, stream) = (bench.words(), bench.stream());
        bench.set(stream, words, 1);
        let event = bench.machine.create_event(bench.context, 0).expect("an event");
        bench.machine.record_event(bench.context, event, stream).expect("recorded");
        let asked = (0..100).position(|_| bench.machine.query_event(event).expect("no error"));
        assert!(asked.is_some(), "{policy:?}");
    }
}

#[test]
fn the_silent_host_finds_its_work_done() {
    let idle = Some(std::time::Duration::from_millis(5));
    let bench = Bench::with(Settings { idle, ..Settings::default() });
    let pinned = bench.machine.allocate_host(bench.context, 4, 0).expect("pinned");
    bench.set(bench.stream(), pinned, 77);
    for _ in 0..1000 {
        if super::super::copy::read_word(bench.machine.memory(), pinned, false) == Ok(77) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the work never ran");
}
