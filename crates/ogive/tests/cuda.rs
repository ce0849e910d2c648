//! Models on a GPU as programs open them: what they take, and what is said where that is too much. On a GPU if there is one, else under
//! the emulator.
#![cfg(feature = "cuda")]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ogive::backend::Backend;
use ogive::cuda::{Builder, Compute, CudaBackend};
use ogive::engine::{Limits, Request};
use ogive::{Device, GpuLayers, Model, Options};
use ptx_emulator_launcher::{Launcher, test, test_name};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Runs `body` on a device: here, or in a process of its own under the emulator.
fn on_device(name: &str, body: impl FnOnce()) {
    on_devices(name, "sm_80", body);
}

/// The same on several, under the emulator; here if there are as many.
fn on_devices(name: &str, devices: &str, body: impl FnOnce()) {
    let here = CudaBackend::devices().is_ok_and(|found| found.len() > devices.matches(',').count());
    if test::case().is_some() || here && CudaBackend::is_available() {
        return body();
    }
    let mut launcher = Launcher::new().patience(Duration::from_secs(900)).set("PTX_EMU_CHECK", "1");
    launcher = launcher.set("PTX_EMU_DEVICES", devices);
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

const MODELS: [&str; 5] = ["llama", "gemma2", "qwen3", "mixtral", "gpt2"];

/// Every token of a greedy answer to a prompt of 20.
fn answer(model: &Model, tokens: usize) -> Vec<u32> {
    let mut engine = model.engine(Limits::new(40).step_tokens(16)).unwrap();
    let prompt: Vec<u32> = (0..20).map(|i| 3 + i % 20).collect();
    let events = engine.run(Request::new(prompt, tokens)).unwrap();
    events.map(|e| e.unwrap().token.unwrap()).collect()
}

/// Holds estimates against what backends with these settings then take.
fn estimated(set: impl Fn(Builder) -> Builder) {
    for name in MODELS {
        let (path, cuda) = (golden(name), Arc::new(set(CudaBackend::builder()).build().unwrap()));
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
        println!("{name}: {peak} bytes at most, {total} estimated; {estimate}; {}", cuda.cublas());
        // What is not counted: the step's own numbers, frequencies.
        let most = (total - estimate.weights) / 20 + (16 << 10);
        assert!(peak <= total + most, "{name}: {peak} of {total}");
        assert!(total <= peak + most, "{name}: {peak} of {total}");
    }
}

#[test]
fn an_estimate_is_what_the_device_then_takes() {
    on_device(test_name!(), || estimated(|b| b));
}

/// Steps of each number of sequences are recorded, the fuller ones with rows of nobody's.
#[test]
fn an_estimate_is_what_several_sequences_take() {
    on_device(test_name!(), || {
        for (name, n) in [("llama", 6), ("gemma2", 3), ("mixtral", 3), ("gpt2", 9)] {
            let (path, cuda) = (golden(name), Arc::new(CudaBackend::new().unwrap()));
            let options = Options::new().backend(Arc::clone(&cuda) as Arc<dyn Backend>);
            let options = options.context(40).step_tokens(16).sequences(n);
            let estimate = options.estimate_memory(&path).unwrap();
            let model = options.open(&path).unwrap();
            let loaded = cuda.memory_used().0;
            assert_eq!(loaded, estimate.weights, "{name}: weights");
            let mut engine = model.engine(Limits::new(40).step_tokens(16).sequences(n)).unwrap();
            assert_eq!(cuda.memory_used().1 - loaded, estimate.cache, "{name}: the cache");
            // One ends after the other, so that every number of them comes several times.
            for i in 0..n {
                let prompt: Vec<u32> = (0..6).map(|t| 3 + (t + i as u32) % 20).collect();
                engine.add(Request::new(prompt, 8 + 26 * i / n)).unwrap();
            }
            while !engine.is_idle() {
                engine.step().unwrap();
            }
            let (peak, total) = (cuda.memory_used().1, estimate.total());
            println!("{name}, {n} sequences: {peak} bytes at most, {total} estimated; {estimate}");
            assert!(cuda.graphs().recorded >= 2, "{name}: {:?}", cuda.graphs());
            // What is not counted: the step's own numbers, frequencies. Not all that is counted comes at once.
            let most = (total - estimate.weights) / 20 + (16 << 10);
            assert!(peak <= total + most, "{name}: {peak} of {total}");
            assert!(total <= peak + 4 * most, "{name}: {peak} of {total}");
            let one = options.sequences(1).estimate_memory(&path).unwrap();
            // Either is rounded up, by a sixteenth at most.
            let times = 1.0 / n as f64 * estimate.cache as f64 / one.cache as f64;
            assert!(
                (0.9..=1.1).contains(&times),
                "{name}: the cache of one, {} of {}",
                one.cache,
                estimate.cache
            );
            assert!(one.graphs < estimate.graphs && one.total() < total, "{name}: {one}");
        }
    });
}

/// Those of up to four sequences are filled up to four, and are one record.
#[test]
fn an_estimate_counts_steps_of_several_sequences_as_they_are_recorded() {
    on_device(test_name!(), || {
        let cuda = Arc::new(CudaBackend::new().unwrap());
        let graphs = |n: usize| {
            let options = Options::new().backend(Arc::clone(&cuda) as Arc<dyn Backend>).sequences(n);
            options.estimate_memory(golden("llama")).unwrap().graphs
        };
        let [one, two, three, four] = [1, 2, 3, 4].map(graphs);
        assert!(one > 0 && one < two && two == three && three == four, "{one} {two} {three} {four}");
    });
}

/// In bf16 products take memory beside their results; by cuBLAS more, and it is that or none.
#[test]
fn an_estimate_counts_what_products_take() {
    on_device(test_name!(), || {
        estimated(|b| b.compute(Compute::Bf16).cublas(false));
        estimated(|b| b.compute(Compute::Bf16).cublas_from(2));
        // Attention and MLP are side by side there, so that a product's memory comes on top of both.
        let path = golden("cohere2");
        let working = |set: fn(Builder) -> Builder| {
            let cuda = set(CudaBackend::builder().compute(Compute::Bf16)).build().unwrap();
            let options = Options::new().backend(Arc::new(cuda)).context(100).step_tokens(100);
            options.estimate_memory(&path).unwrap().working
        };
        let (own, few, with) =
            (working(|b| b.cublas(false)), working(|b| b.cublas_from(101)), working(|b| b.cublas_from(100)));
        assert!(own == few && with > own + 4_000_000, "{own} {few} {with}");
        // Before there is a backend: what the options say of precision counts, and these are too few rows for cuBLAS by the table.
        let options = Options::new().device(Device::Cuda(0)).context(100).step_tokens(100);
        let exact = options.clone().exact(true).estimate_memory(&path).unwrap().working;
        let half = options.bf16(true).estimate_memory(&path).unwrap().working;
        assert!(half > exact && half == own, "{exact} {half} {own}");
    });
}

/// A token after a long context takes more than a prompt's rows, which are too many to be split.
#[test]
fn an_estimate_counts_what_attention_takes() {
    on_device(test_name!(), || {
        let cuda = Arc::new(CudaBackend::new().unwrap());
        let working = |context: usize| {
            let options = Options::new().backend(Arc::clone(&cuda) as Arc<dyn Backend>);
            options.context(context).step_tokens(300).estimate_memory(golden("llama")).unwrap().working
        };
        let (short, long) = (working(1024), working(1 << 20));
        println!("{short} {long}");
        // Of 4096 chunks.
        assert!(long > short && long > 4096 * 4 * 18, "{short} {long}");
    });
}

/// Logits in bf16, by cuBLAS and by own kernels: those of single precision up to the rounding, and the same bits each time.
#[test]
fn logits_by_cublas_are_those_of_the_model() {
    on_device(test_name!(), || {
        for name in MODELS.into_iter().chain(["gemma3", "phi3"]) {
            let run = |set: fn(Builder) -> Builder| -> (Vec<f32>, String) {
                let cuda = Arc::new(set(CudaBackend::builder()).build().unwrap());
                let options = Options::new().backend(Arc::clone(&cuda) as Arc<dyn Backend>);
                let model = options.context(40).step_tokens(16).open(golden(name)).unwrap();
                let ids: Vec<u32> = (0..30).map(|i| 3 + i * 7 % 40).collect();
                let logits: Vec<f32> = model.logits(&ids).unwrap().iter().copied().collect();
                let again: Vec<f32> = model.logits(&ids).unwrap().iter().copied().collect();
                assert_eq!(logits, again, "{name}");
                (logits, cuda.cublas().to_string())
            };
            let want = run(|b| b).0;
            let off = |got: &[f32]| {
                let square = |v: f32| f64::from(v) * f64::from(v);
                let wrong: f64 = got.iter().zip(&want).map(|(a, b)| square(a - b)).sum();
                (wrong / want.iter().map(|v| square(*v)).sum::<f64>()).sqrt()
            };
            let (by_cublas, about) = run(|b| b.compute(Compute::Bf16).cublas_from(2));
            let own = run(|b| b.compute(Compute::Bf16).cublas(false)).0;
            println!("{name}: off by {:.1e}, own kernels by {:.1e}; {about}", off(&by_cublas), off(&own));
            assert!(off(&by_cublas) < 0.03 && off(&own) < 0.03, "{name}");
            assert!(off(&by_cublas) < 2.0 * off(&own) && off(&by_cublas) > 0.0, "{name}");
        }
    });
}

#[test]
fn too_little_memory_is_an_error_with_figures() {
    on_device(test_name!(), || {
        let cuda = CudaBackend::builder().memory(100 << 10).build().unwrap();
        let options = Options::new().backend(Arc::new(cuda)).context(40);
        let error = options.open(golden("llama")).unwrap_err().to_string();
        for word in
            ["(in all ", "weights", "cache", "needs", "are free", "too few; no shorter context would fit)"]
        {
            assert!(error.contains(word), "{word}: {error}");
        }
        // Nor is one advised after that.
        assert!(!error.contains("use a smaller"), "{error}");
    });
}

/// The number after `before` in a text.
fn number(text: &str, before: &str) -> usize {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}"));
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn a_cache_that_is_too_large_is_an_error_with_what_would_fit() {
    on_device(test_name!(), || {
        let open = |context: usize| {
            let cuda = CudaBackend::builder().memory(80 << 20).build().unwrap();
            Options::new()
                .backend(Arc::new(cuda))
                .context(context)
                .step_tokens(16)
                .open(golden("llama"))
                .unwrap()
        };
        let error = open(400_000).session().unwrap_err().to_string();
        println!("cuda: {error}");
        assert!(
            error.starts_with("a cache of 400000 tokens; one of ") && error.contains("are free"),
            "{error}"
        );
        let fits = number(&error, "(--context ");
        assert!((1000..400_000).contains(&fits), "{error}");
        let model = open(fits);
        model.session().unwrap();
        // Another one beside it: what is used counts.
        let _first = model.session().unwrap();
        let error = model.session().unwrap_err().to_string();
        assert!(error.contains("none would fit beside") || number(&error, "(--context ") < fits, "{error}");
        assert!(open(fits + fits / 4).session().is_err(), "{fits} is too careful");
    });
}

/// The device's line, the logits of a prompt, and what was drawn after another.
type Ran = (String, Vec<f32>, Vec<u32>);

/// Prompts that are longer than a step, so that contexts are read from the cache of each part.
fn run(options: &Options, name: &str) -> Ran {
    let model = options.clone().exact(true).context(40).step_tokens(16).open(golden(name)).unwrap();
    let ids: Vec<u32> = (0..30).map(|i| 3 + i * 7 % 40).collect();
    let logits = model.logits(&ids).unwrap();
    // Drawn tokens too: their steps are those that a device would record, and they are chosen where the logits are.
    let drawn = answer(&model, 6);
    (model.device().to_owned(), logits.iter().copied().collect(), drawn)
}

fn close(name: &str, (_, got, drawn): &Ran, (_, want, wanted): &Ran) {
    assert_eq!(drawn, wanted, "{name}");
    let size = want.iter().fold(0f32, |m, v| m.max(v.abs()));
    let worst = got.iter().zip(want).map(|(a, b)| (a - b).abs() / size).fold(0f32, f32::max);
    assert!(got.len() == want.len() && worst <= 2e-5, "{name}: off by {worst:.1e}");
}

#[test]
fn layers_on_gpu_and_cpu_give_the_logits_of_one_machine() {
    on_device(test_name!(), || {
        for name in MODELS.into_iter().chain(["gemma3", "phi3"]) {
            let want = run(&Options::new().device(Device::Cpu), name);
            for count in [1, 99] {
                let options = Options::new().device(Device::Cuda(0)).gpu_layers(GpuLayers::Count(count));
                let got = run(&options, name);
                close(name, &got, &want);
                let line = got.0;
                println!("{name}: {line}");
                let split = line.contains("and the head; the CPU") && line.contains("for layer");
                assert_eq!(split, count == 1, "{line}");
            }
        }
        // None at all is the CPU, and said.
        let options = Options::new().device(Device::Cuda(0)).gpu_layers(GpuLayers::Count(0));
        let line = run(&options, "llama").0;
        assert!(
            line.starts_with("CUDA not used: no layers on the GPU were asked for; using the CPU"),
            "{line}"
        );
        // What fits whole is not split, however it is asked for.
        let options = Options::new().device(Device::Auto).gpu_layers(GpuLayers::Auto);
        assert!(run(&options, "llama").0.starts_with("using CUDA: "));
    });
}

#[test]
fn layers_over_two_devices_give_the_logits_of_one() {
    on_devices(test_name!(), "sm_80,sm_90", || {
        let both: Device = "cuda:0,cuda:1".parse().unwrap();
        for name in MODELS {
            let want = run(&Options::new().device(Device::Cpu), name);
            let got = run(&Options::new().device(both), name);
            close(name, &got, &want);
            println!("{name}: {}", got.0);
            assert_eq!(got.0.matches("CUDA: ").count(), 2, "{}", got.0);
            let got = run(&Options::new().device(both).gpu_layers(GpuLayers::Count(1)), name);
            close(name, &got, &want);
            assert!(got.0.contains("the CPU"), "{}", got.0);
        }
        let error =
            Options::new().device("cuda:0,cuda:7".parse().unwrap()).open(golden("llama")).unwrap_err();
        assert!(error.to_string().contains("cuda:0,cuda:7 was asked for, but cuda:7"), "{error}");
    });
}
