//! The suite every backend must pass, on each path, in both precisions, with and without the overrides.
#![allow(clippy::print_stdout)]

use ogive_backend::{Backend, Plain};
use ogive_conformance::{Options, assert_conforms};
use ogive_cpu::{CpuBackend, Path, Precision};
use std::sync::Arc;

fn check(path: Path, precision: Precision, threads: usize, plain: bool) {
    if !path.is_supported() {
        println!("skipped: this machine cannot take the path {path}");
        return;
    }
    let b = CpuBackend::builder().path(path).precision(precision).threads(threads).build().unwrap();
    let b: Arc<dyn Backend> = if plain { Arc::new(Plain(b)) } else { Arc::new(b) };
    assert_conforms(&b, &Options::new().bit_exact_batching());
}

#[test]
fn avx2_exact() {
    check(Path::Avx2, Precision::Exact, 2, false);
}

#[test]
fn avx2_default() {
    check(Path::Avx2, Precision::Default, 3, false);
}

#[test]
fn avx_vnni_default() {
    check(Path::AvxVnni, Precision::Default, 3, false);
}

#[test]
fn avx512_exact() {
    check(Path::Avx512, Precision::Exact, 2, false);
}

#[test]
fn avx512_default() {
    check(Path::Avx512, Precision::Default, 2, false);
}

#[test]
fn neon_exact() {
    check(Path::Neon, Precision::Exact, 2, false);
}

#[test]
fn neon_default() {
    check(Path::Neon, Precision::Default, 3, false);
}

#[test]
fn neon_dotprod_default() {
    check(Path::NeonDotprod, Precision::Default, 2, false);
}

#[test]
fn neon_i8mm_default() {
    check(Path::NeonI8mm, Precision::Default, 2, false);
}

#[test]
fn amx_default() {
    check(Path::Amx, Precision::Default, 2, false);
}

#[test]
fn scalar_exact() {
    check(Path::Scalar, Precision::Exact, 1, false);
}

#[test]
fn scalar_default() {
    check(Path::Scalar, Precision::Default, 2, false);
}

/// Weights change their form under way, at a time that is another in each run.
#[test]
fn laid_in_the_background() {
    let b = CpuBackend::builder().threads(2).background(true).build().unwrap();
    assert_conforms(&(Arc::new(b) as Arc<dyn Backend>), &Options::new().bit_exact_batching());
}

#[test]
fn definitions_on_this_machine() {
    check(Path::choose().unwrap(), Precision::Default, 2, true);
}
