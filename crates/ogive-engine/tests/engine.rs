//! What an engine promises its caller: clear refusals, cancellation, sessions, sequences that are gone on with.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::{Engine, Evaluate, Finish, Limits, Request, evaluate};
use ogive_nn::Loader;
use ogive_nn::tensor::{ErrorKind, F32};
use random::Random;
use std::sync::Arc;

fn llama(limits: Limits) -> Engine {
    engine(Arc::new(Oracle), "LlamaForCausalLM", &Random::llama(false, false, false), limits)
}

fn tokens(e: &mut Engine, request: Request) -> Vec<u32> {
    e.run(request).unwrap().map(|event| event.unwrap().token.unwrap()).collect()
}

#[test]
fn what_never_fits_is_refused_at_once() {
    let mut e = llama(Limits::new(8).step_tokens(4).block_len(4));
    let error = e.add(Request::new([1; 8], 1)).unwrap_err().to_string();
    assert!(error.contains("8 tokens leaves no room in a context of 8"), "{error}");
    assert!(e.add(Request::new([], 1)).is_err());
    assert!(e.add(Request::new([1], 0)).is_err());
    assert!(e.add(Request::new([1; 7], 100)).is_ok());
    for bad in [Limits::new(0), Limits::new(8).sequences(0), Limits::new(8).sequences(9).step_tokens(8)] {
        assert!(bad.cache_spec(Vec::new()).is_err(), "{bad:?}");
    }
    assert!(Limits::new(usize::MAX).sequences(2).cache_spec(Vec::new()).is_err());
    assert!(Limits::new(64).cache_tokens(32).cache_spec(Vec::new()).is_err());
}

#[test]
fn a_token_out_of_the_vocabulary_is_refused() {
    let mut e = llama(wide());
    for bad in [128, 5_000_000, u32::MAX] {
        let error = e.add(Request::new([1, bad], 3)).unwrap_err().to_string();
        assert!(error.contains(&format!("token {bad} is none of the 128")), "{error}");
    }
    let id = e.add(Request::new([127], 3).keep()).unwrap();
    assert_eq!(e.follow(id).count(), 3);
    assert!(e.resume(id, Request::new([128], 3)).is_err());
    assert_eq!(e.tokens(id).unwrap().len(), 4);
}

#[test]
fn where_the_model_does_not_say_it_is_an_error_and_the_rest_goes_on() {
    let gpt2 = || engine(Arc::new(Oracle), "GPT2LMHeadModel", &Random::gpt2(), wide());
    let mut e = gpt2();
    let bad = e.add(Request::new([5_000_000], 3)).unwrap();
    let good = e.add(Request::new([5], 3)).unwrap();
    assert!(e.step().unwrap_err().to_string().contains("5000000"));
    assert!(e.cancel(bad));
    let got: Vec<_> = e.follow(good).map(|event| event.unwrap().token.unwrap()).collect();
    assert_eq!(got, tokens(&mut gpt2(), Request::new([5], 3)));
}

#[test]
fn sequences_end_for_the_reason_they_say() {
    let mut e = llama(wide());
    let last = |e: &mut Engine, r: Request| e.run(r).unwrap().last().unwrap().unwrap();
    let free = tokens(&mut e, Request::new([1, 2], 9));
    assert_eq!(last(&mut e, Request::new([1, 2], 9)).finish, Some(Finish::Length));
    let stopped = last(&mut e, Request::new([1, 2], 9).stop([free[4]]));
    assert_eq!((stopped.token, stopped.finish), (Some(free[4]), Some(Finish::Stop)));
    let mut e = llama(Limits::new(7).block_len(2).element(&F32));
    let all: Vec<_> = e.run(Request::new([1, 2], 9)).unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(all.iter().filter_map(|e| e.token).collect::<Vec<_>>(), free[..5]);
    assert_eq!(all[4].finish, Some(Finish::Context));
}

#[test]
fn a_kept_sequence_goes_on_as_if_it_had_been_one_prompt() {
    let mut e = llama(wide());
    let first = tokens(&mut e, Request::new([7, 8, 9], 4));
    let id = e.add(Request::new([7, 8, 9], 4).keep()).unwrap();
    assert_eq!(e.follow(id).count(), 4);
    let rows = e.stats().rows;
    e.resume(id, Request::new([20, 21], 5).keep()).unwrap();
    let second: Vec<_> = e.follow(id).map(|e| e.unwrap().token.unwrap()).collect();
    assert_eq!(e.stats().rows - rows, 7, "what was in the cache is not computed again");
    let whole: Vec<u32> = [7, 8, 9].into_iter().chain(first).chain([20, 21]).collect();
    assert_eq!(second, tokens(&mut llama(wide()), Request::new(whole, 5)));
    assert!(e.resume(id, Request::new([1; 64], 1)).is_err());
    assert!(e.resume(99, Request::new([1], 1)).unwrap_err().is_missing());
    assert_eq!(e.tokens(id).unwrap().len(), 3 + 4 + 2 + 5);
    assert!(e.cancel(id) && !e.cancel(id));
}

#[test]
fn a_rewound_sequence_is_as_if_it_had_never_gone_further() {
    for (arch, r) in zoo() {
        let fresh =
            |prompt: &[u32]| tokens(&mut engine(Arc::new(Oracle), arch, &r, wide()), Request::new(prompt, 6));
        let mut e = engine(Arc::new(Oracle), arch, &r, wide().step_tokens(8));
        let id = e.add(Request::new([1, 2, 3, 4, 5, 6, 7, 8, 9], 20).keep()).unwrap();
        assert_eq!(e.follow(id).count(), 20);
        for keep in [7, 3, 1] {
            assert!(e.rewind(id, keep).unwrap() < keep);
            e.resume(id, Request::new([30, 31], 6).keep()).unwrap();
            let got: Vec<_> = e.follow(id).map(|e| e.unwrap().token.unwrap()).collect();
            let prompt: Vec<u32> = (1..=keep as u32).chain([30, 31]).collect();
            assert_eq!(got, fresh(&prompt), "{arch} to {keep}");
        }
    }
}

#[test]
fn dropping_a_session_frees_its_pages() {
    let mut e = llama(Limits::new(16).block_len(4).element(&F32));
    for _ in 0..20 {
        let mut session = e.run(Request::new([1, 2, 3, 4, 5], 9)).unwrap();
        assert!(session.next().is_some());
    }
    assert!(e.is_idle());
    let id = e.add(Request::new([1, 2, 3, 4, 5], 9).keep()).unwrap();
    e.follow(id).next();
    e.resume(id, Request::new([], 2)).unwrap();
    assert_eq!(e.follow(id).count(), 2);
}

#[test]
fn others_are_served_while_a_long_prompt_is_read() {
    let mut e = llama(Limits::new(300).sequences(3).step_tokens(8).block_len(4).element(&F32));
    let long = e.add(Request::new(vec![3; 200], 1)).unwrap();
    let quick = e.add(Request::new([4], 10)).unwrap();
    let mut steps = 0;
    let mut answered = 0;
    while answered < 10 {
        steps += 1;
        let events = e.step().unwrap();
        assert!(events.iter().all(|event| event.id != long), "the long prompt is still being read");
        answered += events.iter().filter(|event| event.id == quick).count();
    }
    assert_eq!(steps, 10, "one token a step");
}

#[test]
fn others_are_served_while_two_long_prompts_are_read() {
    let mut e = llama(Limits::new(300).sequences(4).step_tokens(8).block_len(4).element(&F32));
    for long in [3, 5] {
        e.add(Request::new(vec![long; 200], 1)).unwrap();
    }
    let quick = [e.add(Request::new([4], 10)).unwrap(), e.add(Request::new([6], 10)).unwrap()];
    for step in 0..10 {
        let ids: Vec<_> = e.step().unwrap().into_iter().map(|event| event.id).collect();
        assert_eq!(ids, quick, "step {step}");
    }
    assert_eq!(e.stats().rows, 80, "no row is left out");
}

#[test]
fn those_who_wait_for_a_place_take_no_rows_from_a_prompt() {
    let mut e = llama(Limits::new(100).sequences(2).step_tokens(8).block_len(4).element(&F32));
    let long = e.add(Request::new(vec![3; 70], 1)).unwrap();
    for _ in 0..30 {
        e.add(Request::new([4], 20)).unwrap();
    }
    let steps = (1..).find(|_| e.step().unwrap().iter().any(|event| event.id == long));
    assert_eq!(steps, Some(10), "seven rows a step");
}

#[test]
fn who_is_resumed_comes_after_those_who_are_there() {
    let mut e = llama(Limits::new(64).sequences(1).step_tokens(8).block_len(4).element(&F32));
    let a = e.add(Request::new([1, 2], 2).keep()).unwrap();
    assert_eq!(e.follow(a).count(), 2);
    let b = e.add(Request::new([5], 6)).unwrap();
    e.step().unwrap();
    e.resume(a, Request::new([7], 3).keep()).unwrap();
    let c = e.add(Request::new([6], 2)).unwrap();
    let mut order = Vec::new();
    while !e.is_idle() {
        order.extend(e.step().unwrap().into_iter().map(|event| event.id));
    }
    assert_eq!(order, [b, b, b, b, b, a, a, a, c, c]);
}

#[test]
fn who_is_resumed_takes_no_pages_of_those_who_are_there() {
    // Room for 24 tokens: two sequences of 16 do not fit.
    let limits = Limits::new(16).sequences(2).cache_tokens(24).step_tokens(16).block_len(4).element(&F32);
    let mut e = llama(limits);
    let a = e.add(Request::new([1, 2], 2).keep()).unwrap();
    assert_eq!(e.follow(a).count(), 2);
    let b = e.add(Request::new([5, 6], 14).keep()).unwrap();
    e.step().unwrap();
    e.resume(a, Request::new([7], 11).keep()).unwrap();
    let mut last = Vec::new();
    while !e.is_idle() {
        last.extend(
            e.step().unwrap().into_iter().filter(|event| event.finish.is_some()).map(|event| event.id),
        );
    }
    assert_eq!(last, [b, a]);
    assert!(e.stats().preempted > 0);
}

#[test]
fn evaluation_is_the_same_in_chunks_and_as_the_engine_sees_it() {
    for (arch, r) in zoo() {
        let b = Oracle;
        let model = registry().build(arch, &r.config, &Loader::new(&r, &b)).unwrap();
        let prompt: Vec<u32> = (1..20).collect();
        let whole = evaluate(&b, &*model, &prompt, &Evaluate::new()).unwrap();
        let mut how = Evaluate::new();
        how.chunk = 7;
        assert_eq!(whole, evaluate(&b, &*model, &prompt, &how).unwrap(), "{arch}");
        how.last = true;
        assert_eq!(whole.row(18), evaluate(&b, &*model, &prompt, &how).unwrap().row(0), "{arch}");
        how.hidden = true;
        assert_ne!(evaluate(&b, &*model, &prompt, &how).unwrap().ncols(), 128, "{arch}");
        let best = (0..128).rev().max_by(|&a, &b| whole[[18, a]].total_cmp(&whole[[18, b]])).unwrap();
        let mut e = engine(Arc::new(Oracle), arch, &r, wide());
        assert_eq!(tokens(&mut e, Request::new(prompt, 1)), [best as u32], "{arch}");
    }
}

#[test]
fn an_unknown_architecture_lists_the_known() {
    let r = Random::llama(false, false, false);
    let e = registry().build("FooForCausalLM", &r.config, &Loader::new(&r, &Oracle)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Missing(_)));
    assert!(e.to_string().contains("FooForCausalLM") && e.to_string().contains("Qwen3ForCausalLM"), "{e}");
}
