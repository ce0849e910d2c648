//! What is counted, on a backend that computes nothing: counts come from operands alone.

use super::{Trace, TraceEntry, Work};
use crate::*;
use ogive_tensor::{Bytes, F16, F32, Q8_0, Result, Shape, Tensor};
use std::sync::Arc;

fn trace() -> Trace {
    Trace::new(Arc::new(Estimate::new()))
}

fn weight(b: &Trace, shape: [usize; 3], format: &'static ogive_tensor::Format) -> Weight {
    let bytes = shape[0] * shape[1] * format.row_bytes(shape[2]);
    b.upload_weight(&HostWeight::new("w", shape, format, Bytes::from(vec![0; bytes])).unwrap()).unwrap()
}

fn tensor(b: &Trace, shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    b.upload(&vec![0.0; shape.len()], shape).unwrap()
}

/// Of the last call alone.
fn work(b: &Trace) -> Work {
    let all = b.take();
    assert_eq!(all.iter().map(|e| e.calls).sum::<u64>(), 1, "{all:?}");
    all[0].work
}

fn is(bytes: u64, operations: u64) -> Work {
    Work { bytes, operations }
}

/// Two sequences: three rows after five tokens, one row after nothing.
fn step(b: &Trace, first: usize) -> Plan {
    let mut batch = Batch::default();
    let table = |n| vec![BlockTable { first, blocks: vec![0; n] }];
    batch.push(&[1, 2, 3], 5, table(2), [0, 1]);
    batch.push(&[4], 0, table(1), [2, 3]);
    batch.copies.push(BlockCopy { group: 0, from: 0, to: 1 });
    b.plan(batch).unwrap()
}

#[test]
fn weights_are_counted_once_a_call_and_products_for_each_row() -> Result<()> {
    let b = trace();
    let x = tensor(&b, [3, 64]);
    // 10 rows of two blocks of 34 bytes.
    let (a, wide) = (weight(&b, [1, 10, 64], &Q8_0), weight(&b, [1, 20, 64], &F32));
    b.take();
    b.linear(&x, &a)?;
    assert_eq!(work(&b), is(680, 2 * 3 * 640));
    b.linear_many(&x, &[&a, &wide])?;
    assert_eq!(work(&b), is(680 + 5120, 2 * 3 * (640 + 1280)));
    b.linear_gated(&x, &a, &a, Activation::Silu)?;
    assert_eq!(work(&b), is(1360, 2 * 3 * 1280));
    let heads = tensor(&b, [3, 2, 64]);
    b.take();
    b.linear_each(&heads, &[a.clone(), a.clone()])?;
    assert_eq!(work(&b), is(1360, 2 * 3 * 1280));
    let plan = step(&b, 0);
    b.take();
    b.embed(&a, Ids::Tokens, &plan)?;
    assert_eq!(work(&b), is(4 * 68, 0));
    b.rms_norm(&x, &x, 1e-5)?;
    assert_eq!(work(&b), Work::NONE);
    Ok(())
}

#[test]
fn experts_count_as_many_as_rows_can_choose() -> Result<()> {
    let b = trace();
    let up = weight(&b, [8, 6, 32], &Q8_0);
    let down = weight(&b, [8, 32, 32], &F16);
    let gated = Experts::new([up.clone(), up.clone(), down.clone()], Activation::Silu);
    let ungated = Experts::ungated([up, down], Activation::ReluSquared);
    let spec = RouterSpec::new(2, Scoring::Softmax);
    let cases =
        [(1, 2), (3, 6), (5, 8)].into_iter().flat_map(|case| [(case, &gated, 2), (case, &ungated, 1)]);
    for ((rows, touched), experts, wide) in cases {
        let (per_row, of_one) = (2 * 2 * (6 * wide + 32) * 32, 6 * 34 * wide + 32 * 64);
        let (x, logits) = (tensor(&b, [rows, 32]), tensor(&b, [rows, 8]));
        b.take();
        b.moe(&x, &logits, &spec, experts)?;
        assert_eq!(work(&b), is(touched * of_one, rows as u64 * per_row));
        let routing = b.route(&logits, &spec)?;
        b.take();
        b.experts(&x, &routing, experts)?;
        assert_eq!(work(&b), is(touched * of_one, rows as u64 * per_row));
    }
    Ok(())
}

#[test]
fn attention_counts_what_its_rows_see() -> Result<()> {
    let b = trace();
    // Keys of 4, values of 2, half precision: 12 bytes a token.
    let layers = vec![LayerCache::full(4, 2), LayerCache::State { len: 7 }, LayerCache::Shares(0)];
    let cache = b.new_cache(&CacheSpec::new(layers, 4, 4, 4).element(&F16))?;
    let spec = AttnSpec::new(3, 1, 4, 2).with(AttnOption::Causal);
    let plan = step(&b, 0);
    let (q, k, v) = (tensor(&b, [4, 12]), tensor(&b, [4, 4]), tensor(&b, [4, 2]));
    b.take();
    // The first sequence's rows see 6, 7 and 8 tokens, the other's its own.
    let products = 2 * 3 * 6 * (6 + 7 + 8 + 1);
    b.attend_cache(2, &q, &cache, &spec, &plan)?;
    assert_eq!(work(&b), is(12 * 9, products));
    b.attend(&q, &k, &v, &spec, &plan)?;
    assert_eq!(work(&b), is(0, products));
    b.attend_cache(0, &q, &cache, &spec.clone().with(AttnOption::Window(2)), &plan)?;
    assert_eq!(work(&b), is(12 * (4 + 1), 2 * 3 * 6 * 7), "tokens 4 to 7 in one, 0 in the other");
    b.store_kv(0, &k, Some(&v), &cache, &plan)?;
    assert_eq!(work(&b), is(12 * 4, 0));
    b.gather_kv(0, &cache, &plan)?;
    assert_eq!(work(&b), is(12 * 9, 0));
    b.copy_blocks(&cache, &plan)?;
    assert_eq!(work(&b), is(2 * 4 * 12, 0), "read and written, in the one layer that has blocks");
    b.read_state(1, &cache, &plan)?;
    assert_eq!(work(&b), is(2 * 7 * 4, 0));
    // Seven elements of state as one head with keys of 7 and values of 1: four products for each, of each row.
    let (long, short, one) = (tensor(&b, [4, 1, 7]), tensor(&b, [4, 1, 1]), tensor(&b, [4, 1]));
    b.take();
    b.linear_attention(1, &long, &long, &short, &one, Some(&one), &cache, &plan)?;
    assert_eq!(work(&b), is(2 * 2 * 7 * 4, 8 * 4 * 7));
    let rope = Rope::new(vec![1.0]);
    b.rope_attend(0, q, k, &v, &rope, &cache, &spec, &plan)?;
    assert_eq!(work(&b), is(12 * (9 + 4), products));
    let behind = step(&b, 1);
    b.take();
    b.gather_kv(0, &cache, &behind)?;
    assert_eq!(work(&b), is(12 * 4, 0), "a block of 4 is gone of each");
    Ok(())
}

#[test]
fn calls_that_are_alike_are_one_entry_and_failures_do_nothing() -> Result<()> {
    let b = trace();
    let (x, odd) = (tensor(&b, [1, 32]), weight(&b, [1, 3, 32], &F32));
    let w = weight(&b, [1, 2, 32], &F32);
    b.take();
    for weight in [&w, &odd, &w] {
        b.linear(&x, weight)?;
    }
    assert!(b.download(&x).is_err());
    let brief =
        |e: &TraceEntry| (e.operator, e.weights.first().map(|w| w.0), e.calls, e.failed, e.work.bytes);
    assert_eq!(
        b.take().iter().map(brief).collect::<Vec<_>>(),
        [
            ("linear", Some([1, 2, 32]), 2, 0, 2 * 256),
            ("linear", Some([1, 3, 32]), 1, 0, 384),
            ("download", None, 1, 1, 0)
        ]
    );
    assert_eq!(b.take(), []);
    Ok(())
}

#[test]
fn what_is_left_to_definitions_is_taken_apart() -> Result<()> {
    let mut parts = Vec::new();
    for opened in [false, true] {
        let mut b = trace();
        if opened {
            b.composed = &["rope_attend", "moe"];
        }
        let cache = b.new_cache(&CacheSpec::new(vec![LayerCache::full(4, 4)], 4, 4, 4))?;
        let plan = step(&b, 0);
        let (q, k) = (tensor(&b, [4, 12]), tensor(&b, [4, 4]));
        b.take();
        b.rope_attend(0, q, k.clone(), &k, &Rope::new(vec![1.0]), &cache, &AttnSpec::causal(3, 1, 4), &plan)?;
        let all = b.take();
        parts.push((
            all.iter().map(|e| (e.operator, e.calls)).collect::<Vec<_>>(),
            all.iter().fold(Work::NONE, |sum, e| sum + e.work),
        ));
    }
    assert_eq!(parts[0].0, [("rope_attend", 1)]);
    assert_eq!(parts[1].0, [("rope", 2), ("store_kv", 1), ("attend_cache", 1)]);
    assert_eq!(parts[0].1, parts[1].1, "either way it is the same work");
    Ok(())
}
