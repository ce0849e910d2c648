//! EmbeddingGemma as a GGUF file: llama.cpp's names and keys, the layers behind the pooling, and what is refused.

mod common;

use common::{format, packed, values};
use ogive_quantize::Input;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden/embedding-gemma")
}

/// The folder with a change to one of its JSON files.
fn changed(file: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for own in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "3_Dense/config.json",
        "3_Dense/model.safetensors",
    ] {
        std::fs::create_dir_all(folder.path().join(own).parent().unwrap()).unwrap();
        std::fs::copy(golden().join(own), folder.path().join(own)).unwrap();
    }
    let path = folder.path().join(file);
    let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
    folder
}

/// What opening it fails with.
fn refusal(file: &str, change: impl FnOnce(&mut Value)) -> String {
    Input::open(changed(file, change).path()).map(|_| ()).unwrap_err().to_string()
}

/// By llama.cpp's `gemma-embedding`.
#[test]
fn tensors_and_keys_are_the_converters() {
    let (file, folder) = (packed(&format("f32"), &golden()).unwrap(), ogive_weights::open(golden()).unwrap());
    let m = file.metadata();
    assert_eq!(m.str("general.architecture").unwrap(), "gemma-embedding");
    let key = |key: &str| format!("gemma-embedding.{key}");
    for (name, want) in [
        ("block_count", 4),
        ("embedding_length", 48),
        ("context_length", 64),
        ("attention.key_length", 12),
        ("attention.sliding_window", 9),
        ("attention.sliding_window_pattern", 3),
        ("pooling_type", 1),
        ("dense_2_feat_in", 48),
        ("dense_2_feat_out", 72),
        ("dense_3_feat_in", 72),
        ("dense_3_feat_out", 48),
    ] {
        assert_eq!(m.u64(&key(name)).unwrap(), want, "{name}");
    }
    assert_eq!(m.opt_bool(&key("attention.causal")).unwrap(), Some(false));
    for (name, want) in [("rope.freq_base", 1e6), ("rope.freq_base_swa", 1e4)] {
        assert_eq!(m.opt_f32(&key(name)).unwrap(), Some(want), "{name}");
    }
    for name in ["add_bos_token", "add_eos_token"] {
        assert_eq!(m.opt_bool(&format!("tokenizer.ggml.{name}")).unwrap(), Some(true), "{name}");
    }
    let block = [
        "attn_k",
        "attn_k_norm",
        "attn_norm",
        "attn_output",
        "attn_q",
        "attn_q_norm",
        "attn_v",
        "ffn_down",
        "ffn_gate",
        "ffn_norm",
        "ffn_up",
        "post_attention_norm",
        "post_ffw_norm",
    ];
    let blocks = (0..4).flat_map(|i| block.map(|name| format!("blk.{i}.{name}.weight")));
    let beside = ["dense_2", "dense_3", "output_norm", "token_embd"].map(|name| format!("{name}.weight"));
    let mut want: Vec<String> = blocks.chain(beside).collect();
    let mut names: Vec<String> = file.tensors().iter().map(|t| t.name().to_owned()).collect();
    want.sort();
    names.sort();
    assert_eq!(names, want);
    let dense = folder.source.get("2_Dense.linear.weight").unwrap();
    assert_eq!(values(&file, "dense_2.weight"), dense.to_vec());
    // Norms are kept as factors.
    let norm = folder.source.get("norm.weight").unwrap().to_vec();
    let factors: Vec<f32> = norm.iter().map(|v| v + 1.0).collect();
    assert_eq!(values(&file, "output_norm.weight"), factors);
    let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
    assert_eq!(back.architecture, "Gemma3TextModel");
    for setting in ["sentence_dense", "layer_types", "use_bidirectional_attention", "sliding_window"] {
        assert_eq!(back.config.0[setting], folder.config.0[setting], "{setting}");
    }
}

#[test]
fn what_has_no_place_in_a_file_is_refused_by_name() {
    for (file, key, value) in [
        ("config.json", "use_bidirectional_attention", json!(false)),
        (
            "config.json",
            "layer_types",
            json!(["full_attention", "sliding_attention", "full_attention", "full_attention"]),
        ),
        ("config.json", "query_pre_attn_scalar", json!(20)),
        ("2_Dense/config.json", "activation_function", json!("torch.nn.modules.activation.Tanh")),
    ] {
        let e = refusal(file, |c| c[key] = value);
        assert!(e.contains(key), "{key}: {e}");
    }
    let e = refusal("modules.json", |m| _ = m.as_array_mut().unwrap().remove(3));
    assert!(e.contains("two layers `Dense`, and there are 1"), "{e}");
    let e = refusal("modules.json", |m| m[3]["path"] = "2_Dense".into());
    assert!(e.contains("\"2_Dense\" stands where GGUF has 3_Dense"), "{e}");
    // Layers that fit in either order.
    let e = refusal("modules.json", |m| m.as_array_mut().unwrap().swap(2, 3));
    assert!(e.contains("\"3_Dense\" stands where GGUF has 2_Dense"), "{e}");
}

#[test]
fn layers_with_windows_are_those_of_the_settings() {
    let kinds = |every: usize| -> Value {
        (1..=4).map(|i| if i % every == 0 { "full_attention" } else { "sliding_attention" }).collect()
    };
    for (said, every) in [
        (json!({}), 6),
        (json!({"sliding_window_pattern": 2}), 2),
        (json!({"_sliding_window_pattern": 3}), 3),
        // What is listed counts, as with the class.
        (json!({"layer_types": kinds(6), "sliding_window_pattern": 2}), 6),
        (json!({"layer_types": kinds(2), "sliding_window_pattern": 3}), 2),
    ] {
        let folder = changed("config.json", |c| {
            for key in ["layer_types", "sliding_window_pattern", "_sliding_window_pattern"] {
                c.as_object_mut().unwrap().remove(key);
            }
            c.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        });
        let file = packed(&format("bf16"), folder.path()).unwrap();
        let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
        assert_eq!(back.config.0["layer_types"], kinds(every), "{said}");
    }
}
