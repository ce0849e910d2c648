//! The operators that a token's time goes to, on the CPU: products in every weight format, attention, norms.
//! `cargo bench -p ogive-benches --bench operators`, and `-- linear/q4_K` for some.
//!
//! In the sizes of a 1B model: a criterion bench is for seeing a change, and there one is seen above the cost of a call.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ogive_backend::{AttnSpec, Backend, Batch, BlockTable, CacheSpec, LayerCache};
use ogive_cpu::CpuBackend;
use ogive_tensor::{F16, FORMATS, HostWeight, Result, Tensor};

const DIM: usize = 2048;
const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const HEAD: usize = 64;

/// A tensor of numbers that look like activations. `[rows, cols]`
fn tensor(b: &CpuBackend, rows: usize, cols: usize) -> Result<Tensor> {
    b.upload(&ogive_benches::values(rows * cols, 0.5), [rows, cols].into())
}

/// Products of one token and of a prompt with a square matrix, packed in each format.
fn linear(c: &mut Criterion) -> Result<()> {
    let b = CpuBackend::builder().build()?;
    let values = ogive_benches::values(DIM * DIM, 0.05);
    for format in FORMATS {
        let mut packed = vec![0; format.row_bytes(values.len())];
        // A format that is only read is timed on zeros, which cost the same.
        if format.encode.is_some() {
            format.encode_row(&values, &mut packed)?;
        }
        let w = b.upload_weight(&HostWeight::new("w", [1, DIM, DIM], format, packed.into())?)?;
        let mut group = c.benchmark_group(format!("linear/{}", format.name));
        for rows in [1, 256] {
            let x = tensor(&b, rows, DIM)?;
            group.sample_size(if rows > 1 { 10 } else { 50 });
            group.throughput(Throughput::Elements((2 * rows * DIM * DIM) as u64));
            group.bench_function(format!("{rows} rows"), |bench| bench.iter(|| b.linear(&x, &w)));
        }
        group.finish();
    }
    Ok(())
}

/// One token, and a prompt's last 256, over contexts of two lengths in half precision.
fn attention(c: &mut Criterion) -> Result<()> {
    let b = CpuBackend::builder().build()?;
    let (kv, spec) = (KV_HEADS * HEAD, AttnSpec::causal(HEADS, KV_HEADS, HEAD));
    for context in [512, 4096] {
        let layers = vec![LayerCache::full(kv, kv)];
        let cache = b.new_cache(&CacheSpec::new(layers, 32, context / 32, 0).element(&F16))?;
        let table = BlockTable { first: 0, blocks: (0..context as u32 / 32).collect() };
        let step = |rows: usize, past: usize| {
            let mut batch = Batch::default();
            batch.push(&vec![0; rows], past, vec![table.clone()], [0, 1]);
            b.plan(batch)
        };
        let whole = step(context, 0)?;
        b.store_kv(0, &tensor(&b, context, kv)?, Some(&tensor(&b, context, kv)?), &cache, &whole)?;
        let mut group = c.benchmark_group(format!("attention/{context} tokens"));
        group.sample_size(10);
        for rows in [1, 256] {
            let (q, plan) = (tensor(&b, rows, HEADS * HEAD)?, step(rows, context - rows)?);
            let name = format!("{rows} rows");
            group.bench_function(name, |bench| bench.iter(|| b.attend_cache(0, &q, &cache, &spec, &plan)));
        }
        group.finish();
    }
    Ok(())
}

fn norms(c: &mut Criterion) -> Result<()> {
    let b = CpuBackend::builder().build()?;
    let w = b.upload(&ogive_benches::values(DIM, 1.0), [DIM].into())?;
    for rows in [1, 256] {
        let x = tensor(&b, rows, DIM)?;
        c.bench_function(&format!("rms_norm/{rows} rows"), |bench| bench.iter(|| b.rms_norm(&x, &w, 1e-5)));
        let layer_norm = || b.layer_norm(&x, &w, Some(&w), 1e-5);
        c.bench_function(&format!("layer_norm/{rows} rows"), |bench| bench.iter(layer_norm));
    }
    Ok(())
}

/// Linear attention with the heads of a Qwen3.5 of 4 billion parameters, by the gated delta rule, and with those of Granite 4.0 H Small, without:
/// for a token and for a prompt's last 256.
fn linear_attention(c: &mut Criterion) -> Result<()> {
    let shapes = [("delta", [16, 32, 128, 128], true), ("mamba-2", [1, 128, 128, 64], false)];
    shapes.into_iter().try_for_each(|(name, sizes, delta)| linear_heads(c, name, sizes, delta))
}

fn linear_heads(
    c: &mut Criterion,
    name: &str,
    [key_heads, heads, k_dim, v_dim]: [usize; 4],
    delta: bool,
) -> Result<()> {
    let b = CpuBackend::builder().build()?;
    let len = heads * k_dim * v_dim;
    let cache = b.new_cache(&CacheSpec::new(vec![LayerCache::State { len }], 32, 1, 2))?;
    let mut group = c.benchmark_group("linear_attention");
    for rows in [1, 256] {
        let mut batch = Batch::default();
        batch.push(&vec![0; rows], 1, Vec::new(), [0, 1]);
        let plan = b.plan(batch)?;
        let of = |heads: usize, dim: usize, spread| {
            b.upload(&ogive_benches::values(rows * heads * dim, spread), [rows, heads, dim].into())
        };
        // Keys about as long as one, and a state that a token takes a tenth from.
        let (q, k, v) = (of(key_heads, k_dim, 0.1)?, of(key_heads, k_dim, 0.1)?, of(heads, v_dim, 1.0)?);
        let [g, beta] = [-0.1, 0.5].map(|value| b.upload(&vec![value; rows * heads], [rows, heads].into()));
        let (g, beta) = (g?, beta?);
        group.sample_size(10);
        group.throughput(Throughput::Elements((if delta { 7 } else { 5 } * rows * len) as u64));
        let run = || b.linear_attention(0, &q, &k, &v, &g, delta.then_some(&beta), &cache, &plan);
        group.bench_function(format!("{name}, {rows} rows"), |bench| bench.iter(run));
    }
    group.finish();
    Ok(())
}

/// A bench that cannot be set up is a mistake here, to be seen.
fn all(c: &mut Criterion) {
    let outcome =
        linear(c).and_then(|()| attention(c)).and_then(|()| norms(c)).and_then(|()| linear_attention(c));
    assert!(outcome.is_ok(), "{outcome:?}");
}

criterion_group!(benches, all);
criterion_main!(benches);
