//! Producers and consumers: bulk copies with mbarriers, named barriers, `cp.async` that arrives.
//!
//! NVRTC 11.8 writes a version of PTX that has no bulk copies, whatever is in the inline assembly.

use ptx_emulator_launcher::{Nvrtc, test_name};

use crate::support::{Gpu, Random, args, close, everywhere, everywhere_since, source};

#[test]
fn bulk_copies() {
    everywhere_since(test_name!(), source!("pipeline.cu"), Nvrtc::V12, 90, |gpu| {
        let stages = 8usize;
        let x: Vec<f32> = Random::new(23).floats(2 * stages * 256);
        let y = gpu.fresh::<f32>(256);
        gpu.run("bulk_pipeline", 2, 160, 0, args![&gpu.up(&x), &y, 8]);
        let wanted: Vec<f32> = (0..2)
            .flat_map(|block| (0..128).map(move |t| (block, t)))
            .map(|(block, t)| {
                x[block * stages * 256..][..stages * 256].chunks(256).map(|s| s[t] + s[t + 128]).sum()
            })
            .collect();
        let got = gpu.down(&y);
        close(&got, &wanted, 1e-6);
        gpu.promise(&got);

        let x = Random::new(24).floats(3 * 256);
        let y = gpu.fresh::<f32>(3 * 256);
        gpu.run("bulk_double", 3, 64, 0, args![&gpu.up(&x), &y]);
        assert_eq!(gpu.down(&y), x.iter().map(|v| v * 2.0).collect::<Vec<_>>());
    });
}

#[test]
fn named_barriers() {
    everywhere(test_name!(), source!("handover.cu"), 61, |gpu| {
        let x = Random::new(25).floats(7 * 64);
        let y = gpu.fresh::<f32>(7 * 64);
        gpu.run("named", 1, 128, 0, args![&gpu.up(&x), &y, 7]);
        assert_eq!(gpu.down(&y), reversed(&x, 64, 2.0));
    });
}

#[test]
fn mbarriers() {
    everywhere(test_name!(), source!("handover.cu"), 80, |gpu: &Gpu| {
        let x = Random::new(26).floats(2 * 256);
        let y = gpu.fresh::<f32>(128);
        gpu.run("async_arrive", 2, 64, 0, args![&gpu.up(&x), &y]);
        let sums: Vec<f32> = x.chunks(4).map(|v| v[0] + v[1] + v[2] + v[3]).collect();
        assert_eq!(gpu.down(&y), reversed(&sums, 64, 1.0));

        let x = Random::new(27).floats(3 * 96);
        let y = gpu.fresh::<f32>(3 * 96);
        gpu.run("token_barrier", 1, 96, 0, args![&gpu.up(&x), &y]);
        assert_eq!(gpu.down(&y), reversed(&x, 96, 1.0));
    });
}

/// Each part of `x` backwards, scaled.
fn reversed(x: &[f32], part: usize, scale: f32) -> Vec<f32> {
    x.chunks(part).flat_map(|part| part.iter().rev().map(move |v| v * scale)).collect()
}
