//! Mamba-2: a file says what it has none of, and what no file can say is refused by name.

mod common;

use common::{Tensor, format, none, packed, refusal, rewritten_own, set};
use serde_json::json;

/// As readers ask for it, of state-spaces' own names too.
#[test]
fn a_file_has_no_heads_of_attention_and_no_mlps() {
    let first = |all: &mut Vec<Tensor>| {
        all.iter_mut().for_each(|t| t.name = t.name.replace("embeddings.", "embedding."))
    };
    for change in [none, first] {
        let folder = rewritten_own("mamba2", set(json!({})), change);
        let file = packed(&format("q8_0"), folder.path()).unwrap();
        let number = |key: &str| file.metadata().u32(&format!("mamba2.{key}")).unwrap();
        let keys = ["attention.head_count", "feed_forward_length", "context_length", "embedding_length"];
        assert_eq!(keys.map(number), [0, 0, 1 << 20, 48]);
        let keys = ["conv_kernel", "state_size", "group_count", "time_step_rank", "inner_size"];
        assert_eq!(keys.map(|key| number(&format!("ssm.{key}"))), [4, 10, 3, 6, 96]);
        assert_eq!(file.tensor("blk.0.ssm_norm.weight").unwrap().dims(), [32, 3]);
        assert!(file.tensor("token_embd.weight").is_some());
        assert!(file.metadata().iter().all(|(key, _)| !key.contains("key_length") && !key.contains("rope.")));
    }
}

#[test]
fn what_a_file_cannot_say_or_its_readers_pass_over_is_refused_by_name() {
    for (settings, why) in [
        (json!({"hidden_act": "gelu"}), "hidden_act"),
        (json!({"time_step_limit": [0.0, 0.1]}), "time_step_limit"),
        (json!({"is_causal": false}), "is_causal"),
        (json!({"num_heads": 5}), "blk.0.ssm_in.weight: 258 in place of"),
        (json!({"n_groups": 5}), "96 elements are not 5 rows of one size"),
        (json!({"state_size": 9}), "blk.0.ssm_in.weight: 258 in place of 252"),
        (json!({"conv_kernel": 3}), "blk.0.ssm_conv1d.weight: 4 in place of 3"),
        (json!({"head_dim": null}), "mamba_head_dim"),
    ] {
        let e = refusal("mamba2", settings.clone(), none);
        assert!(e.contains(why), "{settings}: {e}");
    }
    let bias = |all: &mut Vec<Tensor>| {
        let tensor = |layer: usize| Tensor {
            name: format!("backbone.layers.{layer}.mixer.in_proj.bias"),
            dtype: "BF16".into(),
            shape: vec![258],
            bytes: vec![0; 516],
        };
        all.extend([0, 1].map(tensor));
    };
    assert!(refusal("mamba2", json!({}), bias).contains("blk.0.ssm_in.bias"));
    let without = |part: &'static str| move |all: &mut Vec<Tensor>| all.retain(|t| !t.name.contains(part));
    for (part, why) in [
        ("conv1d.bias", "want biases"),
        ("norm_f", "`backbone.norm_f.weight` does"),
        ("layers.1.mixer.D", "layer 1 of 2: some of its tensors are missing"),
        ("lm_head", "output.weight"),
    ] {
        let e = refusal("mamba2", json!({}), without(part));
        assert!(e.contains(why), "{part}: {e}");
    }
}
