//! What can go wrong in a driver ends in an error and not in a panic or a leak, and the backend goes on where it can.
//!
//! Under the emulator only: no GPU fails on demand. It counts the calls that a fault can hit, and the fault is tried at each of them.
//! `crates/ogive/tests/faults.rs` does the same with a whole model.
#![allow(clippy::print_stdout)]

use ogive_backend::tensor::{ErrorKind, F16, HostWeight, Q8_0, Result};
use ogive_backend::{
    Activation, AttnSpec, Backend, Batch, BlockTable, CacheSpec, Ids, LayerCache, Plan, Rope, StepKey,
};
use ogive_cuda::{Activations, Builder, Compute, CudaBackend};
use ptx_emulator_launcher::test::faults::{After, Faults, Walk, each, wider};
use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes that may stay: the frequencies of the last rotation.
const CONSTANTS: u64 = 256;

/// A weight, a cache, two steps through most kinds of calls, and three of one row that are recorded and replayed. Needs more than
/// one piece of memory, and contexts that are split.
fn work(b: &CudaBackend) -> Result<Vec<f32>> {
    let large = b.upload_weight(&HostWeight::from_f32("large", [1, 4096, 512], &vec![0.25; 4096 * 512])?)?;
    let mut seen = steps(b)?;
    let wide = b.upload(&[0.5; 512], [1, 512].into())?;
    seen.extend(b.download(&b.linear(&wide, &large)?)?);
    Ok(seen)
}

/// The same without the large weight: all in small pieces.
fn steps(b: &CudaBackend) -> Result<Vec<f32>> {
    let values: Vec<f32> = (0..64 * 64).map(|i| (i % 17) as f32 / 17.0 - 0.4).collect();
    let plain = HostWeight::from_f32("w", [1, 64, 64], &values)?;
    let mut packed = vec![0; 64 * Q8_0.row_bytes(64)];
    Q8_0.encode_row(&values, &mut packed)?;
    let (table, w) = (
        b.upload_weight(&plain)?,
        b.upload_weight(&HostWeight::new("q", [1, 64, 64], &Q8_0, packed.into())?)?,
    );
    let cache = b.new_cache(&CacheSpec::new(vec![LayerCache::full(64, 64)], 64, 8, 2).element(&F16))?;
    let (ones, rope) = (b.upload(&[1.0; 64], [64].into())?, Rope::new(vec![0.5; 16]));
    let mut seen = Vec::new();
    for (step, rows, past) in [(0, 260, 0), (1, 9, 260), (2, 1, 267), (3, 1, 268), (4, 1, 269)] {
        let mut batch = Batch::default();
        let tokens: Vec<u32> = (0..rows).map(|t| (t + step) % 64).collect();
        let blocks = (0..5).collect();
        batch.push(&tokens, past, vec![BlockTable { first: 0, blocks }], [0, 1]);
        batch.want_last();
        let (key, plan) = (StepKey::of(1, &batch), b.plan(batch)?);
        let mut run = |plan: &Plan| {
            let x = b.embed(&table, Ids::Tokens, plan)?;
            let normed = b.rms_norm(&x, &ones, 1e-5)?;
            let (q, spec) =
                (b.linear(&normed, &w)?.reshape([rows as usize, 2, 32])?, AttnSpec::causal(2, 2, 32));
            let y = b.rope_attend(0, q.clone(), q, &normed, &rope, &cache, &spec, plan)?;
            b.outputs(&b.add(x, &y)?, plan)
        };
        let x = match key {
            Some(key) => b.replay(&key, &plan, &mut run)?,
            None => run(&plan)?,
        };
        seen.extend(b.download(&x)?);
        seen.extend(b.best(&x, 3)?.into_iter().flatten().map(|(_, v)| v));
    }
    Ok(seen)
}

/// Steps of many rows by tensor cores, of few in integers: those take memory that others do not.
fn builder() -> Builder {
    CudaBackend::builder().compute(Compute::Bf16).activations(Activations::Int8)
}

/// In the process of a case: does the work twice, and says how it ended.
fn case() {
    let told = |e: &dyn std::fmt::Display| println!("error: {e}");
    // What failed once may work then.
    let built = (0..2).find_map(|_| builder().build().inspect_err(|e| told(e)).ok());
    let Some(backend) = built else { return };
    for _ in 0..2 {
        match work(&backend) {
            Ok(seen) => {
                println!("worked: {} values, {}", seen.len(), seen.iter().all(|v| v.is_finite()));
                println!("first: {:?}", &seen[..seen.len().min(64)]);
                let hash = |sum: u64, v: &f32| (sum ^ u64::from(v.to_bits())).wrapping_mul(0x0100_0000_01b3);
                println!("bits: {:016x}", seen.iter().fold(0xcbf2_9ce4_8422_2325, hash));
            }
            Err(e) => {
                told(&e);
                // Who does not read messages must know too.
                let said = e.to_string().contains("this process cannot use the device any more");
                assert_eq!(e.is_device_lost(), said, "{e}");
            }
        }
    }
    let counts = backend.graphs();
    println!("replayed: {}", counts.replayed);
    println!("cublas: {}", backend.cublas());
    backend.drop_graphs();
    let (used, _) = backend.memory_used();
    println!("held: {used}");
}

/// Nothing that failed holds memory once its work has ended.
fn holds_nothing(report: &test::Report) -> Result<(), String> {
    let held = report.values("held").map(|bytes| bytes.parse::<u64>().unwrap()).max().unwrap_or(0);
    if held <= CONSTANTS { Ok(()) } else { Err(format!("{held} bytes are held")) }
}

fn faults(name: &str, nvrtc: Nvrtc) -> Faults {
    let launcher = Launcher::new()
        .nvrtc(nvrtc)
        .set("PTX_EMU_CHECK", "1")
        .set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"))
        .patience(Duration::from_secs(300));
    Faults::new(name, "bits", launcher).also(holds_nothing)
}

/// Runs the case with this fault; `None` where there is no emulator. Nothing may leak.
fn with(name: &str, fault: &str) -> Option<test::Report> {
    faults(name, Nvrtc::V12).with(fault)
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
        println!();
        return case();
    }
    walks.iter().for_each(|walk| faults(name, nvrtc).take(walk));
}

/// One that fails is tried again, when the pool has given back what it can. Where the second one fails too, that is an error, or recorded
/// steps give up their memory.
#[test]
fn out_of_memory_at_any_allocation() {
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

#[test]
fn no_page_locked_memory() {
    let (counts, next, wanted) = (&["host_allocations"], each, &["page-locked memory", "ulimit -l"]);
    take(
        test_name!(),
        &[
            Walk { fault: "host-alloc:N", counts, next, after: After::WorksAgain, wanted },
            Walk { fault: "host-alloc:N+", counts, next, after: After::Fails, wanted },
        ],
    );
}

/// A kernel that fails takes its context along. A launch that the driver refuses leaves everything as it was.
#[test]
fn a_launch_fails() {
    let (counts, next) = (&["launches"], each);
    let refused = &["launching", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"];
    take(
        test_name!(),
        &[
            Walk { fault: "launch:N", counts, next, after: After::Fails, wanted: GONE },
            Walk { fault: "launch:N:701", counts, next, after: After::WorksAgain, wanted: refused },
        ],
    );
}

/// What the other compilers make fails no differently; one walk of each kind of error shows it.
#[test]
fn out_of_memory_with_nvrtc_11() {
    let (counts, next, after) = (&["allocations"], each, After::WorksAgain);
    let wanted = &["bytes of memory"];
    take_with(test_name!(), Nvrtc::V11, &[Walk { fault: "alloc:N,alloc:M", counts, next, after, wanted }]);
}

#[test]
fn out_of_memory_with_nvrtc_13() {
    let (counts, next, after) = (&["allocations"], each, After::Fails);
    let wanted = &["bytes of memory"];
    take_with(test_name!(), Nvrtc::V13, &[Walk { fault: "alloc:N+", counts, next, after, wanted }]);
}

/// The first is machine code, which the emulator never takes.
#[test]
fn a_module_is_refused() {
    let (counts, next) = (&["modules"], each);
    let wanted = &["loading", "CUDA_ERROR_FILE_NOT_FOUND (301)"];
    take(test_name!(), &[Walk { fault: "module:N:301", counts, next, after: After::WorksAgain, wanted }]);
}

/// Code lies in memory that the driver takes by itself. What lies idle is given back, and it is asked once more.
#[test]
fn no_memory_for_a_module() {
    let (counts, next) = (&["modules"], each);
    let wanted = &["loading", "CUDA_ERROR_OUT_OF_MEMORY (2)"];
    take(
        test_name!(),
        &[
            Walk { fault: "module:N:2", counts, next, after: After::Works, wanted },
            Walk { fault: "module:N:2,module:M:2", counts, next, after: After::WorksAgain, wanted },
        ],
    );
}

/// Whatever of a graph fails, the step is run without, and gives what it should.
#[test]
fn a_graph_fails() {
    let (counts, next, after) = (&["graph_launches", "graph_instantiations"], each, After::Works);
    take(
        test_name!(),
        // The last two: the driver has no memory for it, is asked once more, and other records give theirs.
        &["graph:N:1", "graph:N+:1", "graph:N:2", "graph:N:2,graph:M:2"].map(|fault| Walk {
            fault,
            counts,
            next,
            after,
            wanted: &[],
        }),
    );
    if test::case().is_some() {
        return;
    }
    for (fault, replayed) in [
        ("graph:1:1", "3"),
        ("graph:2:1", "3"),
        ("graph:3:1", "4"),
        ("graph:1+:1", "0"),
        ("graph:9:1", "4"),
        // Of memory, when it is made ready, and when it is launched.
        ("graph:1:2", "4"),
        ("graph:1:2,graph:2:2", "3"),
        ("graph:2:2", "4"),
        ("graph:3:2", "4"),
    ] {
        let Some(report) = with(test_name!(), fault) else { return };
        assert_eq!(report.values("replayed").next(), Some(replayed), "{fault}: {}", report.stdout);
    }
}

/// Whatever of cuBLAS fails, own kernels compute its products, in this step and in all that come.
#[test]
fn cublas_fails() {
    let name = "cublas_fails";
    if test::case().is_some() {
        println!();
        return case();
    }
    let mut own: Option<String> = None;
    for onwards in ["+", ""] {
        let mut met = 0;
        loop {
            let Some(report) = with(name, &format!("cublas:{}{onwards}", met + 1)) else { return };
            let worked: Vec<&str> = report.values("worked").collect();
            let fine = worked.len() == 2 && worked.iter().all(|w| w.ends_with("true"));
            assert!(fine && report.values("error").count() == 0, "{met}{onwards}: {}", report.stdout);
            let held = report.values("held").next().map(|held| held.parse::<u64>().unwrap());
            assert!(held.is_some_and(|held| held <= CONSTANTS), "{met}{onwards}: {}", report.stdout);
            let (state, values) = (report.values("cublas").next(), report.values("first").last());
            let failed = state.is_some_and(|state| state.contains("not used"));
            // The second run is without cuBLAS from its beginning on, unless nothing failed or another library was found.
            match (&own, values) {
                (Some(own), Some(values)) if failed => assert_eq!(own, values, "{met}{onwards}"),
                (None, Some(values)) => own = Some(values.to_owned()),
                _ => {}
            }
            if !failed && met > 20 {
                break;
            }
            met += 1;
            assert!(met < 200, "cuBLAS never works: {state:?}");
        }
        println!("cuda: cublas{onwards}: met at {met} places");
    }
    // Found under two names, each as the loader finds it and as a file, and each started once more when what lies idle was given back.
    for (failing, used) in [(4, true), (7, true), (8, false)] {
        let faults: Vec<String> = (1..=failing).map(|n| format!("cublas:{n}:3")).collect();
        let Some(report) = with(name, &faults.join(",")) else { return };
        let state = report.values("cublas").next().unwrap();
        assert_eq!(!state.contains("not used"), used, "{failing}: {state}");
    }
}

/// As launches.
#[test]
fn a_copy_fails() {
    let (counts, next) = (&["uploads", "downloads", "device_copies"], each);
    let refused = &["bytes", "CUDA_ERROR_INVALID_VALUE (1)"];
    take(
        test_name!(),
        &[
            Walk { fault: "memcpy:N", counts, next, after: After::Fails, wanted: GONE },
            Walk { fault: "memcpy:N:1", counts, next, after: After::WorksAgain, wanted: refused },
        ],
    );
}

/// Not at each of all calls, of which there are hundreds: that would take minutes.
#[test]
fn the_device_is_lost() {
    let (counts, next) = (&["calls"], wider);
    let wanted = &["CUDA_ERROR_UNKNOWN (999)"];
    take(test_name!(), &[Walk { fault: "lost:N", counts, next, after: After::FailsOrEnds, wanted }]);
}

/// The driver is asked for a few large pieces only, so the faults above strike few operators. Here the pool may have no more than one, and the
/// room that is left in it grows from try to try, so that each operator is once the one that finds none.
#[test]
fn out_of_memory_in_any_operator() {
    let name = test_name!();
    if test::case().is_none() {
        let Some(report) = with(name, "") else { return };
        report.stdout.lines().filter(|line| line.starts_with("cuda:")).for_each(|line| println!("{line}"));
        return;
    }
    println!();
    /// What small pieces are cut from.
    const SLAB: usize = 4 << 20;
    /// What small weights share.
    const PAGE: usize = 2 << 20;
    let (mut room, mut tries, mut places) = (8 << 10, 0, BTreeMap::<String, u32>::new());
    loop {
        // At first there is no page for weights either.
        let pages = if tries == 0 { 0 } else { PAGE };
        let b = builder().cublas(false).memory((SLAB + pages) as u64).build().unwrap();
        // Powers of two take no more than they are.
        let taken = SLAB - room;
        let sizes = (8..=20).rev().flat_map(|power| {
            let count = if power == 20 { taken >> 20 } else { taken >> power & 1 };
            vec![1 << power; count]
        });
        let zeros = |bytes: usize| b.upload(&vec![0.0; bytes / 4], [bytes / 4].into()).unwrap();
        let filler: Vec<_> = sizes.map(zeros).collect();
        assert_eq!(b.memory_used().0, taken as u64);
        let seen = steps(&b).map_err(|e| (matches!(e.kind(), ErrorKind::Memory { .. }), e.to_string()));
        b.drop_graphs();
        assert!(b.memory_used().0 <= taken as u64 + CONSTANTS, "{room}: {:?}", b.memory_used());
        let Err((is_memory, error)) = seen else { break };
        assert!(is_memory, "{room}: {error}");
        // What is given back can be had again.
        let size = filler.last().map_or(0, |x| x.shape().len() * 4);
        drop(filler);
        let y = b.activate(zeros(size), Activation::Exp).unwrap();
        assert!(b.download(&y).unwrap().iter().all(|v| *v == 1.0));
        *places.entry(error.split(':').next().unwrap_or_default().to_owned()).or_default() += 1;
        // Pieces are multiples of 256 bytes.
        (room, tries) = (room + 256.max(room / 64 / 256 * 256), tries + 1);
        assert!(room < SLAB, "{places:?}");
    }
    println!("cuda: out of memory {tries} times, in {places:?}");
    for operator in ["upload_weight", "new_cache", "plan", "embed", "rms_norm", "linear", "attend"] {
        assert!(places.keys().any(|place| place.contains(operator)), "{operator}: {places:?}");
    }
}

/// As on a GPU whose memory is the machine's, where the driver counts as used what holds files.
#[test]
#[cfg(target_os = "linux")]
fn what_holds_files_is_memory_of_the_machine() {
    let name = "what_holds_files_is_memory_of_the_machine";
    if test::case().is_some() {
        let b = CudaBackend::new().unwrap();
        // More than the driver says is free.
        let x = b.upload(&vec![0.0; 16 << 20], [16 << 20].into()).unwrap();
        drop(x);
        println!("\nlimit: {}\nleft: {}", b.facts().memory.unwrap(), b.memory_left().unwrap());
        return;
    }
    let Some(report) = with(name, "integrated:32M") else { return };
    for figure in ["limit", "left"] {
        let bytes: u64 = report.values(figure).next().unwrap().parse().unwrap();
        assert!((64 << 20..8 << 30).contains(&bytes), "{figure}: {bytes}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let name = "what_is_missing_is_said";
    if test::case().is_some() {
        println!("\navailable: {}", CudaBackend::is_available());
        return case();
    }
    for (fault, wanted) in [
        ("no-device", "device"),
        ("init:999", "999"),
        ("init:34", "LD_LIBRARY_PATH"),
        ("memory:1M", "memory"),
        // NVRTC 12.9 makes PTX that such a driver is too old for.
        ("driver:11080", "update the driver or install an older NVRTC"),
    ] {
        let Some(report) = with(name, fault) else { return };
        let error = report.values("error").next().unwrap_or_default().to_owned();
        assert!(error.contains(wanted), "{fault}: {}", report.stdout);
        let looks_so = fault.starts_with("memory") || fault.starts_with("driver");
        let expected = if looks_so { "true" } else { "false" };
        assert_eq!(report.values("available").next(), Some(expected), "{fault}");
    }
}
