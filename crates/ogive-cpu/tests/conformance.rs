//! The suite every backend must pass, on each path, in all precisions, with and without the overrides.
#![allow(clippy::print_stdout)]

use ogive_backend::tensor::{BF16, F16, F32, IQ3_S, Q4_K, Q8_0};
use ogive_backend::{Backend, Plain};
use ogive_conformance::{Options, Status, assert_conforms, cases};
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

/// The suite's bounds where F32 and F16 weights, and the activations that meet them, are rounded to bf16. The largest errors that were
/// measured are 1.3e-2 of a product, 5.5e-2 of a mixture, for which the suite allows six times as much, and 3.1e-2 of steps, for which it
/// allows twenty times. It has bounds of its own for products of BF16 and packed weights, and nothing else is rounded.
fn in_bf16(options: Options, name: &str) -> Options {
    let words: Vec<&str> = name.split(['/', '-']).collect();
    let dense = words.contains(&"f32") || words.contains(&"f16");
    // Cases that name no format are mostly of F32.
    let other = words.contains(&"stranger") || options.formats.iter().any(|f| words.contains(&f.name));
    match words[0] {
        "embed" if dense => options.moved(2f32.powi(-8)),
        "replay" => options.exact(3e-3),
        _ if !name.contains("linear") && !name.contains("moe") => options,
        _ if dense || !other => options.exact(2e-2),
        _ => options,
    }
}

fn check_bf16(path: Path, repack: bool) {
    if !path.is_supported() {
        println!("skipped: this machine cannot take the path {path}");
        return;
    }
    let b = CpuBackend::builder().path(path).precision(Precision::Bf16).threads(2).repack(repack);
    let b: Arc<dyn Backend> = Arc::new(b.build().unwrap());
    // Packed weights are multiplied as in the default precision: a few stand for all.
    let options = Options::new().formats(vec![&F32, &F16, &BF16, &Q8_0, &Q4_K, &IQ3_S]).bit_exact_batching();
    let mut failed = Vec::new();
    for case in cases(&options) {
        let outcome = case.run(&b, &in_bf16(options.clone(), case.name()));
        if !matches!(outcome.status, Status::Passed) {
            failed.push(format!("{}: {:?}", outcome.name, outcome.status));
        }
    }
    assert!(failed.is_empty(), "the backend does not conform\n{}", failed.join("\n"));
}

/// Its bounds are wider where something is rounded, and nobody would notice if nothing were: with the usual ones such cases fail.
#[test]
fn bf16_is_rounded_where_it_is_said() {
    let b = CpuBackend::builder().precision(Precision::Bf16).threads(2);
    let b: Arc<dyn Backend> = Arc::new(b.build().unwrap());
    let options = Options::new();
    for name in ["linear/f32", "linear_gated/f16", "moe/f32", "embed/f16", "replay/decoding"] {
        let case = cases(&options).into_iter().find(|case| case.name() == name).unwrap();
        assert!(matches!(case.run(&b, &options).status, Status::Failed(_)), "{name}");
    }
}

#[test]
fn scalar_bf16() {
    check_bf16(Path::Scalar, true);
}

#[test]
fn avx2_bf16() {
    check_bf16(Path::Avx2, true);
}

#[test]
fn avx_vnni_bf16() {
    check_bf16(Path::AvxVnni, true);
}

#[test]
fn avx512_bf16() {
    check_bf16(Path::Avx512, true);
}

/// BF16 is made singles there, as on AVX2; in strips, AMD's processors multiply pairs of it.
#[test]
fn avx512_bf16_as_stored() {
    check_bf16(Path::Avx512, false);
}

#[test]
fn amx_bf16() {
    check_bf16(Path::Amx, true);
}

#[test]
fn neon_bf16() {
    check_bf16(Path::Neon, true);
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
