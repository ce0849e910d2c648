//! The same models on the CUDA backend: on a GPU if there is one, else under the emulator, which checks every access.
#![allow(clippy::print_stdout)]

mod common;

use common::*;
use ogive_cuda::CudaBackend;
use ogive_engine::{Engine, Limits, Request};
use ogive_nn::backend::Backend;
use ogive_nn::tensor::F16;
use ptx_emulator_launcher::{Error, Launcher, test, test_name};
use std::sync::Arc;
use std::time::Duration;

/// Runs `body` on a device: here, or in a process of its own under the emulator.
fn on_device(name: &str, body: impl FnOnce()) {
    if test::case().is_some() || CudaBackend::is_available() {
        return body();
    }
    let mut launcher = Launcher::new().patience(Duration::from_secs(900));
    if std::env::var_os("PTX_EMU_CHECK").is_none() {
        launcher = launcher.set("PTX_EMU_CHECK", "races");
    }
    if std::env::var_os("OGIVE_CUDA_CACHE").is_none() {
        // Not among the user's own.
        launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    }
    if let Err(e @ Error::NoLibrary { .. }) = launcher.environment(&|_| {}) {
        return println!("skipped: {name}: {e}");
    }
    if let Some(report) = test::run(name, "cuda", &launcher) {
        print!("{}", report.ok().stdout);
    }
}

#[test]
fn logits_are_those_of_the_reference() {
    let Some(shared) = shared() else { return };
    on_device(test_name!(), || {
        let (b, mut failed) = (CudaBackend::new().unwrap(), Vec::new());
        for (arch, tolerance) in ARCHITECTURES {
            let folder = shared.join("golden").join(arch);
            for (case, ids, want) in cases(&folder) {
                let error = worst(&logits(&folder, &b, &ids), &want);
                println!("{arch:20} {case:8} {error:.1e}");
                if error.is_nan() || error > tolerance {
                    failed.push(format!("{arch}, {case}: {error:.1e} of {tolerance:.0e}"));
                }
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
}

/// Odd sizes, short windows and every stretching of rotary positions.
#[test]
fn logits_of_the_repositorys_models_are_those_of_transformers() {
    on_device(test_name!(), || {
        let (b, mut failed) = (CudaBackend::new().unwrap(), Vec::new());
        for (name, folder) in own() {
            for (case, ids, want) in cases(&folder) {
                let error = worst(&logits(&folder, &b, &ids), &want);
                println!("{name:20} {case:8} {error:.1e}");
                if error.is_nan() || error > 5e-5 {
                    failed.push(format!("{name}, {case}: {error:.1e}"));
                }
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
}

/// Attention without a mask, over keys that are in no cache.
#[test]
fn hidden_states_of_encoders_are_those_of_transformers() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        for (name, folder) in encoders() {
            for (case, ids, want) in cases_of(&folder, "hidden") {
                let error = worst(&hidden(&folder, &b, &ids), &want);
                println!("{name:20} {case:8} {error:.1e}");
                assert!(error < 5e-5, "{name}, {case}: {error:.1e}");
            }
        }
    });
}

#[test]
fn packed_weights_give_the_logits_of_their_decoded_values() {
    let Some(shared) = shared() else { return };
    on_device(test_name!(), || {
        let (b, mut failed) = (CudaBackend::new().unwrap(), Vec::new());
        for (file, arch) in packed_files(&shared) {
            let (_, ids, _) = cases(&shared.join("golden").join(arch)).remove(0);
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let want = npy(&file.with_file_name(format!("{name}.deq_logits.npy")));
            let error = worst(&logits(&file, &b, &ids), &want);
            println!("{name:24} {error:.1e}");
            if error.is_nan() || error > decoded_tolerance(arch) {
                failed.push(format!("{name}: off by {error:.1e}"));
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
}

/// Formats that two ways of packing become, Q4_0 and Q5_0.
#[test]
fn packed_checkpoints_give_the_logits_of_their_decoded_values() {
    let Some(shared) = shared() else { return };
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        for (name, folder) in packed_folders(&shared) {
            for (case, ids, want) in cases(&folder) {
                let error = worst(&logits(&folder, &b, &ids), &want);
                println!("{name:28} {case:8} {error:.1e}");
                assert!(error < 5e-5, "{name}, {case}: {error:.1e}");
            }
        }
    });
}

/// A trained model tells its story, token by token, with a cache of halves.
#[test]
fn stories_are_those_of_the_cpu() {
    let Some(shared) = shared() else { return };
    on_device(test_name!(), || {
        let tell = |b: Arc<dyn Backend>| {
            let file = shared.join("models/stories260K/stories260K-q8_0.gguf");
            let model = load(&file, &*b);
            let mut engine = Engine::new(b, model.into(), Limits::new(128).element(&F16)).unwrap();
            let prompts = [&[1, 403, 407][..], &[1]];
            let mut all = Vec::new();
            for prompt in prompts {
                let events = engine.run(Request::new(prompt, 40)).unwrap();
                all.push(events.map(|e| e.unwrap().token.unwrap()).collect::<Vec<u32>>());
            }
            all
        };
        let cuda = Arc::new(CudaBackend::new().unwrap());
        let got = tell(Arc::clone(&cuda) as Arc<dyn Backend>);
        // All but the first two of a kind of step are one launch each.
        let counts = cuda.graphs();
        assert!(counts.replayed > counts.eager, "{counts:?}");
        assert_eq!(got, tell(Arc::new(exact())));
        println!("{} tokens agree", got.iter().map(Vec::len).sum::<usize>());
    });
}
