//! Queries that grow, with norms before the rotation and behind it, against factors of the norm that are as much larger. (What attention computes is held to
//! transformers by golden models, of which none has both.)
#![allow(clippy::unwrap_used)]

use ogive_backend::{AttnSpec, Backend, Batch, BlockTable, CacheSpec};
use ogive_conformance::Oracle;
use ogive_nn::tensor::serde_json::json;
use ogive_nn::tensor::{Config, Error, HostWeight, Result, Source, WeightInfo};
use ogive_nn::{Attention, Loader, RmsNorm, Step, rope};

const HEADS: usize = 2;
const HEAD: usize = 8;
const DIM: usize = HEADS * HEAD;
const TOKENS: usize = 5;

/// Projections that are all there, of numbers by their names.
#[derive(Debug)]
struct Projections;

impl Source for Projections {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let known = ["q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"];
        let seed = known.iter().position(|known| *known == name).ok_or_else(|| Error::missing(name))?;
        HostWeight::from_f32(name, [1, DIM, DIM], &numbers(DIM * DIM, seed))
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        Vec::new()
    }
}

/// Numbers between -1 and 1.
fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + seed * 11) as f32 * 0.7).sin()).collect()
}

/// What two layers make of a text, the second of which attends to what the first stored: of queries that grow by `growth`, with factors of their norms of `factor`.
fn attended(late: bool, growth: Option<f32>, factor: f32) -> Vec<f32> {
    let (loader, c) = (Loader::new(&Projections, &Oracle), Config(json!({})));
    let norm =
        |factor: f32| RmsNorm { weight: Oracle.upload(&[factor; HEAD], [HEAD].into()).unwrap(), eps: 1e-6 };
    let (spec, turns) = (AttnSpec::causal(HEADS, HEADS, HEAD), || rope(HEAD, 100.0));
    let own = Attention::load(&loader, &c, 0, turns(), spec.clone()).unwrap();
    let sharing = Attention::load_sharing(&loader, &c, [1, 0], turns(), spec).unwrap();
    let layers = [own, sharing].map(|layer| {
        let layer = layer.head_norms(norm(factor), norm(1.0));
        let layer = if late { layer.normed_late() } else { layer };
        match growth {
            Some(by) => layer.growing(&loader, TOKENS, |_| by).unwrap(),
            None => layer,
        }
    });
    let kept = layers.iter().map(Attention::cache).collect();
    let cache = Oracle.new_cache(&CacheSpec::new(kept, 4, 2, 0)).unwrap();
    let mut batch = Batch::default();
    batch.push(&[0; TOKENS], 0, vec![BlockTable { first: 0, blocks: vec![0, 1] }], [0, 1]);
    let plan = Oracle.plan(batch).unwrap();
    let step = Step::new(&Oracle, &plan, &cache);
    let x = Oracle.upload(&numbers(TOKENS * DIM, 3), [TOKENS, DIM].into()).unwrap(); // [tokens, dim]
    let out = layers.iter().map(|layer| Oracle.download(&layer.forward(&step, &x).unwrap()).unwrap());
    out.collect::<Vec<_>>().concat()
}

#[test]
fn queries_grow_behind_their_norm_wherever_it_stands() {
    let far = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    for late in [false, true] {
        let (grown, plain) = (attended(late, Some(3.0), 1.0), attended(late, None, 1.0));
        let want = attended(late, None, 3.0);
        let (error, change) = (far(&grown, &want), far(&grown, &plain));
        assert!(error < 1e-5 && change > 0.1, "late: {late}: {error:.1e}, {change:.1e}");
    }
}
