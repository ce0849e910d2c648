//! Products in every format: bytes of weight a second for one token, beside what the memory gives, and operations a
//! second for several. Weights are as large as a model, so that no cache holds them. Not criterion: what matters is the
//! ratio to the bandwidth of the same moment, in one table.
//!
//! `cargo bench -p ogive-cpu --bench linear [-- FORMAT…]`; `OGIVE_CPU_THREADS` (2), `OGIVE_CPU_REPACK=0`,
//! `OGIVE_CPU_MIB`, `OGIVE_CPU_TOKENS` (2,4,8,32,512), `OGIVE_CPU_SHAPE` (4096,2048: rows at most, columns) and
//! `OGIVE_CPU_FORCE` say with what.
#![allow(clippy::print_stdout)]

use ogive_backend::{Backend, tensor::*};
use ogive_cpu::{CpuBackend, ceilings::Memory};
use std::{hint::black_box, sync::Arc, time::Instant};

/// Mebibytes of all weights, unless `OGIVE_CPU_MIB` says another number: 1 for the kernels' own speed, out of the cache.
const MIB: usize = 640;
/// Operations of a measurement with several tokens: enough for clocks that tick every few milliseconds.
const WORK: usize = 100_000_000_000;
/// How often plain reads and products take turns: the middle of their ratios counts, as memory's rate changes within seconds.
const TURNS: usize = 15;
/// A matrix has so many rows at most, and so many columns, unless `OGIVE_CPU_SHAPE` says other numbers.
const SHAPE: [usize; 2] = [4096, 2048];

/// Seconds that this thread has been on a processor, where the system tells: others do not disturb them.
fn own_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(stat.split_whitespace().next()?.parse::<u64>().ok()? as f64 / 1e9)
}

/// The best of a few runs of `f`, in seconds: on the clock, or where one thread does it all, of its own time.
fn best(runs: usize, alone: bool, mut f: impl FnMut()) -> f64 {
    let run = |_| {
        let (start, own) = (Instant::now(), own_time().filter(|_| alone));
        f();
        own.and_then(|own| Some(own_time()? - own)).unwrap_or_else(|| start.elapsed().as_secs_f64())
    };
    (0..runs).map(run).fold(f64::INFINITY, f64::min)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    let threads = std::env::var("OGIVE_CPU_THREADS").ok().and_then(|v| v.parse().ok()).unwrap_or(2);
    let repack = std::env::var("OGIVE_CPU_REPACK").map_or(true, |v| v != "0");
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let cpu = CpuBackend::builder().threads(threads).repack(repack).build()?;
    println!("{}", cpu.facts().description);
    // Bytes from 16 to 63 are ordinary numbers in every format: neither denormal nor infinite.
    let mut state = 1_u64;
    let mib = std::env::var("OGIVE_CPU_MIB").ok().and_then(|v| v.parse().ok()).unwrap_or(MIB);
    let mut bytes = vec![0_u8; mib << 20];
    for word in bytes.as_chunks_mut::<8>().0 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *word = ((state ^ state >> 31) & 0x3f3f_3f3f_3f3f_3f3f | 0x1010_1010_1010_1010).to_le_bytes();
    }
    let bytes: Arc<Vec<u8>> = Arc::new(bytes);
    let memory = Memory::new(threads, bytes.len() / threads);
    let tokens = std::env::var("OGIVE_CPU_TOKENS").unwrap_or_else(|_| "2,4,8,32,512".into());
    let tokens: Vec<usize> = tokens.split(',').filter_map(|n| n.parse().ok()).filter(|n| *n > 0).collect();
    print!("format    GB/s n=1   of read | GOP/s:");
    tokens.iter().for_each(|n| print!(" n={n}"));
    println!();
    let shape = std::env::var("OGIVE_CPU_SHAPE").unwrap_or_default();
    let shape: Vec<usize> = shape.split(',').filter_map(|n| n.parse().ok()).collect();
    let [most, cols] = shape.try_into().unwrap_or(SHAPE);
    for format in FORMATS.iter().filter(|f| wanted.is_empty() || wanted.iter().any(|w| w == f.name)) {
        let rows = most.min(bytes.len() / format.row_bytes(cols) / 32 * 32);
        let size = rows * format.row_bytes(cols);
        let weights: Vec<_> = (0..bytes.len() / size)
            .map(|i| {
                let bytes = Bytes::new(bytes.clone(), i * size..(i + 1) * size)?;
                cpu.upload_weight(&HostWeight::new("w", [1, rows, cols], format, bytes)?)
            })
            .collect::<Result<_>>()?;
        let passes = MIB.div_ceil(mib);
        let input = |n: usize| {
            let x: Vec<f32> = (0..n * cols).map(|i| ((i * 37 % 113) as f32 - 56.0) / 30.0).collect();
            cpu.upload(&x, [n, cols].into())
        };
        let x = input(1)?;
        let gigabytes = (passes * weights.len() * size) as f64 / 1e9;
        let turn = |_| {
            let reads = memory.read_rate() / 1e9;
            // On the clock, as the reads are: the system counts a thread's own time in ticks of milliseconds, of which this has few.
            let seconds = best(1, false, || {
                let all = (0..passes).flat_map(|_| &weights);
                all.for_each(|w| drop(black_box(cpu.linear(&x, w))));
            });
            (gigabytes / seconds, reads)
        };
        let turns: Vec<(f64, f64)> = (0..TURNS).map(turn).collect();
        print!(
            "{:8} {:9.1} {:8.0}% |  ",
            format.name,
            median(turns.iter().map(|t| t.0)),
            median(turns.iter().map(|t| 100.0 * t.0 / t.1))
        );
        for &n in &tokens {
            let x = input(n)?;
            let count = WORK / (2 * n * rows * cols);
            let seconds = best(3, threads == 1, || {
                let some = (0..count).map(|i| &weights[i % weights.len()]);
                some.for_each(|w| drop(black_box(cpu.linear(&x, w))));
            });
            print!("{:7.0}", (2 * n * rows * cols * count) as f64 / 1e9 / seconds);
        }
        println!();
    }
    Ok(())
}
