//! Gemma 3n: what a file says of streams, cuts and windows, what is left out of a checkpoint that also sees and hears, and what no file can say.

mod common;

use common::{Tensor, format, none, packed, refusal, rewritten_own, set, values};
use ogive_quantize::gguf_file::Gguf;
use serde_json::{Value, json};

fn converted(settings: Value) -> Gguf {
    packed(&format("f32"), rewritten_own("gemma3n", set(settings), none).path()).unwrap()
}

#[test]
fn a_file_says_what_its_readers_want() {
    let file = converted(json!({}));
    let number = |key: &str| file.metadata().u32(&format!("gemma3n.{key}")).unwrap();
    for (key, value) in [
        ("block_count", 5),
        ("attention.key_length", 12),
        ("attention.value_length", 12),
        ("attention.shared_kv_layers", 2),
        ("attention.sliding_window", 9),
        ("embedding_length_per_layer_input", 8),
        ("altup.num_inputs", 3),
        ("altup.active_idx", 1),
    ] {
        assert_eq!(number(key), value, "{key}");
    }
    let metadata = file.metadata();
    let list = |key: &str| metadata.get(&format!("gemma3n.{key}")).unwrap().as_array().unwrap();
    assert_eq!(list("feed_forward_length").to_i64().unwrap().into_owned(), [40, 32, 40, 32, 40]);
    assert_eq!(list("attention.sliding_window_pattern").as_bool().unwrap(), [true, true, false, true, false]);
    // Of the normal distribution, 90 and 60 and 30 of 100; infinitely far below where nothing is cut off.
    let nothing = f32::NEG_INFINITY;
    let scales = list("activation_sparsity_scale").to_f32().unwrap();
    for (scale, want) in scales.iter().zip([1.281_551_6, 0.253_347_1, nothing, -0.524_400_5, nothing]) {
        assert!(*scale == want || (scale - want).abs() < 1e-6, "{scales:?}");
    }
    assert_eq!(metadata.f32("gemma3n.rope.freq_base_swa").unwrap(), 1e4);
    assert_eq!(metadata.f32("gemma3n.final_logit_softcapping").unwrap(), 5.0);
}

#[test]
fn a_files_tensors_are_those_that_its_readers_know() {
    let file = converted(json!({"altup_coef_clip": 0.1}));
    let dims = |name: &str| file.tensor(name).unwrap_or_else(|| panic!("no {name}")).dims().to_vec();
    assert_eq!([dims("altup_proj.weight"), dims("altup_unembd_proj.weight")], [[48, 48, 2]; 2]);
    // Of the 131 tokens those that layers have inputs for.
    assert_eq!([dims("token_embd.weight"), dims("per_layer_token_embd.weight")], [[48, 123], [40, 123]]);
    let tokens = file.metadata().get("tokenizer.ggml.tokens").unwrap().as_array().unwrap();
    assert_eq!(tokens.len(), 123);
    assert_eq!(dims("blk.4.altup_predict_coef.weight"), [3, 9]);
    assert_eq!(dims("blk.4.altup_correct_scale.weight"), [48]);
    assert_eq!([dims("blk.4.laurel_l.weight"), dims("blk.4.laurel_r.weight")], [[48, 10], [10, 48]]);
    // Layers that share keys have matrices for them all the same, which readers want.
    assert_eq!(dims("blk.4.attn_k.weight"), [48, 24]);
    let clipped = values(&file, "blk.0.altup_correct_coef.weight");
    assert!(clipped.iter().all(|v| v.abs() <= 0.1) && clipped.contains(&0.1), "{clipped:?}");
    let others = ["vision", "audio", "lm_head"];
    assert!(file.tensors().iter().all(|t| !others.iter().any(|part| t.name().contains(part))));
}

/// A head of its own, or a copy of the table where the settings say that it is none.
#[test]
fn a_head_ends_where_the_table_does() {
    for (tied, copy) in [(false, true), (false, false), (true, false), (true, true)] {
        let headed = |all: &mut Vec<Tensor>| {
            let table = all.iter().find(|t| t.name.ends_with("embed_tokens.weight")).unwrap();
            let (dtype, shape, mut bytes) = (table.dtype.clone(), table.shape.clone(), table.bytes.clone());
            if !copy {
                // Rows are others'.
                bytes.rotate_left(2 * 48);
            }
            all.push(Tensor { name: "lm_head.weight".into(), dtype, shape, bytes });
        };
        let settings = |c: &mut Value| {
            (c["tie_word_embeddings"], c["text_config"]["tie_word_embeddings"]) = (json!(tied), json!(tied));
        };
        let folder = rewritten_own("gemma3n", settings, headed);
        let file = packed(&format("bf16"), folder.path()).unwrap();
        let head = file.tensor("output.weight").map(|t| t.dims().to_vec());
        assert_eq!(head, (!(tied && copy)).then(|| vec![48, 123]), "tied: {tied}, a copy: {copy}");
    }
}

/// With the text's settings alone, and `model.language_model` in place of each `model`.
#[test]
fn a_text_by_itself_is_converted_as_transformers_saves_it() {
    let settings = |c: &mut Value| {
        *c = c["text_config"].take();
        (c["bos_token_id"], c["eos_token_id"]) = (json!(2), json!(3));
        c["architectures"] = json!(["Gemma3nForCausalLM"]);
    };
    let named = |all: &mut Vec<Tensor>| {
        all.retain(|t| t.name.starts_with("model.language_model."));
        for t in all {
            t.name = t.name.replace("per_layer_model_", "per_layer_model.language_model_");
        }
    };
    let alone = packed(&format("f32"), rewritten_own("gemma3n", settings, named).path()).unwrap();
    let whole = converted(json!({}));
    let names = |file: &Gguf| file.tensors().iter().map(|t| t.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&alone), names(&whole));
    let name = "per_layer_model_proj.weight";
    assert_eq!(values(&alone, name), values(&whole, name));
}

#[test]
fn settings_that_a_file_cannot_say_are_refused_by_name() {
    let (full, slides, mut failed) = ("full_attention", "sliding_attention", Vec::new());
    for (settings, why) in [
        (json!({"hidden_activation": "silu"}), "hidden_activation"),
        (json!({"altup_correct_scale": false}), "altup_correct_scale"),
        (json!({"altup_coef_clip": -1.0}), "altup_coef_clip"),
        (json!({"altup_num_inputs": 4}), "altup_"),
        (json!({"altup_active_idx": 3}), "altup_active_idx: it is 3, of 3 streams"),
        (json!({"layer_types": [full, full, full, full, "other"]}), "layer_types"),
        (json!({"layer_types": [full, slides, slides, slides, full]}), "num_kv_shared_layers"),
        (json!({"num_kv_shared_layers": 9}), "num_kv_shared_layers: it is 9, of 5 layers"),
        (json!({"activation_sparsity_pattern": [0.5]}), "activation_sparsity_pattern"),
        (json!({"activation_sparsity_pattern": [1.0, 0.0, 0.0, 0.0, 0.0]}), "activation_sparsity_pattern"),
        (json!({"intermediate_size": [40]}), "intermediate_size: 1 widths for 5 layers"),
        (json!({"vocab_size_per_layer_input": 100}), "inputs for 123 tokens, of 100"),
        (json!({"head_dim": 16}), "attn_q.weight: 72 in place of 96"),
        (json!({"hidden_size_per_layer_input": 7}), "in place of 7"),
        (json!({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}), "rope_scaling"),
    ] {
        let e = refusal("gemma3n", settings.clone(), none);
        if !e.contains(why) {
            failed.push(format!("{settings}: {e}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn tensors_that_are_missing_are_named() {
    let without = |part: &'static str| move |all: &mut Vec<Tensor>| all.retain(|t| !t.name.contains(part));
    for (part, why) in [
        ("layers.2.altup.router_norm", "layer 2 of 5: some of its tensors are missing"),
        ("altup_projections.1.", "number 1 of 2 is missing"),
        ("altup_unembed_projections.", "altup_unembd_proj.weight"),
        ("embed_tokens_per_layer", "inputs for none tokens"),
        ("model.language_model.norm.", "output_norm.weight"),
    ] {
        let e = refusal("gemma3n", json!({}), without(part));
        assert!(e.contains(why), "{part}: {e}");
    }
}
