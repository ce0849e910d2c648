//! Do the seams hold? The same tokens however the work was cut, for attention, windows, experts, recurrent states,
//! latent attention and shared caches, on the oracle.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::Limits;
use ogive_nn::backend::{Backend, Batch, BlockTable, CacheSpec};
use ogive_nn::tensor::{BF16, F32, Q8_0};
use ogive_nn::{Loader, Step};
use random::Random;
use recorder::Recorder;
use std::sync::Arc;

/// Pages for one sequence and a little more.
fn few() -> Limits {
    Limits::new(36).sequences(4).step_tokens(6).block_len(3).element(&F32).cache_tokens(36)
}

fn narrow(step_tokens: usize, block_len: usize) -> Limits {
    Limits::new(48).sequences(4).step_tokens(step_tokens).block_len(block_len).element(&F32)
}

#[test]
fn batched_equals_alone_and_chunked_equals_whole() {
    for (arch, r) in zoo() {
        for seed in [None, Some(5)] {
            let alone: Vec<_> = JOBS
                .iter()
                .map(|j| run(&mut engine(Arc::new(Oracle), arch, &r, wide()), &[*j], seed).remove(0))
                .collect();
            assert_eq!(alone.iter().map(Vec::len).collect::<Vec<_>>(), [20, 11, 5, 30]);
            let together = run(&mut engine(Arc::new(Oracle), arch, &r, wide()), &JOBS, seed);
            assert_eq!(alone, together, "{arch}");
            let chunked = run(&mut engine(Arc::new(Oracle), arch, &r, narrow(5, 3)), &JOBS, seed);
            assert_eq!(alone, chunked, "{arch}");
            let padded = run(&mut engine(Arc::new(Recorder::padding_to(8)), arch, &r, wide()), &JOBS, seed);
            assert_eq!(alone, padded, "{arch}");
        }
    }
}

#[test]
fn preempted_sequences_go_on_as_if_nothing_had_been() {
    for (arch, r) in zoo() {
        let whole = run(&mut engine(Arc::new(Oracle), arch, &r, wide()), &JOBS, Some(3));
        let mut few = engine(Arc::new(Oracle), arch, &r, few());
        assert_eq!(whole, run(&mut few, &JOBS, Some(3)), "{arch}");
        assert!(few.stats().preempted > 0 || arch.starts_with("Mamba"), "{arch}");
        let mut two = engine(Arc::new(Oracle), arch, &r, wide().sequences(2));
        assert_eq!(whole, run(&mut two, &JOBS, Some(3)), "{arch}");
    }
}

/// Two sequences that together are more than the cache: what the first takes of the second the second does not take back, to lose it again.
#[test]
fn pages_do_not_go_back_and_forth() {
    for (arch, r) in zoo() {
        let limits = Limits::new(64).sequences(2).step_tokens(8).block_len(4).element(&F32).cache_tokens(68);
        let mut e = engine(Arc::new(Oracle), arch, &r, limits);
        let jobs: [(&[u32], usize); 2] = [(&[3; 30], 30), (&[5; 30], 30)];
        let whole = run(&mut engine(Arc::new(Oracle), arch, &r, wide()), &jobs, Some(3));
        assert_eq!(whole, run(&mut e, &jobs, Some(3)), "{arch}");
        // Each by itself takes 59 rows; begun again whenever the first wants a page, the second made it 250.
        assert!((118..160).contains(&e.stats().rows), "{arch}: {:?}", e.stats());
    }
}

#[test]
fn a_failed_step_changes_nothing() {
    for (arch, r) in zoo() {
        let whole = run(&mut engine(Arc::new(Oracle), arch, &r, wide()), &JOBS, Some(3));
        let b = Arc::new(Recorder::default());
        let mut e = engine(Arc::clone(&b) as Arc<dyn Backend>, arch, &r, narrow(9, 3));
        // every third step breaks off, somewhere between its plan and its download
        let got =
            run_with(&mut e, &JOBS, Some(3), |i| b.log().fail_after = (i % 3 == 1).then_some(i * 7 % 60));
        assert_eq!(whole, got, "{arch}");
    }
}

fn logits(b: &dyn Backend, arch: &str, r: &Random) -> Vec<f32> {
    let model = registry().build(arch, &r.config, &Loader::new(r, b)).unwrap();
    let cache = b.new_cache(&CacheSpec::new(model.cache_layout(), 4, 4, 2)).unwrap();
    let mut batch = Batch::default();
    batch.push(&[5, 6, 7], 0, vec![BlockTable { first: 0, blocks: vec![2] }; 2], [0, 1]);
    batch.outputs = vec![0, 2];
    let plan = b.plan(batch).unwrap();
    b.download(&model.logits(&Step::new(b, &plan, &cache)).unwrap()).unwrap()
}

#[test]
fn absorbed_and_decompressed_attention_agree() {
    let [a, b] =
        [true, false].map(|absorbed| logits(&Oracle, "DeepseekV2ForCausalLM", &Random::mla(absorbed)));
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-3, "{worst}");
    assert!(a.iter().any(|v| v.abs() > 0.1));
}

#[test]
fn a_rounded_cache_gives_the_same_tokens_however_the_prompt_was_cut() {
    let r = Random::llama(false, false, false);
    for element in [&BF16, &Q8_0] {
        let out = |limits: Limits| {
            run(&mut engine(Arc::new(Oracle), "LlamaForCausalLM", &r, limits.element(element)), &JOBS, None)
        };
        assert_eq!(out(wide()), out(narrow(5, 3)), "{element:?}");
    }
}

#[test]
fn a_windowed_model_runs_on_in_a_small_cache() {
    let mut r = Random::llama(false, false, false);
    r.config.0["sliding_window"] = 6.into();
    let jobs: [(&[u32], usize); 2] = [(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 150), (&[4], 90)];
    let wide = Limits::new(200).sequences(2).step_tokens(400).block_len(4).element(&F32);
    let whole = run(&mut engine(Arc::new(Oracle), "MistralForCausalLM", &r, wide), &jobs, Some(2));
    let small = Limits::new(200).sequences(2).step_tokens(4).block_len(4).element(&F32);
    let mut e = engine(Arc::new(Oracle), "MistralForCausalLM", &r, small);
    assert_eq!(whole, run(&mut e, &jobs, Some(2)));
    assert_eq!(e.stats().preempted, 0);
}

/// Sequences of a model with a window lose all they computed when they lose a page, so none begins that has no room for some of what it is to draw: of
/// twelve that draw 60 tokens in a cache for three, few rows are computed twice.
#[test]
fn sequences_that_cannot_go_back_begin_where_they_can_go_on() {
    let mut r = Random::llama(false, false, false);
    for (key, value) in
        [("use_sliding_window", true.into()), ("sliding_window", 8.into()), ("max_window_layers", 1.into())]
    {
        r.config.0[key] = value;
    }
    let limits = Limits::new(128).sequences(6).step_tokens(64).block_len(4).element(&F32).cache_tokens(192);
    let mut e = engine(Arc::new(Oracle), "Qwen3ForCausalLM", &r, limits);
    let prompts: Vec<Vec<u32>> = (0..12).map(|n| vec![n; 4]).collect();
    let jobs: Vec<(&[u32], usize)> = prompts.iter().map(|p| (&p[..], 60)).collect();
    let whole = run(&mut engine(Arc::new(Oracle), "Qwen3ForCausalLM", &r, wide()), &jobs, Some(3));
    assert_eq!(whole, run(&mut e, &jobs, Some(3)));
    // Each by itself takes 63 rows, 756 in all; begun wherever a prompt had room, they made it 1219.
    assert!((756..1050).contains(&e.stats().rows), "{:?}", e.stats());
}
