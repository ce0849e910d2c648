//! What decoders' weights are called by those who save them: without a head, for vectors of texts; and below a model that also sees.

mod common;

use common::*;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::backend::{Backend, Estimate, Split};
use ogive_nn::tensor::{Config, Result, Source};
use ogive_nn::{Loader, Model};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

fn folder(name: &str) -> PathBuf {
    own().into_iter().find(|(own, _)| own == name).unwrap().1
}

fn source(name: &str) -> Box<dyn Source> {
    ogive_weights::open(folder(name)).unwrap().source
}

fn config(name: &str) -> Config {
    ogive_weights::open(folder(name)).unwrap().config
}

fn build(class: &str, c: &Config, source: &dyn Source) -> Result<Box<dyn Model>> {
    ogive_models::registry().build(class, c, &Loader::new(source, &exact()))
}

/// As a file that was saved without a head calls its weights.
fn bare(name: &str) -> Option<String> {
    (!name.starts_with("model.") && !name.starts_with("lm_head")).then(|| format!("model.{name}"))
}

#[test]
fn a_checkpoint_without_a_head_has_vectors_and_says_that_it_has_no_logits() {
    let b = exact();
    for (name, class) in [
        ("llama", "LlamaModel"),
        ("llama", "LlamaForCausalLM"),
        ("mistral", "MistralModel"),
        ("qwen2", "Qwen2Model"),
        ("qwen3", "Qwen3Model"),
        ("qwen2-moe", "Qwen2MoeModel"),
        ("qwen3-moe", "Qwen3MoeModel"),
        ("qwen3-next", "Qwen3NextModel"),
        ("qwen3-5", "Qwen3_5TextModel"),
        ("lfm2", "Lfm2Model"),
        ("lfm2-moe", "Lfm2MoeModel"),
        ("deepseek-v2", "DeepseekV2Model"),
        ("deepseek-v3", "DeepseekV3Model"),
        ("bamba", "BambaModel"),
        ("dots1", "Dots1Model"),
        ("falcon-h1", "FalconH1Model"),
        ("gemma", "GemmaModel"),
        ("gemma2", "Gemma2Model"),
        ("gemma4", "Gemma4TextModel"),
        ("jamba", "JambaModel"),
    ] {
        let source = Renamed(source(name), bare);
        for tied in [false, true] {
            let mut c = config(name);
            c.0["tie_word_embeddings"] = tied.into();
            let model = build(class, &c, &source).unwrap();
            for (case, ids, want) in cases_of(&folder(name), "hidden") {
                let error = worst(&hidden_of(&b, &*model, &ids), &want);
                assert!(error < 2e-5, "{class} {case}: {error:.1e}");
                match evaluate(&b, &*model, &ids, &Evaluate::new()) {
                    Ok(_) => assert!(tied, "{class} {case}: logits of no head"),
                    Err(e) => {
                        assert!(!tied && e.to_string().contains("the checkpoint has no head"), "{class}: {e}")
                    }
                }
            }
        }
    }
}

/// Where the settings say that there is none, which those of models that were trained further may have kept.
#[test]
fn a_head_of_its_own_counts_whatever_the_settings_say() {
    let b = exact();
    for name in ["llama", "mistral", "mixtral"] {
        let file = ogive_weights::open(folder(name)).unwrap();
        for tied in [false, true] {
            let mut c = file.config.clone();
            c.0["tie_word_embeddings"] = tied.into();
            let loader = Loader::new(&*file.source, &b);
            let model = ogive_models::registry().build(&file.architecture, &c, &loader).unwrap();
            assert_eq!(loader.notes().len(), usize::from(tied), "{name}");
            for (case, ids, want) in cases(&folder(name)) {
                let error = worst(&evaluate(&b, &*model, &ids, &Evaluate::new()).unwrap(), &want);
                assert!(error < 2e-5, "{name} {case}, tied: {tied}: {error:.1e}");
            }
        }
    }
}

#[test]
fn a_head_that_is_the_embedding_once_more_is_not_loaded() {
    let once_more = |name: &str| Some(name.replace("lm_head.", "model.embed_tokens."));
    let source = Renamed(source("llama"), once_more);
    let loaded = |tied: bool| {
        let mut c = config("llama");
        c.0["tie_word_embeddings"] = tied.into();
        let b = Estimate::new();
        let loader = Loader::new(&source, &b);
        ogive_models::registry().build("LlamaForCausalLM", &c, &loader).unwrap();
        assert!(loader.notes().is_empty());
        b.weight_bytes()
    };
    let table = source.get("lm_head.weight").unwrap().bytes.len() as u64;
    assert_eq!(loaded(true) + table, loaded(false));
}

/// What Gemma's text was called below a model that also sees, and what is left of that in models of the text alone.
#[test]
fn gemma_3_is_read_under_every_name_it_was_saved_with() {
    let to_4_51 = |name: &str| Some(name.strip_prefix("language_model.")?.to_owned());
    let later = |name: &str| match name.strip_prefix("model.language_model.") {
        Some(rest) => Some(format!("model.{rest}")),
        None => name.starts_with("lm_head").then(|| name.to_owned()),
    };
    let headless = |name: &str| Some(format!("model.{}", name.strip_prefix("language_model.")?));
    let same = |name: &str| Some(name.to_owned());
    let flat = config("gemma3");
    let nested = Config(json!({"text_config": flat.0}));
    let names: [fn(&str) -> Option<String>; 4] = [to_4_51, later, headless, same];
    for (class, c) in [("Gemma3ForCausalLM", &flat), ("Gemma3ForConditionalGeneration", &nested)] {
        for (i, renamed) in names.into_iter().enumerate() {
            let model = build(class, c, &Renamed(source("gemma3"), renamed));
            let model = model.unwrap_or_else(|e| panic!("{class}, names {i}: {e}"));
            for (case, ids, want) in cases(&folder("gemma3")) {
                let error = worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want);
                assert!(error < 2e-5, "{class}, names {i}, {case}: {error:.1e}");
            }
        }
    }
}

/// A head of its own stands beside the text and not in it, from 4.52 on.
#[test]
fn gemma_3_finds_a_head_of_its_own() {
    let to_4_51 = |name: &str| match name {
        "language_model.lm_head.weight" => Some("model.embed_tokens.weight".to_owned()),
        "lm_head.weight" => None,
        name => Some(name.strip_prefix("language_model.")?.to_owned()),
    };
    let later = |name: &str| match name {
        "lm_head.weight" => Some("model.embed_tokens.weight".to_owned()),
        name => Some(format!("model.{}", name.strip_prefix("model.language_model.")?)),
    };
    let mut c = config("gemma3");
    c.0["tie_word_embeddings"] = false.into();
    let names: [fn(&str) -> Option<String>; 2] = [to_4_51, later];
    for renamed in names {
        let source = Renamed(source("gemma3"), renamed);
        let model = build("Gemma3ForConditionalGeneration", &Config(json!({"text_config": c.0})), &source);
        let (_, ids, want) = cases(&folder("gemma3")).remove(0);
        let got = evaluate(&exact(), &*model.unwrap(), &ids, &Evaluate::new()).unwrap();
        assert!(worst(&got, &want) < 2e-5);
    }
}

/// The text of a model that also sees stands below `language_model`.
#[test]
fn llama_4_is_read_below_a_model_that_sees() {
    let below = |name: &str| name.strip_prefix("language_model.").map(str::to_owned);
    let c = Config(json!({"text_config": config("llama4").0, "tie_word_embeddings": false}));
    let model = build("Llama4ForConditionalGeneration", &c, &Renamed(source("llama4"), below)).unwrap();
    for (case, ids, want) in cases(&folder("llama4")) {
        let error = worst(&evaluate(&exact(), &*model, &ids, &Evaluate::new()).unwrap(), &want);
        assert!(error < 2e-5, "{case}: {error:.1e}");
    }
}

/// Also what no file has: numbers by which queries grow are wanted where the layer is.
#[test]
fn whatever_llama_4_has_in_layers_is_placed_by_the_layer() {
    let of_none = ["model.embed_tokens.weight", "model.norm.weight"];
    let place = move |name: &str| {
        assert!(of_none.contains(&name), "{name} is of no layer");
        1
    };
    let parts = [(); 2].map(|()| Arc::new(exact()) as Arc<dyn Backend>);
    let both = Split::new(parts.into(), vec![0, 0, 0, 1], place).unwrap();
    let path = folder("llama4-chunks");
    let (_, ids, want) = cases(&path).remove(0);
    assert!(worst(&logits(&path, &both, &ids), &want) < 2e-5);
}
