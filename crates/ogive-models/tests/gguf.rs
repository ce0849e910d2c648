//! The repository's models as GGUF files, made by `ogive-quantize` of their folders: names, settings and stacks of experts there and back
//! change no logit. What GGUF cannot say is refused, and by which word, so that no model is left out unseen.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/converted.rs"]
mod converted;

use common::*;
use converted::{as_gguf, gguf_bytes, gguf_of, named};
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::Loader;
use ogive_nn::tensor::serde_json::{Value, json};
use ogive_quantize::gguf_file::{GgmlType, Gguf, GgufWriter};
use ogive_weights::OpenOptions;
use std::path::Path;

/// Models that no GGUF file can be, and what the refusal names.
const REFUSED: &[(&str, &str)] = &[
    ("bamba-groups", "mamba_proj_bias"),
    ("command-r-norm", "attention_bias"),
    ("dots1-window", "num_key_value_heads"),
    ("ernie4-5-bias", "use_bias"),
    ("ernie4-5-moe-bias", "some of its tensors are missing"),
    ("exaone4-window", "sliding_window"),
    ("falcon-h1-bias", "ssm_in.bias"),
    ("gemma2", "query_pre_attn_scalar"),
    ("gemma3", "query_pre_attn_scalar"),
    ("gemma4-all", "blk.0.attn_k.bias"),
    ("gpt-oss", "not converted"),
    ("gptneox-bare", "attention_bias"),
    ("jamba-bias", "ssm_in.bias"),
    ("gpt2", "scale_attn_by_inverse_layer_idx"),
    ("lfm2-moe-bias", "conv_bias"),
    ("granite-hybrid-rope", "mamba_proj_bias"),
    ("llama-dynamic", "dynamic"),
    ("llama4-chunks", "moe_layers"),
    ("mamba-bias", "ssm_in.bias"),
    ("mamba2-bias", "ssm_in.bias"),
    ("llama-yarn-mscale", "magnitude"),
    ("nemotron-h-moe-bias", "ssm_in.bias"),
    ("phi2-norm", "_layernorm"),
    ("phimoe-near", "`short_mscale` and `long_mscale` are two"),
    ("qwen2", "use_sliding_window"),
    ("qwen2-moe-normed", "some of its tensors are missing"),
    ("qwen3", "use_sliding_window"),
    ("qwen3-moe-window", "some of its tensors are missing"),
    ("seed-oss-bias", "attention_out_bias"),
    ("smollm3-window", "use_sliding_window"),
    ("stablelm-parallel", "_layernorm.norms."),
    ("starcoder2-window", "use_bias"),
];

#[test]
fn files_compute_what_their_folders_do() {
    let mut failed = Vec::new();
    for (name, folder) in own() {
        let refused = REFUSED.iter().find(|(refused, _)| *refused == name);
        // What is multiplied into weights leaves them no place in bf16.
        let format = if name.starts_with("falcon-h1") { "f32" } else { "bf16" };
        let file = match (as_gguf(&folder, format, |_| {}), refused) {
            (Ok(file), None) => file,
            (Err(e), Some((_, why))) if e.to_string().contains(why) => continue,
            (Err(e), _) => {
                failed.push(format!("{name}: {e}"));
                continue;
            }
            (Ok(_), Some((_, why))) => {
                failed.push(format!("{name} was converted in spite of its {why}"));
                continue;
            }
        };
        for (backend, b) in exact_backends() {
            for (case, ids, want) in cases(&folder) {
                let loader = Loader::new(&*file.source, &*b).for_context(ids.len());
                let model =
                    ogive_models::registry().build(&file.architecture, &file.config, &loader).unwrap();
                let error = worst(&evaluate(&*b, &*model, &ids, &Evaluate::new()).unwrap(), &want);
                println!("{name:20} {backend:8} {case:8} {error:.1e}");
                if error.is_nan() || error > 2e-5 {
                    failed.push(format!("{name} on {backend}, {case}: {error:.1e}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A GGUF file has no FP8: what is made of it are its numbers, times their factors.
#[test]
fn folders_of_eight_bit_floats_become_files() {
    for name in ["llama", "deepseek-v3", "qwen3-moe"] {
        let folder = float8(name);
        let file = as_gguf(&folder, "f32", |_| {}).unwrap();
        let b = exact();
        for (case, ids, want) in cases(&folder) {
            let loader = Loader::new(&*file.source, &b).for_context(ids.len());
            let model = ogive_models::registry().build(&file.architecture, &file.config, &loader).unwrap();
            let error = worst(&evaluate(&b, &*model, &ids, &Evaluate::new()).unwrap(), &want);
            println!("{name:20} {case:8} {error:.1e}");
            assert!(error < 2e-5, "{name}, {case}: {error:.1e}");
        }
    }
}

/// The file as it was written before llama.cpp attended to latents: both halves of a projection in one, by Hugging Face's matrix, and the
/// sizes of heads as they would be computed.
fn before_latents(file: &Gguf, folder: &Path) -> Vec<u8> {
    let source = ogive_weights::open(folder).unwrap().source;
    let mut metadata = file.metadata().clone();
    let number = |key: &str| file.metadata().u32(&format!("deepseek2.{key}")).unwrap();
    let [keys, values, heads] =
        ["attention.key_length_mla", "attention.value_length_mla", "attention.head_count"].map(number);
    metadata.set("deepseek2.attention.key_length", keys).set("deepseek2.attention.value_length", values);
    metadata.set("deepseek2.attention.head_count_kv", heads);
    metadata.remove("deepseek2.attention.key_length_mla");
    metadata.remove("deepseek2.attention.value_length_mla");
    let mut writer = GgufWriter::with_metadata(metadata);
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for t in file.tensors() {
        if t.name().ends_with("attn_v_b.weight") {
            continue;
        }
        let Some(block) = t.name().strip_suffix(".attn_k_b.weight") else {
            writer.tensor(t.name(), t.dims(), t.ggml_type().unwrap()).unwrap();
            all.push((t.name().to_owned(), file.data(t).unwrap().bytes().to_vec()));
            continue;
        };
        let layer = block.strip_prefix("blk.").unwrap();
        let both = source.get(&format!("model.layers.{layer}.self_attn.kv_b_proj.weight")).unwrap();
        let name = format!("{block}.attn_kv_b.weight");
        writer.tensor(&name, &[both.shape[2] as u64, both.shape[1] as u64], GgmlType::BF16).unwrap();
        all.push((name, both.bytes.to_vec()));
    }
    let mut bytes = Vec::new();
    let mut data = writer.write_to(&mut bytes).unwrap();
    for (name, values) in all {
        data.write_data(&name, &values).unwrap();
    }
    data.finish().unwrap();
    bytes
}

#[test]
fn latents_are_read_from_halves_and_from_the_whole() {
    for name in ["deepseek-v2", "deepseek-v3"] {
        let folder = named(name);
        let halves = gguf_of(&folder, "bf16", |_| {}).unwrap();
        let whole = Gguf::from_bytes(before_latents(&halves, &folder)).unwrap();
        let has = |file: &Gguf, part: &str| file.tensors().iter().filter(|t| t.name().contains(part)).count();
        assert_eq!(["attn_k_b", "attn_v_b", "attn_kv_b"].map(|part| has(&halves, part)), [2, 2, 0]);
        assert_eq!(["attn_k_b", "attn_v_b", "attn_kv_b"].map(|part| has(&whole, part)), [0, 0, 2]);
        for file in [halves, whole] {
            let file = OpenOptions::new().of_gguf(file.into()).unwrap();
            let b = exact();
            for (case, ids, want) in cases(&folder) {
                let loader = Loader::new(&*file.source, &b).for_context(ids.len());
                let model = ogive_models::registry().build(&file.architecture, &file.config, &loader);
                let error = worst(&evaluate(&b, &*model.unwrap(), &ids, &Evaluate::new()).unwrap(), &want);
                assert!(error < 2e-5, "{name}, {case}: {error:.1e}");
            }
        }
    }
}

#[test]
fn what_a_file_of_this_architecture_cannot_say_is_refused() {
    let refusal = |name: &str, key: &str, value: Value| {
        let change = |c: &mut Value| c[key] = value;
        as_gguf(&named(name), "bf16", change).map(|_| ()).unwrap_err().to_string()
    };
    for (name, key, value) in [
        ("deepseek-v2", "moe_layer_freq", json!(2)),
        ("deepseek-v2", "norm_topk_prob", json!(true)),
        ("deepseek-v2", "scoring_func", json!("sigmoid")),
        ("deepseek-v3", "rope_interleave", json!(false)),
        ("deepseek-v3", "scoring_func", json!("softmax")),
        ("deepseek-v3", "v_head_dim", json!(11)),
    ] {
        let e = refusal(name, key, value);
        let of = if key == "v_head_dim" { "kv_b_proj" } else { key };
        assert!(e.contains(of), "{name}, {key}: {e}");
    }
}

/// Each class has the shares of chosen experts one way in GGUF, whatever the settings say, so the other way is refused; also where
/// silence means it.
#[test]
fn shares_that_a_file_cannot_say_are_refused() {
    for (name, said) in
        [("qwen2-moe", json!(true)), ("qwen3-moe", json!(false)), ("qwen3-moe", json!("silent"))]
    {
        let change = |c: &mut Value| {
            let settings = c.as_object_mut().unwrap();
            if said == "silent" {
                settings.remove("norm_topk_prob");
            } else {
                settings.insert("norm_topk_prob".into(), said.clone());
            }
        };
        let e = as_gguf(&named(name), "bf16", change).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains("norm_topk_prob"), "{name}, {said}: {e}");
    }
}

/// What classes and GGUF's readers take silence or a number for otherwise.
#[test]
fn settings_that_a_file_cannot_say_are_refused_by_name() {
    type Change = fn(&mut Value);
    let refused: &[(&str, &str, Change)] = &[
        ("granite", "residual_multiplier", |c| c["residual_multiplier"] = json!(0.0)),
        ("smollm3", "no_rope_layers", |c| c["no_rope_layers"] = json!([1, 1, 1, 1, 0])),
        ("smollm3", "no_rope_layer_interval", |c| {
            (c["no_rope_layers"], c["no_rope_layer_interval"]) = (Value::Null, json!(3));
        }),
        ("llama4", "no_rope_layers", |c| c["no_rope_layers"] = json!([1, 1, 1, 1, 0])),
        ("llama4", "layer_types", |c| c["layer_types"] = json!(vec!["full_attention"; 5])),
        ("llama4", "attention_chunk_size", |c| c["attention_chunk_size"] = json!(4096)),
        ("llama4", "attention_chunk_size", |c| c["attention_chunk_size"] = Value::Null),
        ("llama4", "attn_temperature_tuning", |c| c["attn_temperature_tuning"] = json!(0)),
        ("llama4", "attn_temperature_tuning", |c| c["attn_temperature_tuning"] = Value::Null),
        ("llama4", "use_qk_norm", |c| c["use_qk_norm"] = Value::Null),
        ("llama4", "floor_scale", |c| c["floor_scale"] = json!(4096)),
        ("llama4", "attn_scale", |c| c["attn_scale"] = json!(0.2)),
        ("llama4", "use_qk_norm", |c| c["use_qk_norm"] = json!(false)),
        ("llama4", "ffn_gate.weight", |c| c["intermediate_size_mlp"] = json!(48)),
        ("llama4", "ffn_gate_exps.weight", |c| c["intermediate_size"] = json!(24)),
        ("cohere2", "layer_types", |c| c["layer_types"] = json!(vec!["full_attention"; 5])),
        ("cohere2", "sliding_window_pattern", |c| {
            (c["layer_types"], c["sliding_window_pattern"]) = (Value::Null, json!(2));
        }),
        ("olmo3", "rope_scaling", |c| c["rope_scaling"]["attention_factor"] = json!(1.3)),
        ("olmoe", "clip_qkv", |c| c["clip_qkv"] = json!(8.0)),
        ("olmoe", "norm_topk_prob", |c| c["norm_topk_prob"] = json!(true)),
        ("lfm2", "layer_types", |c| c["layer_types"] = json!(["conv", "conv", "full_attention"])),
        ("lfm2", "layer_types", |c| c["layer_types"][2] = json!("sliding_attention")),
        ("lfm2-moe", "norm_topk_prob", |c| c["norm_topk_prob"] = json!(false)),
        ("lfm2-moe", "use_expert_bias", |c| c["use_expert_bias"] = json!(false)),
        ("lfm2-moe", "routed_scaling_factor", |c| c["routed_scaling_factor"] = json!(2.0)),
        ("glm4-moe", "routed_scaling_factor", |c| c["routed_scaling_factor"] = json!(0.0)),
        ("minimax-m2", "scoring_func", |c| c["scoring_func"] = json!("softmax")),
        ("minimax-m2", "attn_type_list", |c| c["attn_type_list"] = json!([1, 0])),
        ("minimax-m2", "use_routing_bias", |c| c["use_routing_bias"] = json!(false)),
        ("seed-oss", "mlp_bias", |c| c["mlp_bias"] = json!(true)),
        ("ernie4-5", "use_bias", |c| c["use_bias"] = json!(true)),
        ("ernie4-5-moe", "moe_layer_end_index", |c| c["moe_layer_end_index"] = json!(0)),
        ("ernie4-5-moe", "moe_layer_interval", |c| c["moe_layer_interval"] = json!(2)),
        ("ernie4-5-moe", "moe_norm_min", |c| c["moe_norm_min"] = json!(0.1)),
        ("exaone4", "sliding_window", |c| c["sliding_window"] = json!(9)),
        ("command-r", "use_qk_norm", |c| c["use_qk_norm"] = json!(true)),
        ("starcoder2", "use_bias", |c| c["use_bias"] = json!(false)),
        ("starcoder2", "hidden_act", |c| c["hidden_act"] = json!("silu")),
        ("apertus", "hidden_act", |c| c["hidden_act"] = json!("silu")),
        ("hunyuan-dense", "attention_bias", |c| c["attention_bias"] = json!(true)),
        ("arcee", "attention_bias", |c| c["attention_bias"] = json!(true)),
        ("arcee", "mlp_bias", |c| c["mlp_bias"] = json!(true)),
        ("arcee", "hidden_act", |c| c["hidden_act"] = json!("silu")),
        ("hunyuan-dense", "rope_scaling", |c| c["rope_scaling"]["alpha"] = json!(0.0)),
        ("hunyuan-moe", "moe_topk", |c| c["moe_topk"] = json!([3, 2])),
        ("hunyuan-moe", "num_experts", |c| c["num_experts"] = json!([7, 6])),
        ("gptneox", "hidden_act", |c| c["hidden_act"] = json!("relu")),
        ("jamba", "hidden_act", |c| c["hidden_act"] = json!("gelu")),
        ("jamba", "sliding_window", |c| c["sliding_window"] = json!(5)),
        ("jamba", "ssm_in.weight", |c| c["mamba_expand"] = json!(3)),
        ("jamba", "attn_layer_offset", |c| c["attn_layer_offset"] = json!(3)),
        ("jamba", "ffn_gate.weight", |c| c["intermediate_size"] = json!(20)),
        ("bamba", "ssm_in.weight", |c| c["mamba_d_head"] = json!(8)),
        ("bamba", "mamba_conv_bias", |c| c["mamba_conv_bias"] = json!(false)),
        ("phimoe", "router_jitter_noise", |c| c["router_jitter_noise"] = json!(0.1)),
        ("phimoe", "attention_bias", |c| c["attention_bias"] = json!(false)),
        ("phimoe", "magnitude", |c| {
            (c["max_position_embeddings"], c["original_max_position_embeddings"]) =
                (json!(131_072), json!(4096));
            c["rope_scaling"]["original_max_position_embeddings"] = json!(4096);
            c["rope_scaling"]["attention_factor"] = json!(1.190_238);
        }),
        ("phimoe", "lm_head_bias", |c| c["lm_head_bias"] = json!(false)),
        ("phimoe", "hidden_act", |c| c["hidden_act"] = json!("gelu")),
        ("dots1", "num_key_value_heads", |c| c["num_key_value_heads"] = json!(2)),
        ("dots1", "n_shared_experts", |c| c["n_shared_experts"] = json!(0)),
        ("dots1", "scoring_func", |c| c["scoring_func"] = json!("softmax")),
        ("dots1", "routed_scaling_factor", |c| c["routed_scaling_factor"] = json!(0.0)),
        ("dots1", "sliding_window", |c| {
            (c["sliding_window"], c["layer_types"][1]) = (json!(5), json!("sliding_attention"));
        }),
        ("exaone4", "rope.freq_base_swa", |c| c["rope_local_base_freq"] = json!(500.0)),
    ];
    for (name, word, change) in refused {
        let e = as_gguf(&named(name), "bf16", change).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains(word), "{name}: {e}");
    }
    // The magnitude that YaRN has anyhow, as OLMo 3's files have it.
    let usual = |c: &mut Value| c["rope_scaling"]["attention_factor"] = json!(1.138_629_4);
    as_gguf(&named("olmo3"), "bf16", usual).unwrap();
}

/// llama.cpp passes it over, and a folder says it: what the file names counts when it is read.
#[test]
fn starcoder2s_window_is_in_its_file() {
    let file = as_gguf(&named("starcoder2"), "f32", |c| c["sliding_window"] = json!(9)).unwrap();
    assert_eq!(file.config.opt_usize("sliding_window").unwrap(), Some(9));
    let file = as_gguf(&named("starcoder2"), "f32", |_| {}).unwrap();
    assert_eq!(file.config.opt_usize("sliding_window").unwrap(), None);
}

/// The width of its MLPs, which layers attend, and what the class knows no window for.
#[test]
fn lfm2s_settings_are_those_that_llama_cpp_reads() {
    let first = |c: &mut Value| {
        let settings = c.as_object_mut().unwrap();
        settings.remove("layer_types");
        let width = settings.remove("intermediate_size").unwrap();
        settings.insert("block_ff_dim".into(), width);
        settings.insert("full_attn_idxs".into(), json!([2]));
        settings.insert("sliding_window".into(), json!(4));
    };
    let same: fn(&mut Value) = |_| {};
    for change in [same, first] {
        let file = gguf_of(&named("lfm2"), "q8_0", change).unwrap();
        let rows = file.tensor("blk.0.ffn_gate.weight").unwrap().dims()[1];
        let meta = file.metadata();
        assert_eq!(meta.u64("lfm2.feed_forward_length").unwrap(), rows);
        let heads = meta.get("lfm2.attention.head_count_kv").unwrap().as_array().unwrap();
        assert_eq!(*heads.to_i64().unwrap(), [0, 0, 2, 0]);
        assert!(meta.get("lfm2.attention.sliding_window").is_none());
        // Three taps are no block of any format.
        let taps = file.tensor("blk.0.shortconv.conv.weight").unwrap();
        assert_eq!((taps.dims(), taps.ggml_type().unwrap()), (&[3, 48][..], GgmlType::F32));
    }
}

/// Numbers that are the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Of a hybrid's and a mixture's file, which layers attend is told by lists, and states are as large as it says.
#[test]
fn damaged_hybrids_end_in_an_error_or_in_a_model_that_runs() {
    let b = exact();
    let mut random = Random(5);
    let runs = |bad: Vec<u8>| {
        let Ok(file) = Gguf::from_bytes(bad) else { return false };
        let Ok(file) = OpenOptions::new().of_gguf(file.into()) else { return false };
        let loader = Loader::new(&*file.source, &b).for_context(16);
        let model = ogive_models::registry().build(&file.architecture, &file.config, &loader);
        model.is_ok_and(|model| evaluate(&b, &*model, &[1, 2, 3], &Evaluate::new()).is_ok())
    };
    for name in [
        "lfm2",
        "lfm2-moe",
        "glm4-moe",
        "ernie4-5-moe",
        "apertus",
        "falcon-h1-norm",
        "gemma3n",
        "gemma4-shared",
        "gptneox",
        "jamba",
        "mamba2",
        "qwen3-next",
        "qwen3-5-moe",
        "nemotron-h-moe",
    ] {
        let good = gguf_bytes(&named(name), "f32", |_| {}).unwrap();
        // The header, before the vocabulary and the weights.
        let header = good.windows(5).position(|w| w == b"[PAD]").unwrap();
        let mut whole = 0;
        for _ in 0..300 {
            let mut bad = good.clone();
            for _ in 0..=random.below(3) {
                bad[random.below(header)] ^= 1 << random.below(8);
            }
            whole += usize::from(runs(bad));
        }
        println!("{name}: {whole} of 300 with flipped bits still run");
        assert!(whole > 0 && whole < 300);
        for _ in 0..40 {
            assert!(!runs(good[..random.below(good.len())].to_vec()), "{name}");
        }
    }
}

/// The first Gemmas' settings have the error function's name for the approximation that they were trained with.
#[test]
fn the_first_gemmas_activation_is_the_approximation_whatever_it_is_called() {
    let old = |c: &mut Value| {
        (c["hidden_act"], c["hidden_activation"]) = (json!("gelu"), Value::Null);
    };
    let file = as_gguf(&named("gemma"), "bf16", old).unwrap();
    let b = exact();
    let (_, ids, want) = cases(&named("gemma")).remove(0);
    let model =
        ogive_models::registry().build(&file.architecture, &file.config, &Loader::new(&*file.source, &b));
    assert!(worst(&evaluate(&b, &*model.unwrap(), &ids, &Evaluate::new()).unwrap(), &want) < 2e-5);
}
