//! Copies between devices: what orders them, what they are refused for, how they fail.

use super::super::{Code, Context, NON_BLOCKING, Stream};
use super::{Bench, POLICIES};
use crate::fault::Kind;
use crate::settings::{Check, Schedule, Settings};

fn settings() -> Settings {
    let settings = Settings { idle: None, workers: 1, ..Settings::default() };
    settings.with_devices("sm_80,sm_80").expect("valid")
}

/// A second device of a bench: its context, a stream and four words.
struct Other {
    context: Context,
    stream: Stream,
    words: u64,
}

impl Other {
    fn of(bench: &Bench) -> Self {
        let context = bench.machine.retain_primary(1).expect("a second device");
        let stream = bench.machine.create_stream(context, NON_BLOCKING, 0).expect("a stream");
        let words = bench.machine.allocate(context, 16).expect("room");
        Self { context, stream, words }
    }
}

/// What comes in `then` waits for what is in `first`.
fn order(bench: &Bench, first: (Context, Stream), then: (Context, Stream)) -> super::Result<()> {
    let event = bench.machine.create_event(first.0, 0)?;
    bench.machine.record_event(first.0, event, first.1)?;
    bench.machine.stream_wait(then.0, then.1, event)
}

/// The first device writes, the second copies that, the first writes anew. `before` and `after` say which events there are.
fn handed_over(settings: Settings, before: bool, after: bool) -> (Bench, Result<u32, Code>) {
    let bench = Bench::with(settings);
    let (words, stream, other) = (bench.words(), bench.stream(), Other::of(&bench));
    let (here, there) = ((bench.context, stream), (other.context, other.stream));
    let run = || {
        bench.set(stream, words, 9);
        if before {
            order(&bench, here, there)?;
        }
        bench.copy(other.stream, other.words, words, 4);
        if after {
            order(&bench, there, here)?;
        }
        bench.set(stream, words, 5);
        let mut bytes = [0; 4];
        bench.machine.synchronize_stream(here.0, here.1)?;
        bench.machine.synchronize_stream(there.0, there.1)?;
        bench.machine.download(there.0, there.1, &mut bytes, other.words)?;
        Ok(u32::from_le_bytes(bytes))
    };
    let seen = run().map_err(|error: super::super::Error| error.code);
    (bench, seen)
}

#[test]
fn events_order_two_devices_under_every_policy() {
    for schedule in POLICIES {
        let (bench, seen) = handed_over(Settings { schedule, check: Check::Races, ..settings() }, true, true);
        assert_eq!(seen, Ok(9), "{schedule:?}");
        assert_eq!(bench.machine.counts().peer_copies, 1);
    }
}

#[test]
fn a_missing_event_between_devices_is_found_under_every_policy() {
    for schedule in POLICIES {
        for (before, after) in [(false, true), (true, false)] {
            let settings = Settings { schedule, check: Check::Races, ..settings() };
            let (bench, seen) = handed_over(settings, before, after);
            assert!(seen.is_err(), "{schedule:?}, {before}, {after}: {seen:?}");
            let fault = bench.machine.take_fault().expect("a report");
            assert_eq!(fault.kind, Kind::GlobalRace, "{schedule:?}, {before}, {after}: {fault}");
        }
    }
}

/// A stream that was only told to wait has something to wait for, and so has who frees memory or waits for all of a device.
#[test]
fn a_device_waits_for_what_its_streams_wait_for() {
    for wait in [0, 1, 2] {
        let bench = Bench::with(Settings { schedule: Schedule::Lazy, ..settings() });
        let (words, stream, other) = (bench.words(), bench.stream(), Other::of(&bench));
        bench.copy(other.stream, other.words, words, 4);
        order(&bench, (other.context, other.stream), (bench.context, stream)).expect("waits");
        match wait {
            0 => bench.machine.synchronize_stream(bench.context, stream).expect("done"),
            1 => bench.machine.synchronize(bench.context).expect("done"),
            _ => bench.machine.free(bench.context, words).expect("freed"),
        }
        bench.machine.synchronize(other.context).expect("the copy found what it reads");
    }
}

#[test]
fn devices_that_do_not_reach_one_another_say_so() {
    let bench = Bench::with(Settings { peers: false, ..settings() });
    let other = Other::of(&bench);
    let refused = bench.machine.peer_access(bench.context, other.context, true);
    assert_eq!(refused.expect_err("the settings want it").code, Code::PEER_ACCESS_UNSUPPORTED);
}

#[test]
fn memory_is_of_one_device() {
    let bench = Bench::with(settings());
    let (words, other) = (bench.words(), Other::of(&bench));
    assert!(bench.machine.check_memory_of(bench.context, words).is_ok());
    let wrong = bench.machine.check_memory_of(other.context, words);
    assert_eq!(wrong.expect_err("another device's").code, Code::INVALID_VALUE);
}

#[test]
fn copies_between_devices_fail_on_demand() {
    let failing = |list| settings().with_faults(list).expect("valid");
    let (bench, seen) = handed_over(failing("peer:1"), true, true);
    assert_eq!(seen, Err(Code::LAUNCH_FAILED));
    drop(bench);
    // Copies within a device are not counted.
    let bench = Bench::with(failing("peer:1:801"));
    let (words, stream, other) = (bench.words(), bench.stream(), Other::of(&bench));
    bench.copy(stream, words + 4, words, 4);
    let transfer = super::super::Transfer::line(other.words, true, words, true, 4);
    #[allow(unsafe_code)]
    // SAFETY: both sides are memory of the machine.
    let copied = unsafe { bench.machine.transfer(other.context, other.stream, &transfer, false) };
    assert_eq!(copied.expect_err("made to fail").code, Code::NOT_SUPPORTED);
    bench.copy(other.stream, other.words, words, 4);
    bench.machine.synchronize(other.context).expect("the next one runs");
}
