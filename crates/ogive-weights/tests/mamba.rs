//! The first Mamba and Falcon-Mamba from GGUF: names and sizes as llama.cpp's converter writes them, with 0 for what the classes have none of.

mod common;

use common::checkpoint;
use gguf_file::Value;

#[test]
fn sizes_and_names_are_those_of_the_class() {
    let tensors: &[(&str, &[u64])] = &[
        ("token_embd.weight", &[131, 48]),
        ("output_norm.weight", &[48]),
        ("blk.0.attn_norm.weight", &[48]),
        ("blk.0.ssm_in.weight", &[192, 48]),
        ("blk.0.ssm_conv1d.weight", &[96, 4]),
        ("blk.0.ssm_conv1d.bias", &[96]),
        ("blk.0.ssm_x.weight", &[25, 96]),
        ("blk.0.ssm_dt.weight", &[96, 5]),
        ("blk.0.ssm_dt.bias", &[96]),
        ("blk.0.ssm_a", &[96, 10]),
        ("blk.0.ssm_d", &[96]),
        ("blk.0.ssm_out.weight", &[48, 96]),
    ];
    let of = |more: &[(&'static str, Value)]| {
        let whole = [
            ("block_count", 1_u32),
            ("context_length", 1 << 20),
            ("embedding_length", 48),
            ("feed_forward_length", 0),
            ("attention.head_count", 0),
            ("ssm.conv_kernel", 4),
            ("ssm.inner_size", 96),
            ("ssm.state_size", 10),
            ("ssm.time_step_rank", 5),
        ];
        let whole = whole.into_iter().map(|(key, n)| (key, Value::from(n)));
        let eps = ("attention.layer_norm_rms_epsilon", Value::from(1e-4_f32));
        checkpoint("mamba", &whole.chain([eps]).chain(more.iter().cloned()).collect::<Vec<_>>(), tensors)
            .unwrap()
    };
    let model = of(&[]);
    assert_eq!(model.architecture, "MambaForCausalLM");
    let c = &model.config;
    let sizes = ["intermediate_size", "state_size", "time_step_rank", "conv_kernel", "num_hidden_layers"];
    assert_eq!(sizes.map(|key| c.usize(key).unwrap()), [96, 10, 5, 4, 1]);
    assert_eq!(c.f32_or("rms_norm_eps", 0.0).unwrap(), 1e-4);
    assert!(c.bool_or("tie_word_embeddings", false).unwrap() && !c.has("mixer_rms_eps"));
    for (name, shape) in [
        ("embeddings.weight", [1, 131, 48]),
        ("norm_f.weight", [1, 1, 48]),
        ("layers.0.norm.weight", [1, 1, 48]),
        ("layers.0.mixer.in_proj.weight", [1, 192, 48]),
        ("layers.0.mixer.conv1d.weight", [1, 96, 4]),
        ("layers.0.mixer.conv1d.bias", [1, 1, 96]),
        ("layers.0.mixer.x_proj.weight", [1, 25, 96]),
        ("layers.0.mixer.dt_proj.weight", [1, 96, 5]),
        ("layers.0.mixer.dt_proj.bias", [1, 1, 96]),
        ("layers.0.mixer.A_log", [1, 96, 10]),
        ("layers.0.mixer.D", [1, 1, 96]),
        ("layers.0.mixer.out_proj.weight", [1, 48, 96]),
    ] {
        assert_eq!(model.source.get(&format!("backbone.{name}")).unwrap().shape, shape, "{name}");
    }
}

/// By a flag, with llama.cpp's one epsilon, or with one of their own.
#[test]
fn falcon_mamba_norms_what_goes_into_states() {
    let of = |more: &[(&'static str, Value)]| {
        let eps = ("attention.layer_norm_rms_epsilon", Value::from(1e-4_f32));
        let keys: Vec<_> =
            [eps, ("ssm.dt_b_c_rms", true.into())].into_iter().chain(more.iter().cloned()).collect();
        let model = checkpoint("mamba", &keys, &[]).unwrap();
        assert_eq!(model.architecture, "FalconMambaForCausalLM");
        model.config.f32_or("mixer_rms_eps", 0.0).unwrap()
    };
    assert_eq!((of(&[]), of(&[("ssm.dt_b_c_rms_epsilon", 1e-6_f32.into())])), (1e-4, 1e-6));
}
