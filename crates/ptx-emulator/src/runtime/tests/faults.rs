//! Faults on demand.

use super::super::{Code, Stream};
use super::{Argument, Bench};
use crate::settings::Settings;

fn with(faults: &str) -> Bench {
    Bench::with(Settings { idle: None, ..Settings::default() }.with_faults(faults).expect("valid"))
}

#[test]
fn the_nth_allocation_fails_and_the_next_does_not() {
    let bench = with("alloc:2");
    let codes: Vec<_> =
        (0..3).map(|_| bench.machine.allocate(bench.context, 4).map_err(|e| e.code).err()).collect();
    assert_eq!(codes, [None, Some(Code::OUT_OF_MEMORY), None]);
    let bench = with("alloc:2+");
    let failed = (0..3).filter(|_| bench.machine.allocate(bench.context, 4).is_err()).count();
    assert_eq!(failed, 2);
}

#[test]
fn a_sticky_launch_kills_the_context_when_it_runs() {
    let bench = with("launch:2:719");
    let words = bench.words();
    bench.set(Stream::DEFAULT, words, 1);
    bench.set(Stream::DEFAULT, words, 2);
    assert_eq!(bench.machine.synchronize(bench.context).expect_err("made to fail").code, Code::LAUNCH_FAILED);
    assert_eq!(bench.machine.synchronize(bench.context).expect_err("sticky").code, Code::LAUNCH_FAILED);
    bench.machine.reset_primary(0).expect("reset");
    let fresh = bench.machine.retain_primary(0).expect("a new context");
    bench.machine.allocate(fresh, 4).expect("works");
}

#[test]
fn another_launch_error_comes_from_the_call() {
    let bench = with("launch:1:701");
    let words = bench.words();
    let launch = || bench.launch(Stream::DEFAULT, "set", &[Argument::Pointer(words), Argument::U32(1)]);
    assert_eq!(launch().expect_err("made to fail").code, Code::LAUNCH_OUT_OF_RESOURCES);
    launch().expect("the next one runs");
    bench.machine.synchronize(bench.context).expect("done");
    assert_eq!(bench.word(words), 1);
}

#[test]
fn copies_and_modules_fail_too() {
    let bench = with("memcpy:1:1,module:2");
    let words = bench.words();
    let upload = || bench.machine.upload(bench.context, Stream::DEFAULT, words, &[1; 4]);
    assert_eq!(upload().expect_err("made to fail").code, Code::INVALID_VALUE);
    upload().expect("the next one runs");
    let module = bench.machine.load_module(bench.context, super::KERNELS);
    assert_eq!(module.expect_err("made to fail").code, Code::NO_BINARY_FOR_GPU);
}

#[test]
fn devices_are_as_large_as_wanted() {
    let bench = with("memory:64K");
    assert_eq!(bench.machine.memory_info(bench.context).expect("numbers").1, 65536);
}
