//! Llama 4 as it is published: the text of a model that also sees, below other names, with settings that leave out much. What of the tower is in no file of the
//! text is not looked at.

mod common;

use common::{Tensor, format, packed, rewritten_own, values};
use serde_json::{Value, json};

/// As the folder of a model that also sees.
fn seeing(config: &mut Value) {
    let text = config.as_object_mut().unwrap();
    text.remove("architectures");
    // As Scout has them.
    let scout = json!({"no_rope_layers": [], "moe_layers": null, "layer_types": null, "attn_temperature_tuning": 4,
        "rope_theta": 5e5, "max_position_embeddings": 10_485_760,
        "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
            "original_max_position_embeddings": 8192}});
    text.extend(scout.as_object().unwrap().clone());
    *config = json!({"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
        "bos_token_id": 2, "eos_token_id": 3, "text_config": text, "vision_config": {"hidden_size": 4}});
}

/// With a tower, of which a tensor is missing.
fn below(all: &mut Vec<Tensor>) {
    all.iter_mut().for_each(|t| t.name = format!("language_model.{}", t.name));
    let tower = ["vision_model.layernorm_pre.weight", "multi_modal_projector.linear_1.weight"];
    all.extend(tower.map(|name| Tensor {
        name: name.into(),
        dtype: "BF16".into(),
        shape: vec![4],
        bytes: vec![0; 8],
    }));
}

#[test]
fn the_text_of_a_model_that_also_sees_is_converted() {
    let (folder, plain) = (rewritten_own("llama4", seeing, below), rewritten_own("llama4", |_| (), |_| ()));
    let (file, plain) =
        (packed(&format("f32"), folder.path()).unwrap(), packed(&format("f32"), plain.path()).unwrap());
    let names = |file: &ogive_quantize::gguf_file::Gguf| {
        let mut names: Vec<String> = file.tensors().iter().map(|t| t.name().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&file), names(&plain));
    for name in names(&file).iter().filter(|name| *name != "rope_freqs.weight") {
        assert_eq!(values(&file, name), values(&plain, name), "{name}");
    }
    // By transformers 4.57, of heads of 12.
    assert_eq!(values(&file, "rope_freqs.weight"), [1.0, 1.0, 1.0, 1.0, 16.0, 16.0]);
    let number = |key: &str| file.metadata().u32(&format!("llama4.{key}")).unwrap();
    assert_eq!(["context_length", "interleave_moe_layer_step"].map(number), [10_485_760, 2]);
    assert!(names(&file).iter().any(|name| name == "blk.1.ffn_gate_exps.weight"));
}
