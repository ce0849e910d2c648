//! Models over several machines: what each takes, as it was estimated, with steps that are recorded in pieces. On GPUs if there are any, else
//! under the emulator.
#![cfg(all(feature = "cuda", feature = "cpu"))]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ogive::backend::{Backend, Split};
use ogive::cuda::{Compute, CudaBackend};
use ogive::engine::{Limits, Request};
use ogive::nn::is_head;
use ogive::{Device, GpuLayers, Memory, Model, Options};
use ptx_emulator_launcher::{Launcher, test, test_name};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Runs `body` where there is a device: here, or in a process of its own under the emulator.
fn on_device(name: &str, body: impl FnOnce()) {
    if test::case().is_some() || CudaBackend::is_available() {
        return body();
    }
    let mut launcher = Launcher::new().patience(Duration::from_secs(900)).set("PTX_EMU_CHECK", "1");
    launcher = launcher.set("PTX_EMU_DEVICES", "sm_80,sm_80");
    if std::env::var_os("OGIVE_CUDA_CACHE").is_none() {
        launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    }
    if let Some(report) = test::run(name, "cuda", &launcher) {
        print!("{}", report.ok().stdout);
    }
}

/// One of the repository's tiny models.
fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden")).join(name)
}

/// Models, their layers, and whether the table of tokens is the head.
const MODELS: [(&str, usize, bool); 29] = [
    ("llama", 2, false),
    ("gemma2", 2, true),
    ("qwen3", 3, false),
    ("mixtral", 2, false),
    ("deepseek-v3", 2, false),
    ("qwen3-5-moe", 3, false),
    ("granite-hybrid", 3, true),
    ("nemotron-h", 5, false),
    ("falcon-h1", 2, false),
    ("nemotron-h-moe", 4, false),
    ("mamba2", 2, false),
    ("falcon-mamba", 2, false),
    ("lfm2-moe-bias", 3, false),
    ("gpt2", 2, true),
    ("glm4-moe", 2, false),
    ("minimax-m2", 2, false),
    ("exaone4-window", 3, true),
    ("command-r-norm", 2, false),
    ("apertus", 2, false),
    ("hunyuan-moe", 2, false),
    ("llama4-chunks", 4, true),
    ("gemma4-moe", 3, true),
    ("gemma4-shared", 6, true),
    ("gemma3n", 5, true),
    ("gptneox", 2, false),
    ("jamba", 3, false),
    ("bamba", 3, false),
    ("dots1-window", 3, true),
    ("phimoe", 2, false),
];

/// The first layer on the first part, the others on the second.
fn split(parts: [Arc<dyn Backend>; 2], layers: usize, tied: bool) -> Arc<Split> {
    let homes = (0..layers).map(|i| i.min(1)).collect();
    let table = |name: &str| ["embed", "wte", "wpe"].iter().any(|part| name.contains(part));
    let first = move |name: &str| table(name) && !is_head(name);
    let place = move |name: &str| if first(name) && !tied { 0 } else { 1 };
    Arc::new(Split::new(parts.into(), homes, place).unwrap())
}

/// Every token of a greedy answer to a prompt of 20.
fn answer(model: &Model, tokens: usize) -> Vec<u32> {
    let mut engine = model.engine(Limits::new(40).step_tokens(16)).unwrap();
    let prompt: Vec<u32> = (0..20).map(|i| 3 + i % 20).collect();
    let events = engine.run(Request::new(prompt, tokens)).unwrap();
    events.map(|e| e.unwrap().token.unwrap()).collect()
}

fn options() -> Options {
    Options::new().context(40).step_tokens(16)
}

/// Holds the estimate of each device against what it then takes.
fn estimated(compute: Compute) {
    let cuda = || Arc::new(CudaBackend::builder().compute(compute).cublas(false).build().unwrap());
    let cpu = options().device(Device::Cpu).open(golden("llama")).unwrap().backend().clone();
    for (name, layers, tied) in MODELS {
        for host in [true, false] {
            let (first, second) = (cuda(), cuda());
            let part = if host { Arc::clone(&cpu) } else { Arc::clone(&first) as Arc<dyn Backend> };
            let both = split([part, Arc::clone(&second) as Arc<dyn Backend>], layers, tied);
            let options = options().backend(both);
            let (path, devices) = (golden(name), [first, second]);
            let parts = options.estimate_parts(&path).unwrap();
            let sum = options.estimate_memory(&path).unwrap();
            assert_eq!(parts.iter().map(Memory::total).sum::<u64>(), sum.total(), "{name}");
            let model = options.open(&path).unwrap();
            assert_eq!(answer(&model, 12).len(), 12);
            for (device, part) in devices.iter().zip(&parts).skip(usize::from(host)) {
                let (peak, total) = (device.memory_used().1, part.total());
                println!("{name}: {peak} bytes at most, {total} estimated; {part:?}");
                assert!(device.graphs().replayed > 5, "{name}: {:?}", device.graphs());
                // What is not counted: the step's own numbers, frequencies, parts of split attention.
                let most = (total - part.weights) / 20 + (8 << 10);
                assert!(peak <= total + most, "{name}: {peak} of {total}");
                // What recorded steps keep comes after the prompt, whose step may have taken the most.
                let most = most.max(part.graphs + (8 << 10));
                assert!(total <= peak + most, "{name}: {peak} of {total}");
            }
        }
    }
}

#[test]
fn an_estimate_is_what_each_part_then_takes() {
    on_device(test_name!(), || estimated(Compute::F32));
}

/// In bf16 products take memory beside their results, on each device.
#[test]
fn an_estimate_counts_what_products_of_each_part_take() {
    on_device(test_name!(), || estimated(Compute::Bf16));
}

/// Drawn tokens of a model whose steps are replayed in pieces, with copies from device to device, are those of one whose steps are not,
/// and go through the host.
#[test]
fn replayed_pieces_give_the_tokens_of_steps_that_are_run() {
    on_device(test_name!(), || {
        let cpu = options().device(Device::Cpu).exact(true).open(golden("llama")).unwrap().backend().clone();
        for (name, layers, tied) in MODELS {
            let run = |graphs: bool, host: bool| {
                let cuda = |number| {
                    let builder = CudaBackend::builder().device(number).graphs(graphs);
                    Arc::new(builder.peer_copies(graphs).build().unwrap())
                };
                let last = CudaBackend::devices().unwrap().len().min(2) - 1;
                let (first, second) = (cuda(0), cuda(last));
                let part = if host { Arc::clone(&cpu) } else { first as Arc<dyn Backend> };
                let both = split([part, Arc::clone(&second) as Arc<dyn Backend>], layers, tied);
                let model = options().backend(both).open(golden(name)).unwrap();
                let drawn = answer(&model, 19);
                assert_eq!(second.graphs().replayed > 9, graphs, "{name}: {:?}", second.graphs());
                drawn
            };
            for host in [true, false] {
                assert_eq!(run(true, host), run(false, host), "{name}");
            }
        }
    });
}

#[test]
fn options_say_what_each_part_takes() {
    on_device(test_name!(), || {
        let cuda = options().device(Device::Cuda(0));
        for (name, ..) in MODELS {
            let whole = cuda.estimate_memory(golden(name)).unwrap();
            assert_eq!(cuda.estimate_parts(golden(name)).unwrap(), [whole]);
            let parts = cuda.clone().gpu_layers(GpuLayers::Count(1)).estimate_parts(golden(name)).unwrap();
            let [host, gpu] = parts[..] else { panic!("{name}: {parts:?}") };
            // The table of tokens is on the GPU if it is the head.
            assert!(gpu.weights < whole.weights && gpu.cache < whole.cache, "{name}: {parts:?}");
            assert!(host.weights > 0 && host.working > 0 && host.graphs == 0, "{name}: {parts:?}");
            assert!(gpu.working > 0 && gpu.graphs > 0, "{name}: {parts:?}");
            let shared = host.cache + gpu.cache;
            assert!(
                shared >= whole.cache - whole.cache / 8 && shared <= whole.cache + 8192,
                "{name}: {parts:?}"
            );
            let none = cuda.clone().gpu_layers(GpuLayers::Count(0)).estimate_parts(golden(name)).unwrap();
            assert!(none.len() == 1 && none[0].graphs == 0, "{none:?}");
        }
    });
}
