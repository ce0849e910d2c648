//! A model of which every token has one that follows it.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const WIDTH: usize = 32;

/// Writes one to a folder: its first tokens, each with whether it is special, of which these follow each other; the others are letters.
/// `<|im_end|>` ends its texts. Without a template it has none.
pub(crate) fn write_model(folder: &Path, tokens: &[(&str, bool)], follows: &[&[usize]], template: &str) {
    let config = json!({ "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": WIDTH, "intermediate_size": WIDTH, "head_dim": WIDTH, "num_attention_heads": 1,
        "num_key_value_heads": 1, "num_hidden_layers": 1, "vocab_size": WIDTH, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 256, "tie_word_embeddings": false });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let added = tokens.iter().enumerate().map(|(id, (name, special))| {
        json!({ "id": id, "content": name, "special": special, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false })
    });
    let letters = (tokens.len()..WIDTH).zip('a'..='z').map(|(id, letter)| (letter.to_string(), json!(id)));
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true });
    let tokenizer = json!({ "version": "1.0", "added_tokens": added.collect::<Vec<_>>(), "decoder": bytes,
        "pre_tokenizer": bytes,
        "model": { "type": "BPE", "vocab": serde_json::Map::from_iter(letters), "merges": [] } });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let mut config = json!({ "eos_token": "<|im_end|>" });
    if !template.is_empty() {
        config["chat_template"] = template.into();
    }
    fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();

    // What a token is embedded as, the head finds again in the row of the one after it; between them nothing is added.
    let square = |ones: &[(usize, usize)]| {
        let mut square = vec![0.0; WIDTH * WIDTH];
        ones.iter().for_each(|(row, column)| square[row * WIDTH + column] = 1.0);
        square
    };
    let same: Vec<_> = (0..WIDTH).map(|id| (id, id)).collect();
    let next: Vec<_> =
        follows.iter().flat_map(|chain| chain.windows(2)).map(|pair| (pair[1], pair[0])).collect();
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), square(&same)),
        ("lm_head.weight".to_owned(), square(&next)),
        ("model.norm.weight".to_owned(), vec![1.0_f32; WIDTH]),
    ];
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    for name in ["input_layernorm", "post_attention_layernorm"] {
        tensors.push((layer(name), vec![1.0; WIDTH]));
    }
    for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
        tensors.push((layer(&format!("self_attn.{name}")), square(&[])));
    }
    for name in ["gate_proj", "up_proj", "down_proj"] {
        tensors.push((layer(&format!("mlp.{name}")), square(&[])));
    }
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, values) in tensors {
        let shape = if values.len() == WIDTH { vec![WIDTH] } else { vec![WIDTH, WIDTH] };
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] }));
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    fs::write(folder.join("model.safetensors"), file).unwrap();
}
