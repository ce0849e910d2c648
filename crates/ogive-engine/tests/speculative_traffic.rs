//! Guesses among sequences that come and go: steps that are prepared, pages that others need, sequences that are paused.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::{Asked, Draft, DraftModel, Engine, Limits, Request, SeqId};
use ogive_nn::backend::Backend;
use ogive_nn::tensor::{F32, Result};
use random::Random;
use recorder::Recorder;
use std::sync::Arc;

/// Knows how texts go on, and says so or something else.
#[derive(Debug)]
struct Knows {
    texts: Vec<Vec<u32>>,
    right: bool,
}

impl Draft for Knows {
    fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
        let rest = |a: &Asked<'_>| {
            let rest = self.texts.iter().find_map(|text| text.strip_prefix(a.tokens)).unwrap_or_default();
            let rest = rest.iter().take(a.max_tokens);
            rest.map(|token| if self.right { *token } else { (token + 1) % 128 }).collect()
        };
        Ok(asked.iter().map(rest).collect())
    }
}

fn llama(limits: Limits) -> Engine {
    engine(Arc::new(Oracle), "LlamaForCausalLM", &Random::llama(false, false, false), limits)
}

fn finish(e: &mut Engine) {
    while !e.is_idle() {
        e.step().unwrap();
    }
}

/// A prompt and what follows it, `n` tokens of it.
fn text(prompt: &[u32], n: usize) -> Vec<u32> {
    let mut e = llama(wide());
    let id = e.add(Request::new(prompt, n).keep()).unwrap();
    finish(&mut e);
    e.tokens(id).unwrap().to_vec()
}

/// Steps until a sequence has so many tokens.
fn until(e: &mut Engine, id: SeqId, tokens: usize) {
    while e.tokens(id).unwrap().len() < tokens {
        e.step().unwrap();
    }
}

#[test]
fn a_paused_sequence_goes_on_though_its_step_was_prepared() {
    for len in 3..12 {
        let prompts = [[5, 6], [7, 8]];
        let want = prompts.map(|prompt| text(&prompt, 20));
        let mut e = llama(wide());
        let kept = e.add(Request::new([9; 14], 1).keep()).unwrap();
        finish(&mut e);
        let ids = prompts.map(|prompt| e.add(Request::new(prompt, 20).keep()).unwrap());
        until(&mut e, ids[0], len);
        ids.iter().for_each(|id| assert!(e.pause(*id)));
        // Somebody's pages come free between.
        e.cancel(kept);
        ids.iter().for_each(|id| e.resume(*id, Request::new([], 22 - len).keep()).unwrap());
        finish(&mut e);
        assert_eq!(ids.map(|id| e.tokens(id).unwrap().to_vec()), want, "paused at {len}");
    }
}

#[test]
fn no_step_is_prepared_behind_guesses() {
    for right in [true, false] {
        for len in 3..12 {
            let prompts: Vec<Vec<u32>> =
                vec![vec![5, 6], vec![7, 8, 1], vec![20, 3, 4], vec![21, 3, 4], vec![22, 3, 4]];
            let want: Vec<Vec<u32>> = prompts.iter().map(|prompt| text(prompt, 24)).collect();
            let mut other = llama(wide());
            let saved = other.add(Request::new([9; 14], 1).keep()).unwrap();
            finish(&mut other);
            let mut bytes = Vec::new();
            other.save(saved, 1, &[], &mut bytes).unwrap();
            let mut e = llama(wide());
            // Of two that draw each is guessed for; with the prompts there are more sequences than guesses.
            e.speculate(Some(Box::new(Knows { texts: want.clone(), right })), 2);
            let add = |e: &mut Engine, prompt: &Vec<u32>| e.add(Request::new(&**prompt, 24).keep()).unwrap();
            let mut ids: Vec<SeqId> = prompts[..2].iter().map(|prompt| add(&mut e, prompt)).collect();
            until(&mut e, ids[0], len);
            ids.extend(prompts[2..].iter().map(|prompt| add(&mut e, prompt)));
            let steps = e.stats().steps;
            while e.stats().steps == steps {
                e.step().unwrap();
            }
            // Takes what pages are free.
            e.load(1, &mut &*bytes, bytes.len() as u64).unwrap();
            finish(&mut e);
            for (id, want) in ids.iter().zip(&want) {
                assert_eq!(e.tokens(*id).unwrap(), want, "right: {right}, at {len}");
            }
            assert!(e.stats().drafted > 0);
        }
    }
}

#[test]
fn guesses_have_what_all_tokens_leave() {
    for (prompts, cache) in [([3, 5], 40), ([1, 4], 44), ([5, 2], 44), ([4, 4], 48)] {
        let prompts = prompts.map(|n| (0..n).map(|i| 10 * n + i).collect::<Vec<u32>>());
        let texts: Vec<Vec<u32>> = prompts.iter().map(|prompt| text(prompt, 16)).collect();
        for right in [true, false] {
            let preempted = [false, true].map(|guessed| {
                let limits = Limits::new(40).sequences(3).step_tokens(64).block_len(4).element(&F32);
                let mut e = llama(limits.cache_tokens(cache));
                e.add(Request::new([9; 19], 1).keep()).unwrap();
                finish(&mut e);
                if guessed {
                    e.speculate(Some(Box::new(Knows { texts: texts.clone(), right })), 8);
                }
                let ids = prompts.each_ref().map(|p| e.add(Request::new(&**p, 16).keep()).unwrap());
                e.step().unwrap();
                // Of a step's own tokens none waits for a page that a guess has.
                let mut left = 30;
                while !e.is_idle() {
                    e.step().unwrap();
                    left -= 1;
                    assert!(left > 0, "it takes more steps with guesses than without");
                }
                ids.iter().zip(&texts).for_each(|(id, text)| assert_eq!(e.tokens(*id).unwrap(), text));
                e.stats().preempted
            });
            assert!(preempted[1] <= preempted[0], "{preempted:?}, right: {right}, cache {cache}");
        }
    }
}

#[test]
fn only_who_is_in_the_step_is_guessed_for() {
    let mut e = llama(Limits::new(64).sequences(1).step_tokens(64).block_len(4).element(&F32));
    let want = text(&[5, 6], 25);
    e.speculate(Some(Box::new(Knows { texts: vec![want.clone()], right: true })), 4);
    let id = e.add(Request::new([5, 6], 25).keep()).unwrap();
    (0..30).for_each(|n| _ = e.add(Request::new([n], 1)).unwrap());
    until(&mut e, id, 27);
    assert_eq!(e.tokens(id).unwrap(), want);
    assert_eq!((e.stats().steps, e.stats().accepted), (6, 19), "{:?}", e.stats());
}

#[test]
fn a_draft_reads_a_long_prompt_step_by_step() {
    let r = Random::llama(false, false, false);
    let recorder = Arc::new(Recorder::default());
    let limits = Limits::new(64).sequences(2).step_tokens(4).block_len(4).element(&F32);
    let small = engine(Arc::clone(&recorder) as Arc<dyn Backend>, "LlamaForCausalLM", &r, limits);
    let mut e = llama(wide());
    e.speculate(Some(Box::new(DraftModel::new(small).unwrap().min_probability(0.0))), 3);
    let prompt: Vec<u32> = (0..30).collect();
    let id = e.add(Request::new(&*prompt, 30).keep()).unwrap();
    let mut most = 0;
    while !e.is_idle() {
        let plans = |r: &Recorder| r.log().calls.get("plan").copied().unwrap_or(0);
        let before = plans(&recorder);
        e.step().unwrap();
        most = most.max(plans(&recorder) - before);
    }
    assert_eq!(e.tokens(id).unwrap(), text(&prompt, 30));
    assert!(e.stats().accepted > 12, "{:?}", e.stats());
    assert!(most <= 4, "{most} steps of the draft in one of the engine's");
}

#[test]
fn a_draft_that_is_never_sure_is_asked_ever_more_seldom() {
    let r = Random::llama(false, false, false);
    let recorder = Arc::new(Recorder::default());
    let small = engine(Arc::clone(&recorder) as Arc<dyn Backend>, "LlamaForCausalLM", &r, wide());
    let mut e = llama(wide());
    e.speculate(Some(Box::new(DraftModel::new(small).unwrap().min_probability(1.0))), 3);
    let id = e.add(Request::new([5, 6], 60).keep()).unwrap();
    finish(&mut e);
    assert_eq!(e.tokens(id).unwrap(), text(&[5, 6], 60));
    assert_eq!((e.stats().drafted, e.stats().steps), (0, 60));
    // Steps 1, 2 and 3, then with one between, with two, with three and so on: 5, 8, 12, 17, 23, 30, 38, 47, 57.
    assert_eq!(recorder.log().calls.get("plan").copied(), Some(12));
}

#[test]
fn who_keeps_more_than_a_window_sees_can_go_back() {
    let mut r = Random::llama(false, false, false);
    r.config.0["sliding_window"] = 24.into();
    let lost = [0, 5].map(|rewind| {
        let limits = Limits::new(300).step_tokens(16).block_len(8).element(&F32).rewind(rewind);
        let mut e = engine(Arc::new(Oracle), "MistralForCausalLM", &r, limits);
        let mut text: Vec<u32> = (0..50).map(|i| i * 7 % 128).collect();
        let id = e.add(Request::new(&*text, 4).keep()).unwrap();
        finish(&mut e);
        let mut lost = 0;
        for round in 0..40 {
            // Up to two of four were right, then came another token.
            let had = e.tokens(id).unwrap()[text.len()..].to_vec();
            text.extend(&had[..round % 3]);
            lost += usize::from(e.rewind(id, text.len()).unwrap() == 0);
            let other = (had[round % 3] + 1) % 128;
            e.resume(id, Request::new([other], 4).keep()).unwrap();
            finish(&mut e);
            text.push(other);
        }
        lost
    });
    assert!(lost[0] > 2, "{lost:?}");
    assert_eq!(lost[1], 0);
}
