//! The cost of a token's draw at a vocabulary of 150,000. `cargo bench -p ogive-benches --bench sampler`
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use ogive_sampler::SamplerParams;

fn draws(c: &mut Criterion) {
    let logits = ogive_benches::values(150_000, 2.0);
    let plain = SamplerParams { top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerParams::default() };
    let chains = [
        ("greedy", SamplerParams::greedy()),
        ("default", SamplerParams::default()),
        ("default and repeat penalty", SamplerParams { repeat_penalty: 1.1, ..SamplerParams::default() }),
        ("top-p alone", SamplerParams { top_p: 0.95, ..plain.clone() }),
        ("min-p alone", SamplerParams { min_p: 0.05, ..plain.clone() }),
        ("temperature alone", plain),
    ];
    let history: Vec<u32> = (0..64).collect();
    for (name, params) in chains {
        let Ok(mut chain) = params.build() else { continue };
        c.bench_function(name, |b| b.iter(|| chain.sample(&logits, &history)));
    }
}

criterion_group!(benches, draws);
criterion_main!(benches);
