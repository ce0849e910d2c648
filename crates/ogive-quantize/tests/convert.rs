//! Hugging Face folders against the GGUF files that llama.cpp's converter made of them.

mod common;

use common::{format, packed, shared};
use ogive_quantize::Input;
use ogive_quantize::gguf_file::{Gguf, Value};
use ogive_tokenizer::{EncodeOptions, Tokenizer};

/// Folders, their GGUF files, and whether the vocabulary is SentencePiece's.
const MODELS: &[(&str, bool)] = &[
    ("llama", true),
    ("mistral", true),
    ("mixtral", true),
    ("qwen2", false),
    ("qwen3", false),
    ("gemma2", true),
    ("gemma3", true),
    ("phi3", true),
    ("gpt2", false),
    ("llama3-rope", false),
    ("deepseek-v2", false),
];

fn theirs(name: &str) -> Option<Gguf> {
    Some(Gguf::open(shared(&format!("golden/{name}/{name}-f32.gguf"))?).unwrap())
}

fn ours(name: &str) -> Option<Gguf> {
    Some(
        packed(&format("f32"), &shared(&format!("golden/{name}"))?).unwrap_or_else(|e| panic!("{name}: {e}")),
    )
}

#[test]
fn tensors_are_the_converters_bit_for_bit() {
    for (name, _) in MODELS {
        let (Some(theirs), Some(ours)) = (theirs(name), ours(name)) else { return };
        assert_eq!(ours.tensors().len(), theirs.tensors().len(), "{name}");
        for t in theirs.tensors() {
            let own = ours.tensor(t.name()).unwrap_or_else(|| panic!("{name}: no {}", t.name()));
            assert_eq!((own.dims(), own.ggml_type()), (t.dims(), t.ggml_type()), "{name}: {}", t.name());
            let (a, b) = (common::values(&ours, t.name()), common::values(&theirs, t.name()));
            // Factors of frequencies are computed, there in another precision.
            let near = if t.name() == "rope_freqs.weight" { 1e-5 } else { 0.0 };
            let far = a.iter().zip(&b).find(|(a, b)| (*a - *b).abs() > near * b.abs());
            assert_eq!(far, None, "{name}: {}", t.name());
        }
    }
}

/// Keys that differ, and why.
fn justified(name: &str, key: &str, spm: bool) -> bool {
    match key {
        // The name of the folder here, of the model's card there.
        "general.name" | "general.basename" | "general.version" => true,
        // What the absence of a separator says anyhow.
        "tokenizer.ggml.add_sep_token" => true,
        // Written down here, the default there.
        "tokenizer.ggml.add_space_prefix" => spm,
        "tokenizer.ggml.add_eos_token" => name == "llama3-rope" || name == "deepseek-v2",
        "gemma2.rope.freq_base" => true,
        "mixtral.attention.key_length" => true,
        // The converter has SentencePiece's own model beside tokenizer.json; ranks of merges serve as well.
        "tokenizer.ggml.scores" => spm,
        // It takes the unknown token of Phi-3 for a control token.
        "tokenizer.ggml.token_type" => name == "phi3",
        // From tokenizer_config.json here and from config.json there.
        "tokenizer.ggml.padding_token_id" => true,
        // Derived by readers from the tokens' names; said here.
        "tokenizer.ggml.eot_token_id" => true,
        _ => false,
    }
}

#[test]
fn metadata_say_what_the_converters_say() {
    for (name, spm) in MODELS {
        let (Some(theirs), Some(ours)) = (theirs(name), ours(name)) else { return };
        let mut differ = Vec::new();
        let same = |a: &Value, b: &Value| match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
            (Some(a), Some(b), ..) => a == b,
            (.., Some(a), Some(b)) => (a - b).abs() <= 1e-6 * b.abs(),
            _ => a == b,
        };
        for (key, value) in theirs.metadata().iter() {
            match ours.metadata().get(key) {
                Some(own) if same(own, value) => {}
                own => differ.push(format!(
                    "{key}: {} instead of {value}",
                    own.map_or("nothing".into(), Value::to_string)
                )),
            }
        }
        for (key, value) in ours.metadata().iter().filter(|(key, _)| !theirs.metadata().contains(key)) {
            differ.push(format!("{key}: {value} instead of nothing"));
        }
        differ.retain(|d| !justified(name, d.split(": ").next().unwrap_or_default(), *spm));
        assert!(differ.is_empty(), "{name}: {differ:#?}");
    }
}

#[test]
fn texts_are_cut_as_the_folder_cuts_them() {
    let Some(texts) = shared("vocab/ext/texts.json") else { return };
    let texts: Vec<String> = serde_json::from_slice(&std::fs::read(texts).unwrap()).unwrap();
    for (name, _) in MODELS {
        let folder = shared(&format!("golden/{name}")).unwrap();
        let theirs = Tokenizer::from_folder(folder).unwrap();
        let made = Tokenizer::from_gguf(ours(name).unwrap().metadata()).unwrap();
        assert_eq!(
            (made.bos(), made.eos(), made.eog()),
            (theirs.bos(), theirs.eos(), theirs.eog()),
            "{name}"
        );
        assert_eq!(made.chat_template(), theirs.chat_template());
        let options = EncodeOptions::default();
        let differ: Vec<&String> = texts
            .iter()
            .filter(|t| made.encode(t, options).unwrap() != theirs.encode(t, options).unwrap())
            .collect();
        // GGUF has no normalizer, and Qwen's composes characters (28 of the texts are such).
        let most = if name.starts_with("qwen") { 28 } else { 0 };
        assert!(
            differ.len() <= most,
            "{name}: {} differ: {:?}",
            differ.len(),
            &differ[..differ.len().min(8)]
        );
    }
}

#[test]
fn sharded_folders_and_packed_formats() {
    let Some(folder) = shared("golden/llama-bf16-sharded") else { return };
    let input = Input::open(&folder).unwrap();
    let plan = format("bf16").plan(&input).unwrap();
    assert!(plan.iter().any(|t| t.to.name() == "BF16") && plan.iter().any(|t| t.to.name() == "F32"));
    let packed = packed(&format("q8_0"), &folder).unwrap();
    assert!(packed.tensors().iter().all(|t| ["Q8_0", "F32"].contains(&t.ggml_type().unwrap().name())));
    // A packed checkpoint is not packed again.
    for packed in ["qwen2-awq-g128", "qwen2-gptq-4bit-g128-sym"] {
        let e = Input::open(shared(&format!("golden/quant-hf/{packed}")).unwrap()).unwrap_err().to_string();
        assert!(e.contains("packed already"), "{e}");
    }
}

#[test]
fn what_is_not_converted_is_told_with_what_is() {
    let Some(folder) = shared("golden/llama") else { return };
    let copy = tempfile::tempdir().unwrap();
    for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(folder.join(file), copy.path().join(file)).unwrap();
    }
    let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
    std::fs::write(copy.path().join("config.json"), config.replace("LlamaForCausalLM", "YodelForCausalLM"))
        .unwrap();
    let e = Input::open(copy.path()).unwrap_err().to_string();
    assert!(e.contains("YodelForCausalLM") && e.contains("Qwen3ForCausalLM"), "{e}");
}
