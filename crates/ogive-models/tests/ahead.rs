//! Decoders that were made into encoders of texts: `is_causal` is off, and each token sees all others.
//!
//! transformers looks ahead from its version 5 on, and the golden models are of an earlier one. So the reference is Llama once more
//! in plain loops, which looking back gives transformers' states.

mod common;

use common::*;
use ndarray::{Array1, Array2, ArrayView2, Axis};
use ogive_engine::{Embed, Engine, Evaluate, Limits, Pooling, embed, evaluate};
use ogive_nn::backend::{Backend, Batch, CacheSpec};
use ogive_nn::tensor::{Config, Result, Source};
use ogive_nn::{Loader, Model, Step};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

fn folder(name: &str) -> PathBuf {
    own().into_iter().find(|(own, _)| own == name).unwrap().1
}

fn source(name: &str) -> Box<dyn Source> {
    ogive_weights::open(folder(name)).unwrap().source
}

/// The settings of a golden model without its windows, which are to one side.
fn config(name: &str, causal: bool) -> Config {
    let mut c = ogive_weights::open(folder(name)).unwrap().config;
    (c.0["sliding_window"], c.0["is_causal"]) = (0.into(), causal.into());
    c
}

fn class(name: &str) -> String {
    ogive_weights::open(folder(name)).unwrap().architecture
}

fn build(b: &dyn Backend, class: &str, c: &Config, source: &dyn Source) -> Result<Box<dyn Model>> {
    ogive_models::registry().build(class, c, &Loader::new(source, b))
}

fn columns(x: &Array2<f64>, from: usize, count: usize) -> ArrayView2<'_, f64> {
    x.slice_axis(Axis(1), (from..from + count).into())
}

fn first(x: ArrayView2<'_, f64>, rows: usize) -> ArrayView2<'_, f64> {
    x.slice_axis_move(Axis(0), (0..rows).into())
}

/// A Llama or a Qwen in double precision, all of a text at once.
struct Plain {
    source: Box<dyn Source>,
    config: Config,
}

impl Plain {
    fn matrix(&self, name: &str) -> Option<Array2<f64>> {
        let host = self.source.get(name).ok()?;
        let values = host.to_vec().into_iter().map(f64::from).collect();
        Some(Array2::from_shape_vec((host.shape[1], host.shape[2]), values).unwrap())
    }

    fn linear(&self, x: &Array2<f64>, name: &str) -> Array2<f64> {
        let y = x.dot(&self.matrix(&format!("{name}.weight")).unwrap().t());
        self.matrix(&format!("{name}.bias")).map_or(y.clone(), |bias| y + bias.row(0))
    }

    /// Each row divided by its size; as it is where there is no such norm.
    fn norm(&self, x: &Array2<f64>, name: &str) -> Array2<f64> {
        let Some(weight) = self.matrix(&format!("{name}.weight")) else { return x.clone() };
        let eps = f64::from(self.config.f32_or("rms_norm_eps", 0.0).unwrap());
        let size = x.map_axis(Axis(1), |row| (row.dot(&row) / row.len() as f64 + eps).sqrt());
        x / &size.insert_axis(Axis(1)) * weight.row(0)
    }

    /// A head's queries or keys, normed and turned by their places.
    fn head(&self, x: &Array2<f64>, head: usize, dim: usize, norm: &str) -> Array2<f64> {
        let x = self.norm(&columns(x, head * dim, dim).to_owned(), norm);
        let theta = f64::from(self.config.f32_or("rope_theta", 0.0).unwrap());
        Array2::from_shape_fn(x.dim(), |(place, i)| {
            let half = i % (dim / 2);
            let angle = place as f64 * theta.powf(-2.0 * half as f64 / dim as f64);
            let (a, b) = (x[[place, half]], x[[place, half + dim / 2]]);
            if i < dim / 2 { a * angle.cos() - b * angle.sin() } else { b * angle.cos() + a * angle.sin() }
        })
    }

    fn attention(&self, x: &Array2<f64>, at: &str, causal: bool) -> Array2<f64> {
        let setting = |key| self.config.usize(key).unwrap();
        let (heads, groups) = (setting("num_attention_heads"), setting("num_key_value_heads"));
        let dim = self.config.usize_or("head_dim", setting("hidden_size") / heads).unwrap();
        let [q, k, v] = ["q", "k", "v"].map(|name| self.linear(x, &format!("{at}.{name}_proj")));
        let mut out = Array2::zeros((x.nrows(), heads * dim));
        for head in 0..heads {
            let group = head / (heads / groups);
            let q = self.head(&q, head, dim, &format!("{at}.q_norm"));
            let k = self.head(&k, group, dim, &format!("{at}.k_norm"));
            let v = columns(&v, group * dim, dim);
            for place in 0..x.nrows() {
                let seen = if causal { place + 1 } else { x.nrows() };
                let scores: Array1<f64> = first(k.view(), seen).dot(&q.row(place)) / (dim as f64).sqrt();
                let weights = scores.mapv(f64::exp);
                let row = weights.dot(&first(v, seen)) / weights.sum();
                for (i, value) in row.into_iter().enumerate() {
                    out[[place, head * dim + i]] = value;
                }
            }
        }
        self.linear(&out, &format!("{at}.o_proj"))
    }

    fn hidden(&self, ids: &[u32], causal: bool) -> Array2<f32> {
        let rows: Vec<usize> = ids.iter().map(|id| *id as usize).collect();
        let mut x = self.matrix("model.embed_tokens.weight").unwrap().select(Axis(0), &rows);
        for i in 0..self.config.usize("num_hidden_layers").unwrap() {
            let at = |name: &str| format!("model.layers.{i}.{name}");
            let h = self.norm(&x, &at("input_layernorm"));
            x += &self.attention(&h, &at("self_attn"), causal);
            let h = self.norm(&x, &at("post_attention_layernorm"));
            let gate = self.linear(&h, &at("mlp.gate_proj")).mapv(|g| g / (1.0 + (-g).exp()));
            x += &self.linear(&(gate * self.linear(&h, &at("mlp.up_proj"))), &at("mlp.down_proj"));
        }
        self.norm(&x, "model.norm").mapv(|v| v as f32)
    }
}

#[test]
fn the_reference_looking_back_is_transformers() {
    let plain = Plain { source: source("llama"), config: config("llama", true) };
    for (case, ids, want) in cases_of(&folder("llama"), "hidden") {
        let error = worst(&plain.hidden(&ids, true), &want);
        assert!(error < 1e-5, "{case}: {error:.1e}");
    }
}

#[test]
fn a_decoder_that_is_not_causal_sees_all_of_a_text() {
    for (backend, b) in exact_backends() {
        for name in ["llama", "qwen2", "qwen3"] {
            for causal in [true, false] {
                let plain = Plain { source: source(name), config: config(name, causal) };
                let model = build(&*b, &class(name), &plain.config, &*plain.source).unwrap();
                assert_eq!((model.causal(), model.cache_layout().is_empty()), (causal, !causal), "{name}");
                for (case, ids, _) in cases_of(&folder(name), "hidden") {
                    let want = plain.hidden(&ids, causal);
                    let error = worst(&hidden_of(&*b, &*model, &ids), &want);
                    assert!(error < 2e-5, "{name} on {backend}, {case}, causal {causal}: {error:.1e}");
                }
            }
        }
    }
}

/// In one layer the last token sees the same either way, and the first does not.
#[test]
fn what_is_built_on_llama_and_gemma_looks_ahead_too() {
    let b = exact();
    for name in ["mixtral", "phi3", "qwen2-moe", "qwen3-moe", "gemma", "gemma2"] {
        let ids = cases_of(&folder(name), "hidden").remove(0).1;
        let [back, ahead] = [true, false].map(|causal| {
            let mut c = config(name, causal);
            (c.0["num_hidden_layers"], c.0["layer_types"]) = (1.into(), json!(null));
            hidden_of(&b, &*build(&b, &class(name), &c, &*source(name)).unwrap(), &ids)
        });
        let row = |of: &Array2<f32>, row| of.row(row).to_owned().insert_axis(Axis(0));
        let off = |i: usize| worst(&row(&back, i), &row(&ahead, i));
        assert!(off(ids.len() - 1) < 1e-5 && off(0) > 1e-3, "{name}: {}, {}", off(ids.len() - 1), off(0));
    }
}

#[test]
fn vectors_are_the_same_whatever_else_is_in_the_step() {
    let b = exact();
    let model = build(&b, "Qwen3Model", &config("qwen3", false), &*source("qwen3")).unwrap();
    let ids = cases_of(&folder("qwen3"), "hidden").remove(0).1;
    let texts: Vec<&[u32]> = vec![&ids[..9], &ids[3..4], &ids];
    for pooling in [Pooling::Mean, Pooling::Last] {
        let mut how = Embed::new(pooling);
        let alone = texts.iter().map(|text| embed(&b, &*model, &[text], &how).unwrap()).collect::<Vec<_>>();
        for chunk in [512, 7] {
            how.chunk = chunk;
            let together = embed(&b, &*model, &texts, &how).unwrap();
            for (row, alone) in together.rows().into_iter().zip(&alone) {
                assert_eq!(row, alone.row(0), "{pooling:?}, steps of {chunk}");
            }
        }
    }
}

#[test]
fn what_looks_ahead_draws_nothing_and_sees_no_part_of_a_text() {
    let b: Arc<dyn Backend> = Arc::new(exact());
    let load = || build(&*b, "LlamaForCausalLM", &config("llama", false), &*source("llama")).unwrap();
    let e = evaluate(&*b, &*load(), &[1], &Evaluate::new()).unwrap_err().to_string();
    assert!(e.contains("encoder: it has no logits; ask for its vectors"), "{e}");
    let e = Engine::new(Arc::clone(&b), load().into(), Limits::new(8)).unwrap_err().to_string();
    assert!(e.contains("is an encoder"), "{e}");
    let cache = b.new_cache(&CacheSpec::new(vec![], 16, 4, 0).blocks(vec![])).unwrap();
    let mut batch = Batch::default();
    batch.push(&[5, 6], 3, vec![], [0, 1]);
    batch.want_all();
    let plan = b.plan(batch).unwrap();
    let e = load().hidden(&Step::new(&*b, &plan, &cache)).unwrap_err().to_string();
    assert!(e.contains("3 tokens of a text were in an earlier step"), "{e}");
}

#[test]
fn what_is_not_known_of_looking_ahead_is_refused() {
    let refusal = |name: &str, change: fn(&mut Config)| {
        let mut c = config(name, false);
        change(&mut c);
        build(&exact(), &class(name), &c, &*source(name)).unwrap_err().to_string()
    };
    for name in ["mistral", "gemma2", "gemma3"] {
        let e = refusal(name, |c| c.0["sliding_window"] = 9.into());
        assert!(e.contains("`is_causal` is off and layers have a window"), "{name}: {e}");
    }
    let e = refusal("gpt2", |_| ());
    assert!(e.contains("`is_causal` is off"), "{e}");
    let e = refusal("llama", |c| c.0["is_causal"] = "no".into());
    assert!(e.contains("`is_causal` should be true or false"), "{e}");
}
