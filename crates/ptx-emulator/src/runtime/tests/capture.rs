//! The rules of stream capture.

use super::super::{CaptureMode, CaptureStatus, Code, Event, Result, Stream};
use super::Bench;
use crate::settings::Schedule;

struct Captured {
    bench: Bench,
    stream: Stream,
    words: u64,
}

fn begun(mode: CaptureMode) -> Captured {
    let bench = Bench::new(Schedule::Random);
    let (stream, words) = (bench.stream(), bench.words());
    bench.machine.begin_capture(bench.context, stream, mode).expect("begun");
    Captured { bench, stream, words }
}

impl Captured {
    fn event(&self) -> Event {
        self.bench.machine.create_event(self.bench.context, 0).expect("an event")
    }

    fn record(&self, event: Event, stream: Stream) {
        self.bench.machine.record_event(self.bench.context, event, stream).expect("recorded");
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.bench.machine.stream_wait(self.bench.context, stream, event)
    }

    fn end(&self) -> Result<super::super::Graph> {
        self.bench.machine.end_capture(self.bench.context, self.stream)
    }

    fn status(&self) -> CaptureStatus {
        self.bench.machine.capture_status(self.bench.context, self.stream).expect("a status").0
    }

    fn is_broken_by(&self, result: Result<()>, code: Code) {
        assert_eq!(result.expect_err("forbidden").code, code);
        assert_eq!(self.status(), CaptureStatus::Invalidated);
        let more = self.bench.launch(self.stream, "past", &[super::Argument::Pointer(0)]);
        assert_eq!(more.expect_err("broken").code, Code::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(self.end().expect_err("broken").code, Code::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(self.status(), CaptureStatus::None);
    }
}

#[test]
fn captured_work_does_not_run_until_it_is_launched() {
    let c = begun(CaptureMode::Global);
    c.bench.set(c.stream, c.words, 5);
    assert_eq!(c.status(), CaptureStatus::Active);
    let graph = c.end().expect("ended");
    assert_eq!(c.bench.word(c.words), 0);
    let exec = c.bench.machine.instantiate(graph, 0).expect("instantiated");
    c.bench.machine.launch_graph(c.bench.context, exec, c.stream).expect("launched");
    c.bench.machine.synchronize_stream(c.bench.context, c.stream).expect("done");
    assert_eq!(c.bench.word(c.words), 5);
}

#[test]
fn what_could_wait_breaks_the_capture() {
    let c = begun(CaptureMode::Global);
    c.is_broken_by(
        c.bench.machine.synchronize_stream(c.bench.context, c.stream),
        Code::STREAM_CAPTURE_UNSUPPORTED,
    );
    let c = begun(CaptureMode::Global);
    c.is_broken_by(c.bench.machine.synchronize(c.bench.context), Code::STREAM_CAPTURE_UNSUPPORTED);
    let c = begun(CaptureMode::ThreadLocal);
    c.is_broken_by(
        c.bench.machine.allocate(c.bench.context, 4).map(|_| ()),
        Code::STREAM_CAPTURE_UNSUPPORTED,
    );
    let c = begun(CaptureMode::Global);
    c.is_broken_by(c.bench.machine.free(c.bench.context, c.words), Code::STREAM_CAPTURE_UNSUPPORTED);
}

#[test]
fn modes_say_whom_a_capture_forbids() {
    let elsewhere = |c: &Captured| {
        let allocate = || c.bench.machine.allocate(c.bench.context, 4).is_ok();
        std::thread::scope(|scope| scope.spawn(allocate).join().expect("no panic"))
    };
    assert!(!elsewhere(&begun(CaptureMode::Global)));
    assert!(elsewhere(&begun(CaptureMode::ThreadLocal)));
    let c = begun(CaptureMode::Relaxed);
    assert!(elsewhere(&c));
    assert!(c.bench.machine.allocate(c.bench.context, 4).is_ok());
    let c = begun(CaptureMode::Global);
    assert_eq!(c.bench.machine.exchange_capture_mode(CaptureMode::Relaxed), CaptureMode::Global);
    assert!(c.bench.machine.allocate(c.bench.context, 4).is_ok(), "the thread is relaxed");
}

#[test]
fn the_default_stream_cannot_take_part() {
    let bench = Bench::new(Schedule::Random);
    let begin = |stream| bench.machine.begin_capture(bench.context, stream, CaptureMode::Relaxed);
    assert_eq!(begin(Stream::DEFAULT).expect_err("default").code, Code::STREAM_CAPTURE_UNSUPPORTED);
    let (words, blocking) =
        (bench.words(), bench.machine.create_stream(bench.context, 0, 0).expect("a stream"));
    begin(blocking).expect("begun");
    let implicit = bench.launch(Stream::DEFAULT, "past", &[super::Argument::Pointer(words)]);
    assert_eq!(implicit.expect_err("would wait for it").code, Code::STREAM_CAPTURE_IMPLICIT);
    let ended = bench.machine.end_capture(bench.context, blocking);
    assert_eq!(ended.expect_err("broken").code, Code::STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn forks_join_or_are_missed() {
    for joined in [true, false] {
        let c = begun(CaptureMode::Global);
        let other = c.bench.stream();
        let (fork, join) = (c.event(), c.event());
        c.record(fork, c.stream);
        c.wait(other, fork).expect("joins the capture");
        c.bench.set(other, c.words, 8);
        assert_eq!(
            c.bench.machine.end_capture(c.bench.context, other).expect_err("did not begin here").code,
            Code::STREAM_CAPTURE_UNMATCHED
        );
        let c = begun(CaptureMode::Global);
        let other = c.bench.stream();
        let (fork, _) = (c.event(), join);
        c.record(fork, c.stream);
        c.wait(other, fork).expect("joins the capture");
        c.bench.set(other, c.words, 8);
        if joined {
            let join = c.event();
            c.record(join, other);
            c.wait(c.stream, join).expect("joined");
            assert_eq!(c.bench.machine.graph_nodes(c.end().expect("whole")).expect("a graph").len(), 1);
        } else {
            assert_eq!(c.end().expect_err("unjoined").code, Code::STREAM_CAPTURE_UNJOINED);
        }
    }
}

#[test]
fn events_do_not_cross_the_border() {
    let c = begun(CaptureMode::Global);
    let (event, outside) = (c.event(), c.bench.stream());
    c.bench.set(outside, c.words, 1);
    c.record(event, outside);
    c.is_broken_by(c.wait(c.stream, event), Code::STREAM_CAPTURE_ISOLATION);
    let c = begun(CaptureMode::Relaxed);
    let event = c.event();
    c.record(event, c.stream);
    let query = c.bench.machine.query_event(event).map(|_| ());
    assert_eq!(query.expect_err("captured").code, Code::CAPTURED_EVENT);
    c.end().expect("the capture is whole");
    assert_eq!(c.wait(c.bench.stream(), event).expect_err("captured").code, Code::CAPTURED_EVENT);
}

#[test]
fn two_captures_do_not_merge_and_threads_end_their_own() {
    let c = begun(CaptureMode::Relaxed);
    let other = c.bench.stream();
    c.bench.machine.begin_capture(c.bench.context, other, CaptureMode::Relaxed).expect("begun");
    let event = c.event();
    c.record(event, other);
    c.is_broken_by(c.wait(c.stream, event), Code::STREAM_CAPTURE_MERGE);
    let c = begun(CaptureMode::ThreadLocal);
    let code = std::thread::scope(|scope| {
        scope.spawn(|| c.end().expect_err("not ours").code).join().expect("no panic")
    });
    assert_eq!(code, Code::STREAM_CAPTURE_WRONG_THREAD);
    c.end().expect("the thread it began on");
    assert_eq!(c.end().expect_err("over").code, Code::ILLEGAL_STATE);
}
