//! Adapters that lie, lack something or are more than updates of matrices: each a clear error.

mod common;

use common::{safetensors_of, write};
use ogive_tensor::Source;
use ogive_weights::gguf_file::{GgmlType, GgufWriter};
use ogive_weights::{Checkpoint, open};
use serde_json::{Value, json};
use std::path::Path;

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 4, "num_attention_heads": 1}"#;
const Q: &str = "model.layers.0.self_attn.q_proj";

/// A model of one matrix and a table of tokens.
fn model() -> (tempfile::TempDir, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", CONFIG);
    let tensors: [(&str, &[usize]); 2] =
        [("model.layers.0.self_attn.q_proj.weight", &[6, 4]), ("model.embed_tokens.weight", &[5, 4])];
    write(folder.path(), "model.safetensors", safetensors_of(&tensors));
    let model = open(folder.path()).unwrap();
    (folder, model)
}

/// PEFT's folder with these settings besides the usual and tensors of these sizes.
fn peft(settings: &Value, tensors: &[(&str, &[usize])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut all = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 3, "bias": "none", "modules_to_save": null,
        "rank_pattern": {}, "use_dora": false, "init_lora_weights": true, "loftq_config": {}});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    write(folder.path(), "adapter_config.json", all.to_string());
    write(folder.path(), "adapter_model.safetensors", safetensors_of(tensors));
    folder
}

const DOWN: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
const UP: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";
const BASE: &str = "base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight";
const USUAL: [(&str, &[usize]); 2] = [(DOWN, &[2, 4]), (UP, &[6, 2])];

fn over(path: &Path) -> Result<Checkpoint, String> {
    model().1.adapted(path, 1.0).map_err(|e| e.to_string())
}

fn refusal(settings: &Value, tensors: &[(&str, &[usize])]) -> String {
    over(peft(settings, tensors).path()).map(|_| ()).expect_err(&settings.to_string())
}

fn values(source: &dyn Source, leaf: &str) -> Vec<f32> {
    source.get(&format!("{Q}.{leaf}.weight")).unwrap().to_vec()
}

#[test]
fn updates_lie_beside_their_matrix_with_their_factor() {
    for (settings, factor) in [
        (json!({}), 1.5),
        (json!({"use_rslora": true}), 3.0 / 2.0_f32.sqrt()),
        (json!({"lora_alpha": 0.5}), 0.25),
        (json!({"r": 7, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"self_attn.q_proj": 8}}), 4.0),
        (json!({"alpha_pattern": {"proj": 8, "k_proj": 4}}), 1.5),
        (
            json!({"init_lora_weights": "gaussian", "target_modules": ["q_proj"], "layers_to_transform": [0]}),
            1.5,
        ),
    ] {
        let folder = peft(&settings, &[USUAL[0], USUAL[1], (BASE, &[6, 4])]);
        let file = over(folder.path()).unwrap();
        let plain = model().1;
        assert_eq!(values(&*file.source, "lora_A"), [0.0; 8].map(|_| values(&*file.source, "lora_A")[0]));
        let own = values(&*model().1.adapted(folder.path(), 1.0).unwrap().source, "lora_B");
        let raw = safetensors_value(1);
        assert!(
            own.iter().all(|v| (v - raw * factor).abs() < 1e-6),
            "{settings}: {own:?}, {raw} times {factor}"
        );
        let half = values(&*model().1.adapted(folder.path(), -0.5).unwrap().source, "lora_B");
        assert!(half.iter().zip(&own).all(|(half, own)| *half == own * -0.5));
        // The model's own are as they were, and both are listed.
        let name = format!("{Q}.weight");
        assert_eq!(file.source.get(&name).unwrap().to_vec(), plain.source.get(&name).unwrap().to_vec());
        let shapes: Vec<_> = file.source.tensors().into_iter().map(|t| (t.name, t.shape)).collect();
        assert_eq!(shapes.len(), 4);
        assert_eq!(shapes[2], (format!("{Q}.lora_A.weight"), [1, 2, 4]));
        assert_eq!(shapes[3], (format!("{Q}.lora_B.weight"), [1, 6, 2]));
    }
}

/// What [`safetensors_of`] fills tensor `i` with.
fn safetensors_value(i: usize) -> f32 {
    let file = ogive_weights::Safetensors::from_bytes(std::sync::Arc::new(safetensors_of(&USUAL))).unwrap();
    file.get(USUAL[i].0).unwrap().to_vec()[0]
}

#[test]
fn what_was_not_asked_for_is_told() {
    let folder = peft(&json!({}), &USUAL);
    let file = over(folder.path()).unwrap();
    assert_eq!(file.source.unused(), [Q]);
    assert!(file.source.get("model.embed_tokens.lora_A.weight").unwrap_err().is_missing());
    file.source.get(&format!("{Q}.lora_A.weight")).unwrap();
    assert!(file.source.unused().is_empty());
}

#[test]
fn two_adapters_are_one_of_both_ranks() {
    let (a, b) = (peft(&json!({}), &USUAL), peft(&json!({"r": 1}), &[(DOWN, &[1, 4]), (UP, &[6, 1])]));
    let file = over(a.path()).unwrap().adapted(b.path(), 2.0).unwrap();
    let shape = |leaf: &str| file.source.get(&format!("{Q}.{leaf}.weight")).unwrap().shape;
    assert_eq!((shape("lora_A"), shape("lora_B")), ([1, 3, 4], [1, 6, 3]));
    let value = safetensors_value(1);
    let row = [value * 1.5, value * 1.5, value * 6.0];
    assert_eq!(values(&*file.source, "lora_B"), [row; 6].concat());
    assert_eq!(file.source.tensors().len(), 4, "listed once");
    let wider = peft(&json!({"r": 1}), &[(DOWN, &[1, 5]), (UP, &[6, 1])]);
    let file = over(a.path()).unwrap().adapted(wider.path(), 1.0).unwrap();
    let e = file.source.get(&format!("{Q}.lora_A.weight")).unwrap_err().to_string();
    assert!(e.contains("one of 4 and of 5 inputs"), "{e}");
}

#[test]
fn settings_that_mean_something_else_are_refused_by_name() {
    for (settings, why) in [
        (json!({"peft_type": "IA3"}), "`IA3`; known is LORA"),
        (json!({"use_dora": true}), "use_dora"),
        (json!({"bias": "lora_only"}), "bias"),
        (json!({"modules_to_save": ["lm_head"]}), "modules_to_save"),
        (json!({"layer_replication": [[0, 1]]}), "layer_replication"),
        (json!({"alora_invocation_tokens": [1]}), "alora_invocation_tokens"),
        (json!({"target_parameters": ["experts"]}), "target_parameters"),
        (json!({"trainable_token_indices": [1]}), "trainable_token_indices"),
        (json!({"init_lora_weights": "pissa_niter_4"}), "path_initial_model_for_weight_conversion"),
        (json!({"init_lora_weights": "OLoRA"}), "takes from the model's weights"),
        (json!({"r": 3}), "an update of rank 2, where adapter_config.json says 3"),
        (json!({"r": 0}), "an update of rank 2, where adapter_config.json says 0"),
        (json!({"lora_alpha": "much"}), "lora_alpha"),
        (json!({"alpha_pattern": {"^model.*q_proj": 8}}), "plain names are known"),
        (json!({"alpha_pattern": {"q_proj": 8, "self_attn.q_proj": 9}}), "two patterns"),
        (json!({"rank_pattern": {"q_proj": "two"}}), "is no number"),
        (json!({"rank_pattern": 4}), "is no object"),
    ] {
        let e = refusal(&settings, &USUAL);
        assert!(e.contains(why) && e.contains("reading the adapter"), "{settings}: {e}");
    }
    assert!(over(peft(&json!({"lora_alpha": 1e39}), &USUAL).path()).is_err());
    let e = model().1.adapted(peft(&json!({}), &USUAL).path(), f32::NAN).unwrap_err().to_string();
    assert!(e.contains("cannot be taken NaN times"), "{e}");
}

#[test]
fn tensors_that_are_no_updates_or_do_not_fit_are_refused() {
    let saved = "base_model.model.lm_head.weight";
    let tokens = "base_model.model.model.embed_tokens.lora_embedding_A";
    let elsewhere: [(&str, &[usize]); 2] = [
        ("base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", &[2, 4]),
        ("base_model.model.model.layers.7.self_attn.q_proj.lora_B.weight", &[6, 2]),
    ];
    for (tensors, why) in [
        (vec![(saved, &[5, 4][..])], "lm_head.weight: this is no update of a matrix"),
        (vec![USUAL[0], USUAL[1], (tokens, &[2, 4])], "lora_embedding_A: this is no update"),
        (vec![USUAL[0]], "lora_B.weight"),
        (vec![USUAL[1]], "lora_A.weight"),
        (vec![(DOWN, &[2, 4]), (UP, &[6, 3])], "is none of a matrix"),
        (vec![(DOWN, &[2, 4]), (UP, &[0, 2])], "is none of a matrix"),
        (vec![(DOWN, &[2, 0]), (UP, &[6, 2])], "is none of a matrix"),
        (vec![USUAL[0], USUAL[1], (BASE, &[7, 4])], "no matrix of its update's size"),
        (
            elsewhere.to_vec(),
            "model.layers.7.self_attn.q_proj: the adapter changes this matrix, which the model does not have",
        ),
        (vec![], "it changes no matrix"),
    ] {
        let e = refusal(&json!({}), &tensors);
        assert!(e.contains(why), "{tensors:?}: {e}");
    }
}

/// Of a model that was saved without a head.
#[test]
fn names_of_a_model_without_a_head_are_found() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", CONFIG);
    let tensors: [(&str, &[usize]); 1] = [("layers.0.self_attn.q_proj.weight", &[6, 4])];
    write(folder.path(), "model.safetensors", safetensors_of(&tensors));
    let file = open(folder.path()).unwrap().adapted(peft(&json!({}), &USUAL).path(), 1.0).unwrap();
    assert_eq!(file.source.unused(), ["layers.0.self_attn.q_proj"]);
}

#[test]
fn what_is_no_adapter_is_told_so() {
    let (folder, model) = model();
    let e = model.adapted(folder.path(), 1.0).unwrap_err().to_string();
    assert!(e.contains("there is no adapter_config.json"), "{e}");
    let e = over(&folder.path().join("nowhere")).unwrap_err();
    assert!(e.contains("nowhere"), "{e}");
    let pickled = peft(&json!({}), &USUAL);
    std::fs::rename(
        pickled.path().join("adapter_model.safetensors"),
        pickled.path().join("adapter_model.bin"),
    )
    .unwrap();
    let e = over(pickled.path()).unwrap_err();
    assert!(e.contains("but adapter_model.bin, which is not read"), "{e}");
    // The weights in a folder stand for it.
    let whole = peft(&json!({}), &USUAL);
    assert!(over(&whole.path().join("adapter_model.safetensors")).is_ok());
}

fn gguf(set: impl FnOnce(&mut GgufWriter), tensors: &[(&str, [u64; 2])]) -> tempfile::NamedTempFile {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "llama").set("general.type", "adapter").set("adapter.type", "lora");
    writer.set("adapter.lora.alpha", 3.0f32);
    set(&mut writer);
    tensors.iter().for_each(|(name, dims)| {
        writer.tensor(name, dims, GgmlType::F32).unwrap();
    });
    let mut out = tempfile::NamedTempFile::new().unwrap();
    let mut data = writer.write_to(out.as_file_mut()).unwrap();
    for (name, dims) in tensors {
        let values: Vec<u8> = (0..dims[0] * dims[1]).flat_map(|i| (i as f32).to_le_bytes()).collect();
        data.write_data(name, &values).unwrap();
    }
    data.finish().unwrap();
    out
}

const HALVES: [(&str, [u64; 2]); 2] =
    [("blk.0.attn_q.weight.lora_a", [4, 2]), ("blk.0.attn_q.weight.lora_b", [2, 6])];

#[test]
fn a_gguf_files_rows_are_brought_back_into_order() {
    let file = over(gguf(|_| {}, &HALVES).path()).unwrap();
    // Neighbours turn together there, and halves here.
    let rows = [0, 2, 4, 1, 3, 5].map(|row| [2.0 * row as f32 * 1.5, (2.0 * row as f32 + 1.0) * 1.5]);
    assert_eq!(values(&*file.source, "lora_B"), rows.concat());
    let file = over(gguf(|w| _ = w.set("adapter.lora.alpha", 0.0f32), &HALVES).path()).unwrap();
    assert_eq!(values(&*file.source, "lora_B")[..2], [0.0, 1.0], "no factor is one of 1");
}

#[test]
fn gguf_files_that_are_no_adapter_of_the_model_are_refused() {
    let refusal = |set: fn(&mut GgufWriter), tensors: &[(&str, [u64; 2])]| {
        over(gguf(set, tensors).path()).map(|_| ()).unwrap_err()
    };
    for (set, why) in [
        ((|w| _ = w.set("general.type", "model")) as fn(&mut GgufWriter), "this is no adapter"),
        (|w| _ = w.set("adapter.type", "control"), "known is lora"),
        (|w| _ = w.set("adapter.lora.alpha", "much"), "adapter.lora.alpha"),
        (
            |w| _ = w.set("general.architecture", "qwen3"),
            "is for a Qwen3ForCausalLM, and the model is a LlamaForCausalLM",
        ),
        (|w| _ = w.set("adapter.alora.invocation_tokens", vec![1u32]), "some tokens on"),
    ] {
        let e = refusal(set, &HALVES);
        assert!(e.contains(why), "{e}");
    }
    for (tensors, why) in [
        (&HALVES[..1], "there is one"),
        (&[HALVES[0], HALVES[1], ("output_norm.weight", [4, 1])][..], "this is no update"),
        (
            &[("rope_freqs.weight.lora_a", [4, 2]), ("rope_freqs.weight.lora_b", [2, 6])],
            "no matrix by itself",
        ),
        (
            &[("token_embd.weight.lora_a", [4, 3]), ("token_embd.weight.lora_b", [2, 6])],
            "is none of a matrix",
        ),
    ] {
        let e = refusal(|_| {}, tensors);
        assert!(e.contains(why), "{tensors:?}: {e}");
    }
}

/// Every cut of a file is an error or an adapter.
#[test]
fn files_that_were_cut_off_are_errors() {
    let whole = std::fs::read(gguf(|_| {}, &HALVES).path()).unwrap();
    // What comes last only fills it up.
    for end in 0..whole.len() - 16 {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &whole[..end]).unwrap();
        assert!(over(file.path()).is_err(), "{end} of {} bytes", whole.len());
    }
    let folder = peft(&json!({}), &USUAL);
    for name in ["adapter_model.safetensors", "adapter_config.json"] {
        let path = folder.path().join(name);
        let whole = std::fs::read(&path).unwrap();
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert!(over(folder.path()).is_err(), "{name}: {end} of {} bytes", whole.len());
        }
        std::fs::write(&path, whole).unwrap();
    }
}
