//! What loading a model on a GPU sends and takes: its packed bytes and no others, from page-locked memory, without a copy of any weight in
//! another form.
//!
//! Under the emulator only, which counts. Each format is a process of its own, as counts are told when it ends.
#![cfg(feature = "cuda")]
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

use ogive::backend::Backend;
use ogive::cuda::CudaBackend;
use ogive::weights::gguf_file::{GgmlType, Gguf, GgufWriter};
use ogive::{Options, tensor::FORMATS};
use ptx_emulator_launcher::{Launcher, test, test_name};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A Llama of two layers, or of some 140 MB in Q4_K, whose matrices are all of this format, of zeros.
fn write(path: &Path, format: &str, tied: bool, large: bool) {
    let (layers, dim, ffn, kv, vocab) =
        if large { (16, 1024, 2816, 256, 32_000) } else { (2, 512, 1024, 256, 1024) };
    let ty = *GgmlType::ALL.iter().find(|ty| ty.name().eq_ignore_ascii_case(format)).unwrap();
    let mut w = GgufWriter::new();
    w.set("general.architecture", "llama").set("llama.attention.layer_norm_rms_epsilon", 1e-5_f32);
    for (key, value) in [
        ("block_count", layers),
        ("context_length", 256),
        ("embedding_length", dim),
        ("feed_forward_length", ffn),
        ("attention.head_count", 8),
        ("attention.head_count_kv", 8 * kv / dim),
        ("vocab_size", vocab),
    ] {
        w.set(&format!("llama.{key}"), value as u32);
    }
    let mut matrices = vec![("token_embd".to_owned(), [dim, vocab])];
    let mut norms = vec!["output_norm".to_owned()];
    if !tied {
        matrices.push(("output".into(), [dim, vocab]));
    }
    for layer in 0..layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        norms.extend(["attn_norm", "ffn_norm"].map(name));
        for (part, dims) in [
            ("attn_q", [dim, dim]),
            ("attn_k", [dim, kv]),
            ("attn_v", [dim, kv]),
            ("attn_output", [dim, dim]),
            ("ffn_gate", [dim, ffn]),
            ("ffn_up", [dim, ffn]),
            ("ffn_down", [ffn, dim]),
        ] {
            matrices.push((name(part), dims));
        }
    }
    let mut bytes = Vec::new();
    for (name, dims) in &matrices {
        w.tensor(&format!("{name}.weight"), dims, ty).unwrap();
        bytes.push(dims[0] / ty.block_len() * ty.block_bytes() * dims[1]);
    }
    for name in &norms {
        w.tensor(&format!("{name}.weight"), &[dim], GgmlType::F32).unwrap();
        bytes.push(4 * dim);
    }
    let mut data = w.create(path).unwrap();
    for n in bytes {
        data.append(&vec![0; usize::try_from(n).unwrap()]).unwrap();
    }
    data.finish().unwrap();
}

/// Bytes of all tensors in the file.
fn packed(path: &Path) -> u64 {
    let file = Gguf::open(path).unwrap();
    file.tensors().iter().map(|info| file.data(info).unwrap().bytes().len() as u64).sum()
}

/// In the process of a case: loads the model, and says what it has and takes.
fn load(format: &str, tied: bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write(&path, format, tied, false);
    let cuda = Arc::new(CudaBackend::new().unwrap());
    let options = Options::new().backend(Arc::clone(&cuda) as Arc<dyn Backend>).context(256);
    let estimate = options.estimate_memory(&path).unwrap().weights;
    eprintln!("mark: begin");
    let model = options.open(&path).unwrap();
    eprintln!("mark: end");
    let (used, peak) = cuda.memory_used();
    drop(model);
    // The harness has begun a line.
    println!("\npacked: {}\nused: {used}\npeak: {peak}\nestimate: {estimate}", packed(&path));
}

fn launcher() -> Launcher {
    let launcher = Launcher::new().patience(Duration::from_secs(300)).set("PTX_EMU_STATS", "1");
    launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"))
}

fn said(report: &test::Report, key: &str) -> u64 {
    report.values(key).next().unwrap_or_else(|| panic!("no {key}: {}", report.stdout)).parse().unwrap()
}

/// Of every format there is: up go the bytes of the file, each once and nothing else, and on the device is what was estimated at any time, and
/// no more than the file's bytes with the ends of pages.
#[test]
fn what_goes_up_and_what_is_taken_is_the_files_bytes() {
    if let Some(case) = test::case() {
        let (format, tied) = case.split_once(' ').map_or((&*case, false), |(format, _)| (format, true));
        return load(format, tied);
    }
    // GGUF has no FP8.
    let formats = FORMATS.iter().filter(|format| format.name != "f8_e4m3");
    let cases = formats.map(|format| format.name.to_owned()).chain(["q4_k tied".to_owned()]);
    for case in cases {
        let Some(report) = test::run(test_name!(), &case, &launcher()) else { return };
        let report = report.ok();
        let (packed, used) = (said(&report, "packed"), said(&report, "used"));
        let most = report.counted(&["most_bytes"]);
        println!("{case}: {packed} bytes packed, {used} in use, {most} of the device at most");
        let sent = report.counted(&["upload_bytes"]);
        if case == "nvfp4" {
            // 36 bytes of the file become 40: a factor is laid before them.
            assert!(sent > packed && sent * 36 <= packed * 40, "{case}: {sent} for {packed}");
        } else {
            assert_eq!(sent, packed, "{case}");
        }
        // Nothing is computed, nothing comes back, and nothing goes the long way through the driver's own buffers.
        let others = ["pageable_copies", "downloads", "device_copies", "launches", "fills"];
        assert_eq!(others.map(|count| report.counted(&[count])), [0; 5], "{case}");
        // Not even for a moment was there more in the pool; and what the driver gave is no more than the pool cuts pieces from.
        assert_eq!([said(&report, "peak"), said(&report, "estimate")], [used; 2], "{case}");
        assert!(used >= packed && used <= packed + packed / 8 + (2 << 20), "{case}: {used} for {packed}");
        assert!(most >= used && most <= used + (4 << 20), "{case}: {most} for {used}");
    }
}

/// Little is left of the pages that weights share, and a model that is loaded after another takes the same ones.
#[test]
fn a_model_fills_its_pages_and_leaves_them_to_the_next() {
    if test::case().is_some() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        write(&path, "q4_k", false, true);
        let cuda = Arc::new(CudaBackend::new().unwrap());
        let options = Options::new().backend(Arc::clone(&cuda) as Arc<dyn Backend>).context(256);
        println!("\npacked: {}", packed(&path));
        for _ in 0..3 {
            let model = options.open(&path).unwrap();
            println!("used: {}", cuda.memory_used().0);
            drop(model);
            assert_eq!(cuda.memory_used().0, 0);
        }
        return;
    }
    let Some(report) = test::run(test_name!(), "large", &launcher()) else { return };
    let report = report.ok();
    let (packed, most) = (said(&report, "packed"), report.counted(&["most_bytes"]));
    let used: Vec<u64> = report.values("used").map(|used| used.parse().unwrap()).collect();
    println!("{packed} bytes packed, {used:?} in use, {most} of the device at most");
    assert!(used == [used[0]; 3] && used[0] >= packed && used[0] <= packed + packed / 50, "{used:?}");
    // Small tensors have a slab of their own.
    assert!(most >= used[0] && most <= used[0] + (4 << 20), "{most}: {used:?}");
}

/// A number of a line of the trace, which is hexadecimal.
fn argument(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("no {name}: {line}"));
    let digits = rest.split(|c: char| !c.is_ascii_hexdigit()).next().unwrap();
    u64::from_str_radix(digits, 16).unwrap()
}

/// Loading waits only for a half of the buffer that it wants to fill again, and then the other half is queued behind that: the device has what to
/// copy while the host reads on.
#[test]
fn copies_are_on_their_way_while_the_next_are_read() {
    if test::case().is_some() {
        return load("f32", false);
    }
    let launcher = launcher().set("PTX_EMU_TRACE", "1");
    let Some(report) = test::run(test_name!(), "trace", &launcher) else { return };
    let report = report.ok();
    let lines = report.stderr.lines().skip_while(|line| !line.contains("mark: begin"));
    let lines: Vec<&str> = lines.take_while(|line| !line.contains("mark: end")).collect();
    let (mut sent, mut records, mut waits) = (0, Vec::new(), 0);
    for line in &lines {
        if line.contains("cuMemcpyHtoDAsync") {
            sent += argument(line, "bytes");
        } else if line.contains("cuEventRecord(") {
            records.push((argument(line, "event"), sent));
        } else if line.contains("cuEventSynchronize(") {
            let event = argument(line, "event");
            // One that was never recorded is waited for without waiting.
            if let Some((_, before)) = records.iter().rev().find(|(recorded, _)| *recorded == event) {
                waits += 1;
                assert!(
                    sent - before >= 4 << 20,
                    "{} bytes are queued behind what is waited for",
                    sent - before
                );
            }
        } else {
            assert!(!line.contains("Synchronize") && !line.contains("cuMemFree"), "{line}");
        }
    }
    println!("{sent} bytes in halves that were waited for {waits} times");
    assert_eq!(sent, said(&report, "packed"));
    assert!(waits >= 3, "{}", lines.join("\n"));
    // Nothing is taken from the driver but pages and slabs for weights.
    let taken = lines.iter().filter(|line| line.contains("cuMemAlloc")).map(|line| argument(line, "bytes"));
    assert!(taken.sum::<u64>() <= sent + sent / 8 + (6 << 20), "{}", lines.join("\n"));
}
