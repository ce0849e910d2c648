//! As few GPUs as hold the model, where the device is chosen: which are taken, what is said of it, and that they compute what the CPU does.
//!
//! Under the emulator only: each machine is a process of its own, with devices that have the memory it wants.
#![cfg(all(feature = "cuda", feature = "cpu"))]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "../../ogive-weights/tests/common/packer.rs"]
mod packer;

use ogive::backend::LayerCache;
use ogive::cuda::CudaBackend;
use ogive::engine::{Limits, Request};
use ogive::nn::{self, Embedding, Linear, Step};
use ogive::tensor::{Result, Tensor};
use ogive::{Device, GpuLayers, Model, Options, models};
use packer::{file, tensor};
use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};
use std::time::Duration;

/// With so many tokens in single precision the cache of the first two layers is 20 MiB each, beside which the model's weights and the third layer,
/// which has a window, are little.
const CONTEXT: usize = 100_000;

/// How many layers GPUs shall have; unset: as many as fit.
const LAYERS: &str = "OGIVE_TEST_GPU_LAYERS";

/// Set: a case says what layers take, and opens nothing.
const TAKEN: &str = "OGIVE_TEST_TAKEN";

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/qwen3");

fn options() -> Options {
    Options::new().exact(true).context(CONTEXT).step_tokens(16)
}

fn open(options: Options) -> Model {
    options.open(MODEL).unwrap()
}

/// Devices, in MiB.
struct Sizes {
    /// Holds not one layer.
    none: u64,
    /// Holds the third layer and the head, but neither of the others beside or instead of it.
    one: u64,
    /// Holds the last two and the head, or the first two of three parts.
    two: u64,
    /// Holds all.
    all: u64,
}

impl Sizes {
    /// By what layers take, as it is estimated on a device that holds all; `None` where there is no emulator.
    fn of(name: &str) -> Option<Self> {
        let launcher = Launcher::new().set("PTX_EMU_DEVICES", "sm_80:200M").set(TAKEN, "1");
        let report = test::run(name, "what layers take", &launcher)?.ok();
        let taken: Vec<u64> = report.values("taken").map(|bytes| bytes.parse().unwrap()).collect();
        // A placement leaves 8 MiB of each device free, and the backend a 32nd. What crosses between parts is less than the MiB more.
        let [one, two, all] = [0, 1, 2].map(|i| (taken[i].div_ceil(1 << 20) + 8) * 32 / 31 + 1);
        println!("sizes: {one}, {two} and {all} MiB for {taken:?}");
        assert!(
            one + 15 < two && two + 15 < all,
            "each of the first layers is to be too much for the others' device"
        );
        Some(Self { none: 8, one, two, all })
    }

    /// A list of devices in which `none`, `one`, `two` and `all` stand for sizes.
    fn devices(&self, words: &str) -> String {
        let sizes = [("none", self.none), ("one", self.one), ("two", self.two), ("all", self.all)];
        sizes.into_iter().fold(words.to_owned(), |text, (word, mib)| text.replace(word, &format!("{mib}M")))
    }

    /// What of a device that holds two the line says is free.
    fn free(&self) -> u64 {
        self.two * 31 / 32
    }
}

/// What the last layers take on a GPU, the last, the last two and all.
fn taken() {
    for layers in 1..=3 {
        let on = options().device(Device::Cuda(0)).gpu_layers(GpuLayers::Count(layers));
        println!("taken: {}", on.estimate_parts(MODEL).unwrap().last().unwrap().total());
    }
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
    if std::env::var_os(TAKEN).is_some() {
        return taken();
    }
    let mut options = options();
    if let Ok(layers) = std::env::var(LAYERS) {
        options = options.gpu_layers(layers.parse().unwrap());
    }
    let model = open(options);
    println!("line: {}", model.device());
    drop(model.session().unwrap());
    let ((got, drawn), (want, wanted)) = (answer(&model), answer(&open(self::options().device(Device::Cpu))));
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
    let Some(sizes) = Sizes::of(test_name!()) else { return };
    whole(said(test_name!(), &sizes.devices("sm_80:all,sm_80:all"), &[]).unwrap());
    // The first that does, whatever comes before it.
    for devices in ["sm_80:none,sm_90:all", "sm_80:two,sm_90:all,sm_80:two"] {
        let line = said(test_name!(), &sizes.devices(devices), &[]).unwrap();
        has(&line, &["using CUDA: NVIDIA H"]);
        whole(line);
    }
}

/// A table of tokens that is the head too, and nothing between: no weight has a layer's number in its name.
#[derive(Debug)]
struct Table(Embedding, Linear);

impl nn::Model for Table {
    fn cache_layout(&self) -> Vec<LayerCache> {
        Vec::new()
    }
    fn hidden(&self, step: &Step<'_>) -> Result<Tensor> {
        self.0.forward(step)
    }
    fn head(&self, step: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        self.1.forward(step, &hidden)
    }
}

/// On one device, or on the CPU with the reason: nobody can share it out.
#[test]
fn a_model_without_layers_is_on_one_device() {
    if test::case().is_some() {
        println!();
        let folder = tempfile::tempdir().unwrap();
        let config = r#"{"architectures": ["Table"], "vocab_size": 65536, "max_position_embeddings": 64}"#;
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let table = tensor("table", ".weight", "F32", &[65_536, 64], vec![0; 65_536 * 64 * 4]);
        std::fs::write(folder.path().join("model.safetensors"), file(&[table])).unwrap();
        let registry = models::registry().with("Table", |_, file| {
            let table = file.embedding("table")?;
            let head = table.tied();
            Ok(Box::new(Table(table, head)))
        });
        let model = Options::new().registry(registry).open(folder.path()).unwrap();
        println!("line: {}", model.device());
        assert_eq!(model.logits(&[3, 9]).unwrap().shape(), [2, 65_536]);
        return;
    }
    let said = |devices: &str| said(test_name!(), devices, &[]);
    let Some(line) = said("sm_80:200M") else { return };
    assert!(line.starts_with("using CUDA: NVIDIA "), "{line}");
    let line = said("sm_80:16M,sm_80:16M").unwrap();
    has(
        &line,
        &[
            "CUDA not used: the model cannot be shared out, as no weight has a layer's number in its name; all of it takes ",
        ],
    );
    has(&line, &[", of 15 MiB free; using the CPU, "]);
}

#[test]
fn as_few_as_hold_the_model_share_it() {
    if test::case().is_some() {
        return case();
    }
    let Some(sizes) = Sizes::of(test_name!()) else { return };
    let said =
        |devices: &str, set: &[(&str, &str)]| said(test_name!(), &sizes.devices(devices), set).unwrap();
    let two = said("sm_80:two,sm_80:two,sm_80:two", &[]);
    has(
        &two,
        &[
            "using CUDA: 2 × NVIDIA ",
            ": cuda:1 for layers 1 to 2 and the head, cuda:0 for layer 0; all of it",
        ],
    );
    has(&two, &[&format!(", of {0} + {0} MiB free", sizes.free())]);
    assert!(!two.contains("the CPU"), "{two}");
    // One that is no help is passed over.
    let others = said("sm_80:two,sm_80:one,sm_80:two", &[]);
    has(
        &others,
        &[
            "using CUDA: 2 × NVIDIA ",
            ": cuda:2 for layers 1 to 2 and the head, cuda:0 for layer 0; all of it",
        ],
    );
    // Of two kinds, each is named. The driver's own variable decides which there are, and in which order.
    let (first, last) = (" for layer 0; all of it takes ", " for layers 1 to 2 and the head; ");
    let mixed = |set: &[(&str, &str)]| said("sm_80:two,sm_90:two", set);
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
    let Some(sizes) = Sizes::of(test_name!()) else { return };
    let said = |devices: &str| said(test_name!(), &sizes.devices(devices), &[]).unwrap();
    let (first, free) = (said("sm_90:two,sm_80:one"), format!(", of {} MiB free", sizes.free()));
    has(&first, &["using CUDA: NVIDIA H", split, " for layer 0; all of it takes ", &free]);
    // One that holds nothing beside another is left alone, wherever it comes.
    has(&said("sm_80:one,sm_90:two"), &["using CUDA: NVIDIA H", split, &free]);
    let none = said("sm_80:none,sm_80:none");
    let both = [", of ", " + ", " MiB free; using the CPU, "];
    has(&none, &[&["CUDA not used: not one layer fits; all of it takes "][..], &both].concat());
}

#[test]
fn as_many_layers_as_were_asked_for_go_to_as_few() {
    if test::case().is_some() {
        return case();
    }
    let Some(sizes) = Sizes::of(test_name!()) else { return };
    let devices = sizes.devices("sm_80:two,sm_80:two");
    let asked = |layers: &str| said(test_name!(), &devices, &[(LAYERS, layers)]).unwrap();
    has(&asked("1"), &["using CUDA: NVIDIA A", " for layer 2 and the head; the CPU, ", " for layers 0 to 1"]);
    has(&asked("2"), &["using CUDA: NVIDIA A", " for layers 1 to 2 and the head; the CPU, "]);
    let all = asked("all");
    has(&all, &["using CUDA: 2 × NVIDIA "]);
    assert!(!all.contains("the CPU"), "{all}");
    has(&asked("0"), &["CUDA not used: no layers on the GPU were asked for; using the CPU, "]);
}

/// Devices that do not reach one another's memory, and a driver that copies nothing between them.
#[test]
fn those_that_do_not_reach_one_another_share_it_too() {
    if test::case().is_some() {
        return case();
    }
    let Some(sizes) = Sizes::of(test_name!()) else { return };
    for set in [("PTX_EMU_PEERS", "0"), ("PTX_EMU_FAULT", "peer:1+:801")] {
        let line = said(test_name!(), &sizes.devices("sm_80:two,sm_80:two"), &[set]).unwrap();
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
    let Some(sizes) = Sizes::of(test_name!()) else { return };
    let said = |devices: &str| said_by(test_name!(), newest(), &sizes.devices(devices), &[]).unwrap();
    let one = said("sm_61:all,sm_80:all");
    has(&one, &[&["using CUDA: NVIDIA A"], &why[..]].concat());
    let two = said("sm_61:all,sm_80:two,sm_80:two");
    has(&two, &[&["using CUDA: 2 × NVIDIA ", "cuda:2 for layer", ", cuda:1 for layer"], &why[..]].concat());
}

/// Which GPUs there will be is known when they are open; an estimate opens none.
#[test]
fn an_estimate_is_of_all_on_the_first_that_can_be_used() {
    if test::case().is_some() {
        println!();
        let on = |device| options().device(device).estimate_memory(MODEL).unwrap();
        let number = CudaBackend::first_available().unwrap();
        assert!(CudaBackend::is_available() && CudaBackend::unavailable().is_none());
        assert_eq!(on(Device::Auto), on(Device::Cuda(number)));
        assert_ne!(on(Device::Auto), on(Device::Cpu));
        let layers = options().gpu_layers(GpuLayers::Auto).estimate_parts(MODEL).unwrap();
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
