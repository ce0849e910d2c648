//! Every tile against plain loops over the rounded numbers, as each kind of device; and what the table chooses.

#![allow(clippy::print_stdout)]

use super::*;
use crate::CudaBackend;
use crate::launch::tests::on;
use crate::ops::linear;
use crate::weight;
use ogive_backend::Backend;
use ogive_tensor::{BF16, F16, FEW_BITS, FORMATS, Format, HostWeight, Q4_K, Q6_K, Q8_0};
use ptx_emulator_launcher::{Nvrtc, test_name};

/// A device of which only these are known, with so many bytes of shared memory.
pub(crate) fn info(capability: (u32, u32), shared_memory: u32) -> DeviceInfo {
    DeviceInfo {
        number: 0,
        name: String::new(),
        memory: 1 << 30,
        capability,
        multiprocessors: 100,
        shared_memory,
        l2_cache: 0,
    }
}

/// Numbers around zero, by a generator of Knuth's.
pub(crate) fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 24) as f32 - 0.5
    };
    (0..n).map(|_| next() * next() * 8.0).collect()
}

/// What is left of `values` in a format.
pub(crate) fn through(format: &Format, values: &[f32]) -> Vec<f32> {
    let mut bytes = vec![0; format.row_bytes(values.len())];
    format.encode_row(values, &mut bytes).unwrap();
    let mut out = vec![0.0; values.len()];
    bytes
        .chunks(format.block_bytes)
        .zip(out.chunks_mut(format.block_len))
        .for_each(|(b, o)| (format.decode)(b, o));
    out
}

/// `n` rows times `out` of `cols`, by `product`. Checks two bounds: that of the sums alone, over what was rounded, and the one that
/// `Compute` states, over what was not.
pub(crate) fn check(
    b: &CudaBackend,
    what: &str,
    compute: Compute,
    format: &'static Format,
    [n, out, cols]: [usize; 3],
    product: impl FnOnce(&Halves, &CudaWeight, &Tensor),
) {
    let what = format!("{what} {compute:?} {} [{n}, {cols}] to {out}", format.name);
    let (half, unit) = match compute {
        Compute::F16 => (&F16, 2f64.powi(-11)),
        _ => (&BF16, 2f64.powi(-8)),
    };
    let mut x = numbers(1 + cols as u64, n * cols);
    x[cols / 2] = 300.0;
    let mut bytes = vec![0; out * format.row_bytes(cols)];
    format.encode_row(&numbers(2, out * cols), &mut bytes).unwrap();
    let host = HostWeight::new("w", [1, out, cols], format, bytes.into()).unwrap();
    let (w, held) = (host.to_vec(), b.upload_weight(&host).unwrap());
    let (d, at) = (&b.device, "test");
    let own = weight::read(d, at, &held).unwrap();
    let given = b.upload(&x, [n, cols].into()).unwrap();
    let (halves, y) = (halves(d, at, compute, &given, 0).unwrap(), d.tensor(at, [n, out]).unwrap());
    product(&halves, own, &y);
    let got = b.download(&y).unwrap();

    let (x_half, w_half) = (through(half, &x), through(half, &w));
    let row = |v: &[f32], i: usize| v[i * cols..(i + 1) * cols].to_vec();
    let dot = |a: &[f32], b: &[f32]| -> (f64, f64) {
        let terms = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
    };
    for r in 0..n {
        for o in 0..out {
            let y = f64::from(got[r * out + o]);
            let (sum, size) = dot(&row(&x_half, r), &row(&w_half, o));
            let sums = cols as f64 * 2f64.powi(-23) * size;
            assert!((y - sum).abs() <= sums, "{what}: row {r}, output {o}: {y} for {sum}");
            let (exact, size) = dot(&row(&x, r), &row(&w, o));
            // Below the normal range of f16 errors are absolute.
            let least = cols as f64 * 2f64.powi(-25) * 310.0;
            let stated = (2.0 * unit + unit * unit) * size + sums + least;
            assert!((y - exact).abs() <= stated, "{what}: row {r}, output {o}: {y} for {exact}");
        }
    }
}

/// The same with this tile.
fn check_tile(b: &CudaBackend, tile: Tile, compute: Compute, format: &'static Format, sizes: [usize; 3]) {
    check(b, &format!("{tile:?}"), compute, format, sizes, |x, w, y| {
        with(&b.device, "test", tile, x, w, y, sizes[0]).unwrap();
    });
}

/// Each tile that this device can have: formats in turn, sizes that fill nothing, and rows that are no eights.
fn tiles() {
    let b = CudaBackend::new().unwrap();
    let info = b.info().clone();
    let mut count = 0;
    for (i, e) in TABLE.iter().enumerate().filter(|(_, e)| e.from <= info.capability) {
        for compute in [Compute::F16, Compute::Bf16].into_iter().filter(|c| oldest(*c) <= info.capability) {
            let turn = FORMATS.iter().filter(|f| !FEW_BITS.contains(f)).cycle().skip(3 * i).take(3).copied();
            for (j, format) in turn.chain([&F16, &BF16]).enumerate() {
                let cols = match format.block_len {
                    1 if j >= 3 => 203,
                    1 => 328,
                    32 => 32 * 7,
                    len => 3 * len,
                };
                let (out, n) = (e.tile.outputs() + 5, e.tile.rows() + 3);
                check_tile(&b, e.tile, compute, format, [n, out, cols]);
                count += 1;
            }
            check_tile(&b, e.tile, compute, &F16, [1, 1, 3]);
        }
    }
    println!("cuda: {}: {count} products", info.name);
    assert!(count > 0);
}

#[test]
fn tiles_of_sm_80() {
    on(test_name!(), Nvrtc::V12, "sm_80", tiles);
}

#[test]
fn tiles_of_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", tiles);
}

#[test]
fn tiles_of_sm_75() {
    on(test_name!(), Nvrtc::V11, "sm_75", tiles);
}

/// What gating leaves beside its result is, to the bit, what the kernel that rounds gives of that result; and it is there for more than few rows
/// of products in a half only.
fn gating() {
    let row = |seed: u64, format: &'static Format, [out, cols]: [usize; 2]| {
        let mut bytes = vec![0; out * format.row_bytes(cols)];
        format.encode_row(&numbers(seed, out * cols), &mut bytes).unwrap();
        HostWeight::new("w", [1, out, cols], format, bytes.into()).unwrap()
    };
    for compute in [Compute::F32, Compute::F16, Compute::Bf16, Compute::Auto] {
        let b = CudaBackend::builder().compute(compute).build().unwrap();
        let d = &b.device;
        let bytes = |x: &Halves| {
            let (mut all, len) = (Vec::new(), 2 * x.padded * x.shape[0]);
            let take = &mut |part: &[u8]| all.extend_from_slice(part);
            d.transfer.fetch(d.stream(), "test", x.buffer.address(), len, take).unwrap();
            all
        };
        for (format, other, out) in [(&F16, &F16, 203), (&Q8_0, &Q4_K, 260)] {
            let [gate, up] = [(1, format), (2, other)].map(|(seed, f)| row(seed, f, [out, 256]));
            let [gate, up] = [gate, up].map(|w| b.upload_weight(&w).unwrap());
            let compute = compute.with(&d.info, &[format.name, other.name]);
            for n in [FEW, FEW + 1, 70] {
                let x = b.upload(&numbers(3, n * 256), [n, 256].into()).unwrap();
                let y = b.linear_gated(&x, &gate, &up, Activation::Silu).unwrap();
                let wanted = n > FEW && d.info.capability >= oldest(compute);
                assert_eq!(Device::halves(&y).is_some(), wanted, "{compute:?}, {n} rows");
                let Some(left) = Device::halves(&y).cloned() else { continue };
                let fresh = b.upload(&b.download(&y).unwrap(), [n, out].into()).unwrap();
                let made = halves(d, "test", compute, &fresh, 0).unwrap();
                assert!(left.compute == compute && left.padded == made.padded);
                assert!(bytes(&left) == bytes(&made), "{compute:?}, [{n}, {out}]");
                // Another type, another order and another shape are made anew; what is overwritten has none.
                assert!(Arc::ptr_eq(&halves(d, "test", compute, &y, 0).unwrap().buffer, &left.buffer));
                let flat = y.clone().reshape([1, n * out]).unwrap();
                assert!(!Arc::ptr_eq(&halves(d, "test", compute, &flat, 0).unwrap().buffer, &left.buffer));
                drop(flat);
                assert!(Device::halves(&b.activate(y, Activation::Silu).unwrap()).is_none());
            }
        }
    }
}

#[test]
fn gating_leaves_the_halves_of_its_result_on_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", gating);
}

#[test]
fn gating_leaves_the_halves_of_its_result_on_sm_75() {
    on(test_name!(), Nvrtc::V12, "sm_75", gating);
}

/// Weights whose rows would leave multiprocessors idle are cut finer, where that keeps more of them busy.
#[test]
fn narrow_weights_are_cut_finer() {
    let outputs = |capability, shared, n, format, out| {
        let info = DeviceInfo { multiprocessors: 132, ..info(capability, shared) };
        choose(&info, Compute::F16, n, &Kept::of(format, [false; 2], [1, out, 4096])).unwrap().outputs()
    };
    for (n, format) in [17, 32, 33, 64].into_iter().flat_map(|n| FORMATS.iter().map(move |f| (n, f))) {
        for (capability, shared) in [((9, 0), 227 << 10), ((8, 0), 163 << 10)] {
            let of = |out| outputs(capability, shared, n, format, out);
            assert_eq!([64, 1024, 4096, 8384].map(of), [32; 4], "{n} rows, {}", format.name);
            assert_eq!([8448, 14_336, 128_256].map(of), [64; 3], "{n} rows, {}", format.name);
        }
        // 99 and 64 kB hold a tile of half as many warps.
        for (capability, shared) in [((8, 9), 99 << 10), ((7, 5), 64 << 10)] {
            let fits = capability > (8, 0) || format.name != "f32";
            assert_eq!(
                outputs(capability, shared, n, format, 4096),
                if fits { 32 } else { 64 },
                "{n} {}",
                format.name
            );
        }
    }
    // More rows are more blocks.
    assert_eq!([65, 128, 512].map(|n| outputs((9, 0), 227 << 10, n, &Q4_K, 1024)), [64; 3]);
}

/// Rows of the table of tiles in docs/CUDA.md.
#[test]
fn tiles_are_documented() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CUDA.md")).unwrap();
    for Entry { from: (major, minor), rows: [first, last], tile } in &TABLE {
        let rows = if *last == ANY { format!("{first} and more") } else { format!("{first} to {last}") };
        let shared =
            [&Q4_K, &Q6_K, &Q8_0, &F16].map(|f| tile.shared(&[Kept::of(f, [false; 2], [1, 64, 4096])]));
        let [q4_k, q6_k, q8_0, f16] = shared;
        let row = format!(
            "| {major}.{minor}, {rows} | {} | {} | {} | {q4_k} | {q6_k} | {q8_0} | {f16} |",
            tile.rows(),
            tile.outputs(),
            tile.threads()
        );
        assert!(text.contains(&row), "docs/CUDA.md has no row\n{row}");
    }
}

/// A step that is filled up takes the kernels and tiles that its rows would take alone.
#[test]
fn rows_of_a_bucket_are_multiplied_alike() {
    let devices = [
        ((6, 1), 48 << 10),
        ((7, 5), 64 << 10),
        ((8, 0), 163 << 10),
        ((8, 9), 99 << 10),
        ((9, 0), 227 << 10),
    ];
    for (capability, shared) in devices {
        let info = info(capability, shared);
        for (format, compute) in FORMATS.iter().flat_map(|f| [(f, Compute::F16), (f, Compute::Bf16)]) {
            for out in [16, 1000, 4096, 128_256] {
                let w = Kept::of(format, [false; 2], [1, out, 4096]);
                for n in 1..=64 {
                    let rows = crate::bucket::rows(n);
                    let kernel = |n| (linear::in_slices(&info, n, &w), choose(&info, compute, n, &w));
                    assert_eq!(
                        kernel(n),
                        kernel(rows),
                        "{n} rows, {capability:?}, {compute:?}, {} of {out}",
                        format.name
                    );
                }
            }
        }
    }
    for n in 1..=64 {
        let rows = crate::bucket::rows(n);
        let few = |n: usize| (n <= linear::FEW, linear::rows(n.min(linear::FEW)));
        assert!(rows >= n && few(n) == few(rows), "{n} rows");
    }
    assert_eq!([65, 300].map(crate::bucket::rows), [65, 300]);
}
