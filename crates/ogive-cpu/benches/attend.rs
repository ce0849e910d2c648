//! Attention and what goes with it, in the shapes of Llama 3.2 1B (16 layers, 32 heads on 8 of 64): milliseconds a step
//! of all layers takes at best. Not criterion: a step is milliseconds long, and the table is what one wants to see.
//!
//! `cargo bench -p ogive-cpu --bench attend [-- THREADS] [CACHE]...`, where a cache is `f32`, `f16`, `bf16` or `q8_0`; all, unless said.
#![allow(clippy::print_stdout)]

use ogive_backend::{AttnSpec, Backend, Batch, BlockTable, CacheSpec, LayerCache, Rope, tensor::*};
use ogive_cpu::CpuBackend;
use std::{hint::black_box, time::Instant};

const LAYERS: usize = 16;
const HEADS: usize = 32;
const KV: usize = 8;
const DIM: usize = 64;

/// Milliseconds of the fastest of some runs of `f`.
fn time(mut f: impl FnMut()) -> f64 {
    let (begin, mut best) = (Instant::now(), f64::INFINITY);
    for i in 0..100 {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
        if i >= 4 && begin.elapsed().as_secs_f64() > 0.5 {
            break;
        }
    }
    best
}

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 1009) as f32 / 504.5 - 1.0).collect()
}

fn main() -> Result<()> {
    let threads = std::env::args().filter_map(|a| a.parse().ok()).next();
    let wanted: Vec<_> = std::env::args().collect();
    let known = || [&F32, &F16, &BF16, &Q8_0].into_iter();
    let named = |f: &&Format| wanted.iter().any(|w| w == f.name);
    let elements: Vec<_> = known().filter(|f| !known().any(|k| named(&k)) || named(f)).collect();
    let b = CpuBackend::builder();
    let b = threads.map_or(b.clone(), |n| b.threads(n)).build()?;
    println!("{} ({})", b.facts().name, b.facts().description);
    println!(
        "{:>6} {:>6} {:>6} {:>6} {:>9} {:>9} {:>9}",
        "spans", "rows", "past", "cache", "attend ms", "store ms", "rope ms"
    );
    let spec = AttnSpec::causal(HEADS, KV, DIM);
    let rope = Rope::new((0..DIM / 2).map(|i| 5e5f32.powf(-(i as f32) / 32.0)).collect::<Vec<_>>());
    for (spans, len, past) in [
        (1usize, 1usize, 64usize),
        (1, 1, 2048),
        (1, 1, 16384),
        (1, 1, 32768),
        (8, 1, 2048),
        (1, 512, 0),
        (1, 512, 2048),
    ] {
        for element in elements.clone() {
            let context = past + len;
            let blocks = context.div_ceil(16);
            let layers = vec![LayerCache::full(KV * DIM, KV * DIM); LAYERS];
            let cache = b.new_cache(&CacheSpec::new(layers, 16, blocks * spans, 0).element(element))?;
            // Everything that is read has been written, with something that is not zero.
            let step = |rows: usize, past: usize| {
                let mut batch = Batch::default();
                for s in 0..spans {
                    let table = BlockTable {
                        first: 0,
                        blocks: (0..blocks).map(|i| (i * spans + s) as u32).collect(),
                    };
                    batch.push(&vec![0; rows], past, vec![table], [0, 0]);
                }
                b.plan(batch)
            };
            let fill = step(context, 0)?;
            let kv = b.upload(&values(spans * context * KV * DIM), [spans * context, KV * DIM].into())?;
            (0..LAYERS).try_for_each(|l| b.store_kv(l, &kv, Some(&kv), &cache, &fill))?;
            let (plan, n) = (step(len, past)?, spans * len);
            let q = b.upload(&values(n * HEADS * DIM), [n, HEADS, DIM].into())?;
            let kv = b.upload(&values(n * KV * DIM), [n, KV, DIM].into())?;
            let attend = time(|| {
                for l in 0..LAYERS {
                    black_box(b.attend_cache(l, &q, &cache, &spec, &plan)).ok();
                }
            });
            let store = time(|| {
                for l in 0..LAYERS {
                    black_box(b.store_kv(l, &kv, Some(&kv), &cache, &plan)).ok();
                }
            });
            let turn = time(|| {
                for _ in 0..LAYERS {
                    black_box(b.rope(q.clone(), &rope, &plan)).ok();
                    black_box(b.rope(kv.clone(), &rope, &plan)).ok();
                }
            });
            println!(
                "{spans:>6} {len:>6} {past:>6} {:>6} {attend:>9.3} {store:>9.3} {turn:>9.3}",
                element.name
            );
        }
    }
    Ok(())
}
