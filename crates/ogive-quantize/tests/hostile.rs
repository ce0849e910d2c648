//! What goes wrong: inputs that are damaged, disks that fill up, names that are taken. Nothing half-written stays.

mod common;

use common::{format, packed, shared};
use ogive_quantize::{Error, GgmlType, Input};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// A copy of a golden folder, with changes to one of its JSON files.
fn changed(name: &str, file: &str, change: impl FnOnce(&mut Value)) -> Option<tempfile::TempDir> {
    let from = shared(&format!("golden/{name}"))?;
    let folder = tempfile::tempdir().unwrap();
    for f in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::write(folder.path().join(f), std::fs::read(from.join(f)).unwrap()).unwrap();
    }
    let path = folder.path().join(file);
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
    Some(folder)
}

fn message(folder: &Path) -> String {
    Input::open(folder).map(|_| ()).unwrap_err().to_string()
}

type Change = fn(&mut Value);

#[test]
fn settings_that_are_missing_or_have_no_place() {
    let cases: &[(&str, Change, &str)] = &[
        ("llama", |c| _ = c.as_object_mut().unwrap().remove("num_hidden_layers"), "num_hidden_layers"),
        ("llama", |c| _ = c.as_object_mut().unwrap().remove("hidden_size"), "hidden_size"),
        ("llama", |c| _ = c.as_object_mut().unwrap().remove("architectures"), "architectures"),
        ("llama", |c| c["architectures"] = json!(["RwkvForCausalLM"]), "not converted; known are "),
        ("llama", |c| c["num_attention_heads"] = json!("four"), "a whole number"),
        ("llama", |c| c["num_hidden_layers"] = json!(3), "layer"),
        ("llama", |c| c["num_hidden_layers"] = json!(1), "layers"),
        ("llama", |c| c["num_hidden_layers"] = json!(1_u64 << 60), "layer"),
        ("llama", |c| c["max_position_embeddings"] = json!(1_u64 << 40), "32 bits"),
        ("llama", |c| c["hidden_act"] = json!("gelu"), "hidden_act"),
        ("llama", |c| c["rope_scaling"] = json!({"rope_type": "dynamic", "factor": 2.0}), "dynamic"),
        ("llama", |c| c["rope_scaling"] = json!({"rope_type": "linear"}), "factor"),
        (
            "llama",
            |c| {
                c["rope_scaling"] = json!({"rope_type": "yarn", "factor": 2.0, "truncate": false,
                    "original_max_position_embeddings": 64});
            },
            "`truncate` is false",
        ),
        // Only Phi-3's files have the lists, and a factor that GGUF's readers take for silence is no scaling.
        (
            "llama",
            |c| {
                let list = [1.0; 8];
                c["rope_scaling"] = json!({"rope_type": "longrope", "long_factor": list, "short_factor": list,
                    "original_max_position_embeddings": 64});
            },
            "LongRoPE) for llama; only Phi-3's and Phi-3.5-MoE's have",
        ),
        (
            "llama",
            |c| c["rope_scaling"] = json!({"rope_type": "linear", "factor": 0.0}),
            "its type is linear, and a GGUF file of llama means none",
        ),
        ("llama", |c| c["rope_parameters"] = json!({"odd": {"factor": 2.0}}), "rope_parameters"),
        (
            "gemma2",
            |c| c["attn_logit_softcapping"] = Value::Null,
            "it is null, and a GGUF file of gemma2 means 50",
        ),
        (
            "gemma2",
            |c| c["final_logit_softcapping"] = Value::Null,
            "it is null, and a GGUF file of gemma2 means 30",
        ),
        ("gemma2", |c| c["query_pre_attn_scalar"] = json!(99), "query_pre_attn_scalar"),
        ("gemma2", |c| c["layer_types"] = json!(vec!["full_attention"; 4]), "layer_types"),
        ("qwen2", |c| c["use_sliding_window"] = json!(true), "use_sliding_window"),
        ("gpt2", |c| c["scale_attn_by_inverse_layer_idx"] = json!(true), "scale_attn_by_inverse_layer_idx"),
        (
            "mixtral",
            |c| c["quantization_config"] = json!({"quant_method": "awq", "bits": 4, "group_size": 128}),
            "packed already",
        ),
    ];
    for (name, change, why) in cases {
        let Some(folder) = changed(name, "config.json", change) else { return };
        let e = message(folder.path());
        assert!(e.contains(why) && !e.contains('\n'), "{why}: {e}");
    }
}

#[test]
fn layers_without_experts_among_a_mixture_have_no_place() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden/qwen3-moe");
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(golden.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let config = std::fs::read(golden.join("config.json")).unwrap();
    for (setting, value) in [("mlp_only_layers", json!([1])), ("decoder_sparse_step", json!(2))] {
        let mut config: Value = serde_json::from_slice(&config).unwrap();
        config[setting] = value;
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let e = message(folder.path());
        assert!(e.contains(setting) && e.contains("have no experts"), "{e}");
    }
}

#[test]
fn a_window_that_the_class_takes_for_granted_is_written_down() {
    let silent: Change =
        |c| c.as_object_mut().unwrap().retain(|k, _| k != "sliding_window" && k != "layer_types");
    let Some(folder) = changed("gemma3", "config.json", silent) else { return };
    let input = Input::open(folder.path()).unwrap();
    assert_eq!(input.metadata().u32("gemma3.attention.sliding_window").unwrap(), 4096);
}

#[test]
fn what_a_class_takes_for_granted_is_what_the_file_says() {
    for (name, setting, want) in [
        ("mistral", "sliding_window", 4096.0),
        ("mixtral", "rope_theta", 1e6),
        ("mixtral", "rms_norm_eps", 1e-5),
        ("phi3", "rms_norm_eps", 1e-5),
        ("gemma2", "attn_logit_softcapping", 50.0),
        ("gemma2", "num_key_value_heads", 4.0),
    ] {
        let silent = |c: &mut Value| _ = c.as_object_mut().unwrap().remove(setting);
        let Some(folder) = changed(name, "config.json", silent) else { return };
        let file = packed(&format("f32"), folder.path()).unwrap();
        let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
        assert_eq!(back.config.opt_f32(setting).unwrap(), Some(want), "{name}: {setting}");
    }
}

#[test]
fn attention_that_looks_ahead_is_written_down() {
    for name in ["llama", "qwen2"] {
        for causal in [true, false] {
            let looks = |c: &mut Value| c["is_causal"] = json!(causal);
            let Some(folder) = changed(name, "config.json", looks) else { return };
            let file = packed(&format("f32"), folder.path()).unwrap();
            let key = std::format!("{name}.attention.causal");
            assert_eq!(file.metadata().opt_bool(&key).unwrap(), (!causal).then_some(false), "{name}");
            let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
            assert_eq!(back.config.bool_or("is_causal", true).unwrap(), causal, "{name}");
        }
    }
}

#[test]
fn a_window_that_is_left_over_is_left_out() {
    let window: Change = |c| c["sliding_window"] = json!(6);
    for (name, key) in [("llama", None), ("mistral", Some(6))] {
        let Some(folder) = changed(name, "config.json", window) else { return };
        let input = Input::open(folder.path()).unwrap();
        assert_eq!(input.metadata().opt_u32("llama.attention.sliding_window").unwrap(), key, "{name}");
    }
}

#[test]
fn what_a_class_does_not_know_is_neither_obeyed_nor_written() {
    for off in [json!(false), json!(true)] {
        let qwens = |c: &mut Value| {
            (c["sliding_window"], c["use_sliding_window"]) = (json!(6), off);
            (c["max_window_layers"], c["layer_types"]) =
                (json!(1), json!(["full_attention", "sliding_attention"]));
        };
        let Some(folder) = changed("mistral", "config.json", qwens) else { return };
        let input = Input::open(folder.path()).unwrap();
        assert_eq!(input.metadata().opt_u32("llama.attention.sliding_window").unwrap(), Some(6));
    }
    let Some(folder) = changed("gemma3", "config.json", |c| c["attn_logit_softcapping"] = json!(5.0)) else {
        return;
    };
    let input = Input::open(folder.path()).unwrap();
    assert!(input.metadata().opt_f32("gemma3.attn_logit_softcapping").unwrap().is_none());
}

#[test]
fn texts_that_are_lower_cased_have_no_place() {
    let Some(folder) = changed("llama", "config.json", |_| {}) else { return };
    let modules = json!([{"type": "sentence_transformers.models.Transformer", "path": ""}]);
    std::fs::write(folder.path().join("modules.json"), modules.to_string()).unwrap();
    std::fs::write(folder.path().join("sentence_bert_config.json"), r#"{"do_lower_case": true}"#).unwrap();
    let e = message(folder.path());
    assert!(e.contains("do_lower_case"), "{e}");
}

#[test]
fn vocabularies_that_are_broken_or_have_no_place() {
    let cases: &[(&str, Change, &str)] = &[
        ("llama", |t| t["model"]["type"] = json!("Unigram"), ""),
        ("llama", |t| t["model"]["merges"] = json!([["a"]]), "merge"),
        ("llama", |t| t["model"]["merges"] = json!(["nospace"]), "merge"),
        ("llama", |t| t["model"]["vocab"]["zzz"] = json!(1_u64 << 31), ""),
        ("llama", |t| t["model"]["vocab"]["one more"] = json!(512), "embedding"),
        ("llama", |t| *t = json!([]), "tokenizer.json"),
        ("llama", |t| _ = t.as_object_mut().unwrap().remove("model"), "model"),
        // A lower-casing normalizer cannot be said.
        ("qwen2", |t| t["normalizer"] = json!({"type": "Lowercase"}), "normalizer"),
        (
            "qwen2",
            |t| t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!("\\p{L}+"),
            "pre_tokenizer",
        ),
        ("gpt2", |t| t["pre_tokenizer"]["add_prefix_space"] = json!(true), "pre_tokenizer"),
        ("gpt2", |t| t["model"]["vocab"] = json!({"a": 0}), ""),
    ];
    for (name, change, why) in cases {
        let Some(folder) = changed(name, "tokenizer.json", change) else { return };
        let e = message(folder.path());
        assert!(e.contains(why) && !e.contains('\n'), "{why}: {e}");
    }
}

#[test]
fn any_damage_to_the_json_files_is_an_error_or_a_model() {
    let Some(folder) = changed("llama", "config.json", |_| {}) else { return };
    let mut state = 1_u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        let path = folder.path().join(file);
        let whole = std::fs::read(&path).unwrap();
        for _ in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..=below(3) {
                let at = below(bytes.len());
                match below(3) {
                    0 => bytes[at] = below(256) as u8,
                    1 => bytes.truncate(at.max(1)),
                    _ => _ = bytes.splice(at..at, b"99999999999".iter().copied()).count(),
                }
            }
            std::fs::write(&path, bytes).unwrap();
            // An error or a model, but no panic.
            _ = Input::open(folder.path()).map(|i| packed(&format("q8_0"), folder.path()).map(|_| i.bytes()));
        }
        std::fs::write(&path, whole).unwrap();
    }
    assert!(Input::open(folder.path()).is_ok());
}

/// Fails as a full disk does.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn full_disks_are_told() {
    let Some(path) = shared("golden/llama/llama-f32.gguf") else { return };
    let input = Input::open(path).unwrap();
    for room in [0, 100, 10_000, 50_000, 120_000] {
        let e = format("q8_0").write_to(&input, Full(room), |_| true).unwrap_err();
        let mut text = e.to_string();
        let mut cause = std::error::Error::source(&e);
        while let Some(c) = cause {
            text += &c.to_string();
            cause = c.source();
        }
        assert!(text.contains("writing") && text.contains("storage"), "{text}");
    }
}

#[test]
fn names_that_are_taken() {
    let Some(model) = shared("golden/llama/llama-f32.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.gguf"), folder.path().join("out.gguf"));
    std::fs::write(&input, std::fs::read(&model).unwrap()).unwrap();
    std::fs::write(&output, b"precious").unwrap();
    let run = |force: bool, to: &Path| format("q8_0").overwrite(force).run(&input, to, |_| true);
    assert!(matches!(run(false, &output), Err(Error::Exists { .. })));
    assert!(matches!(run(true, folder.path()), Err(Error::Output { .. })));
    assert!(matches!(run(true, &input), Err(Error::Output { .. })));
    let e = run(false, &folder.path().join("no/such.gguf")).unwrap_err().to_string();
    assert!(e.contains("no/such.gguf"), "{e}");
    // Stopped in the middle: what was there stays, and nothing else is left.
    let mut steps = 0;
    let stopped = format("q8_0").overwrite(true).run(&input, &output, |_| {
        steps += 1;
        steps < 5
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(std::fs::read(&output).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    let summary = run(true, &output).unwrap();
    assert!(summary.bits_per_weight() > 8.4 && summary.bytes_after < summary.bytes_before / 3);
    #[cfg(unix)]
    assert!(run(true, Path::new("/dev/full")).unwrap_err().to_string().contains("no plain file"));
}

/// Whichever of its files was named, and whichever of them the output would replace.
#[test]
fn no_file_of_a_folder_is_replaced() {
    let Some(folder) = changed("llama", "config.json", |_| {}) else { return };
    let at = |name: &str| folder.path().join(name);
    let beside = [
        "chat_template.jinja",
        "vocab.txt",
        "1_Pooling/config.json",
        "additional_chat_templates/tools.jinja",
    ];
    for folder in ["1_Pooling", "additional_chat_templates"] {
        std::fs::create_dir(at(folder)).unwrap();
    }
    beside.iter().for_each(|name| std::fs::write(at(name), "{}").unwrap());
    for input in ["", "config.json", "model.safetensors"] {
        for output in ["model.safetensors", "config.json", "tokenizer.json"].into_iter().chain(beside) {
            let before = std::fs::read(at(output)).unwrap();
            let ran = format("q8_0").overwrite(true).run(at(input), at(output), |_| true);
            assert!(matches!(ran, Err(Error::Output { .. })), "{input} to {output}: {ran:?}");
            assert!(std::fs::read(at(output)).unwrap() == before);
        }
    }
    format("q8_0").run(folder.path(), at("model.gguf"), |_| true).unwrap();
}

#[test]
fn packed_models_are_packed_again_only_when_allowed() {
    let Some(model) = shared("golden/llama/llama-Q8_0.gguf") else { return };
    let e = packed(&format("q4_0"), &model).unwrap_err().to_string();
    assert!(e.contains("packed as Q8_0 already") && e.contains("allow requantizing"), "{e}");
    let again = packed(&format("q4_0").allow_requantize(true), &model).unwrap();
    assert!(again.tensors().iter().any(|t| t.ggml_type() == Some(GgmlType::Q4_0)));
    // The same format again changes nothing.
    let same = packed(&format("q8_0"), &model).unwrap();
    let original = ogive_quantize::gguf_file::Gguf::open(&model).unwrap();
    for t in original.tensors() {
        assert!(same.data_of(t.name()).unwrap().bytes() == original.data(t).unwrap().bytes(), "{}", t.name());
    }
}

#[test]
fn vocabularies_alone_are_not_models() {
    let Some(vocabulary) = shared("vocab/ggml-vocab-gpt-2.gguf") else { return };
    assert!(matches!(Input::open(vocabulary), Err(Error::Empty { .. })));
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [("empty.gguf", &b""[..]), ("text.txt", b"Once upon a time")] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        assert!(Input::open(path).unwrap_err().to_string().contains(name));
    }
    assert!(Input::open(folder.path()).unwrap_err().to_string().contains("config.json"));
    assert!(Input::open(folder.path().join("none.gguf")).is_err());
}
