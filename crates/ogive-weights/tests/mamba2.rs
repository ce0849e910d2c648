//! Mamba-2 from GGUF: names and sizes as llama.cpp's converter writes them, with 0 for what the class has none of.

mod common;

use common::{checkpoint, space};

#[test]
fn sizes_and_names_are_those_of_the_class() {
    let keys = [
        ("block_count", 1_u32.into()),
        ("context_length", (1_u32 << 20).into()),
        ("embedding_length", 48_u32.into()),
        ("feed_forward_length", 0_u32.into()),
        ("attention.head_count", 0_u32.into()),
        ("attention.layer_norm_rms_epsilon", 1e-4_f32.into()),
    ];
    let keys: Vec<_> = keys.into_iter().chain(space(96)).collect();
    let tensors: &[(&str, &[u64])] = &[
        ("token_embd.weight", &[131, 48]),
        ("output_norm.weight", &[48]),
        ("blk.0.attn_norm.weight", &[48]),
        ("blk.0.ssm_in.weight", &[258, 48]),
        ("blk.0.ssm_conv1d.weight", &[156, 4]),
        ("blk.0.ssm_dt.bias", &[6]),
        ("blk.0.ssm_d", &[6, 1]),
        ("blk.0.ssm_norm.weight", &[3, 32]),
    ];
    let model = checkpoint("mamba2", &keys, tensors).unwrap();
    assert_eq!(model.architecture, "Mamba2ForCausalLM");
    let c = &model.config;
    let sizes = ["num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "num_hidden_layers"];
    assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [6, 16, 3, 10, 4, 1]);
    assert_eq!(c.f32_or("rms_norm_eps", 0.0).unwrap(), 1e-4);
    assert!(c.bool_or("tie_word_embeddings", false).unwrap());
    for (name, shape) in [
        ("embeddings.weight", [1, 131, 48]),
        ("norm_f.weight", [1, 1, 48]),
        ("layers.0.norm.weight", [1, 1, 48]),
        ("layers.0.mixer.in_proj.weight", [1, 258, 48]),
        ("layers.0.mixer.conv1d.weight", [1, 156, 4]),
        ("layers.0.mixer.dt_bias", [1, 1, 6]),
        ("layers.0.mixer.D", [1, 1, 6]),
        ("layers.0.mixer.norm.weight", [1, 1, 96]),
    ] {
        assert_eq!(model.source.get(&format!("backbone.{name}")).unwrap().shape, shape, "{name}");
    }
}
