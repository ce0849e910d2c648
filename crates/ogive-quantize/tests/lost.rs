//! Folders that lack something, or have it in a type that is not read: an error that names it, and no file without it. And what
//! settings leave to be guessed is guessed as when the folder is run.

mod common;

use common::{Tensor, format, packed, rewritten, values};
use ogive_quantize::Input;
use serde_json::{Value, json};
use std::path::Path;

fn message(folder: &Path) -> String {
    Input::open(folder).map(|_| ()).unwrap_err().to_string()
}

/// The tensors with this in their names, in double precision, which nothing here reads.
fn doubled(tensors: &mut [Tensor], part: &str) {
    for t in tensors.iter_mut().filter(|t| t.name.contains(part)) {
        let single = |b: &[u8]| f64::from(f32::from_le_bytes(b.try_into().unwrap()));
        t.bytes = t.bytes.chunks_exact(4).flat_map(|b| single(b).to_le_bytes()).collect();
        t.dtype = "F64".into();
    }
}

/// The embedding in the place of the head.
fn copy_embedding(tensors: &mut [Tensor]) {
    let table = tensors.iter().find(|t| t.name == "model.embed_tokens.weight").unwrap().bytes.clone();
    tensors.iter_mut().find(|t| t.name == "lm_head.weight").unwrap().bytes = table;
}

fn without(tensors: &mut Vec<Tensor>, part: &str) {
    tensors.retain(|t| !t.name.contains(part));
}

type Settings = fn(&mut Value);
type Tensors = fn(&mut Vec<Tensor>);

#[test]
fn nothing_is_lost_without_a_word() {
    let same: Settings = |_| {};
    let cases: &[(&str, Settings, Tensors, &[&str])] = &[
        ("llama", same, |t| doubled(t, "lm_head"), &["lm_head.weight", "type F64"]),
        ("llama", same, |t| doubled(t, "model.norm"), &["model.norm.weight", "type F64"]),
        ("llama", same, |t| doubled(t, "_layernorm"), &["model.layers.0.input_layernorm.weight", "type F64"]),
        ("qwen2", same, |t| doubled(t, ".bias"), &["_proj.bias", "type F64"]),
        (
            "llama",
            same,
            |t| without(t, "lm_head"),
            &["output.weight", "`lm_head.weight`", "tie_word_embeddings"],
        ),
        ("llama", same, |t| without(t, "model.norm"), &["output_norm.weight", "`model.norm.weight`"]),
        (
            "mixtral",
            same,
            |t| without(t, "experts.3."),
            &["blk.0.ffn_down_exps.weight", "number 3 of 4 is missing"],
        ),
        (
            "mixtral",
            |c| c["num_local_experts"] = json!(3),
            |_| {},
            &["ffn_down_exps", "there are 4", "says 3"],
        ),
        (
            "mixtral",
            |c| c["num_local_experts"] = Value::Null,
            |_| {},
            &["ffn_down_exps", "how many there are"],
        ),
        (
            "deepseek-v2",
            same,
            |t| without(t, "layers.2.mlp.experts.7."),
            &["blk.2.ffn_down_exps.weight", "number 7 of 8 is missing"],
        ),
        // The one dense layer is like the others in its attention.
        (
            "deepseek-v2",
            same,
            |t| without(t, "layers.0.self_attn.q_b_proj"),
            &["layer 0 of 3", "are missing"],
        ),
        (
            "deepseek-v2",
            same,
            |t| without(t, "layers.1.mlp.shared_experts.up"),
            &["layer 1 of 3", "are missing"],
        ),
        (
            "deepseek-v2",
            |c| c["num_hidden_layers"] = json!(2),
            |_| {},
            &["config.json says 2 layers, and the weights are of 3"],
        ),
    ];
    let ends: Settings = |c| (c["bos_token_id"], c["eos_token_id"]) = (json!(2), json!(3));
    let lfm2: &[(&str, Settings, Tensors, &[&str])] = &[
        (
            "own/lfm2-moe",
            ends,
            |t| without(t, "embedding_norm"),
            &["token_embd_norm.weight", "`model.embedding_norm.weight`"],
        ),
        // Layers that convolve are like each other, and so are those that have experts.
        ("own/lfm2-moe", ends, |t| without(t, "layers.2.conv.out_proj"), &["layer 2 of 3", "are missing"]),
        ("own/lfm2-moe", ends, |t| without(t, "layers.2.feed_forward.expert_bias"), &["layer 2 of 3"]),
        (
            "own/lfm2-moe",
            ends,
            |t| without(t, "layers.1.feed_forward.experts.6."),
            &["blk.1.ffn_down_exps.weight", "number 6 of 7 is missing"],
        ),
        ("own/lfm2", ends, |t| without(t, "layers.1.feed_forward.w3"), &["layer 1 of 4", "are missing"]),
    ];
    // So are mixtures whose first layers are dense.
    let newer: &[(&str, Settings, Tensors, &[&str])] = &[
        ("own/glm4-moe", ends, |t| without(t, "layers.0.self_attn.k_proj.bias"), &["layer 0 of 2"]),
        ("own/glm4-moe", ends, |t| without(t, "layers.1.mlp.experts.11."), &["number 11 of 12 is missing"]),
        ("own/ernie4-5-moe", ends, |t| without(t, "layers.1.self_attn.k_proj"), &["layer 1 of 2"]),
        ("own/ernie4-5-moe", ends, |t| without(t, "layers.1.mlp.experts.2."), &["number 2 is missing"]),
        ("own/minimax-m2", ends, |t| without(t, "layers.1.block_sparse_moe.e_score"), &["layer 1 of 2"]),
        // Some of whose layers have experts, in between.
        ("own/llama4", ends, |t| without(t, "layers.3.feed_forward.shared_expert.up"), &["layer 3 of 5"]),
        ("own/llama4", ends, |t| without(t, "layers.2.feed_forward.up_proj"), &["layer 2 of 5"]),
        ("own/llama4", ends, |t| without(t, "layers.4.self_attn.k_proj"), &["layer 4 of 5"]),
        ("own/exaone4", ends, |t| without(t, "layers.1.post_feedforward_layernorm"), &["layer 1 of 2"]),
        ("own/starcoder2", ends, |t| without(t, "layers.1.mlp.c_fc.bias"), &["layer 1 of 3"]),
        (
            "own/apertus",
            ends,
            |t| without(t, "layers.1.mlp.act_fn.alpha_n"),
            &["layers.1.mlp.act_fn.alpha_n"],
        ),
        ("own/hunyuan-moe", ends, |t| without(t, "layers.1.mlp.experts.2."), &["number 2 is missing"]),
        ("own/hunyuan-moe", ends, |t| without(t, "layers.0.mlp.shared_mlp.up_proj"), &["layer 0 of 2"]),
    ];
    let last: &[(&str, Settings, Tensors, &[&str])] = &[
        ("own/gptneox", ends, |t| without(t, "layers.1.mlp.dense_h_to_4h.bias"), &["layer 1 of 2"]),
        ("own/gptneox", ends, |t| without(t, "embed_out"), &["output.weight", "`embed_out.weight`"]),
        // Layers that attend are like each other, and so are those that have experts.
        (
            "own/jamba",
            ends,
            |t| without(t, "layers.2.feed_forward.experts.4."),
            &["number 4 of 5 is missing"],
        ),
        ("own/jamba", ends, |t| without(t, "layers.2.feed_forward.router"), &["layer 2 of 3"]),
        ("own/jamba", ends, |t| without(t, "layers.2.mamba.dt_layernorm"), &["layer 2 of 3"]),
        ("own/bamba", ends, |t| without(t, "layers.2.mamba.D"), &["layer 2 of 3"]),
        ("own/dots1", ends, |t| without(t, "layers.1.mlp.experts.6."), &["number 6 of 7 is missing"]),
    ];
    let beside: Settings = |c| c["use_parallel_residual"] = json!(true);
    let stablelm: &[(&str, Settings, Tensors, &[&str])] = &[
        ("own/stablelm", beside, |_| {}, &["use_parallel_residual", "it is true"]),
        (
            "own/stablelm",
            same,
            |t| without(t, "post_attention_layernorm"),
            &["use_parallel_residual", "it is false"],
        ),
    ];
    for (model, settings, tensors, why) in newer.iter().chain(last).chain(stablelm).chain(lfm2).chain(cases) {
        let Some(folder) = rewritten(model, settings, tensors) else { return };
        let e = message(folder.path());
        assert!(why.iter().all(|why| e.contains(why)), "{why:?}: {e}");
    }
}

#[test]
fn what_may_be_missing_may_be() {
    // Buffers, and a head that is the embedding.
    let Some(folder) = rewritten(
        "llama",
        |c| c["tie_word_embeddings"] = json!(true),
        |all| {
            copy_embedding(all);
            let buffer = "model.layers.0.self_attn.rotary_emb.inv_freq".into();
            all.push(Tensor { name: buffer, dtype: "F64".into(), shape: vec![8], bytes: vec![0; 64] });
        },
    ) else {
        return;
    };
    assert!(packed(&format("f32"), folder.path()).unwrap().tensor("output.weight").is_none());
    // Of a head in a type that is not read nobody knows.
    let tied = |c: &mut Value| c["tie_word_embeddings"] = json!(true);
    let folder = rewritten("llama", tied, |all| doubled(all, "lm_head")).unwrap();
    assert!(message(folder.path()).contains("lm_head.weight"));
    // A model that embeds texts needs no head.
    let folder = rewritten("llama", |_| {}, |all| without(all, "lm_head")).unwrap();
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    let pooling = json!({"pooling_mode_mean_tokens": true}).to_string();
    std::fs::write(folder.path().join("1_Pooling/config.json"), pooling).unwrap();
    assert!(packed(&format("f32"), folder.path()).unwrap().tensor("output_norm.weight").is_some());
    // Nor does one that looks ahead, whether or not it says how vectors are pooled.
    let ahead = |c: &mut Value| c["is_causal"] = json!(false);
    let folder = rewritten("llama", ahead, |all| without(all, "lm_head")).unwrap();
    assert!(packed(&format("f32"), folder.path()).unwrap().tensor("output_norm.weight").is_some());
}

/// As llama.cpp's converter leaves them out: what foretells more than one token.
#[test]
fn layers_behind_deepseeks_own_are_no_part_of_the_model() {
    let behind = |all: &mut Vec<Tensor>| {
        let more = |name: &str, shape: &[u64]| {
            let bytes = vec![0; 4 * shape.iter().product::<u64>() as usize];
            Tensor { name: format!("model.layers.3.{name}"), dtype: "F32".into(), shape: shape.into(), bytes }
        };
        all.push(more("eh_proj.weight", &[64, 128]));
        all.push(more("self_attn.kv_b_proj.weight", &[256, 32]));
    };
    let said = |c: &mut Value| c["num_nextn_predict_layers"] = json!(1);
    let Some(folder) = rewritten("deepseek-v2", said, behind) else { return };
    let (with, without) =
        (packed(&format("f32"), folder.path()).unwrap(), common::shared("golden/deepseek-v2"));
    let without = packed(&format("f32"), &without.unwrap()).unwrap();
    assert_eq!(with.tensors().len(), without.tensors().len());
    // Where nothing says what they are, they are told.
    let folder = rewritten("deepseek-v2", |_| {}, behind).unwrap();
    assert!(message(folder.path()).contains("model.layers.3.eh_proj.weight"));
}

/// GLM-4.5's behind its layers, ERNIE's beside them.
#[test]
fn what_foretells_in_newer_models_is_no_part_of_them() {
    let more =
        |name: &str| Tensor { name: name.into(), dtype: "F32".into(), shape: vec![4], bytes: vec![0; 16] };
    let ends: Settings = |c| {
        (c["bos_token_id"], c["eos_token_id"], c["num_nextn_predict_layers"]) =
            (json!(2), json!(3), json!(1));
    };
    for (model, foretells) in [
        ("own/glm4-moe", ["model.layers.2.eh_proj.weight", "model.layers.2.input_layernorm.weight"]),
        ("own/ernie4-5-moe", ["model.mtp_emb_norm.0.weight", "model.mtp_block.0.input_layernorm.weight"]),
    ] {
        let tensors = |with: bool| {
            let folder = rewritten(model, ends, |all| {
                all.extend(foretells.into_iter().filter(|_| with).map(more));
            });
            packed(&format("f32"), folder.unwrap().path()).unwrap().tensors().len()
        };
        assert_eq!(tensors(true), tensors(false), "{model}");
    }
}

/// So many layers again and again, to 64.
fn repeat(all: &mut Vec<Tensor>, layers: usize) {
    let many: Vec<Tensor> = (0..64)
        .flat_map(|i| {
            let (from, to) = (format!("model.layers.{}.", i % layers), format!("model.layers.{i}."));
            let of_it = all.iter().filter(|t| t.name.starts_with(&from));
            let copies = of_it.map(|t| Tensor {
                name: t.name.replace(&from, &to),
                dtype: t.dtype.clone(),
                shape: t.shape.clone(),
                bytes: t.bytes.clone(),
            });
            copies.collect::<Vec<_>>()
        })
        .collect();
    all.retain(|t| !t.name.starts_with("model.layers."));
    all.extend(many);
}

/// Readers have norms on Command R's heads in models of so many layers alone.
#[test]
fn norms_of_command_rs_heads_are_in_files_of_64_layers() {
    let of = |normed: bool| {
        let settings = |c: &mut Value| {
            (c["num_hidden_layers"], c["attention_bias"]) = (json!(64), json!(false));
            c["use_qk_norm"] = json!(normed);
        };
        let tensors = |all: &mut Vec<Tensor>| {
            repeat(all, 2);
            all.retain(|t| !t.name.ends_with(".bias"));
        };
        rewritten("own/command-r-norm", settings, tensors).unwrap()
    };
    let file = packed(&format("f32"), of(true).path()).unwrap();
    assert_eq!(file.tensor("blk.63.attn_q_norm.weight").unwrap().dims(), &[12, 6]);
    let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
    let name = "self_attn.k_norm.weight";
    let (norm, first) = (format!("model.layers.63.{name}"), format!("model.layers.1.{name}"));
    let norm = back.source.get(&norm).unwrap();
    assert_eq!((norm.shape, norm.to_vec()), ([1, 2, 12], back.source.get(&first).unwrap().to_vec()));
    assert!(message(of(false).path()).contains("use_qk_norm"));
}

/// EXAONE's windows, in a model of as many layers as readers tell the larger one by: those of three, again and again.
#[test]
fn exaones_windows_are_written_where_readers_have_them() {
    let of = |window: Value, types: Value, pattern: Value| {
        let settings = |c: &mut Value| {
            (c["num_hidden_layers"], c["sliding_window"], c["layer_types"]) = (json!(64), window, types);
            c["sliding_window_pattern"] = pattern;
        };
        rewritten("own/exaone4-window", settings, |all| repeat(all, 3)).unwrap()
    };
    for pattern in [json!(4), json!("LLLG"), Value::Null] {
        let folder = of(json!(9), Value::Null, pattern);
        let file = packed(&format("f32"), folder.path()).unwrap();
        assert_eq!(file.metadata().u32("exaone4.attention.sliding_window").unwrap(), 9);
        let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
        let types = back.config.opt_strs("layer_types").unwrap().unwrap();
        let slides = |(i, kind): (usize, &String)| (kind == "sliding_attention") != (i + 1).is_multiple_of(4);
        assert!(types.len() == 64 && types.iter().enumerate().all(slides));
    }
    let full = json!(vec!["full_attention"; 64]);
    for (window, types, pattern, why) in [
        (json!(9), Value::Null, json!("LLG"), "sliding_window_pattern"),
        (json!(9), Value::Null, json!(3), "sliding_window_pattern"),
        (json!(9), full.clone(), Value::Null, "layer_types"),
        (Value::Null, full, Value::Null, "the setting sliding_window"),
    ] {
        let e = message(of(window, types, pattern).path());
        assert!(e.contains(why), "{why}: {e}");
    }
}

#[test]
fn a_head_of_its_own_stays_whatever_the_settings_say() {
    let tied = |c: &mut Value| c["tie_word_embeddings"] = json!(true);
    let folders = [rewritten("llama", |_| {}, |_| {}), rewritten("llama", tied, |_| {})];
    let [Some(said), Some(tied)] = folders.map(|f| Some(packed(&format("f32"), f?.path()).unwrap())) else {
        return;
    };
    assert_eq!(values(&said, "output.weight"), values(&tied, "output.weight"));
}

/// Key heads twice, so that there are as many as of queries.
fn widened(tensors: &mut [Tensor]) {
    for t in tensors.iter_mut().filter(|t| t.name.contains("k_proj") || t.name.contains("v_proj")) {
        t.shape[0] *= 2;
        let head = t.bytes.len() / 2;
        t.bytes = t.bytes.chunks_exact(head).flat_map(|head| head.repeat(2)).collect();
    }
}

#[test]
fn as_many_key_heads_as_query_heads_need_not_be_said() {
    for key in ["num_key_value_heads", "none"] {
        let silence = |c: &mut Value| {
            c["num_key_value_heads"] = Value::Null;
            c.as_object_mut().unwrap().remove(key);
        };
        let Some(folder) = rewritten("llama", silence, |all| widened(all)) else { return };
        let file = packed(&format("f32"), folder.path()).unwrap();
        let back = ogive_weights::OpenOptions::new().of_gguf(file.into()).unwrap();
        assert_eq!(back.config.usize("num_key_value_heads").unwrap(), 4);
        let folder = ogive_weights::open(folder.path()).unwrap();
        for info in folder.source.tensors() {
            let (a, b) = (folder.source.get(&info.name).unwrap(), back.source.get(&info.name).unwrap());
            assert_eq!((a.shape, a.to_vec()), (b.shape, b.to_vec()), "{}", info.name);
        }
    }
}

#[test]
fn scalings_that_are_silent_on_the_context_mean_the_models() {
    let scaled = |scaling: Value| rewritten("llama", |c| c["rope_scaling"] = scaling, |_| {});
    let yarn = json!({"rope_type": "yarn", "factor": 4.0});
    let Some(folder) = scaled(yarn) else { return };
    let input = Input::open(folder.path()).unwrap();
    assert_eq!(input.metadata().u32("llama.rope.scaling.original_context_length").unwrap(), 256);

    let mut llama3 = json!({"rope_type": "llama3", "factor": 8.0});
    let silent = packed(&format("f32"), scaled(llama3.clone()).unwrap().path()).unwrap();
    llama3["original_max_position_embeddings"] = json!(256);
    let said = packed(&format("f32"), scaled(llama3).unwrap().path()).unwrap();
    assert_eq!(values(&silent, "rope_freqs.weight"), values(&said, "rope_freqs.weight"));
}

#[test]
fn of_two_trained_contexts_the_outer_is_written() {
    let Some(folder) = rewritten(
        "llama",
        |c| {
            c["original_max_position_embeddings"] = json!(64);
            c["rope_scaling"] =
                json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128});
        },
        |_| {},
    ) else {
        return;
    };
    let input = Input::open(folder.path()).unwrap();
    assert_eq!(input.metadata().u32("llama.rope.scaling.original_context_length").unwrap(), 64);
}

/// LongRoPE's magnitude is a finished number in GGUF, made of what a folder's is made of when it is run.
#[test]
fn a_longrope_has_the_magnitude_that_its_folder_has() {
    for (kind, outer, factor, stretch) in [
        ("longrope", true, Some(16.0), 256.0 / 64.0),
        ("longrope", false, Some(16.0), 16.0),
        ("su", false, None, 256.0 / 64.0),
        ("yarn", false, Some(16.0), 16.0_f64),
    ] {
        let settings = |c: &mut Value| {
            c["original_max_position_embeddings"] = if outer { json!(64) } else { Value::Null };
            let (long, short) = ([2.0; 8], [1.0; 8]);
            c["rope_scaling"] = json!({"rope_type": kind, "factor": factor, "original_max_position_embeddings": 64,
                "long_factor": long, "short_factor": short});
        };
        let Some(folder) = rewritten("phi3", settings, |_| {}) else { return };
        let file = packed(&format("f32"), folder.path()).unwrap();
        let want = (1.0 + stretch.ln() / 64_f64.ln()).sqrt() as f32;
        assert_eq!(file.metadata().f32("phi3.rope.scaling.attn_factor").unwrap(), want, "{kind} {outer}");
        assert_eq!(values(&file, "rope_factors_long.weight"), [2.0; 8]);
    }
}

/// A file with a tensor more than it knows is none that llama.cpp opens.
#[test]
fn factors_are_written_where_readers_have_a_place_for_them() {
    let scaled = |c: &mut Value| {
        let scaling = json!({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 16});
        c["rope_scaling"] = scaling;
    };
    for model in ["command-r", "starcoder2", "phi2", "stablelm", "hunyuan-dense", "hunyuan-moe", "qwen3-moe"]
    {
        let folder = rewritten(&format!("own/{model}"), scaled, |_| {}).unwrap();
        let e = message(folder.path());
        assert!(e.contains("rope_scaling") && e.contains("factors"), "{model}: {e}");
    }
    for model in ["arcee", "exaone4", "granite", "granite-moe"] {
        let folder = rewritten(&format!("own/{model}"), scaled, |_| {}).unwrap();
        assert!(packed(&format("f32"), folder.path()).unwrap().tensor("rope_freqs.weight").is_some());
    }
}

#[test]
fn a_magnitude_counts_if_it_is_said_twice() {
    let of = |more: Value| {
        let settings = |c: &mut Value| {
            let scaling = c["rope_scaling"].as_object_mut().unwrap();
            scaling.remove("mscale");
            scaling.extend(more.as_object().unwrap().clone());
        };
        rewritten("own/arcee", settings, |_| {}).unwrap()
    };
    for more in
        [json!({"mscale": 1.3}), json!({"mscale_all_dim": 1.3}), json!({"mscale": 1.0, "mscale_all_dim": 0})]
    {
        Input::open(of(more).path()).unwrap();
    }
    for more in [json!({"mscale": 1.0, "mscale_all_dim": 1.0}), json!({"attention_factor": 1.0})] {
        let e = message(of(more).path());
        assert!(e.contains("rope_scaling") && e.contains("magnitude"), "{e}");
    }
}

#[test]
fn a_base_that_is_none_is_refused() {
    for (alpha, theta) in [(-2.0, 1e4), (1e38, 1e4), (50.0, -1.0)] {
        let settings = |c: &mut Value| {
            (c["rope_scaling"]["alpha"], c["rope_theta"]) = (json!(alpha), json!(theta));
        };
        let e = message(rewritten("own/hunyuan-dense", settings, |_| {}).unwrap().path());
        assert!(e.contains("`alpha`") && e.contains("`rope_theta`"), "{e}");
    }
}

/// The converter of llama.cpp has these contexts, too.
#[test]
fn a_context_is_the_one_that_was_trained_for() {
    let stretched = json!({"rope_type": "linear", "factor": 2.0});
    for (model, key, said, scaling, context) in [
        ("command-r", "model_max_length", 131_072, None, 131_072),
        ("command-r", "model_max_length", 131_072, Some(stretched), 64),
        ("cohere2", "model_max_length", 131_072, None, 64),
        ("hunyuan-dense", "max_position_embeddings", 32_768, None, 262_144),
        ("hunyuan-moe", "max_position_embeddings", 16_384, None, 16_384),
    ] {
        let settings = |c: &mut Value| {
            c[key] = json!(said);
            if let Some(scaling) = scaling {
                c["rope_scaling"] = scaling;
            }
        };
        let folder = rewritten(&format!("own/{model}"), settings, |_| {}).unwrap();
        let opened = ogive_weights::open(folder.path()).unwrap();
        assert_eq!(opened.config.usize("max_position_embeddings").unwrap(), context, "{model}");
        let input = Input::open(folder.path()).unwrap();
        let key = format!("{model}.context_length");
        assert_eq!(input.metadata().u32(&key).unwrap() as usize, context, "{model}");
    }
}

/// The embedding once more, as llama.cpp wants one of this architecture.
#[test]
fn an_apertus_that_is_tied_has_a_head() {
    let tied = |c: &mut Value| c["tie_word_embeddings"] = json!(true);
    let folder = rewritten("own/apertus", tied, |all| without(all, "lm_head")).unwrap();
    let file = packed(&format("f32"), folder.path()).unwrap();
    assert_eq!(values(&file, "output.weight"), values(&file, "token_embd.weight"));
    // One that is its own stays.
    let file = packed(&format("f32"), rewritten("own/apertus", tied, |_| {}).unwrap().path()).unwrap();
    assert_ne!(values(&file, "output.weight"), values(&file, "token_embd.weight"));
}
