//! How fast it is, through the driver as a program sees it.
//!
//! `cargo test --release -p ptx-emulator --test cuda -- --ignored --nocapture speed` prints medians of five for the three modes of
//! the checker. Other load on the machine counts in full: compare the modes with one another before you compare machines.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use ptx_emulator_launcher::{Nvrtc, test, test_name};

use crate::support::nvrtc::Compiler;
use crate::support::run::{Source, again};
use crate::support::{Gpu, args};

const GEMV: Source = ("gemv.cu", include_str!("kernels/gemv.cu"));
const GEMM: Source = ("gemm.cu", include_str!("kernels/gemm.cu"));

#[test]
#[ignore = "measures"]
fn speed() {
    if test::case().is_some() {
        measure();
        return;
    }
    println!(
        "\n{:<10} {:>16} {:>16} {:>16} {:>14}",
        "checker", "bf16 weights/s", "mma MAC/s, bf16", "mma MAC/s, f16", "launches/s"
    );
    for check in ["0", "1", "races"] {
        let Some(report) = again(test_name!(), "measure", &[("PTX_EMU_CHECK", check)]) else { return };
        let report = report.ok();
        let mut values = report.values("rate").map(|value| value.parse::<f64>().unwrap());
        let mut next = || values.next().unwrap();
        println!(
            "{check:<10} {:>14.0} M {:>14.2} G {:>14.2} G {:>14.0}",
            next() / 1e6,
            next() / 1e9,
            next() / 1e9,
            next()
        );
    }
}

fn measure() {
    let compiler = Compiler::new(Nvrtc::V12);
    let module = |source: Source| Gpu::open(80).with(&compiler.compile(source.0, source.1, 80, &[], &[]));

    let gpu = module(GEMV);
    let (rows, k) = (4096u32, 2048u32);
    let w = gpu.zeros::<u16>((rows * k) as usize);
    let (x, y) = (gpu.zeros::<u16>(k as usize), gpu.zeros::<f32>(rows as usize));
    rate(&gpu, f64::from(rows * k), || {
        gpu.run("gemv_bfloat", rows / 4, 128, 0, args![&w, &x, &y, k, rows]);
    });

    let gpu = module(GEMM);
    let (m, n, k) = (512u32, 512u32, 512u32);
    let (a, b) = (gpu.zeros::<u16>((m * k) as usize), gpu.zeros::<u16>((n * k) as usize));
    let c = gpu.zeros::<f32>((m * n) as usize);
    for kernel in ["gemm_bfloat", "gemm_half"] {
        rate(&gpu, f64::from(m * n) * f64::from(k), || {
            let arguments = args![&a, &b, &c, m, n, 2 * k];
            gpu.launch(kernel, (n / 32, m / 64, 1), (128, 1, 1), 0, arguments);
        });
    }

    let gpu = module(GEMV);
    let launches = 2000;
    rate(&gpu, f64::from(launches), || {
        for _ in 0..launches {
            // No row is its own: every warp ends at once.
            gpu.run("gemv_bfloat", 1, 32, 0, args![&w, &x, &y, 8, 0]);
        }
    });
}

/// Prints how much of `work` is done in a second: the median of five.
fn rate(gpu: &Gpu, work: f64, run: impl Fn()) {
    gpu.stream.synchronize().unwrap();
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let began = Instant::now();
            run();
            gpu.stream.synchronize().unwrap();
            began.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("rate: {}", work / times[2]);
}
