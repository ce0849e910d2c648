//! The suite every backend must pass: on a GPU if there is one, else under the emulator, with each generation of NVRTC.
//!
//! `OGIVE_CUDA_FILTER=linear/,attend/` runs only cases whose names contain one of these.
#![allow(clippy::print_stdout)]

mod common;

use ogive_backend::Backend;
use ogive_conformance::{Options, run};
use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::sync::Arc;

fn options() -> Options {
    let filter = std::env::var("OGIVE_CUDA_FILTER").unwrap_or_default();
    filter.split(',').filter(|part| !part.is_empty()).fold(Options::new(), Options::filter)
}

fn conforms() {
    let backend = CudaBackend::new().unwrap();
    println!("cuda: using {}", backend.facts().description);
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let report = run(&backend, &options());
    let last = report.to_string().lines().last().unwrap_or_default().to_owned();
    println!("{last}");
    assert!(report.passed(), "the backend does not conform\n{report}");
}

#[test]
fn nvrtc_11() {
    common::on_device(test_name!(), Nvrtc::V11, conforms);
}

#[test]
fn nvrtc_12() {
    common::on_device(test_name!(), Nvrtc::V12, conforms);
}

#[test]
fn nvrtc_13() {
    common::on_device(test_name!(), Nvrtc::V13, conforms);
}
