//! What goes from one device to another: the same bits by the driver and through the host, and an error where a device fails.
//!
//! Under the emulator, which has two devices on any machine and fails on demand; and what needs neither, on two GPUs of this machine too, if
//! it has as many.
#![allow(clippy::print_stdout)]

#[path = "common/layers.rs"]
mod layers;

use layers::{DIM, Model};
use ogive_backend::tensor;
use ogive_backend::{Activation, Backend, Split};
use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Launcher, test, test_name};
use std::sync::Arc;
use std::time::Duration;

const STEPS: usize = 8;
/// What crosses in [`work`]: two values in the step that is learned, one tensor in each that comes after.
const COPIES: usize = STEPS + 1;

/// Steps of a model over two devices, learned, recorded and replayed; their logits.
fn work(parts: [Arc<CudaBackend>; 2]) -> tensor::Result<Vec<u32>> {
    let parts = parts.into_iter().map(|part| part as Arc<dyn Backend>).collect();
    let b = Split::new(parts, vec![0, 0, 1], |name| usize::from(!name.contains("embed")))?;
    let model = Model::new(&b)?;
    let mut all = Vec::new();
    for past in 16..16 + STEPS {
        let y = model.replayed(&b, 1, Model::batch(&[(past * 13 % DIM) as u32], past))?;
        all.extend(b.download(&y)?.into_iter().map(f32::to_bits));
    }
    Ok(all)
}

/// The first two devices, between which the driver copies or the host.
fn two(copies: bool) -> Result<[Arc<CudaBackend>; 2], String> {
    let part = |number| CudaBackend::builder().device(number).peer_copies(copies).build().map(Arc::new);
    part(0).and_then(|a| Ok([a, part(1)?])).map_err(|e| e.to_string())
}

/// Runs `body` on two GPUs of this machine, if it has any; says so where it has one.
fn on_gpus(name: &str, body: impl FnOnce()) {
    if !CudaBackend::is_available() {
        return;
    }
    println!();
    match CudaBackend::devices().map_or(0, |found| found.len()) {
        0 | 1 => println!("skipped: {name}: it wants two GPUs, and there is one"),
        _ => body(),
    }
}

/// In the process of a case: works, and says how it ended.
fn case(name: &str) {
    println!();
    match two(name != "host").and_then(|parts| work(parts).map_err(|e| e.to_string())) {
        Ok(values) => println!("values: {values:?}"),
        Err(e) => println!("error: {e}"),
    }
}

fn launcher(settings: &[(&str, &str)]) -> Launcher {
    let launcher = Launcher::new()
        .set("PTX_EMU_DEVICES", "sm_80,sm_80")
        .set("PTX_EMU_CHECK", "1")
        .set("PTX_EMU_TRACE", "1")
        .set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"))
        .patience(Duration::from_secs(600));
    settings.iter().fold(launcher, |launcher, (name, value)| launcher.set(*name, *value))
}

/// How a case ended: its values or its error, and how often a call was made.
struct Ended(test::Report);

impl Ended {
    fn values(&self) -> Option<&str> {
        self.0.values("values").next()
    }

    fn error(&self) -> Option<&str> {
        self.0.values("error").next()
    }

    fn calls(&self, call: &str) -> usize {
        self.0.stderr.lines().filter(|line| line.contains(call)).count()
    }
}

/// Runs a case; `None` where there is no emulator.
fn run(name: &str, case: &str, launcher: &Launcher) -> Option<Ended> {
    test::run(name, case, launcher).map(|report| Ended(report.ok()))
}

#[test]
fn the_same_bits_however_they_cross() {
    let name = test_name!();
    if let Some(name) = test::case() {
        return case(&name);
    }
    on_gpus(name, || {
        let [direct, host] = [true, false].map(|copies| work(two(copies).unwrap()).unwrap());
        assert_eq!(direct, host);
        println!("cuda: the same {} values by the driver and through the host", host.len());
    });
    let Some(host) = run(name, "host", &launcher(&[])) else { return };
    assert!(host.values().is_some(), "{}", host.0.stdout);
    assert_eq!([host.calls("cuMemcpyPeerAsync"), host.calls("cuStreamWaitEvent")], [0, 0]);
    // Copies that the driver made or was asked for, and how often one device was given access to another.
    for (case, settings, peers, access) in [
        ("direct", [("PTX_EMU_CHECK", "races")], COPIES, 2),
        ("no access", [("PTX_EMU_PEERS", "0")], COPIES, 0),
        ("first refused", [("PTX_EMU_FAULT", "peer:1:801")], 1, 2),
        ("fifth refused", [("PTX_EMU_FAULT", "peer:5:801")], 5, 2),
    ] {
        let Some(ended) = run(name, case, &launcher(&settings)) else { return };
        assert_eq!(ended.values(), host.values(), "{case}: {:?}", ended.error());
        let seen = [ended.calls("cuMemcpyPeerAsync"), ended.calls("cuCtxEnablePeerAccess")];
        assert_eq!(seen, [peers, access], "{case}");
        assert_eq!(ended.calls("cuEventSynchronize"), host.calls("cuEventSynchronize"), "{case}");
    }
}

/// Makes a function local to a shared library: it is there, but no program finds it.
fn hide(library: &mut [u8], symbol: &str) {
    let number = |bytes: &[u8], at: usize, len: usize| {
        bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (table, size, count) = (number(library, 0x28, 8), number(library, 0x3a, 2), number(library, 0x3c, 2));
    let section = |i: usize| table + i * size;
    let is_symbols = |section: &usize| number(library, section + 4, 4) == 11; // SHT_DYNSYM
    let symbols = (0..count).map(section).find(is_symbols).unwrap();
    let [start, len] = [0x18, 0x20].map(|at| number(library, symbols + at, 8));
    let names = number(library, section(number(library, symbols + 0x28, 4)) + 0x18, 8);
    let name = format!("{symbol}\0").into_bytes();
    let named = |at: &usize| library[names + number(library, *at, 4)..].starts_with(&name);
    let at = (start..start + len).step_by(24).find(named).unwrap();
    library[at + 4] &= 0xf; // STB_LOCAL
}

/// A driver without any one of the functions: what crosses goes through the host.
#[test]
fn a_driver_that_lacks_a_function_needs_none() {
    let name = test_name!();
    if let Some(name) = test::case() {
        return case(&name);
    }
    let Some(host) = run(name, "host", &launcher(&[])) else { return };
    let all = launcher(&[]).environment(&|_| {}).unwrap();
    let library = all.iter().find(|(name, _)| *name == ptx_emulator_launcher::LIBRARY).unwrap();
    let bytes = std::fs::read(&library.1).unwrap();
    for symbol in ["cuMemcpyPeerAsync", "cuStreamWaitEvent"] {
        let mut old = bytes.clone();
        hide(&mut old, symbol);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libptx_emulator.so");
        std::fs::write(&file, old).unwrap();
        let Some(ended) = run(name, symbol, &launcher(&[]).library(&file)) else { return };
        assert_eq!(ended.values(), host.values(), "{symbol}: {:?}", ended.error());
        assert_eq!(ended.calls("cuMemcpyPeerAsync"), 0, "{symbol}");
    }
}

/// Whatever fails on either device, a step ends in an error and never in values that are not its own: nobody waits for the first device.
#[test]
fn a_device_that_fails_is_heard_behind_the_other() {
    let name = test_name!();
    if let Some(name) = test::case() {
        return case(&name);
    }
    let Some(host) = run(name, "host", &launcher(&[])) else { return };
    for (fault, step) in [("peer:N", 1), ("launch:N", 9), ("memcpy:N", 7)] {
        let (mut at, mut met) = (1, 0);
        loop {
            let fault = fault.replace('N', &at.to_string());
            let Some(ended) = run(name, &fault, &launcher(&[("PTX_EMU_FAULT", &fault)])) else { return };
            let Some(error) = ended.error() else {
                assert_eq!(ended.values(), host.values(), "{fault}");
                break;
            };
            assert!(error.contains("CUDA driver says"), "{fault}: {error}");
            (at, met) = (at + step, met + 1);
            assert!(met < 100, "{fault} never ends");
        }
        println!("cuda: {fault}: met at {met} places");
        assert!(met > 0, "{fault} was never met");
    }
}

/// Brings tensors from one device to another and back, each from memory that the next one takes.
fn copied_in_time() {
    let [a, b] = two(true).unwrap();
    let values = |i: usize| (0..600).map(|j| (i * 600 + j) as f32).collect::<Vec<_>>();
    let bring = |i: usize| {
        let x = a.upload(&values(i), [600].into()).unwrap();
        b.bring(&a.add(x, &a.upload(&[1.0; 600], [600].into()).unwrap()).unwrap(), &*a, None).unwrap()
    };
    let there: Vec<_> = (0..12).map(bring).collect();
    // Values that came back are the other's to wait for, too.
    let back: Vec<_> = there.iter().map(|x| a.bring(x, &*b, None).unwrap()).collect();
    for (i, (there, back)) in there.iter().zip(&back).enumerate() {
        let wanted: Vec<f32> = values(i).iter().map(|x| x + 1.0).collect();
        assert_eq!(a.download(back).unwrap(), wanted, "{i}");
        assert_eq!(b.download(there).unwrap(), wanted, "{i}");
    }
    assert!(a.memory_used().1 < 20 * 2560, "memory is used again: {:?}", a.memory_used());
    println!("cuda: {} tensors there and back", there.len());
}

/// The first device goes on at once, in the memory that is copied; nobody waits before the end.
#[test]
fn memory_is_not_used_again_before_it_was_copied() {
    let name = test_name!();
    if test::case().is_some() {
        return copied_in_time();
    }
    on_gpus(name, copied_in_time);
    for schedule in ["adversarial", "lazy", "random"] {
        let settings = [("PTX_EMU_CHECK", "races"), ("PTX_EMU_SCHEDULE", schedule)];
        if run(name, schedule, &launcher(&settings)).is_none() {
            return;
        }
    }
}

/// What fails on the first of three devices is heard from the third.
#[test]
fn a_failure_is_heard_through_another_device() {
    let name = test_name!();
    if test::case().is_some() {
        println!();
        let [a, b, c] = [0, 1, 2].map(|number| CudaBackend::builder().device(number).build().unwrap());
        let x = a.upload(&[1.0; 64], [64].into()).unwrap();
        let y = a.activate(x, Activation::Exp).and_then(|y| b.bring(&y, &a, None));
        match y.and_then(|y| c.bring(&y, &b, None)).and_then(|y| c.download(&y)) {
            Ok(values) => println!("values: {values:?}"),
            Err(e) => println!("error: {e}"),
        }
        return;
    }
    let settings = [("PTX_EMU_DEVICES", "sm_80,sm_80,sm_80"), ("PTX_EMU_FAULT", "launch:1")];
    for schedule in ["adversarial", "lazy", "eager"] {
        let launcher = launcher(&settings).set("PTX_EMU_SCHEDULE", schedule);
        let Some(ended) = run(name, schedule, &launcher) else { return };
        assert!(ended.error().is_some_and(|e| e.contains("CUDA driver says")), "{:?}", ended.values());
    }
}
