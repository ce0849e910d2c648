//! The metadata that a converter would write for a real model of the shape: settings and vocabulary.
//!
//! Including keys that Ogive can do without, because other programs insist on them.

use super::family::Family;
use super::gemma4;
use super::shapes::{FULL_EACH, LINEAR_DIM, Mixer, NEMOTRON_SCALE, NEMOTRON_SHARED, SPACE_DIM, Shape, TAPS};
use super::vocabulary::{TEMPLATE, Vocabulary};
use ogive::weights::gguf_file::GgufWriter;
use ogive_quantize::FileFormat;

/// Sets everything but the tensors.
pub(crate) fn set(w: &mut GgufWriter, shape: &Shape, format: &FileFormat, seed: u64) {
    let arch = shape.family.architecture();
    w.set("general.architecture", arch)
        .set("general.type", "model")
        .set("general.name", format!("random weights in the shape of {} (seed {seed})", shape.name))
        .set("general.file_type", format.file_type)
        .set("general.quantization_version", 2_u32);

    let key = |name: &str| format!("{arch}.{name}");
    // All of the table's numbers are far below 2^32.
    for (name, value) in [
        ("block_count", shape.layers),
        ("context_length", shape.context),
        ("embedding_length", shape.dim),
        ("feed_forward_length", shape.ffn),
        ("attention.head_count", shape.heads),
        ("attention.head_count_kv", shape.kv_heads),
        ("attention.key_length", shape.head_dim),
        ("attention.value_length", shape.head_dim),
        ("rope.dimension_count", shape.turned()),
        ("vocab_size", shape.vocab),
    ] {
        w.set(&key(name), value as u32);
    }
    w.set(&key("rope.freq_base"), shape.theta);
    w.set(&key("attention.layer_norm_rms_epsilon"), shape.eps);
    if shape.family == Family::Gemma2 {
        w.set(&key("attn_logit_softcapping"), 50.0_f32);
        w.set(&key("final_logit_softcapping"), 30.0_f32);
        w.set(&key("attention.sliding_window"), 4096_u32);
    }
    if shape.family == Family::Gemma4 {
        let layers = || 0..shape.layers;
        for (name, dim) in [("", gemma4::long_head(shape)), ("_swa", shape.head_dim)] {
            for size in ["attention.key_length", "attention.value_length", "rope.dimension_count"] {
                w.set(&key(&format!("{size}{name}")), dim as u32);
            }
        }
        let shared = shape.layers - gemma4::sharing_from(shape);
        w.set(&key("final_logit_softcapping"), 30.0_f32)
            .set(&key("attention.sliding_window"), gemma4::WINDOW as u32)
            .set(&key("rope.freq_base_swa"), 10_000.0_f32)
            .set(&key("attention.shared_kv_layers"), shared as u32)
            .set(&key("embedding_length_per_layer_input"), gemma4::INPUT as u32);
        let slides: Vec<bool> = layers().map(|layer| gemma4::slides(shape, layer)).collect();
        let widths: Vec<u32> = layers().map(|layer| gemma4::width(shape, layer) as u32).collect();
        w.set(&key("attention.sliding_window_pattern"), slides).set(&key("feed_forward_length"), widths);
    }
    if shape.has_experts() {
        let [experts, used] = shape.experts;
        w.set(&key("expert_count"), experts as u32)
            .set(&key("expert_used_count"), used as u32)
            .set(&key("expert_feed_forward_length"), shape.ffn as u32);
    }
    if shape.family == Family::NemotronMoe {
        let hidden = |layer| if shape.mixer(layer) == Mixer::None { shape.ffn as u32 } else { 0 };
        w.set(&key("feed_forward_length"), (0..shape.layers).map(hidden).collect::<Vec<u32>>())
            .set(&key("expert_shared_count"), 1_u32)
            .set(&key("expert_shared_feed_forward_length"), (NEMOTRON_SHARED * shape.ffn) as u32)
            .set(&key("expert_group_count"), 1_u32)
            .set(&key("expert_group_used_count"), 1_u32)
            .set(&key("expert_weights_norm"), true)
            .set(&key("expert_weights_scale"), NEMOTRON_SCALE)
            .set(&key("attention.layer_norm_epsilon"), shape.eps);
    }
    if shape.family.is_granite() {
        w.set(&key("embedding_scale"), shape.family.embedding_scale())
            .set(&key("residual_scale"), shape.family.residual_scale())
            .set(&key("logit_scale"), shape.family.logit_scale())
            .set(&key("attention.scale"), 1.0 / shape.head_dim as f32);
    }
    if shape.family == Family::GptOss {
        w.set(&key("attention.sliding_window"), 128_u32)
            .set(&key("rope.scaling.type"), "yarn")
            .set(&key("rope.scaling.factor"), 32.0_f32)
            .set(&key("rope.scaling.original_context_length"), 4096_u32);
    }

    let [keys, heads] = shape.linear;
    if keys > 0 {
        let space = shape.family.has_spaces();
        for (name, value) in [
            ("ssm.conv_kernel", TAPS),
            ("ssm.state_size", shape.family.state_dim()),
            ("ssm.group_count", keys),
            ("ssm.time_step_rank", heads),
            ("ssm.inner_size", heads * if space { SPACE_DIM } else { LINEAR_DIM }),
        ] {
            w.set(&key(name), value as u32);
        }
        // Falcon-H1 has the same in all layers.
        if space && shape.family != Family::FalconH1 {
            let attends = |layer| shape.mixer(layer) == Mixer::Attention;
            let key_heads = |layer| if attends(layer) { shape.kv_heads as u32 } else { 0 };
            let key_heads: Vec<u32> = (0..shape.layers).map(key_heads).collect();
            w.set(&key("attention.head_count_kv"), key_heads).set(&key("rope.scaling.finetuned"), false);
        } else if !space {
            w.set(&key("full_attention_interval"), FULL_EACH as u32);
            // Pairs that turn by a text's position, as those of pictures by three.
            w.set(&key("rope.dimension_sections"), vec![11_i32, 11, 10, 0]);
        }
    }

    let qwen = shape.family.is_qwen();
    let v = Vocabulary::new(shape.vocab);
    w.set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", if qwen { "qwen2" } else { "llama-bpe" })
        .set("tokenizer.ggml.tokens", v.tokens)
        .set("tokenizer.ggml.token_type", v.kinds)
        .set("tokenizer.ggml.merges", v.merges)
        .set("tokenizer.ggml.bos_token_id", v.bos)
        .set("tokenizer.ggml.eos_token_id", v.eos)
        .set("tokenizer.ggml.eot_token_id", v.eot)
        // Qwen's models begin without.
        .set("tokenizer.ggml.add_bos_token", !qwen)
        .set("tokenizer.chat_template", TEMPLATE);
}
