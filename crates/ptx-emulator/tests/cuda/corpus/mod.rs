//! Kernels that nobody here wrote: those of candle, compiled by nvcc.
//!
//! `cargo xtask emu-corpus` makes their PTX; without it the tests say `skipped:`.

use std::path::PathBuf;

use half::{bf16, f16};
use ptx_emulator_launcher::{Launcher, test, test_name};

use crate::support::compare::product;
use crate::support::run::again;
use crate::support::{Gpu, Random, args, close, halves_to_f32, in_all_settings};

/// The folder of the PTX files, if they were made.
#[allow(clippy::print_stderr)] // what a test skips, its log should say
fn folder(name: &str) -> Option<PathBuf> {
    let folder = Launcher::new().cache_folder().unwrap().join("candle-kernels-0.11.1-sm_80");
    if folder.join("complete").is_file() {
        return Some(folder);
    }
    eprintln!("skipped: {name}: no PTX of candle-kernels; `cargo xtask emu-corpus` makes it");
    None
}

fn module(name: &str) -> Gpu {
    let folder = folder(name).unwrap();
    Gpu::open(80).with(&std::fs::read_to_string(folder.join(format!("{name}.ptx"))).unwrap())
}

#[test]
fn all_of_candle_loads() {
    let Some(folder) = folder(test_name!()) else { return };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "ptx"));
    files.sort();
    assert!(files.len() >= 19, "{files:?}");
    let Some(case) = test::case() else {
        // One process a file: each is large.
        for file in files {
            let Some(report) = again(test_name!(), file.to_str().unwrap(), &[]) else { return };
            report.ok();
        }
        return;
    };
    let text = std::fs::read_to_string(&case).unwrap();
    let gpu = Gpu::open(80).with(&text);
    let entries = text.lines().filter_map(|line| line.split_once(".entry ")).map(|(_, rest)| rest);
    let mut count = 0;
    for entry in entries {
        let name = entry.split('(').next().unwrap().trim();
        gpu.module().load_function(name).unwrap();
        count += 1;
    }
    assert!(count > 0, "no kernel in {case}");
}

const N: usize = 1000;

#[test]
fn elementwise() {
    if folder(test_name!()).is_none() {
        return;
    }
    in_all_settings(test_name!(), || {
        let mut random = Random::new(40);
        let (x, y) = (random.floats(N), random.floats(N));

        let gpu = module("unary");
        let (dx, out) = (gpu.up(&x), gpu.fresh::<f32>(N));
        for (kernel, wanted) in [
            ("uexp_f32", (|v| v.exp()) as fn(f32) -> f32),
            ("usilu_f32", |v| v / (1.0 + (-v).exp())),
            ("usqr_f32", |v| v * v),
        ] {
            gpu.run(kernel, 4, 256, 0, args![1000u64, 1u64, 0u64, &dx, &out]);
            close(&gpu.down(&out), &x.iter().map(|v| wanted(*v)).collect::<Vec<_>>(), 1e-6);
        }

        // A matrix read by its columns: the right side is strided.
        let gpu = module("binary");
        let (dx, dy, out) = (gpu.up(&x), gpu.up(&y), gpu.fresh::<f32>(N));
        let info = gpu.up(&[20u64, 50, 50, 1, 1, 20]);
        gpu.run("badd_f32", 4, 256, 0, args![1000u64, 2u64, &info, &dx, &dy, &out]);
        let wanted: Vec<f32> = (0..N).map(|i| x[i] + y[i % 50 * 20 + i / 50]).collect();
        assert_eq!(gpu.down(&out), wanted);

        let gpu = module("affine");
        let (dx, out) = (gpu.up(&x), gpu.fresh::<f32>(N));
        gpu.run("affine_f32", 4, 256, 0, args![1000u64, 1u64, 0u64, &dx, &out, 3f32, -1f32]);
        close(&gpu.down(&out), &x.iter().map(|v| v * 3.0 - 1.0).collect::<Vec<_>>(), 1e-6);

        let gpu = module("cast");
        let (dx, half, brain) = (gpu.up(&x), gpu.fresh::<u16>(N), gpu.fresh::<u16>(N));
        gpu.run("cast_f32_f16", 4, 256, 0, args![1000u64, 1u64, 0u64, &dx, &half]);
        gpu.run("cast_f32_bf16", 4, 256, 0, args![1000u64, 1u64, 0u64, &dx, &brain]);
        assert_eq!(gpu.down(&half), x.iter().map(|v| f16::from_f32(*v).to_bits()).collect::<Vec<_>>());
        assert_eq!(gpu.down(&brain), x.iter().map(|v| bf16::from_f32(*v).to_bits()).collect::<Vec<_>>());
    });
}

#[test]
fn rows() {
    if folder(test_name!()).is_none() {
        return;
    }
    in_all_settings(test_name!(), || {
        let gpu = module("reduce");
        let x = Random::new(41).floats(N);
        let (dx, info) = (gpu.up(&x), gpu.up(&[1000u64, 1]));

        let sums = gpu.fresh::<f32>(4);
        gpu.run("fast_sum_f32", 4, 256, 0, args![1000u64, 250u64, 1u64, &info, &dx, &sums]);
        let wanted: Vec<f32> = x.chunks(250).map(|row| row.iter().sum()).collect();
        close(&gpu.down(&sums), &wanted, 1e-5);

        let out = gpu.fresh::<f32>(N);
        gpu.launch("softmax_f32", (5, 1, 1), (1, 32, 1), 0, args![&dx, &out, 200]);
        let wanted: Vec<f32> = x
            .chunks(200)
            .flat_map(|row| {
                let sum: f32 = row.iter().map(|v| v.exp()).sum();
                row.iter().map(move |v| v.exp() / sum)
            })
            .collect();
        close(&gpu.down(&out), &wanted, 1e-6);

        let weight = Random::new(42).floats(200);
        let arguments = args![200, 32, 1e-5f32];
        let (dw, out) = (gpu.up(&weight), gpu.fresh::<f32>(N));
        let arguments = [args![&dx, &out, &dw].as_slice(), arguments].concat();
        gpu.launch("rmsnorm_f32", (5, 1, 1), (32, 1, 1), 0, &arguments);
        let wanted: Vec<f32> = x
            .chunks(200)
            .flat_map(|row| {
                let scale = 1.0 / (row.iter().map(|v| v * v).sum::<f32>() / 200.0 + 1e-5).sqrt();
                row.iter().zip(&weight).map(move |(v, w)| v * scale * w)
            })
            .collect();
        close(&gpu.down(&out), &wanted, 1e-5);

        // Two heads of five positions and 100 dimensions.
        let angles: Vec<f32> = Random::new(43).floats(250);
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
        let (dc, ds, out) = (gpu.up(&cos), gpu.up(&sin), gpu.fresh::<f32>(N));
        gpu.run("rope_f32", 2, 256, 0, args![&dx, &dc, &ds, &out, 2u32, 500u32, 100u32, 0u32]);
        let mut wanted = vec![0f32; N];
        for (i, pair) in (0..N).filter(|i| i % 100 < 50).enumerate() {
            let (a, b, at) = (x[pair], x[pair + 50], i % 250);
            wanted[pair] = a * cos[at] - b * sin[at];
            wanted[pair + 50] = a * sin[at] + b * cos[at];
        }
        close(&gpu.down(&out), &wanted, 1e-6);
    });
}

#[test]
fn quantised() {
    if folder(test_name!()).is_none() {
        return;
    }
    in_all_settings(test_name!(), || {
        let gpu = module("quantized");
        let (rows, k) = (6usize, 512usize);
        let mut random = Random::new(44);
        // Blocks of q4_0: a scale and 16 bytes of two numbers each.
        let (mut bytes, mut wide, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rows * k / 32 {
            let scale = f16::from_f32(0.01 * (1 + random.below(30)) as f32);
            let quants: Vec<u8> = (0..16).map(|_| random.below(256) as u8).collect();
            bytes.extend(scale.to_le_bytes());
            bytes.extend(&quants);
            wide.extend(quants.iter().map(|q| (f32::from(q & 15) - 8.0) * scale.to_f32()));
            wide.extend(quants.iter().map(|q| (f32::from(q >> 4) - 8.0) * scale.to_f32()));
            let nibbles = quants.iter().map(|q| q & 15).chain(quants.iter().map(|q| q >> 4));
            raw.push((scale.to_f32(), nibbles.map(f32::from).collect::<Vec<_>>()));
        }
        let x = random.floats(k);
        let wanted = product(&wide, &x, rows, 1, k);
        let (w, dx, y) = (gpu.up(&bytes), gpu.up(&x), gpu.fresh::<f32>(rows));

        let arguments = args![&w, &dx, &y, 512, 6];
        gpu.launch("dequantize_mul_mat_vec_q4_0_cuda", (6, 1, 1), (32, 1, 1), 0, arguments);
        close(&gpu.down(&y), &wanted, 1e-4);

        // The vector rounded to eight bits first, then products of whole numbers; the eights are subtracted by its exact sums.
        let rounded: Vec<(f32, Vec<f32>)> = x
            .chunks(32)
            .map(|part| {
                let scale = part.iter().fold(0f32, |top, v| top.max(v.abs())) / 127.0;
                (part.iter().sum(), part.iter().map(|v| (v / scale).round() * scale).collect())
            })
            .collect();
        let wanted: Vec<f32> = raw
            .chunks(k / 32)
            .map(|row| {
                let blocks = row.iter().zip(&rounded).map(|((scale, q), (sum, x))| {
                    scale * (q.iter().zip(x).map(|(q, x)| q * x).sum::<f32>() - 8.0 * sum)
                });
                blocks.sum()
            })
            .collect();
        let packed = gpu.fresh::<u8>(k / 32 * 36);
        gpu.run("quantize_q8_1", 2, 256, 0, args![&dx, &packed, 512, 512]);
        let y = gpu.fresh::<f32>(rows);
        let arguments = args![&w, &packed, &y, 512, 6, 512, 6];
        gpu.launch("mul_mat_vec_q4_0_q8_1_cuda1", (6, 1, 1), (32, 4, 1), 0, arguments);
        close(&gpu.down(&y), &wanted, 1e-2);

        let half = gpu.fresh::<u16>(rows * k);
        gpu.launch("dequantize_block_q4_0_f16", (12, 1, 1), (32, 1, 1), 0, args![&w, &half, 96]);
        close(&halves_to_f32(&gpu.down(&half)), &wide, 1e-3);
    });
}
