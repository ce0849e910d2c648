//! Our own model on a GPU as programs open it, beside the CPU: its text in single precision, and its logits as it is opened by default, with
//! each NVRTC. On a GPU if there is one, else under the emulator in checked mode.
#![cfg(all(feature = "cuda", feature = "cpu", feature = "demo-model"))]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ogive::cuda::CudaBackend;
use ogive::engine::{Asked, Draft, Engine, Limits, Request};
use ogive::tokenizer::EncodeOptions;
use ogive::{DEMO, Device, Model, Options};
use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};
use std::time::Duration;

/// Runs `body` on a device: here, or in a process of its own under the emulator with this compiler.
fn on_device(name: &str, nvrtc: Nvrtc, body: impl FnOnce()) {
    if test::case().is_some() || CudaBackend::is_available() {
        return body();
    }
    let mut launcher = Launcher::new().nvrtc(nvrtc).patience(Duration::from_secs(900));
    launcher = launcher.set("PTX_EMU_CHECK", "races").set("PTX_EMU_DEVICES", "sm_80");
    if std::env::var_os("OGIVE_CUDA_CACHE").is_none() {
        launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    }
    if let Some(report) = test::run(name, &format!("nvrtc {nvrtc}"), &launcher) {
        print!("{}", report.ok().stdout);
    }
}

const PROMPT: &str = "Once upon a time there was a little girl who";
/// Tokens that are drawn: after the first two, steps are records that are replayed.
const DRAWN: usize = 6;

/// Knows how the text goes on.
#[derive(Debug)]
struct Known(Vec<u32>);

impl Draft for Known {
    fn guess(&mut self, asked: &[Asked<'_>]) -> ogive::tensor::Result<Vec<Vec<u32>>> {
        Ok(asked.iter().map(|asked| self.0[asked.tokens.len()..].to_vec()).collect())
    }
}

/// The prompt's logits, and the text that is drawn after it; in single precision also as it is when all of it was guessed before.
fn run(options: Options) -> (Vec<f32>, String) {
    let model: Model = options.context(64).open(DEMO).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let ids = tokenizer.encode(PROMPT, EncodeOptions::default()).unwrap();
    let logits = model.logits(&ids).unwrap();
    let mut engine = model.engine(Limits::new(64)).unwrap();
    let draw = |engine: &mut Engine| -> Vec<u32> {
        let events = engine.run(Request::new(&*ids, DRAWN)).unwrap();
        events.map(|e| e.unwrap().token.unwrap()).collect()
    };
    let drawn = draw(&mut engine);
    if model.backend().facts().exact {
        let steps = engine.stats().steps;
        engine.speculate(Some(Box::new(Known([&*ids, &*drawn].concat()))), 3);
        assert_eq!(draw(&mut engine), drawn);
        assert_eq!(
            engine.stats().steps - steps,
            3,
            "the prompt's, one with three guesses, one with what is left"
        );
    }
    (logits.iter().copied().collect(), tokenizer.decode(&drawn).unwrap())
}

/// The mean square of the difference, of that of what is right.
fn error(got: &[f32], want: &[f32]) -> f64 {
    let square = |v: f32| f64::from(v) * f64::from(v);
    assert_eq!(got.len(), want.len());
    let wrong: f64 = got.iter().zip(want).map(|(a, b)| square(a - b)).sum();
    wrong / want.iter().map(|v| square(*v)).sum::<f64>()
}

fn as_on_the_cpu() {
    let on = |device| Options::new().device(device);
    let (want, text) = run(on(Device::Cpu).exact(true));
    let (exact, same) = run(on(Device::Cuda(0)).exact(true));
    let (usual, other) = run(on(Device::Cuda(0)));
    let (cpu, _) = run(on(Device::Cpu));
    println!(
        "{PROMPT}{text}: off by {:.1e}; as it is opened by {:.1e}, the CPU by {:.1e}:{other}",
        error(&exact, &want),
        error(&usual, &want),
        error(&cpu, &want)
    );
    assert_eq!(same, text);
    assert!(error(&exact, &want) < 1e-9);
    // Its prompt is computed in bfloat16: two roundings of 2^-9 in each product.
    assert!(error(&usual, &want) < 1e-4 && error(&usual, &want) > 1e-9);
}

#[test]
fn the_demo_model_by_nvrtc_11() {
    on_device(test_name!(), Nvrtc::V11, as_on_the_cpu);
}

#[test]
fn the_demo_model_by_nvrtc_12() {
    on_device(test_name!(), Nvrtc::V12, as_on_the_cpu);
}

#[test]
fn the_demo_model_by_nvrtc_13() {
    on_device(test_name!(), Nvrtc::V13, as_on_the_cpu);
}
