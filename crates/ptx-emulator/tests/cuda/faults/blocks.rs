//! Threads of one block: races in shared memory, barriers, masks.

use ptx_emulator_launcher::test_name;

use super::Planted;
use crate::support::{Gpu, args, source};

const SOURCE: (&str, &str) = source!("blocks.cu");
const RACE: [&str; 1] = ["race in shared memory"];

fn run(gpu: &Gpu, kernel: &str, threads: u32) -> Result<(), cudarc::driver::DriverError> {
    let (x, y) = (gpu.up(&[1f32; 256]), gpu.fresh::<f32>(256));
    gpu.run(kernel, 1, threads, 0, args![&x, &y]);
    gpu.stream.synchronize()
}

#[test]
fn dropped_barrier() {
    Planted::new(test_name!(), SOURCE, "dropped_barrier", &RACE).find(|gpu| run(gpu, "dropped_barrier", 256));
}

#[test]
fn second_round() {
    Planted::new(test_name!(), SOURCE, "second_round", &RACE).find(|gpu| run(gpu, "second_round", 128));
}

#[test]
fn missing_syncwarp() {
    Planted::new(test_name!(), SOURCE, "missing_syncwarp", &RACE)
        .find(|gpu| run(gpu, "missing_syncwarp", 32));
}

#[test]
fn lost_update() {
    Planted::new(test_name!(), SOURCE, "lost_update", &RACE).find(|gpu| run(gpu, "lost_update", 64));
}

#[test]
fn divergent_barrier() {
    Planted::new(test_name!(), SOURCE, "divergent_barrier", &["barrier"])
        .find(|gpu| run(gpu, "divergent_barrier", 64));
}

#[test]
fn wrong_mask() {
    Planted::new(test_name!(), SOURCE, "wrong_mask", &["mask"]).find(|gpu| run(gpu, "wrong_mask", 32));
}

#[test]
fn barrier_count() {
    Planted::new(test_name!(), SOURCE, "barrier_count", &["barrier"])
        .find(|gpu| run(gpu, "barrier_count", 128));
}
