//! Warps: votes, shuffles, divergence, calls, arguments, constant memory and variables of a module.
#![allow(unsafe_code)]

use cudarc::driver::{DeviceRepr, LaunchConfig, PushKernelArg};
use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, close, everywhere, source};

#[test]
fn warps() {
    everywhere(test_name!(), source!("warp.cu"), 61, |gpu| {
        votes(gpu);
        ways(gpu);
        polynomial(gpu);
        arguments(gpu);
    });
}

fn votes(gpu: &Gpu) {
    let mut random = Random::new(17);
    let x: Vec<u32> = (0..32).map(|_| random.below(120)).collect();
    let out = gpu.fresh::<u32>(16 * 32);
    gpu.run("votes", 1, 32, 0, args![&gpu.up(&x), &out]);
    let got = gpu.down(&out);
    let bits =
        |p: &dyn Fn(u32) -> bool| x.iter().enumerate().fold(0u32, |m, (i, v)| m | u32::from(p(*v)) << i);
    let (major, minor) = gpu.context.compute_capability().unwrap();
    let arch = major * 10 + minor;
    for t in 0..32usize {
        let lane = t as u32;
        let clamp = |to: usize, ok: bool| if ok { x[to] } else { x[t] };
        let mut wanted = vec![
            bits(&|v| v & 1 == 1),
            u32::from(x.contains(&7)),
            u32::from(x.iter().all(|v| *v < 100)),
            x[(t * 3) & 31],
            clamp(t.wrapping_sub(3), t % 8 >= 3),
            clamp((t + 5) % 32, t % 16 + 5 < 16),
            x[t ^ 9],
            x[(t & !3) + 1],
            if t < 20 { bits(&|v| v & 2 == 2) & 0xfffff } else { 0 },
            0,
            lane * 1000 + lane,
            (x[t ^ 1] << 3) ^ (lane ^ 1),
        ];
        // Which lanes come together after a branch is not promised; that a lane finds itself is.
        let active = got[9 * 32 + t];
        let together = if t & 4 != 0 { active } else { !active };
        assert!(
            together >> t & 1 == 1 && together & if t & 4 != 0 { 0x0f0f_0f0f } else { 0xf0f0_f0f0 } == 0
                || together == u32::MAX
        );
        wanted[9] = active;
        // What the architecture compiled for lacks is zero.
        if got[12 * 32] != 0 {
            // All agree: the full mask, and one more for the predicate.
            wanted.extend([bits(&|v| v & 3 == x[t] & 3), u32::MAX.wrapping_add(1)]);
            assert!(arch >= 70);
        } else {
            wanted.extend([0, 0]);
        }
        if got[14 * 32] != 0 {
            let xor = x.iter().fold(0, |a, b| a ^ b);
            wanted.extend([x.iter().sum(), x.iter().max().unwrap() ^ xor]);
        } else {
            wanted.extend([0, 0]);
        }
        for (row, wanted) in wanted.iter().enumerate() {
            assert_eq!(got[row * 32 + t], *wanted, "row {row}, lane {t}");
        }
    }
}

fn ways(gpu: &Gpu) {
    let n = 1000usize;
    let mut random = Random::new(18);
    let x: Vec<u32> = (0..n).map(|_| random.below(5000)).collect();
    let out = gpu.fresh::<u32>(n);
    gpu.run("ways", 8, 128, 0, args![&gpu.up(&x), &out, 1000]);
    let collatz = |mut n: u32| {
        let mut steps = 0;
        while n != 1 {
            n = if n & 1 == 1 { 3 * n + 1 } else { n / 2 };
            steps += 1;
        }
        steps
    };
    let gcd = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let wanted: Vec<u32> = (0..n)
        .map(|i| {
            let v = x[i];
            let r = match v % 9 {
                0 => collatz(v + 1),
                1 => (0..v % 17).take_while(|k| *k != 11).filter(|k| k & 1 == 0).map(|k| k * v).sum(),
                2 => v / 3,
                3 => v * 5 + 4,
                4 => 4,
                5 => v.count_ones(),
                6 => gcd(v, 18),
                7 => !v,
                _ => (0..8).map(|k| v >> (4 * k) & 15).sum(),
            };
            let extra = match i & 3 {
                1 => 1 + 10 + 100,
                3 => 1,
                _ => 100,
            };
            r.wrapping_add(extra)
        })
        .collect();
    assert_eq!(gpu.down(&out), wanted);
}

fn polynomial(gpu: &Gpu) {
    let x = Random::new(19).floats(100);
    let y = gpu.fresh::<f32>(100);
    gpu.run("polynomial", 1, 128, 0, args![&gpu.up(&x), &y, 100]);
    let c = [1f32, -2.0, 0.5, 3.0, -1.0];
    let wanted: Vec<f32> = x
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let a = c.iter().fold(0f32, |v, c| v.mul_add(*x, *c));
            let b = (0..5).map(|k| c[(k + 5 - i % 5) % 5]).fold(0f32, |v, c| v.mul_add(*x, c));
            if i % 5 == 0 { a - b } else { a + b }
        })
        .collect();
    close(&gpu.down(&y), &wanted, 1e-6);
    // A variable of the module is found by its name and keeps what the kernel left there.
    let calls = gpu.module().get_global("calls", &gpu.stream).unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&calls).unwrap(), 200i32.to_le_bytes());
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Shape {
    kind: u8,
    rows: u16,
    columns: i32,
    scale: f64,
    strides: [u64; 3],
}

// SAFETY: plain numbers, laid out as in the kernel's file.
unsafe impl DeviceRepr for Shape {}

fn arguments(gpu: &Gpu) {
    let shape = Shape { kind: 200, rows: 40_000, columns: -5, scale: 0.25, strides: [1, 1 << 40, 3] };
    let x: Vec<i32> = (0..32).collect();
    let (x, out) = (gpu.up(&x), gpu.fresh::<f64>(32));
    let function = gpu.module().load_function("arguments").unwrap();
    let mut builder = gpu.stream.launch_builder(&function);
    builder.arg(&250u8).arg(&60_000u16).arg(&-100i8).arg(&shape).arg(&x).arg(&out);
    let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the arguments are those of the kernel, in its order.
    unsafe { builder.launch(config) }.unwrap();
    let wanted: Vec<f64> = (0..32i32)
        .map(|t| {
            let from = if t & 1 == 1 { 1000 + 31 - t } else { 31 - t };
            let sum = 250 + 60_000 - 100 + 200 + 40_000 - 5;
            0.25 * f64::from(sum) + shape.strides[t as usize % 3] as f64 + f64::from(from)
        })
        .collect();
    assert_eq!(gpu.down(&out), wanted);
}
