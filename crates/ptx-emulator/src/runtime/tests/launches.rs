//! Limits of launches, attributes, occupancy, loading.

use super::super::{Code, LaunchConfig, Machine, Stream};
use super::{Argument, Bench, KERNELS};
use crate::settings::{Schedule, Settings};

fn code(bench: &Bench, name: &str, config: LaunchConfig, arguments: &[Argument<'_>]) -> Result<(), Code> {
    let function = bench.function(name);
    let launched = bench.machine.launch(bench.context, Stream::DEFAULT, function, &config, arguments);
    launched.map_err(|error| error.code)
}

fn config(grid: [u32; 3], block: [u32; 3], shared: u32) -> LaunchConfig {
    LaunchConfig { grid, block, shared, ..LaunchConfig::default() }
}

#[test]
fn shapes_beyond_the_limits_are_refused() {
    let bench = Bench::new(Schedule::Random);
    let arguments = [Argument::Pointer(0), Argument::U32(0)];
    for (grid, block) in [
        ([0, 1, 1], [1; 3]),
        ([1, 65536, 1], [1; 3]),
        ([1; 3], [1025, 1, 1]),
        ([1; 3], [1, 1, 65]),
        ([1; 3], [32, 32, 2]),
        ([1; 3], [1, 0, 1]),
    ] {
        assert_eq!(
            code(&bench, "set", config(grid, block, 0), &arguments),
            Err(Code::INVALID_VALUE),
            "{grid:?} {block:?}"
        );
    }
    assert_eq!(code(&bench, "narrow", config([1; 3], [65, 1, 1], 0), &[]), Err(Code::INVALID_VALUE));
    assert_eq!(code(&bench, "narrow", config([1; 3], [64, 1, 1], 0), &[]), Ok(()));
    assert_eq!(code(&bench, "set", config([1; 3], [1; 3], 0), &arguments[..1]), Err(Code::INVALID_VALUE));
    let wide = [Argument::Pointer(0), Argument::U64(0)];
    assert_eq!(code(&bench, "set", config([1; 3], [1; 3], 0), &wide), Err(Code::INVALID_VALUE));
}

#[test]
fn shared_memory_must_be_asked_for() {
    let bench = Bench::new(Schedule::Lazy);
    let (words, room) = (bench.words(), bench.function("room"));
    let with = |shared| code(&bench, "room", config([1; 3], [1; 3], shared), &[Argument::Pointer(words)]);
    assert_eq!(bench.machine.function_attribute(room, 1).expect("a number"), 1024);
    assert_eq!(with(48 * 1024 - 1024), Ok(()));
    assert_eq!(with(48 * 1024 - 1023), Err(Code::INVALID_VALUE));
    bench.machine.set_function_attribute(room, 8, 100_000).expect("the device has it");
    assert_eq!(with(100_000), Ok(()));
    assert_eq!(with(100_001), Err(Code::INVALID_VALUE));
    assert!(
        bench.machine.set_function_attribute(room, 8, 166_912 - 1023).is_err(),
        "more than the device has"
    );
    assert_eq!(bench.word(words), 0);
    bench.machine.synchronize(bench.context).expect("done");
    assert_eq!(bench.word(words), 10);
}

#[test]
fn cooperative_grids_fit_at_once_or_not_at_all() {
    let bench = Bench::new(Schedule::Random);
    let words = bench.machine.allocate(bench.context, 4 * 1024 * 300).expect("room");
    let each = bench.machine.occupancy(bench.function("set"), 1024, 0).expect("a number");
    assert_eq!(each, 2, "2048 threads");
    let with = |blocks| {
        let config = LaunchConfig { cooperative: true, ..config([blocks, 1, 1], [1024, 1, 1], 0) };
        code(&bench, "set", config, &[Argument::Pointer(words), Argument::U32(1)])
    };
    assert_eq!(with(108 * each as u32), Ok(()));
    assert_eq!(with(108 * each as u32 + 1), Err(Code::COOPERATIVE_LAUNCH_TOO_LARGE));
}

#[test]
fn occupancy_counts_threads_and_shared_memory() {
    let bench = Bench::new(Schedule::Random);
    let room = bench.function("room");
    let blocks = |threads, shared| bench.machine.occupancy(room, threads, shared).expect("a number");
    assert_eq!(blocks(32, 0), 32, "the most blocks");
    assert_eq!(blocks(32, 50_000), 3, "shared memory");
    assert_eq!(blocks(32, 200_000), 0, "more than there is");
    let (grid, block) = bench.machine.best_block(room, 0, |_| 0).expect("a block");
    assert!(grid >= 108 && block > 0 && block % 32 == 0);
    let left = bench.machine.available_shared(room, 2, 128).expect("bytes");
    assert!(blocks(128, left) >= 2 && blocks(128, left + 1024) < 2);
}

#[test]
fn ptx_for_another_device_or_time_is_refused() {
    let on = |devices: &str, driver: i32| {
        let settings =
            Settings { driver_version: driver, ..Settings::default() }.with_devices(devices).expect("valid");
        let machine = Machine::new(settings);
        let context = machine.retain_primary(0).expect("a device");
        move |text: &str| machine.load_module(context, text).map(|_| ()).map_err(|error| error.code)
    };
    let plain = super::without_waits(KERNELS);
    assert_eq!(on("sm_80", 13000)(&plain), Ok(()));
    assert_eq!(on("sm_89", 12000)(&plain), Ok(()));
    assert_eq!(on("sm_75", 13000)(&plain), Err(Code::INVALID_PTX));
    assert_eq!(on("sm_80", 11080)(&plain), Err(Code::UNSUPPORTED_PTX_VERSION));
    assert_eq!(on("sm_80", 13000)("hello"), Err(Code::INVALID_IMAGE));
    let broken = plain.replace("mul.wide.u32", "mul.sideways.u32");
    assert_eq!(on("sm_80", 13000)(&broken), Err(Code::INVALID_PTX));
}

#[test]
fn a_kernel_stays_in_its_context() {
    let settings = Settings::default().with_devices("sm_80,sm_80").expect("valid");
    let bench = Bench::with(settings);
    let other = bench.machine.retain_primary(1).expect("a second device");
    let stream = bench.machine.create_stream(other, 0, 0).expect("a stream");
    let launched = bench.launch(stream, "set", &[Argument::Pointer(0), Argument::U32(0)]);
    assert_eq!(launched.expect_err("two contexts").code, Code::INVALID_HANDLE);
    assert!(bench.machine.peer_access(bench.context, other, true).is_ok());
    let twice = bench.machine.peer_access(bench.context, other, true);
    assert_eq!(twice.expect_err("twice").code, Code::PEER_ACCESS_ALREADY_ENABLED);
}
