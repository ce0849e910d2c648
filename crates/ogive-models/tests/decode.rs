//! What an engine's step of decoding asks of a device: a model of the repository, drawn from token by token. Once such a step has come
//! before, it is one upload, one launch, one download and one wait.
//!
//! Counted in the emulator's trace of driver calls, between two marks that the test writes there.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod common;

use common::*;
use ogive_cuda::{Activations, Compute, CudaBackend};
use ogive_engine::sampler::{Chain, stages};
use ogive_engine::{Engine, Limits, Request};
use ogive_nn::backend::Backend;
use ogive_nn::tensor::F16;
use ptx_emulator_launcher::{Error, Launcher, test, test_name};
use std::sync::Arc;

/// What each call is for, in the order in which they come.
const UP: &str = "cuMemcpyHtoDAsync";
const STEP: &str = "cuGraphLaunch";
const DOWN: &str = "cuMemcpyDtoHAsync";
const WAIT: &str = "cuStreamSynchronize";

/// The driver's calls of one step that came before, of these requests together; `None` where there is no emulator.
fn calls(name: &str, requests: impl Fn() -> Vec<Request>) -> Option<Vec<String>> {
    if test::case().is_some() {
        let folder = own().into_iter().find(|(own, _)| own == "llama").unwrap().1;
        // What a program gets that does not choose.
        let builder = CudaBackend::builder().compute(Compute::Auto).activations(Activations::Int8);
        let cuda = Arc::new(builder.build().unwrap());
        let (b, model) = (Arc::clone(&cuda) as Arc<dyn Backend>, load(&folder, &*cuda));
        let limits = Limits::new(64).sequences(3).element(&F16);
        let mut engine = Engine::new(b, model.into(), limits).unwrap();
        let ids: Vec<_> = requests().into_iter().map(|request| engine.add(request).unwrap()).collect();
        // A prompt of 17 tokens, then contexts of up to 32: one step is run and one recorded.
        for _ in 0..5 {
            engine.step().unwrap();
        }
        let replayed = cuda.graphs().replayed;
        eprintln!("mark: begin");
        let events = engine.step().unwrap();
        eprintln!("mark: end");
        let drawn = |id| events.iter().any(|e| e.id == id && e.token.is_some());
        assert!(ids.into_iter().all(drawn), "{events:?}");
        assert_eq!(cuda.graphs().replayed, replayed + 1, "{:?}", cuda.graphs());
        return None;
    }
    let launcher = Launcher::new()
        .set("PTX_EMU_TRACE", "1")
        .set("PTX_EMU_DEVICES", "sm_80")
        .set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    if let Err(e @ Error::NoLibrary { .. }) = launcher.environment(&|_| {}) {
        println!("skipped: {name}: {e}");
        return None;
    }
    let report = test::run(name, "trace", &launcher)?.ok();
    let after = report.stderr.lines().skip_while(|line| !line.contains("mark: begin")).skip(1);
    // What takes no part: which context a thread's calls are for.
    let calls =
        after.take_while(|line| !line.contains("mark: end")).filter(|l| !l.contains("cuCtxSetCurrent"));
    Some(calls.map(str::to_owned).collect())
}

fn request(seed: u32) -> Request {
    Request::new((0..17).map(|i| 3 + (7 * i + seed) % 40).collect::<Vec<_>>(), 40)
}

/// Each call of the step, one by one, and no other; so many bytes come down.
fn is_one_launch(calls: &[String], bytes: usize) {
    println!("cuda: a step of decoding:\n{}", calls.join("\n"));
    let want = [UP, STEP, DOWN, WAIT];
    let same = calls.len() == want.len() && calls.iter().zip(want).all(|(call, want)| call.contains(want));
    assert!(same, "{want:?}, but it was\n{}", calls.join("\n"));
    assert!(calls[2].contains(&format!("bytes={bytes:x},")), "{bytes} bytes, but it was {}", calls[2]);
}

/// What comes down is a place and its value.
#[test]
fn a_greedy_token_is_one_upload_one_launch_one_download_and_one_wait() {
    let Some(calls) = calls(test_name!(), || vec![request(0)]) else { return };
    is_one_launch(&calls, 8);
}

/// Filled up to four rows.
#[test]
fn so_are_those_of_several_sequences() {
    let Some(calls) = calls(test_name!(), || (0..3).map(request).collect()) else { return };
    is_one_launch(&calls, 4 * 8);
}

#[test]
fn so_is_a_token_that_is_drawn_from_the_best() {
    let few = || Chain::new(1).then(stages::TopK::new(40));
    let Some(calls) = calls(test_name!(), || vec![request(0).chain(few())]) else { return };
    is_one_launch(&calls, 40 * 8);
}

/// The vocabulary has 131 tokens.
#[test]
fn so_is_one_that_wants_all_logits() {
    let Some(calls) = calls(test_name!(), || vec![request(0).chain(Chain::new(1))]) else { return };
    is_one_launch(&calls, 131 * 4);
}
