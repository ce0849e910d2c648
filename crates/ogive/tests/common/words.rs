//! A model that says what it is told to, in words of its own.

#[path = "script.rs"]
mod script;

use ogive::sampler::Chain;
use ogive::{Model, Prompt};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Small and random, whose tokens are these words, special or not, and letters. `<|im_end|>` ends its texts.
pub(crate) fn model(folder: &Path, special: &[&str], plain: &[&str]) -> Model {
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/llama"));
    fs::copy(golden.join("model.safetensors"), folder.join("model.safetensors")).unwrap();
    let config = fs::read_to_string(golden.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    // The model's own 64 hold few words.
    config["max_position_embeddings"] = json!(512);
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let special = ["<unk>", "<s>"].iter().chain(special).map(|name| (name, true));
    let added = (0..).zip(special.chain(plain.iter().map(|name| (name, false))));
    let added = added.map(|(id, (name, special))| {
        json!({ "id": id, "content": name, "special": special, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false })
    });
    let added: Vec<Value> = added.collect();
    let letters = ('!'..='~').chain(['Ċ', 'Ġ']).map(String::from);
    let vocab = (added.len()..).zip(letters).map(|(id, letter)| (letter, json!(id)));
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true });
    let tokenizer = json!({ "version": "1.0", "added_tokens": added, "pre_tokenizer": bytes, "decoder": bytes,
        "model": { "type": "BPE", "vocab": serde_json::Map::from_iter(vocab), "merges": [] } });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let config = json!({ "eos_token": "<|im_end|>" });
    fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
    ogive::open(folder).unwrap()
}

/// Draws these words after a prompt.
#[allow(dead_code)]
pub(crate) fn script(model: &Model, prompt: &str, words: &[&str]) -> Chain {
    let encode = |text: &str| model.encode(&Prompt::Rendered(text.into())).unwrap();
    let ids = words.iter().flat_map(|word| encode(word)).collect();
    script::script_after(encode(prompt).len(), ids)
}

/// The same, and then what the model says.
#[allow(dead_code)]
pub(crate) fn begun(model: &Model, prompt: &str, words: &[&str], seed: u64) -> Chain {
    let encode = |text: &str| model.encode(&Prompt::Rendered(text.into())).unwrap();
    let ids = words.iter().flat_map(|word| encode(word)).collect();
    script::begun_after(encode(prompt).len(), ids, seed)
}
