//! The suite every backend must pass: on a GPU if there is one, else under the emulator, with each generation of NVRTC.
//!
//! `OGIVE_CUDA_FILTER=linear/,attend/` runs only cases whose names contain one of these.
#![allow(clippy::print_stdout)]

mod common;

use ogive_backend::Backend;
use ogive_conformance::{Options, Status, cases};
use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::sync::Arc;

/// The suite is cut into so many parts, so that several cores share it and none takes long.
const PARTS: usize = 4;

fn options() -> Options {
    let filter = std::env::var("OGIVE_CUDA_FILTER").unwrap_or_default();
    filter.split(',').filter(|part| !part.is_empty()).fold(Options::new(), Options::filter)
}

fn wanted(options: &Options, name: &str) -> bool {
    options.filter.is_empty() || options.filter.iter().any(|part| name.contains(part.as_str()))
}

/// Runs every case whose number is `part` modulo the parts.
fn conforms(part: usize) {
    let backend = CudaBackend::new().unwrap();
    println!("cuda: {}", backend.facts().description);
    let (backend, options): (Arc<dyn Backend>, _) = (Arc::new(backend), options());
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for case in cases(&options).iter().skip(part).step_by(PARTS).filter(|case| wanted(&options, case.name()))
    {
        let outcome = case.run(&backend, &options);
        match outcome.status {
            Status::Passed => passed += 1,
            Status::Skipped(_) => skipped += 1,
            other => failed.push(format!("{}: {other:?}", outcome.name)),
        }
    }
    println!("cuda: part {part}: {passed} cases passed, {} failed, {skipped} skipped", failed.len());
    assert!(failed.is_empty(), "the backend does not conform\n{}", failed.join("\n"));
}

macro_rules! parts {
    ($($name:ident: $nvrtc:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn part_0() {
                common::on_device(test_name!(), $nvrtc, || conforms(0));
            }
            #[test]
            fn part_1() {
                common::on_device(test_name!(), $nvrtc, || conforms(1));
            }
            #[test]
            fn part_2() {
                common::on_device(test_name!(), $nvrtc, || conforms(2));
            }
            #[test]
            fn part_3() {
                common::on_device(test_name!(), $nvrtc, || conforms(3));
            }
        })*
    };
}

parts! {
    nvrtc_11: Nvrtc::V11;
    nvrtc_12: Nvrtc::V12;
    nvrtc_13: Nvrtc::V13;
}
