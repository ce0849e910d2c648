//! cuBLAS for products of many rows: when it is loaded, what happens where it is missing, and that its products are the operators'.
#![allow(clippy::print_stdout)]

mod common;

use ogive_backend::Backend;
use ogive_backend::tensor::{HostWeight, Q8_0};
use ogive_conformance::{Options, Status, cases};
use ogive_cuda::{Builder, Compute, CublasUse, CudaBackend};
use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn numbers(salt: usize, n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

/// `n` rows times a weight of `[out, cols]` in q8_0.
fn product(b: &CudaBackend, [n, out, cols]: [usize; 3]) -> Vec<f32> {
    let mut bytes = vec![0; out * Q8_0.row_bytes(cols)];
    Q8_0.encode_row(&numbers(1, out * cols), &mut bytes).unwrap();
    let w = HostWeight::new("w", [1, out, cols], &Q8_0, bytes.into()).unwrap();
    let (w, x) = (b.upload_weight(&w).unwrap(), b.upload(&numbers(2, n * cols), [n, cols].into()).unwrap());
    b.download(&b.linear(&x, &w).unwrap()).unwrap()
}

fn close(got: &[f32], want: &[f32], bound: f32) {
    let size = want.iter().fold(0f32, |m, v| m.max(v.abs()));
    let worst = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(got.len() == want.len() && worst <= bound * size, "off by {worst:e} of {size:e}");
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn build(set: impl FnOnce(Builder) -> Builder) -> CudaBackend {
    set(CudaBackend::builder().compute(Compute::Bf16)).build().unwrap()
}

/// Loaded by the first product that has rows enough by the device's table, and by no other.
#[test]
fn it_is_loaded_when_it_is_wanted() {
    common::on_kind(test_name!(), Nvrtc::V12, Some("sm_80"), || {
        let (exact, off) = (CudaBackend::new().unwrap(), build(|b| b.cublas(false)));
        for b in [&exact, &off] {
            product(b, [300, 20, 64]);
            assert_eq!(b.cublas(), CublasUse::Off);
        }
        let b = build(|b| b);
        product(&b, [95, 20, 64]);
        assert_eq!(b.cublas(), CublasUse::Unasked);
        let first = product(&b, [512, 20, 64]);
        let state = b.cublas();
        println!("cuda: {state}");
        match state {
            // Of one generation with the compiler, so that a build for that one alone may load it.
            CublasUse::Started { version, .. } => assert!(test::case().is_none() || version[..2] == [12, 9]),
            CublasUse::Failed(_) => assert!(test::case().is_none(), "{state}"),
            _ => panic!("{state}"),
        }
        assert_eq!(bits(&first), bits(&product(&b, [512, 20, 64])));
        close(&first, &product(&off, [512, 20, 64]), 1e-4);
        assert_eq!(b.memory_used().0, 0);
    });
}

/// A weight that is more than the device's own slab holds.
#[test]
fn a_weight_goes_through_in_slabs() {
    common::on_kind(test_name!(), Nvrtc::V11, Some("sm_75"), || {
        let set = |b: Builder| b.compute(Compute::F16).cublas_from(2);
        let (b, own) = (build(set), build(|b| set(b).cublas(false)));
        // Of a GPU's own slab the most is 128 MiB; the emulator's device has the least.
        let sizes = [2, if test::case().is_some() { 300 } else { 5000 }, 16384];
        close(&product(&b, sizes), &product(&own, sizes), 1e-4);
        println!("cuda: {}", b.cublas());
    });
}

/// The suite's products, with the bounds of numbers rounded to bf16 for every format.
fn conforms(part: usize) {
    let b: Arc<dyn Backend> = Arc::new(build(|b| b.cublas_from(2)));
    let options = ["linear/", "linear_many/", "linear_gated/", "refused", "foreign-handles"];
    let options = options.into_iter().fold(Options::new(), Options::filter);
    // A product of bf16 numbers is off by 2^-7 of its terms at most, and a gate multiplies two of them.
    let options = options.exact_weights(false).rounded(1e-4, 1e-4).exact(3e-2).largest(7_000_000);
    let (mut count, mut failed) = (0, Vec::new());
    let wanted = |name: &str| options.filter.iter().any(|part| name.contains(part.as_str()));
    for case in cases(&options).iter().filter(|case| wanted(case.name())).skip(part).step_by(2) {
        let outcome = case.run(&b, &options);
        count += 1;
        if !matches!(outcome.status, Status::Passed | Status::Skipped(_)) {
            failed.push(format!("{}: {:?}", outcome.name, outcome.status));
        }
    }
    println!("cuda: {count} cases by cuBLAS");
    assert!(count > 10 && failed.is_empty(), "of {count}:\n{}", failed.join("\n"));
}

#[test]
fn products_conform() {
    common::on_device(test_name!(), Nvrtc::V12, || conforms(0));
}

#[test]
fn other_products_conform() {
    common::on_device(test_name!(), Nvrtc::V13, || conforms(1));
}

/// In the process of a case: what is computed where the library is not what it should be.
fn without(wanted: &str) {
    let (b, own) = (build(|b| b.cublas_from(2)), build(|b| b.cublas(false)));
    let sizes = [40, 50, 96];
    let got = product(&b, sizes);
    match b.cublas() {
        CublasUse::Failed(why) => assert!(why.contains(wanted), "{why}"),
        other => return println!("skipped: this machine has one: {other}"),
    }
    assert_eq!(bits(&got), bits(&product(&own, sizes)));
    println!("cuda: {}", b.cublas());
}

/// The file under another name.
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(from, to);
    #[cfg(not(unix))]
    std::fs::copy(from, to).map(|_| ())
}

/// Runs the case where the loader finds this file as cuBLAS, or none at all.
fn with_file(name: &str, wanted: &str, file: Option<&str>) {
    if test::case().is_some() {
        println!();
        return without(wanted);
    }
    if CudaBackend::is_available() {
        return println!("skipped: {name}: for the emulator only");
    }
    let launcher = Launcher::new().patience(Duration::from_secs(300));
    let Some(environment) = test::unless_excused(name, launcher.environment(&|_| {})) else { return };
    let home = tempfile::tempdir().unwrap();
    let mut launcher = launcher;
    if let Some((variable, path)) = environment.iter().find(|(name, _)| name == "LD_LIBRARY_PATH") {
        let all: Vec<_> = std::env::split_paths(path).collect();
        let give = |from: &Path, name: &str| {
            link(&std::fs::canonicalize(from).unwrap(), &home.path().join(name)).unwrap();
        };
        for name in ["libcuda.so.1", "libnvrtc.so"] {
            give(&all[0].join(name), name);
        }
        if let Some(file) = file {
            give(&all[0].join(file), "libcublas.so.12");
        }
        let rest = std::iter::once(home.path().to_owned()).chain(all.into_iter().skip(1));
        launcher = launcher.set(variable, std::env::join_paths(rest).unwrap());
    }
    for variable in ["HOME", "VIRTUAL_ENV", "CONDA_PREFIX"] {
        launcher = launcher.set(variable, home.path());
    }
    launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    if let Some(report) = test::run(name, "without cuBLAS", &launcher) {
        let report = report.ok();
        report.stdout.lines().filter(|l| l.contains(':')).for_each(|l| println!("{l}"));
    }
}

#[test]
fn without_a_library() {
    with_file("without_a_library", "libcublas.so not found", None);
}

#[test]
fn with_a_library_that_is_another() {
    with_file("with_a_library_that_is_another", "is no cuBLAS of CUDA 11 or newer", Some("libnvrtc.so"));
}
