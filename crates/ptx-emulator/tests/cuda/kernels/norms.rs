//! Softmax, layer norm, RMS norm, rotary embedding.

use half::bf16;
use ptx_emulator_launcher::test_name;

use crate::support::{Gpu, Random, args, close, everywhere, halves, halves_to_f32, source, to_bf16};

#[test]
fn norms() {
    everywhere(test_name!(), source!("norms.cu"), 61, |gpu| {
        softmaxes(gpu);
        layer_norm(gpu);
        rms_norm(gpu);
        rope(gpu);
    });
}

fn softmaxes(gpu: &Gpu) {
    let (rows, n) = (5u32, 777usize);
    let x: Vec<f32> = Random::new(4).floats(5 * n).iter().map(|v| v * 10.0).collect();
    let wanted: Vec<f32> = x
        .chunks(n)
        .flat_map(|row| {
            let top = row.iter().copied().fold(f32::MIN, f32::max);
            let powers: Vec<f64> = row.iter().map(|v| f64::from(v - top).exp()).collect();
            let sum: f64 = powers.iter().sum();
            powers.into_iter().map(move |v| (v / sum) as f32)
        })
        .collect();
    for (kernel, shared) in [("softmax_online", 0), ("softmax_kept", 777 * 4)] {
        let y = gpu.fresh::<f32>(x.len());
        gpu.run(kernel, rows, 256, shared, args![&gpu.up(&x), &y, 777]);
        let got = gpu.down(&y);
        close(&got, &wanted, 1e-5);
        gpu.promise(&got);
    }
}

fn layer_norm(gpu: &Gpu) {
    let n = 300;
    let mut random = Random::new(5);
    let (x, w, b) = (random.floats(3 * n), random.floats(n), random.floats(n));
    let y = gpu.fresh::<f32>(x.len());
    gpu.run("layer_norm", 3, 96, 0, args![&gpu.up(&x), &gpu.up(&w), &gpu.up(&b), &y, 300, 1e-5f32]);
    let wanted: Vec<f32> = x
        .chunks(n)
        .flat_map(|row| {
            let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / n as f64;
            let variance = row.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n as f64;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            let (w, b) = (&w, &b);
            row.iter().enumerate().map(move |(i, v)| ((f64::from(*v) - mean) * scale) as f32 * w[i] + b[i])
        })
        .collect();
    let got = gpu.down(&y);
    close(&got, &wanted, 1e-5);
    gpu.promise(&got);
}

fn rms_norm(gpu: &Gpu) {
    let n = 500;
    let mut random = Random::new(6);
    let (x, w) = (to_bf16(&random.floats(4 * n)), to_bf16(&random.floats(n)));
    let y = gpu.fresh::<u16>(x.len());
    gpu.run("rms_norm_bfloat", 4, 128, 0, args![&gpu.up(&x), &gpu.up(&w), &y, 500, 1e-5f32]);
    let wide = |bits: &[u16]| -> Vec<f32> { bits.iter().map(|v| bf16::from_bits(*v).to_f32()).collect() };
    let (x, w) = (wide(&x), wide(&w));
    let wanted: Vec<f32> = x
        .chunks(n)
        .flat_map(|row| {
            let scale = 1.0 / (row.iter().map(|v| v * v).sum::<f32>() / n as f32 + 1e-5).sqrt();
            row.iter().zip(&w).map(move |(v, w)| v * scale * w)
        })
        .collect();
    close(&wide(&gpu.down(&y)), &wanted, 4e-3);
}

fn rope(gpu: &Gpu) {
    let position = [0i32, 1, 77, 300_000];
    let x = halves(&Random::new(7).floats(4 * 64));
    let y = gpu.up(&x);
    gpu.run("rope_half", 4, 32, 0, args![&y, &gpu.up(&position), 64, 10000f32]);
    let (x, got) = (halves_to_f32(&x), halves_to_f32(&gpu.down(&y)));
    for (row, (x, got)) in x.chunks(64).zip(got.chunks(64)).enumerate() {
        let wanted: Vec<f32> = x
            .chunks(2)
            .enumerate()
            .flat_map(|(i, pair)| {
                let angle = position[row] as f32 * 10000f32.powf(-2.0 * i as f32 / 64.0);
                let (s, c) = f64::from(angle).sin_cos();
                let (a, b) = (f64::from(pair[0]), f64::from(pair[1]));
                [(a * c - b * s) as f32, (a * s + b * c) as f32]
            })
            .collect();
        // One unit in the last place of the power turns an angle of 300,000 by 0.03.
        close(got, &wanted, if row == 3 { 6e-2 } else { 2e-3 });
    }
}
