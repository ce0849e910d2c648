//! Products in a half, by the backend's own choice of a tile: every format, few rows and many, fused forms, and steps that are replayed.
//!
//! `ops/matrix_tests.rs` has each tile by itself and the bounds; here the conformance suite's oracle says what is right.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/llama.rs"]
mod llama;
#[path = "common/products.rs"]
mod products;

use llama::{DIM, Model};
use ogive_backend::tensor::{F16, FEW_BITS, FORMATS, Format, HostWeight, Q8_0};
use ogive_backend::{Activation, Backend, Estimate};
use ogive_conformance::Oracle;
use ogive_cuda::{Builder, Compute, CublasUse, CudaBackend};
use products::{error, numbers, weight};
use ptx_emulator_launcher::{Nvrtc, test_name};

fn backend(compute: Compute) -> CudaBackend {
    CudaBackend::builder().compute(compute).build().unwrap()
}

/// Independent errors of two factors add up as squares: the bound of each, u / sqrt(3) on average, times sqrt(2), and some room.
fn usual(compute: Compute) -> f64 {
    match compute {
        Compute::F16 => 2f64.powi(-11),
        Compute::Bf16 => 2f64.powi(-8),
        _ => 1e-6,
    }
}

/// All but those of few bits. The kernels of those are the same source, and what they read is tested to the bit beside them.
fn written() -> Vec<&'static Format> {
    FORMATS.iter().copied().filter(|format| !FEW_BITS.contains(format)).collect()
}

/// `linear`, `linear_many` and `linear_gated` of every format with so many rows.
fn agrees(b: &CudaBackend, compute: Compute, formats: &[&'static Format], rows: &[usize]) {
    let run = |b: &dyn Backend, ws: &[HostWeight; 2], x: &[f32], n: usize| {
        let [w, v] = ws.each_ref().map(|w| b.upload_weight(w).unwrap());
        let x = b.upload(x, [n, ws[0].shape[2]].into()).unwrap();
        let mut ys = b.linear_many(&x, &[&w, &v]).unwrap();
        ys.push(b.linear(&x, &w).unwrap());
        ys.push(b.linear_gated(&x, &w, &v, Activation::Silu).unwrap());
        ys.iter().map(|y| b.download(y).unwrap()).collect::<Vec<_>>()
    };
    for &format in formats {
        let (cols, out) = (format.block_len.max(64) * 3, 70);
        let ws = [weight(format, 1, [out, cols]), weight(format, 2, [out, cols])];
        let mut worst = 0f64;
        for &n in rows {
            let x = numbers(3, n * cols);
            let (got, want) = (run(b, &ws, &x, n), run(&Oracle, &ws, &x, n));
            assert_eq!(got[0], got[2], "{}: alone and with another", format.name);
            for (got, want) in got.iter().zip(&want) {
                worst = worst.max(error(got, want));
            }
        }
        println!("cuda: {compute:?} {:8} {worst:.1e}", format.name);
        // A gate's product has the errors of two.
        assert!(worst < 2.0 * usual(compute), "{compute:?} {}: off by {worst:e}", format.name);
        assert!(worst > 0.01 * usual(compute), "{compute:?} {}: {worst:e} is not of that type", format.name);
    }
}

#[test]
fn every_format_in_bf16() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = backend(Compute::Bf16);
        assert!(!b.facts().exact);
        agrees(&b, Compute::Bf16, &written(), &[2, 9, 33]);
    });
}

#[test]
fn every_format_in_f16() {
    common::on_device(test_name!(), Nvrtc::V13, || {
        agrees(&backend(Compute::F16), Compute::F16, &written(), &[5, 20, 70]);
    });
}

/// The same with every product of two rows and more by cuBLAS.
fn by_cublas(compute: Compute, rows: &[usize]) {
    let b = CudaBackend::builder().compute(compute).cublas_from(2).build().unwrap();
    agrees(&b, compute, &written(), rows);
    let CublasUse::Failed(why) = b.cublas() else { return };
    // A GPU machine may have none; the emulator has.
    println!("skipped: {why}");
    assert!(!b.info().name.contains("emulator"), "{why}");
}

#[test]
fn every_format_in_bf16_by_cublas() {
    common::on_device(test_name!(), Nvrtc::V13, || by_cublas(Compute::Bf16, &[2, 70]));
}

#[test]
fn every_format_in_f16_by_cublas() {
    common::on_device(test_name!(), Nvrtc::V12, || by_cublas(Compute::F16, &[9, 33]));
}

#[test]
fn one_row_and_single_precision_are_exact() {
    common::on_device(test_name!(), Nvrtc::V11, || {
        let w = weight(FORMATS[0], 1, [70, 192]);
        let run = |b: &dyn Backend, n: usize| {
            let (w, x) =
                (b.upload_weight(&w).unwrap(), b.upload(&numbers(3, n * 192), [n, 192].into()).unwrap());
            b.download(&b.linear(&x, &w).unwrap()).unwrap()
        };
        assert!(error(&run(&backend(Compute::F16), 1), &run(&Oracle, 1)) < 1e-6);
        assert!(error(&run(&CudaBackend::new().unwrap(), 40), &run(&Oracle, 40)) < 1e-6);
    });
}

/// Plain weights in single precision: where tiles would leave the device idle, as with a router, rows have the bits that they have alone; tiles
/// sum in another order. Rows of whole eights and others.
#[test]
fn plain_weights_in_slices_and_in_tiles() {
    common::on_device(test_name!(), Nvrtc::V13, || {
        let b = CudaBackend::new().unwrap();
        let many = 1024 * b.info().multiprocessors as usize / 65 + 5;
        for (format, cols) in FORMATS.iter().filter(|f| f.block_len == 1).flat_map(|f| [(f, 600), (f, 75)]) {
            for (n, out, alike) in [(9, 8, true), (17, 70, true), (70, 130, true), (65, many, false)] {
                let (host, x) = (weight(format, 1, [out, cols]), numbers(3, n * cols));
                let run = |b: &dyn Backend, x: &[f32]| {
                    let (w, x) = (
                        b.upload_weight(&host).unwrap(),
                        b.upload(x, [x.len() / cols, cols].into()).unwrap(),
                    );
                    b.download(&b.linear(&x, &w).unwrap()).unwrap()
                };
                let what = format!("{} {n} rows of {cols} to {out}", format.name);
                let (got, want) = (run(&b, &x), run(&Oracle, &x));
                assert!(error(&got, &want) < 1e-6, "{what}");
                let same = |(row, x)| run(&b, x) == got[row * out..][..out];
                let alone = x.chunks(cols).enumerate().take(if alike { n } else { 1 }).all(same);
                assert_eq!(alone, alike, "{what}");
            }
        }
    });
}

/// What a backend computes by the formats of its weights is, to the bit, what one computes that was told so; also beside other formats.
fn by_format(packed: Compute) {
    let (auto, cols, out, n) = (backend(Compute::Auto), 768, 70, 33);
    assert!(!auto.facts().exact);
    let told = [Compute::F32, Compute::F16, packed].map(backend);
    let x = numbers(3, n * cols);
    let bits = |b: &dyn Backend, y| b.download(&y).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let mut alone = Vec::new();
    for format in written() {
        let run = |b: &dyn Backend| {
            let [w, v] = [1, 2].map(|salt| b.upload_weight(&weight(format, salt, [out, cols])).unwrap());
            let x = b.upload(&x, [n, cols].into()).unwrap();
            let gated = b.linear_gated(&x, &w, &v, Activation::Silu).unwrap();
            [bits(b, b.linear(&x, &w).unwrap()), bits(b, gated)]
        };
        let [single, half, other] = told.each_ref().map(|b| run(b));
        assert!(single != half && single != other, "{}: not of that type", format.name);
        let want = match format.name {
            "f32" => single,
            "f16" => half,
            _ => other,
        };
        let got = run(&auto);
        assert!(got == want, "{}", format.name);
        alone.push(got[0].clone());
    }
    let ws: Vec<_> =
        written().into_iter().map(|f| auto.upload_weight(&weight(f, 1, [out, cols])).unwrap()).collect();
    let x = auto.upload(&x, [n, cols].into()).unwrap();
    let all = auto.linear_many(&x, &ws.iter().collect::<Vec<_>>()).unwrap();
    for ((format, y), want) in written().into_iter().zip(all).zip(&alone) {
        assert!(bits(&auto, y) == *want, "{} beside others", format.name);
    }
}

#[test]
fn weights_are_multiplied_as_they_are_kept() {
    common::on_device(test_name!(), Nvrtc::V12, || by_format(Compute::Bf16));
}

/// These know no bfloat16.
#[test]
fn weights_are_multiplied_as_they_are_kept_on_sm_75() {
    let packed = |b: &CudaBackend| if b.info().capability < (8, 0) { Compute::F16 } else { Compute::Bf16 };
    common::on_kind(test_name!(), Nvrtc::V11, Some("sm_75"), || {
        by_format(packed(&CudaBackend::new().unwrap()))
    });
}

/// A step of several sequences is the same bits whenever it comes, recorded or not.
fn replayed(set: impl Fn(Builder) -> Builder) -> Vec<Vec<u32>> {
    let build = |graphs| set(CudaBackend::builder().compute(Compute::Bf16).graphs(graphs)).build().unwrap();
    let tell = |b: &CudaBackend| -> Vec<Vec<u32>> {
        let model = Model::new(b, 0).unwrap();
        let tokens =
            |past: usize| (0..5).map(|i| (past as u32 * 13 + i * 29) % DIM as u32).collect::<Vec<_>>();
        let step = |past| {
            let y = model.replayed(b, 1, Model::batch(&tokens(past)[..3], past)).unwrap();
            b.download(&y).unwrap().into_iter().map(f32::to_bits).collect()
        };
        (0..12).map(step).collect()
    };
    let with = build(true);
    let first = tell(&with);
    assert_eq!(first, tell(&build(false)));
    assert_eq!(first, tell(&with));
    assert!(with.graphs().replayed > 5, "{:?}", with.graphs());
    assert_ne!(first, tell(&CudaBackend::new().unwrap()), "it was computed in single precision");
    first
}

#[test]
fn replayed_steps_are_the_same_bits() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        replayed(|b| b);
    });
}

/// cuBLAS's products are recorded with the rest, on memory of the record's own.
#[test]
fn replayed_steps_are_the_same_bits_by_cublas() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let by_cublas = replayed(|b| b.cublas_from(2));
        let own = replayed(|b| b.cublas_from(2).cublas(false));
        let values =
            |steps: &[Vec<u32>]| -> Vec<f32> { steps.iter().flatten().map(|v| f32::from_bits(*v)).collect() };
        assert!(error(&values(&by_cublas), &values(&own)) < usual(Compute::Bf16));
    });
}

/// What gating leaves beside its result is counted there, and not with the product that reads it; one of another type takes its own.
#[test]
fn an_estimate_counts_what_gating_leaves() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let gates = [weight(&Q8_0, 1, [512, 256]), weight(&Q8_0, 2, [512, 256])];
        for down in [weight(&Q8_0, 3, [96, 512]), weight(&F16, 3, [96, 512])] {
            for (compute, n) in
                [(Compute::Auto, 40), (Compute::Bf16, 9), (Compute::F16, 40), (Compute::F32, 40)]
            {
                let builder = CudaBackend::builder().compute(compute).cublas(false);
                let (b, estimate) = (builder.clone().build().unwrap(), Estimate::of(builder.sizes()));
                let step = |b: &dyn Backend, taken: &mut dyn FnMut()| {
                    let [gate, up] = gates.each_ref().map(|w| b.upload_weight(w).unwrap());
                    let down = b.upload_weight(&down).unwrap();
                    let x = b.upload(&numbers(3, n * 256), [n, 256].into()).unwrap();
                    taken();
                    let y = b.linear_gated(&x, &gate, &up, Activation::Silu)?;
                    b.linear(&y, &down)
                };
                let counted = estimate.activations(|| step(&estimate, &mut || ())).unwrap().peak;
                let mut before = 0;
                step(&b, &mut || before = b.memory_used().0).unwrap();
                assert_eq!(b.memory_used().1 - before, counted, "{compute:?}, {n} rows");
            }
        }
    });
}
