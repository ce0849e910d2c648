//! Capacities, frees in and out of order, pools, modules' variables.

use super::super::{Code, Place3, Stream, Transfer};
use super::{Argument, Bench};
use crate::fault::Kind;
use crate::settings::{Check, Schedule, Settings};

fn small() -> Bench {
    Bench::with(Settings { idle: None, ..Settings::default() }.with_devices("sm_80:1M").expect("valid"))
}

#[test]
fn a_full_device_says_so_and_has_room_again() {
    let bench = small();
    let (free, total) = bench.machine.memory_info(bench.context).expect("numbers");
    assert_eq!((total, total - free), (1 << 20, 256), "the module's variable");
    let most = bench.machine.allocate(bench.context, free).expect("all of it");
    let code = bench.machine.allocate(bench.context, 1).expect_err("full").code;
    assert_eq!(code, Code::OUT_OF_MEMORY);
    bench.machine.free(bench.context, most).expect("freed");
    assert_eq!(bench.machine.memory_info(bench.context).expect("numbers").0, free);
    assert_eq!(bench.machine.allocate(bench.context, 0).expect_err("nothing").code, Code::INVALID_VALUE);
}

#[test]
fn the_most_that_was_taken_and_copies_of_pageable_memory_are_counted() {
    let bench = small();
    let (free, total) = bench.machine.memory_info(bench.context).expect("numbers");
    let large = bench.machine.allocate(bench.context, 1 << 16).expect("room");
    bench.machine.free(bench.context, large).expect("freed");
    let small = bench.machine.allocate(bench.context, 1 << 10).expect("room");
    assert_eq!(bench.machine.counts().most_bytes, total - free + (1 << 16));
    let pinned = bench.machine.allocate_host(bench.context, 16, 0).expect("room");
    bench.copy(bench.stream(), small, pinned, 16);
    assert_eq!((bench.machine.counts().uploads, bench.machine.counts().pageable_copies), (1, 0));
    bench.machine.upload(bench.context, Stream::DEFAULT, small, &[1; 16]).expect("queued");
    assert_eq!((bench.machine.counts().uploads, bench.machine.counts().pageable_copies), (2, 1));
}

#[test]
fn a_full_device_waits_for_frees_that_are_queued() {
    let bench = small();
    let stream = bench.stream();
    let half = bench.machine.allocate_async(bench.context, 600_000, None, stream).expect("room");
    bench.machine.free_async(bench.context, half, stream).expect("queued");
    bench.machine.allocate_async(bench.context, 600_000, None, stream).expect("room after the free");
}

#[test]
fn freeing_what_is_not_ones_own_is_an_error() {
    let bench = Bench::new(Schedule::Random);
    let (words, stream) = (bench.words(), bench.stream());
    let code = |result: super::Result<()>| result.expect_err("wrong").code;
    assert_eq!(code(bench.machine.free(bench.context, words + 4)), Code::INVALID_VALUE);
    assert_eq!(code(bench.machine.free_host(words)), Code::INVALID_VALUE);
    bench.machine.free_async(bench.context, words, stream).expect("queued");
    assert_eq!(code(bench.machine.free_async(bench.context, words, stream)), Code::INVALID_VALUE);
    bench.machine.synchronize(bench.context).expect("done");
    assert_eq!(code(bench.machine.free(bench.context, words)), Code::INVALID_VALUE);
}

#[test]
fn use_after_a_free_in_another_stream_is_found() {
    let bench = Bench::new(Schedule::Adversarial);
    let (words, user, freer) = (bench.words(), bench.stream(), bench.stream());
    bench.set(user, words, 1);
    bench.machine.free_async(bench.context, words, freer).expect("queued");
    let code = bench.machine.synchronize(bench.context).expect_err("freed first").code;
    assert_eq!(code, Code::ILLEGAL_ADDRESS);
    let fault = bench.machine.take_fault().expect("a report");
    assert_eq!(fault.kind, Kind::UseAfterFree);
    assert!(fault.message.contains("freed 16-byte"), "{fault}");
    assert_eq!(bench.machine.allocate(bench.context, 4).expect_err("sticky").code, Code::ILLEGAL_ADDRESS);
    bench.machine.forgive();
    bench.machine.allocate(bench.context, 4).expect("forgiven");
}

#[test]
fn a_copy_of_freed_memory_is_found_too() {
    let bench = Bench::new(Schedule::Adversarial);
    let (a, b) = (bench.words(), bench.words());
    let (user, freer) = (bench.stream(), bench.stream());
    bench.copy(user, a, b, 16);
    bench.machine.free_async(bench.context, b, freer).expect("queued");
    assert!(bench.machine.synchronize(bench.context).is_err());
    assert_eq!(bench.machine.take_fault().expect("a report").kind, Kind::UseAfterFree);
}

#[test]
#[allow(unsafe_code)]
fn copies_that_leave_their_allocation_are_refused_at_the_call() {
    let bench = Bench::new(Schedule::Random);
    let words = bench.words();
    let copy = |transfer: &Transfer| {
        // SAFETY: refused before anything is touched.
        unsafe { bench.machine.transfer(bench.context, Stream::DEFAULT, transfer, true) }
            .expect_err("refused")
            .code
    };
    assert_eq!(copy(&Transfer::line(words + 8, true, words, true, 12)), Code::INVALID_VALUE);
    assert_eq!(copy(&Transfer::line(words, true, 0, false, 4)), Code::INVALID_VALUE);
    assert_eq!(copy(&Transfer::line(8, true, words, true, 4)), Code::INVALID_VALUE);
    let fill = bench.machine.fill(bench.context, Stream::DEFAULT, words, 0, (0, 4), 5, 1);
    assert_eq!(fill.expect_err("refused").code, Code::INVALID_VALUE);
    assert!(
        bench.machine.fill(bench.context, Stream::DEFAULT, words + 2, 0, (0, 4), 1, 1).is_err(),
        "misaligned"
    );
}

#[test]
fn copies_onto_themselves_are_found() {
    let run = |check, transfer: &dyn Fn(u64) -> Transfer| {
        let bench = Bench::with(Settings { idle: None, check, ..Settings::default() });
        bench.transfer(bench.stream(), &transfer(bench.words()));
        let done = bench.machine.synchronize(bench.context).map_err(|error| error.code);
        (done, bench.machine.take_fault().map(|fault| fault.kind))
    };
    let found = (Err(Code::LAUNCH_FAILED), Some(Kind::Misuse));
    let line = |to| move |words| Transfer::line(words + to, true, words, true, 8);
    assert_eq!(run(Check::On, &line(8)), (Ok(()), None));
    assert_eq!(run(Check::On, &line(7)), found);
    assert_eq!(run(Check::On, &line(0)), found);
    assert_eq!(run(Check::Off, &line(7)), (Ok(()), None));
    // Columns of one matrix: its rows lie between each other, and do not meet.
    let columns = |to| {
        move |words| {
            let place = |address| Place3 { address, pitch: 8, height: 2 };
            let (to, from) = (place(words + to), place(words));
            Transfer { to, from, to_device: true, from_device: true, extent: [4, 2, 1] }
        }
    };
    assert_eq!(run(Check::On, &columns(4)), (Ok(()), None));
    assert_eq!(run(Check::On, &columns(3)), found);
}

#[test]
fn pools_count_what_is_taken_from_them() {
    let bench = Bench::new(Schedule::Random);
    let pool = bench.machine.create_pool(0).expect("a pool");
    let stream = bench.stream();
    let used = || bench.machine.pool_attribute(pool, 7).expect("a number");
    let a = bench.machine.allocate_async(bench.context, 1000, Some(pool), stream).expect("room");
    assert_eq!(used(), 1000);
    bench.machine.free_async(bench.context, a, stream).expect("queued");
    assert_eq!(used(), 1000, "in stream order");
    bench.machine.synchronize_stream(bench.context, stream).expect("done");
    assert_eq!((used(), bench.machine.pool_attribute(pool, 8).expect("a number")), (0, 1000));
    bench.machine.set_device_pool(0, pool).expect("chosen");
    bench.machine.destroy_pool(pool).expect("destroyed");
    let (default, current) = bench.machine.device_pools(0).expect("pools");
    assert_eq!(default, current);
    assert!(bench.machine.destroy_pool(default).is_err());
}

#[test]
fn a_modules_variable_can_be_read_and_goes_with_it() {
    let bench = Bench::new(Schedule::Random);
    let (address, bytes) = bench.machine.global(bench.module, "counter").expect("a variable");
    assert_eq!((bench.word(address), bytes), (41, 4));
    bench.machine.unload_module(bench.module).expect("unloaded");
    assert!(bench.machine.memory().was_freed(address));
    assert_eq!(bench.machine.function(bench.module, "set").expect_err("gone").code, Code::INVALID_HANDLE);
}

#[test]
fn what_was_never_freed_is_told() {
    let bench = Bench::new(Schedule::Random);
    let words = bench.words();
    assert_eq!(bench.machine.leaks().len(), 1);
    bench.machine.free(bench.context, words).expect("freed");
    assert!(bench.machine.leaks().is_empty());
    let past = bench.words();
    bench.launch(Stream::DEFAULT, "past", &[Argument::Pointer(past)]).expect("launched");
    assert_eq!(
        bench.machine.synchronize(bench.context).expect_err("past the end").code,
        Code::ILLEGAL_ADDRESS
    );
    assert_eq!(bench.machine.take_fault().expect("a report").kind, Kind::OutOfBounds);
}
