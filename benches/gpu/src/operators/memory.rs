//! What sequences remember: rows of the cache, states, and the operators that carry states along a sequence.

use super::Bench;
use crate::Result;
use crate::lab::{BLOCK, Sequences, tensor};
use ogive::backend::{Backend, BlockCopy, LayerCache, Plan};
use ogive::cuda::CudaBackend;
use ogive::tensor::{F16, Q8_0};

/// A layer of Mamba 2.8B: channels, numbers of the state of each, and rows that a convolution sees.
const MAMBA: [usize; 3] = [5120, 16, 4];
const TINY: [usize; 3] = [64, 4, 4];

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

/// Such sequences, with a state of so many numbers.
fn with_states(b: &CudaBackend, len: usize, [count, rows]: [usize; 2]) -> Result<(Sequences, Plan)> {
    let all = Sequences::new(b, vec![LayerCache::State { len }], count, rows + 1)?;
    // Something went before, else no state is read.
    let plan = all.plan(b, rows, 1)?;
    Ok((all, plan))
}

/// States as they are: what is read of a layer, and written back to it.
pub(super) fn states(bench: &mut Bench<'_>) -> Result<()> {
    let (name, b, [dim, m, _]) = ("read_state, write_state", bench.b, bench.run.pick(MAMBA, TINY));
    if !bench.wants(name) {
        return Ok(());
    }
    for [count, rows] in steps(bench, None) {
        let (all, plan) = with_states(b, dim * m, [count, rows])?;
        let bytes = (16 * count * dim * m) as f64;
        bench.add(name, &format!("{count} × {}", dim * m), (4, Some(&plan)), [bytes, 0.0], &mut |_| {
            let state = b.read_state(0, &all.cache, &plan)?;
            b.write_state(0, &state, &all.cache, &plan)
        })?;
    }
    Ok(())
}

pub(super) fn convolution(bench: &mut Bench<'_>) -> Result<()> {
    let (name, b, [dim, _, width]) = ("causal_conv", bench.b, bench.run.pick(MAMBA, TINY));
    if !bench.wants(name) {
        return Ok(());
    }
    let w = tensor(b, width, dim)?;
    for [count, rows] in steps(bench, Some(bench.run.pick(512, 20))) {
        let (all, plan) = with_states(b, (width - 1) * dim, [count, rows])?;
        let (n, x) = (count * rows, tensor(b, count * rows, dim)?);
        let bytes = 4 * dim * (2 * n + width + 2 * count * (width - 1));
        let case = format!("{count} × {rows} × {dim}, width {width}");
        let work = [bytes as f64, (2 * n * dim * width) as f64];
        bench.add(name, &case, (2, Some(&plan)), work, &mut |_| {
            b.causal_conv(0, &x, &w, &all.cache, &plan).map(drop)
        })?;
    }
    Ok(())
}

pub(super) fn scan(bench: &mut Bench<'_>) -> Result<()> {
    let (name, b, [dim, m, _]) = ("selective_scan", bench.b, bench.run.pick(MAMBA, TINY));
    if !bench.wants(name) {
        return Ok(());
    }
    // Decay, so that states stay numbers.
    let decay = b.upload(&vec![-1.0; dim * m], [dim, m].into())?;
    for [count, rows] in steps(bench, Some(bench.run.pick(64, 8))) {
        let (all, plan) = with_states(b, dim * m, [count, rows])?;
        let n = count * rows;
        let (x, dt) = (tensor(b, n, dim)?, b.upload(&vec![0.5; n * dim], [n, dim].into())?);
        let (input, output) = (tensor(b, n, m)?, tensor(b, n, m)?);
        let bytes = 4 * (n * (3 * dim + 2 * m) + dim * m * (1 + 2 * count));
        let case = format!("{count} × {rows} × {dim}, states of {m}");
        // `exp(dt a) h + (dt x) b`, and its sum with `c`.
        let work = [bytes as f64, (n * dim * (6 * m + 1)) as f64];
        bench.add(name, &case, (2, Some(&plan)), work, &mut |_| {
            b.selective_scan(0, &x, &dt, &decay, &input, &output, &all.cache, &plan).map(drop)
        })?;
    }
    Ok(())
}
