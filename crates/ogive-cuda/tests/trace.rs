//! Kernels that note when they ran: the same bits, and every launch in the timeline, recorded and not. Times mean nothing under the emulator
//! but for their order.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/llama.rs"]
mod llama;

use llama::{DIM, Model};
use ogive_backend::Backend;
use ogive_backend::tensor::{Error, Q4_K, Result, Tensor};
use ogive_cuda::measure::{Launch, Timeline};
use ogive_cuda::{Activations, Builder, Compute, CudaBackend};
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::collections::BTreeSet;
use std::time::Duration;

/// Steps of three sequences, from an empty cache, and what was noted of each.
fn steps(builder: &Builder) -> (Vec<Vec<u32>>, Vec<Timeline>, u64) {
    let b = builder.clone().build().unwrap();
    let model = Model::new(&b, 0).unwrap();
    let step = |past: usize| {
        let tokens: Vec<u32> = (0..3).map(|i| (past as u32 * 13 + i * 29) % DIM as u32).collect();
        let (y, timeline): (Tensor, Timeline) =
            b.trace(|| model.replayed(&b, 1, Model::batch(&tokens, past))).unwrap();
        (b.download(&y).unwrap().into_iter().map(f32::to_bits).collect(), timeline)
    };
    let (bits, timelines) = (0..12).map(step).unzip();
    (bits, timelines, b.graphs().replayed)
}

fn names(t: &Timeline) -> Vec<(&str, &str, &str)> {
    t.launches.iter().map(|l| (&*l.operator, l.kernel, &*l.defines)).collect()
}

fn in_order(t: &Timeline, overlap: bool) {
    for l in &t.launches {
        assert!(l.end >= l.start, "{l:?}");
    }
    // On one stream none begins before the one before is done.
    let apart = |pair: &[Launch]| matches!(pair, [a, b] if b.start >= a.end);
    assert!(overlap || t.launches.windows(2).all(apart), "{t:#?}");
    assert!(t.tick > Duration::ZERO && t.missed == 0, "{t:?}");
    let all = t.kernels();
    assert_eq!(all.iter().map(|k| k.time + k.gap).sum::<Duration>(), t.whole());
    assert_eq!(all.iter().map(|k| k.calls).sum::<usize>(), t.launches.len());
}

fn the_same_bits(name: &str, nvrtc: Nvrtc, kind: &str, overlap: bool) {
    common::on_kind(name, nvrtc, Some(kind), || {
        // Whether the device has it decides on overlap, not this.
        let plain = CudaBackend::builder().compute(Compute::Auto);
        let (want, none, _) = steps(&plain);
        assert!(none.iter().all(|t| *t == Timeline::default()));
        for overlap in BTreeSet::from([false, overlap]) {
            let traced = plain.clone().trace(true).overlap(overlap);
            let (got, recorded, replayed) = steps(&traced);
            assert!(got == want && replayed > 5, "overlap {overlap}: {replayed} replayed");
            let (got, eager, _) = steps(&traced.graphs(false));
            assert!(got == want, "overlap {overlap}");
            recorded.iter().chain(&eager).for_each(|t| in_order(t, overlap));
            // What a graph runs is what its step would, in that order.
            let all = recorded.iter().zip(&eager).all(|(a, b)| overlap || names(a) == names(b));
            assert!(all, "{:#?}", recorded.iter().map(names).collect::<Vec<_>>());
            let found = names(&eager[11]);
            for wanted in ["embed", "rope_store", "rms_norm", "add_rms_norm", "outputs"] {
                assert!(found.iter().any(|(_, kernel, _)| *kernel == wanted), "{wanted}: {found:?}");
            }
            assert!(found.iter().any(|(at, _, defines)| *at == "linear" && !defines.is_empty()), "{found:?}");
        }
    });
}

#[test]
fn the_same_bits_nvrtc_11() {
    the_same_bits(test_name!(), Nvrtc::V11, "sm_75", false);
}

#[test]
fn the_same_bits_nvrtc_12() {
    the_same_bits(test_name!(), Nvrtc::V12, "sm_90", true);
}

#[test]
fn the_same_bits_nvrtc_13() {
    the_same_bits(test_name!(), Nvrtc::V13, "sm_80", false);
}

/// Slots that launches had are given again, and an error in what is traced is its own.
#[test]
fn a_trace_after_another() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::builder().activations(Activations::Int8).trace(true).build().unwrap();
        let model = Model::packed(&b, 0, &Q4_K);
        assert!(model.is_err(), "rows of 64 are no whole blocks");
        let x = b.upload(&[1.0, 2.0], [1, 2].into()).unwrap();
        for calls in [3, 1, 2] {
            let (y, t) = b.trace(|| (0..calls).map(|_| b.sum(&x)).collect::<Result<Vec<Tensor>>>()).unwrap();
            let ran: Vec<_> = names(&t).into_iter().map(|(at, kernel, _)| (at, kernel)).collect();
            assert_eq!(ran, vec![("sum", "sum"); calls]);
            assert_eq!(b.download(&y[0]).unwrap(), [3.0]);
        }
        let failed: Result<((), Timeline)> = b.trace(|| Err(Error::invalid("here", "no")));
        assert!(failed.unwrap_err().to_string().contains("here"));
        let (_, t) = b.trace(|| Ok::<_, Error>(())).unwrap();
        assert_eq!(t, Timeline::default());
    });
}
