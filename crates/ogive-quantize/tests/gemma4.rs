//! Gemma 4: what a file says of its two kinds of heads, what is left out of a checkpoint that also sees, and what no file can say.

mod common;

use common::{Tensor, format, none, packed, refusal, rewritten_own, set, values};
use ogive_quantize::gguf_file::Gguf;
use serde_json::{Value, json};

fn converted(name: &str, settings: Value) -> Gguf {
    packed(&format("f32"), rewritten_own(name, set(settings), none).path()).unwrap()
}

fn number(file: &Gguf, key: &str) -> u32 {
    file.metadata().u32(&format!("gemma4.{key}")).unwrap()
}

fn list(file: &Gguf, key: &str) -> Vec<i64> {
    file.metadata().get(&format!("gemma4.{key}")).unwrap().as_array().unwrap().to_i64().unwrap().into_owned()
}

#[test]
fn a_file_says_the_sizes_that_its_readers_want() {
    let sizes = ["attention.key_length", "attention.value_length", "rope.dimension_count"];
    for (name, experts) in [("gemma4", None), ("gemma4-moe", Some([7, 3, 20])), ("gemma4-shared", None)] {
        let file = converted(name, json!({}));
        assert_eq!(sizes.map(|key| number(&file, key)), [24; 3]);
        assert_eq!(sizes.map(|key| number(&file, &format!("{key}_swa"))), [12; 3]);
        let own = experts.map(|_| {
            ["expert_count", "expert_used_count", "expert_feed_forward_length"].map(|key| number(&file, key))
        });
        assert_eq!(own, experts);
        assert_eq!(file.metadata().f32("gemma4.rope.freq_base_swa").unwrap(), 1e4);
        // Three of twelve pairs turn.
        let factors = values(&file, "rope_freqs.weight");
        assert_eq!(factors[..4], [1.0, 1.0, 1.0, 1e30]);
        assert_eq!(factors.len(), 12);
    }
    let file = converted("gemma4", json!({}));
    assert_eq!(list(&file, "attention.head_count_kv"), [2, 1, 2, 1]);
    assert!(file.tensor("blk.1.attn_v.weight").is_none() && file.tensor("blk.0.attn_v.weight").is_some());
    let file = converted("gemma4-shared", json!({}));
    assert_eq!(list(&file, "feed_forward_length"), [24, 24, 24, 48, 48, 48]);
    let keys = ["attention.shared_kv_layers", "embedding_length_per_layer_input", "attention.head_count_kv"];
    assert_eq!(keys.map(|key| number(&file, key)), [3, 8, 1]);
    assert_eq!(number(&converted("gemma4-moe", json!({})), "feed_forward_length"), 40);
}

/// What sees and hears, and the keys of layers that have none.
#[test]
fn a_files_tensors_are_those_that_its_readers_know() {
    let file = converted("gemma4-shared", json!({}));
    let names: Vec<&str> = file.tensors().iter().map(|t| t.name()).collect();
    let of = |leaf: &str| names.iter().filter(|name| name.ends_with(leaf)).count();
    assert_eq!(
        ["attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_k_norm.weight"].map(of),
        [6, 3, 3, 3]
    );
    assert_eq!(
        ["layer_output_scale.weight", "inp_gate.weight", ".proj.weight", ".post_norm.weight"].map(of),
        [6; 4]
    );
    assert!(names.iter().all(|name| !["vision", "audio", "lm_head"].iter().any(|part| name.contains(part))));
    let table = file.tensor("per_layer_token_embd.weight").unwrap();
    assert_eq!(table.dims(), [48, 131]);
    // Where the file also has values where keys are values, they are passed over, as the class does it.
    let more = |all: &mut Vec<Tensor>| {
        let bytes = vec![0; 2 * 24 * 48];
        let name = "model.layers.1.self_attn.v_proj.weight".into();
        all.push(Tensor { name, dtype: "BF16".into(), shape: vec![24, 48], bytes });
    };
    let file = packed(&format("f32"), rewritten_own("gemma4", set(json!({})), more).path()).unwrap();
    assert!(file.tensor("blk.1.attn_v.weight").is_none());
    let factors = values(&converted("gemma4-moe", json!({})), "blk.0.ffn_down_exps.scale");
    assert!(factors.len() == 7 && factors.iter().all(|f| (0.7..1.3).contains(f)));
}

#[test]
fn silence_is_what_the_class_takes_it_for() {
    let rope = json!({"rope_parameters": null, "use_bidirectional_attention": "vision"});
    assert_eq!(values(&converted("gemma4", rope), "rope_freqs.weight")[..4], [1.0, 1.0, 1.0, 1e30]);
    // All but the last have a window then, and values of their own.
    let e = refusal("gemma4", json!({"layer_types": null}), none);
    assert!(e.contains("layer 1 of 4: some of its tensors are missing"), "{e}");
}

#[test]
fn settings_that_a_file_cannot_say_are_refused_by_name() {
    let rope = |kind: &str| {
        json!({"rope_parameters": {"full_attention": {"rope_type": kind, "rope_theta": 1e6, "factor": 2.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}})
    };
    let (full, mut failed) = ("full_attention", Vec::new());
    for (name, settings, why) in [
        ("gemma4", json!({"use_bidirectional_attention": "all"}), "use_bidirectional_attention"),
        ("gemma4", json!({"hidden_activation": "silu"}), "hidden_activation"),
        ("gemma4", rope("default"), "rope_scaling"),
        ("gemma4", rope("linear"), "rope_scaling"),
        ("gemma4", json!({"layer_types": [full, full, full, "sliding_attention"]}), "layer_types"),
        ("gemma4", json!({"layer_types": [full, full, full, "other"]}), "layer_types"),
        ("gemma4", json!({"head_dim": 16}), "blk.0.attn_k.weight: 24 in place of 32"),
        ("gemma4", json!({"global_head_dim": 16}), "blk.1.attn_k.weight: 24 in place of 16"),
        ("gemma4", json!({"num_global_key_value_heads": 2}), "blk.1.attn_k.weight: 24 in place of 48"),
        ("gemma4", json!({"intermediate_size": 39}), "ffn_"),
        ("gemma4", json!({"num_kv_shared_layers": 9}), "num_kv_shared_layers: it is 9, of 4 layers"),
        ("gemma4-shared", json!({"num_kv_shared_layers": 4}), "num_kv_shared_layers"),
        ("gemma4-shared", json!({"use_double_wide_mlp": false}), "blk.3.ffn_"),
        ("gemma4-shared", json!({"hidden_size_per_layer_input": 7}), "48 in place of 42"),
        ("gemma4-moe", json!({"num_experts": 6}), "exps.weight: 7 in place of 6"),
        ("gemma4-moe", json!({"per_layer_config": {"0": {"head_dim": 24}}}), "per_layer_config"),
    ] {
        let e = refusal(name, settings.clone(), none);
        if !e.contains(why) {
            failed.push(format!("{settings}: {e}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn tensors_that_are_missing_or_that_readers_do_not_know_are_refused() {
    let without = |part: &'static str| move |all: &mut Vec<Tensor>| all.retain(|t| !t.name.contains(part));
    for (name, part, why) in [
        ("gemma4", "layers.2.self_attn.v_proj", "layer 2 of 4: some of its tensors are missing"),
        ("gemma4-shared", "layers.4.self_attn.q_proj", "layer 4 of 6: some of its tensors are missing"),
        ("gemma4-moe", "layers.1.router.scale", "layer 1 of 3: some of its tensors are missing"),
        ("gemma4", "model.norm.", "output_norm.weight"),
    ] {
        let e = refusal(name, json!({}), without(part));
        assert!(e.contains(why), "{part}: {e}");
    }
    let fewer = |all: &mut Vec<Tensor>| {
        let table = all.iter_mut().find(|t| t.name.ends_with("embed_tokens_per_layer.weight")).unwrap();
        table.shape[0] -= 1;
        table.bytes.truncate(2 * 130 * 48);
    };
    let e = refusal("gemma4-shared", json!({}), fewer);
    assert!(e.contains("vocab_size_per_layer_input: it is 130"), "{e}");
    let e = refusal("gemma4-all", json!({"hidden_activation": "gelu_pytorch_tanh"}), none);
    assert!(e.contains("blk.0.attn_k.bias"), "{e}");
}
