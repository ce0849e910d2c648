//! What sequences remember: rows of the cache, states, and the operators that carry states along a sequence.

use super::Bench;
use crate::Result;
use crate::lab::{BLOCK, Sequences, rotate, tensor, values};
use ogive::backend::{Backend, BlockCopy, LayerCache, Plan};
use ogive::tensor::{F16, Q8_0};

/// A layer of Mamba 2.8B: channels, and numbers of the state of each.
const MAMBA: [usize; 2] = [5120, 16];
const TINY: [usize; 2] = [64, 4];

/// A layer of Qwen3-Next 80B-A3B that has states: channels that are convolved, and rows that are seen; key heads, heads, and elements of keys and
/// of values.
const CONVOLVED: [usize; 2] = [8192, 4];
const DELTA: [usize; 4] = [16, 32, 128, 128];
/// The same of Granite 4.0 H Small, whose layers have no delta rule.
const MAMBA_2: [usize; 4] = [1, 128, 128, 64];

/// A token of each sequence goes to its page.
pub(super) fn store(bench: &mut Bench<'_>) -> Result<()> {
    let (b, s) = (bench.b, bench.s);
    let kv = s.kv_heads * s.head;
    for element in [&F16, &Q8_0] {
        let name = format!("store_kv {}", element.name);
        if !bench.wants(&name) {
            continue;
        }
        for &rows in bench.rows().iter().filter(|rows| **rows <= 512) {
            let all = Sequences::of(b, vec![LayerCache::full(kv, kv); 4], element, rows, 0..1)?;
            let (plan, k, v) = (all.plan(b, 1, 0)?, tensor(b, rows, kv)?, tensor(b, rows, kv)?);
            let bytes = (2 * rows * (4 * kv + element.row_bytes(kv))) as f64;
            bench.add(&name, &format!("{rows} × 2 · {kv}"), (16, Some(&plan)), [bytes, 0.0], &mut |i| {
                b.store_kv(i % 4, &k, Some(&v), &all.cache, &plan)
            })?;
        }
    }
    Ok(())
}

/// What a sequence is saved by: all rows of a layer, in single precision.
pub(super) fn gather(bench: &mut Bench<'_>) -> Result<()> {
    let (b, s) = (bench.b, bench.s);
    let kv = s.kv_heads * s.head;
    for element in [&F16, &Q8_0] {
        let name = format!("gather_kv {}", element.name);
        if !bench.wants(&name) {
            continue;
        }
        for &context in bench.run.pick(&[2048, 32_768][..], &[40]) {
            let all = Sequences::of(b, vec![LayerCache::full(kv, kv)], element, 1, 0..context)?;
            let plan = all.plan(b, 1, context - 1)?;
            let bytes = (2 * context * (4 * kv + element.row_bytes(kv))) as f64;
            bench.eager(&name, format!("{context} × 2 · {kv}"), [bytes, 0.0], &mut || {
                b.gather_kv(0, &all.cache, &plan).map(drop)
            })?;
        }
    }
    Ok(())
}

/// What a fork copies before it writes: a block of each sequence, in all layers.
pub(super) fn copies(bench: &mut Bench<'_>) -> Result<()> {
    let (name, b, s) = ("copy_blocks f16", bench.b, bench.s);
    if !bench.wants(name) {
        return Ok(());
    }
    let (kv, layers) = (s.kv_heads * s.head, bench.run.pick(32, 2));
    for &count in bench.run.pick(&[1, 16][..], &[2]) {
        let all = Sequences::new(b, vec![LayerCache::full(kv, kv); layers], count, 2 * BLOCK)?;
        let mut batch = all.batch(1, BLOCK);
        // Blocks of sequences alternate: the first of each, and then the second of each.
        let n = u32::try_from(count)?;
        batch.copies = (0..n).map(|i| BlockCopy { group: 0, from: i, to: i + n }).collect();
        let plan = b.plan(batch)?;
        let bytes = (2 * count * layers * 2 * BLOCK * F16.row_bytes(kv)) as f64;
        let case = format!("{count} × {BLOCK} tokens, {layers} layers");
        bench.eager(name, case, [bytes, 0.0], &mut || b.copy_blocks(&all.cache, &plan))?;
    }
    Ok(())
}

/// Sequences and rows of each: tokens of several, and a piece of a prompt.
fn steps(bench: &Bench<'_>, prompt: Option<usize>) -> Vec<[usize; 2]> {
    let counts = bench.run.pick(&[1, 4, 16, 64][..], &[1, 2]);
    counts.iter().map(|count| [*count, 1]).chain(prompt.map(|rows| [1, rows])).collect()
}

/// Such sequences, with a state of so many numbers in each of some layers, and how many those are: one call after the other finds its state in
/// memory, as a model's layers do, and not in the L2.
fn with_states(bench: &Bench<'_>, len: usize, [count, rows]: [usize; 2]) -> Result<(Sequences, Plan, usize)> {
    let layers = (rotate(bench.run) / (8 * len * count)).clamp(2, 64);
    let all = Sequences::new(bench.b, vec![LayerCache::State { len }; layers], count, rows + 1)?;
    // Something went before, else no state is read.
    let plan = all.plan(bench.b, rows, 1)?;
    Ok((all, plan, layers))
}

/// Calls in a graph: one for each layer where tokens come by themselves.
fn calls(layers: usize, rows: usize) -> usize {
    if rows == 1 { layers.max(4) } else { 2 }
}

/// States as they are: what is read of a layer, and written back to it.
pub(super) fn states(bench: &mut Bench<'_>) -> Result<()> {
    let (name, b, [dim, m]) = ("read_state, write_state", bench.b, bench.run.pick(MAMBA, TINY));
    if !bench.wants(name) {
        return Ok(());
    }
    for [count, rows] in steps(bench, None) {
        let (all, plan, layers) = with_states(bench, dim * m, [count, rows])?;
        let bytes = (16 * count * dim * m) as f64;
        let calls = (calls(layers, rows), Some(&plan));
        bench.add(name, &format!("{count} × {}", dim * m), calls, [bytes, 0.0], &mut |i| {
            let state = b.read_state(i % layers, &all.cache, &plan)?;
            b.write_state(i % layers, &state, &all.cache, &plan)
        })?;
    }
    Ok(())
}

pub(super) fn convolution(bench: &mut Bench<'_>) -> Result<()> {
    let (name, b, [dim, width]) = ("causal_conv", bench.b, bench.run.pick(CONVOLVED, TINY));
    if !bench.wants(name) {
        return Ok(());
    }
    let w = tensor(b, width, dim)?;
    for [count, rows] in steps(bench, Some(bench.run.pick(2048, 20))) {
        let (all, plan, layers) = with_states(bench, (width - 1) * dim, [count, rows])?;
        let (n, x) = (count * rows, tensor(b, count * rows, dim)?);
        let bytes = 4 * dim * (2 * n + width + 2 * count * (width - 1));
        let case = format!("{count} × {rows} × {dim}, width {width}");
        let work = [bytes as f64, (2 * n * dim * width) as f64];
        bench.add(name, &case, (calls(layers, rows), Some(&plan)), work, &mut |i| {
            b.causal_conv(i % layers, &x, &w, &all.cache, &plan).map(drop)
        })?;
    }
    Ok(())
}

pub(super) fn scan(bench: &mut Bench<'_>) -> Result<()> {
    let (name, b, [dim, m]) = ("selective_scan", bench.b, bench.run.pick(MAMBA, TINY));
    if !bench.wants(name) {
        return Ok(());
    }
    // Decay, so that states stay numbers.
    let decay = b.upload(&vec![-1.0; dim * m], [dim, m].into())?;
    for [count, rows] in steps(bench, Some(bench.run.pick(2048, 8))) {
        let (all, plan, layers) = with_states(bench, dim * m, [count, rows])?;
        let n = count * rows;
        let (x, dt) = (tensor(b, n, dim)?, b.upload(&vec![0.5; n * dim], [n, dim].into())?);
        let (input, output) = (tensor(b, n, m)?, tensor(b, n, m)?);
        let bytes = 4 * (n * (3 * dim + 2 * m) + dim * m * (1 + 2 * count));
        let case = format!("{count} × {rows} × {dim}, states of {m}");
        // `exp(dt a) h + (dt x) b`, and its sum with `c`.
        let work = [bytes as f64, (n * dim * (6 * m + 1)) as f64];
        bench.add(name, &case, (calls(layers, rows), Some(&plan)), work, &mut |i| {
            b.selective_scan(i % layers, &x, &dt, &decay, &input, &output, &all.cache, &plan).map(drop)
        })?;
    }
    Ok(())
}

pub(super) fn linear_attention(bench: &mut Bench<'_>) -> Result<()> {
    linear(bench, "linear_attention", DELTA, true)?;
    linear(bench, "linear_attention without beta", MAMBA_2, false)
}

fn linear(bench: &mut Bench<'_>, name: &str, sizes: [usize; 4], delta: bool) -> Result<()> {
    let (b, [key_heads, heads, k_dim, v_dim]) = (bench.b, bench.run.pick(sizes, [1, 2, 8, 8]));
    if !bench.wants(name) {
        return Ok(());
    }
    for [count, rows] in steps(bench, Some(bench.run.pick(2048, 20))) {
        let (n, len) = (count * rows, heads * k_dim * v_dim);
        let (all, plan, layers) = with_states(bench, len, [count, rows])?;
        // Keys are short, and states are forgotten, so that they stay numbers.
        let few = |of: usize, dim: usize| {
            let values: Vec<f32> = values(n * of * dim).into_iter().map(|v| 0.1 * v).collect();
            b.upload(&values, [n, of, dim].into())
        };
        let (q, k, v) = (few(key_heads, k_dim)?, few(key_heads, k_dim)?, few(heads, v_dim)?);
        let gate = |value: f32| b.upload(&vec![value; n * heads], [n, heads].into());
        let (g, beta) = (gate(-0.1)?, gate(0.5)?);
        let bytes = 4 * (2 * n * (key_heads * k_dim + heads * (v_dim + 1)) + 2 * count * len);
        let case = format!("{count} × {rows} × {heads} heads, {k_dim} × {v_dim}");
        // An element of a state is faded, added to and read, by the delta rule twice, for each row.
        let work = [bytes as f64, (if delta { 7 } else { 5 } * n * len) as f64];
        bench.add(name, &case, (calls(layers, rows), Some(&plan)), work, &mut |i| {
            b.linear_attention(i % layers, &q, &k, &v, &g, delta.then_some(&beta), &all.cache, &plan)
                .map(drop)
        })?;
    }
    Ok(())
}
