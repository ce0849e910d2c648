//! Sequences that begin alike: what one has computed the others do not compute again, and they draw what they would have drawn alone.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::{Engine, Limits, Request, SeqId};
use ogive_nn::tensor::F32;
use random::Random;
use std::{collections::BTreeMap, sync::Arc};

/// Three blocks of four and a part of one.
const BEGINNING: [u32; 14] = [7, 1, 90, 4, 4, 33, 2, 11, 64, 5, 6, 100, 3, 8];

fn oracle(arch: &str, r: &Random, limits: Limits) -> Engine {
    engine(Arc::new(Oracle), arch, r, limits)
}

fn llama(limits: Limits) -> Engine {
    oracle("LlamaForCausalLM", &Random::llama(false, false, false), limits)
}

/// The beginning with something behind it.
fn with(more: &[u32]) -> Vec<u32> {
    [&BEGINNING, more].concat()
}

/// Runs a sequence to its end and gives what it drew.
fn drawn(e: &mut Engine, id: SeqId) -> Vec<u32> {
    e.follow(id).map(|event| event.unwrap().token.unwrap()).collect()
}

fn alone(arch: &str, r: &Random, prompt: &[u32], n: usize) -> Vec<u32> {
    run(&mut oracle(arch, r, wide()), &[(prompt, n)], Some(3)).concat()
}

fn greedy(prompt: &[u32], n: usize) -> Vec<u32> {
    run(&mut llama(wide()), &[(prompt, n)], None).concat()
}

#[test]
fn what_another_has_computed_is_not_computed_again() {
    let mut shared = 0;
    for (arch, r) in zoo() {
        let mut e = oracle(arch, &r, wide());
        let kept = e.add(request(&BEGINNING, 1, Some(3)).keep()).unwrap();
        drawn(&mut e, kept);
        let (rows, prompt) = (e.stats().rows, with(&[50, 51, 52]));
        let id = e.add(request(&prompt, 6, Some(3))).unwrap();
        assert_eq!(drawn(&mut e, id), alone(arch, &r, &prompt, 6), "{arch}");
        // One row for each token but the last that is drawn.
        let had = e.stats().shared;
        assert_eq!(e.stats().rows - rows, prompt.len() as u64 + 5 - had, "{arch}");
        // Whole blocks, but no states.
        assert!([0, 12].contains(&had), "{arch}: {had}");
        shared += usize::from(had > 0);
        // The one that was there goes on as if nobody had come.
        e.resume(kept, request(&[20], 6, Some(3)).keep()).unwrap();
        let prompt = [&e.tokens(kept).unwrap()[..15], &[20]].concat();
        assert_eq!(drawn(&mut e, kept), alone(arch, &r, &prompt, 6), "{arch}");
    }
    assert_eq!(shared, zoo().len() - 1, "all but Mamba share");
}

#[test]
fn of_several_that_come_together_the_first_computes() {
    // In steps of five rows, so that the beginning takes three, and with another one between.
    let mut e = llama(wide().sequences(4).step_tokens(5));
    let prompts = [with(&[1, 2]), with(&[3]), vec![7, 1, 90, 5], with(&[1, 2])];
    let ids: Vec<_> = prompts.iter().map(|p| e.add(Request::new(&p[..], 6)).unwrap()).collect();
    let mut told = BTreeMap::<SeqId, Vec<u32>>::new();
    while !e.is_idle() {
        e.step().unwrap().iter().for_each(|event| told.entry(event.id).or_default().extend(event.token));
    }
    for (id, prompt) in ids.iter().zip(&prompts) {
        assert_eq!(told[id], greedy(prompt, 6), "{prompt:?}");
    }
    // Three blocks each; the one between has less than a block in common with them.
    assert_eq!(e.stats().shared, 12 + 12);
    let unshared: usize = prompts.iter().map(|prompt| prompt.len() + 5).sum();
    assert_eq!(e.stats().rows, unshared as u64 - 24);
    // Who waits does not wait for one that has gone.
    let gone = e.add(Request::new(with(&[1]), 6)).unwrap();
    let stays = e.add(Request::new(with(&[2]), 6)).unwrap();
    assert!(e.step().unwrap().is_empty());
    assert!(e.cancel(gone));
    assert_eq!((drawn(&mut e, stays), e.stats().shared), (greedy(&with(&[2]), 6), 24));
}

#[test]
fn the_last_token_is_computed_though_another_has_it() {
    let mut e = llama(wide());
    let kept = e.add(Request::new(&BEGINNING[..12], 1).keep()).unwrap();
    let want = drawn(&mut e, kept);
    let id = e.add(Request::new(&BEGINNING[..12], 1)).unwrap();
    assert_eq!((drawn(&mut e, id), e.stats().shared), (want, 8));
}

#[test]
fn whoever_goes_back_leaves_what_others_share() {
    let mut e = llama(wide());
    let first = e.add(Request::new(with(&[1, 2]), 3).keep()).unwrap();
    drawn(&mut e, first);
    let second = e.add(Request::new(with(&[9]), 3).keep()).unwrap();
    drawn(&mut e, second);
    // In the middle of the third block, which both have: the first must compute its own.
    assert_eq!(e.rewind(first, 11).unwrap(), 8);
    e.resume(first, Request::new([70, 71, 72, 73, 74], 4).keep()).unwrap();
    let prompt = [&BEGINNING[..11], &[70, 71, 72, 73, 74]].concat();
    assert_eq!(drawn(&mut e, first), greedy(&prompt, 4));
    let said = e.tokens(second).unwrap().to_vec();
    e.resume(second, Request::new([5], 4).keep()).unwrap();
    assert_eq!(drawn(&mut e, second), greedy(&[&said[..], &[5]].concat(), 4));
    // The first is gone, and the second still has what they shared.
    assert!(e.cancel(first));
    let said = e.tokens(second).unwrap().to_vec();
    e.resume(second, Request::new([6], 4).keep()).unwrap();
    assert_eq!(drawn(&mut e, second), greedy(&[&said[..], &[6]].concat(), 4));
}

#[test]
fn sequences_fit_together_that_would_not_fit_apart() {
    // Room for ten blocks: the beginning's three, and one for each of six that go on from there.
    let limits = Limits::new(20).sequences(8).step_tokens(32).block_len(4).cache_tokens(40).element(&F32);
    let mut e = llama(limits);
    let kept = e.add(Request::new(&BEGINNING[..12], 1).keep()).unwrap();
    drawn(&mut e, kept);
    let ids: Vec<_> =
        (0..6).map(|i| e.add(Request::new([&BEGINNING[..12], &[i]].concat(), 3)).unwrap()).collect();
    let events: Vec<usize> = (0..3).map(|_| e.step().unwrap().len()).collect();
    assert_eq!(events, [6; 3], "all of {ids:?} draw in each step");
    assert_eq!((e.stats().shared, e.stats().preempted), (6 * 12, 0));
}

#[test]
fn the_first_takes_blocks_back_that_others_share() {
    // Ten blocks, of which two that came later share some.
    let limits = Limits::new(36).sequences(3).step_tokens(40).block_len(4).cache_tokens(40).element(&F32);
    let mut e = llama(limits);
    let mut told = BTreeMap::<SeqId, Vec<u32>>::new();
    let mut step = |e: &mut Engine| {
        e.step().unwrap().iter().for_each(|event| told.entry(event.id).or_default().extend(event.token));
    };
    let first = e.add(Request::new([99], 30)).unwrap();
    step(&mut e);
    let kept = e.add(Request::new(&BEGINNING[..12], 1).keep()).unwrap();
    step(&mut e);
    let later = e.add(Request::new(with(&[1]), 20)).unwrap();
    step(&mut e);
    assert_eq!(e.stats().shared, 12);
    while !e.is_idle() {
        step(&mut e);
    }
    assert!(e.stats().preempted > 1, "both gave blocks up");
    assert_eq!(told[&first], greedy(&[99], 30));
    assert_eq!(told[&kept], greedy(&BEGINNING[..12], 1));
    assert_eq!(told[&later], greedy(&with(&[1]), 20));
}
