//! Log probabilities: of drawn tokens and of given texts, against their definition.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::sampler::{LogProbs, SamplerParams};
use ogive_engine::{Evaluate, Request, evaluate, score};
use ogive_nn::Loader;
use std::sync::Arc;

/// The definition, in double precision: `logit - ln(sum of exp(logit))`.
fn naive(row: &[f32], id: u32) -> f64 {
    let most = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = row.iter().map(|l| (f64::from(*l) - most).exp()).sum();
    f64::from(row[id as usize]) - most - sum.ln()
}

#[test]
fn drawn_tokens_are_as_likely_as_the_models_logits_say() {
    for (arch, r) in zoo() {
        let model = registry().build(arch, &r.config, &Loader::new(&r, &Oracle)).unwrap();
        let params = SamplerParams { seed: 4, temperature: 1.7, top_k: 9, ..SamplerParams::default() };
        let mut e = engine(Arc::new(Oracle), arch, &r, wide());
        // Beside one that asks for few candidates and wants no probabilities.
        let other = e.add(Request::new([9], 12)).unwrap();
        let request = Request::new([1, 2, 3, 4, 5], 12).chain(params.build().unwrap()).logprobs(4).keep();
        let id = e.add(request.clone()).unwrap();
        let (mut told, mut others) = (Vec::<(u32, LogProbs)>::new(), Vec::new());
        while !e.is_idle() {
            for event in e.step().unwrap() {
                match (event.id == id, event.logprobs) {
                    (true, Some(logprobs)) => told.push((event.token.unwrap(), logprobs)),
                    (false, None) => others.extend(event.token),
                    other => panic!("{other:?}"),
                }
            }
        }
        let _ = other;
        let tokens = e.tokens(id).unwrap().to_vec();
        let rows = evaluate(&Oracle, &*model, &tokens, &Evaluate::new()).unwrap();
        assert_eq!(told.len(), 12, "{arch}");
        for (i, (token, p)) in told.iter().enumerate() {
            let row = rows.row(4 + i).to_vec();
            assert_eq!((p.chosen.id, *token), (tokens[5 + i], tokens[5 + i]));
            assert!((p.chosen.logprob - naive(&row, *token)).abs() < 1e-6, "{arch} {i}: {p:?}");
            assert_eq!(p.best.len(), 4);
            for (best, id) in p.best.iter().zip(ogive_engine::sampler::best(&row, 4)) {
                assert_eq!(best.id, id.id, "{arch} {i}");
                assert!((best.logprob - naive(&row, id.id)).abs() < 1e-6);
            }
        }
        // Asking changes nothing of what is drawn.
        let mut plain = request;
        plain.logprobs = None;
        let mut e = engine(Arc::new(Oracle), arch, &r, wide());
        let drawn: Vec<u32> = e.run(plain).unwrap().map(|e| e.unwrap().token.unwrap()).collect();
        assert_eq!(drawn, tokens[5..], "{arch}");
        let alone: Vec<u32> =
            e.run(Request::new([9], 12)).unwrap().map(|e| e.unwrap().token.unwrap()).collect();
        assert_eq!(alone, others, "{arch}");
        // A text that is given is as likely as when it was drawn, to the bit, in steps of any size.
        for chunk in [1, 5, 512] {
            let mut how = Evaluate::new();
            how.chunk = chunk;
            let scored = score(&Oracle, &*model, &tokens, 4, &how).unwrap();
            assert_eq!(scored.len(), tokens.len() - 1);
            let same = scored[4..].iter().zip(&told).all(|(a, (_, b))| a == b);
            assert!(same, "{arch}, steps of {chunk}");
        }
    }
}

#[test]
fn edges() {
    let (arch, r) = &zoo()[0];
    let model = registry().build(arch, &r.config, &Loader::new(r, &Oracle)).unwrap();
    let of = |tokens: &[u32], n| score(&Oracle, &*model, tokens, n, &Evaluate::new());
    assert_eq!(of(&[3], 2).unwrap(), [], "nothing precedes the first");
    assert!(of(&[], 2).is_err());
    assert!(of(&[1, 5000], 2).is_err());
    let all = of(&[1, 2], 1_000_000).unwrap();
    assert_eq!(all[0].best.len(), 128, "no more than there are");
    assert!((all[0].best.iter().map(|p| p.logprob.exp()).sum::<f64>() - 1.0).abs() < 1e-6);
    assert_eq!(of(&[1, 2], 0).unwrap()[0].best, []);
}
