//! GGUF files: settings and their defaults, translations from outside, and files that are damaged or lie.

mod common;

use common::gguf;
use gguf_file::{Gguf, Value};
use ogive_tensor::{Config, HostWeight, Result};
use ogive_weights::{Change, Checkpoint, OpenOptions, Rule, Translation};
use proptest::prelude::*;
use std::sync::Arc;

fn open_with(options: &OpenOptions, bytes: Vec<u8>) -> Result<Checkpoint> {
    let gguf = Gguf::from_bytes(bytes).map_err(|e| ogive_tensor::Error::other("test", e))?;
    options.of_gguf(Arc::new(gguf))
}

fn open(bytes: Vec<u8>) -> Result<Checkpoint> {
    open_with(&OpenOptions::new(), bytes)
}

fn set<const N: usize>(arch: &str, more: [(&'static str, Value); N]) -> Vec<(&'static str, Value)> {
    let mut all = vec![("general.architecture", Value::from(arch))];
    all.extend(more);
    all
}

/// A Llama of two heads of four, without layers but one.
fn llama<const N: usize>(more: [(&'static str, Value); N]) -> Vec<(&'static str, Value)> {
    let mut all = set(
        "llama",
        [
            ("llama.block_count", 1u32.into()),
            ("llama.embedding_length", 8u32.into()),
            ("llama.attention.head_count", 2u32.into()),
            ("llama.attention.head_count_kv", 1u32.into()),
        ],
    );
    all.extend(more);
    all
}

#[test]
fn rows_and_biases_of_llama_are_reordered() {
    let tensors: &[(&str, &[u64])] = &[
        ("blk.0.attn_q.weight", &[8, 1]),
        ("blk.0.attn_q.bias", &[8]),
        ("blk.0.attn_k.weight", &[4, 2]),
        ("blk.0.attn_v.weight", &[4, 1]),
        ("custom.thing", &[3]),
    ];
    let model = open(gguf(&llama([]), tensors)).unwrap();
    let get = |name: &str| model.source.get(&format!("model.layers.0.self_attn.{name}")).unwrap();
    assert_eq!(get("q_proj.weight").to_vec(), [0., 2., 1., 3., 4., 6., 5., 7.]);
    assert_eq!(
        (get("q_proj.bias").shape, get("q_proj.bias").to_vec()),
        ([1, 1, 8], vec![0., 2., 1., 3., 4., 6., 5., 7.])
    );
    assert_eq!(get("k_proj.weight").to_vec(), [0., 1., 4., 5., 2., 3., 6., 7.]);
    assert_eq!(get("v_proj.weight").to_vec(), [0., 1., 2., 3.]);
    assert_eq!(model.source.get("custom.thing").unwrap().shape, [1, 1, 3]);
    assert!(model.source.get("blk.0.attn_q.weight").unwrap_err().is_missing());
    let names: Vec<_> = model.source.tensors().into_iter().map(|t| t.name).collect();
    assert_eq!((names.len(), &*names[4]), (5, "custom.thing"), "in the order of the file");
    // Three rows are no two heads: an error that names the tensor, when it is asked for.
    let e = open(gguf(&llama([]), &[("blk.0.attn_q.weight", &[3, 1])])).unwrap();
    let e = e.source.get("model.layers.0.self_attn.q_proj.weight").unwrap_err().to_string();
    assert!(e.contains("q_proj.weight") && e.contains("3 rows are not"), "{e}");
}

#[test]
fn experts_make_a_mixtral_in_either_form() {
    let meta = llama([("llama.expert_count", 2u32.into()), ("llama.expert_used_count", 1u32.into())]);
    let tensors: &[(&str, &[u64])] =
        &[("blk.0.ffn_gate_exps.weight", &[2, 3, 4]), ("blk.0.ffn_down.1.weight", &[4, 3])];
    let model = open(gguf(&meta, tensors)).unwrap();
    assert_eq!(model.architecture, "MixtralForCausalLM");
    assert_eq!(
        (
            model.config.usize("num_local_experts").unwrap(),
            model.config.usize("num_experts_per_tok").unwrap()
        ),
        (2, 1)
    );
    let get = |name: &str| {
        model.source.get(&format!("model.layers.0.block_sparse_moe.experts.{name}.weight")).unwrap()
    };
    assert_eq!((get("w1").shape, get("1.w2").shape), ([2, 3, 4], [1, 4, 3]));
}

#[test]
fn a_window_makes_a_mistral() {
    let class = |more| open(gguf(&llama(more), &[])).unwrap().architecture;
    let window = |n: u32| ("llama.attention.sliding_window", Value::from(n));
    assert_eq!(class([window(4096)]), "MistralForCausalLM");
    assert_eq!(class([window(0)]), "LlamaForCausalLM");
    assert_eq!(open(gguf(&llama([]), &[])).unwrap().architecture, "LlamaForCausalLM");
    let experts = ("llama.expert_count", Value::from(2u32));
    let mixtral = open(gguf(&llama([window(4096), experts]), &[])).unwrap();
    assert_eq!(
        (&*mixtral.architecture, mixtral.config.usize("sliding_window").unwrap()),
        ("MixtralForCausalLM", 4096)
    );
}

#[test]
fn missing_settings_get_their_defaults() {
    let c = open(gguf(
        &set("llama", [("llama.embedding_length", 8u32.into()), ("llama.attention.head_count", 2u32.into())]),
        &[],
    ))
    .unwrap()
    .config;
    assert_eq!((c.usize("num_key_value_heads").unwrap(), c.usize("head_dim").unwrap()), (2, 4));
    assert_eq!(
        (c.f32_or("rope_theta", 0.0).unwrap(), c.has("rope_scaling"), c.has("sliding_window")),
        (10_000.0, false, false)
    );
    // A file with a vocabulary alone opens too.
    let c = open(gguf(&set("qwen2", [("tokenizer.ggml.eos_token_id", 7u32.into())]), &[])).unwrap().config;
    assert_eq!((c.usize("eos_token_id").unwrap(), c.has("hidden_size")), (7, false));
    let c = open(gguf(&set("gemma2", [("gemma2.block_count", 3u32.into())]), &[])).unwrap().config;
    assert_eq!(
        c.opt_strs("layer_types").unwrap().unwrap(),
        ["sliding_attention", "full_attention", "sliding_attention"]
    );
    assert_eq!(
        (c.f32_or("attn_logit_softcapping", 0.0).unwrap(), c.usize("sliding_window").unwrap()),
        (50.0, 4096)
    );
    // A window of 0 is none.
    let none = [("gemma2.block_count", 3u32.into()), ("gemma2.attention.sliding_window", Value::from(0u32))];
    let c = open(gguf(&set("gemma2", none), &[])).unwrap().config;
    assert_eq!(c.opt_strs("layer_types").unwrap().unwrap(), ["full_attention"; 3]);
    assert!(!c.has("sliding_window"));
    let c = open(gguf(
        &set(
            "gemma2",
            [
                ("gemma2.block_count", 46u32.into()),
                ("gemma2.embedding_length", 4608u32.into()),
                ("gemma2.attention.head_count", 32u32.into()),
                ("gemma2.attention.key_length", 128u32.into()),
            ],
        ),
        &[],
    ));
    assert_eq!(c.unwrap().config.usize("query_pre_attn_scalar").unwrap(), 144);
}

#[test]
fn gemma_3_has_windows_where_the_file_says() {
    let layers = |more: Vec<(&'static str, Value)>| {
        let mut meta = set("gemma3", [("gemma3.block_count", 7u32.into())]);
        meta.extend(more);
        let types = open(gguf(&meta, &[]))?.config.opt_strs("layer_types")?.unwrap();
        Ok::<_, ogive_tensor::Error>(types.iter().map(|t| &t[..1]).collect::<String>())
    };
    let window = || ("gemma3.attention.sliding_window", Value::from(512u32));
    let pattern = |v: Value| ("gemma3.attention.sliding_window_pattern", v);
    assert_eq!(layers(vec![window()]).unwrap(), "sssssfs");
    // No window, no windowed layer: Rnj-1 leaves the key out.
    assert_eq!(layers(vec![]).unwrap(), "fffffff");
    assert_eq!(layers(vec![("gemma3.attention.sliding_window", 0u32.into())]).unwrap(), "fffffff");
    assert_eq!(layers(vec![pattern(2u32.into())]).unwrap(), "fffffff");
    for (every, types) in [(2u32, "sfsfsfs"), (1, "fffffff"), (0, "sssssss")] {
        assert_eq!(layers(vec![window(), pattern(every.into())]).unwrap(), types);
    }
    let flags = vec![true, false, true, true, false, false, true];
    assert_eq!(layers(vec![window(), pattern(flags.into())]).unwrap(), "sfssffs");
    assert_eq!(layers(vec![window(), pattern(vec![1i32; 7].into())]).unwrap(), "sssssss");
    let e = layers(vec![window(), pattern(vec![1f32; 7].into())]).unwrap_err().to_string();
    assert!(e.contains("sliding_window_pattern") && e.contains("flags or whole numbers"), "{e}");
}

#[test]
fn lists_of_settings_collapse_or_say_so() {
    let list = |v: Vec<i32>| llama([("llama.feed_forward_length", v.into())]);
    assert_eq!(open(gguf(&list(vec![64, 64]), &[])).unwrap().config.usize("intermediate_size").unwrap(), 64);
    let c = open(gguf(&list(vec![64, 96]), &[])).unwrap().config;
    assert_eq!(c.opt_f32s("intermediate_size").unwrap().unwrap(), [64.0, 96.0]);
    assert!(c.usize("intermediate_size").unwrap_err().to_string().contains("`intermediate_size`"));
}

#[test]
fn rope_scalings_are_told() {
    let scaling = |more: Vec<(&'static str, Value)>, tensors: &[(&str, &[u64])]| -> Result<Config> {
        let mut meta = llama([]);
        meta.extend(more);
        Ok(open(gguf(&meta, tensors))?.config.at("rope_scaling"))
    };
    let kind = |c: &Config| c.opt_str("rope_type").unwrap().map(str::to_owned);
    let c = scaling(vec![("llama.rope.scale_linear", 4.0f32.into())], &[]).unwrap();
    assert_eq!((kind(&c).unwrap(), c.f32_or("factor", 0.0).unwrap()), ("linear".into(), 4.0));
    let yarn = |more: Option<(&'static str, Value)>| {
        let mut all = vec![
            ("llama.rope.scaling.type", "yarn".into()),
            ("llama.rope.scaling.factor", 4.0f32.into()),
            ("llama.rope.scaling.original_context_length", 32_768u32.into()),
        ];
        all.extend(more);
        scaling(all, &[]).unwrap()
    };
    let c = yarn(None);
    assert_eq!(
        (kind(&c).unwrap(), c.usize("original_max_position_embeddings").unwrap()),
        ("yarn".into(), 32_768)
    );
    assert!(!c.has("attention_factor"));
    let c = yarn(Some(("llama.rope.scaling.attn_factor", 2.0f32.into())));
    assert!((c.f32_or("attention_factor", 0.0).unwrap() - 2.277_26).abs() < 1e-4);
    // DeepSeek-R1-0528-Qwen3-8B's, which neither llama.cpp nor transformers multiplies by.
    assert_eq!(yarn(Some(("llama.rope.scaling.yarn_attn_factor", 0.878_248_9f32.into()))), yarn(None));
    let c = yarn(Some(("llama.rope.scaling.yarn_log_multiplier", 0.5f32.into())));
    assert_eq!((c.f32_or("mscale", 0.0).unwrap(), c.f32_or("mscale_all_dim", 0.0).unwrap()), (1.0, 0.5));
    assert_eq!(kind(&scaling(vec![("llama.rope.scaling.type", "none".into())], &[]).unwrap()), None);
    let freqs: &[(&str, &[u64])] = &[("rope_freqs.weight", &[2])];
    assert_eq!(kind(&scaling(vec![], freqs).unwrap()).unwrap(), "factors");
    let both = scaling(vec![("llama.rope.scaling.factor", 4.0f32.into())], freqs);
    assert!(both.unwrap_err().to_string().contains("rope_freqs.weight"));
    let e = scaling(vec![("llama.rope.scaling.factor", "four".into())], &[]).unwrap_err().to_string();
    assert!(e.contains("llama.rope.scaling.factor"), "{e}");
    let e = open(gguf(&llama([("llama.rope.freq_base", f32::NAN.into())]), &[])).unwrap_err().to_string();
    assert!(e.contains("llama.rope.freq_base") && e.contains("no finite number"), "{e}");
}

/// DeepSeek's converter writes a tenth, of what its models set both to.
#[test]
fn deepseeks_yarn_has_the_magnitude_of_its_settings() {
    let yarn = [
        ("deepseek2.rope.scaling.type", "yarn".into()),
        ("deepseek2.rope.scaling.factor", 40.0f32.into()),
        ("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f32.into()),
    ];
    let c = open(gguf(&set("deepseek2", yarn), &[])).unwrap().config.at("rope_scaling");
    for key in ["mscale", "mscale_all_dim"] {
        assert!((c.f32_or(key, 0.0).unwrap() - 0.707).abs() < 1e-6, "{key}");
    }
}

#[test]
fn ministrals_temperature_is_told() {
    let scaling = |yarn: bool| {
        let mut meta = set(
            "mistral3",
            [
                ("mistral3.context_length", 262_144u32.into()),
                ("mistral3.attention.temperature_scale", 0.5f32.into()),
            ],
        );
        if yarn {
            meta.extend([
                ("mistral3.rope.scaling.type", "yarn".into()),
                ("mistral3.rope.scaling.factor", 16.0f32.into()),
                ("mistral3.rope.scaling.yarn_log_multiplier", 1.0f32.into()),
                ("mistral3.rope.scaling.original_context_length", 16_384u32.into()),
            ]);
        }
        open(gguf(&meta, &[])).unwrap().config.at("rope_scaling")
    };
    for (yarn, kind, original) in [(true, "yarn", 16_384), (false, "default", 262_144)] {
        let c = scaling(yarn);
        assert_eq!(c.opt_str("rope_type").unwrap(), Some(kind));
        assert_eq!(c.f32_or("llama_4_scaling_beta", 0.0).unwrap(), 0.5);
        assert_eq!(c.usize("original_max_position_embeddings").unwrap(), original);
    }
    assert_eq!(scaling(true).f32_or("mscale_all_dim", 0.0).unwrap(), 1.0);
}

#[test]
fn attention_that_looks_ahead_is_told() {
    let of = |more: Vec<(&'static str, Value)>| {
        let mut meta = llama([]);
        meta.extend(more);
        open(gguf(&meta, &[])).unwrap().config
    };
    assert!(!of(vec![]).has("is_causal"));
    for causal in [true, false] {
        assert_eq!(of(vec![("llama.attention.causal", causal.into())]).0["is_causal"], causal);
    }
}

#[test]
fn a_projection_after_the_model_is_refused_where_no_rule_takes_it() {
    for name in ["dense_2.weight", "dense_3.weight"] {
        let file = gguf(&llama([]), &[("token_embd.weight", &[4, 8]), (name, &[8, 8])]);
        let e = open(file.clone()).unwrap_err().to_string();
        assert!(e.contains(name) && e.contains("a layer `Dense` after its model"), "{e}");
        let own = Translation::decoder("llama", "LlamaForCausalLM")
            .rename(name.trim_end_matches(".weight"), "projection");
        let model = open_with(&OpenOptions::new().translation(own), file).unwrap();
        assert_eq!(model.source.get("projection.weight").unwrap().shape, [1, 8, 8]);
    }
}

/// llama.cpp's companions of NVFP4, of one matrix and of experts.
#[test]
fn factors_of_matrices_and_of_experts_go_along() {
    let tensors: &[(&str, &[u64])] = &[
        ("blk.0.attn_q.weight", &[8, 8]),
        ("blk.0.attn_q.scale", &[1]),
        ("blk.0.attn_q.input_scale", &[1]),
        ("blk.0.ffn_up_exps.weight", &[3, 4, 8]),
        ("blk.0.ffn_up_exps.scale", &[3]),
        ("blk.0.attn_k.weight", &[4, 8]),
        ("blk.0.attn_k.scale", &[3]),
    ];
    let model = open(gguf(&llama([]), tensors)).unwrap();
    let q = model.source.get("model.layers.0.self_attn.q_proj.weight").unwrap();
    // The first number of a tensor is 0 in these files.
    let scale = q.scale.as_ref().unwrap();
    assert_eq!((&*scale.values, scale.covers(q.shape), q.to_vec()), (&[0.0][..], true, vec![0.0; 64]));
    let names: Vec<_> = model.source.tensors().into_iter().map(|t| t.name).collect();
    // What has others' factors is none.
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(model.source.left_out(), ["model.layers.0.self_attn.k_proj.weight"]);
    let up = model.source.get(&names[1]).unwrap();
    let plain = HostWeight::new("up", up.shape, up.format, up.bytes.clone()).unwrap().to_vec();
    let want: Vec<f32> = plain.iter().enumerate().map(|(i, v)| v * (i / 32) as f32).collect();
    assert_eq!(up.to_vec(), want);
    let e = model.source.get("model.layers.0.self_attn.k_proj.weight").unwrap_err().to_string();
    assert!(
        e.contains("attn_k.scale") && e.contains("for each of 1 matrices") && e.contains("[1, 1, 3]"),
        "{e}"
    );
}

#[test]
fn unknown_architectures_and_formats_are_named() {
    let e = open(gguf(&set("mamba9", []), &[])).unwrap_err().to_string();
    assert!(e.contains("`mamba9`") && e.contains("llama") && e.contains("qwen3"), "{e}");
    let e = open(gguf(&[], &[])).unwrap_err().to_string();
    assert!(e.contains("general.architecture"), "{e}");
    let mut writer = gguf_file::GgufWriter::new();
    writer.set("general.architecture", "llama");
    writer.tensor("output.weight", &[256], gguf_file::GgmlType::Q1_0).unwrap();
    let mut file = Vec::new();
    let mut data = writer.write_to(&mut file).unwrap();
    data.write_data("output.weight", &[0; 36]).unwrap();
    data.finish().unwrap();
    let model = open(file).unwrap();
    assert!(model.source.tensors().is_empty());
    assert_eq!(model.source.left_out(), ["lm_head.weight"]);
    let e = model.source.get("lm_head.weight").unwrap_err().to_string();
    assert!(e.contains("output.weight") && e.contains("Q1_0") && e.contains("q4_k, q5_k"), "{e}");
}

/// An architecture that this crate knows nothing of, from outside.
#[test]
fn a_stranger_adds_an_architecture() {
    let doubled = Change::new(
        |of, _| of.first().cloned().ok_or_else(|| ogive_tensor::Error::missing("w")),
        |of, config| {
            let by = config.f32_or("by", 1.0)?;
            let values: Vec<f32> = of[0].to_vec().into_iter().map(|v| v * by).collect();
            HostWeight::from_f32("w", of[0].shape, &values)
        },
    );
    let mine = Translation::new("mine", "MineForCausalLM")
        .rename("token_embd", "embedding")
        .rule(Rule::changed(["blk.{}.a.weight"], "layers.{}.b", doubled))
        .settings(|header, settings| {
            settings.insert("by".into(), header.value("by")?.unwrap_or_default());
            Ok(())
        });
    let file = gguf(
        &set("mine", [("mine.by", 3.0f32.into())]),
        &[("token_embd.weight", &[4, 2]), ("blk.5.a.weight", &[2])],
    );
    let model = open_with(&OpenOptions::new().translation(mine.clone()), file.clone()).unwrap();
    assert_eq!((&*model.architecture, model.config.usize("vocab_size").unwrap()), ("MineForCausalLM", 4));
    assert_eq!(model.source.get("layers.5.b").unwrap().to_vec(), [0.0, 3.0]);
    // Two tensors under one name are refused.
    let clash = mine.rename("blk.{}.a", "embedding");
    let e = open_with(&OpenOptions::new().translation(clash), file).unwrap_err().to_string();
    assert!(e.contains("embedding.weight: two tensors"), "{e}");
}

/// As a shell's `<(...)` gives one.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_read_once() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let piped = |bytes: Vec<u8>| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&bytes));
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert!(ogive_weights::is_piped(&path) && !ogive_weights::is_gguf(&path).unwrap());
        let opened = ogive_weights::open(&path);
        drop(reader);
        (opened, writing.join().unwrap().is_ok())
    };
    // More than a pipe holds.
    let file = gguf(&llama([]), &[("token_embd.weight", &[1000, 64])]);
    let (model, whole) = piped(file.clone());
    let model = model.unwrap();
    assert_eq!((model.source.get("model.embed_tokens.weight").unwrap().shape, whole), ([1, 1000, 64], true));
    for (bytes, says) in [
        (file[..file.len() - 1].to_vec(), "token_embd.weight"),
        (b"GGUF".to_vec(), "opening a model"),
        (vec![b'x'; 1 << 20], "no GGUF file, and nothing else is read"),
        (Vec::new(), "no GGUF file, and nothing else is read"),
    ] {
        let e = piped(bytes).0.unwrap_err().to_string();
        assert!(e.contains(says) && e.contains("/dev/fd/"), "{e}");
    }
}

fn small() -> Vec<u8> {
    let meta = llama([
        ("llama.feed_forward_length", vec![4i32, 6].into()),
        ("llama.rope.freq_base", 10_000f32.into()),
        ("llama.expert_count", 2u32.into()),
    ]);
    gguf(
        &meta,
        &[
            ("token_embd.weight", &[4, 8]),
            ("blk.0.attn_q.weight", &[8, 8]),
            ("blk.0.attn_k.bias", &[4]),
            ("blk.0.ffn_up_exps.weight", &[2, 4, 8]),
            ("rope_freqs.weight", &[2]),
        ],
    )
}

fn touch(bytes: Vec<u8>) {
    let Ok(model) = open(bytes) else { return };
    for info in model.source.tensors() {
        // A change may refuse a tensor that does not fit the settings.
        if let Ok(w) = model.source.get(&info.name) {
            assert_eq!((w.shape, w.to_vec().len()), (info.shape, info.elements()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_is_an_error_or_whole(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(), whole in prop::bool::weighted(0.8)) {
        let mut file = small();
        let i = at.index(file.len().min(900));
        file[i] = byte;
        if !whole {
            file.truncate(cut.index(file.len()));
        }
        touch(file);
    }
}
