//! Real checkpoints: the GGUF file and the Hugging Face folder of one model are the same model under the same names.

mod common;

use common::shared;
use ogive_tensor::serde_json::Value;
use ogive_tensor::{Config, F32, HostWeight, Source};
use ogive_weights::{Checkpoint, OpenOptions, open};
use std::path::Path;

/// The keys' half of DeepSeek's projection, transposed, or the values', head by head. A file has them apart, as `shape` says.
fn half(folder: &dyn Source, name: &str, [heads, rows, cols]: [usize; 3]) -> Option<HostWeight> {
    let (at, keys) = match name.strip_suffix(".k_b_proj.weight") {
        Some(at) => (at, true),
        None => (name.strip_suffix(".v_b_proj.weight")?, false),
    };
    let both = folder.get(&format!("{at}.kv_b_proj.weight")).unwrap();
    let each = both.shape[1] / heads;
    let part = |head: usize| match keys {
        true => both.rows(head * each..head * each + cols).unwrap().transposed().unwrap(),
        false => both.rows((head + 1) * each - rows..(head + 1) * each).unwrap(),
    };
    Some(HostWeight::stack(name, &(0..heads).map(part).collect::<Vec<_>>()).unwrap())
}

/// A tensor of a folder, of experts stacked where the GGUF file has them stacked.
fn of_folder(folder: &dyn Source, name: &str, shape: [usize; 3], experts: usize) -> HostWeight {
    if let Some(weight) = folder.get(name).ok().or_else(|| half(folder, name, shape)) {
        return weight;
    }
    let (before, after) =
        name.split_once("experts.").unwrap_or_else(|| panic!("{name} is not in the folder"));
    let parts: Vec<HostWeight> =
        (0..experts).map(|e| folder.get(&format!("{before}experts.{e}.{after}")).unwrap()).collect();
    HostWeight::stack(name, &parts).unwrap()
}

fn bits(w: &HostWeight) -> Vec<u32> {
    w.to_vec().into_iter().map(f32::to_bits).collect()
}

/// Whether two settings mean the same: numbers by value, whatever their JSON type.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// Settings of the folder that the file need not have: of training, of other tools, or not kept in GGUF.
const NOT_KEPT: &[&str] = &[
    "dtype",
    "model_type",
    "transformers_version",
    "use_cache",
    "initializer_range",
    "attention_bias",
    "mlp_bias",
    "pretraining_tp",
    "max_window_layers",
    "use_sliding_window",
    "use_bidirectional_attention",
    "_sliding_window_pattern",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "aux_loss_alpha",
    "seq_aux",
    "n_ctx",
    "reorder_and_upcast_attn",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
];

fn assert_same_settings(name: &str, file: &Config, folder: &Config) {
    for (key, theirs) in folder.0.as_object().unwrap() {
        let left_out = NOT_KEPT.contains(&&**key)
            || ["summary", "drop"].iter().any(|part| key.contains(part))
            || theirs.is_null()
            // What the GGUF file says of this Mistral, which has no window, is that it is a Llama, and of Llama 3 the finished factors.
            || (name == "mistral" && key == "architectures")
            || (name == "llama3-rope" && key == "rope_scaling")
            // What a class takes for granted: that all of a head turns, and that no layer has a window.
            || (key == "partial_rotary_factor" && theirs.as_f64() == Some(1.0))
            || (key == "layer_types" && theirs.as_array().is_some_and(|l| l.iter().all(|k| k == "full_attention")))
            || key.ends_with("_pdrop");
        if left_out {
            continue;
        }
        let ours = file.0.get(key).unwrap_or_else(|| panic!("{name}: `{key}` is missing"));
        assert!(same(ours, theirs), "{name}: `{key}` is {ours} and should be {theirs}");
    }
}

fn compare(name: &str, file: &Checkpoint, folder: &Checkpoint) {
    assert_same_settings(name, &file.config, &folder.config);
    if name != "mistral" {
        assert_eq!(file.architecture, folder.architecture, "{name}");
    }
    let experts = ["num_local_experts", "n_routed_experts", "num_experts"];
    let experts = experts.iter().find_map(|k| folder.config.opt_usize(k).unwrap()).unwrap_or(0);
    let mut elements = 0;
    for info in file.source.tensors() {
        let ours = file.source.get(&info.name).unwrap();
        assert_eq!((ours.shape, ours.format), (info.shape, info.format), "{}", info.name);
        if info.name == "rope_freqs.weight" {
            continue;
        }
        let theirs = of_folder(&*folder.source, &info.name, info.shape, experts);
        assert_eq!(ours.shape, theirs.shape, "{name}: {}", info.name);
        let theirs = if name.starts_with("gemma") && info.name.ends_with("norm.weight") {
            // The file keeps 1 + w; what a model makes of it again must be the same bits.
            let plus = |w: &HostWeight| -> Vec<f32> { w.to_vec().into_iter().map(|v| 1.0 + v).collect() };
            assert_eq!(plus(&ours), plus(&theirs), "{name}: {}", info.name);
            ours.clone()
        } else {
            theirs
        };
        assert!(bits(&ours) == bits(&theirs), "{name}: {} differs", info.name);
        elements += info.elements();
    }
    let all: usize = folder.source.tensors().iter().map(|t| t.elements()).sum();
    assert_eq!(elements, all, "{name}: tensors are missing");
}

#[test]
fn both_forms_are_one_model() {
    let Some(shared) = shared() else { return };
    let mut seen = 0;
    for folder in std::fs::read_dir(shared.join("golden")).unwrap().map(|f| f.unwrap().path()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let file = folder.join(format!("{name}-f32.gguf"));
        if file.is_file() && folder.join("model.safetensors").is_file() {
            compare(&name, &open(&file).unwrap(), &open(&folder).unwrap());
            seen += 1;
        }
    }
    assert!(seen >= 12, "only {seen} models were found in both forms");
    let stories = shared.join("models/stories260K");
    compare(
        "stories",
        &open(stories.join("stories260K-f32.gguf")).unwrap(),
        &open(stories.join("hf")).unwrap(),
    );
}

#[test]
fn split_files_are_the_whole_file() {
    let Some(shared) = shared() else { return };
    let split = open(shared.join("golden/llama-split/llama-f32-00001-of-00003.gguf")).unwrap();
    compare("llama", &split, &open(shared.join("golden/llama")).unwrap());
    let e = open(shared.join("golden/llama-split/llama-f32-00002-of-00003.gguf")).unwrap_err().to_string();
    assert!(e.contains("llama-f32-00001-of-00003.gguf"), "{e}");
}

#[test]
fn sharded_files_are_one_source_however_they_are_named() {
    let Some(shared) = shared() else { return };
    let folder = shared.join("golden/llama-bf16-sharded");
    let (whole, exact) = (open(&folder).unwrap(), open(shared.join("golden/llama")).unwrap());
    assert_eq!(whole.source.tensors().len(), exact.source.tensors().len());
    for name in ["config.json", "model.safetensors.index.json", "model-00002-of-00003.safetensors"] {
        let other = open(folder.join(name)).unwrap();
        assert_eq!(other.source.tensors(), whole.source.tensors(), "{name}");
        assert_eq!(other.folder.as_deref(), Some(&*folder));
    }
    for info in exact.source.tensors() {
        let (a, b) = (whole.source.get(&info.name).unwrap(), exact.source.get(&info.name).unwrap());
        assert_eq!((a.format.name, a.shape), ("bf16", b.shape));
        let far = a.to_vec().into_iter().zip(b.to_vec()).find(|(a, b)| (a - b).abs() > b.abs() / 256.0);
        assert_eq!(far, None, "{}", info.name);
    }
}

/// Packed rows are reordered like plain ones: dequantised, they are near the unpacked model in every row.
#[test]
fn packed_files_are_near_the_plain_model() {
    let Some(shared) = shared() else { return };
    for (model, kind, far) in [("llama", "Q8_0", 0.01), ("llama", "Q4_0", 0.15), ("mixtral", "Q8_0", 0.01)] {
        let folder = shared.join("golden").join(model);
        let (packed, plain) = (
            open(folder.join(format!("{model}-{kind}.gguf"))).unwrap(),
            open(folder.join(format!("{model}-f32.gguf"))).unwrap(),
        );
        let mut kept = 0;
        for info in packed.source.tensors() {
            let (a, b) = (packed.source.get(&info.name).unwrap(), plain.source.get(&info.name).unwrap());
            kept += usize::from(a.format != &F32);
            let (a, b) = (a.to_vec(), b.to_vec());
            let error: f32 = a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum();
            let size: f32 = b.iter().map(|b| b * b).sum();
            assert!((error / size).sqrt() < far, "{model} {kind}: {}", info.name);
        }
        assert!(kept >= 10, "{model} {kind}: packed tensors stay packed");
    }
}

#[test]
fn llama_3_factors_are_told_and_given() {
    let Some(shared) = shared() else { return };
    let file = open(shared.join("golden/llama3-rope/llama3-rope-f32.gguf")).unwrap();
    assert_eq!(file.config.at("rope_scaling").opt_str("rope_type").unwrap(), Some("factors"));
    let factors = file.source.get("rope_freqs.weight").unwrap();
    // Eight frequencies of a head of 16; the slowest is scaled by the whole factor of 8, the fastest not at all.
    let values = factors.to_vec();
    assert_eq!((factors.shape, values.first(), values.last()), ([1, 1, 8], Some(&1.0), Some(&8.0)));
}

#[test]
fn every_weight_format_reaches_its_tensors() {
    let Some(shared) = shared() else { return };
    for file in std::fs::read_dir(shared.join("golden/quant")).unwrap().map(|f| f.unwrap().path()) {
        if file.extension().is_some_and(|e| e == "gguf") {
            let model = open(&file).unwrap();
            let names: Vec<String> = model.source.tensors().into_iter().map(|t| t.name).collect();
            assert_eq!(names.len(), model.gguf.as_ref().unwrap().tensors().len(), "{}", file.display());
            let finite = |w: HostWeight| w.to_vec().iter().all(|v| v.is_finite());
            assert!(names.iter().all(|n| finite(model.source.get(n).unwrap())), "{}", file.display());
        }
    }
}

#[test]
fn a_mapped_weight_is_not_copied_and_a_read_file_may_go() {
    let Some(shared) = shared() else { return };
    let inside = |model: &Checkpoint, name: &str| {
        let gguf = model.gguf.as_ref().unwrap();
        let raw = gguf.data_of("blk.0.ffn_up.weight").unwrap();
        let weight = model.source.get(name).unwrap();
        std::ptr::eq(raw.bytes().as_ptr(), weight.bytes.as_ptr())
    };
    let name = "model.layers.0.mlp.up_proj.weight";
    let path = shared.join("golden/llama/llama-Q4_0.gguf");
    assert!(inside(&open(&path).unwrap(), name));
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("a model");
    std::fs::copy(path, &copy).unwrap();
    let read = OpenOptions::new().mmap(false).open(&copy).unwrap();
    std::fs::write(&copy, b"gone").unwrap();
    assert!(inside(&read, name) && read.source.get(name).unwrap().to_vec()[0].is_finite());
    assert!(open(Path::new(&copy)).is_err());
}
