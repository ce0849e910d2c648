//! The default stream, pinned and pageable memory, waits for values, times.

use super::super::{Code, DISABLE_TIMING, Stream, Transfer};
use super::{Bench, POLICIES};
use crate::settings::Schedule;

#[test]
fn the_default_stream_waits_for_blocking_streams_and_they_for_it() {
    let bench = Bench::new(Schedule::Adversarial);
    let (words, copy) = (bench.words(), bench.words());
    let blocking = bench.machine.create_stream(bench.context, 0, 0).expect("a stream");
    bench.set(blocking, words, 3);
    bench.copy(Stream::DEFAULT, copy, words, 4);
    let after = bench.machine.create_stream(bench.context, 0, 0).expect("a stream");
    bench.copy(after, copy + 4, copy, 4);
    bench.machine.synchronize_stream(bench.context, after).expect("done");
    assert_eq!((bench.word(copy), bench.word(copy + 4)), (3, 3));
}

#[test]
fn a_non_blocking_stream_has_nothing_to_do_with_the_default_one() {
    let bench = Bench::new(Schedule::Lazy);
    let (words, copy) = (bench.words(), bench.words());
    bench.set(bench.stream(), words, 3);
    bench.copy(Stream::DEFAULT, copy, words, 4);
    bench.machine.synchronize_stream(bench.context, Stream::DEFAULT).expect("done");
    assert_eq!(bench.word(copy), 0);
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let bench = Bench::new(Schedule::Random);
    let id = || bench.machine.stream_id(bench.context, Stream::PER_THREAD).expect("a stream");
    let mine = id();
    assert_eq!(mine, id());
    let other = std::thread::scope(|scope| scope.spawn(id).join().expect("no panic"));
    assert_ne!(mine, other);
}

#[test]
fn pinned_memory_is_read_late_and_pageable_at_the_call() {
    let bench = Bench::new(Schedule::Random);
    let (words, stream) = (bench.words(), bench.stream());
    let pinned = bench.machine.allocate_host(bench.context, 4, 0).expect("pinned");
    bench.machine.write_memory(pinned, &5u32.to_le_bytes()).expect("written");
    bench.transfer(stream, &Transfer::line(words, true, pinned, false, 4));
    bench.machine.write_memory(pinned, &6u32.to_le_bytes()).expect("written");
    let mut own = 5u32.to_le_bytes();
    bench.machine.upload(bench.context, stream, words + 4, &own).expect("queued");
    own[0] = 6;
    bench.machine.synchronize_stream(bench.context, stream).expect("done");
    assert_eq!((bench.word(words), bench.word(words + 4)), (6, 5));
    assert_eq!(own[0], 6);
}

#[test]
fn a_download_to_pinned_memory_is_there_after_the_synchronisation_only() {
    let bench = Bench::new(Schedule::Random);
    let (words, stream) = (bench.words(), bench.stream());
    let pinned = bench.machine.allocate_host(bench.context, 4, 0).expect("pinned");
    bench.machine.write_memory(pinned, &[1; 4]).expect("written");
    let read = || super::super::copy::read_word(bench.machine.memory(), pinned, false);
    bench.transfer(stream, &Transfer::line(pinned, false, words, true, 4));
    assert_eq!(read(), Ok(0x0101_0101));
    bench.machine.synchronize_stream(bench.context, stream).expect("done");
    assert_eq!(read(), Ok(0));
}

#[test]
fn a_stream_waits_for_a_value_that_another_writes() {
    for policy in [Schedule::Lazy, Schedule::Random, Schedule::Adversarial] {
        let bench = Bench::new(policy);
        let (flag, words) = (bench.words(), bench.words());
        let (waits, writes) = (bench.stream(), bench.stream());
        bench.machine.stream_wait_value(bench.context, waits, flag, 4, false, 0).expect("queued");
        bench.copy(waits, words, flag, 4);
        bench.set(writes, flag, 4);
        bench.machine.synchronize_stream(bench.context, waits).expect("done");
        assert_eq!(bench.word(words), 4, "{policy:?}");
    }
}

#[test]
fn times_are_there_when_asked_for_rightly() {
    for policy in POLICIES {
        let bench = Bench::new(policy);
        let (words, stream) = (bench.words(), bench.stream());
        let make = |flags| bench.machine.create_event(bench.context, flags).expect("an event");
        let (start, end, silent) = (make(0), make(0), make(DISABLE_TIMING));
        let code = |a, b| bench.machine.elapsed(a, b).map_err(|error| error.code);
        assert_eq!(code(start, end), Err(Code::INVALID_HANDLE), "never recorded");
        for event in [start, silent] {
            bench.machine.record_event(bench.context, event, stream).expect("recorded");
        }
        bench.set(stream, words, 1);
        bench.machine.record_event(bench.context, end, stream).expect("recorded");
        if policy != crate::settings::Schedule::Eager {
            assert_eq!(code(start, end), Err(Code::NOT_READY));
        }
        bench.machine.synchronize_event(end).expect("done");
        assert!(code(start, end).expect("a time") > 0.0);
        assert_eq!(code(start, silent), Err(Code::INVALID_HANDLE));
    }
}

#[test]
fn stale_handles_are_errors() {
    let bench = Bench::new(Schedule::Random);
    let stream = bench.stream();
    bench.machine.destroy_stream(stream).expect("destroyed");
    let code = |result: super::Result<()>| result.expect_err("a stale handle").code;
    assert_eq!(code(bench.machine.destroy_stream(stream)), Code::INVALID_HANDLE);
    assert_eq!(code(bench.machine.synchronize_stream(bench.context, stream)), Code::INVALID_HANDLE);
    let nowhere = super::super::Context(1);
    assert_eq!(code(bench.machine.synchronize(nowhere)), Code::INVALID_CONTEXT);
    assert_eq!(code(bench.machine.destroy_event(super::super::Event(stream.0))), Code::INVALID_HANDLE);
}
