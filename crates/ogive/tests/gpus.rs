//! As few GPUs as hold the model, where the device is chosen: which are taken, what is said of it, and that they compute what the CPU does.
//!
//! Under the emulator only: each machine is a process of its own, with devices that have the memory it wants.
#![cfg(all(feature = "cuda", feature = "cpu"))]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ogive::cuda::CudaBackend;
use ogive::engine::{Limits, Request};
use ogive::{Device, GpuLayers, Model, Options};
use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};
use std::time::Duration;

/// With so many tokens in single precision the cache of the first two layers is 20 MiB each, beside which the model's weights and the third layer,
/// which has a window, are a page of 2 MiB. A placement leaves 8 MiB of each device free, and the backend a 32nd: 54 MB hold all layers, 33 MB
/// the last two, 16 MB the third, 8 MB none.
const CONTEXT: usize = 100_000;

/// How many layers GPUs shall have; unset: as many as fit.
const LAYERS: &str = "OGIVE_TEST_GPU_LAYERS";

fn open(options: Options) -> Model {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/qwen3");
    options.exact(true).context(CONTEXT).step_tokens(16).open(path).unwrap()
}

/// The logits of a prompt that is longer than a step, and tokens drawn after another, whose steps are recorded.
fn answer(model: &Model) -> (Vec<f32>, Vec<u32>) {
    let ids: Vec<u32> = (0..30).map(|i| 3 + i * 7 % 40).collect();
    let logits = model.logits(&ids).unwrap().iter().copied().collect();
    let mut engine = model.engine(Limits::new(40).step_tokens(16)).unwrap();
    let events = engine.run(Request::new(ids[..20].to_vec(), 6)).unwrap();
    (logits, events.map(|e| e.unwrap().token.unwrap()).collect())
}

/// In the process of a case: the line, a session with its whole cache, and the CPU's answer.
fn case() {
    // The harness has begun a line.
    println!();
    let mut options = Options::new();
    if let Ok(layers) = std::env::var(LAYERS) {
        options = options.gpu_layers(layers.parse().unwrap());
    }
    let model = open(options);
    println!("line: {}", model.device());
    drop(model.session().unwrap());
    let ((got, drawn), (want, wanted)) = (answer(&model), answer(&open(Options::new().device(Device::Cpu))));
    assert_eq!(drawn, wanted);
    let size = want.iter().fold(0f32, |m, v| m.max(v.abs()));
    let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs() / size).fold(0f32, f32::max);
    assert!(got.len() == want.len() && worst <= 2e-5, "off by {worst:.1e}");
}

/// What is said on a machine with these devices; `None` where there is no emulator.
fn said(name: &str, devices: &str, set: &[(&str, &str)]) -> Option<String> {
    let launcher = Launcher::new().patience(Duration::from_secs(900)).set("PTX_EMU_CHECK", "1");
    said_by(name, launcher, devices, set)
}

fn said_by(name: &str, launcher: Launcher, devices: &str, set: &[(&str, &str)]) -> Option<String> {
    let mut launcher = launcher.set("PTX_EMU_DEVICES", devices);
    launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    launcher = set.iter().fold(launcher, |launcher, (name, value)| launcher.set(name, value));
    let report = test::run(name, &format!("{devices} {set:?}"), &launcher)?.ok();
    let line = report.values("line").next().unwrap().to_owned();
    println!("{devices} {set:?}: {line}");
    Some(line)
}

/// Every part of the line that `words` are.
fn has(line: &str, words: &[&str]) {
    words.iter().for_each(|word| assert!(line.contains(word), "no {word:?}: {line}"));
}

#[test]
fn one_that_holds_the_model_has_it_alone() {
    if test::case().is_some() {
        return case();
    }
    let whole = |line: String| {
        let one = line.starts_with("using CUDA: NVIDIA ") && !line.contains(" for layer");
        assert!(one && !line.contains("the CPU") && !line.contains("all of it takes"), "{line}");
    };
    let Some(line) = said(test_name!(), "sm_80:54M,sm_80:54M", &[]) else { return };
    whole(line);
    // The first that does, whatever comes before it.
    for devices in ["sm_80:8M,sm_90:54M", "sm_80:33M,sm_90:54M,sm_80:33M"] {
        let line = said(test_name!(), devices, &[]).unwrap();
        has(&line, &["using CUDA: NVIDIA H"]);
        whole(line);
    }
}

#[test]
fn as_few_as_hold_the_model_share_it() {
    if test::case().is_some() {
        return case();
    }
    let Some(two) = said(test_name!(), "sm_80:33M,sm_80:33M,sm_80:33M", &[]) else { return };
    has(
        &two,
        &[
            "using CUDA: 2 × NVIDIA ",
            ": cuda:1 for layers 1 to 2 and the head, cuda:0 for layer 0; all of it",
        ],
    );
    has(&two, &[", of 31 + 31 MiB free"]);
    assert!(!two.contains("the CPU"), "{two}");
    // One that is no help is passed over.
    let others = said(test_name!(), "sm_80:33M,sm_80:16M,sm_80:33M", &[]).unwrap();
    has(
        &others,
        &[
            "using CUDA: 2 × NVIDIA ",
            ": cuda:2 for layers 1 to 2 and the head, cuda:0 for layer 0; all of it",
        ],
    );
    // Of two kinds, each is named. The driver's own variable decides which there are, and in which order.
    let (first, last) = (" for layer 0; all of it takes ", " for layers 1 to 2 and the head; ");
    let mixed = |set| said(test_name!(), "sm_80:33M,sm_90:33M", set).unwrap();
    has(&mixed(&[]), &["using CUDA: NVIDIA H", &format!("{last}CUDA: NVIDIA A"), first]);
    has(
        &mixed(&[("CUDA_VISIBLE_DEVICES", "1,0")]),
        &["using CUDA: NVIDIA A", &format!("{last}CUDA: NVIDIA H"), first],
    );
    has(
        &mixed(&[("CUDA_VISIBLE_DEVICES", "1")]),
        &["using CUDA: NVIDIA H", &format!("{last}the CPU, "), first],
    );
}

#[test]
fn what_all_together_do_not_hold_is_shared_with_the_cpu() {
    if test::case().is_some() {
        return case();
    }
    let split = " for layers 1 to 2 and the head; the CPU, ";
    let Some(first) = said(test_name!(), "sm_90:33M,sm_80:16M", &[]) else { return };
    has(&first, &["using CUDA: NVIDIA H", split, " for layer 0; all of it takes ", ", of 31 MiB free"]);
    // One that holds nothing beside another is left alone, wherever it comes.
    let second = said(test_name!(), "sm_80:16M,sm_90:33M", &[]).unwrap();
    has(&second, &["using CUDA: NVIDIA H", split, ", of 31 MiB free"]);
    let none = said(test_name!(), "sm_80:8M,sm_80:8M", &[]).unwrap();
    has(&none, &["CUDA not used: not one layer fits; all of it takes ", "; using the CPU, "]);
}

#[test]
fn as_many_layers_as_were_asked_for_go_to_as_few() {
    if test::case().is_some() {
        return case();
    }
    let asked = |layers: &str| said(test_name!(), "sm_80:33M,sm_80:33M", &[(LAYERS, layers)]);
    let Some(one) = asked("1") else { return };
    has(&one, &["using CUDA: NVIDIA A", " for layer 2 and the head; the CPU, ", " for layers 0 to 1"]);
    has(&asked("2").unwrap(), &["using CUDA: NVIDIA A", " for layers 1 to 2 and the head; the CPU, "]);
    let all = asked("all").unwrap();
    has(&all, &["using CUDA: 2 × NVIDIA "]);
    assert!(!all.contains("the CPU"), "{all}");
    has(&asked("0").unwrap(), &["CUDA not used: no layers on the GPU were asked for; using the CPU, "]);
}

/// Devices that do not reach one another's memory, and a driver that copies nothing between them.
#[test]
fn those_that_do_not_reach_one_another_share_it_too() {
    if test::case().is_some() {
        return case();
    }
    for set in [("PTX_EMU_PEERS", "0"), ("PTX_EMU_FAULT", "peer:1+:801")] {
        let Some(line) = said(test_name!(), "sm_80:33M,sm_80:33M", &[set]) else { return };
        has(&line, &["using CUDA: 2 × NVIDIA "]);
        assert!(!line.contains("the CPU"), "{line}");
    }
}

#[test]
#[cfg(feature = "cuda-13")]
fn one_that_cannot_be_used_is_left_out_with_the_reason() {
    if test::case().is_some() {
        return case();
    }
    let newest = || Launcher::new().patience(Duration::from_secs(900)).nvrtc(Nvrtc::V13);
    let why = ["; cuda:0 left out: /", " is NVRTC 13.", ", which does not know sm_61"];
    let Some(one) = said_by(test_name!(), newest(), "sm_61:54M,sm_80:54M", &[]) else { return };
    has(&one, &[&["using CUDA: NVIDIA A"], &why[..]].concat());
    let two = said_by(test_name!(), newest(), "sm_61:54M,sm_80:33M,sm_80:33M", &[]).unwrap();
    has(&two, &[&["using CUDA: 2 × NVIDIA ", "cuda:2 for layer", ", cuda:1 for layer"], &why[..]].concat());
}

/// Which GPUs there will be is known when they are open; an estimate opens none.
#[test]
fn an_estimate_is_of_all_on_the_first_that_can_be_used() {
    if test::case().is_some() {
        println!();
        let options = Options::new().exact(true).context(CONTEXT).step_tokens(16);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/qwen3");
        let on = |device| options.clone().device(device).estimate_memory(path).unwrap();
        let number = CudaBackend::first_available().unwrap();
        assert!(CudaBackend::is_available() && CudaBackend::unavailable().is_none());
        assert_eq!(on(Device::Auto), on(Device::Cuda(number)));
        assert_ne!(on(Device::Auto), on(Device::Cpu));
        let layers = options.gpu_layers(GpuLayers::Auto).estimate_parts(path).unwrap();
        return println!("line: {}, the first is {number}", layers.len());
    }
    let Some(parts) = said(test_name!(), "sm_80:33M,sm_80:33M", &[]) else { return };
    assert_eq!(parts, "1, the first is 0");
    if cfg!(feature = "cuda-13") {
        let newest = Launcher::new().patience(Duration::from_secs(900)).nvrtc(Nvrtc::V13);
        let parts = said_by(test_name!(), newest, "sm_61:33M,sm_80:33M", &[]).unwrap();
        assert_eq!(parts, "1, the first is 1");
    }
}
