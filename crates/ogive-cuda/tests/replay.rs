//! Replayed steps are the steps they stand for: the same bits, the same errors, whatever a program does between them.
//!
//! `replay/*` of the conformance suite says what every backend must do; here stands what a graph could get wrong.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/llama.rs"]
mod llama;

use llama::{BLOCKS, DIM, Model};
use ogive_backend::tensor::{F32, HostWeight, Result};
use ogive_backend::{Backend, Batch, BlockCopy, BlockTable, Plan, StepKey};
use ogive_cuda::{Compute, CudaBackend};
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::time::Duration;

fn on_device(name: &str, body: impl FnOnce()) {
    common::on_device(name, Nvrtc::V12, body);
}

fn bits(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

/// So many steps of `rows` sequences each, from an empty cache.
fn steps(b: &CudaBackend, model: &Model, key: u64, rows: u32, count: usize) -> Result<Vec<Vec<u32>>> {
    let tokens =
        |past: usize| (0..rows).map(|i| (past as u32 * 13 + i * 29) % DIM as u32).collect::<Vec<_>>();
    let step = |past| {
        let y = model.replayed(b, key, Model::batch(&tokens(past), past))?;
        b.download(&y).map(bits)
    };
    (0..count).map(step).collect()
}

#[test]
fn the_same_bits_as_without_graphs() {
    on_device(test_name!(), || {
        let (with, without) =
            (CudaBackend::new().unwrap(), CudaBackend::builder().graphs(false).build().unwrap());
        let (a, b) = (Model::new(&with, 0).unwrap(), Model::new(&without, 0).unwrap());
        for rows in [1, 3, 2, 1] {
            let got = steps(&with, &a, 1, rows, 20).unwrap();
            assert_eq!(got, steps(&without, &b, 1, rows, 20).unwrap(), "{rows} rows");
        }
        let counts = with.graphs();
        println!("cuda: {counts:?}");
        // One, two or three rows: each is run once and recorded once, as short contexts are alike.
        assert_eq!((counts.recorded, counts.eager, counts.replayed), (3, 3, 77), "{counts:?}");
        assert_eq!(without.graphs().replayed, 0);
    });
}

#[test]
fn results_that_are_held_stay_as_they_are() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        let model = Model::new(&b, 0).unwrap();
        let step = |past: usize| model.replayed(&b, 1, Model::batch(&[past as u32], past)).unwrap();
        let held: Vec<_> = (8..16).map(step).collect();
        assert!(b.graphs().replayed >= 7, "{:?}", b.graphs());
        let late: Vec<_> = held.iter().map(|y| bits(b.download(y).unwrap())).collect();
        let at_once: Vec<_> = (8..16).map(|past| bits(b.download(&step(past)).unwrap())).collect();
        assert_eq!(late, at_once);
        assert!(late.windows(2).all(|two| two[0] != two[1]));
        // In place on what is lent, too.
        let y = step(12);
        let doubled = b.add(y.clone(), &y).unwrap();
        drop(y);
        let again = step(12);
        let twice: Vec<f32> = b.download(&again).unwrap().iter().map(|v| v + v).collect();
        assert_eq!(b.download(&doubled).unwrap(), twice);
    });
}

#[test]
fn the_best_that_a_step_ends_with_are_those_of_its_logits() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        let model = Model::new(&b, 0).unwrap();
        let batch = |past: usize| Model::batch(&[past as u32, 3], past);
        let step = |past, k| model.replayed_top_k(&b, 1, batch(past), k).unwrap();
        let want = |past, k| b.best(&model.replayed(&b, 1, batch(past)).unwrap(), k).unwrap();
        for past in 8..16 {
            for k in [1, 3] {
                let got = b.best(&step(past, k), k).unwrap();
                assert_eq!(got, want(past, k), "{k} after {past}");
            }
        }
        // Two numbers of them and all logits, each run once and recorded once.
        let counts = b.graphs();
        assert_eq!((counts.recorded, counts.eager), (3, 3), "{counts:?}");
        // Fewer than were kept are there, more and others are not.
        let y = step(9, 3);
        assert_eq!(b.best(&y, 2).unwrap(), want(9, 2));
        let e = b.best(&y, 4).unwrap_err();
        assert!(e.to_string().contains("the best 3 of each row were kept and 4 are asked for"), "{e}");
        let e = b.download(&y).unwrap_err();
        assert!(e.to_string().contains("only the best 3 of each row were kept"), "{e}");
        drop(y);
        // Held beyond the next step.
        let held: Vec<_> = (8..12).map(|past| step(past, 3)).collect();
        for (past, y) in (8..).zip(&held) {
            assert_eq!(b.best(y, 3).unwrap(), want(past, 3), "after {past}");
        }
    });
}

#[test]
fn another_model_under_the_same_key_after_the_first_is_gone() {
    on_device(test_name!(), || {
        let (b, plain) = (CudaBackend::new().unwrap(), CudaBackend::builder().graphs(false).build().unwrap());
        let mut seen = Vec::new();
        for seed in 0..4 {
            let (model, twin) = (Model::new(&b, seed).unwrap(), Model::new(&plain, seed).unwrap());
            let got = steps(&b, &model, 1, 2, 9).unwrap();
            assert_eq!(got, steps(&plain, &twin, 1, 2, 9).unwrap(), "model {seed}");
            seen.push(got);
        }
        assert!(seen.windows(2).all(|two| two[0] != two[1]), "the models are all alike");
        assert!(b.graphs().replayed > 10, "{:?}", b.graphs());
    });
}

#[test]
fn what_was_checked_is_checked_again() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        let model = Model::new(&b, 0).unwrap();
        for past in 4..7 {
            model.replayed(&b, 1, Model::batch(&[1], past)).unwrap();
        }
        let replayed = b.graphs().replayed;
        assert!(replayed > 0);
        let e = model.replayed(&b, 1, Model::batch(&[DIM as u32], 7)).unwrap_err();
        assert!(e.to_string().contains("outside a table"), "{e}");
        let mut batch = Model::batch(&[1], 7);
        batch.spans[0].tables[0].blocks[1] = 3 * BLOCKS;
        let e = model.replayed(&b, 1, batch).unwrap_err();
        assert!(e.to_string().contains("outside its"), "{e}");
        let mut batch = Model::batch(&[1], 7);
        batch.spans[0].tables[0].blocks.truncate(1);
        let e = model.replayed(&b, 1, batch).unwrap_err();
        assert!(e.to_string().contains("no block for token 7"), "{e}");
        assert_eq!(b.graphs().replayed, replayed);
        model.replayed(&b, 1, Model::batch(&[1], 7)).unwrap();
        assert_eq!(b.graphs().replayed, replayed + 1);
    });
}

#[test]
fn two_plans_take_turns_and_a_third_is_run() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        let model = Model::new(&b, 0).unwrap();
        let key = StepKey::of(1, &Model::batch(&[1], 4)).unwrap();
        let plan = |past: usize| b.plan(Model::batch(&[past as u32], past)).unwrap();
        let run = |plan: &Plan| {
            bits(b.download(&b.replay(&key, plan, &mut |p| model.logits(&b, p)).unwrap()).unwrap())
        };
        // Each next step is planned before the one before has been run.
        let (mut next, mut seen) = (plan(4), Vec::new());
        for past in 5..9 {
            let current = std::mem::replace(&mut next, plan(past.min(7)));
            seen.push(run(&current));
        }
        let held = [plan(4), plan(5), plan(6)];
        let again: Vec<_> = held.iter().chain([&next]).map(run).collect();
        assert_eq!(seen, again);
        let counts = b.graphs();
        assert!(counts.recorded == 2 && counts.replayed >= 2, "{counts:?}");
        assert!(counts.reason.as_ref().is_some_and(|why| why.contains("more than two")), "{counts:?}");
    });
}

/// What is remembered is counted by kinds of steps, each with the places of its plans, as a program has two of them in turn.
#[test]
fn sixty_four_kinds_are_remembered_and_the_one_used_longest_ago_goes() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        let model = Model::new(&b, 0).unwrap();
        let run = |held: &mut Option<Plan>, kind: u64| {
            let batch = Model::batch(&[3], 8);
            let key = StepKey::of(kind, &batch).unwrap();
            let plan = b.plan(batch).unwrap();
            let y = b.replay(&key, &plan, &mut |plan| model.logits(&b, plan)).unwrap();
            *held = Some(plan);
            bits(b.download(&y).unwrap())
        };
        let counts = |held: &mut Option<Plan>, kinds: &mut dyn Iterator<Item = u64>| {
            let before = b.graphs();
            let seen: Vec<_> = kinds.map(|kind| run(held, kind)).collect();
            assert!(seen.windows(2).all(|two| two[0] == two[1]));
            let after = b.graphs();
            [after.eager - before.eager, after.recorded - before.recorded, after.replayed - before.replayed]
        };
        let mut held = None;
        // Each kind in both places, twice: run, then recorded.
        let mut four_times = (0..64).flat_map(|kind| [kind; 4]);
        assert_eq!(counts(&mut held, &mut four_times), [128, 128, 128]);
        let used = b.memory_used();
        // A step between, so that each kind comes in the other place now.
        assert_eq!(counts(&mut held, &mut (0..64).chain([0]).chain(0..64)), [0, 0, 129]);
        // Two more: 0 and 1 go, with both places, and no other. What goes gives its place to what comes.
        assert_eq!(counts(&mut held, &mut [64, 64, 64, 64, 65, 65, 65, 65].into_iter()), [4, 4, 4]);
        assert_eq!(counts(&mut held, &mut (2..66).flat_map(|kind| [kind; 2])), [0, 0, 128]);
        assert_eq!(counts(&mut held, &mut [0, 0, 0, 0, 1, 1, 1, 1].into_iter()), [4, 4, 4]);
        // More kinds than are remembered, one after the other: each is gone before it comes again.
        assert_eq!(counts(&mut held, &mut (0..2).flat_map(|_| 100..165)), [130, 0, 0]);
        assert_eq!(b.memory_used(), used);
    });
}

#[test]
fn what_cannot_be_recorded_is_run_and_the_reason_said() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        let model = Model::new(&b, 0).unwrap();
        let mut seen = Vec::new();
        for past in 8..13 {
            let batch = Model::batch(&[3], past);
            let (key, plan) = (StepKey::of(1, &batch).unwrap(), b.plan(batch).unwrap());
            let mut look = |plan: &_| {
                let y = model.logits(&b, plan)?;
                b.upload(&b.download(&y)?, y.shape())
            };
            let y = b.replay(&key, &plan, &mut look).unwrap();
            seen.push(bits(b.download(&y).unwrap()));
        }
        let counts = b.graphs();
        assert_eq!((counts.recorded, counts.replayed, counts.eager), (0, 0, 5), "{counts:?}");
        assert_eq!(counts.reason.as_deref(), Some("it cannot be recorded: download"));
        let plain: Vec<_> = (8..13)
            .map(|past| bits(b.download(&model.replayed(&b, 2, Model::batch(&[3], past)).unwrap()).unwrap()))
            .collect();
        assert_eq!(seen, plain);
        // A result that is not the step's own, and one that is kept elsewhere too.
        let other = b.upload(&[1.0; DIM], [1, DIM].into()).unwrap();
        let mut kept = Vec::new();
        for (number, wanted) in [(3, "its result is not its own"), (4, "it keeps values beside its result")] {
            for _ in 0..3 {
                let batch = Model::batch(&[3], 8);
                let (key, plan) = (StepKey::of(number, &batch).unwrap(), b.plan(batch).unwrap());
                let mut f = |plan: &_| {
                    let y = model.logits(&b, plan)?;
                    kept.push(b.sum(&y)?);
                    if number == 3 {
                        kept.clear();
                        return Ok(other.clone());
                    }
                    Ok(y)
                };
                b.replay(&key, &plan, &mut f).unwrap();
            }
            assert_eq!(b.graphs().reason.as_deref(), Some(wanted));
        }
    });
}

#[test]
fn memory_of_records_is_given_back_where_it_is_short() {
    on_device(test_name!(), || {
        let b = CudaBackend::builder().memory(16 << 20).build().unwrap();
        let model = Model::new(&b, 0).unwrap();
        // The constants stay.
        drop(steps(&b, &model, 1, 3, 1).unwrap());
        b.drop_graphs();
        let before = b.memory_used().0;
        let first = steps(&b, &model, 1, 3, 12).unwrap();
        assert!(b.memory_used().0 > before && b.graphs().replayed > 0);
        b.drop_graphs();
        assert_eq!(b.memory_used().0, before);
        assert_eq!(steps(&b, &model, 1, 3, 12).unwrap(), first);
        let replayed = b.graphs().replayed;
        // All there is: the first that does not fit makes the records give theirs back.
        let large = vec![0.0; 1 << 19];
        let mut rest = Vec::new();
        while let Ok(x) = b.upload(&large, [1 << 19].into()) {
            rest.push(x);
        }
        rest.truncate(rest.len() - 2);
        assert_eq!(steps(&b, &model, 1, 1, 1).unwrap().len(), 1);
        drop(rest);
        assert_eq!(steps(&b, &model, 1, 3, 12).unwrap(), first);
        assert!(b.graphs().replayed > replayed);
    });
}

/// A thread that is short of memory waits for the step of another one, and then has what records keep, but for the result that is lent.
#[test]
fn memory_of_records_is_given_back_to_another_thread() {
    on_device(test_name!(), || {
        // Pages for weights and for small pieces, and two large pieces; a third fits only if another goes.
        let (large, len) = (vec![1.0; 1 << 19], 1 << 19);
        let b = CudaBackend::builder().memory(11 << 20).build().unwrap();
        let model = Model::new(&b, 0).unwrap();
        let wide = b.upload(&large, [len].into()).unwrap();
        let step = |number: u64, between: &mut dyn FnMut()| {
            let batch = Model::batch(&[3], 8);
            let (key, plan) = (StepKey::of(number, &batch).unwrap(), b.plan(batch).unwrap());
            b.replay(&key, &plan, &mut |plan| {
                between();
                if number == 1 {
                    b.add(wide.clone(), &wide)?;
                }
                model.logits(&b, plan)
            })
            .unwrap()
        };
        let large_records = || (0..3).for_each(|_| drop(step(1, &mut || ())));
        // What `other` gives, which another thread does while this one records a step; its result is held meanwhile.
        let meanwhile = |number: u64, other: &(dyn Fn() -> bool + Sync)| {
            let want = bits(b.download(&step(number, &mut || ())).unwrap());
            let recorded = b.graphs().recorded;
            let done = std::thread::scope(|s| {
                let [(go, ready), (began, other_is_there)] = [(); 2].map(|()| std::sync::mpsc::channel());
                let thread = s.spawn(move || ready.recv().is_ok() && began.send(()).is_ok() && other());
                let y = step(number, &mut || {
                    go.send(()).unwrap();
                    other_is_there.recv().unwrap();
                    std::thread::sleep(Duration::from_millis(300));
                });
                let done = thread.join().unwrap();
                assert_eq!(bits(b.download(&y).unwrap()), want);
                done
            });
            assert_eq!(b.graphs().recorded, recorded + 1, "{:?}", b.graphs());
            done
        };
        large_records();
        let room = || b.upload(&large, [len].into()).inspect_err(|e| println!("{e}")).is_ok();
        assert!(meanwhile(2, &room));
        large_records();
        let used = b.memory_used().0;
        let drops = || {
            b.drop_graphs();
            b.memory_used().0 + (2 << 20) <= used
        };
        assert!(meanwhile(3, &drops));
    });
}

#[test]
fn counts_are_told_and_made_while_a_step_is_recorded() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        let model = Model::new(&b, 0).unwrap();
        steps(&b, &model, 1, 1, 4).unwrap();
        let batch = || Model::batch(&[3], 8);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (key, plan) = (StepKey::of(2, &batch()).unwrap(), b.plan(batch()).unwrap());
            let mut f = |plan: &_| {
                let before = b.graphs();
                let other = || drop(model.replayed(&b, 3, batch()).unwrap());
                std::thread::scope(|s| s.spawn(other).join().unwrap());
                seen.push([before, b.graphs()]);
                model.logits(&b, plan)
            };
            b.replay(&key, &plan, &mut f).unwrap();
        }
        // In the first run, and in the record: then another step cannot be, and is counted all the same.
        let [_, [before, after]] = &seen[..] else { panic!("{seen:?}") };
        assert!(before.replayed > 0 && after.eager == before.eager + 1, "{seen:?}");
        assert_eq!(after.reason.as_deref(), Some("another step is recorded or launched"));
    });
}

#[test]
fn other_threads_are_not_recorded() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        let model = Model::new(&b, 0).unwrap();
        let x = b.upload(&[1.0, 2.0, 3.0], [1, 3].into()).unwrap();
        let mut sums = Vec::new();
        for past in 8..13 {
            let batch = Model::batch(&[3], past);
            let (key, plan) = (StepKey::of(1, &batch).unwrap(), b.plan(batch).unwrap());
            let mut f = |plan: &_| {
                let sum = || b.download(&b.sum(&x).unwrap()).unwrap();
                sums.push(std::thread::scope(|s| s.spawn(sum).join().unwrap()));
                model.logits(&b, plan)
            };
            b.download(&b.replay(&key, &plan, &mut f).unwrap()).unwrap();
        }
        // Asked in the first run and in the record only.
        assert_eq!(sums, [[6.0], [6.0]]);
        assert_eq!(b.graphs().replayed, 4);
    });
}

#[test]
fn what_is_filled_up() {
    on_device(test_name!(), || {
        let b = CudaBackend::new().unwrap();
        let batch = |n: u32, slots: [u32; 2]| {
            let mut batch = Model::batch(&vec![1; n as usize], 5);
            batch.spans.iter_mut().for_each(|span| span.slots = slots);
            batch
        };
        let sizes = |b: &CudaBackend, batch: Batch| {
            let filled = b.bucket(batch);
            (filled.tokens.len(), filled.outputs.len())
        };
        for (n, rows) in [(1, 1), (2, 4), (4, 4), (5, 8), (9, 16), (33, 64), (65, 65)] {
            assert_eq!(sizes(&b, batch(n, [0; 2])), (rows, rows), "{n} rows");
        }
        let mut few = batch(6, [0; 2]);
        few.outputs.truncate(2);
        assert_eq!(sizes(&b, few), (8, 4));
        let mut none = batch(3, [0; 2]);
        none.outputs.clear();
        assert_eq!(sizes(&b, none), (4, 0));
        // With states, in prompts, where blocks are copied, without records, and where cuBLAS would multiply.
        assert_eq!(sizes(&b, batch(3, [0, 1])), (3, 3));
        let mut prompt = batch(2, [0; 2]);
        prompt.push(&[1, 2], 0, vec![BlockTable::default()], [0; 2]);
        assert_eq!(sizes(&b, prompt), (4, 2));
        let mut copies = batch(3, [0; 2]);
        copies.copies.push(BlockCopy { group: 0, from: 1, to: 2 });
        assert_eq!(sizes(&b, copies), (3, 3));
        for other in [
            CudaBackend::builder().graphs(false),
            CudaBackend::builder().compute(Compute::Bf16).cublas_from(4),
        ] {
            let b = other.clone().build().unwrap();
            assert_eq!(sizes(&b, batch(3, [0; 2])), (3, 3), "{other:?}");
        }
        // Once there are experts.
        let expert = HostWeight::new("w", [2, 1, 4], &F32, vec![0; 32].into()).unwrap();
        b.upload_weight(&expert).unwrap();
        assert_eq!(sizes(&b, batch(3, [0; 2])), (3, 3));
    });
}
