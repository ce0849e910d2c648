//! Out of bounds, misaligned, freed, unwritten.

use ptx_emulator_launcher::test_name;

use super::Planted;
use crate::support::{Gpu, args, source};

const SOURCE: (&str, &str) = source!("memory.cu");

/// Launches 64 threads on 64 numbers and waits.
fn run(gpu: &Gpu, kernel: &str, shared: u32) -> Result<(), cudarc::driver::DriverError> {
    let (x, y) = (gpu.up(&[1f32; 256]), gpu.fresh::<f32>(64));
    gpu.run(kernel, 1, 64, shared, args![&x, &y]);
    gpu.stream.synchronize()
}

#[test]
fn off_by_one_at_a_tail() {
    // Thread 1000 of all is 104 of the fourth block.
    Planted::new(test_name!(), SOURCE, "tail", &["past the end"]).at(3, 232).find(|gpu| {
        let (x, y) = (gpu.up(&[1f32; 1000]), gpu.fresh::<f32>(1000));
        gpu.run("tail", 4, 256, 0, args![&x, &y, 1000]);
        gpu.stream.synchronize()?;
        assert_eq!(gpu.down(&y), [1.0; 1000]);
        Ok(())
    });
}

#[test]
fn misaligned_vector() {
    Planted::new(test_name!(), SOURCE, "misaligned", &["align"]).at(0, 0).find(|gpu| {
        let (x, y) = (gpu.up(&[1f32; 260]), gpu.fresh::<f32>(64));
        gpu.run("misaligned", 1, 64, 0, args![&x, &y]);
        gpu.stream.synchronize()
    });
}

#[test]
fn use_after_free() {
    Planted::new(test_name!(), SOURCE, "copy", &["freed"]).at(0, 0).find(|gpu| {
        let (x, y) = (gpu.up(&[1f32; 64]), gpu.fresh::<f32>(64));
        if planted() {
            let address = crate::support::gpu::address(&x);
            drop(x);
            gpu.run("copy", 1, 64, 0, args![address, &y]);
        } else {
            gpu.run("copy", 1, 64, 0, args![&x, &y]);
            drop(x);
        }
        gpu.stream.synchronize()
    });
}

fn planted() -> bool {
    ptx_emulator_launcher::test::case().as_deref() == Some("planted")
}

#[test]
fn unwritten_global() {
    let says = ["nothing wrote", "never written", "unwritten"];
    Planted::new(test_name!(), SOURCE, "half_written", &says).find(|gpu| {
        let (x, y, kept) = (gpu.up(&[1f32; 64]), gpu.fresh::<f32>(64), gpu.fresh::<f32>(64));
        gpu.run("half_written", 1, 64, 0, args![&x, &y, &kept]);
        gpu.stream.synchronize()
    });
}

#[test]
fn unwritten_shared() {
    let says = ["nothing wrote", "never written", "unwritten"];
    Planted::new(test_name!(), SOURCE, "shared_unwritten", &says)
        .at(0, 16)
        .find(|gpu| run(gpu, "shared_unwritten", 0));
}

#[test]
fn shared_overflow() {
    Planted::new(test_name!(), SOURCE, "shared_overflow", &["shared"])
        .at(0, 60)
        .find(|gpu| run(gpu, "shared_overflow", 256));
}

#[test]
fn null_pointer() {
    Planted::new(test_name!(), SOURCE, "null_pointer", &["0x0", "no allocation"]).at(0, 0).find(|gpu| {
        let (x, y) = (gpu.up(&[1f32; 64]), gpu.fresh::<f32>(64));
        gpu.run("null_pointer", 1, 64, 0, args![&x, &y, 0u64]);
        gpu.stream.synchronize()
    });
}

#[test]
fn before_the_start() {
    Planted::new(test_name!(), SOURCE, "negative", &["past the end", "no allocation", "before"])
        .at(0, 0)
        .find(|gpu| run(gpu, "negative", 0));
}

#[test]
fn trap() {
    Planted::new(test_name!(), SOURCE, "asserted", &["trap"]).at(0, 63).find(|gpu| {
        let (x, y) = (gpu.up(&[1f32; 64]), gpu.fresh::<f32>(64));
        gpu.run("asserted", 1, 64, 0, args![&x, &y, 64]);
        gpu.stream.synchronize()
    });
}
