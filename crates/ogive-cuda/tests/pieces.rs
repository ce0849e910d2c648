//! Steps of a model that is split: each device records its piece and replays it, to the bit, with one wait for what goes on to the next.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod common;
#[path = "common/layers.rs"]
mod layers;

use layers::{DIM, LAYERS, Model};
use ogive_backend::tensor::{F32, Result};
use ogive_backend::{Backend, Split};
use ogive_conformance::{Case, Options, Oracle, Status, cases};
use ogive_cuda::{CudaBackend, GraphCounts};
use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn on_device(name: &str, body: impl FnOnce()) {
    common::on_kind(name, Nvrtc::V12, Some("sm_80,sm_80"), body);
}

fn cuda(graphs: bool) -> Arc<CudaBackend> {
    Arc::new(CudaBackend::builder().graphs(graphs).build().unwrap())
}

/// On a second device, where there is one. What the driver copies to it is compared with what goes through the host.
fn second(graphs: bool, copies: bool) -> Arc<CudaBackend> {
    let number = CudaBackend::devices().unwrap().len().min(2) - 1;
    Arc::new(CudaBackend::builder().device(number).graphs(graphs).peer_copies(copies).build().unwrap())
}

/// Where layers are, and the table of tokens.
type Homes = ([usize; LAYERS], usize);

/// The host before the device, with the table on either; devices one after the other; and turns.
const HOMES: [Homes; 4] = [([0, 1, 1], 0), ([0, 0, 1], 1), ([0, 1, 0], 0), ([1, 1, 1], 1)];

fn split(parts: [Arc<dyn Backend>; 2], (homes, table): Homes) -> Split {
    let place = move |name: &str| if name.contains("embed") { table } else { 1 };
    Split::new(parts.into(), homes.into(), place).unwrap()
}

fn bits(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

/// So many steps of `rows` sequences each, from an empty cache.
fn steps(b: &dyn Backend, model: &Model, rows: u32, count: usize) -> Result<Vec<Vec<u32>>> {
    let tokens =
        |past: usize| (0..rows).map(|i| (past as u32 * 13 + i * 29) % DIM as u32).collect::<Vec<_>>();
    let step = |past| b.download(&model.replayed(b, 1, Model::batch(&tokens(past), past))?).map(bits);
    (0..count).map(step).collect()
}

/// The same steps with and without graphs and copies by the driver, and step by step without `replay`; what was counted on the devices.
fn same_bits(first: &dyn Fn(bool) -> (Arc<dyn Backend>, Option<Arc<CudaBackend>>), homes: Homes) {
    let run = |graphs: bool| {
        let ((first, counted), second) = (first(graphs), second(graphs, graphs));
        let b = split([first, Arc::clone(&second) as Arc<dyn Backend>], homes);
        let model = Model::new(&b).unwrap();
        let all: Vec<_> = [1, 3, 1].into_iter().map(|rows| steps(&b, &model, rows, 24).unwrap()).collect();
        let alone = |past: usize| {
            let plan = b.plan(Model::batch(&[past as u32 * 13 % DIM as u32], past)).unwrap();
            bits(b.download(&model.logits(&b, &plan).unwrap()).unwrap())
        };
        let eager: Vec<_> = (0..24).map(alone).collect();
        assert_eq!(all[2], eager, "{homes:?}");
        let counts: Vec<GraphCounts> = counted.iter().chain([&second]).map(|b| b.graphs()).collect();
        (all, counts)
    };
    let ((with, counts), (without, none)) = (run(true), run(false));
    println!("cuda: {homes:?}: {counts:?}");
    assert_eq!(with, without, "{homes:?}");
    assert!(none.iter().all(|counts| counts.replayed == 0));
    // 72 steps. The first of each number of rows is run as it is, to learn it. Of those that come later each number's first is run, its
    // second recorded.
    for counts in counts {
        let pieces = counts.recorded / 2;
        let want = [2 * pieces, 2 * pieces, 68 * pieces];
        assert!(pieces > 0, "{homes:?}: {counts:?}");
        assert_eq!([counts.recorded, counts.eager, counts.replayed], want, "{homes:?}: {counts:?}");
    }
}

#[test]
fn the_same_bits_as_without_graphs_beside_the_host() {
    on_device(test_name!(), || {
        HOMES.into_iter().for_each(|homes| same_bits(&|_| (Arc::new(Oracle), None), homes));
    });
}

#[test]
fn the_same_bits_as_without_graphs_over_two_devices() {
    on_device(test_name!(), || {
        let part = |part: Arc<CudaBackend>| (Arc::clone(&part) as Arc<dyn Backend>, Some(part));
        HOMES[..3].iter().for_each(|homes| same_bits(&|graphs| part(cuda(graphs)), *homes));
        // Two backends of one device share a context.
        same_bits(&|graphs| part(second(graphs, graphs)), HOMES[2]);
    });
}

/// What the suite says of replayed steps holds where weights and layers are scattered over two parts.
#[test]
fn scattered_over_two_parts_replayed_steps_conform() {
    on_device(test_name!(), || {
        let options = Options::new().formats(vec![&F32]);
        for homes in [vec![0, 1], vec![1, 0, 1]] {
            for first in [Arc::new(Oracle) as Arc<dyn Backend>, second(true, true)] {
                let turn = AtomicUsize::new(0);
                let scattered = move |_: &str| turn.fetch_add(1, Relaxed) % 2;
                let b = Split::new(vec![first, cuda(true)], homes.clone(), scattered).unwrap();
                let b: Arc<dyn Backend> = Arc::new(b);
                let names = |case: &&Case| case.name().starts_with("replay/") || case.name() == "bring";
                let cases = cases(&options);
                let outcomes = cases.iter().filter(names).map(|case| case.run(&b, &options));
                let wrong: Vec<_> =
                    outcomes.filter(|found| !matches!(found.status, Status::Passed)).collect();
                assert!(wrong.is_empty(), "{wrong:?}");
                assert_eq!(cases.iter().filter(names).count(), 7);
            }
        }
    });
}

/// No step takes more than the one before, whatever it goes over; and what a model took is given back with it.
#[test]
fn steps_that_come_again_take_nothing_more() {
    on_device(test_name!(), || {
        let parts = [cuda(true), second(true, true)];
        let b = split([0, 1].map(|i| Arc::clone(&parts[i]) as Arc<dyn Backend>), HOMES[1]);
        let model = Model::new(&b).unwrap();
        let used = || [0, 1].map(|i| parts[i].memory_used());
        let mut seen = Vec::new();
        for past in 16..32 {
            let y = model.replayed(&b, 1, Model::batch(&[past as u32], past)).unwrap();
            b.argmax(&y).unwrap();
            drop(y);
            seen.push(used());
        }
        // Learned, run, recorded; the first result of a graph is lent by it.
        assert!(seen[3..].iter().all(|used| *used == seen[3]), "{seen:?}");
        assert!(parts.iter().all(|b| b.graphs().replayed >= 14), "{:?}", parts[0].graphs());
        // Other numbers of rows, and contexts, share what graphs keep but for their own sizes.
        let all = |rows| steps(&b, &model, rows, 32).unwrap();
        let first: Vec<_> = (1..4).map(all).collect();
        let before = used();
        assert_eq!((1..4).map(all).collect::<Vec<_>>(), first);
        assert_eq!(used(), before);
        drop(model);
        parts.iter().for_each(|b| b.drop_graphs());
        // A place for each number of rows is left to what goes from part to part.
        assert!(used().iter().all(|(used, _)| *used <= 3 * 2 * 1024), "{:?}", used());
        drop(b);
        // The frequencies of positions stay until others come.
        assert!(used().iter().all(|(used, _)| *used <= 256), "{:?}", used());
    });
}

/// A step that is wrong says what is wrong, and the next is replayed.
#[test]
fn wrong_steps_are_refused() {
    on_device(test_name!(), || {
        let run = |graphs| {
            let second = cuda(graphs);
            let b = split([Arc::new(Oracle), Arc::clone(&second) as Arc<dyn Backend>], HOMES[0]);
            let model = Model::new(&b).unwrap();
            let step = |token, past| {
                let y = model.replayed(&b, 1, Model::batch(&[token], past))?;
                b.download(&y).map(bits)
            };
            let mut seen: Vec<_> = (8..13).map(|past| step(past as u32, past).unwrap()).collect();
            let replayed = second.graphs().replayed;
            let e = step(DIM as u32, 13).unwrap_err();
            assert!(e.to_string().contains("outside"), "{e}");
            let mut batch = Model::batch(&[1], 13);
            batch.spans[0].tables[0].blocks.truncate(1);
            let e = model.replayed(&b, 1, batch).unwrap_err();
            assert!(e.to_string().contains("block"), "{e}");
            // That costs nothing: the next is replayed.
            seen.push(step(13, 13).unwrap());
            assert!(!graphs || second.graphs().replayed == replayed + 1, "{:?}", second.graphs());
            seen
        };
        assert_eq!(run(true), run(false));
    });
}

/// Two parts, of which CUDA's record steps or do not.
type Parts<'p> = &'p dyn Fn(bool) -> [Arc<dyn Backend>; 2];

/// The driver's calls of a step that came before, over these parts, which the emulator lists: `None` where there is none. A GPU, if there is
/// one, computes such steps with and without graphs, to the same bits.
fn calls(name: &str, parts: Parts<'_>, homes: Homes) -> Option<Vec<String>> {
    if test::case().is_some() {
        let b = split(parts(true), homes);
        let model = Model::new(&b).unwrap();
        let step = |past: usize| {
            let y = model.replayed(&b, 1, Model::batch(&[past as u32], past)).unwrap();
            b.argmax(&y).unwrap()
        };
        let warm = (8..12).map(step).last();
        eprintln!("mark: begin");
        let token = step(12);
        eprintln!("mark: end");
        println!("tokens {warm:?} and {token:?}");
        return None;
    }
    if CudaBackend::is_available() {
        println!();
        let run = |graphs| {
            let b = split(parts(graphs), homes);
            steps(&b, &Model::new(&b).unwrap(), 1, 12).unwrap()
        };
        assert_eq!(run(true), run(false));
        println!("cuda: the same bits as without graphs");
    }
    let launcher = Launcher::new()
        .set("PTX_EMU_TRACE", "1")
        .set("PTX_EMU_DEVICES", "sm_80,sm_80")
        .set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    let report = test::run(name, "trace", &launcher)?.ok();
    let after = report.stderr.lines().skip_while(|line| !line.contains("mark: begin")).skip(1);
    Some(after.take_while(|line| !line.contains("mark: end")).map(str::to_owned).collect())
}

/// How often each of these calls was made, and that no dear one was.
fn count(lines: &[String]) -> [usize; 8] {
    let calls = |call: &&str| lines.iter().filter(|line| line.contains(*call)).count();
    let nothing = ["cuMemAlloc", "cuMemHostAlloc", "cuModule", "cuEventSynchronize", "cuStreamBeginCapture"];
    assert!(nothing.iter().all(|call| calls(call) == 0), "{}", lines.join("\n"));
    let all = [
        "cuMemcpyHtoDAsync",
        "cuGraphLaunch",
        "cuLaunchKernel",
        "cuMemcpyDtoH",
        "Synchronize",
        "cuMemcpyDtoD",
        "cuMemcpyPeer",
        "cuStreamWaitEvent",
    ];
    println!("cuda: a step over two parts: {all:?}: {:?}", all.map(|call| calls(&call)));
    all.map(|call| calls(&call))
}

/// The plan and what the host gives go up, the piece is a launch, the choice another; one wait, for the token.
#[test]
fn beside_the_host_a_step_is_one_launch_and_one_wait() {
    let Some(lines) = calls(test_name!(), &|on| [Arc::new(Oracle), cuda(on)], HOMES[0]) else { return };
    assert_eq!(count(&lines), [2, 1, 1, 1, 1, 0, 0, 0], "{}", lines.join("\n"));
}

/// With the table of tokens on the device: its row comes down first, in a piece of its own, with a wait.
#[test]
fn a_table_behind_the_host_is_a_piece_of_its_own() {
    let Some(lines) = calls(test_name!(), &|on| [Arc::new(Oracle), cuda(on)], HOMES[1]) else { return };
    assert_eq!(count(&lines), [2, 2, 1, 2, 2, 0, 0, 0], "{}", lines.join("\n"));
}

/// Two plans go up; a launch for each device, and between them a copy that the devices order among themselves: one wait, for the token.
#[test]
fn over_two_devices_a_step_is_a_launch_each_and_one_wait() {
    let parts = |on| [cuda(on) as Arc<dyn Backend>, second(on, true)];
    let Some(lines) = calls(test_name!(), &parts, HOMES[0]) else { return };
    assert_eq!(count(&lines), [2, 2, 1, 1, 1, 0, 1, 2], "{}", lines.join("\n"));
}

/// A token's row goes to the first device and comes back behind its layers: a copy for each crossing, and still one wait.
#[test]
fn every_crossing_is_a_copy() {
    let parts = |on| [cuda(on) as Arc<dyn Backend>, second(on, true)];
    let Some(lines) = calls(test_name!(), &parts, HOMES[1]) else { return };
    assert_eq!(count(&lines), [2, 3, 1, 1, 1, 0, 2, 4], "{}", lines.join("\n"));
}

/// Between two backends of one device it is a copy within its memory.
#[test]
fn over_two_backends_of_a_device_it_is_a_copy_there() {
    let parts = |on| [cuda(on) as Arc<dyn Backend>, cuda(on)];
    let Some(lines) = calls(test_name!(), &parts, HOMES[0]) else { return };
    assert_eq!(count(&lines), [2, 2, 1, 1, 1, 1, 0, 2], "{}", lines.join("\n"));
}

/// Through the host, what the first device gives comes down, with a wait, and goes up.
#[test]
fn without_copies_by_the_driver_there_is_a_wait_between() {
    let parts = |on| [cuda(on) as Arc<dyn Backend>, second(on, false)];
    let Some(lines) = calls(test_name!(), &parts, HOMES[0]) else { return };
    assert_eq!(count(&lines), [3, 2, 1, 2, 2, 0, 0, 0], "{}", lines.join("\n"));
}
