//! Attention over one layer of many: what it reads must be the layer's own pages, or those it shares, found by its group's table.
//!
//! All layers are of one width and both groups have as many blocks, so that who reads another layer, or by another table, finds numbers
//! there and no error.

use super::sequences::Sequences;
use super::{Case, owned, up};
use crate::suite::Options;
use crate::suite::lab::Lab;
use ogive_backend::tensor::{F32, Format, Result, Tensor};
use ogive_backend::{AttnOption, AttnSpec, Batch, CacheSpec, LayerCache, Rope};

const HEADS: usize = 4;
const DIM: usize = 32;
/// Elements of a row of keys.
const ROW: usize = 2 * DIM;

/// Layers that store.
const OWNERS: [usize; 4] = [0, 2, 4, 6];
/// Layers that are read, and their windows; the third and the fifth are others'.
const READ: [(usize, Option<usize>); 6] =
    [(0, None), (2, Some(4)), (3, Some(4)), (4, None), (5, None), (6, Some(6))];

/// By which operator layers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Cached,
    /// Layers that store by `rope_attend`.
    Rotated,
    Latent,
}

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    for &element in &options.elements {
        cases.push(Case::new(format!("attend_cache/layers-and-groups/{}-cache", element.name), move |lab| {
            story(lab, element, Way::Cached)
        }));
    }
    cases.push(Case::new("rope_attend/layers-and-groups", |lab| story(lab, &F32, Way::Rotated)));
    cases.push(Case::new("attend_latent/layers-and-groups", |lab| story(lab, &F32, Way::Latent)));
}

fn spec(element: &'static Format, v_dim: usize) -> CacheSpec {
    let layers = vec![
        LayerCache::full(ROW, v_dim),
        LayerCache::State { len: 3 },
        LayerCache::windowed(ROW, v_dim, 4, 1),
        LayerCache::Shares(2),
        LayerCache::full(ROW, v_dim),
        LayerCache::Shares(0),
        LayerCache::windowed(ROW, v_dim, 6, 1),
    ];
    CacheSpec::new(layers, 2, 24, 8).element(element)
}

/// Queries, and keys and values of each layer that stores, all in a row.
struct Numbers {
    rows: usize,
    values: Vec<f32>,
}

impl Numbers {
    fn q(&self) -> &[f32] {
        &self.values[..self.rows * HEADS * ROW]
    }
    /// Keys (0) or values (1) of the layer.
    fn side(&self, owner: usize, side: usize) -> &[f32] {
        let at = HEADS + 2 * owner + side;
        &self.values[at * self.rows * ROW..][..self.rows * ROW]
    }
}

fn story(lab: &mut Lab<'_>, element: &'static Format, way: Way) -> Result<()> {
    let latent = way == Way::Latent;
    let spec = spec(element, if latent { 0 } else { ROW });
    let mut sequences = Sequences::new(&mut lab.random, &spec, 2);
    let batches: Vec<Batch> =
        [(7, 1), (1, 4), (3, 1), (1, 1)].map(|(a, c)| sequences.step(&[(0, a), (1, c)], 1)).into();
    let numbers: Vec<Numbers> = batches
        .iter()
        .map(|batch| {
            let rows = batch.tokens.len();
            Numbers { rows, values: lab.random.normal((HEADS + 2 * OWNERS.len()) * rows * ROW) }
        })
        .collect();
    let attention = |window: Option<usize>| {
        let spec = if latent { AttnSpec::new(HEADS, 1, ROW, DIM) } else { AttnSpec::new(HEADS, 2, DIM, DIM) };
        let spec = spec.with(AttnOption::Causal);
        window.map_or(spec.clone(), |w| spec.with(AttnOption::Window(w)))
    };
    let rope = Rope::new((0..DIM / 2).map(|i| 100f32.powf(-(i as f32) / 16.0)).collect::<Vec<_>>());
    // Keys are rotated with a rounding of their own.
    let slack = if way == Way::Rotated { 2.0 } else { 1.0 };
    lab.defined("each layer, each step", lab.attended(element).times(slack), &|b| {
        let (cache, mut seen) = (b.new_cache(&spec)?, Vec::new());
        for (batch, numbers) in batches.iter().zip(&numbers) {
            let (plan, n) = (b.plan(batch.clone())?, batch.tokens.len());
            let heads = if latent { [HEADS, ROW] } else { [HEADS, DIM] };
            let q = up(b, &numbers.q()[..n * heads[0] * heads[1]], &[n, heads[0], heads[1]])?;
            let turned = (way == Way::Rotated).then(|| b.rope(q.clone(), &rope, &plan)).transpose()?;
            let read = |layer: usize, window| -> Result<Tensor> {
                let spec = attention(window);
                let owner = OWNERS.iter().position(|o| *o == layer);
                let side = |i: usize| up(b, numbers.side(owner.unwrap_or(0), i), &[n, ROW / DIM, DIM]);
                match (way, owner) {
                    (Way::Rotated, Some(_)) => {
                        b.rope_attend(layer, q.clone(), side(0)?, &side(1)?, &rope, &cache, &spec, &plan)
                    }
                    (Way::Rotated, None) => {
                        b.attend_cache(layer, turned.as_ref().unwrap_or(&q), &cache, &spec, &plan)
                    }
                    (Way::Cached, _) => b.attend_cache(layer, &q, &cache, &spec, &plan),
                    (Way::Latent, _) => b.attend_latent(layer, &q, &cache, &spec, &plan),
                }
            };
            for (i, layer) in OWNERS.into_iter().enumerate() {
                if way == Way::Rotated {
                    break; // They store when they are read.
                }
                let side = |side: usize| up(b, numbers.side(i, side), &[n, ROW]);
                let v = (!latent).then(|| side(1)).transpose()?;
                b.store_kv(layer, &side(0)?, v.as_ref(), &cache, &plan)?;
            }
            for (layer, window) in READ {
                seen.push(owned(b, &read(layer, window)?, batch)?);
            }
        }
        Ok(seen)
    });
    Ok(())
}
