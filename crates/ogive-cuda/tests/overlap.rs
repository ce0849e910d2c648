//! Kernels that are launched before the one before is done: the same bits, no races, recorded and not.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/llama.rs"]
mod llama;

use llama::{DIM, Model};
use ogive_backend::Backend;
use ogive_conformance::{Options, assert_conforms};
use ogive_cuda::{Builder, Compute, CudaBackend};
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::sync::Arc;

/// Steps of three sequences, from an empty cache.
fn steps(builder: &Builder) -> (Vec<Vec<u32>>, u64) {
    let b = builder.clone().build().unwrap();
    let model = Model::new(&b, 0).unwrap();
    let step = |past: usize| {
        let tokens: Vec<u32> = (0..3).map(|i| (past as u32 * 13 + i * 29) % DIM as u32).collect();
        let y = model.replayed(&b, 1, Model::batch(&tokens, past)).unwrap();
        b.download(&y).unwrap().into_iter().map(f32::to_bits).collect()
    };
    ((0..12).map(step).collect(), b.graphs().replayed)
}

fn the_same_bits(name: &str, nvrtc: Nvrtc) {
    common::on_kind(name, nvrtc, Some("sm_90"), || {
        for compute in [Compute::F32, Compute::Bf16] {
            let plain = CudaBackend::builder().compute(compute);
            let (want, _) = steps(&plain);
            let (got, replayed) = steps(&plain.clone().overlap(true));
            assert!(got == want && replayed > 5, "{compute:?}: {replayed} replayed");
            assert_eq!(steps(&plain.overlap(true).graphs(false)).0, want, "{compute:?}");
        }
    });
}

#[test]
fn the_same_bits_nvrtc_11() {
    the_same_bits(test_name!(), Nvrtc::V11);
}

#[test]
fn the_same_bits_nvrtc_12() {
    the_same_bits(test_name!(), Nvrtc::V12);
}

#[test]
fn the_same_bits_nvrtc_13() {
    the_same_bits(test_name!(), Nvrtc::V13);
}

/// A norm's factors that a kernel just made are waited for, though those that were sent are read before (`ops/norm.rs`).
#[test]
fn factors_of_a_kernel_are_waited_for() {
    common::on_kind(test_name!(), Nvrtc::V12, Some("sm_90"), || {
        let norms = |b: &CudaBackend| -> Vec<f32> {
            let up = |values: Vec<f32>| b.upload(&values, [1, values.len()].into()).unwrap();
            let numbers = |step: f32| up((0..600).map(|i| 0.5 + step * i as f32).collect());
            let x = numbers(0.01);
            let sent = b.rms_norm(&x, &numbers(0.02), 1e-6).unwrap();
            let made = b.add(numbers(0.03), &sent).unwrap();
            let y = b.rms_norm(&x, &made, 1e-6).unwrap();
            // What was sent and then overwritten in its place is a kernel's too.
            let made = b.mul(numbers(0.04), &y).unwrap();
            let (sum, y) = b.add_rms_norm(y, &x, &made, 1e-6).unwrap();
            let made = b.add(y, &x).unwrap();
            let y = b.layer_norm(&sum, &numbers(0.05), Some(&made), 1e-6).unwrap();
            b.download(&y).unwrap()
        };
        let overlapping = CudaBackend::builder().overlap(true).build().unwrap();
        assert_eq!(norms(&overlapping), norms(&CudaBackend::new().unwrap()));
    });
}

#[test]
fn operators_conform() {
    common::on_kind(test_name!(), Nvrtc::V12, Some("sm_90"), || {
        let b: Arc<dyn Backend> = Arc::new(CudaBackend::builder().overlap(true).build().unwrap());
        for part in [
            "attend_cache/causal",
            "linear/q4_k",
            "linear_gated/q6_k",
            "rope_attend",
            "rms_norm",
            "moe/q2_k",
            "causal_conv",
            "selective_scan",
            "linear_attention",
            "replay",
            "best",
        ] {
            assert_conforms(&b, &Options::new().filter(part));
        }
    });
}
