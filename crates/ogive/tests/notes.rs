//! What is said of a model whose weights do not stay packed, and that nothing is said of others. On a GPU if there is one, else under the
//! emulator.
#![cfg(feature = "cpu")]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "../../ogive-weights/tests/common/packer.rs"]
mod packer;

use ogive::tensor::F16;
use ogive::tensor::serde_json::{Value, json};
use ogive::{Device, Options};
use packer::{Numbers, file, tensor};
use std::fs;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden")).join(name)
}

/// The tiny Llama whose queries are as GPTQ packs them, in 4 bits: rows of 48 columns.
fn packed() -> tempfile::TempDir {
    let (folder, from) = (tempfile::tempdir().unwrap(), golden("llama"));
    let mut config: Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    config["quantization_config"] = json!({"quant_method": "gptq", "bits": 4, "group_size": -1});
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let source = Options::new().checkpoint(from).unwrap().source;
    let mut tensors = Vec::new();
    for info in source.tensors() {
        let w = source.get(&info.name).unwrap();
        let [_, rows, cols] = w.shape;
        if let Some(stem) = info.name.strip_suffix("q_proj.weight") {
            let numbers = Numbers::new(4, [rows, cols], cols, None);
            tensors.extend(numbers.gptq(&format!("{stem}q_proj."), 1, &F16));
            continue;
        }
        let shape = if rows == 1 { vec![cols] } else { vec![rows, cols] };
        tensors.push(tensor("", &info.name, &w.format.name.to_uppercase(), &shape, w.bytes.to_vec()));
    }
    fs::write(folder.path().join("model.safetensors"), file(&tensors)).unwrap();
    folder
}

/// Of the file 4 bits, and 20 for each row.
const QUERIES: &str = "kept as F32, 7.2 times the file's bytes: 2 tensors (model.layers.0.self_attn.q_proj.weight, …): rows of 48 columns \
     are no whole blocks of 32";

fn notes(options: &Options, path: impl AsRef<Path>) -> Vec<String> {
    let options = options.clone().context(40).step_tokens(16);
    let notes = options.open(&path).unwrap().notes().to_vec();
    assert_eq!(options.estimate_notes(&path).unwrap(), notes, "before it is loaded");
    notes
}

#[test]
fn weights_that_do_not_stay_packed_are_named() {
    let (cpu, folder) = (Options::new().device(Device::Cpu), packed());
    assert_eq!(notes(&cpu, folder.path()), [QUERIES]);
}

#[test]
fn of_other_models_nothing_is_said() {
    let cpu = Options::new().device(Device::Cpu);
    let mut seen = 0;
    for entry in fs::read_dir(golden("")).unwrap() {
        let path = entry.unwrap().path();
        // GPT-2's files have matrices that are turned, which elements in bfloat16 survive.
        let said = notes(&cpu, &path);
        assert!(said.is_empty(), "{}: {said:?}", path.display());
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn a_head_that_the_settings_do_not_have_is_told() {
    let (folder, from) = (tempfile::tempdir().unwrap(), golden("llama"));
    let mut config: Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    config["tie_word_embeddings"] = json!(true);
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    fs::copy(from.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let said = notes(&Options::new().device(Device::Cpu), folder.path());
    assert!(said.len() == 1 && said[0].starts_with("`lm_head.weight` is used"), "{said:?}");
}

#[cfg(feature = "cuda")]
#[test]
fn the_same_is_said_on_a_gpu_and_where_layers_are_shared_out() {
    use ogive::{GpuLayers, cuda::CudaBackend};
    use ptx_emulator_launcher::{Launcher, test, test_name};

    let body = || {
        let (gpu, folder) = (Options::new().device(Device::Cuda(0)), packed());
        for options in [gpu.clone(), gpu.gpu_layers(GpuLayers::Count(1))] {
            assert_eq!(notes(&options, folder.path()), [QUERIES]);
            assert!(notes(&options, golden("llama")).is_empty());
        }
    };
    if test::case().is_some() || CudaBackend::is_available() {
        return body();
    }
    if let Some(report) = test::run(test_name!(), "cuda", &Launcher::new()) {
        print!("{}", report.ok().stdout);
    }
}
