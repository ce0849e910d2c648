//! A model that says what it is told to, whoever draws it: behind each token comes the one that its head names.
//!
//! A Llama without anything in its layer. A token's vector has a one at its own place, and so the head has a row for what follows it.

use crate::words;
use ogive::{Device, Model, Options, Prompt};
use serde_json::{Map, json};
use std::fs;
use std::path::Path;

/// Says `chain`, each token after the one before it; the first is what a prompt ends with.
pub(crate) fn model(folder: &Path, plain: &[&str], chain: &[&str]) -> Model {
    let special = ["<|im_end|>", "<|assistant|>"];
    let words = words::model(folder, &special, plain);
    let id = |word: &str| {
        let ids = words.encode(&Prompt::Rendered(word.into())).unwrap();
        assert_eq!(ids.len(), 1, "{word}");
        ids[0] as usize
    };
    let heads = words.tokenizer().unwrap().vocab_size().div_ceil(32);
    let size = heads * 32;
    let config = json!({ "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": size, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": 32, "rms_norm_eps": 1e-5,
        "vocab_size": size, "max_position_embeddings": 512, "rope_theta": 1e4, "hidden_act": "silu", "tie_word_embeddings": false,
        "attention_bias": false, "mlp_bias": false, "torch_dtype": "float32" });
    let mut head = vec![0.0; size * size];
    for two in chain.windows(2) {
        head[id(two[1]) * size + id(two[0])] = 4.0;
    }
    let identity = (0..size * size).map(|i| if i % (size + 1) == 0 { 1.0 } else { 0.0 }).collect();
    let ones = || vec![1.0_f32; size];
    let zeros = |rows: usize, cols: usize| (vec![rows, cols], vec![0.0; rows * cols]);
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), (vec![size, size], identity)),
        ("lm_head.weight".to_owned(), (vec![size, size], head)),
        ("model.norm.weight".to_owned(), (vec![size], ones())),
        (layer("input_layernorm"), (vec![size], ones())),
        (layer("post_attention_layernorm"), (vec![size], ones())),
        (layer("mlp.gate_proj"), zeros(32, size)),
        (layer("mlp.up_proj"), zeros(32, size)),
        (layer("mlp.down_proj"), zeros(size, 32)),
    ];
    tensors.extend(
        ["q", "k", "v", "o"].map(|name| (layer(&format!("self_attn.{name}_proj")), zeros(size, size))),
    );
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, (shape, values)) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|x: &f32| x.to_le_bytes()));
        header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] }));
    }
    let header = serde_json::Value::Object(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    // The other one is open.
    fs::remove_file(folder.join("model.safetensors")).unwrap();
    fs::write(folder.join("model.safetensors"), file).unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    Options::new().device(Device::Cpu).threads(1).open(folder).unwrap()
}
