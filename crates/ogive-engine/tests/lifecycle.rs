//! What happens at the edges of a sequence's life: events nobody has taken yet, sessions of sequences that have ended,
//! draws that fail, numbers as large as they get.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::{Engine, Event, Finish, Limits, Request};
use ogive_nn::backend::{CacheSpec, LayerCache};
use ogive_nn::tensor::{F32, Result};
use ogive_sampler::{Candidates, Chain, Needs, Stage};
use random::Random;
use std::sync::Arc;

fn llama(limits: Limits) -> Engine {
    engine(Arc::new(Oracle), "LlamaForCausalLM", &Random::llama(false, false, false), limits)
}

fn tokens(events: impl IntoIterator<Item = Result<Event>>) -> Vec<u32> {
    events.into_iter().filter_map(|e| e.unwrap().token).collect()
}

#[test]
fn events_wait_for_step_even_if_their_sequence_ends_meanwhile() {
    let mut e = llama(wide());
    let want = tokens(e.run(Request::new([1, 2], 3)).unwrap());
    let other = e.add(Request::new([1, 2], 3)).unwrap();
    assert_eq!(tokens(e.run(Request::new([5], 10)).unwrap()).len(), 10);
    let events = e.step().unwrap();
    assert!(events.iter().all(|event| event.id == other), "{events:?}");
    assert_eq!(tokens(events.into_iter().map(Ok)), want);
    assert!(e.is_idle());
}

#[test]
fn a_session_of_a_kept_sequence_that_has_ended_leaves_it() {
    let mut e = llama(wide());
    let id = e.add(Request::new([1, 2], 3).keep()).unwrap();
    while !e.is_idle() {
        e.step().unwrap();
    }
    drop(e.follow(id));
    assert_eq!(e.tokens(id).map(<[u32]>::len), Some(5));
    // The same where its last events have not been taken.
    e.resume(id, Request::new([], 2).keep()).unwrap();
    assert_eq!(tokens(e.run(Request::new([5], 10)).unwrap()).len(), 10);
    drop(e.follow(id));
    assert_eq!(e.tokens(id).map(<[u32]>::len), Some(7));
    assert!(e.is_idle(), "a session that is dropped takes its events with it");
}

#[test]
fn a_turn_begins_without_the_events_of_the_last() {
    let mut e = llama(wide());
    let id = e.add(Request::new([1, 2], 3).keep()).unwrap();
    assert_eq!(tokens(e.run(Request::new([5], 10)).unwrap()).len(), 10);
    e.resume(id, Request::new([7], 4).keep()).unwrap();
    assert_eq!(tokens(e.follow(id)).len(), 4);
}

/// Bans every token after a history of so many.
#[derive(Clone, Debug)]
struct Mute(usize);

impl Stage for Mute {
    fn name(&self) -> &str {
        "mute"
    }
    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        if history.len() == self.0 {
            candidates.map(|_| f32::NEG_INFINITY);
        }
    }
    fn needs(&self) -> Needs {
        Needs::All
    }
    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

#[test]
fn a_sequence_whose_draw_failed_can_be_gone_on_with() {
    for (arch, r) in zoo() {
        let mut e = engine(Arc::new(Oracle), arch, &r, wide());
        let want = tokens(e.run(Request::new([1, 2, 3], 6)).unwrap());
        let mute = Chain::new(0).then(Mute(5)).then(ogive_sampler::stages::Greedy);
        let id = e.add(Request::new([1, 2, 3], 6).chain(mute).keep()).unwrap();
        let events: Vec<_> = e.follow(id).map(Result::unwrap).collect();
        assert!(matches!(events.last().unwrap().finish, Some(Finish::Failed(_))), "{arch} {events:?}");
        e.resume(id, Request::new([], 4).keep()).unwrap();
        assert_eq!(tokens(e.follow(id)), want[2..], "{arch}");
    }
}

#[test]
fn the_largest_numbers_are_refused_or_served() {
    let mut e = llama(Limits::new(8).block_len(4));
    let all = tokens(e.run(Request::new([1, 2], usize::MAX)).unwrap());
    assert_eq!(all.len(), 6, "as many as the context holds");
    let most = usize::MAX;
    let window = |w| vec![LayerCache::windowed(4, 4, w, 0)];
    let spec = |l: Limits, layers| l.cache_spec(layers).map(|s: CacheSpec| s.blocks);
    assert!(spec(Limits::new(most).cache_tokens(most).sequences(3).block_len(1), window(most)).is_err());
    assert!(
        spec(Limits::new(8).step_tokens(most).sequences(most), vec![LayerCache::State { len: 4 }]).is_err()
    );
    assert!(spec(Limits::new(1 << 40).block_len(1), vec![LayerCache::full(4, 4)]).is_err());
    assert_eq!(spec(Limits::new(8).step_tokens(most).block_len(1), window(most)).unwrap(), [8]);
}

#[test]
fn the_smallest_limits_give_the_same_tokens() {
    for (arch, r) in zoo() {
        let want = run(&mut engine(Arc::new(Oracle), arch, &r, wide()), &JOBS, Some(1));
        let tiny = Limits::new(64).step_tokens(1).block_len(1).element(&ogive_nn::tensor::F32);
        assert_eq!(want, run(&mut engine(Arc::new(Oracle), arch, &r, tiny), &JOBS, Some(1)), "{arch}");
    }
    assert!(llama(Limits::new(1)).add(Request::new([1], 1)).is_err(), "no room for a token");
    assert_eq!(tokens(llama(Limits::new(2)).run(Request::new([1], 9)).unwrap()).len(), 1);
}

#[test]
fn the_longest_idle_loses_its_pages_first_and_nobody_in_vain() {
    // Room for three sequences of 16 tokens, of which two are kept and wait.
    let limits = Limits::new(16).sequences(3).step_tokens(16).block_len(4).element(&F32);
    let mut e = llama(limits);
    let kept: Vec<_> = (0..3)
        .map(|i| {
            let id = e.add(Request::new([i + 1; 8], 2).keep()).unwrap();
            assert_eq!(e.follow(id).count(), 2);
            id
        })
        .collect();
    e.resume(kept[0], Request::new([7], 2).keep()).unwrap();
    assert_eq!(e.follow(kept[0]).count(), 2);
    assert_eq!(e.stats().preempted, 0);
    // The next sequence needs a page more than is free: the second, idle the longest, gives up its last and the others none.
    let rows = e.stats().rows;
    let long = e.add(Request::new([9; 14], 1)).unwrap();
    assert_eq!(e.follow(long).count(), 1);
    assert_eq!((e.stats().preempted, e.stats().rows - rows), (1, 14));
    let rows = e.stats().rows;
    e.resume(kept[0], Request::new([8], 1).keep()).unwrap();
    assert_eq!(e.follow(kept[0]).count(), 1);
    assert_eq!(e.stats().rows - rows, 2, "the first kept its pages");
    let rows = e.stats().rows;
    e.resume(kept[1], Request::new([8], 1).keep()).unwrap();
    assert_eq!(e.follow(kept[1]).count(), 1);
    assert_eq!(e.stats().rows - rows, 3, "of the second two pages of four tokens were left");
}
