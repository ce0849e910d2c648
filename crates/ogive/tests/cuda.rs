//! Models on a GPU as programs open them: what they take, and what is said where that is too much. On a GPU if there is one, else under
//! the emulator.
#![cfg(feature = "cuda")]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ogive::backend::Backend;
use ogive::cuda::CudaBackend;
use ogive::engine::{Limits, Request};
use ogive::{Model, Options};
use ptx_emulator_launcher::{Error, Launcher, test, test_name};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Runs `body` on a device: here, or in a process of its own under the emulator.
fn on_device(name: &str, body: impl FnOnce()) {
    if test::case().is_some() || CudaBackend::is_available() {
        return body();
    }
    let mut launcher = Launcher::new().patience(Duration::from_secs(900)).set("PTX_EMU_CHECK", "1");
    if std::env::var_os("OGIVE_CUDA_CACHE").is_none() {
        launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    }
    if let Err(e @ Error::NoLibrary { .. }) = launcher.environment(&|_| {}) {
        return println!("skipped: {name}: {e}");
    }
    if let Some(report) = test::run(name, "cuda", &launcher) {
        print!("{}", report.ok().stdout);
    }
}

/// One of the repository's tiny models.
fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden")).join(name)
}

const MODELS: [&str; 5] = ["llama", "gemma2", "qwen3", "mixtral", "gpt2"];

/// Every token of a greedy answer to a prompt of 20.
fn answer(model: &Model, tokens: usize) -> Vec<u32> {
    let mut engine = model.engine(Limits::new(40).step_tokens(16)).unwrap();
    let prompt: Vec<u32> = (0..20).map(|i| 3 + i % 20).collect();
    let events = engine.run(Request::new(prompt, tokens)).unwrap();
    events.map(|e| e.unwrap().token.unwrap()).collect()
}

#[test]
fn an_estimate_is_what_the_device_then_takes() {
    on_device(test_name!(), || {
        for name in MODELS {
            let (path, cuda) = (golden(name), Arc::new(CudaBackend::new().unwrap()));
            let options =
                Options::new().backend(Arc::clone(&cuda) as Arc<dyn Backend>).context(40).step_tokens(16);
            let estimate = options.estimate_memory(&path).unwrap();
            let model = options.open(&path).unwrap();
            let loaded = cuda.memory_used().0;
            assert_eq!(loaded, estimate.weights, "{name}: weights");
            drop(model.session().unwrap());
            let reserved = cuda.memory_used().1 - loaded;
            assert_eq!(reserved, estimate.cache, "{name}: the cache");
            answer(&model, 12);
            let (peak, total) = (cuda.memory_used().1, estimate.total());
            println!("{name}: {peak} bytes at most, {total} estimated; {estimate}");
            // What is not counted: the step's own numbers, frequencies, parts of split attention.
            assert!(peak <= total + total / 20 + (16 << 10), "{name}: {peak} of {total}");
            assert!(total <= peak + peak / 20 + (16 << 10), "{name}: {peak} of {total}");
        }
    });
}

#[test]
fn too_little_memory_is_an_error_with_figures() {
    on_device(test_name!(), || {
        let cuda = CudaBackend::builder().memory(100 << 10).build().unwrap();
        let options = Options::new().backend(Arc::new(cuda)).context(40);
        let error = options.open(golden("llama")).unwrap_err().to_string();
        for word in ["(in all ", "weights", "cache", "needs", "are free"] {
            assert!(error.contains(word), "{word}: {error}");
        }
    });
}
