//! What a step's ids and positions do: embeddings and rotations.

use super::linear::STRANGER;
use super::{Case, up};
use crate::suite::Options;
use crate::suite::lab::Lab;
use ogive_backend::tensor::{F32, Format, HostWeight, Result, Scale, Tensor};
use ogive_backend::{AttnSpec, Backend, Batch, BlockTable, CacheSpec, Ids, LayerCache, Rope, RopeLayout};
use std::sync::Arc;

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    for format in options.formats.iter().copied().chain([&STRANGER]) {
        cases.push(Case::new(format!("embed/{}", format.name), move |lab| {
            let cols = 3 * format.block_len;
            let table = lab.random.weight([1, 40, cols], format)?;
            embed(lab, "", &table);
            if format.block_len > 1 {
                let any = lab.random.weight_of_any_bytes([1, 40, cols], format)?;
                embed(lab, "any bytes, ", &any);
            }
            let tiles = 10 * cols.div_ceil(8);
            let values: Vec<f32> = (0..tiles).map(|_| lab.random.between(0.5, 2.0)).collect();
            let scaled = table.with_scale(Scale { values: values.into(), tile: [4, 8] })?;
            let order: Arc<[u32]> = lab.random.order(cols).into();
            embed(lab, "scaled and permuted, ", &scaled.with_input_perm(order)?);
            Ok(())
        }));
    }

    cases.push(Case::new("embed/refused", |lab| {
        let table = lab.random.weight([1, 8, 4], &F32)?;
        for (what, ids, token, position, kind) in [
            ("a token past the table", Ids::Tokens, 8, 0, 0),
            ("the largest token", Ids::Tokens, u32::MAX, 0, 0),
            ("a position past the table", Ids::Positions, 0, 8, 0),
            ("a type past the table", Ids::Types, 0, 0, 8),
        ] {
            let setup = |b: &dyn Backend| {
                let mut batch = Batch::default();
                batch.push(&[1, 2, 3], 0, Vec::new(), [0, 1]);
                (batch.tokens[1], batch.positions[1], batch.types[1]) = (token, position, kind);
                Ok((b.upload_weight(&table)?, b.plan(batch)?))
            };
            lab.refuses(what, setup, |b, (table, plan)| b.embed(&table, ids, &plan));
        }
        Ok(())
    }));

    for (name, layout) in [("halves", RopeLayout::Halves), ("pairs", RopeLayout::Pairs)] {
        cases.push(Case::new(format!("rope/{name}"), move |lab| {
            for (n, heads, dim) in [(1, 1, 2), (3, 2, 8), (9, 5, 64), (33, 1, 128), (0, 2, 8)] {
                rotate(lab, [n, heads, dim], dim / 2, 100, 1.0, layout, 1.0);
            }
            Ok(())
        }));
        cases.push(Case::new(format!("rope/{name}/partial"), move |lab| {
            for (dim, pairs) in [(8, 2), (64, 16), (7, 3), (6, 0), (80, 16)] {
                rotate(lab, [5, 3, dim], pairs, 100, 1.0, layout, 1.0);
            }
            Ok(())
        }));
        cases.push(Case::new(format!("rope/{name}/factor"), move |lab| {
            rotate(lab, [5, 3, 16], 8, 100, 1.386, layout, 1.0);
            Ok(())
        }));
        cases.push(Case::new(format!("rope/{name}/far"), move |lab| {
            // Half a unit in the last place of an angle of 130,000 is 4e-3: the product may be rounded or not.
            rotate(lab, [9, 2, 64], 32, 130_000, 1.0, layout, 1000.0);
            Ok(())
        }));
    }

    cases.push(Case::new("rope/places", |lab| {
        places(lab);
        Ok(())
    }));

    cases.push(Case::new("rope/many-lists", |lab| {
        // Lists are known by their address: two of one length must not be confused, nor one that came after another was
        // dropped.
        let x = lab.random.normal(3 * 8);
        let lists: Vec<Vec<f32>> =
            (0..6).map(|i| (0..4).map(|j| 0.1 * (i + j + 1) as f32).collect()).collect();
        lab.same("one after another", lab.exact(), &|b| {
            let plan = b.plan(positions(&[3, 50, 7]))?;
            let turn = |list: &Vec<f32>| b.rope(up(b, &x, &[3, 1, 8])?, &Rope::new(list.clone()), &plan);
            lists.iter().map(turn).collect()
        });
        Ok(())
    }));

    cases.push(Case::new("rope/refused", |lab| {
        let setup = |dims: &'static [usize]| {
            move |b: &dyn Backend| {
                Ok((up(b, &vec![1.0; dims.iter().product()], dims)?, b.plan(positions(&[0, 1]))?))
            }
        };
        let turn =
            |pairs: usize| move |b: &dyn Backend, (x, plan)| b.rope(x, &Rope::new(vec![1.0; pairs]), &plan);
        lab.refuses("more pairs than a head has", setup(&[2, 3, 8]), turn(5));
        lab.refuses("fewer rows than the step", setup(&[1, 3, 8]), turn(4));
        lab.refuses("more rows than the step", setup(&[3, 3, 8]), turn(4));
        lab.refuses("no heads", setup(&[2, 8]), turn(4));
        Ok(())
    }));
}

/// Rotations by places in time, down and across: pair by pair, of rows that are tokens and rows of an image, by lists that stand beside one
/// by positions alone; alone and on the way to the cache.
fn places(lab: &mut Lab<'_>) {
    let (rows, heads, kv_heads, dim) = (11, 4, 2, 32);
    let [q, k, v] = [heads, kv_heads, kv_heads].map(|n| lab.random.normal(rows * n * dim));
    let freq: Arc<[f32]> = (0..12).map(|i| 1e4f32.powf(-(i as f32) / 12.0)).collect();
    // Three tokens, six places of a grid of two by three, two tokens behind it.
    let grid = (0..6).map(|i| [3, 3 + i / 3, 3 + i % 3]);
    let at: Vec<[u32; 3]> = (0..3).map(|p| [p; 3]).chain(grid).chain((6..8).map(|p| [p; 3])).collect();
    let sections = [0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2];
    let woven: Vec<u8> = (0..12).map(|i| (i % 3) as u8).collect();
    for (what, axes) in [("in sections", &sections[..]), ("in turn", &woven[..])] {
        for placed in [true, false] {
            lab.same(&format!("{what}, {placed}"), lab.exact(), &|b| {
                let cache =
                    b.new_cache(&CacheSpec::new(vec![LayerCache::full(64, 64)], 4, 3, 0).element(&F32))?;
                let mut batch = Batch::default();
                batch.push(&[0; 11], 0, vec![BlockTable { first: 0, blocks: vec![2, 0, 1] }], [0, 1]);
                if placed {
                    batch.place(0, &at);
                }
                let plan = b.plan(batch)?;
                let plain = Rope::new(Arc::clone(&freq)).factor(1.1);
                let rope = plain.clone().axes(axes)?;
                let spec = AttnSpec::causal(heads, kv_heads, dim);
                let (qs, ks) = (up(b, &q, &[rows, heads, dim])?, up(b, &k, &[rows, kv_heads, dim])?);
                let turned = b.rope(qs.clone(), &rope, &plan)?;
                let flat = b.rope(qs.clone(), &plain, &plan)?;
                let vs = up(b, &v, &[rows, kv_heads * dim])?;
                let attended = b.rope_attend(0, qs, ks, &vs, &rope, &cache, &spec, &plan)?;
                Ok(vec![turned, flat, attended])
            });
        }
    }
    let setup = |b: &dyn Backend| {
        let mut batch = positions(&[0, 1]);
        batch.place(0, &[[0, 1, 2], [3; 3]]);
        Ok((up(b, &[1.0; 16], &[2, 1, 8])?, b.plan(batch)?))
    };
    lab.refuses("too few frequencies by a place", setup, |b, (x, plan)| {
        let mut rope = Rope::new(vec![1.0; 4]).axes(&[0, 1, 2, 0])?;
        rope.axes = rope.axes.map(|[time, down, _]| [time, down, vec![1.0; 3].into()]);
        b.rope(x, &rope, &plan)
    });
}

/// A step of rows at these positions.
pub(super) fn positions(at: &[u32]) -> Batch {
    let mut batch = Batch::default();
    batch.push(&vec![0; at.len()], 0, Vec::new(), [0, 1]);
    batch.positions = at.to_vec();
    batch
}

fn embed(lab: &mut Lab<'_>, what: &str, table: &HostWeight) {
    let [_, rows, _] = table.shape;
    for n in [1, 2, 9, 70, 0] {
        let [tokens, positions, types] = [(); 3].map(|()| lab.random.ids(n, rows));
        let limit = if exactly(table.format) { lab.moved() } else { lab.exact() };
        lab.same(&format!("{what}{n} rows"), limit, &|b| {
            let mut batch = Batch::default();
            batch.push(&tokens, 0, Vec::new(), [0, 1]);
            (batch.positions, batch.types) = (positions.clone(), types.clone());
            let (table, plan) = (b.upload_weight(table)?, b.plan(batch)?);
            [Ids::Tokens, Ids::Positions, Ids::Types]
                .into_iter()
                .map(|ids| b.embed(&table, ids, &plan))
                .collect()
        });
    }
}

/// Formats whose elements are numbers as they stand; a backend may multiply out the scales of others in another order.
fn exactly(format: &Format) -> bool {
    format.block_len == 1
}

fn rotate(
    lab: &mut Lab<'_>,
    dims: [usize; 3],
    pairs: usize,
    furthest: usize,
    factor: f32,
    layout: RopeLayout,
    slack: f64,
) {
    let x = lab.random.normal(dims.iter().product());
    let at = lab.random.ids(dims[0], furthest);
    let freq: Arc<[f32]> = (0..pairs).map(|i| 1e4f32.powf(-(i as f32) / pairs as f32)).collect();
    let rope = Rope::new(freq).layout(layout).factor(factor);
    let what = format!("{dims:?}, {pairs} pairs, up to position {furthest}");
    lab.same(&what, lab.exact().times(slack), &|b: &dyn Backend| -> Result<Vec<Tensor>> {
        let plan = b.plan(positions(&at))?;
        let y = b.rope(up(b, &x, &dims)?, &rope, &plan)?;
        let held = up(b, &x, &dims)?;
        Ok(vec![y, b.rope(held.clone(), &rope, &plan)?, held])
    });
}
