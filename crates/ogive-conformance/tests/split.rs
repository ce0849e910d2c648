//! A backend made of two passes the suite wherever its weights are: all of one part, or one after the other of different ones.

use ogive_backend::tensor::{Error, F32, Q4_K, Q8_0, Result, Tensor};
use ogive_backend::{Activation, Backend, Batch, HostWeight, Ids, Plan, Split, StepKey, Weight};
use ogive_conformance::{Options, Oracle, Status, assert_conforms, cases};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

fn parts(n: usize) -> Vec<Arc<dyn Backend>> {
    (0..n).map(|_| Arc::new(Oracle) as Arc<dyn Backend>).collect()
}

#[test]
fn two_parts_in_turn_conform() {
    let options = Options::new().formats(vec![&F32, &Q4_K, &Q8_0]);
    for homes in [vec![0, 1], vec![1, 0, 1], vec![0]] {
        let turn = AtomicUsize::new(0);
        let scattered = move |_: &str| turn.fetch_add(1, Relaxed) % 2;
        let scattered: Arc<dyn Backend> = Arc::new(Split::new(parts(2), homes.clone(), scattered).unwrap());
        // The three weights of experts must be together; their rows and choices are elsewhere.
        let together: Arc<dyn Backend> = Arc::new(Split::new(parts(2), homes, |_| 1).unwrap());
        let (mut wrong, mut passed) = (Vec::new(), 0);
        for case in cases(&options) {
            let backend = if case.name().contains("moe") { &together } else { &scattered };
            let outcome = case.run(backend, &options);
            match outcome.status {
                Status::Passed => passed += 1,
                Status::Skipped(_) => {}
                other => wrong.push(format!("{}: {other:?}", outcome.name)),
            }
        }
        assert!(wrong.is_empty() && passed > 150, "{passed} passed\n{}", wrong.join("\n"));
    }
}

#[test]
fn one_part_conforms_and_what_is_wrong_is_said() {
    let split: Arc<dyn Backend> = Arc::new(Split::new(parts(1), vec![0; 3], |_| 0).unwrap());
    assert_conforms(&split, &Options::new().formats(vec![&F32]));
    assert!(Split::new(parts(2), vec![0, 2], |_| 0).is_err());
    assert!(Split::new(Vec::new(), Vec::new(), |_| 0).is_err());
    let nowhere = Split::new(parts(1), Vec::new(), |_| 7).unwrap();
    let w = HostWeight::from_f32("lm_head.weight", [1, 1, 1], &[1.0]).unwrap();
    let error = nowhere.upload_weight(&w).unwrap_err().to_string();
    assert!(error.contains("lm_head.weight") && error.contains("part 7 of 1"), "{error}");
}

/// What parts were asked for, in order: pieces they were given, and each of their operators.
type Log = Arc<Mutex<Vec<String>>>;

/// An oracle that tells.
#[derive(Debug)]
struct Telling(usize, Log);

impl Telling {
    fn tell(&self, what: &str) {
        self.1.lock().unwrap().push(format!("{} {what}", self.0));
    }

    fn around<T>(&self, name: &'static str, f: impl FnOnce(&Oracle) -> Result<T>) -> Result<T> {
        self.tell(name);
        f(&Oracle)
    }
}

impl Backend for Telling {
    ogive_backend::forward_required!();
    ogive_backend::forward_provided!();

    fn replay(&self, key: &StepKey, p: &Plan, f: &mut dyn FnMut(&Plan) -> Result<Tensor>) -> Result<Tensor> {
        assert!(key.piece > 0);
        self.tell(&format!("piece {}", key.piece));
        f(p)
    }
}

const DIM: usize = 4;

/// A table on the first part, a layer on each, and a head on the second.
fn model(log: &Log) -> (Split, Vec<Weight>) {
    let part = |i| Arc::new(Telling(i, Arc::clone(log))) as Arc<dyn Backend>;
    let b =
        Split::new(vec![part(0), part(1)], vec![0, 1], |name| usize::from(name.contains("head"))).unwrap();
    let weight = |(i, name): (usize, &str)| {
        let values: Vec<f32> = (0..DIM * DIM).map(|j| ((3 * i + 7 * j) % 11) as f32 / 11.0 - 0.4).collect();
        b.upload_weight(&HostWeight::from_f32(name, [1, DIM, DIM], &values).unwrap()).unwrap()
    };
    let ws = ["embed", "layers.0.up", "layers.1.up", "head"].into_iter().enumerate().map(weight).collect();
    log.lock().unwrap().clear();
    (b, ws)
}

/// What is done in the middle of a step that goes from part to part with two values.
type Middle<'a> = &'a dyn Fn(&Split, Tensor) -> Result<Tensor>;

fn step(b: &Split, ws: &[Weight], plan: &Plan, middle: Middle<'_>) -> Result<Tensor> {
    let x = b.embed(&ws[0], Ids::Tokens, plan)?;
    let y = b.activate(b.linear(&x, &ws[1])?, Activation::Silu)?;
    let z = b.add(b.linear(&middle(b, y)?, &ws[2])?, &x)?;
    b.linear(&b.outputs(&z, plan)?, &ws[3])
}

fn run(b: &Split, ws: &[Weight], token: u32, middle: Middle<'_>) -> Result<Vec<f32>> {
    let mut batch = Batch::default();
    batch.push(&[token], 0, Vec::new(), [0, 1]);
    batch.want_last();
    let (key, plan) = (StepKey::of(7, &batch).unwrap(), b.plan(batch)?);
    b.download(&b.replay(&key, &plan, &mut |plan| step(b, ws, plan, middle))?)
}

/// What was told since it was asked last.
fn told(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

#[test]
fn a_step_that_comes_again_is_run_in_pieces() {
    let log = Log::default();
    let (b, ws) = model(&log);
    let want: Vec<_> = (0..3).map(|token| run(&b, &ws, token, &|_, y| Ok(y)).unwrap()).collect();
    // Run as it is, both values go by themselves.
    let (b, ws) = model(&log);
    assert_eq!(run(&b, &ws, 0, &|_, y| Ok(y)).unwrap(), want[0]);
    let seen = told(&log);
    assert_eq!(seen.iter().filter(|what| what.contains("bring")).count(), 2, "{seen:?}");
    assert!(!seen.iter().any(|what| what.contains("piece")), "{seen:?}");
    // In pieces, both go at once, and no operator is computed twice.
    for token in [1, 2, 1] {
        assert_eq!(run(&b, &ws, token, &|_, y| Ok(y)).unwrap(), want[token as usize]);
        let first = ["0 piece", "0 embed", "0 linear", "0 activate", "0 concat", "1 bring", "0 download"];
        let second = ["1 piece", "1 split", "1 linear", "1 add", "1 outputs", "1 linear", "1 download"];
        let all: Vec<String> = told(&log).into_iter().filter(|what| !what.contains("plan")).collect();
        let all: Vec<&str> =
            all.iter().map(|what| what.trim_end_matches(char::is_numeric).trim_end()).collect();
        assert_eq!(all, [&first[..], &second].concat());
    }
}

#[test]
fn what_is_no_step_of_pieces_is_run_as_it_is() {
    let log = Log::default();
    let plain = |token| {
        let (b, ws) = model(&log);
        run(&b, &ws, token, &|_, y| Ok(y)).unwrap()
    };
    // Values are read and put back: never in pieces.
    let look = |b: &Split, y: Tensor| b.upload(&b.download(&y)?, y.shape());
    let (b, ws) = model(&log);
    for token in [1, 2, 3, 1] {
        assert_eq!(run(&b, &ws, token, &look).unwrap(), plain(token));
    }
    assert!(!told(&log).iter().any(|what| what.contains("piece")));
    // Another operator than before, each time: run as it is, and after some times only so.
    let (b, ws) = model(&log);
    let count = AtomicUsize::new(0);
    for token in [1, 2, 3, 1, 2, 3, 1, 2, 3] {
        let turn = count.fetch_add(1, Relaxed);
        let other = |b: &Split, y: Tensor| if turn % 2 == 1 { b.mul(y.clone(), &y) } else { Ok(y) };
        let (fresh, its) = model(&log);
        let want = run(&fresh, &its, token, &other).unwrap();
        assert_eq!(run(&b, &ws, token, &other).unwrap(), want, "{turn}");
    }
    told(&log);
    run(&b, &ws, 1, &|_, y| Ok(y)).unwrap();
    assert!(!told(&log).iter().any(|what| what.contains("piece")));
    // One that fails says why; the next is run in pieces.
    let (b, ws) = model(&log);
    run(&b, &ws, 1, &|_, y| Ok(y)).unwrap();
    let fail = |_: &Split, _| Err(Error::unsupported("model", "told to fail"));
    let error = run(&b, &ws, 1, &fail).unwrap_err().to_string();
    assert!(error.contains("told to fail"), "{error}");
    let want = plain(2);
    told(&log);
    assert_eq!(run(&b, &ws, 2, &|_, y| Ok(y)).unwrap(), want);
    assert!(told(&log).iter().any(|what| what.contains("piece")));
}

#[test]
fn pieces_that_nobody_records_are_given_up() {
    let log = Log::default();
    let (b, ws) = model(&log);
    let pieces = |_| {
        run(&b, &ws, 1, &|_, y| Ok(y)).unwrap();
        told(&log).iter().filter(|what| what.contains("piece")).count()
    };
    let seen: Vec<usize> = (0..20).map(pieces).collect();
    assert_eq!(seen[..3], [0, 2, 2]);
    assert_eq!(seen[17..], [0; 3], "{seen:?}");
}

/// What a part recorded of a step that was then learned anew is of another key, so it is not replayed in the new one.
#[test]
fn a_step_that_is_learned_anew_has_other_keys() {
    let log = Log::default();
    let (b, ws) = model(&log);
    let keys = |square: bool| -> Vec<String> {
        let middle = |b: &Split, y: Tensor| if square { b.mul(y.clone(), &y) } else { Ok(y) };
        for _ in 0..2 {
            run(&b, &ws, 1, &middle).unwrap();
        }
        told(&log);
        run(&b, &ws, 1, &middle).unwrap();
        told(&log).into_iter().filter(|what| what.contains("piece")).collect()
    };
    let (first, second) = (keys(false), keys(true));
    assert!(first.len() == 2 && second.len() == 2, "{first:?} {second:?}");
    assert!(first.iter().all(|key| !second.contains(key)) && first[0] != first[1], "{first:?} {second:?}");
}

#[test]
fn other_threads_are_not_of_the_step() {
    let log = Log::default();
    let (b, ws) = model(&log);
    let aside = |b: &Split, y: Tensor| {
        let sum = || b.download(&b.sum(&b.upload(&[1.0; DIM], [1, DIM].into())?)?);
        assert_eq!(std::thread::scope(|s| s.spawn(sum).join().unwrap()).unwrap(), [DIM as f32]);
        Ok(y)
    };
    let want = run(&b, &ws, 3, &|_, y| Ok(y)).unwrap();
    let (b, ws) = model(&log);
    for _ in 0..3 {
        assert_eq!(run(&b, &ws, 3, &aside).unwrap(), want);
    }
    assert!(told(&log).iter().any(|what| what.contains("piece")));
}
