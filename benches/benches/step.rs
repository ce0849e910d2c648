//! A whole step of a model, from token ids to logits, on the CPU: a small Llama of random weights in Q8_0.
//! `cargo bench -p ogive-benches --bench step`
//!
//! The weights are made here and not read from a file: nothing has to be fetched, and the sizes are seen.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ogive_backend::{Backend, Batch, BlockTable, CacheSpec};
use ogive_cpu::CpuBackend;
use ogive_nn::{Loader, Step};
use ogive_tensor::serde_json::json;
use ogive_tensor::{Config, Error, F16, HostWeight, Q8_0, Result, Source, WeightInfo};

const DIM: usize = 512;
const FFN: usize = 1536;
const KV: usize = 128;
const VOCAB: usize = 32_000;

/// Any tensor a Llama asks for; norms and matrices by their names.
#[derive(Debug)]
struct Random;

impl Source for Random {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let [rows, cols] = match name.trim_end_matches(".weight").rsplit('.').next() {
            Some("embed_tokens" | "lm_head") => [VOCAB, DIM],
            Some("q_proj" | "o_proj") => [DIM, DIM],
            Some("k_proj" | "v_proj") => [KV, DIM],
            Some("gate_proj" | "up_proj") => [FFN, DIM],
            Some("down_proj") => [DIM, FFN],
            Some("norm" | "input_layernorm" | "post_attention_layernorm") => [1, DIM],
            _ => return Err(Error::missing(name)),
        };
        // Only the root has an embedding right away where the prefix is left out.
        if name.ends_with(".bias") || name == "embed_tokens.weight" {
            return Err(Error::missing(name));
        }
        let values = ogive_benches::values(rows * cols, 0.05);
        if rows == 1 {
            return HostWeight::from_f32(name, [1, 1, cols], &values);
        }
        let mut packed = vec![0; Q8_0.row_bytes(values.len())];
        Q8_0.encode_row(&values, &mut packed)?;
        HostWeight::new(name, [1, rows, cols], &Q8_0, packed.into())
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        Vec::new()
    }
}

fn steps(c: &mut Criterion) -> Result<()> {
    let b = CpuBackend::builder().build()?;
    let config = Config(json!({"num_hidden_layers": 8, "hidden_size": DIM, "num_attention_heads": 8,
        "num_key_value_heads": 2, "intermediate_size": FFN, "vocab_size": VOCAB}));
    let model = ogive_models::registry().build("LlamaForCausalLM", &config, &Loader::new(&Random, &b))?;
    // Eight sequences of 512 tokens.
    let cache = b.new_cache(&CacheSpec::new(model.cache_layout(), 32, 8 * 16, 0).element(&F16))?;
    let run = |sequences: u32, rows: usize, past: usize| {
        let mut batch = Batch::default();
        for i in 0..sequences {
            let table = BlockTable { first: 0, blocks: (16 * i..16 * (i + 1)).collect() };
            batch.push(&vec![7; rows], past, vec![table], [0, 1]);
            batch.want_last();
        }
        let plan = b.plan(batch)?;
        b.download(&model.logits(&Step::new(&b, &plan, &cache))?)
    };
    let mut group = c.benchmark_group("step");
    group.sample_size(10);
    for (name, sequences, rows, past) in [
        ("a prompt of 256", 1, 256, 0),
        ("a token after 256", 1, 1, 256),
        ("a token of each of 8 sequences", 8, 1, 256),
        ("chunks of 32 of 8 prompts", 8, 32, 256),
    ] {
        // Its own prompts first: keys and values are read that must be there.
        if past > 0 {
            run(sequences, past, 0)?;
        }
        group.throughput(Throughput::Elements(u64::from(sequences) * rows as u64));
        group.bench_function(name, |bench| bench.iter(|| run(sequences, rows, past)));
    }
    group.finish();
    Ok(())
}

/// A bench that cannot be set up is a mistake here, to be seen.
fn all(c: &mut Criterion) {
    let outcome = steps(c);
    assert!(outcome.is_ok(), "{outcome:?}");
}

criterion_group!(benches, all);
criterion_main!(benches);
