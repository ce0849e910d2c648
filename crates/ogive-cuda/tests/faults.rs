//! What can go wrong in a driver ends in an error and not in a panic or a leak, and the backend goes on where it can.
//!
//! Under the emulator only: no GPU fails on demand. Each fault is tried at the first call it can hit, then at the next, until the
//! work ends without having met it.
#![allow(clippy::print_stdout)]

use ogive_backend::tensor::{F16, HostWeight, Q8_0, Result};
use ogive_backend::{AttnSpec, Backend, Batch, BlockTable, CacheSpec, Ids, LayerCache, Plan, Rope, StepKey};
use ogive_cuda::{Activations, Compute, CudaBackend};
use ptx_emulator_launcher::{Error, Launcher, test};
use std::time::Duration;

/// Bytes that may stay: the frequencies of the last rotation.
const CONSTANTS: u64 = 256;

/// A weight, a cache, two steps through most kinds of calls, and three of one row that are recorded and replayed. Needs more than
/// one piece of memory, and contexts that are split.
fn work(b: &CudaBackend) -> Result<Vec<f32>> {
    let values: Vec<f32> = (0..64 * 64).map(|i| (i % 17) as f32 / 17.0 - 0.4).collect();
    let plain = HostWeight::from_f32("w", [1, 64, 64], &values)?;
    let mut packed = vec![0; 64 * Q8_0.row_bytes(64)];
    Q8_0.encode_row(&values, &mut packed)?;
    let (table, w) = (
        b.upload_weight(&plain)?,
        b.upload_weight(&HostWeight::new("q", [1, 64, 64], &Q8_0, packed.into())?)?,
    );
    let large = b.upload_weight(&HostWeight::from_f32("large", [1, 4096, 512], &vec![0.25; 4096 * 512])?)?;
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
    let wide = b.upload(&[0.5; 512], [1, 512].into())?;
    seen.extend(b.download(&b.linear(&wide, &large)?)?);
    Ok(seen)
}

/// In the process of a case: does the work twice, and says how it ended.
fn case() {
    let told = |e: &dyn std::fmt::Display| println!("error: {e}");
    // Steps of many rows by tensor cores, of few in integers: those take memory that others do not.
    let builder = CudaBackend::builder().compute(Compute::Bf16).activations(Activations::Int8);
    let backend = match builder.build() {
        Ok(backend) => backend,
        Err(e) => return told(&e),
    };
    for _ in 0..2 {
        match work(&backend) {
            Ok(seen) => {
                println!("worked: {} values, {}", seen.len(), seen.iter().all(|v| v.is_finite()));
                println!("first: {:?}", &seen[..seen.len().min(64)]);
            }
            Err(e) => told(&e),
        }
    }
    let counts = backend.graphs();
    println!("replayed: {}", counts.replayed);
    println!("cublas: {}", backend.cublas());
    backend.drop_graphs();
    let (used, _) = backend.memory_used();
    println!("held: {used}");
}

fn launcher() -> Launcher {
    Launcher::new()
        .set("PTX_EMU_CHECK", "1")
        .set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"))
        .patience(Duration::from_secs(300))
}

/// Runs the case with this fault; `None` where there is no emulator.
fn with(name: &str, fault: &str) -> Option<test::Report> {
    if let Err(e @ Error::NoLibrary { .. }) = launcher().environment(&|_| {}) {
        println!("skipped: {name}: {e}");
        return None;
    }
    let report = test::run(name, fault, &launcher().set("PTX_EMU_FAULT", fault))?.ok();
    // In a context that failed the driver refuses to free, and frees all with the context: no leak of ours.
    let sticky = ["launch", "memcpy", "lost"].iter().any(|kind| fault.starts_with(kind));
    for line in report.stderr.lines().filter(|_| !sticky) {
        assert!(!line.contains("leak"), "{fault}: {line}");
    }
    Some(report)
}

/// The fault at every place it can hit, at first one by one, then ever further apart. Every case must end in errors that name what
/// was being done, or must have worked.
fn everywhere(name: &str, fault: &str, wanted: &str) {
    if test::case().is_some() {
        println!();
        return case();
    }
    let (mut at, mut met) = (1, 0);
    loop {
        let Some(report) = with(name, &fault.replace('N', &at.to_string())) else { return };
        let errors: Vec<&str> = report.values("error").collect();
        let worked = report.values("worked").count();
        if errors.is_empty() {
            assert_eq!(worked, 2, "{fault} at {at}: {}", report.stdout);
            break;
        }
        met += 1;
        for error in &errors {
            assert!(error.contains(wanted), "{fault} at {at}: {error}");
        }
        // Nothing that failed holds memory once its work has ended.
        let held = report.values("held").map(|bytes| bytes.parse::<u64>().unwrap());
        assert!(held.max().unwrap_or(0) <= CONSTANTS, "{fault} at {at}: {}", report.stdout);
        at += 1 + at / 4;
        assert!(at < 2000, "{fault} never ends");
    }
    println!("cuda: {fault}: met at {met} places");
    assert!(met > 0, "{fault} was never met");
}

#[test]
fn out_of_memory_at_any_allocation() {
    everywhere("out_of_memory_at_any_allocation", "alloc:N+", "memory");
}

#[test]
fn one_failed_allocation_is_tried_again() {
    let name = "one_failed_allocation_is_tried_again";
    if test::case().is_some() {
        println!();
        return case();
    }
    if let Some(report) = with(name, "alloc:1") {
        assert_eq!(report.values("worked").count(), 2, "{}", report.stdout);
    }
}

#[test]
fn no_page_locked_memory() {
    everywhere("no_page_locked_memory", "host-alloc:N+", "page-locked memory");
}

#[test]
fn a_launch_fails() {
    everywhere("a_launch_fails", "launch:N", "CUDA driver says");
}

/// Whatever of a graph fails, the step is run without, and gives what it should.
#[test]
fn a_graph_fails() {
    let name = "a_graph_fails";
    if test::case().is_some() {
        println!();
        return case();
    }
    for (fault, replayed) in
        [("graph:1", "3"), ("graph:2", "3"), ("graph:3", "4"), ("graph:1+", "0"), ("graph:9", "4")]
    {
        let Some(report) = with(name, fault) else { return };
        let worked: Vec<&str> = report.values("worked").collect();
        assert!(
            worked.len() == 2 && worked.iter().all(|w| w.ends_with("true")),
            "{fault}: {}",
            report.stdout
        );
        assert_eq!(report.values("replayed").next(), Some(replayed), "{fault}: {}", report.stdout);
        assert_eq!(
            report.values("held").next().map(|held| held.parse::<u64>().unwrap() <= CONSTANTS),
            Some(true)
        );
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
}

#[test]
fn a_copy_fails() {
    everywhere("a_copy_fails", "memcpy:N", "CUDA driver says");
}

#[test]
fn the_device_is_lost() {
    everywhere("the_device_is_lost", "lost:N", "CUDA driver says");
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
