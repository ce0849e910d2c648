//! The cost of a token's draw at a vocabulary of 150,000. `cargo bench -p ogive-benches --bench sampler`
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use ogive_sampler::stages::{Breakers, Vocabulary};
use ogive_sampler::{SamplerParams, Samplers};
use std::hint::black_box;

fn draws(c: &mut Criterion) {
    let logits = ogive_benches::values(150_000, 2.0);
    let plain = SamplerParams { top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerParams::default() };
    let text = |text: &str| SamplerParams {
        samplers: text.parse::<Samplers>().unwrap_or_default(),
        dry_sequence_breakers: Vec::new(),
        ..plain.clone()
    };
    let chains = [
        ("greedy", SamplerParams::greedy()),
        ("default", SamplerParams::default()),
        ("default and repeat penalty", SamplerParams { repeat_penalty: 1.1, ..SamplerParams::default() }),
        ("top-p alone", SamplerParams { top_p: 0.95, ..plain.clone() }),
        ("min-p alone", SamplerParams { min_p: 0.05, ..plain.clone() }),
        ("temperature alone", SamplerParams { temperature: 0.8, ..plain.clone() }),
        ("typical alone", text("typ_p:0.95")),
        ("top-n-sigma alone", text("top_n_sigma:1")),
        ("xtc alone", text("xtc:1:0.00002")),
        ("dynamic temperature alone", text("temp:0.8:0.5")),
        ("dry alone", text("dry:0.8")),
        ("dry on 100,000 equal tokens", text("dry:0.8:1.75:2:-1")),
        ("mirostat", text("temp,mirostat")),
        ("mirostat 2", text("temp,mirostat_v2")),
        ("adaptive-p alone", text("adaptive_p:0.3")),
        ("min-p and adaptive-p", text("min_p:0.05,adaptive_p:0.3")),
        // Behind top-k the new stages see 40 candidates.
        ("top-k, typical, xtc, dynamic temperature", text("top_k:40,typ_p:0.95,xtc:0.5:0.1,temp:0.8:0.5")),
        (
            "default with every stage on",
            text(
                "penalties:1.1,dry:0.8,top_n_sigma:1,top_k:40,typ_p:0.95,top_p:0.95,min_p:0.05,xtc:0.5:0.1,temp:0.8:0.5",
            ),
        ),
    ];
    for (name, params) in chains {
        let Ok(mut chain) = params.build() else { continue };
        let equal = name.contains("equal");
        let history: Vec<u32> = if equal { vec![9; 100_000] } else { (0..64).collect() };
        c.bench_function(name, |b| b.iter(|| chain.sample(&logits, &history)));
    }
}

/// A vocabulary of numbers in words of ten letters.
struct Words(Vec<String>);

impl Vocabulary for Words {
    fn size(&self) -> usize {
        self.0.len()
    }
    fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        Some(self.0.get(usize::try_from(id).ok()?)?.as_bytes())
    }
    fn tokenize(&self, text: &[u8]) -> Result<Vec<u32>, String> {
        Ok(text.iter().map(|&b| b.into()).collect())
    }
}

/// What a request with DRY pays once.
fn breakers(c: &mut Criterion) {
    let words = Words((0..150_000).map(|i| format!("word{i:06}")).collect());
    let texts = SamplerParams::default().dry_sequence_breakers;
    c.bench_function("dry's breakers", |b| b.iter(|| Breakers::from_text(black_box(&texts), &words)));
}

criterion_group!(benches, draws, breakers);
criterion_main!(benches);
