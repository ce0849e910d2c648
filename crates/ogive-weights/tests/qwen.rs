//! Qwen's mixtures from GGUF: names, and what llama.cpp's graphs take for granted.

mod common;

use common::gguf;
use gguf_file::{Gguf, Value};
use ogive_weights::{Checkpoint, OpenOptions};
use std::sync::Arc;

fn open(bytes: Vec<u8>) -> Checkpoint {
    OpenOptions::new().of_gguf(Arc::new(Gguf::from_bytes(bytes).unwrap())).unwrap()
}

#[test]
fn qwens_mixtures_are_what_llama_cpp_takes_them_for() {
    for (arch, class, normalised) in
        [("qwen2moe", "Qwen2MoeForCausalLM", false), ("qwen3moe", "Qwen3MoeForCausalLM", true)]
    {
        let keys = ["block_count", "expert_count", "expert_used_count", "expert_feed_forward_length"];
        let keys = keys.map(|key| format!("{arch}.{key}"));
        let mut meta = vec![("general.architecture", Value::from(arch))];
        meta.extend(keys.iter().zip([3u32, 4, 2, 6]).map(|(key, n)| (&**key, Value::from(n))));
        let tensors: &[(&str, &[u64])] = &[
            ("blk.0.ffn_gate_inp.weight", &[4, 8]),
            ("blk.0.ffn_gate_exps.weight", &[4, 6, 8]),
            ("blk.0.ffn_down_exps.weight", &[4, 8, 6]),
            ("blk.0.ffn_gate_inp_shexp.weight", &[8]),
            ("blk.0.ffn_up_shexp.weight", &[10, 8]),
        ];
        let model = open(gguf(&meta, tensors));
        assert_eq!(model.architecture, class);
        let c = &model.config;
        assert_eq!(
            ["num_experts", "num_experts_per_tok", "moe_intermediate_size"].map(|key| c.usize(key).unwrap()),
            [4, 2, 6]
        );
        assert_eq!(c.bool_or("norm_topk_prob", !normalised).unwrap(), normalised);
        let shape =
            |name: &str| model.source.get(&format!("model.layers.{name}.weight")).map(|w| w.shape).ok();
        assert_eq!(
            ["0.mlp.gate", "0.mlp.experts.gate_proj", "0.mlp.experts.down_proj"].map(shape),
            [[1, 4, 8], [4, 6, 8], [4, 8, 6]].map(Some)
        );
        // Qwen3 has no expert that all tokens share.
        let shared = ["0.mlp.shared_expert_gate", "0.mlp.shared_expert.up_proj"].map(shape);
        assert_eq!(shared, [[1, 1, 8], [1, 10, 8]].map(|shape| Some(shape).filter(|_| arch == "qwen2moe")));
    }
}
