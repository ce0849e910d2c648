//! Programmatic dependent launches: early up to the wait, and not a step further.

use super::super::{LaunchConfig, Stream};
use super::{Argument, Bench};
use crate::settings::{Schedule, Settings};

fn run(schedule: Schedule, programmatic: bool, seed: u64) -> (u32, u32) {
    let settings = Settings { schedule, seed, idle: None, workers: 1, ..Settings::default() };
    let bench = Bench::with(settings.with_devices("sm_90").expect("valid"));
    let (p, q) = (bench.words(), bench.words());
    let stream = bench.stream();
    let launch = |name: &str, programmatic: bool, arguments: &[Argument<'_>]| {
        let config = LaunchConfig { grid: [1; 3], block: [1; 3], programmatic, ..LaunchConfig::default() };
        bench
            .machine
            .launch(bench.context, stream, bench.function(name), &config, arguments)
            .expect("launched");
    };
    launch("first", false, &[Argument::Pointer(p)]);
    launch("second", programmatic, &[Argument::Pointer(p), Argument::Pointer(q)]);
    bench.machine.synchronize_stream(bench.context, stream).expect("done");
    (bench.word(q), bench.word(q + 4))
}

#[test]
fn after_the_wait_the_first_kernel_is_done() {
    for schedule in super::POLICIES {
        for seed in 0..4 {
            assert_eq!(run(schedule, true, seed).1, 7, "{schedule:?}");
            assert_eq!(run(schedule, false, seed), (7, 7), "without the attribute the stream's order holds");
        }
    }
}

#[test]
fn before_the_wait_the_first_kernel_may_not_be_done() {
    assert_eq!(run(Schedule::Adversarial, true, 0), (0, 7));
    assert_eq!(run(Schedule::Lazy, true, 0), (0, 7));
    let early: Vec<u32> = (0..16).map(|seed| run(Schedule::Random, true, seed).0).collect();
    assert!(early.contains(&0) && early.contains(&7), "{early:?}");
}

#[test]
fn a_chain_of_dependent_launches_ends() {
    let bench =
        Bench::with(Settings { idle: None, ..Settings::default() }.with_devices("sm_90").expect("valid"));
    let (p, q) = (bench.words(), bench.words());
    let config = LaunchConfig { grid: [1; 3], block: [1; 3], programmatic: true, ..LaunchConfig::default() };
    let stream = bench.stream();
    for _ in 0..10 {
        for (name, arguments) in [
            ("first", &[Argument::Pointer(p)][..]),
            ("second", &[Argument::Pointer(p), Argument::Pointer(q)][..]),
        ] {
            bench
                .machine
                .launch(bench.context, stream, bench.function(name), &config, arguments)
                .expect("launched");
        }
    }
    bench.machine.synchronize_stream(bench.context, stream).expect("done");
    assert_eq!((bench.word(q), bench.word(q + 4)), (7, 7));
    assert_eq!(bench.machine.synchronize_stream(bench.context, Stream::DEFAULT), Ok(()));
}
