//! Damaged files end in an error or in a model that runs, never in a panic, a hang or a huge allocation.
#![allow(clippy::print_stdout)]

mod common;

use common::*;
use ogive::{Generate, Options};
use ogive_quantize::gguf_file::{Gguf, GgufWriter, Metadata, TensorInfo, Value as Stored};
use ogive_quantize::{FileFormat, Quantize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Models of the repository with states and with keys, of which one also sees, mixtures and one with windows, and settings that they have besides all others'.
const HYBRIDS: [(&str, &[&str]); 29] = [
    ("qwen3-next", &DELTA),
    ("qwen3-5", &DELTA),
    ("qwen3-5-moe", &DELTA),
    ("lfm2", &CONVOLUTIONS),
    ("lfm2-moe", &CONVOLUTIONS),
    ("granite-hybrid", &SPACES),
    ("granite-hybrid-moe", &SPACES),
    ("nemotron-h", &BLOCKS),
    ("falcon-h1", &BESIDE),
    ("falcon-h1-norm", &BESIDE),
    ("mamba2", &ALONE),
    ("falcon-mamba", &CHANNELS),
    ("nemotron-h-moe", &MIXTURES),
    ("glm4-moe", &GROUPED),
    ("minimax-m2", &TURNED_IN_PART),
    ("llama4", &CHUNKED),
    ("ernie4-5-moe", &FROM_LAYER_TO_LAYER),
    ("exaone4", &SLIDING),
    ("command-r", &OF_COMMAND_R),
    ("apertus", &OF_APERTUS),
    ("hunyuan-moe", &OF_HUNYUAN),
    ("gemma4-moe", &GEMMA4),
    ("gemma4-shared", &GEMMA4),
    ("gemma3n", &GEMMA3N),
    ("gptneox", &OF_NEOX),
    ("jamba", &OF_JAMBA),
    ("bamba", &OF_BAMBA),
    ("dots1", &GROUPED),
    ("phimoe", &OF_PHI),
];

const OF_PHI: [&str; 5] =
    ["num_experts_per_tok", "num_local_experts", "rms_norm_eps", "rope_scaling", "router_jitter_noise"];

const OF_NEOX: [&str; 6] = [
    "hidden_size",
    "layer_norm_eps",
    "num_attention_heads",
    "rotary_emb_base",
    "rotary_pct",
    "use_parallel_residual",
];

const OF_JAMBA: [&str; 11] = [
    "attn_layer_offset",
    "attn_layer_period",
    "expert_layer_offset",
    "expert_layer_period",
    "layers_num_experts",
    "mamba_d_conv",
    "mamba_d_state",
    "mamba_dt_rank",
    "mamba_expand",
    "num_experts",
    "num_experts_per_tok",
];

const OF_BAMBA: [&str; 8] = [
    "attn_layer_indices",
    "layers_block_type",
    "mamba_d_head",
    "mamba_d_state",
    "mamba_expand",
    "mamba_n_groups",
    "mamba_n_heads",
    "partial_rotary_factor",
];

const OF_COMMAND_R: [&str; 3] = ["layer_norm_eps", "logit_scale", "use_qk_norm"];

const OF_APERTUS: [&str; 2] = ["hidden_act", "rope_scaling"];

const OF_HUNYUAN: [&str; 3] = ["moe_topk", "num_experts", "rope_scaling"];

/// The last two of Gemma 3n's five layers here attend to what earlier ones store.
const UNREAD: [&str; 4] = ["blk.3.attn_k", "blk.3.attn_v", "blk.4.attn_k", "blk.4.attn_v"];

const GEMMA3N: [&str; 10] = [
    "activation_sparsity_pattern",
    "altup_active_idx",
    "altup_coef_clip",
    "altup_correct_scale",
    "altup_num_inputs",
    "final_logit_softcapping",
    "hidden_size_per_layer_input",
    "layer_types",
    "num_kv_shared_layers",
    "sliding_window",
];

const GEMMA4: [&str; 16] = [
    "attention_k_eq_v",
    "enable_moe_block",
    "final_logit_softcapping",
    "global_head_dim",
    "hidden_activation",
    "hidden_size_per_layer_input",
    "layer_types",
    "num_experts",
    "num_global_key_value_heads",
    "num_kv_shared_layers",
    "per_layer_config",
    "rope_parameters",
    "sliding_window",
    "top_k_experts",
    "use_bidirectional_attention",
    "use_double_wide_mlp",
];

const GROUPED: [&str; 9] = [
    "first_k_dense_replace",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "n_group",
    "topk_group",
    "routed_scaling_factor",
    "partial_rotary_factor",
    "use_qk_norm",
];

const CHANNELS: [&str; 8] = [
    "conv_kernel",
    "expand",
    "hidden_act",
    "intermediate_size",
    "layer_norm_epsilon",
    "mixer_rms_eps",
    "state_size",
    "time_step_rank",
];

const CHUNKED: [&str; 10] = [
    "attention_chunk_size",
    "attn_scale",
    "attn_temperature_tuning",
    "floor_scale",
    "interleave_moe_layer_step",
    "layer_types",
    "moe_layers",
    "no_rope_layers",
    "num_experts_per_tok",
    "num_local_experts",
];

const TURNED_IN_PART: [&str; 6] = [
    "rotary_dim",
    "num_local_experts",
    "num_experts_per_tok",
    "attn_type_list",
    "qk_norm_type",
    "shared_intermediate_size",
];

const FROM_LAYER_TO_LAYER: [&str; 7] = [
    "moe_num_experts",
    "moe_k",
    "moe_num_shared_experts",
    "moe_layer_start_index",
    "moe_layer_end_index",
    "moe_layer_interval",
    "moe_norm_min",
];

const SLIDING: [&str; 3] = ["sliding_window", "sliding_window_pattern", "layer_types"];

const DELTA: [&str; 16] = [
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "full_attention_interval",
    "layer_types",
    "partial_rotary_factor",
    "rope_parameters",
    "num_experts",
    "num_experts_per_tok",
    "norm_topk_prob",
    "decoder_sparse_step",
    "mlp_only_layers",
    "attn_output_gate",
    "tie_word_embeddings",
];

const CONVOLUTIONS: [&str; 12] = [
    "norm_eps",
    "conv_L_cache",
    "conv_bias",
    "layer_types",
    "full_attn_idxs",
    "block_multiple_of",
    "block_ffn_dim_multiplier",
    "block_auto_adjust_ff_dim",
    "num_dense_layers",
    "num_experts",
    "num_experts_per_tok",
    "routed_scaling_factor",
];

const BLOCKS: [&str; 9] = [
    "hybrid_override_pattern",
    "mamba_num_heads",
    "mamba_head_dim",
    "ssm_state_size",
    "n_groups",
    "conv_kernel",
    "use_conv_bias",
    "mlp_hidden_act",
    "time_step_limit",
];

const BESIDE: [&str; 13] = [
    "mamba_d_ssm",
    "mamba_n_heads",
    "mamba_d_head",
    "mamba_d_state",
    "mamba_n_groups",
    "mamba_d_conv",
    "mamba_expand",
    "mamba_rms_norm",
    "mamba_norm_before_gate",
    "ssm_multipliers",
    "mlp_multipliers",
    "key_multiplier",
    "ssm_in_multiplier",
];

const MIXTURES: [&str; 9] = [
    "hybrid_override_pattern",
    "n_routed_experts",
    "num_experts_per_tok",
    "n_group",
    "topk_group",
    "norm_topk_prob",
    "routed_scaling_factor",
    "moe_intermediate_size",
    "moe_latent_size",
];

const ALONE: [&str; 7] =
    ["num_heads", "n_groups", "state_size", "conv_kernel", "expand", "layer_norm_epsilon", "time_step_limit"];

const SPACES: [&str; 13] = [
    "layer_types",
    "position_embedding_type",
    "mamba_n_heads",
    "mamba_d_head",
    "mamba_d_state",
    "mamba_n_groups",
    "mamba_d_conv",
    "mamba_expand",
    "mamba_conv_bias",
    "shared_intermediate_size",
    "num_local_experts",
    "num_experts_per_tok",
    "logits_scaling",
];

/// Opens what is at `path` and, where that works, goes as far as a user would; then, whether there was no error.
fn use_it(path: &Path) -> Option<bool> {
    let model = Options::new().threads(1).context(32).open(path).ok()?;
    let ids = model.encode(&"Once upon".into()).unwrap_or_else(|_| vec![1, 2]);
    let Ok(mut session) = model.session() else { return Some(false) };
    let Ok(generation) = session.generate(ids, &Generate::greedy().max_tokens(2)) else {
        return Some(false);
    };
    Some(generation.take(4).all(|piece| piece.is_ok()))
}

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

/// A copy of one of the repository's models, with the vocabulary of an encoder: decoders have none there.
fn copied(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (from, file) in [
        (name, "model.safetensors"),
        (name, "config.json"),
        ("bert", "tokenizer.json"),
        ("bert", "tokenizer_config.json"),
    ] {
        std::fs::copy(own(from).join(file), folder.path().join(file)).unwrap();
    }
    folder
}

/// The same as a GGUF file.
fn as_gguf(name: &str) -> Vec<u8> {
    let (folder, to) = (copied(name), tempfile::tempdir().unwrap());
    // The vocabulary's.
    let mut config = read(&folder.path().join("config.json"));
    (config["bos_token_id"], config["eos_token_id"]) = (json!(2), json!(3));
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let path = to.path().join("good.gguf");
    Quantize::new(FileFormat::find("bf16").unwrap()).run(folder.path(), &path, |_| true).unwrap();
    std::fs::read(path).unwrap()
}

fn read(json: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

/// Flips bits of the header and the vocabulary, where damage can do anything but change a weight, and cuts the file.
fn flip_and_cut(name: &str, good: &[u8], random: &mut Random) {
    let folder = tempfile::tempdir().unwrap();
    let file = Gguf::from_bytes(good.to_vec()).unwrap();
    let header = file.tensors().iter().map(|t| file.data(t).unwrap().range.start).min().unwrap();
    let mut opened = 0;
    for _ in 0..150 {
        let mut bad = good.to_vec();
        for _ in 0..=random.below(3) {
            bad[random.below(header)] ^= 1 << random.below(8);
        }
        let path = folder.path().join("bad.gguf");
        std::fs::write(&path, &bad).unwrap();
        opened += usize::from(use_it(&path).is_some());
    }
    println!("{name}: {opened} of 150 with flipped bits still open");
    for _ in 0..40 {
        let path = folder.path().join("cut.gguf");
        std::fs::write(&path, &good[..random.below(good.len())]).unwrap();
        assert_eq!(use_it(&path), None);
    }
}

#[test]
fn flipped_and_cut_files() {
    let Some(shared) = shared() else { return };
    let mut random = Random(3);
    for name in [
        "llama/llama-Q4_0.gguf",
        "gemma2/gemma2-Q4_0.gguf",
        "mixtral/mixtral-Q4_0.gguf",
        "deepseek-v2/deepseek-v2-Q4_0.gguf",
    ] {
        flip_and_cut(name, &std::fs::read(shared.join("golden").join(name)).unwrap(), &mut random);
    }
}

#[test]
fn flipped_and_cut_hybrids() {
    let folder = tempfile::tempdir().unwrap();
    for (name, _) in HYBRIDS {
        let (good, path) = (as_gguf(name), folder.path().join("good.gguf"));
        std::fs::write(&path, &good).unwrap();
        assert_eq!(use_it(&path), Some(true));
        flip_and_cut(name, &good, &mut Random(5));
    }
}

/// Opens a model of a folder with odd values of these settings, of which only those are tried that `wants` has, counted key by key. Either way there
/// is an answer: some are only the file's word.
fn with_odd_settings(folder: &Path, keys: &[&str], wants: impl Fn(usize) -> bool) {
    let good = read(&folder.join("config.json"));
    let text = if good["text_config"].is_object() { "/text_config" } else { "" };
    let odd = [0u64, 1, 3, 7, 1 << 20, 1 << 40, 1 << 63, u64::MAX].map(Value::from);
    let other = ["x".into(), (-1).into(), 0.5.into(), vec![1].into(), json!(["linear_attention"]), json!({})];
    for (i, key) in keys.iter().enumerate() {
        let values = odd.iter().chain(&other).enumerate();
        for (_, value) in values.filter(|(j, _)| wants((odd.len() + other.len()) * i + j)) {
            let mut config = good.clone();
            let of = if *key == "architectures" { "" } else { text };
            config.pointer_mut(of).unwrap()[key] = value.clone();
            std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
            drop(Options::new().context(32).estimate_memory(folder));
            if let Err(e) = Options::new().context(32).open(folder) {
                assert!(e.to_string().len() > 20, "{key} = {value}: {e}");
            } else {
                use_it(folder);
            }
        }
    }
    std::fs::write(folder.join("config.json"), good.to_string()).unwrap();
}

const SETTINGS: [&str; 12] = [
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_hidden_layers",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "vocab_size",
    "intermediate_size",
    "max_position_embeddings",
    "architectures",
];

#[test]
fn settings_that_do_not_fit_the_weights() {
    let Some(shared) = shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    for file in ["model.safetensors", "config.json"] {
        std::fs::copy(shared.join("golden/llama").join(file), folder.path().join(file)).unwrap();
    }
    with_odd_settings(folder.path(), &SETTINGS, |_| true);
}

#[test]
fn settings_that_do_not_fit_the_weights_of_hybrids() {
    for (turn, (name, more)) in HYBRIDS.into_iter().enumerate() {
        let folder = copied(name);
        with_odd_settings(folder.path(), more, |_| true);
        // What all have is read alike in most: of these each model has a third, and another one than the last.
        with_odd_settings(folder.path(), &SETTINGS, |i| i % 3 == turn % 3);
        // Counted where they are not listed.
        let mut config = read(&own(name).join("config.json"));
        let text = if config["text_config"].is_object() { &mut config["text_config"] } else { &mut config };
        if text.as_object_mut().unwrap().remove("layer_types").is_some() {
            std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
            with_odd_settings(folder.path(), &["full_attention_interval", "num_hidden_layers"], |_| true);
        }
    }
}

/// The file with other metadata, and its tensors in shapes that `shape` gives; what is empty then has no bytes.
fn rewritten(file: &Gguf, metadata: Metadata, shape: impl Fn(&TensorInfo) -> Vec<u64>) -> Vec<u8> {
    let mut writer = GgufWriter::with_metadata(metadata);
    for t in file.tensors() {
        writer.tensor(t.name(), &shape(t), t.ggml_type().unwrap()).unwrap();
    }
    let mut bytes = Vec::new();
    let mut data = writer.write_to(&mut bytes).unwrap();
    for t in file.tensors().iter().filter(|t| !shape(t).contains(&0)) {
        data.write_data(t.name(), file.data(t).unwrap().bytes()).unwrap();
    }
    data.finish().unwrap();
    bytes
}

#[test]
fn headers_that_do_not_fit_the_weights_of_hybrids() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.gguf");
    for (name, _) in HYBRIDS {
        let file = Gguf::from_bytes(as_gguf(name)).unwrap();
        let (good, architecture) = (file.metadata(), file.metadata().str("general.architecture").unwrap());
        let same = |t: &TensorInfo| t.dims().to_vec();
        let whole = |(key, _): &(&str, &Stored)| key.starts_with(architecture) && good.u32(key).is_ok();
        let mut odd = Vec::new();
        for (key, _) in good.iter().filter(whole) {
            odd.extend([0, 1, 3, 7, 1 << 20, u32::MAX].map(|n| (key.to_owned(), Stored::from(n))));
        }
        let recurrent = [vec![], vec![true], vec![false; 3], vec![true; 70]];
        let key = format!("{architecture}.attention.recurrent_layers");
        odd.extend(recurrent.map(|flags| (key.clone(), Stored::from(flags))));
        let key = format!("{architecture}.attention.head_count_kv");
        let heads = [vec![], vec![0u32], vec![2; 3], vec![0, 1, 2], vec![2; 70]];
        odd.extend(heads.map(|heads| (key.clone(), Stored::from(heads))));
        for (key, value) in odd {
            let mut metadata = good.clone();
            metadata.set(&key, value);
            std::fs::write(&path, rewritten(&file, metadata, same)).unwrap();
            use_it(&path);
        }
        // Matrices of layers that share another's keys, which a file has and nobody reads.
        let unread = |t: &str| name == "gemma3n" && UNREAD.iter().any(|part| t.starts_with(part));
        // One dimension is nothing, and another may be anything then.
        for t in file.tensors().iter().filter(|t| t.name().starts_with("blk.") && !unread(t.name())) {
            for (i, other) in (0..t.dims().len()).flat_map(|i| [(i, None), (i, Some(1 << 31))]) {
                let shape = |own: &TensorInfo| match own.name() == t.name() {
                    true => (0..)
                        .zip(own.dims())
                        .map(|(j, n)| if j == i { 0 } else { other.unwrap_or(*n) })
                        .collect(),
                    false => same(own),
                };
                std::fs::write(&path, rewritten(&file, good.clone(), shape)).unwrap();
                assert_ne!(use_it(&path), Some(true), "{name}: {} of {:?}", t.name(), shape(t));
            }
        }
    }
}
