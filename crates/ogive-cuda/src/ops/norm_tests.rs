//! What RMS norms leave for products in integers: to the bit what their twins give, a norm that leaves nothing and the kernel that rounds;
//! and no longer than the values that it stands for.

#![allow(clippy::print_stdout)]

use super::*;
use crate::launch::tests::on;
use crate::ops::codes::Codes;
use crate::{Activations, CudaBackend};
use ogive_backend::{Activation, Backend};
use ogive_tensor::{HostWeight, Q8_0};
use ptx_emulator_launcher::{Nvrtc, test_name};

fn backend() -> CudaBackend {
    CudaBackend::builder().activations(Activations::Int8).build().unwrap()
}

fn number(i: usize) -> f32 {
    (i * 7919 % 1009) as f32 / 504.0 - 1.0
}

/// Factors that make groups of all kinds: usual ones, zeros, what counts as zeros and what just does not, huge ones, no numbers.
fn factor(i: usize) -> f32 {
    let v = number(3 * i + 1);
    match (i / 32 % 9, i % 32) {
        (1, _) => 0.0,
        (2, _) => v * 2f32.powi(-121),
        (3, _) => v * 2f32.powi(-118),
        (4, _) => v * 1e37,
        (5, 7) => f32::INFINITY,
        (6, 31) => f32::NAN,
        (7, 0) => 400.0,
        _ => v,
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() }).collect()
}

/// Codes and groups as they lie on the device.
fn bytes(b: &CudaBackend, codes: &Codes) -> Vec<u8> {
    let mut all = Vec::new();
    let (from, len) = codes.place();
    b.device.transfer.fetch(b.device.stream(), "test", from, len, &mut |part| all.extend(part)).unwrap();
    all
}

fn norms() {
    let (b, mut count) = (backend(), 0);
    let d = &b.device;
    for cols in [32, 96, 416, 1056, 4096, 8192 + 64] {
        let w = b.upload(&(0..cols).map(factor).collect::<Vec<_>>(), [cols].into()).unwrap();
        for n in [1, 3, 8, 19] {
            let up = |salt: usize, dims: [usize; 3]| {
                let values: Vec<f32> = (0..n * cols).map(|i| number(i + salt)).collect();
                b.upload(&values, dims.into()).unwrap()
            };
            let flat = |salt| up(salt, [1, n, cols]).reshape([n, cols]).unwrap();
            // Of three dimensions nothing is left: the twin.
            let heads = |salt| up(salt, [n, 1, cols]);
            // Rows as they are, of few; where there are tiles, of more in those, which odd numbers of groups do not fill.
            let has_tiles = d.info.capability >= (8, 0);
            let is_left = if has_tiles { n == 1 || cols.is_multiple_of(64) } else { n <= 8 };
            let held = flat(5);
            let pairs = [
                (rms_norm(d, &flat(5), &w, 1e-6), rms_norm(d, &heads(5), &w, 1e-6)),
                (
                    add_rms_norm(d, flat(5), &flat(9), &w, 1e-6).map(|(_, y)| y),
                    add_rms_norm(d, heads(5), &heads(9), &w, 1e-6).map(|(_, y)| y),
                ),
                (
                    add_rms_norm(d, held.clone(), &flat(9), &w, 0.0).map(|(_, y)| y),
                    add_rms_norm(d, heads(5), &heads(9), &w, 0.0).map(|(_, y)| y),
                ),
            ];
            for (got, want) in pairs {
                let (got, want) = (got.unwrap(), want.unwrap());
                assert!(Device::codes(&got).is_some() == is_left && Device::codes(&want).is_none());
                let (left, made) = [&got, &want].map(|y| codes::given(d, "test", y, 0).unwrap()).into();
                assert!(bytes(&b, &left) == bytes(&b, &made), "[{n}, {cols}]");
                assert_eq!(bits(&b.download(&got).unwrap()), bits(&b.download(&want).unwrap()));
                count += 1;
            }
        }
    }
    println!("cuda: {}: {count} norms", b.info().name);
}

#[test]
fn norms_leave_the_codes_of_their_results_on_sm_80() {
    on(test_name!(), Nvrtc::V12, "sm_80", norms);
}

#[test]
fn norms_leave_the_codes_of_their_results_on_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", norms);
}

#[test]
fn norms_leave_the_codes_of_their_results_on_sm_61() {
    on(test_name!(), Nvrtc::V11, "sm_61", norms);
}

/// Rows of less than a turn, of whole ones and of more than factors are held for, against plain loops.
fn rows_of_all_lengths() {
    let (b, eps) = (CudaBackend::new().unwrap(), 1e-3f32);
    let numbers = |salt: usize, n: usize| (salt..salt + n).map(number).collect::<Vec<f32>>();
    for cols in [1, 33, 500, 4096, 4097, 8191, 8300, 12_289, 16_500] {
        let (values, more, w, shift) =
            (numbers(3, 2 * cols), numbers(11, 2 * cols), numbers(5, cols), numbers(7, cols));
        let up = |v: &[f32]| b.upload(v, [v.len() / cols, cols].into()).unwrap();
        let [factors, summands] = [&w, &shift].map(|v| b.upload(v, [cols].into()).unwrap());
        let expect = |got: Tensor, x: &[f32], centred: bool, shift: Option<&[f32]>| {
            for (got, x) in b.download(&got).unwrap().chunks(cols).zip(x.chunks(cols)) {
                let all =
                    |f: &dyn Fn(f64) -> f64| x.iter().map(|v| f(f64::from(*v))).sum::<f64>() / cols as f64;
                let mean = if centred { all(&|v| v) } else { 0.0 };
                let scale = 1.0 / (all(&|v| (v - mean) * (v - mean)) + f64::from(eps)).sqrt();
                for (i, (got, v)) in got.iter().zip(x).enumerate() {
                    let want =
                        (f64::from(*v) - mean) * scale * f64::from(w[i]) + shift.map_or(0.0, |s| s[i].into());
                    assert!((f64::from(*got) - want).abs() < 2e-5, "{i} of {cols}: {got} for {want}");
                }
            }
        };
        expect(b.rms_norm(&up(&values), &factors, eps).unwrap(), &values, false, None);
        let (sum, normed) = b.add_rms_norm(up(&values), &up(&more), &factors, eps).unwrap();
        expect(normed, &b.download(&sum).unwrap(), false, None);
        let layer = |shift| b.layer_norm(&up(&values), &factors, shift, eps).unwrap();
        expect(layer(None), &values, true, None);
        expect(layer(Some(&summands)), &values, true, Some(&shift));
    }
}

#[test]
fn rows_of_all_lengths_on_sm_90() {
    on(test_name!(), Nvrtc::V13, "sm_90", rows_of_all_lengths);
}

#[test]
fn rows_of_all_lengths_on_sm_80() {
    on(test_name!(), Nvrtc::V12, "sm_80", rows_of_all_lengths);
}

#[test]
fn rows_of_all_lengths_on_sm_61() {
    on(test_name!(), Nvrtc::V11, "sm_61", rows_of_all_lengths);
}

/// Many rows, rows that are no whole groups, heads, and a backend that rounds nothing.
#[test]
fn nothing_is_left_where_nothing_would_read_it() {
    on(test_name!(), Nvrtc::V12, "sm_80", || {
        let left = |b: &CudaBackend, dims: &[usize]| {
            let (rows, cols) = (dims[..dims.len() - 1].iter().product::<usize>(), dims[dims.len() - 1]);
            let (x, w) = (vec![1.0; rows * cols], b.upload(&vec![1.0; cols], [cols].into()).unwrap());
            let x = b.upload(&x, [rows, cols].into()).unwrap();
            let x = if let [a, b, c] = *dims { x.reshape([a, b, c]).unwrap() } else { x };
            Device::codes(&b.rms_norm(&x, &w, 1e-6).unwrap()).is_some()
        };
        let (b, plain) = (backend(), CudaBackend::new().unwrap());
        assert!(left(&b, &[8, 64]) && !left(&plain, &[8, 64]));
        for dims in [&[65, 64][..], &[0, 64], &[3, 33], &[3, 96], &[3, 0], &[2, 2, 64]] {
            assert!(!left(&b, dims), "{dims:?}");
        }
    });
}

/// A result that is overwritten is rounded anew, one that others hold is not.
#[test]
fn codes_go_with_the_values() {
    on(test_name!(), Nvrtc::V12, "sm_80", || {
        let b = backend();
        let (n, cols) = (3, 128);
        let values = |salt: usize| (0..n * cols).map(|i| number(i + salt)).collect::<Vec<f32>>();
        let up = |values: &[f32]| b.upload(values, [n, cols].into()).unwrap();
        let mut packed = vec![0; 40 * Q8_0.row_bytes(cols)];
        Q8_0.encode_row(&(0..40 * cols).map(number).collect::<Vec<_>>(), &mut packed).unwrap();
        let w = HostWeight::new("w", [1, 40, cols], &Q8_0, packed.into()).unwrap();
        let (w, ones) = (b.upload_weight(&w).unwrap(), b.upload(&vec![1.0; cols], [cols].into()).unwrap());
        let normed = || b.rms_norm(&up(&values(1)), &ones, 1e-6).unwrap();
        let same = |what: &str, x: &Tensor, left: bool| {
            assert_eq!(Device::codes(x).is_some(), left, "{what}");
            let fresh = up(&b.download(x).unwrap());
            let run = |x: &Tensor| bits(&b.download(&b.linear(x, &w).unwrap()).unwrap());
            assert_eq!(run(x), run(&fresh), "{what}");
        };
        same("as it was left", &normed(), true);
        same("in another shape", &normed().reshape([1, n, cols]).unwrap(), true);
        same("added to", &b.add(normed(), &up(&values(2))).unwrap(), false);
        same("multiplied", &b.mul(normed(), &up(&values(2))).unwrap(), false);
        same("activated", &b.activate(normed(), Activation::Silu).unwrap(), false);
        same("gated", &b.gated(normed(), &up(&values(2)), Activation::Gelu).unwrap(), false);
        let (sum, next) = b.add_rms_norm(normed(), &up(&values(2)), &ones, 1e-6).unwrap();
        same("a residual", &sum, false);
        same("the norm after", &next, true);
        let held = normed();
        same("a copy", &b.add(held.clone(), &up(&values(2))).unwrap(), false);
        same("what was copied", &held, true);
        drop((sum, next, held));
        let used = b.memory_used().0;
        drop(normed());
        assert_eq!(b.memory_used().0, used);
    });
}

/// Rows that are cut anew have other tiles: those that a norm or a gate left for the first shape do for no other.
#[test]
fn codes_are_of_one_shape() {
    on(test_name!(), Nvrtc::V12, "sm_80", || {
        for persistent in [false, true] {
            let b =
                CudaBackend::builder().activations(Activations::Int8).persistent(persistent).build().unwrap();
            let weight = |[rows, cols]: [usize; 2]| {
                let mut packed = vec![0; rows * Q8_0.row_bytes(cols)];
                Q8_0.encode_row(&(0..rows * cols).map(number).collect::<Vec<_>>(), &mut packed).unwrap();
                b.upload_weight(&HostWeight::new("w", [1, rows, cols], &Q8_0, packed.into()).unwrap())
                    .unwrap()
            };
            let up = |rows: usize, cols: usize| {
                let values: Vec<f32> = (0..rows * cols).map(|i| number(i + rows)).collect();
                b.upload(&values, [rows, cols].into()).unwrap()
            };
            for ([n, cols], to) in [
                ([2, 256], [8, 64]),
                ([8, 64], [2, 256]),
                ([4, 64], [1, 256]),
                // Filled up to whole tiles these two are alike.
                ([3, 128], [4, 96]),
                ([4, 96], [3, 128]),
            ] {
                let w = weight([64, to[1]]);
                let ones = b.upload(&vec![1.0; cols], [cols].into()).unwrap();
                let normed = b.rms_norm(&up(n, cols), &ones, 1e-6).unwrap();
                let square = weight([cols, cols]);
                let gated = b.linear_gated(&up(n, cols), &square, &square, Activation::Silu).unwrap();
                for (what, x) in [("a norm", normed), ("a gate", gated)] {
                    // A norm leaves no tiles that its rows do not fill.
                    let left = Device::codes(&x).is_some_and(|codes| !codes.in_rows());
                    assert!(left || what == "a norm" && cols % 64 != 0, "{what} of {n} rows of {cols}");
                    let x = x.reshape(to).unwrap();
                    let fresh = b.upload(&b.download(&x).unwrap(), to.into()).unwrap();
                    let run = |x: &Tensor| bits(&b.download(&b.linear(x, &w).unwrap()).unwrap());
                    assert_eq!(run(&x), run(&fresh), "{what} of {n} rows of {cols} as {to:?}");
                }
            }
        }
    });
}
