//! Encoders' own traits: whole texts or none, no logits and no engine, names of several kinds, settings that are refused.

#![allow(clippy::print_stdout, reason = "figures are to be seen")]

mod common;

use common::*;
use ogive_engine::{Embed, Engine, Limits, Pooling, classify};
use ogive_nn::backend::{Backend, Batch, CacheSpec, Estimate};
use ogive_nn::tensor::{Config, Result, Source};
use ogive_nn::{Loader, Model, Step};
use std::path::PathBuf;
use std::sync::Arc;

fn folder(name: &str) -> PathBuf {
    encoders().into_iter().find(|(own, _)| own == name).unwrap().1
}

fn config(name: &str) -> Config {
    ogive_weights::open(folder(name)).unwrap().config
}

/// Loads the model of that name from `source`.
fn build(name: &str, config: &Config, source: &dyn Source) -> Result<Box<dyn Model>> {
    let class = ogive_weights::open(folder(name)).unwrap().architecture;
    ogive_models::registry().build(&class, config, &Loader::new(source, &exact()))
}

fn refusal(name: &str, change: impl FnOnce(&mut Config)) -> String {
    let (mut config, file) = (config(name), ogive_weights::open(folder(name)).unwrap());
    change(&mut config);
    build(name, &config, &*file.source).unwrap_err().to_string()
}

/// That the model reads the same from under other names.
fn reads(name: &str, renamed: fn(&str) -> Option<String>) {
    let source = Renamed(ogive_weights::open(folder(name)).unwrap().source, renamed);
    let model = build(name, &config(name), &source).unwrap();
    for (case, ids, want) in cases_of(&folder(name), "hidden") {
        let error = worst(&hidden_of(&exact(), &*model, &ids), &want);
        assert!(error < 2e-5, "{name} {case}: {error:.1e}");
    }
}

#[test]
fn the_first_checkpoints_names_are_read() {
    reads("bert", |name| {
        let name = name.strip_prefix("bert.")?;
        let old =
            name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias");
        (!name.contains("LayerNorm.") || old != name).then_some(old)
    });
    reads("nomic-bert", |name| Some(name.strip_prefix("bert.")?.to_owned()));
    reads("modern-bert", |name| Some(name.strip_prefix("model.")?.to_owned()));
    reads("xlm-roberta", |name| Some(name.strip_prefix("roberta.")?.to_owned()));
}

#[test]
fn transformers_names_are_read() {
    reads("nomic-bert", |name| {
        let (layer, rest) =
            name.strip_prefix("layers.").and_then(|n| n.split_once('.')).unwrap_or(("", name));
        let own = match rest.strip_suffix(".weight").or(rest.strip_suffix(".bias"))? {
            "embeddings.LayerNorm" => return Some(name.replace("embeddings.LayerNorm", "emb_ln")),
            "embeddings.word_embeddings" | "embeddings.token_type_embeddings" => {
                return Some(name.to_owned());
            }
            "self_attn.qkv_proj" => "attn.Wqkv",
            "self_attn.o_proj" => "attn.out_proj",
            "post_attention_layernorm" => "norm1",
            "post_mlp_layernorm" => "norm2",
            "mlp.up_proj" => "mlp.fc11",
            "mlp.gate_proj" => "mlp.fc12",
            "mlp.down_proj" => "mlp.fc2",
            _ => return None,
        };
        let leaf = rest.rsplit('.').next()?;
        Some(format!("encoder.layers.{layer}.{own}.{leaf}"))
    });
}

#[test]
fn a_text_is_whole_in_its_step_or_refused() {
    let b = exact();
    for (name, folder) in encoders() {
        let model = load(&folder, &b);
        let cache = b.new_cache(&CacheSpec::new(model.cache_layout(), 16, 4, 0).blocks(vec![])).unwrap();
        let mut batch = Batch::default();
        batch.push(&[5, 6], 3, vec![], [0, 1]);
        batch.want_all();
        let plan = b.plan(batch).unwrap();
        let e = model.hidden(&Step::new(&b, &plan, &cache)).unwrap_err().to_string();
        assert!(e.contains("3 tokens of a text were in an earlier step"), "{name}: {e}");
    }
}

#[test]
fn nothing_is_drawn_from_an_encoder() {
    for (name, folder) in encoders() {
        let b: Arc<dyn Backend> = Arc::new(exact());
        let e =
            Engine::new(Arc::clone(&b), load(&folder, &*b).into(), Limits::new(8)).unwrap_err().to_string();
        assert!(e.contains("is an encoder") && e.contains("`ogive embed`"), "{name}: {e}");
        let model = load(&folder, &*b);
        let e = ogive_engine::evaluate(&*b, &*model, &[1], &ogive_engine::Evaluate::new()).unwrap_err();
        assert!(e.to_string().contains("it has no logits"), "{name}: {e}");
    }
}

#[test]
fn positions_end_where_they_were_learned() {
    let (b, file) = (exact(), ogive_weights::open(folder("bert")).unwrap());
    let load = |context| {
        let loader = Loader::new(&*file.source, &b).for_context(context);
        ogive_models::bert::load(&file.config, &loader).map(|_| ())
    };
    load(43).unwrap();
    let e = load(44).unwrap_err().to_string();
    assert!(e.contains("has learned 43 positions, and a context of 44"), "{e}");
    // RoBERTa's table has more rows: two that no token has.
    let file = ogive_weights::open(folder("xlm-roberta")).unwrap();
    assert_eq!(file.config.usize("max_position_embeddings").unwrap(), 43);
    let load = |config: &Config, context| {
        let loader = Loader::new(&*file.source, &b).for_context(context);
        ogive_models::bert::load_roberta(config, &loader).map(|_| ()).map_err(|e| e.to_string())
    };
    load(&file.config, 43).unwrap();
    let e = load(&file.config, 44).unwrap_err();
    assert!(e.contains("has learned 43 positions"), "{e}");
    let mut config = file.config.clone();
    config.0["pad_token_id"] = 45.into();
    assert!(load(&config, 8).unwrap_err().contains("rows 46..45"), "{:?}", load(&config, 8));
    config.0["pad_token_id"] = serde_json::Value::Null;
    assert!(load(&config, 8).unwrap_err().contains("pad_token_id"));
}

#[test]
fn rotations_are_stretched_beyond_the_trained_context_where_the_settings_say_so() {
    let (b, file) = (exact(), ogive_weights::open(folder("nomic-bert")).unwrap());
    let vectors = |config: &Config, context| {
        let loader = Loader::new(&*file.source, &b).for_context(context);
        hidden_of(&exact(), &*ogive_models::nomic_bert::load(config, &loader).unwrap(), &[5, 17, 42, 99])
    };
    let mut config = file.config.clone();
    assert_eq!(vectors(&config, 256), vectors(&config, 64));
    config.0["rotary_scaling_factor"] = 2.0.into();
    assert_eq!(vectors(&config, 64), vectors(&file.config, 64));
    // 2 * 256 / 64 - 1 times 16 / 14 to the power: a base of 1000 becomes another.
    let stretched = vectors(&config, 256);
    assert_ne!(stretched, vectors(&file.config, 256));
    let mut own = file.config.clone();
    own.0["rope_theta"] = (1000.0 * 7.0_f64.powf(16.0 / 14.0)).into();
    assert!(worst(&stretched, &vectors(&own, 64)) < 1e-5);
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    for (key, value) in [
        ("is_decoder", serde_json::json!(true)),
        ("position_embedding_type", "relative_key".into()),
        ("hidden_act", "mish".into()),
        ("num_attention_heads", 5.into()),
    ] {
        let e = refusal("bert", |c| c.0[key] = value);
        assert!(e.contains(key) || e.contains("5 heads"), "{key}: {e}");
    }
    for (key, value) in [
        ("prenorm", serde_json::json!(true)),
        ("causal", true.into()),
        ("use_rms_norm", true.into()),
        ("rotary_emb_scale_base", 512.into()),
        ("moe_every_n_layers", 2.into()),
        ("activation_function", "gelu".into()),
        ("partial_rotary_factor", 0.0.into()),
    ] {
        let e = refusal("nomic-bert", |c| c.0[key] = value);
        assert!(e.contains(key) || key == "partial_rotary_factor", "{key}: {e}");
    }
    for (key, value) in [
        ("layer_types", serde_json::json!(["full_attention", "full_attention"])),
        ("hidden_activation", "mish".into()),
        ("classifier_pooling", "last".into()),
        ("rope_scaling", serde_json::json!({"rope_type": "linear", "factor": 2.0})),
        ("rope_parameters", serde_json::json!({"sliding_attention": {"rope_theta": 1e4}})),
    ] {
        let e = refusal("modern-bert-reranker", |c| c.0[key] = value);
        assert!(e.contains(key), "{key}: {e}");
    }
    let e = refusal("embedding-gemma", |c| {
        (c.0["use_bidirectional_attention"], c.0["is_causal"]) = (false.into(), false.into());
    });
    assert!(e.contains("not said to be one to both sides"), "{e}");
    let e = refusal("bert", |c| c.0["hidden_size"] = 96.into());
    assert!(e.contains("48 outputs, where the configured heads need 96"), "{e}");
}

/// What a text takes grows with its length and not with the square of it, and nothing of it counts as there to stay.
#[test]
fn layers_that_look_around_take_no_mask() {
    for name in ["modern-bert", "embedding-gemma"] {
        let b = Estimate::new();
        let (model, held) = (load(&folder(name), &b), b.tensor_bytes());
        let cache = b.new_cache(&CacheSpec::new(vec![], 16, 4, 0).blocks(vec![])).unwrap();
        let peak = |tokens: usize| {
            let mut batch = Batch::default();
            batch.push(&vec![3; tokens], 0, vec![], [0, 1]);
            let plan = b.plan(batch).unwrap();
            b.activations(|| model.hidden(&Step::new(&b, &plan, &cache))).unwrap().peak
        };
        assert_eq!(peak(20_000), 10 * peak(2_000), "{name}");
        assert_eq!(b.tensor_bytes(), held, "{name}");
    }
}

/// Ids and types.
type Pair = (Vec<u32>, Vec<u32>);

/// Ids and types of two texts as one, and what transformers scores them.
fn pairs(name: &str) -> (Vec<Pair>, Vec<f32>) {
    let golden = std::fs::read(folder(name).join("golden.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&golden).unwrap();
    let all = |key: &str| -> Vec<Vec<u32>> { serde_json::from_value(golden["pairs"][key].clone()).unwrap() };
    let scores = serde_json::from_value(golden["pairs"]["scores"].clone()).unwrap();
    (all("ids").into_iter().zip(all("types")).collect(), scores)
}

const RERANKERS: [&str; 3] = ["bert-reranker", "roberta-reranker", "modern-bert-reranker"];

#[test]
fn rerankers_score_as_transformers_does() {
    for (backend, b) in exact_backends() {
        for name in RERANKERS {
            let (pairs, want) = pairs(name);
            let model = load(&folder(name), &*b);
            let got = classify(&*b, &*model, &pairs, &Embed::new(Pooling::Mean)).unwrap();
            let error = got.iter().zip(&want).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
            assert_eq!(got.dim(), (4, 1));
            assert!(error < 2e-6, "{name} on {backend}: {error:.1e}");
            println!("{name:20} {backend:8} {error:.1e}");
        }
    }
}

#[test]
fn a_score_is_the_same_alone_and_types_count() {
    let fast: Box<dyn Backend> = Box::new(ogive_cpu::CpuBackend::builder().build().unwrap());
    for name in RERANKERS {
        let (pairs, _) = pairs(name);
        let model = load(&folder(name), &*fast);
        let of = |pairs: &[Pair], chunk| {
            let mut how = Embed::new(Pooling::Mean);
            how.chunk = chunk;
            classify(&*fast, &*model, pairs, &how).unwrap().into_raw_vec_and_offset().0
        };
        let all = of(&pairs, 512);
        assert_eq!(of(&pairs, 20), all);
        let alone: Vec<f32> = pairs.iter().flat_map(|pair| of(std::slice::from_ref(pair), 512)).collect();
        assert_eq!(alone, all);
        // Silence is type 0.
        let untyped: Vec<_> = pairs.iter().map(|(ids, _)| (ids.clone(), vec![])).collect();
        assert_eq!(of(&untyped, 512) == all, name != "bert-reranker");
    }
}

#[test]
fn classes_are_refused_where_there_are_none() {
    let (b, how) = (exact(), Embed::new(Pooling::Mean));
    let of = |name: &str, pair: Pair| {
        classify(&b, &*load(&folder(name), &b), &[pair], &how).map(|_| ()).unwrap_err().to_string()
    };
    assert!(of("bert", (vec![2], vec![])).contains("no head for classes"));
    assert!(of(RERANKERS[0], (vec![2], vec![0, 0])).contains("1 tokens and 2 types"));
    assert!(of(RERANKERS[0], (vec![], vec![])).contains("no tokens"));
    // One type is all that RoBERTa has.
    let e = of(RERANKERS[1], (vec![2], vec![1]));
    assert!(e.contains("segment 1 is outside a table of 1 rows"), "{e}");
    let source = Renamed(ogive_weights::open(folder(RERANKERS[0])).unwrap().source, |name| {
        (!name.starts_with("bert.pooler")).then(|| name.to_owned())
    });
    let e = build(RERANKERS[0], &config(RERANKERS[0]), &source).unwrap_err().to_string();
    assert!(e.contains("no pooler before it"), "{e}");
}
