//! Blocks, kernels and streams: races in global memory, and waits that never end.

use ptx_emulator_launcher::{test, test_name};

use super::Planted;
use crate::support::{args, source};

const SOURCE: (&str, &str) = source!("grids.cu");
const RACE: [&str; 1] = ["race in global memory"];

fn planted() -> bool {
    test::case().as_deref() == Some("planted")
}

#[test]
fn race_across_blocks() {
    Planted::new(test_name!(), SOURCE, "overlap", &RACE).races().find(|gpu| {
        let (x, y) = (gpu.up(&[1f32; 256]), gpu.fresh::<f32>(256));
        gpu.run("overlap", 4, 32, 0, args![&x, &y, 256]);
        gpu.stream.synchronize()
    });
}

#[test]
fn missing_fence() {
    Planted::new(test_name!(), SOURCE, "last_block", &RACE).races().find(|gpu| {
        let (x, parts) = (gpu.up(&[1f32; 256]), gpu.fresh::<f32>(256));
        let (tickets, y) = (gpu.zeros::<u32>(1), gpu.fresh::<f32>(32));
        gpu.run("last_block", 8, 32, 0, args![&x, &parts, &tickets, &y]);
        gpu.stream.synchronize()?;
        assert_eq!(gpu.down(&y), [8.0; 32]);
        Ok(())
    });
}

#[test]
fn grid_barrier_without_cooperation() {
    Planted::new(test_name!(), SOURCE, "grid_barrier", &["deadlock", "limit"]).limit("300000").find(|gpu| {
        let blocks = if planted() { 5000 } else { 8 };
        let (arrived, y) = (gpu.zeros::<u32>(1), gpu.fresh::<f32>(blocks as usize * 256));
        gpu.try_launch("grid_barrier", (blocks, 1, 1), (256, 1, 1), 0, args![&arrived, &y], !planted())?;
        gpu.stream.synchronize()
    });
}

#[test]
fn missing_event() {
    Planted::new(test_name!(), SOURCE, "twice", &RACE).other("fill").races().find(|gpu| {
        let other = gpu.other_stream();
        // Written before: that nothing wrote it shall not be the finding.
        let (x, y) = (gpu.up(&[0f32; 64]), gpu.fresh::<f32>(64));
        gpu.stream.synchronize()?;
        gpu.run("fill", 1, 64, 0, args![&x, 3f32]);
        if !planted() {
            other.stream.wait(&gpu.stream.record_event(None)?)?;
        }
        other.run("twice", 1, 64, 0, args![&x, &y]);
        gpu.stream.synchronize()?;
        other.stream.synchronize()
    });
}

#[test]
fn missing_dependency_wait() {
    Planted::new(test_name!(), SOURCE, "second", &RACE).other("first").arch(90).races().find(|gpu| {
        let (x, y) = (gpu.up(&[0f32; 64]), gpu.fresh::<f32>(64));
        gpu.run("first", 1, 64, 0, args![&x]);
        gpu.launch_dependent("second", 1, 64, args![&x, &y]);
        gpu.stream.synchronize()
    });
}
