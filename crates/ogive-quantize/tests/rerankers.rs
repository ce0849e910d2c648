//! RoBERTa's kin and heads for classes as GGUF files: llama.cpp's names and keys, the rows of positions, texts and pairs cut as the folder cuts
//! them, and what is refused.

mod common;

use common::{Tensor, format, none, packed, rewritten_own, values};
use ogive_quantize::Input;
use ogive_quantize::gguf_file::{Array, Gguf, Value as Stored};
use ogive_tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

/// The folder once more with its own vocabulary, and changes to its settings, its tokenizer.json and its tensors.
fn changed(
    name: &str,
    settings: impl FnOnce(&mut Value),
    vocabulary: impl FnOnce(&mut Value),
    tensors: impl FnOnce(&mut Vec<Tensor>),
) -> tempfile::TempDir {
    let ids = if name.starts_with("bert") { json!([2, 3]) } else { json!([0, 2]) };
    let settings = |c: &mut Value| {
        (c["bos_token_id"], c["eos_token_id"]) = (ids[0].clone(), ids[1].clone());
        settings(c);
    };
    let folder = rewritten_own(name, settings, tensors);
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(golden(name).join(file), folder.path().join(file)).unwrap();
    }
    let path = folder.path().join("tokenizer.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    vocabulary(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
    folder
}

fn same(_: &mut Value) {}

fn made(name: &str) -> Gguf {
    packed(&format("f32"), &golden(name)).unwrap()
}

const HEAD: [&str; 4] = ["cls.bias", "cls.output.bias", "cls.output.weight", "cls.weight"];

#[test]
fn tensors_and_keys_are_the_converters() {
    for (name, own, context) in
        [("xlm-roberta", &[][..], 43), ("bert-reranker", &HEAD, 52), ("roberta-reranker", &HEAD, 62)]
    {
        let (file, folder) = (made(name), ogive_weights::open(golden(name)).unwrap());
        let m = file.metadata();
        let names = file.tensors().iter().map(|t| t.name().to_owned());
        let mut head: Vec<String> = names.filter(|name| name.starts_with("cls")).collect();
        head.sort();
        assert_eq!(head, own, "{name}");
        let dims = |tensor: &str| file.tensor(tensor).unwrap().dims().to_vec();
        assert_eq!(
            (dims("position_embd.weight"), m.u64("bert.context_length").unwrap()),
            (vec![48, context], context)
        );
        let table = "embeddings.position_embeddings.weight";
        let table = folder.source.get(table).or_else(|_| folder.source.get(&format!("bert.{table}")));
        let table =
            table.or_else(|_| folder.source.get("roberta.embeddings.position_embeddings.weight")).unwrap();
        let all = table.to_vec();
        assert_eq!(values(&file, "position_embd.weight"), all[all.len() - 48 * context as usize..], "{name}");
        let pooling = if own.is_empty() { 2 } else { 4 };
        assert_eq!(m.u64("bert.pooling_type").unwrap(), pooling, "{name}");
        assert_eq!(m.array_of_str("bert.classifier.output_labels").is_ok(), !own.is_empty(), "{name}");
        let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
        let class = if own.is_empty() { "BertModel" } else { "BertForSequenceClassification" };
        assert_eq!(
            (back.architecture.as_str(), back.config.usize("max_position_embeddings").unwrap()),
            (class, context as usize)
        );
    }
    let m = made("xlm-roberta");
    let m = m.metadata();
    for (key, want) in
        [("bos", 0), ("eos", 2), ("unknown", 3), ("seperator", 2), ("padding", 1), ("mask", 88)]
    {
        assert_eq!(m.u64(&format!("tokenizer.ggml.{key}_token_id")).unwrap(), want, "{key}");
    }
    for key in
        ["add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix", "remove_extra_whitespaces"]
    {
        assert_eq!(m.opt_bool(&format!("tokenizer.ggml.{key}")).unwrap(), Some(true), "{key}");
    }
    assert_eq!(m.str("tokenizer.ggml.model").unwrap(), "t5");
    let rules = m.get("tokenizer.ggml.precompiled_charsmap").and_then(Stored::as_array);
    assert!(matches!(rules, Some(Array::U8(rules)) if rules.len() > 1000), "{rules:?}");
    let kinds = m.opt_array_of_i32("tokenizer.ggml.token_type").unwrap().unwrap();
    assert_eq!((kinds.len(), &kinds[..5], &kinds[87..90]), (131, &[3, 3, 3, 2, 1][..], &[1, 3, 5][..]));
}

#[test]
fn a_modern_bert_says_which_layers_are_local_and_how_it_is_pooled() {
    for (name, window, thetas, pooling) in
        [("modern-bert", 5, [3e3, 700.0], None), ("modern-bert-reranker", 8, [160e3, 1e4], Some(1))]
    {
        let file = made(name);
        let key = |key: &str| format!("modern-bert.{key}");
        let m = file.metadata();
        assert_eq!(m.u64(&key("attention.sliding_window")).unwrap(), window, "{name}");
        assert_eq!(m.u64(&key("attention.sliding_window_pattern")).unwrap(), 3);
        let freqs = ["rope.freq_base", "rope.freq_base_swa"].map(|k| m.opt_f32(&key(k)).unwrap().unwrap());
        assert_eq!(freqs, thetas, "{name}");
        assert_eq!(m.opt_f32(&key("attention.layer_norm_epsilon")).unwrap(), Some(1e-3));
        assert_eq!(m.u64(&key("classifier.pooling_type")).ok(), pooling);
        let names = file.tensors().iter().map(|t| t.name().to_owned());
        let own =
            |name: &String| name.starts_with("cls") || name.starts_with("blk.1.") || !name.contains("blk");
        let mut names: Vec<String> = names.filter(own).collect();
        names.sort();
        let block = ["attn_norm", "attn_output", "attn_qkv", "ffn_down", "ffn_norm", "ffn_up"];
        let mut want: Vec<String> = block.iter().map(|t| format!("blk.1.{t}.weight")).collect();
        want.extend(["output_norm.weight", "token_embd.weight", "token_embd_norm.weight"].map(Into::into));
        let head = ["cls.norm.weight", "cls.output.bias", "cls.output.weight", "cls.weight"];
        want.extend(head.iter().filter(|_| pooling.is_some()).map(|t| (*t).to_owned()));
        want.sort();
        assert_eq!(names, want, "{name}");
        let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
        let said = back.config.opt_str("classifier_pooling").unwrap();
        assert_eq!(
            (back.config.usize("local_attention").unwrap(), said),
            (window as usize, pooling.map(|_| "mean"))
        );
        let class = if pooling.is_some() { "ModernBertForSequenceClassification" } else { "ModernBertModel" };
        assert_eq!(back.architecture, class);
    }
    for (key, value) in [
        ("norm_bias", json!(true)),
        ("hidden_activation", json!("relu")),
        ("classifier_activation", json!("silu")),
    ] {
        let folder = changed("modern-bert-reranker", |c| c[key] = value, same, none);
        let e = Input::open(folder.path()).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains(key), "{key}: {e}");
    }
}

#[test]
fn texts_and_pairs_are_cut_as_the_folder_cuts_them() {
    // As transformers converts vocabularies today, and as it did when bge-m3 was published, which keeps a space at the end.
    let newer = |json: &mut Value| {
        let end = json!({"type": "Strip", "strip_left": false, "strip_right": true});
        let spaces = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"});
        json["normalizer"] =
            json!({"type": "Sequence", "normalizers": [json["normalizer"].clone(), end, spaces]});
        json["pre_tokenizer"] = json["decoder"].clone();
    };
    let older = |json: &mut Value| {
        let spaces = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
        json["normalizer"] = json!({"type": "Sequence", "normalizers": [json["normalizer"].clone(), spaces]});
        json["pre_tokenizer"] = json["decoder"].clone();
    };
    for (name, change, trims) in [
        ("xlm-roberta", &same as &dyn Fn(&mut Value), false),
        ("xlm-roberta", &newer, false),
        ("xlm-roberta", &older, true),
        ("bert-reranker", &same, false),
        ("roberta-reranker", &same, false),
        ("modern-bert-reranker", &same, false),
    ] {
        let folder = changed(name, same, change, none);
        let own = Tokenizer::from_folder(folder.path()).unwrap();
        let made = packed(&format("f32"), folder.path()).unwrap_or_else(|e| panic!("{name}, {trims}: {e}"));
        let made = Tokenizer::from_gguf(made.metadata()).unwrap();
        let golden: Value =
            serde_json::from_slice(&std::fs::read(golden("xlm-roberta").join("golden.json")).unwrap())
                .unwrap();
        for text in golden["texts"]["of"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()) {
            let text = if trims {
                text.trim_end_matches(|c: char| c.is_whitespace() || "\u{200b}\u{1}\u{7}\u{fffd}".contains(c))
            } else {
                text
            };
            for options in [EncodeOptions::TEXT, EncodeOptions::default()] {
                assert_eq!(
                    made.encode(text, options).unwrap(),
                    own.encode(text, options).unwrap(),
                    "{name}: {text:?}"
                );
            }
        }
        // ModernBERT has no types, and so has its file.
        let pair = |tokenizer: &Tokenizer| tokenizer.pair(&[7, 8], &[9]).unwrap();
        assert_eq!(pair(&made).0, pair(&own).0, "{name}");
        assert_eq!(pair(&made).1 == pair(&own).1, !name.starts_with("modern"), "{name}");
    }
}

#[test]
fn what_has_no_place_in_a_file_is_refused_by_name() {
    let opened = |folder: tempfile::TempDir| {
        let e = Input::open(folder.path()).map(|_| ()).unwrap_err().to_string();
        assert!(!e.contains('\n'), "{e}");
        e
    };
    let e =
        opened(changed("roberta-reranker", same, same, |t| t.retain(|t| t.name != "classifier.dense.bias")));
    assert!(e.contains("the tensor cls.bias") && e.contains("download"), "{e}");
    let e =
        opened(changed("bert-reranker", same, same, |t| t.retain(|t| t.name != "bert.pooler.dense.weight")));
    assert!(e.contains("the tensor cls.weight"), "{e}");
    let e = opened(changed("roberta-reranker", |c| c["max_position_embeddings"] = 63.into(), same, none));
    assert!(e.contains("not as many rows as the settings say"), "{e}");
    let e = opened(changed("roberta-reranker", |c| c["pad_token_id"] = Value::Null, same, none));
    assert!(e.contains("pad_token_id"), "{e}");
    let e = opened(changed("roberta-reranker", same, |t| t["post_processor"] = Value::Null, none));
    assert!(e.contains("how two texts are one"), "{e}");
    // A head that the class does not have.
    let e = opened(changed("bert-reranker", |c| c["architectures"] = json!(["BertModel"]), same, none));
    assert!(e.contains("classifier") && e.contains("GGUF has no name"), "{e}");
    // Spaces that stay, and no mark before one that begins a text.
    let e = opened(changed("xlm-roberta", same, |t| t["pre_tokenizer"] = t["decoder"].clone(), none));
    assert!(e.contains("would cut"), "{e}");
    let e = opened(changed("xlm-roberta", same, |t| t["normalizer"] = json!({"type": "Lowercase"}), none));
    assert!(e.contains("would cut"), "{e}");
}
