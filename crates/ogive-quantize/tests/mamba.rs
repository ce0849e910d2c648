//! The first Mamba and Falcon-Mamba: a file says what it has none of, and what no file can say is refused by name.

mod common;

use common::{Tensor, format, none, packed, refusal, rewritten_own, set};
use serde_json::json;

/// As readers ask for it, of state-spaces' own names too.
#[test]
fn a_file_has_no_heads_of_attention_and_no_mlps() {
    let first = |all: &mut Vec<Tensor>| {
        all.iter_mut().for_each(|t| t.name = t.name.replace("embeddings.", "embedding."))
    };
    for (name, change, normed, rank) in [
        ("mamba", none as fn(&mut Vec<Tensor>), false, 5),
        ("mamba", first, false, 5),
        ("falcon-mamba", none, true, 6),
    ] {
        let folder = rewritten_own(name, set(json!({})), change);
        let file = packed(&format("q8_0"), folder.path()).unwrap();
        let number = |key: &str| file.metadata().u32(&format!("mamba.{key}")).unwrap();
        let keys = ["attention.head_count", "feed_forward_length", "context_length", "embedding_length"];
        assert_eq!(keys.map(number), [0, 0, 1 << 20, 48]);
        let keys = ["conv_kernel", "state_size", "time_step_rank", "inner_size"];
        assert_eq!(keys.map(|key| number(&format!("ssm.{key}"))), [4, 10, rank, 96]);
        assert_eq!(file.metadata().get("mamba.ssm.dt_b_c_rms").and_then(|v| v.as_bool()), Some(normed));
        let decays = file.tensor("blk.0.ssm_a").unwrap();
        assert_eq!((decays.dims(), decays.ggml_type().unwrap().name()), (&[10, 96][..], "F32"));
        assert!(file.tensor("token_embd.weight").is_some());
        assert!(file.metadata().iter().all(|(key, _)| !key.contains("key_length") && !key.contains("rope.")));
    }
}

#[test]
fn what_a_file_cannot_say_or_its_readers_pass_over_is_refused_by_name() {
    for (settings, why) in [
        (json!({"hidden_act": "gelu"}), "hidden_act"),
        (json!({"is_causal": false}), "is_causal"),
        (json!({"intermediate_size": 72}), "blk.0.ssm_in.weight: 192 in place of 144"),
        (json!({"state_size": 9}), "blk.0.ssm_x.weight: 25 in place of 23"),
        (json!({"time_step_rank": 4}), "blk.0.ssm_x.weight: 25 in place of 24"),
        (json!({"conv_kernel": 3}), "blk.0.ssm_conv1d.weight: 4 in place of 3"),
    ] {
        let e = refusal("mamba", settings.clone(), none);
        assert!(e.contains(why), "{settings}: {e}");
    }
    let without = |part: &'static str| move |all: &mut Vec<Tensor>| all.retain(|t| !t.name.contains(part));
    for (part, why) in [
        ("conv1d.bias", "want biases"),
        ("norm_f", "`backbone.norm_f.weight` does"),
        ("layers.1.mixer.D", "layer 1 of 2: some of its tensors are missing"),
        ("lm_head", "output.weight"),
    ] {
        let e = refusal("mamba", json!({}), without(part));
        assert!(e.contains(why), "{part}: {e}");
    }
}
