//! Sequences that come, go, wait, go back and fail at random, in too little cache, with guesses and with images: what each draws must be what
//! it would have drawn alone, and in the end every block and every state slot must be free again.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::{Asked, Draft, Engine, Limits, Placed, Request, SeqId, Stats};
use ogive_nn::Loader;
use ogive_nn::backend::{Backend, Vectors};
use ogive_nn::tensor::serde_json::json;
use ogive_nn::tensor::{F32, Result};
use random::Random;
use recorder::Recorder;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CONTEXT: usize = 40;

#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
    fn tokens(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(128) as u32).collect()
    }
}

/// What a sequence began its turn with, and the rest of the request.
#[derive(Clone, Debug)]
struct Turn {
    from: Vec<u32>,
    /// What stands in place of some of its tokens.
    inputs: Vec<Placed>,
    n: usize,
    seed: u64,
    keep: bool,
    /// Tokens that events have told of.
    told: Vec<u32>,
}

impl Turn {
    fn request(&self, prompt: &[u32]) -> Request {
        let r =
            request(prompt, self.n, Some(self.seed)).inputs(self.inputs_from(self.from.len() - prompt.len()));
        if self.keep { r.keep() } else { r }
    }

    /// Those of its last tokens, from `first` on.
    fn inputs_from(&self, first: usize) -> Vec<Placed> {
        let own = self.inputs.iter().filter(|input| input.at >= first);
        own.map(|input| Placed::new(input.at - first, Arc::clone(&input.vectors))).collect()
    }
}

/// Who is there and has not ended.
#[derive(Clone, Debug, Default)]
struct Running(Arc<Mutex<BTreeMap<SeqId, Turn>>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SeqId, Turn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Knows what everyone will draw, and says it with mistakes, or too much of it.
#[derive(Debug)]
struct Liar {
    running: Running,
    alone: Engine,
    dice: Dice,
}

impl Draft for Liar {
    fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
        let mut guesses = Vec::new();
        for asked in asked {
            let turn = self.running.lock()[&asked.id].clone();
            let drawn = self.alone.run(turn.request(&turn.from)).unwrap().map(|e| e.unwrap().token.unwrap());
            let drawn = drawn.skip(asked.tokens.len() - turn.from.len());
            let mut guess: Vec<u32> = drawn.take(asked.max_tokens + self.dice.below(2)).collect();
            if !guess.is_empty() && self.dice.below(3) == 0 {
                let i = self.dice.below(guess.len());
                // There are 128 tokens.
                guess[i] = self.dice.below(150) as u32;
            }
            guesses.push(guess);
        }
        Ok(guesses)
    }
}

/// Images: rows that stand and are seen as tokens, that stand in a grid and bring more for later blocks, that see each other; and one that
/// has numbers of its own alone.
fn images() -> Vec<Arc<Vectors>> {
    let mut dice = Dice(11);
    let mut numbers = |n: usize| (0..n).map(|_| dice.below(2000) as f32 / 1000.0 - 1.0).collect::<Vec<_>>();
    let grid = |rows: u32, cols: u32| (0..rows * cols).map(|i| [0, i / cols, i % cols]).collect();
    let mut rows = |n: usize| Vectors::new(numbers(n * 64), 64).unwrap();
    let (a, b) = (rows(4), rows(4));
    let deeper = vec![rows(6).values, rows(6).values];
    [
        rows(3),
        rows(6).places(grid(2, 3)).unwrap().deeper(deeper).unwrap(),
        rows(5).mutual(),
        rows(4).places(grid(2, 2)).unwrap().mutual(),
        a,
        b,
    ]
    .map(Arc::new)
    .to_vec()
}

struct World {
    /// What sequences may have in place of tokens.
    images: Vec<Arc<Vectors>>,
    engine: Engine,
    recorder: Arc<Recorder>,
    /// Runs one sequence at a time, with room for all of it.
    alone: Engine,
    running: Running,
    waiting: Vec<SeqId>,
    turns: usize,
}

impl World {
    /// Compares a turn that is over, or broke off, with the same request alone.
    fn check(&mut self, turn: &Turn, drawn: &[u32], over: bool) {
        self.turns += 1;
        let want: Vec<u32> = self
            .alone
            .run(turn.request(&turn.from))
            .unwrap()
            .take(if over { usize::MAX } else { drawn.len() })
            .map(|e| e.unwrap().token.unwrap())
            .collect();
        assert_eq!(drawn, want, "after {:?}", turn.from);
    }

    /// Tokens, behind which an image may stand, and more tokens.
    fn prompt(&self, turn: &mut Turn, n: usize, dice: &mut Dice) {
        turn.from.extend(dice.tokens(n));
        if self.images.is_empty() || dice.below(3) == 0 {
            return;
        }
        for _ in 0..=dice.below(2) {
            let of = Arc::clone(&self.images[dice.below(self.images.len())]);
            let (at, rows, n) = (turn.from.len(), of.rows(), dice.below(4));
            if at + rows + n < CONTEXT {
                turn.inputs.push(Placed::new(at, of));
                turn.from.extend(vec![127; rows]);
                turn.from.extend(dice.tokens(n));
            }
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        self.recorder.log().fail_after = (dice.below(4) == 0).then(|| dice.below(60));
        let events = self.engine.step();
        self.recorder.log().fail_after = None;
        for event in events.unwrap_or_default() {
            self.running
                .lock()
                .get_mut(&event.id)
                .expect("only who runs is told of")
                .told
                .extend(event.token);
            if event.finish.is_some() {
                let turn = self.running.lock().remove(&event.id).unwrap();
                if turn.keep {
                    assert_eq!(self.engine.tokens(event.id).unwrap()[turn.from.len()..], turn.told);
                    self.waiting.push(event.id);
                }
                let told = turn.told.clone();
                self.check(&turn, &told, true);
            }
        }
    }

    fn start(&mut self, dice: &mut Dice) {
        let mut turn = Turn {
            from: Vec::new(),
            inputs: Vec::new(),
            n: if dice.below(6) == 0 { usize::MAX } else { 1 + dice.below(12) },
            seed: dice.below(1000) as u64,
            keep: dice.below(2) == 0,
            told: Vec::new(),
        };
        let on = (!self.waiting.is_empty() && dice.below(2) == 0).then(|| dice.below(self.waiting.len()));
        let Some(i) = on else {
            let most = if dice.below(4) == 0 { CONTEXT - 1 } else { 8 };
            let n = 1 + dice.below(most);
            // Every other one begins as another does, and shares what that has computed.
            let others: Vec<_> = self.running.lock().keys().chain(&self.waiting).copied().collect();
            if !others.is_empty() && dice.below(2) == 0 {
                let other = others[dice.below(others.len())];
                let (tokens, inputs) =
                    (self.engine.tokens(other).unwrap(), self.engine.inputs(other).unwrap());
                let mut alike = dice.below(tokens.len().min(CONTEXT - 2) + 1);
                if let Some(cut) = inputs.iter().map(Placed::tokens).find(|of| of.contains(&alike)) {
                    alike = cut.start;
                }
                turn.from = tokens[..alike].to_vec();
                turn.inputs = inputs.iter().filter(|input| input.at < alike).cloned().collect();
            }
            let n = n.min(CONTEXT - 1 - turn.from.len());
            self.prompt(&mut turn, n, dice);
            let id = self.engine.add(turn.request(&turn.from)).unwrap();
            self.running.lock().insert(id, turn);
            return;
        };
        let id = self.waiting[i];
        if dice.below(2) == 0 {
            let len = 1 + dice.below(self.engine.tokens(id).unwrap().len());
            let inputs = self.engine.inputs(id).unwrap();
            let cuts = inputs.iter().map(Placed::tokens).any(|of| of.start < len && len < of.end);
            match self.engine.rewind(id, len) {
                Ok(past) => assert!(past < len && !cuts),
                Err(e) => assert!(cuts, "{e}"),
            }
        }
        turn.from = self.engine.tokens(id).unwrap().to_vec();
        turn.inputs = self.engine.inputs(id).unwrap().to_vec();
        let had = turn.from.len();
        // None every third time: a turn that goes on where it stopped.
        let n = dice.below(9).saturating_sub(2);
        if n == 0 {
            turn.from.extend(dice.tokens(n));
        } else {
            self.prompt(&mut turn, n, dice);
        }
        let more = turn.from[had..].to_vec();
        match self.engine.resume(id, turn.request(&more)) {
            Ok(()) => {
                self.waiting.swap_remove(i);
                self.running.lock().insert(id, turn);
            }
            Err(e) => {
                assert!(turn.from.len() >= CONTEXT, "{e}");
                assert_eq!(self.engine.tokens(id).unwrap().len(), turn.from.len() - more.len());
            }
        }
    }

    /// Someone who runs is paused, cancelled, or followed for a while and then dropped.
    fn break_off(&mut self, dice: &mut Dice) {
        let ids: Vec<_> = self.running.lock().keys().copied().collect();
        let Some(id) = ids.get(dice.below(ids.len().max(1))).copied() else { return };
        let turn = self.running.lock()[&id].clone();
        let drawn = self.engine.tokens(id).unwrap()[turn.from.len()..].to_vec();
        self.check(&turn, &drawn, false);
        match dice.below(3) {
            0 if turn.keep => assert!(self.engine.pause(id)),
            1 => {
                let n = dice.below(4);
                let mut session = self.engine.follow(id);
                let more = session
                    .by_ref()
                    .filter_map(Result::ok)
                    .take(n)
                    .map(|e| e.token.unwrap())
                    .collect::<Vec<_>>();
                drop(session);
                self.check(&turn, &[drawn, more].concat(), false);
            }
            _ => assert!(self.engine.cancel(id)),
        }
        self.running.lock().remove(&id);
        if self.engine.tokens(id).is_some() && turn.keep {
            self.waiting.push(id);
        }
        // Takes what a session has left for others.
        self.step(dice);
    }

    fn live(&mut self, dice: &mut Dice) {
        for _ in 0..90 {
            match dice.below(12) {
                0..3 if self.running.lock().len() < 6 => self.start(dice),
                3 => self.break_off(dice),
                4 if !self.waiting.is_empty() && dice.below(3) == 0 => {
                    let i = dice.below(self.waiting.len());
                    assert!(self.engine.cancel(self.waiting.swap_remove(i)));
                }
                _ => self.step(dice),
            }
        }
        for i in 0.. {
            if self.engine.is_idle() {
                break;
            }
            assert!(i < 5000, "wedged");
            self.step(dice);
        }
        assert!(self.running.lock().is_empty());
        for id in std::mem::take(&mut self.waiting) {
            assert!(self.engine.cancel(id));
        }
    }
}

#[test]
fn what_is_drawn_does_not_depend_on_the_traffic_and_all_is_given_back() {
    let shared: u64 = lives(0..4, false, false).iter().map(|stats| stats.shared).sum();
    assert!(shared > 300, "{shared} tokens were shared");
}

#[test]
fn nor_does_it_with_images_in_place_of_tokens() {
    let plain = lives(8..12, false, true);
    let shared: u64 = plain.iter().map(|stats| stats.shared).sum();
    assert!(shared > 300, "{shared} tokens were shared");
    let guessed = lives(12..14, true, true);
    let accepted: u64 = guessed.iter().map(|stats| stats.accepted).sum();
    assert!(accepted > 200, "{accepted} guesses were right");
}

#[test]
fn nor_does_it_on_what_is_guessed() {
    let lives = lives(4..8, true, false);
    let [drafted, accepted] =
        [|s: &Stats| s.drafted, |s: &Stats| s.accepted].map(|of| lives.iter().map(of).sum::<u64>());
    assert!(accepted > 700 && drafted > accepted + 100, "{accepted} of {drafted} were right");
}

/// Lives of every architecture, or of those that take images; what was done in each.
fn lives(rounds: Range<usize>, guessed: bool, seeing: bool) -> Vec<Stats> {
    let mut zoo = zoo();
    if seeing {
        // By places in a grid.
        zoo[1].1.config.0["rope_scaling"] = json!({"type": "mrope", "mrope_section": [2, 3, 3]});
    }
    let mut windowed = Random::llama(false, false, false);
    windowed.config.0["sliding_window"] = 6.into();
    zoo.push(("MistralForCausalLM", windowed));
    let mut done = Vec::new();
    for (i, (arch, r)) in zoo.iter().enumerate() {
        let model = registry().build(arch, &r.config, &Loader::new(r, &Oracle)).unwrap();
        if seeing && model.takes_vectors().is_none() {
            continue;
        }
        for round in rounds.clone() {
            let mut dice = Dice((100 * i + round) as u64);
            let sequences = 1 + dice.below(if guessed { 6 } else { 3 });
            // An image of up to five rows must be in one.
            let most = sequences + dice.below(9) + if seeing { 4 } else { 0 };
            let limits = Limits::new(CONTEXT)
                .sequences(sequences)
                .step_tokens(most)
                .block_len(1 + dice.below(5))
                .element(&F32);
            // Too little for all, or just enough: then nobody has to wait in the end.
            let tight = round % 4 != 2;
            let most = if guessed { 4 * CONTEXT } else { CONTEXT };
            let limits = if tight { limits.cache_tokens(CONTEXT + dice.below(most)) } else { limits };
            let recorder = Arc::new(Recorder::default());
            let alone = || engine(Arc::new(Oracle), arch, r, Limits::new(CONTEXT).block_len(4).element(&F32));
            let mut world = World {
                images: if seeing { images() } else { Vec::new() },
                engine: engine(Arc::clone(&recorder) as Arc<dyn Backend>, arch, r, limits),
                recorder,
                alone: alone(),
                running: Running::default(),
                waiting: Vec::new(),
                turns: 0,
            };
            if guessed {
                let (running, dice) = (world.running.clone(), Dice(dice.below(1000) as u64));
                let liar = Liar { running, alone: alone(), dice };
                world.engine.speculate(Some(Box::new(liar)), 1 + round % 4);
            }
            world.live(&mut dice);
            assert!(world.turns > 5, "{arch}: {} turns", world.turns);
            done.push(world.engine.stats());
            world.engine.speculate(None, 0);
            // Whole contexts, as many as the limits promise, find room without anyone giving way.
            let preempted = world.engine.stats().preempted;
            let together = if tight { 1 } else { sequences };
            for n in 0..together {
                world.engine.add(Request::new([n as u32 + 1], usize::MAX)).unwrap();
            }
            let mut drawn = 0;
            while !world.engine.is_idle() {
                drawn += world.engine.step().unwrap().len();
            }
            assert_eq!(drawn, together * (CONTEXT - 1), "{arch}");
            assert_eq!(world.engine.stats().preempted, preempted, "{arch}: blocks or slots were lost");
        }
    }
    done
}
