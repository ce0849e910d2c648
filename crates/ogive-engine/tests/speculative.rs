//! Guesses: whatever is guessed, what is drawn is the same, in fewer steps where the guesses are right.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::{Asked, Draft, DraftModel, Engine, Event, Finish, Limits, Lookup, Request, SeqId};
use ogive_nn::backend::Backend;
use ogive_nn::tensor::{Error, F32, Result};
use random::Random;
use recorder::Recorder;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What to do for each sequence.
type Says = fn(&Asked<'_>) -> Vec<u32>;

/// Guesses by a function of what there is, and writes down who has gone.
#[derive(Debug)]
struct By(Says, Arc<Mutex<Vec<SeqId>>>);

impl By {
    fn boxed(says: Says) -> Option<Box<dyn Draft>> {
        Some(Box::new(Self(says, Arc::default())))
    }
}

impl Draft for By {
    fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
        Ok(asked.iter().map(self.0).collect())
    }
    fn forget(&mut self, id: SeqId) {
        self.1.lock().unwrap().push(id);
    }
}

fn llama(limits: Limits) -> Engine {
    engine(Arc::new(Oracle), "LlamaForCausalLM", &Random::llama(false, false, false), limits)
}

/// Guesses what the model itself finds best.
fn itself(arch: &str, r: &Random) -> Option<Box<dyn Draft>> {
    let engine = engine(Arc::new(Oracle), arch, r, wide());
    Some(Box::new(DraftModel::new(engine).unwrap().min_probability(0.0)))
}

fn events(e: &mut Engine, request: Request) -> Vec<Event> {
    e.run(request).unwrap().map(Result::unwrap).collect()
}

fn tokens(events: &[Event]) -> Vec<u32> {
    events.iter().filter_map(|e| e.token).collect()
}

/// Whether a sequence of this model has states.
fn has_states(arch: &str) -> bool {
    arch == "MambaForCausalLM"
}

#[test]
fn whatever_is_guessed_the_same_is_drawn() {
    /// No token of anyone follows from this.
    const NONSENSE: Says =
        |a| (0..a.max_tokens as u32).map(|i| (a.tokens.len() as u32 + 31 * i) % 128).collect();
    for (arch, r) in zoo() {
        for seed in [None, Some(7)] {
            let mut e = engine(Arc::new(Oracle), arch, &r, wide());
            let want = run(&mut e, &JOBS, seed);
            assert_eq!((e.stats().drafted, e.stats().accepted), (0, 0));
            let mut drafts = vec![By::boxed(NONSENSE), Some(Box::new(Lookup::new().min_match(1)))];
            if !has_states(arch) {
                drafts.push(itself(arch, &r));
            }
            for (i, draft) in drafts.into_iter().enumerate() {
                let mut guessed = engine(Arc::new(Oracle), arch, &r, wide());
                guessed.speculate(draft, 9);
                assert_eq!(run(&mut guessed, &JOBS, seed), want, "{arch}, draft {i}, seed {seed:?}");
                let stats = guessed.stats();
                assert!(stats.drafted > 0 || i == 1, "{arch}, draft {i}: nothing was guessed");
            }
        }
    }
}

#[test]
fn right_guesses_save_steps_and_wrong_ones_cost_none() {
    for (arch, r) in zoo().into_iter().filter(|(arch, _)| !has_states(arch)) {
        let mut e = engine(Arc::new(Oracle), arch, &r, wide());
        let want = tokens(&events(&mut e, Request::new([5, 6], 31)));
        assert_eq!(e.stats().steps, 31);
        let mut e = engine(Arc::new(Oracle), arch, &r, wide());
        e.speculate(itself(arch, &r), 4);
        assert_eq!(tokens(&events(&mut e, Request::new([5, 6], 31))), want, "{arch}");
        let stats = e.stats();
        // The prompt's, and then five tokens a step.
        assert_eq!((stats.steps, stats.drafted, stats.accepted), (7, 24, 24), "{arch}");
        // Where nothing is right, one token is guessed, and ever more seldom.
        let mut e = engine(Arc::new(Oracle), arch, &r, wide());
        e.speculate(By::boxed(|a| vec![(a.tokens.last().unwrap() + 1) % 128; a.max_tokens]), 4);
        assert_eq!(tokens(&events(&mut e, Request::new([5, 6], 31))), want, "{arch}");
        let stats = e.stats();
        assert_eq!(stats.steps, 31 - stats.accepted, "{arch}: {stats:?}");
        assert!(stats.drafted < 20, "{arch}: {stats:?}");
    }
}

/// Knows how one text goes on.
#[derive(Debug)]
struct Knows(Vec<u32>);

impl Draft for Knows {
    fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
        let rest = |a: &Asked<'_>| self.0.get(a.tokens.len()..).unwrap_or_default();
        Ok(asked.iter().map(|a| rest(a).iter().copied().take(a.max_tokens).collect()).collect())
    }
}

#[test]
fn states_go_on_from_where_all_was_right() {
    let (arch, r) = ("MambaForCausalLM", Random::mamba());
    let new = || engine(Arc::new(Oracle), arch, &r, wide());
    let want = tokens(&events(&mut new(), Request::new([5, 6], 31)));
    let text = [&[5, 6], &*want].concat();
    let mut e = new();
    e.speculate(Some(Box::new(Knows(text.clone()))), 4);
    assert_eq!(tokens(&events(&mut e, Request::new([5, 6], 31))), want);
    assert_eq!((e.stats().steps, e.stats().accepted), (7, 24));
    // One in five is wrong: the step after it computes the right ones again, and is no longer than any other.
    for wrong in 0..5 {
        let mut lies = text.clone();
        lies.iter_mut().skip(2 + wrong).step_by(5).for_each(|token| *token = (*token + 1) % 128);
        let mut e = new();
        e.speculate(Some(Box::new(Knows(lies))), 4);
        let mut rows = 0;
        let id = e.add(Request::new([5, 6], 31).keep()).unwrap();
        while !e.is_idle() {
            e.step().unwrap();
            assert!(e.stats().rows - rows <= 5, "{:?}", e.stats());
            rows = e.stats().rows;
        }
        assert_eq!(e.tokens(id).unwrap(), text);
        assert!(e.stats().accepted > 8 && e.stats().steps < 31, "{:?}", e.stats());
    }
}

#[test]
fn what_waits_is_as_if_it_had_not_been_drawn() {
    for (arch, r) in zoo() {
        let seed = Some(3);
        let text = plain_text(arch, &r, seed);
        for taken in 1..12 {
            // Alone, and without guesses.
            let mut plain = engine(Arc::new(Oracle), arch, &r, wide());
            let there = plain.add(request(&[5, 6], 20, seed).keep()).unwrap();
            let mut e = engine(Arc::new(Oracle), arch, &r, wide());
            e.speculate(Some(Box::new(Knows(text.clone()))), 6);
            let here = e.add(request(&[5, 6], 20, seed).keep()).unwrap();
            for (e, id) in [(&mut plain, there), (&mut e, here)] {
                assert_eq!(e.follow(id).take(taken).count(), taken);
            }
            assert_eq!(e.tokens(here), plain.tokens(there), "{arch}: {taken} taken");
            assert_eq!(e.chain_state(here), plain.chain_state(there), "{arch}: {taken} taken");
            // Saved, and gone on with elsewhere.
            let mut bytes = Vec::new();
            e.save(here, 1, &[], &mut bytes).unwrap();
            let loaded = plain.load(1, &mut &*bytes, bytes.len() as u64).unwrap().id;
            let mut chain = request(&[], 1, seed).chain;
            chain.restore(&plain.chain_state(loaded).unwrap()).unwrap();
            let rest = Request::new([], 20 - taken).chain(chain).keep();
            plain.resume(loaded, rest.clone()).unwrap();
            e.resume(here, rest).unwrap();
            for (e, id) in [(&mut plain, loaded), (&mut e, here)] {
                while !e.is_idle() {
                    e.step().unwrap();
                }
                assert_eq!(e.tokens(id).unwrap(), text, "{arch}: {taken} taken");
            }
        }
    }
}

/// All of a text that nothing was guessed of.
fn plain_text(arch: &str, r: &Random, seed: Option<u64>) -> Vec<u32> {
    let mut e = engine(Arc::new(Oracle), arch, r, wide());
    let id = e.add(request(&[5, 6], 20, seed).keep()).unwrap();
    while !e.is_idle() {
        e.step().unwrap();
    }
    e.tokens(id).unwrap().to_vec()
}

#[test]
fn a_text_ends_where_it_would_have() {
    let arch = "LlamaForCausalLM";
    let r = Random::llama(false, false, false);
    let text = tokens(&events(&mut llama(wide()), Request::new([5, 6], 62)));
    let knows = || Some(Box::new(Knows([&[5, 6], &*text].concat())) as Box<dyn Draft>);
    let mut e = llama(wide());
    e.speculate(knows(), 6);
    for n in 1..20 {
        let all = events(&mut e, Request::new([5, 6], n));
        assert_eq!(tokens(&all), text[..n]);
        assert_eq!(all.last().unwrap().finish, Some(Finish::Length));
        // At the first place where that token is.
        let end = text.iter().position(|t| *t == text[n]).unwrap();
        let all = events(&mut e, Request::new([5, 6], 62).stop([text[n]]));
        assert_eq!(tokens(&all), text[..=end]);
        assert_eq!(all.last().unwrap().finish, Some(Finish::Stop));
    }
    for context in 3..20 {
        let mut e = engine(Arc::new(Oracle), arch, &r, Limits::new(context).block_len(4).element(&F32));
        e.speculate(knows(), 6);
        let all = events(&mut e, Request::new([5, 6], 62));
        assert_eq!(tokens(&all), text[..context - 2]);
        assert_eq!(all.last().unwrap().finish, Some(Finish::Context));
    }
}

#[test]
fn probabilities_are_those_of_each_token() {
    let r = Random::llama(false, false, false);
    let want = events(&mut llama(wide()), Request::new([5, 6], 20).logprobs(3));
    let mut e = llama(wide());
    e.speculate(itself("LlamaForCausalLM", &r), 4);
    assert_eq!(events(&mut e, Request::new([5, 6], 20).logprobs(3)), want);
    assert!(e.stats().steps < 8);
}

#[test]
fn a_step_s_guesses_are_shared_out() {
    let r = Random::llama(false, false, false);
    let mut e = llama(wide());
    e.speculate(itself("LlamaForCausalLM", &r), 6);
    for n in 0..3 {
        e.add(Request::new([n, n + 1], 30)).unwrap();
    }
    e.step().unwrap();
    let rows = e.stats().rows;
    e.step().unwrap();
    assert_eq!(e.stats().rows - rows, 3 * (1 + 2));
    // With as many sequences as leave none a guess.
    for n in 3..8 {
        e.add(Request::new([n, n + 1], 30)).unwrap();
    }
    let drafted = loop {
        let before = e.stats();
        e.step().unwrap();
        if e.stats().rows - before.rows == 8 {
            break e.stats().drafted - before.drafted;
        }
    };
    assert_eq!(drafted, 0);
}

#[test]
fn guesses_take_no_pages_from_anyone() {
    let r = Random::llama(false, false, false);
    let limits = Limits::new(32).sequences(2).step_tokens(64).block_len(4).cache_tokens(36).element(&F32);
    let mut e = engine(Arc::new(Oracle), "LlamaForCausalLM", &r, limits);
    let kept = e.add(Request::new([9; 20], 1).keep()).unwrap();
    while !e.is_idle() {
        e.step().unwrap();
    }
    // Twelve tokens have room beside it.
    e.speculate(itself("LlamaForCausalLM", &r), 8);
    let id = e.add(Request::new([1, 2, 3, 4, 5], 7).keep()).unwrap();
    while !e.is_idle() {
        e.step().unwrap();
    }
    assert_eq!(e.stats().preempted, 0);
    assert!(e.stats().accepted > 3);
    assert_eq!((e.tokens(kept).unwrap().len(), e.tokens(id).unwrap().len()), (21, 12));
}

#[test]
fn a_draft_may_say_anything_and_may_fail() {
    let want = tokens(&events(&mut llama(wide()), Request::new([5, 6], 20)));
    // Tokens that there are not, too many, none at all.
    let odd: [Says; 3] =
        [|_| vec![u32::MAX, 128, 5], |a| vec![a.tokens[0]; a.max_tokens + 90], |_| Vec::new()];
    for says in odd {
        let mut e = llama(wide());
        e.speculate(By::boxed(says), 4);
        assert_eq!(tokens(&events(&mut e, Request::new([5, 6], 20))), want);
    }
    #[derive(Debug)]
    struct Silent;
    impl Draft for Silent {
        fn guess(&mut self, _: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
            Ok(Vec::new())
        }
    }
    let mut e = llama(wide());
    e.speculate(Some(Box::new(Silent)), 4);
    assert_eq!(tokens(&events(&mut e, Request::new([5, 6], 20))), want);
    assert!(e.speculates());
    #[derive(Debug)]
    struct Fails;
    impl Draft for Fails {
        fn guess(&mut self, _: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
            Err(Error::invalid("guessing", "no inspiration"))
        }
    }
    // It costs nothing but the guesses.
    e.speculate(Some(Box::new(Fails)), 4);
    assert_eq!(tokens(&events(&mut e, Request::new([5, 6], 20))), want);
    assert!(!e.speculates());
    for most in [0, usize::MAX] {
        let mut e = llama(wide());
        e.speculate(itself("LlamaForCausalLM", &Random::llama(false, false, false)), most);
        assert_eq!(tokens(&events(&mut e, Request::new([5, 6], 20))), want);
        assert_eq!(e.stats().steps, if most == 0 { 20 } else { 2 });
    }
}

#[test]
fn who_has_gone_is_forgotten() {
    let gone = Arc::default();
    let mut e = llama(wide());
    e.speculate(Some(Box::new(By(|_| Vec::new(), Arc::clone(&gone)))), 4);
    let ended = e.add(Request::new([5, 6], 2)).unwrap();
    let kept = e.add(Request::new([5, 6], 2).keep()).unwrap();
    let cancelled = e.add(Request::new([5, 6], 20)).unwrap();
    for _ in 0..4 {
        e.step().unwrap();
    }
    e.cancel(cancelled);
    assert_eq!(*gone.lock().unwrap(), [ended, cancelled]);
    e.cancel(kept);
    assert_eq!(*gone.lock().unwrap(), [ended, cancelled, kept]);
}

#[test]
fn a_draft_model_follows_its_sequences() {
    let r = Random::llama(false, false, false);
    let recorder = Arc::new(Recorder::default());
    let drafts = |limits: Limits| {
        let engine = engine(Arc::clone(&recorder) as Arc<dyn Backend>, "LlamaForCausalLM", &r, limits);
        Some(Box::new(DraftModel::new(engine).unwrap().min_probability(0.0)) as Box<dyn Draft>)
    };
    // Its own context is shorter: there it ends to guess.
    let want = tokens(&events(&mut llama(wide()), Request::new([5, 6], 60)));
    let mut e = llama(wide());
    e.speculate(drafts(Limits::new(20).block_len(4).element(&F32)), 3);
    assert_eq!(tokens(&events(&mut e, Request::new([5, 6], 60))), want);
    let accepted = e.stats().accepted;
    assert!((12..20).contains(&accepted), "{accepted}");
    // It has room for one sequence, and guesses for three that come and go on.
    e.speculate(drafts(Limits::new(64).block_len(4).element(&F32)), 9);
    let prompts = [[5, 6], [7, 8], [9, 1]];
    let want: BTreeMap<SeqId, Vec<u32>> = {
        let mut plain = llama(wide());
        let texts = prompts.map(|p| tokens(&events(&mut plain, Request::new(p, 40))));
        prompts.iter().map(|p| e.add(Request::new(*p, 20).keep()).unwrap()).zip(texts).collect()
    };
    while !e.is_idle() {
        e.step().unwrap();
    }
    for (id, text) in &want {
        assert_eq!(e.tokens(*id).unwrap()[2..], text[..20]);
        // Goes back, and on.
        e.rewind(*id, 12).unwrap();
        e.resume(*id, Request::new([], 30).keep()).unwrap();
    }
    let steps = e.stats().steps;
    while !e.is_idle() {
        e.step().unwrap();
    }
    for (id, text) in &want {
        assert_eq!(e.tokens(*id).unwrap()[2..], *text);
    }
    assert!(e.stats().steps - steps < 12, "all were right");
    // A device of its own that fails takes its guesses away, and nothing else.
    let id = *want.keys().next().unwrap();
    e.rewind(id, 20).unwrap();
    e.resume(id, Request::new([], 22).keep()).unwrap();
    recorder.log().fail_after = Some(3);
    while !e.is_idle() {
        e.step().unwrap();
    }
    assert!(!e.speculates());
    assert_eq!(e.tokens(id).unwrap()[2..], want[&id]);
}

#[test]
fn a_draft_model_says_what_it_is_sure_of() {
    let r = Random::llama(false, false, false);
    let new = || engine(Arc::new(Oracle), "LlamaForCausalLM", &r, wide());
    let likely = events(&mut new(), Request::new([5, 6], 20).logprobs(0));
    let likely: Vec<f64> = likely.iter().map(|e| e.logprobs.as_ref().unwrap().chosen.logprob.exp()).collect();
    let mut sorted = likely.clone();
    sorted.sort_by(f64::total_cmp);
    let mut drafted = Vec::new();
    for sure in [sorted[0] as f32 * 0.99, sorted[10] as f32, 1.0, 7.0] {
        let mut e = new();
        e.speculate(Some(Box::new(DraftModel::new(new()).unwrap().min_probability(sure))), 4);
        events(&mut e, Request::new([5, 6], 20));
        assert_eq!(e.stats().accepted, e.stats().drafted, "it is the same model");
        drafted.push(e.stats().drafted);
    }
    let [all, some, none, beyond] = drafted[..] else { panic!("{drafted:?}") };
    assert!(all > some && some > none && (none, beyond) == (0, 0), "{drafted:?}");
    let mut e = new();
    e.speculate(Some(Box::new(DraftModel::new(new()).unwrap().min_probability(f32::NAN))), 4);
    events(&mut e, Request::new([5, 6], 20));
    assert!(e.stats().drafted >= all);
}

#[test]
fn a_model_with_states_is_no_draft() {
    let engine = engine(Arc::new(Oracle), "MambaForCausalLM", &Random::mamba(), wide());
    let why = DraftModel::new(engine).unwrap_err().to_string();
    assert!(why.contains("states"), "{why}");
}

#[test]
fn of_several_the_next_guesses_what_the_first_cannot() {
    /// Knows nothing of what begins with 9.
    const SOME: Says = |a| if a.tokens[0] == 9 { Vec::new() } else { vec![1; a.max_tokens] };
    const ALL: Says = |a| vec![2; a.max_tokens];
    let gone = Arc::<Mutex<Vec<SeqId>>>::default();
    let mut both: Vec<Box<dyn Draft>> =
        vec![Box::new(By(SOME, Arc::clone(&gone))), Box::new(By(ALL, Arc::clone(&gone)))];
    let r = Random::llama(false, false, false);
    // What an engine asks.
    #[derive(Debug)]
    struct Asks(Vec<Box<dyn Draft>>, Arc<Mutex<Vec<Vec<Vec<u32>>>>>);
    impl Draft for Asks {
        fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
            let guesses = self.0.guess(asked)?;
            self.1.lock().unwrap().push(guesses.clone());
            Ok(guesses)
        }
    }
    both.forget(7);
    assert_eq!(*gone.lock().unwrap(), [7, 7]);
    let told = Arc::default();
    let mut e = engine(Arc::new(Oracle), "LlamaForCausalLM", &r, wide());
    e.speculate(Some(Box::new(Asks(both, Arc::clone(&told)))), 4);
    for first in [9, 5, 9] {
        e.add(Request::new([first, 1], 3)).unwrap();
    }
    e.step().unwrap();
    e.step().unwrap();
    assert_eq!(told.lock().unwrap()[0], [[2], [1], [2]]);
}
