//! Asynchronous copies and mbarriers.

use ptx_emulator_launcher::test_name;

use super::Planted;
use crate::support::{Gpu, args, source};

const SOURCE: (&str, &str) = source!("copies.cu");
const FLIGHT: [&str; 2] = ["copy of these bytes is under way", "race in shared memory"];
const NEVER: [&str; 2] = ["deadlock", "never"];

fn run(gpu: &Gpu, kernel: &str) -> Result<(), cudarc::driver::DriverError> {
    let (x, y) = (gpu.up(&[1f32; 512]), gpu.fresh::<f32>(64));
    gpu.run(kernel, 1, 64, 0, args![&x, &y]);
    gpu.stream.synchronize()
}

#[test]
fn missing_wait() {
    Planted::new(test_name!(), SOURCE, "missing_wait", &FLIGHT).find(|gpu| run(gpu, "missing_wait"));
}

#[test]
fn wrong_group() {
    Planted::new(test_name!(), SOURCE, "wrong_group", &FLIGHT).find(|gpu| run(gpu, "wrong_group"));
}

#[test]
fn wait_without_barrier() {
    Planted::new(test_name!(), SOURCE, "wait_without_barrier", &FLIGHT)
        .find(|gpu| run(gpu, "wait_without_barrier"));
}

#[test]
fn barrier_before_wait() {
    Planted::new(test_name!(), SOURCE, "barrier_before_wait", &FLIGHT)
        .find(|gpu| run(gpu, "barrier_before_wait"));
}

#[test]
fn syncwarp_before_wait() {
    Planted::new(test_name!(), SOURCE, "syncwarp_before_wait", &FLIGHT)
        .find(|gpu| run(gpu, "syncwarp_before_wait"));
}

#[test]
fn source_under_way() {
    Planted::new(test_name!(), SOURCE, "source_under_way", &["race in global memory"])
        .races()
        .find(|gpu| run(gpu, "source_under_way"));
}

#[test]
fn wrong_parity() {
    Planted::new(test_name!(), SOURCE, "wrong_parity", &FLIGHT).arch(90).find(|gpu| run(gpu, "wrong_parity"));
}

#[test]
fn wrong_bytes() {
    Planted::new(test_name!(), SOURCE, "wrong_bytes", &NEVER).arch(90).find(|gpu| run(gpu, "wrong_bytes"));
}

#[test]
fn wrong_count() {
    Planted::new(test_name!(), SOURCE, "wrong_count", &NEVER).arch(90).find(|gpu| run(gpu, "wrong_count"));
}

#[test]
fn bulk_unaligned() {
    Planted::new(test_name!(), SOURCE, "bulk_unaligned", &["16", "align"])
        .arch(90)
        .at(0, 0)
        .find(|gpu| run(gpu, "bulk_unaligned"));
}
