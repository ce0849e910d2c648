//! The suite every backend must pass: on a GPU if there is one, else under the emulator, with each generation of NVRTC.
//!
//! In single precision it runs once: half the cases of each operator with one of them, and a quarter with each of the others (formats of few bits by
//! thirds, each whole with one); where a compiler is excused, its part is not run. As programs open
//! models, it runs in sevenths: each kind of device takes one, and each compiler makes two or three of them; there every tensor is an allocation of
//! its own, so that the emulator sees where it ends. All of both, on all devices, with all compilers that know the device, is
//! `-- --ignored --nocapture every_device`, which takes a core an hour and says before each where it is.
//!
//! `OGIVE_CUDA_FILTER=linear/,attend/` runs only cases whose names contain one of these, and `OGIVE_CUDA_PAIRS=sm_75/12,sm_90/12` of the
//! pairs only these. For processes beside each other `OGIVE_CUDA_SHARD=2/16` runs every sixteenth case from the third on. A device that failed
//! in the middle of a kernel computes nothing more for its process: the suite says after which case, and with `OGIVE_CUDA_AFTER=CASE`
//! another process goes on behind it.
#![allow(clippy::print_stdout)]

mod common;

use ogive_backend::{Backend, tensor::FEW_BITS};
use ogive_conformance::{Case, Options, Status, cases};
use ogive_cuda::{Activations, Builder, Compute, CudaBackend};
use ptx_emulator_launcher::{Nvrtc, test, test_name};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

/// What a variable lists between commas.
fn listed(variable: &str) -> Vec<String> {
    let list = std::env::var(variable).unwrap_or_default();
    list.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Multiplications of the largest product of many rows that the emulator makes: it reaches all ways that there are for many rows.
const LARGEST: usize = 7_000_000;

fn options() -> Options {
    let options = listed("OGIVE_CUDA_FILTER").into_iter().fold(Options::new(), Options::filter);
    if test::case().is_some() { options.largest(LARGEST) } else { options }
}

/// Which formats of few bits the cases have: all, or every third from this one on. They are one source but for how a block is read, and that is
/// tested of each, to the bit, where weights are decoded and where they are multiplied in integers.
#[derive(Clone, Copy)]
enum Few {
    All,
    Third(usize),
}

impl Few {
    fn of(self, mut options: Options) -> Options {
        let mut number = 0;
        options.formats.retain(|format| {
            let is_few = FEW_BITS.contains(format);
            number += usize::from(is_few);
            !is_few || matches!(self, Self::All) || matches!(self, Self::Third(first) if number % 3 == first)
        });
        options
    }
}

/// Which cases of each operator are run: all, or one of so many from this one on, and the last of those that have no more; and all those of formats of
/// few bits, which are not in the options of all compilers.
#[derive(Clone, Copy)]
enum Of {
    All,
    One { of: usize, from: usize },
}

impl Of {
    fn choose<'a>(self, all: &'a [Case]) -> Vec<&'a Case> {
        // Behind the others, whose numbers are so the same whichever few there are.
        let is_few =
            |case: &&Case| case.name().split(['/', '-']).any(|word| FEW_BITS.iter().any(|f| f.name == word));
        let (few, rest): (Vec<&Case>, Vec<&Case>) = all.iter().partition(is_few);
        let Self::One { of, from } = self else { return rest.into_iter().chain(few).collect() };
        let mut operators: BTreeMap<&str, Vec<&'a Case>> = BTreeMap::new();
        for case in rest {
            operators.entry(case.name().split('/').next().unwrap_or_default()).or_default().push(case);
        }
        let some = |own: Vec<&'a Case>| {
            let skipped = from.min(own.len() - 1);
            own.into_iter().skip(skipped).step_by(of)
        };
        operators.into_values().flat_map(some).chain(few).collect()
    }
}

/// Every how many-th case is run, and from which on.
fn shard() -> [usize; 2] {
    let Ok(text) = std::env::var("OGIVE_CUDA_SHARD") else { return [0, 1] };
    let numbers = text.split_once('/').and_then(|(i, n)| Some([i.parse().ok()?, n.parse().ok()?]));
    let [i, n] = numbers.filter(|[i, n]| i < n).expect("OGIVE_CUDA_SHARD is I/N, with I below N");
    [i, n]
}

/// Whether an error says that this process has lost the device.
fn is_lost(error: &str) -> bool {
    error.contains("cannot use the device any more")
}

fn wanted(options: &Options, name: &str) -> bool {
    options.filter.is_empty() || options.filter.iter().any(|part| name.contains(part.as_str()))
}

/// Runs every case whose number is `part` modulo `parts`, each held to what `bounds` makes of the options.
fn run(
    builder: &Builder,
    [part, parts]: [usize; 2],
    (of, few): (Of, Few),
    bounds: fn(Options, &str) -> Options,
) {
    let backend = builder.clone().build().unwrap();
    println!("cuda: {}", backend.facts().description);
    let (backend, options): (Arc<dyn Backend>, _) = (Arc::new(backend), few.of(options()));
    let ([i, n], after) = (shard(), listed("OGIVE_CUDA_AFTER").pop());
    let all = cases(&options);
    let chosen = of.choose(&all);
    let mine: Vec<_> = chosen.into_iter().skip(part).step_by(parts).skip(i).step_by(n).collect();
    let begin = match after {
        Some(after) => {
            1 + mine.iter().position(|case| case.name() == after).expect("OGIVE_CUDA_AFTER is a case here")
        }
        None => 0,
    };
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for case in mine[begin..].iter().filter(|case| wanted(&options, case.name())) {
        // Said before it runs, and what failed at once: what a process that is ended has said is all that is known of it.
        print!("case {}: ", case.name());
        std::io::stdout().flush().unwrap();
        let outcome = case.run(&backend, &bounds(options.clone(), case.name()));
        let ms = outcome.time.as_millis();
        println!("{:?}, at worst {:.3} of what is allowed, {ms} ms", outcome.status, outcome.worst);
        match outcome.status {
            Status::Passed => passed += 1,
            Status::Skipped(_) => skipped += 1,
            other => {
                let error = format!("{}: {other:?}", outcome.name);
                let lost = is_lost(&error);
                failed.push(error);
                if lost {
                    println!("cuda: lost after {}", outcome.name);
                    break;
                }
            }
        }
    }
    println!("cuda: part {part}: {passed} cases passed, {} failed, {skipped} skipped", failed.len());
    assert!(failed.is_empty(), "the backend does not conform\n{}", failed.join("\n"));
}

/// In single precision.
fn conforms(part: [usize; 2], of: Of, few: Few) {
    run(&CudaBackend::builder(), part, (of, few), |options, _| options);
}

/// The suite is cut into so many parts, so that several cores share it and none takes long.
macro_rules! parts {
    ($($nvrtc:ident: $version:expr, $of:expr, $few:expr, $parts:expr, $($name:ident $part:literal),*;)*) => {
        $(mod $nvrtc {
            use super::*;

            $(#[test]
            fn $name() {
                common::on_device(test_name!(), $version, || conforms([$part, $parts], $of, $few));
            })*
        })*
    };
}

parts! {
    nvrtc_11: Nvrtc::V11, Of::One { of: 4, from: 1 }, Few::Third(0), 1, part_0 0;
    nvrtc_12: Nvrtc::V12, Of::One { of: 2, from: 0 }, Few::Third(1), 2, part_0 0, part_1 1;
    nvrtc_13: Nvrtc::V13, Of::One { of: 4, from: 3 }, Few::Third(2), 1, part_0 0;
}

/// What is computed in halves is off by what those are rounded to. The largest that was measured is 2.2e-3 with f16 and 1.5e-2 with bf16; the
/// suite has bounds of its own for products with packed and bf16 weights.
fn halves(options: Options, name: &str) -> Options {
    let (product, cached) = (name.contains("linear") || name.contains("moe"), name.starts_with("attend"));
    let of = |format: &str| name.split(['/', '-']).any(|word| word == format);
    match () {
        () if cached && of("bf16") => options.exact(4e-2),
        // Of long rows that were just computed and see each other, keys and values are halves.
        () if name.starts_with("attend/") || name.contains("bidirectional") => options.exact(6e-3),
        () if (cached || product) && of("f16") => options.exact(6e-3),
        () => options,
    }
}

/// As programs open models: products as weights are kept, few rows that meet packed ones in integers.
fn conforms_as_opened(part: [usize; 2], few: Few) {
    let builder = CudaBackend::builder().compute(Compute::Auto).activations(Activations::Int8);
    assert!(!builder.clone().build().unwrap().facts().exact);
    run(&builder, part, (Of::All, few), halves);
}

macro_rules! as_opened {
    ($($name:ident: $device:literal, $nvrtc:expr, $seventh:literal, $third:literal;)*) => {
        /// Every kind of device that the emulator has of those kernels have paths for.
        const DEVICES: &[&str] = &[$($device),*];

        mod as_opened {
            use super::*;

            $(#[test]
            fn $name() {
                let apart = [("OGIVE_CUDA_MEMORY", "apart")];
                common::on_kind_with(test_name!(), $nvrtc, Some($device), &apart, || conforms_as_opened([$seventh, 7], Few::Third($third)));
            })*
        }
    };
}

as_opened! {
    sm_35: "sm_35", Nvrtc::V11, 5, 0;
    sm_50: "sm_50", Nvrtc::V11, 0, 1;
    sm_61: "sm_61", Nvrtc::V12, 1, 2;
    sm_75: "sm_75", Nvrtc::V13, 2, 0;
    sm_80: "sm_80", Nvrtc::V13, 3, 1;
    sm_90: "sm_90", Nvrtc::V11, 4, 2;
    sm_120: "sm_120", Nvrtc::V12, 6, 0;
}

/// Whether this generation of NVRTC compiles for the device.
fn knows(nvrtc: Nvrtc, device: &str) -> bool {
    let oldest = match nvrtc {
        Nvrtc::V11 => 35,
        Nvrtc::V12 => 50,
        Nvrtc::V13 => 75,
    };
    device.trim_start_matches("sm_").parse::<u32>().is_ok_and(|device| device >= oldest)
}

#[test]
#[ignore = "takes a core an hour"]
fn every_device_with_every_compiler() {
    let all = || {
        conforms([0, 1], Of::All, Few::All);
        conforms_as_opened([0, 1], Few::All);
    };
    if test::case().is_some() || CudaBackend::is_available() {
        return all();
    }
    let pairs = Nvrtc::ALL.into_iter().flat_map(|nvrtc| DEVICES.iter().map(move |device| (nvrtc, device)));
    let wanted = listed("OGIVE_CUDA_PAIRS");
    let pairs: Vec<_> = pairs
        .filter(|(nvrtc, device)| knows(*nvrtc, device))
        .filter(|(nvrtc, device)| wanted.is_empty() || wanted.contains(&format!("{device}/{nvrtc}")))
        .collect();
    assert!(!pairs.is_empty(), "no pair is among {}", wanted.join(", "));
    for (number, (nvrtc, device)) in pairs.iter().enumerate() {
        println!("{} of {}: {device} with NVRTC {nvrtc}", number + 1, pairs.len());
        common::on_kind(test_name!(), *nvrtc, Some(device), all);
    }
}
