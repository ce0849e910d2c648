//! RoBERTa's kin and heads for classes as GGUF files: llama.cpp's names and keys, the rows of positions, texts and pairs cut as the folder cuts
//! them, and what is refused.

mod common;

use common::{Tensor, format, none, packed, rewritten_own, values};
use ogive_quantize::Input;
use ogive_quantize::gguf_file::{Array, Gguf, GgufWriter, Value as Stored};
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
        let types = back.config.usize("type_vocab_size").unwrap();
        assert_eq!(types, if name == "bert-reranker" { 2 } else { 1 }, "{name}");
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
        ("hidden_activation", json!("mish")),
        ("rope_parameters", json!({"sliding_attention": {"rope_theta": 1e4}})),
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
        let notes = Input::open(folder.path()).unwrap().notes().to_vec();
        assert_eq!(
            notes.iter().filter(|note| note.contains("at the end of a text")).count(),
            usize::from(trims)
        );
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
fn activations_are_llama_cpps_by_name() {
    let translations = ogive_weights::translations();
    let modern = translations.iter().find(|t| t.architecture() == "modern-bert").unwrap();
    for (own, written, names) in [
        ("gelu", None, &["gelu", "geglu"][..]),
        ("silu", Some("silu"), &["silu", "swish", "swiglu"]),
        ("relu", Some("reglu"), &["relu", "reglu"]),
    ] {
        let folder = changed("modern-bert", |c| c["hidden_activation"] = own.into(), same, none);
        let made = Input::open(folder.path()).unwrap();
        let key = "modern-bert.hidden_activation";
        assert_eq!(made.metadata().opt_str(key).unwrap(), written, "{own}");
        let read_as = |name: &str| {
            let (mut metadata, mut file) = (made.metadata().clone(), Vec::new());
            metadata.set(key, name);
            GgufWriter::with_metadata(metadata).write_to(&mut file).unwrap().finish().unwrap();
            modern.config(&Gguf::from_bytes(file).unwrap())
        };
        for name in names {
            let config = read_as(name).unwrap();
            assert_eq!(config.opt_str("hidden_activation").unwrap(), Some(own), "{name}");
        }
        let e = read_as("mish").unwrap_err().to_string();
        assert!(e.contains("`mish`") && e.contains("swiglu"), "{e}");
    }
}

#[test]
fn a_bert_has_a_unigram_vocabulary_too() {
    // multilingual-e5-small's shape.
    let folder = changed(
        "bert",
        |c| (c["bos_token_id"], c["eos_token_id"], c["pad_token_id"]) = (0.into(), 2.into(), 1.into()),
        same,
        none,
    );
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(golden("xlm-roberta").join(file), folder.path().join(file)).unwrap();
    }
    let own = Tokenizer::from_folder(folder.path()).unwrap();
    let file = packed(&format("f32"), folder.path()).unwrap();
    let made = Tokenizer::from_gguf(file.metadata()).unwrap();
    for text in ["Once upon a time", " Lily  said: héllo ｗｏｒｌｄ", ""] {
        let ids = own.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(made.encode(text, EncodeOptions::default()).unwrap(), ids, "{text:?}");
        assert_eq!((ids.first(), ids.last()), (Some(&0), Some(&2)));
    }
    // All positions are used, as in a BERT.
    assert_eq!(file.tensor("position_embd.weight").unwrap().dims(), [48, 43]);
    let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
    assert_eq!((back.architecture.as_str(), back.config.usize("type_vocab_size").unwrap()), ("BertModel", 2));
    // Word pieces can be of lower-case texts, and these cannot.
    let lower = |folder: &Path| {
        let modules = json!([{"type": "sentence_transformers.models.Transformer", "path": ""}]);
        std::fs::write(folder.join("modules.json"), modules.to_string()).unwrap();
        std::fs::write(folder.join("sentence_bert_config.json"), r#"{"do_lower_case": true}"#).unwrap();
        Input::open(folder).map(|_| ()).map_err(|e| e.to_string())
    };
    assert!(lower(folder.path()).unwrap_err().contains("do_lower_case"));
    lower(changed("bert", same, same, none).path()).unwrap();
    let cased = changed("bert", same, |t| t["normalizer"]["lowercase"] = false.into(), none);
    assert!(lower(cased.path()).unwrap_err().contains("do_lower_case"));
}

#[test]
fn a_pooler_beside_the_head_is_left_out() {
    let folder = changed("roberta-reranker", same, same, |tensors| {
        for leaf in ["weight", "bias"] {
            let head = tensors.iter().find(|t| t.name == format!("classifier.dense.{leaf}")).unwrap();
            let name = format!("roberta.pooler.dense.{leaf}");
            let (dtype, shape, bytes) = (head.dtype.clone(), head.shape.clone(), vec![0; head.bytes.len()]);
            tensors.push(Tensor { name, dtype, shape, bytes });
        }
    });
    let file = packed(&format("f32"), folder.path()).unwrap();
    assert_eq!(values(&file, "cls.weight"), values(&made("roberta-reranker"), "cls.weight"));
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
    let typed = |t: &mut Value| {
        t["post_processor"] = json!({"type": "BertProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2]});
    };
    let e = opened(changed("roberta-reranker", |c| c["type_vocab_size"] = 2.into(), typed, none));
    assert!(e.contains("how two texts are one"), "{e}");
    // Of one type all tokens are.
    Input::open(changed("roberta-reranker", same, typed, none).path()).unwrap();
    // A head that the class does not have.
    let e = opened(changed("bert-reranker", |c| c["architectures"] = json!(["BertModel"]), same, none));
    assert!(e.contains("classifier") && e.contains("GGUF has no name"), "{e}");
    // Spaces that stay, and no mark before one that begins a text.
    let e = opened(changed("xlm-roberta", same, |t| t["pre_tokenizer"] = t["decoder"].clone(), none));
    assert!(e.contains("would cut"), "{e}");
    let e = opened(changed("xlm-roberta", same, |t| t["normalizer"] = json!({"type": "Lowercase"}), none));
    assert!(e.contains("would cut"), "{e}");
}
