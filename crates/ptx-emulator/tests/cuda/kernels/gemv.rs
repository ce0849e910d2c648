//! Matrix times vector: bf16, packed halves, int8 by `dp4a`, four bits.

use half::f16;
use ptx_emulator_launcher::test_name;

use crate::support::compare::{as_bf16, product};
use crate::support::{Gpu, Random, args, close, everywhere, halves, halves_to_f32, source, to_bf16};

const ROWS: usize = 37;

#[test]
fn matrix_times_vector() {
    everywhere(test_name!(), source!("gemv.cu"), 61, |gpu| {
        floats(gpu);
        packed(gpu);
    });
}

fn floats(gpu: &Gpu) {
    let k = 520;
    let mut random = Random::new(15);
    let (w, x) = (random.floats(ROWS * k), random.floats(k));

    let y = gpu.fresh::<f32>(ROWS);
    gpu.run("gemv_bfloat", 10, 128, 0, args![&gpu.up(&to_bf16(&w)), &gpu.up(&to_bf16(&x)), &y, 520, 37]);
    let got = gpu.down(&y);
    close(&got, &product(&as_bf16(&w), &as_bf16(&x), ROWS, 1, k), 1e-5);
    gpu.promise(&got);

    let (w, x) = (halves(&w), halves(&x));
    let y = gpu.fresh::<f32>(ROWS);
    gpu.run("gemv_half2", 10, 128, 0, args![&gpu.up(&w), &gpu.up(&x), &y, 260, 37]);
    let got = gpu.down(&y);
    close(&got, &product(&halves_to_f32(&w), &halves_to_f32(&x), ROWS, 1, k), 2e-2);
    gpu.promise(&got);
}

fn packed(gpu: &Gpu) {
    let blocks = 9;
    let mut random = Random::new(16);
    // Blocks of 36 bytes, and what they stand for.
    let mut int8 = |count: usize| {
        let (mut bytes, mut values) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let scale = f16::from_f32(0.001 * (1 + random.below(30)) as f32);
            let whole = random.bytes(32);
            bytes.extend(scale.to_le_bytes());
            bytes.extend([0, 0]);
            bytes.extend(whole.iter().map(|q| q.cast_unsigned()));
            values.extend(whole.iter().map(|q| f32::from(*q) * scale.to_f32()));
        }
        (bytes, values)
    };
    let ((w, wide), (x, wide_x)) = (int8(ROWS * blocks), int8(blocks));
    let y = gpu.fresh::<f32>(ROWS);
    gpu.run("gemv_int8", 10, 128, 0, args![&gpu.up(&w), &gpu.up(&x), &y, 9, 37]);
    let got = gpu.down(&y);
    close(&got, &product(&wide, &wide_x, ROWS, 1, 32 * blocks), 1e-5);
    gpu.promise(&got);

    let x = random.floats(32 * blocks);
    let (mut w, mut wide) = (Vec::new(), Vec::new());
    for _ in 0..ROWS * blocks {
        let scale = f16::from_f32(0.01 * (1 + random.below(30)) as f32);
        let quants: Vec<u8> = (0..16).map(|_| random.below(256) as u8).collect();
        w.extend(scale.to_le_bytes());
        w.extend(&quants);
        let value = |q: u8| (f32::from(q) - 8.0) * scale.to_f32();
        wide.extend(quants.iter().map(|q| value(q & 15)));
        wide.extend(quants.iter().map(|q| value(q >> 4)));
    }
    let y = gpu.fresh::<f32>(ROWS);
    gpu.run("gemv_int4", 10, 128, 0, args![&gpu.up(&w), &gpu.up(&x), &y, 9, 37]);
    let got = gpu.down(&y);
    close(&got, &product(&wide, &x, ROWS, 1, 32 * blocks), 1e-5);
    gpu.promise(&got);
}
