//! A whole model on a driver that fails: loaded, a prompt read and tokens drawn, with a fault at every call it can hit or at some of them.
//! What can be done again is done again and gives the same tokens, the rest ends in an error that says why, and nothing leaks.
//!
//! Under the emulator only: no GPU fails on demand. `crates/ogive-cuda/tests/faults.rs` does the same with operators.
#![cfg(all(feature = "cuda", feature = "cpu"))]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ogive::engine::{Limits, Request};
use ogive::{Device, Options};
use ptx_emulator_launcher::test::faults::{After, Faults, Walk, each};
use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};
use std::collections::BTreeSet;
use std::error::Error as AnyError;
use std::time::Duration;

/// A step is tried so often before a sequence is given up.
const TRIES: usize = 3;

/// One of the repository's tiny models, opened as programs do: a prompt of two steps, then some that come again and are recorded.
/// Says which device it was, and gives the tokens. Every error of a step is told, and the step tried again.
fn answer(device: Device, told: &mut dyn FnMut(String)) -> Result<(String, Vec<u32>), Box<dyn AnyError>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/llama");
    let model = Options::new().device(device).context(40).step_tokens(16).open(path)?;
    let mut engine = model.engine(Limits::new(40).step_tokens(16))?;
    let prompt: Vec<u32> = (0..20).map(|i| 3 + i % 20).collect();
    let (mut tokens, mut failed) = (Vec::new(), 0);
    for event in engine.run(Request::new(prompt, 6))? {
        match event {
            Ok(event) => tokens.extend(event.token),
            Err(e) if failed + 1 == TRIES => return Err(e.into()),
            Err(e) => {
                failed += 1;
                told(e.to_string());
            }
        }
    }
    Ok((model.device().to_owned(), tokens))
}

/// In the process of a case: loads and asks twice, and says how it ended.
fn case(device: Device) {
    // The harness has begun a line.
    println!();
    for _ in 0..2 {
        match answer(device, &mut |error| println!("error: {error}")) {
            Ok((line, tokens)) => println!("worked: {tokens:?} {line}"),
            Err(e) => println!("error: {e}"),
        }
    }
}

/// At the calls of the first answer: the second is there to show that it comes.
fn faults(name: &str, nvrtc: Nvrtc) -> Faults {
    let launcher = Launcher::new()
        .nvrtc(nvrtc)
        .set("PTX_EMU_CHECK", "1")
        .set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"))
        .patience(Duration::from_secs(300));
    Faults::new(name, "worked", launcher).first()
}

/// Each of the first calls, then ever further apart: a model makes the same ones again and again. Operators, which make each once, have each fail
/// or every few (`wider`).
fn sparser(at: u64) -> u64 {
    at + 1 + at / 4
}

/// What is said where a context failed.
const GONE: &[&str] = &["CUDA_ERROR_LAUNCH_FAILED (719); this process cannot use the device any more"];

/// Takes the walks in the test `name`; in the process of a case, does its work.
fn take(name: &str, walks: &[Walk]) {
    take_with(name, Nvrtc::V12, walks);
}

/// The same with this compiler.
fn take_with(name: &str, nvrtc: Nvrtc, walks: &[Walk]) {
    if test::case().is_some() {
        return case(Device::Cuda(0));
    }
    walks.iter().for_each(|walk| faults(name, nvrtc).take(walk));
}

#[test]
fn out_of_memory() {
    let (counts, next, wanted) = (&["allocations"], each, &["bytes of memory"]);
    take(
        test_name!(),
        &[
            Walk { fault: "alloc:N", counts, next, after: After::Works, wanted },
            Walk { fault: "alloc:N,alloc:M", counts, next, after: After::WorksAgain, wanted },
            Walk { fault: "alloc:N+", counts, next, after: After::Fails, wanted },
        ],
    );
}

/// What would fit by the estimate is no reason to advise a smaller context.
#[test]
fn memory_that_is_free_and_not_given() {
    if test::case().is_some() {
        return case(Device::Cuda(0));
    }
    let launcher = Launcher::new().set("PTX_EMU_FAULT", "alloc:1+");
    let launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    let Some(report) = test::run(test_name!(), "none is given", &launcher) else { return };
    let report = report.ok();
    for error in report.values("error") {
        for words in [" (in all ", " MiB that were free; the driver did not give it: "] {
            assert!(error.contains(words), "no {words:?}: {error}");
        }
        assert!(!error.contains("would fit") && !error.contains("smaller"), "{error}");
    }
    assert_eq!(report.values("error").count(), 2, "{}", report.stdout);
}

#[test]
fn no_page_locked_memory() {
    let (counts, next, wanted) = (&["host_allocations"], each, &["page-locked memory"]);
    take(
        test_name!(),
        &[
            Walk { fault: "host-alloc:N", counts, next, after: After::WorksAgain, wanted },
            Walk { fault: "host-alloc:N+", counts, next, after: After::Fails, wanted },
        ],
    );
}

/// A kernel that fails takes its context along, wherever that is: ever further apart.
#[test]
fn a_kernel_fails() {
    let (counts, next, after) = (&["launches"], sparser, After::Fails);
    take(test_name!(), &[Walk { fault: "launch:N", counts, next, after, wanted: GONE }]);
}

/// A launch that the driver refuses leaves everything as it was. Operators are refused each of theirs, a model every eleventh of some 300.
#[test]
fn a_launch_is_refused() {
    let (counts, next, after) = (&["launches"], |at| at + 11, After::WorksAgain);
    let wanted = &["launching", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"];
    take(test_name!(), &[Walk { fault: "launch:N:701", counts, next, after, wanted }]);
}

#[test]
fn a_kernel_fails_by_nvrtc_11() {
    let (counts, next, after) = (&["launches"], |at| 2 * at + 1, After::Fails);
    take_with(test_name!(), Nvrtc::V11, &[Walk { fault: "launch:N", counts, next, after, wanted: GONE }]);
}

#[test]
fn a_launch_is_refused_by_nvrtc_13() {
    let (counts, next, after) = (&["launches"], |at| 2 * at + 1, After::WorksAgain);
    let wanted = &["launching", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"];
    take_with(test_name!(), Nvrtc::V13, &[Walk { fault: "launch:N:701", counts, next, after, wanted }]);
}

/// The first is machine code, which the emulator never takes.
#[test]
fn a_module_is_refused() {
    let (counts, next, after) = (&["modules"], each, After::WorksAgain);
    let wanted = &["loading", "CUDA_ERROR_FILE_NOT_FOUND (301)"];
    take(test_name!(), &[Walk { fault: "module:N:301", counts, next, after, wanted }]);
}

#[test]
fn a_graph_fails() {
    let (counts, next, after) = (&["graph_launches", "graph_instantiations"], each, After::Works);
    take(
        test_name!(),
        &["graph:N", "graph:N+"].map(|fault| Walk { fault, counts, next, after, wanted: &[] }),
    );
}

/// As launches: operators have each of theirs fail.
#[test]
fn a_copy_fails() {
    let counts = &["uploads", "downloads", "device_copies"];
    let refused = &["bytes", "CUDA_ERROR_INVALID_VALUE (1)"];
    take(
        test_name!(),
        &[
            Walk { fault: "memcpy:N", counts, next: sparser, after: After::Fails, wanted: GONE },
            Walk {
                fault: "memcpy:N:1",
                counts,
                next: |at| at + 3,
                after: After::WorksAgain,
                wanted: refused,
            },
        ],
    );
}

/// Not at each of all calls, of which there are hundreds: that would take minutes.
#[test]
fn the_device_is_lost() {
    let (counts, next) = (&["calls"], sparser);
    let wanted = &["CUDA_ERROR_UNKNOWN (999)"];
    take(test_name!(), &[Walk { fault: "lost:N", counts, next, after: After::FailsOrEnds, wanted }]);
}

/// Who lets Ogive choose gets the CPU where the device fails before it has the model, with the reason; later, an error.
#[test]
fn what_is_chosen_falls_back_to_the_cpu() {
    let name = test_name!();
    if test::case().is_some() {
        return case(Device::Auto);
    }
    let faults = faults(name, Nvrtc::V12);
    let Some(clean) = faults.with("") else { return };
    let (total, cuda) = (clean.counted(&["calls"]), clean.values("worked").next().unwrap().to_owned());
    assert!(cuda.contains("using CUDA"), "{cuda}");
    let (_, tokens) = answer(Device::Cpu, &mut |e| panic!("{e}")).unwrap();
    let cpu = format!("{tokens:?} CUDA not used: ");
    let mut all: Vec<String> =
        ["no-device", "init:999", "host-alloc:1+", "module:1+:301"].map(String::from).into();
    all.extend(
        std::iter::successors(Some(1), |at| Some(at + 1 + at / 2))
            .take_while(|at| *at <= total)
            .map(|at| format!("lost:{at}")),
    );
    let mut kinds = BTreeSet::new();
    for fault in all {
        let Some(report) = faults.with(&fault) else { return };
        let told = || format!("{fault}: {}", report.stdout);
        for given in report.values("worked") {
            let on_cpu = given.starts_with(&cpu);
            assert!(given == cuda || on_cpu && given.contains("; using the CPU, "), "{}", told());
            kinds.insert(if on_cpu { "on the CPU" } else { "on the device" });
        }
        for error in report.values("error") {
            assert!(error.contains("CUDA driver says"), "{}", told());
            kinds.insert("an error");
        }
    }
    println!("cuda: {kinds:?}");
    assert_eq!(kinds.len(), 3, "{kinds:?}");
}
