//! Encoders' folders as GGUF files: names and keys of llama.cpp's converter, the folder's texts cut as the folder cuts them.

mod common;

use common::{format, packed, values};
use ogive_quantize::Input;
use ogive_quantize::gguf_file::Gguf;
use ogive_tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A tiny encoder of the repository, of another crate's tests.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

fn read(folder: &Path, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// The folder once more, with changes to one of its JSON files.
fn changed(name: &str, file: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    for own in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "1_Pooling/config.json",
    ] {
        std::fs::copy(golden(name).join(own), folder.path().join(own)).unwrap();
    }
    let mut json = read(folder.path(), file);
    change(&mut json);
    std::fs::write(folder.path().join(file), json.to_string()).unwrap();
    folder
}

fn refusal(name: &str, file: &str, change: impl FnOnce(&mut Value)) -> String {
    Input::open(changed(name, file, change).path()).unwrap_err().to_string()
}

/// Tensors of a layer, and those outside, by gguf-py's `TensorNameMap` for these architectures.
const BERT: (&[&str], &[&str]) = (
    &[
        "attn_k",
        "attn_output",
        "attn_output_norm",
        "attn_q",
        "attn_v",
        "ffn_down",
        "ffn_up",
        "layer_output_norm",
    ],
    &[
        "position_embd.weight",
        "token_embd.weight",
        "token_embd_norm.bias",
        "token_embd_norm.weight",
        "token_types.weight",
    ],
);
const NOMIC: (&[&str], &[&str]) = (
    &["attn_output", "attn_output_norm", "attn_qkv", "ffn_down", "ffn_gate", "ffn_up", "layer_output_norm"],
    &["token_embd.weight", "token_embd_norm.bias", "token_embd_norm.weight", "token_types.weight"],
);

#[test]
fn tensors_have_the_converters_names_and_the_folders_numbers() {
    for (name, (inside, outside)) in [("bert", BERT), ("nomic-bert", NOMIC)] {
        let file = packed(&format("f32"), &golden(name)).unwrap();
        let mut want: Vec<String> = outside.iter().map(|t| (*t).to_owned()).collect();
        for layer in 0..2 {
            for t in inside {
                want.push(format!("blk.{layer}.{t}.weight"));
                // Nomic's matrices have no biases.
                want.extend((name == "bert" || t.ends_with("norm")).then(|| format!("blk.{layer}.{t}.bias")));
            }
        }
        let mut got: Vec<String> = file.tensors().iter().map(|t| t.name().to_owned()).collect();
        want.sort();
        got.sort();
        assert_eq!(got, want, "{name}");
        let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
        let folder = ogive_weights::open(golden(name)).unwrap();
        for info in folder.source.tensors() {
            let (a, b) = (folder.source.get(&info.name).unwrap(), back.source.get(&info.name).unwrap());
            assert_eq!((a.shape, a.to_vec()), (b.shape, b.to_vec()), "{name}: {}", info.name);
        }
    }
}

/// The keys that gguf-py 0.19's `SpecialVocab` and llama.cpp's `BertModel` write for these folders.
#[test]
fn metadata_say_what_the_converters_say() {
    for (name, pooling, context) in [("bert", 2, 43), ("nomic-bert", 1, 64)] {
        let file = packed(&format("f32"), &golden(name)).unwrap();
        let m = file.metadata();
        for (key, want) in [
            ("block_count", 2),
            ("context_length", context),
            ("embedding_length", 48),
            ("feed_forward_length", 56),
            ("attention.head_count", 3),
            ("pooling_type", pooling),
        ] {
            assert_eq!(m.u64(&format!("{name}.{key}")).unwrap(), want, "{name}.{key}");
        }
        assert_eq!(m.opt_bool(&format!("{name}.attention.causal")).unwrap(), Some(false));
        assert_eq!(m.opt_f32(&format!("{name}.attention.layer_norm_epsilon")).unwrap(), Some(1e-3));
        assert_eq!(m.opt_f32(&format!("{name}.rope.freq_base")).unwrap(), (name != "bert").then_some(1000.0));
        assert_eq!(m.str("tokenizer.ggml.model").unwrap(), "bert");
        for (key, want) in [
            ("token_type_count", 2),
            ("bos_token_id", 2),
            ("eos_token_id", 3),
            ("unknown_token_id", 1),
            ("seperator_token_id", 3),
            ("padding_token_id", 0),
            ("mask_token_id", 4),
        ] {
            assert_eq!(m.u64(&format!("tokenizer.ggml.{key}")).unwrap(), want, "{key}");
        }
        for key in ["add_bos_token", "add_eos_token"] {
            assert_eq!(m.opt_bool(&format!("tokenizer.ggml.{key}")).unwrap(), Some(true), "{key}");
        }
        let tokens: Vec<&str> =
            m.array_of_str("tokenizer.ggml.tokens").unwrap().iter_str().map(|t| t.unwrap()).collect();
        assert_eq!((tokens[1], tokens[23], tokens[34], tokens[130]), ("[UNK]", "▁the", "ing", "▁[unused30]"));
        let kinds = m.opt_array_of_i32("tokenizer.ggml.token_type").unwrap().unwrap();
        assert!(kinds.iter().enumerate().all(|(i, kind)| *kind == if i < 5 { 3 } else { 1 }));
    }
}

#[test]
fn texts_are_cut_as_the_folder_cuts_them() {
    let keeps_accents = |json: &mut Value| json["normalizer"]["strip_accents"] = false.into();
    let keeps_case = |json: &mut Value| json["normalizer"]["lowercase"] = false.into();
    let same = |_: &mut Value| {};
    let golden = read(&golden("bert"), "golden.json");
    let texts: Vec<&str> =
        golden["texts"]["of"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    for change in [&same as &dyn Fn(&mut Value), &keeps_accents, &keeps_case] {
        let folder = changed("bert", "tokenizer.json", change);
        let own = Tokenizer::from_folder(folder.path()).unwrap();
        let file = packed(&format("f32"), folder.path()).unwrap();
        let made = Tokenizer::from_gguf(file.metadata()).unwrap();
        for text in &texts {
            for options in [EncodeOptions::TEXT, EncodeOptions::PROMPT] {
                assert_eq!(
                    made.encode(text, options).unwrap(),
                    own.encode(text, options).unwrap(),
                    "{text:?}"
                );
            }
        }
    }
}

/// A checkpoint as the first were saved: everything below `bert.`, norms of gamma and beta, heads for training.
#[test]
fn the_first_checkpoints_names_are_converted_and_their_heads_left_out() {
    let folder = changed("bert", "config.json", |c| c["architectures"] = json!(["BertForPreTraining"]));
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let (header, mut data) = (&bytes[8..8 + len], bytes[8 + len..].to_vec());
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let old = |name: &str| match name.contains("LayerNorm") {
        _ if name == "__metadata__" => name.to_owned(),
        true => format!("bert.{name}").replace(".weight", ".gamma").replace(".bias", ".beta"),
        false => format!("bert.{name}"),
    };
    let mut renamed: serde_json::Map<String, Value> =
        header.into_iter().map(|(name, value)| (old(&name), value)).collect();
    for head in ["bert.pooler.dense.bias", "cls.predictions.bias", "bert.embeddings.position_ids"] {
        let at = data.len();
        data.extend([0; 8]);
        renamed.insert(head.into(), json!({"dtype": "F32", "shape": [2], "data_offsets": [at, at + 8]}));
    }
    let header = Value::Object(renamed).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(&path, file).unwrap();
    let (made, plain) =
        (packed(&format("f32"), folder.path()).unwrap(), packed(&format("f32"), &golden("bert")).unwrap());
    assert_eq!(made.tensors().len(), plain.tensors().len());
    for t in plain.tensors() {
        assert_eq!(values(&made, t.name()), values(&plain, t.name()), "{}", t.name());
    }
}

#[test]
fn packed_encoders_keep_their_tables_whole() {
    let file: Gguf = packed(&format("q8_0"), &golden("bert")).unwrap();
    let ty = |name: &str| file.tensor(name).unwrap().ggml_type().unwrap().name();
    assert_eq!((ty("position_embd.weight"), ty("token_types.weight")), ("F32", "F32"));
    assert_eq!(values(&file, "token_embd_norm.bias").len(), 48);
}

#[test]
fn what_has_no_place_in_a_file_is_refused_by_name() {
    for (name, key, value) in [
        ("bert", "position_embedding_type", json!("relative_key")),
        ("bert", "hidden_act", json!("gelu_new")),
        ("nomic-bert", "prenorm", json!(true)),
        ("nomic-bert", "activation_function", json!("geglu")),
        ("nomic-bert", "rotary_emb_scale_base", json!(512)),
        ("nomic-bert", "moe_every_n_layers", json!(2)),
    ] {
        let e = refusal(name, "config.json", |c| c[key] = value);
        assert!(e.contains(key), "{key}: {e}");
    }
    for (key, value) in [
        ("normalizer", json!({"type": "Lowercase"})),
        ("pre_tokenizer", json!({"type": "Whitespace"})),
        (
            "normalizer",
            json!({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true}),
        ),
    ] {
        let e = refusal("bert", "tokenizer.json", |c| c[key] = value);
        assert!(e.contains("BERT's rules"), "{key}: {e}");
    }
    let e = refusal("bert", "modules.json", |c| c[1]["type"] = "sentence_transformers.models.Dense".into());
    assert!(e.contains("a layer `Dense`"), "{e}");
    let e = refusal("bert", "config.json", |c| c["num_hidden_layers"] = 3.into());
    assert!(e.contains("layer 2 of 3"), "{e}");
}
