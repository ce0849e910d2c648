//! Adapters over models, against what PEFT computes with them: from its folders and from such files as llama.cpp's converter writes, over
//! models of either kind.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/converted.rs"]
mod converted;

use common::*;
use converted::as_gguf;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Loader;
use ogive_nn::tensor::HostWeight;
use ogive_quantize::gguf_file::{GgmlType, GgufWriter};
use ogive_weights::{Checkpoint, translations};

/// How far the worst logit is off on any backend that computes in single precision.
fn error_of(file: &Checkpoint, name: &str) -> f32 {
    let (ids, want) = adapted_case(name);
    let off = exact_backends().into_iter().map(|(_, b)| {
        let loader = Loader::new(&*file.source, &*b).for_context(ids.len());
        let model = ogive_models::registry().build(&file.architecture, &file.config, &loader).unwrap();
        assert!(file.source.unused().is_empty(), "{name}: {:?}", file.source.unused());
        worst(&evaluate(&*b, &*model, &ids, &Evaluate::new()).unwrap(), &want)
    });
    off.fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst })
}

#[test]
fn logits_are_those_of_peft() {
    for name in ADAPTERS {
        let file = ogive_weights::open(golden(name)).unwrap();
        let (plain, adapted) = (error_of(&file, name), file.adapted(adapter(name), 1.0).unwrap());
        let error = error_of(&adapted, name);
        println!("{name:20} {error:.1e}, without {plain:.1e}");
        assert!(plain > 0.5, "{name}: the adapter changes nothing");
        assert!(error < 2e-5, "{name}: {error:.1e}");
    }
}

#[test]
fn it_is_the_same_over_gguf_files() {
    for name in ["llama", "gptneox", "phi3"] {
        let file = as_gguf(&golden(name), "bf16", |_| {}).unwrap().adapted(adapter(name), 1.0).unwrap();
        let error = error_of(&file, name);
        assert!(error < 2e-5, "{name}: {error:.1e}");
    }
}

/// PEFT's adapter as a GGUF file: names and rows as the converter would have them, and one factor for all.
fn as_gguf_adapter(name: &str) -> tempfile::NamedTempFile {
    const ALPHA: f32 = 6.0;
    let model = as_gguf(&golden(name), "bf16", |_| {}).unwrap();
    let architecture = model.gguf.unwrap().metadata().str("general.architecture").unwrap().to_owned();
    let all = translations();
    let translation = all.iter().find(|t| t.architecture() == architecture).unwrap();
    let file = ogive_weights::open(golden(name)).unwrap().adapted(adapter(name), 1.0).unwrap();
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", &*architecture).set("general.type", "adapter");
    writer.set("adapter.type", "lora").set("adapter.lora.alpha", ALPHA);
    let mut halves: Vec<(String, HostWeight)> = Vec::new();
    for down in file.source.tensors().iter().filter(|t| t.name.ends_with(".lora_A.weight")) {
        let matrix = down.name.strip_suffix(".lora_A.weight").unwrap();
        let (tensor, change) = translation.gguf_name(&format!("{matrix}.weight")).unwrap();
        let down = file.source.get(&down.name).unwrap().decoded().unwrap();
        let up = file.source.get(&format!("{matrix}.lora_B.weight")).unwrap();
        let up = change.map_or(up.clone(), |change| change.apply(&[up], &file.config).unwrap());
        let own: Vec<f32> = up.to_vec().iter().map(|v| v * down.shape[1] as f32 / ALPHA).collect();
        halves.push((format!("{tensor}.lora_b"), HostWeight::from_f32("up", up.shape, &own).unwrap()));
        halves.push((format!("{tensor}.lora_a"), down));
    }
    for (name, half) in &halves {
        writer.tensor(name, &[half.shape[2] as u64, half.shape[1] as u64], GgmlType::F32).unwrap();
    }
    let mut out = tempfile::NamedTempFile::new().unwrap();
    let mut data = writer.write_to(out.as_file_mut()).unwrap();
    for (name, half) in &halves {
        data.write_data(name, &half.bytes).unwrap();
    }
    data.finish().unwrap();
    out
}

#[test]
fn those_of_llama_cpp_are_read_over_either() {
    for name in ["llama", "gptneox", "phi3"] {
        let adapter = as_gguf_adapter(name);
        let folder = ogive_weights::open(golden(name)).unwrap();
        for model in [folder, as_gguf(&golden(name), "bf16", |_| {}).unwrap()] {
            let error = error_of(&model.adapted(adapter.path(), 1.0).unwrap(), name);
            assert!(error < 2e-5, "{name}: {error:.1e}");
        }
    }
}

#[test]
fn several_lie_over_each_other() {
    for name in ADAPTERS {
        let file = ogive_weights::open(golden(name)).unwrap();
        let [most, rest] = [0.75, 0.25];
        let file = file.adapted(adapter(name), most).unwrap().adapted(adapter(name), rest).unwrap();
        let error = error_of(&file, name);
        assert!(error < 2e-5, "{name}: {error:.1e}");
        let undone = file.adapted(adapter(name), -1.0).unwrap();
        let b = exact();
        for (case, ids, want) in cases(&golden(name)) {
            let loader = Loader::new(&*undone.source, &b).for_context(ids.len());
            let model =
                ogive_models::registry().build(&undone.architecture, &undone.config, &loader).unwrap();
            let error = worst(&evaluate(&b, &*model, &ids, &Evaluate::new()).unwrap(), &want);
            assert!(error < 5e-5, "{name} {case}: {error:.1e}");
        }
    }
}

/// What was trained beside the weights as they were.
#[test]
fn weights_with_factors_in_them_are_refused() {
    let model = as_gguf(&golden("falcon-h1"), "f32", |_| {}).unwrap();
    let e = model.adapted(adapter("llama"), 1.0).unwrap_err().to_string();
    assert!(e.contains("`falcon-h1` have factors in their weights"), "{e}");
}

#[test]
fn one_of_another_model_is_refused() {
    let open = |name: &str| ogive_weights::open(golden(name)).unwrap();
    let e = open("llama").adapted(adapter("gpt2"), 1.0).unwrap_err().to_string();
    assert!(e.contains("transformer.h.0.attn.c_attn") && e.contains("does not have"), "{e}");
    let llamas = as_gguf_adapter("llama");
    let e = open("phi3").adapted(llamas.path(), 1.0).unwrap_err().to_string();
    assert!(e.contains("is for a LlamaForCausalLM, and the model is a Phi3ForCausalLM"), "{e}");
    // The same names, and other sizes.
    let file = open("llama-yarn").adapted(adapter("llama"), 1.0).unwrap();
    let b = exact();
    let e = ogive_models::registry().build(&file.architecture, &file.config, &Loader::new(&*file.source, &b));
    let e = e.unwrap_err().to_string();
    assert!(e.contains("do not fit a matrix"), "{e}");
}
